//! Numbers of processes for a server that is restored: its processes and threads must get those that they had, and a server has no right to choose them. Init has, over its own pid
//! namespace, and sets the number that the kernel gave last when the restoring runtime asks for that.
//!
//! A question is a number, 32 bits; the answer an errno, 0 when it is set. One question is open at a time. Anything else ends it, as does the runtime when it lets go of its end, and
//! from then on the server can ask for nothing.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::RawFd;

use super::sys::{Errno, check, check_int};

/// The kernel's file while the host's /proc is not hidden yet; later it is below a read-only mount.
const LAST: &CStr = c"/r/proc/sys/kernel/ns_last_pid";

/// The descriptors that init needs.
pub(super) struct Numbers {
    /// Where the runtime asks; -1 when it may not.
    socket: RawFd,
    last: RawFd,
}

impl Numbers {
    /// For nobody.
    pub(super) const fn none() -> Self {
        Self { socket: -1, last: -1 }
    }

    /// For a runtime that asks at `socket`. In the moment after /proc was mounted.
    pub(super) fn open(&mut self, socket: RawFd) -> Result<(), Errno> {
        // SAFETY: the path is terminated.
        self.last =
            check_int(unsafe { libc::open(LAST.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
        self.socket = socket;
        Ok(())
    }

    /// What init keeps open.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [self.socket, self.last].into_iter().filter(|fd| *fd >= 0)
    }

    /// The socket, for poll, which leaves out a negative number.
    pub(super) fn socket(&self) -> RawFd {
        self.socket
    }

    /// Something has come: answers the question, or lets go.
    pub(super) fn answer(&mut self) {
        let mut question = [0u8; 8];
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: a live buffer of this length.
        let len =
            unsafe { libc::recv(self.socket, question.as_mut_ptr().cast(), question.len(), flags) };
        let number = match question.first_chunk() {
            Some(number) if len == 4 => u32::from_ne_bytes(*number),
            _ => return self.close(),
        };
        let answer = self.set(number).err().unwrap_or(0).to_ne_bytes();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: as above.
        let sent = unsafe { libc::send(self.socket, answer.as_ptr().cast(), answer.len(), flags) };
        if sent != 4 {
            self.close();
        }
    }

    fn set(&self, number: u32) -> Result<(), Errno> {
        let mut text = [0u8; 10];
        let mut rest = &mut text[..];
        let room = rest.len();
        // Ten digits are enough for every number.
        let written =
            write!(rest, "{number}").map(|()| room - rest.len()).map_err(|_| libc::EINVAL)?;
        // SAFETY: a live buffer of this length. The kernel reads from the file's start only.
        check(unsafe { libc::pwrite(self.last, text.as_ptr().cast(), written, 0) } as i64).map(drop)
    }

    fn close(&mut self) {
        for fd in self.descriptors() {
            // SAFETY: init's own, used no more.
            unsafe { libc::close(fd) };
        }
        *self = Self::none();
    }
}
