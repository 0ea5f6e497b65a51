//! The handle to a started server: its end, its pid, signals to it.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

use super::layer::Layer;
use super::numbers::SpareNumbers;
use super::report::{RECORD_BYTES, Record};
use super::spec::Isolation;

/// The end of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this exit status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    pub(super) fn from_wait(status: i32) -> Self {
        match libc::WIFSIGNALED(status) {
            true => Self::Signal(libc::WTERMSIG(status)),
            false => Self::Code(libc::WEXITSTATUS(status)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A server that runs, or has run. Dropping it kills the server and all its descendants.
#[derive(Debug)]
pub struct ServerProcess {
    /// A pidfd.
    pub(super) init: OwnedFd,
    pub(super) init_pid: u32,
    /// A pidfd.
    pub(super) server: OwnedFd,
    pub(super) pid: u32,
    /// From init: a record when the server ends.
    pub(super) socket: OwnedFd,
    pub(super) isolation: Isolation,
    pub(super) exit: Option<Exit>,
    /// Its private layer; `None` without isolation.
    pub(super) layer: Option<Arc<Layer>>,
    /// Numbers for stand-ins; `None` without isolation.
    pub(super) spare: Option<Arc<SpareNumbers>>,
}

impl ServerProcess {
    /// The server's pid on the host (in its own namespace it is 2).
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The parent of all of the server's processes, by its number on the host.
    pub fn init(&self) -> u32 {
        self.init_pid
    }

    /// Its private layer over the host's files; none without isolation.
    pub fn layer(&self) -> Option<Arc<Layer>> {
        self.layer.clone()
    }

    /// Numbers of processes that it has not come to; none without isolation.
    pub fn spare_numbers(&self) -> Option<Arc<SpareNumbers>> {
        self.spare.clone()
    }

    /// Readable when the server has ended: then [`Self::try_wait`] gives the exit.
    pub fn exit_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The server's end, if it has ended. By then all its descendants are gone, too.
    ///
    /// # Errors
    /// Those of the system calls underneath; none is expected.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::ZERO) {
                Ok(0) | Err(Errno::EINTR) => return Ok(None),
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
            return self.wait().map(Some);
        }
        Ok(self.exit)
    }

    /// Waits for the server's end.
    ///
    /// # Errors
    /// As [`Self::try_wait`].
    pub fn wait(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let reported = loop {
            match receive(&self.socket)? {
                Some((Record::Exited { status }, ..)) => break Some(Exit::from_wait(status)),
                Some(_) => {}
                None => break None,
            }
        };
        let init = reap(self.init.as_fd())?;
        // Without a report init was killed, and with it the server.
        let exit = reported.unwrap_or(init);
        self.exit = Some(exit);
        Ok(exit)
    }

    /// Sends a signal to the server.
    ///
    /// # Errors
    /// `ESRCH` when it has ended, `EINVAL` for a signal that does not exist.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        signal_pidfd(self.server.as_fd(), signal)
    }

    /// Kills the server and all its descendants. [`Self::wait`] gives the exit.
    ///
    /// # Errors
    /// Those of the system calls underneath; a server that has ended is none.
    pub fn kill(&mut self) -> io::Result<()> {
        if self.exit.is_some() {
            return Ok(());
        }
        let killed = match self.isolation {
            // With init ends its pid namespace and all that is in it.
            Isolation::Full => signal_pidfd(self.init.as_fd(), libc::SIGKILL),
            // init kills the server's remaining processes, and ends.
            Isolation::None => signal_pidfd(self.server.as_fd(), libc::SIGKILL),
        };
        match killed {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.exit.is_none() && self.kill().is_ok() {
            let _ = self.wait();
        }
    }
}

/// A record, its sender's credentials, and the descriptor that came with it.
pub(super) type Message = (Record, UnixCredentials, Option<OwnedFd>);

/// Receives a record; `None` when init is gone.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<Message>> {
    let mut bytes = [0; RECORD_BYTES];
    let mut control = nix::cmsg_space!(UnixCredentials, RawFd);
    let (len, sender, descriptor) = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags) {
            Ok(message) => {
                let (mut sender, mut descriptor) = (None, None);
                for control in message.cmsgs()? {
                    match control {
                        ControlMessageOwned::ScmCredentials(credentials) => {
                            sender = Some(credentials);
                        }
                        ControlMessageOwned::ScmRights(fds) => {
                            for fd in fds {
                                // SAFETY: the kernel has just made it for this process; nothing else owns it.
                                descriptor = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                            }
                        }
                        _ => {}
                    }
                }
                break (message.bytes, sender, descriptor);
            }
            // init was killed with our byte unread.
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    if len == 0 {
        return Ok(None);
    }
    match (Record::decode(&bytes[..len]), sender) {
        (Some(record), Some(sender)) => Ok(Some((record, sender, descriptor))),
        _ => Err(io::Error::other("an unknown record from init")),
    }
}

pub(super) fn reap(init: BorrowedFd<'_>) -> io::Result<Exit> {
    loop {
        match waitid(Id::PIDFd(init), WaitPidFlag::WEXITED | WaitPidFlag::__WALL) {
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Exit::Signal(signal as i32)),
            Ok(WaitStatus::Exited(_, code)) => return Ok(Exit::Code(code)),
            Ok(_) | Err(Errno::EINTR) => {}
            // Another part of this process waited for all children.
            Err(Errno::ECHILD) => return Ok(Exit::Signal(libc::SIGKILL)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(super) fn own_pidfd() -> io::Result<OwnedFd> {
    pidfd_open(nix::unistd::getpid().as_raw())
}

pub(super) fn pidfd_open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: the call has made this descriptor (close-on-exec); nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

pub(super) fn signal_pidfd(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let info: *const u8 = std::ptr::null();
    // SAFETY: a null siginfo makes the kernel fill in what kill(2) would.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, info, 0)
    })
    .map(drop)
    .map_err(io::Error::from)
}
