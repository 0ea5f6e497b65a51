//! The reactor's event sources: all of them, or the urgent ones only.
//!
//! Urgent sources are those that entries in flight wait for: peers, the log on disk, the server, the timer, other threads. Clients
//! are the crowd. The urgent sources have an `epoll` of their own, which is itself one source in the `epoll` of all, so a
//! leader that waits until more clients are back ([`skein_replica::agreement::gather`]) is not woken by each of them, and does not miss
//! events that earlier clients wait for.

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use nix::poll::{PollFd, PollFlags};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// The urgent sources, among all.
const URGENT: Token = Token(usize::MAX - 1);
const EVENTS: usize = 1024;

/// See the [module](self).
pub struct Sources {
    all: Poll,
    urgent: Poll,
}

/// The events.
pub struct Happened {
    all: Events,
    urgent: Events,
}

impl Happened {
    /// Room for it.
    #[must_use]
    pub fn new() -> Self {
        Self { all: Events::with_capacity(EVENTS), urgent: Events::with_capacity(EVENTS) }
    }

    /// One by one, urgent ones first.
    pub fn iter(&self) -> impl Iterator<Item = &mio::event::Event> {
        self.urgent.iter().chain(self.all.iter().filter(|e| e.token() != URGENT))
    }
}

impl Sources {
    /// None yet.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (all, urgent) = (Poll::new()?, Poll::new()?);
        all.registry().register(&mut SourceFd(&urgent.as_raw_fd()), URGENT, Interest::READABLE)?;
        Ok(Self { all, urgent })
    }

    /// Where clients are registered.
    #[must_use]
    pub fn crowd(&self) -> &Registry {
        self.all.registry()
    }

    /// Where everything else is.
    #[must_use]
    pub fn urgent(&self) -> &Registry {
        self.urgent.registry()
    }

    /// Waits for an urgent event, for `longest` at most. A failure ends the wait.
    pub fn wait_urgent(&self, longest: Duration) {
        // SAFETY: the descriptor is open as long as `self`, which is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.urgent.as_raw_fd()) };
        let _ = nix::poll::ppoll(
            &mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)],
            Some(longest.into()),
            None,
        );
    }

    /// Waits for any event, for `timeout` at most; a signal ends it, too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, happened: &mut Happened, timeout: Option<Duration>) -> io::Result<()> {
        happened.urgent.clear();
        uninterrupted(self.all.poll(&mut happened.all, timeout))?;
        if happened.all.iter().any(|e| e.token() == URGENT) {
            // All of them: there are far fewer urgent sources than fit.
            uninterrupted(self.urgent.poll(&mut happened.urgent, Some(Duration::ZERO)))?;
        }
        Ok(())
    }
}

fn uninterrupted(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|e| if e.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(e) })
}
