//! A timer for the event loop, finer than its millisecond: a timerfd.

use crate::error::NodeError;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A timer that the event loop waits for. Its events need not be read: they are edges.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    due: Option<Duration>,
}

impl Timer {
    /// Makes it and registers it.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(registry: &Registry, token: Token) -> Result<Self, NodeError> {
        let fd = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )
        .map_err(|e| NodeError::System { what: "make a timer", error: e.into() })?;
        registry
            .register(&mut SourceFd(&fd.as_fd().as_raw_fd()), token, Interest::READABLE)
            .map_err(NodeError::system("watch a timer"))?;
        Ok(Self { fd, due: None })
    }

    /// Rings at `at`, unless it was set to ring at that time already.
    pub fn set(&mut self, at: Duration, now: Duration) {
        // A few microseconds do not matter, a system call does.
        if self.due.is_some_and(|due| due > now && at.abs_diff(due) < Duration::from_micros(20)) {
            return;
        }
        let left = at.saturating_sub(now).max(Duration::from_micros(1));
        self.due = self
            .fd
            .set(Expiration::OneShot(left.into()), TimerSetTimeFlags::empty())
            .is_ok()
            .then_some(at);
    }
}
