//! A traced run while it goes on.

use super::file::{Damaged, TraceFile};
use crate::place;
use skein_arena::layout::{FORMER_TRACE_FD, TRACE_FD};
use skein_sched::trace::Event;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A launcher's additions for a server that is traced.
#[derive(Debug)]
pub struct Traced {
    inherit: Vec<(OwnedFd, RawFd)>,
    pid: Arc<AtomicU32>,
}

impl Traced {
    /// The descriptors and their numbers in the server.
    pub(crate) fn inherit(&self) -> impl Iterator<Item = (BorrowedFd<'_>, RawFd)> {
        self.inherit.iter().map(|(fd, target)| (fd.as_fd(), *target))
    }

    /// The server runs.
    pub(crate) fn launched(&self, pid: u32) {
        self.pid.store(pid, Ordering::Release);
    }
}

/// The place where a server has stopped, named while it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The number of the event.
    pub number: u64,
    /// Its thread's calls, the innermost first: as in `libfoo.so+0x12ab (function)`.
    pub backtrace: Vec<String>,
    /// The former run's calling place at that event, if known.
    pub former: Option<String>,
}

/// Inspects a traced server that stops at an event.
#[derive(Debug)]
pub struct Watch<'a> {
    trace: &'a TraceFile,
    former: Option<&'a TraceFile>,
    pid: Arc<AtomicU32>,
    /// The finding.
    pub seen: Option<Seen>,
}

impl<'a> Watch<'a> {
    /// A run that writes `trace`, and stops where that differs from `former`, if that is given.
    #[must_use]
    pub fn new(trace: &'a TraceFile, former: Option<&'a TraceFile>) -> Self {
        Self { trace, former, pid: Arc::default(), seen: None }
    }

    /// The run's trace.
    #[must_use]
    pub const fn trace(&self) -> &'a TraceFile {
        self.trace
    }

    /// The additions for the run's launcher.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn traced(&self) -> io::Result<Traced> {
        let mut inherit = vec![(self.trace.descriptor()?, TRACE_FD)];
        if let Some(former) = self.former {
            inherit.push((former.descriptor()?, FORMER_TRACE_FD));
        }
        Ok(Traced { inherit, pid: self.pid.clone() })
    }

    /// Names the server's place, if it has stopped, and lets it go on; to be called often. Answers whether it was inspected.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn look(&mut self) -> Result<bool, Damaged> {
        let server = self.pid.load(Ordering::Acquire);
        if self.seen.is_some() || server == 0 {
            return Ok(self.seen.is_some());
        }
        let Some(stop) = self.trace.stopped()? else { return Ok(false) };
        let process = |event: Option<Event>| {
            let inner = event.and_then(|event| event.whose()).map(|(_, process)| process);
            inner.map_or(server, |inner| place::process(server, inner))
        };
        let own = process(self.trace.event(stop.number)?);
        // An address behind a call may be another function's.
        let name = |pid: u32, at: u64| place::name(pid, at.saturating_sub(1));
        let backtrace = stop.frames.iter().map(|at| name(own, *at)).collect();
        let former = match self.former {
            Some(former) => former.event(stop.number)?,
            None => None,
        };
        let former = match former {
            Some(Event::Begin { from, .. }) if from != 0 => Some(name(process(former), from)),
            _ => None,
        };
        self.seen = Some(Seen { number: stop.number, backtrace, former });
        self.trace.go_on()?;
        Ok(true)
    }
}
