//! Open files on their way from one process of the server to another: the runtime keeps them in a socket, as packets of a ticket and a descriptor.
//!
//! They are taken out and put back in their order, while the server stands.

use super::Image;
use crate::processes::Process;
use crate::{MemoryError, Result};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use skein_arena::layout::{PARK_IN_FD, PARK_OUT_FD};
use skein_arena::restore;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

fn failed(error: impl Into<io::Error>) -> MemoryError {
    MemoryError::Read { what: "a descriptor on its way".into(), error: error.into() }
}

/// A duplicate of another process's descriptor.
fn duplicate(host_pid: u32, fd: i32) -> Result<OwnedFd> {
    // SAFETY: numbers; the answers are new descriptors.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, host_pid, 0);
        if process < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        let process = OwnedFd::from_raw_fd(process as i32);
        let own = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0);
        if own < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(OwnedFd::from_raw_fd(own as i32))
    }
}

/// The next packet; `None`: there is none.
fn take(from: &OwnedFd) -> Result<Option<(u64, OwnedFd)>> {
    let mut ticket = [0; 8];
    let mut parts = [IoSliceMut::new(&mut ticket)];
    let mut room = nix::cmsg_space!(i32);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut room), flags) {
        Ok(message) => message,
        Err(nix::Error::EAGAIN) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let beside = message.cmsgs().map_err(failed)?.find_map(|beside| match beside {
        ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
        _ => None,
    });
    let fd = beside.ok_or_else(|| failed(io::Error::other("it is not in its packet")))?;
    // SAFETY: the kernel has just made it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Some((u64::from_ne_bytes(ticket), fd)))
}

fn put(to: &OwnedFd, ticket: u64, fd: &OwnedFd) -> Result<()> {
    let ticket = ticket.to_ne_bytes();
    let rights = [fd.as_raw_fd()];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let beside = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(&ticket)], &beside, flags, None)
        .map(drop)
        .map_err(failed)
}

impl Image<'_, '_> {
    /// The open files on their way, of which any process has the socket.
    pub(super) fn parked(&mut self, process: &Process) -> Result<()> {
        let [to, from] =
            [duplicate(process.host_pid, PARK_IN_FD)?, duplicate(process.host_pid, PARK_OUT_FD)?];
        let mut packets = Vec::new();
        while let Some(packet) = take(&from)? {
            packets.push(packet);
        }
        for (ticket, fd) in &packets {
            put(&to, *ticket, fd)?;
        }
        let this = Process {
            pid: 0,
            host_pid: std::process::id(),
            command: "a descriptor on its way".into(),
        };
        for (ticket, fd) in packets {
            let (description, _) = self.open_file(&this, fd.as_raw_fd())?;
            self.parked.push(restore::Parked { ticket, description, unused: 0 });
            self.on_their_way.push(fd);
        }
        Ok(())
    }
}
