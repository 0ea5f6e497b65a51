//! A server that is driven from an existing log: no consensus, no clients, everything committed.
//!
//! `skein check` and `skein replay` put their runs together from this: a link, the process behind it, and a [`Backlog`] of entries.

use super::Launcher;
use super::launch::Keeper;
use crate::error::NodeError;
use crate::images::Restart;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skein_model::LogIndex;
use skein_replica::server::{Broken, Link, ServerEvent};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// The longest sleep before it looks again: 2 ms.
const LOOK_MS: u8 = 2;
/// All entries are committed here.
const ALL: LogIndex = LogIndex(u64::MAX);

/// A server and its link.
#[derive(Debug)]
pub struct Offline {
    /// Its input and output.
    pub link: Link,
    /// Its end, if it ended by itself.
    pub status: Option<i32>,
    keeper: Option<Keeper>,
    events: Receiver<ServerEvent>,
}

impl Offline {
    /// Starts the server of a link, perhaps from an image, of which the link knows.
    ///
    /// # Errors
    /// The system lacks a resource.
    pub fn start(
        link: Link,
        launcher: Arc<dyn Launcher>,
        from: Option<Restart>,
    ) -> Result<Self, NodeError> {
        let (arena, wake) = link.descriptors().map_err(NodeError::system("copy a descriptor"))?;
        if from.is_none() && launcher.import().is_some() {
            link.await_launch();
        }
        let (sender, events) = channel();
        let tell = move |event| {
            // The run is over and no receiver is left.
            let _ = sender.send(event);
        };
        let keeper = Keeper::start(launcher, arena, wake, link.passage.clone(), from, tell)
            .map_err(NodeError::system("start a thread for the server"))?;
        Ok(Self { link, status: None, keeper: Some(keeper), events })
    }

    /// Wakes it for its entries, takes its output, and handles events of its process.
    ///
    /// # Errors
    /// It could not be started, or damaged its arena.
    pub fn step(&mut self) -> Result<(), NodeError> {
        self.link.wake_server();
        self.take_output()?;
        match self.events.try_recv() {
            Ok(ServerEvent::Launched { pid, init, files }) => self.link.launched(pid, init, files),
            Ok(ServerEvent::Failed(error)) => return Err(error.into()),
            Ok(ServerEvent::NotRestored { why, .. }) => return Err(NodeError::NotRestored { why }),
            Ok(ServerEvent::Ended { status }) => {
                self.take_output()?;
                self.status = Some(self.link.exit.unwrap_or(status));
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
        Ok(())
    }

    fn take_output(&mut self) -> Result<(), NodeError> {
        self.link
            .drain(ALL, &mut (), |(), _, _| Ok(()), |(), _| Ok(()))
            .map(drop)
            .map_err(|Broken(why)| broken(why))
    }

    /// Waits briefly for output.
    ///
    /// # Errors
    /// It damaged its arena.
    pub fn sleep(&mut self) -> Result<(), NodeError> {
        self.link.close_gate();
        if !self.link.has_output(ALL).map_err(|Broken(why)| broken(why))? {
            let fd = self.link.wake_fd();
            // SAFETY: the link owns the descriptor and outlives this function.
            let wake = unsafe { BorrowedFd::borrow_raw(fd) };
            let mut waiting = [PollFd::new(wake, PollFlags::POLLIN)];
            // All conditions are checked again, whatever the result.
            let _ = poll(&mut waiting, PollTimeout::from(LOOK_MS));
            let mut count = [0u8; 8];
            // SAFETY: reads at most 8 bytes into a live buffer; the descriptor does not block.
            unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        }
        self.link.reopen_gate();
        Ok(())
    }

    /// Ends the server, and waits until it is gone.
    pub fn end(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.finish();
        }
        // A quick server may finish before its keeper has reported it.
        for event in self.events.try_iter() {
            if let ServerEvent::Launched { pid, init, files } = event {
                self.link.launched(pid, init, files);
            }
        }
    }
}

/// The server's layer cannot be read.
pub(crate) fn broken(why: String) -> NodeError {
    NodeError::System { what: "read the server's output", error: io::Error::other(why) }
}

/// A source of entries.
pub trait Source {
    /// The next entry for the server; `None` when there is none for now.
    ///
    /// # Errors
    /// The log cannot be read.
    fn next(&mut self, entry: &mut Vec<u8>) -> Result<Option<LogIndex>, NodeError>;
}

/// The part of a log that the server has not got.
#[derive(Debug)]
pub struct Backlog<S> {
    /// The source.
    pub source: S,
    entry: Vec<u8>,
    next: Option<LogIndex>,
    ended: bool,
}

impl<S: Source> Backlog<S> {
    /// Nothing given yet.
    pub const fn new(source: S) -> Self {
        Self { source, entry: Vec::new(), next: None, ended: false }
    }

    /// Whether the server got everything.
    pub const fn is_empty(&self) -> bool {
        self.ended && self.next.is_none()
    }

    /// The source may have more.
    pub const fn go_on(&mut self) {
        self.ended = false;
    }

    /// Gives the server as many entries as fit.
    ///
    /// # Errors
    /// The log cannot be read, or the server damaged its arena.
    pub fn feed(&mut self, link: &mut Link) -> Result<(), NodeError> {
        loop {
            if self.next.is_none() && !self.ended {
                self.next = self.source.next(&mut self.entry)?;
                self.ended = self.next.is_none();
            }
            let Some(index) = self.next else { return Ok(()) };
            link.feed.skip_to(index);
            if !link.push(index, &self.entry).map_err(|Broken(why)| broken(why))? {
                return Ok(());
            }
            self.next = None;
        }
    }
}
