//! The second run: the recorded log, fed as fast as the server takes it, as a follower that is behind is fed.
//!
//! What must make no difference is different from the first run: when entries arrive, the time of day, the processor, and how
//! busy the machine is.

use super::compare::{Comparer, Difference, Kind, Progress};
use super::recording::{Entries, Recording};
use super::seen::{Seen, Shared};
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::server::launch::Keeper;
use crate::server::{Broken, Launcher, Link, ServerEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skein_arena::layout::state;
use skein_model::entry::Start;
use skein_model::{EntryBuilder, EntryRef, LogIndex, Record, Term, WallNs};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// How long the run sleeps at most before it looks again: 2 ms.
const LOOK_MS: u8 = 2;
/// Here all is committed.
const ALL: LogIndex = LogIndex(u64::MAX);

/// Turns of a time bubble that is added behind a log's end, and how many such there may be.
const FILLED_TURNS: u32 = 1 << 16;
/// See [`FILLED_TURNS`].
const MAX_FILLED: u32 = 1000;

/// How the second run went.
#[derive(Debug)]
pub struct Replayed {
    /// What it did otherwise, if anything.
    pub difference: Option<Difference>,
    /// What was seen.
    pub seen: Seen,
    /// It was given the whole log, executed it and put out all that the first run had.
    pub whole: bool,
    /// How its server ended, if it did by itself.
    pub status: Option<i32>,
}

/// What is known about the first run.
#[derive(Clone, Copy, Debug)]
pub struct Former {
    /// It had executed all of its log when it was stopped.
    pub complete: bool,
    /// How its server ended, if it did by itself.
    pub status: Option<i32>,
}

/// Runs the server again from a recording; `go_on` is asked often and ends the run by a no.
///
/// # Errors
/// The system does not give what it needs, or the recording cannot be read.
pub fn replay(
    config: &NodeConfig,
    launcher: Arc<dyn Launcher>,
    recording: &Recording,
    former: Former,
    mut go_on: impl FnMut(&Seen) -> bool,
) -> Result<Replayed, NodeError> {
    let reading = |error| NodeError::System { what: "read the first run's recording", error };
    let (entries, frames) = recording.read().map_err(reading)?;
    let (seen, progress) = (Shared::default(), Progress::default());
    let comparer =
        Comparer::new(seen.clone(), progress.clone(), frames, former.complete).map_err(reading)?;
    let mut link = Link::new(config.tuning.sizes(), 1, None)?;
    link.tap = Some(Box::new(comparer));
    let (keeper, events) = start(&link, launcher)?;
    let mut run = Run { link, backlog: Backlog::new(entries, None), events, status: None };
    let outcome = run.go(&progress, former, || go_on(&seen.lock()));
    keeper.finish();
    // One that is quick is through before its keeper has said that it runs.
    for event in run.events.try_iter() {
        if let ServerEvent::Launched { pid, init, layer } = event {
            run.link.launched(pid, init, layer);
        }
    }
    // The comparison is complete when its tap is gone.
    drop(run.link.tap.take());
    let whole = outcome?;
    let mut state = progress.lock();
    if let Some(error) = state.failed.take() {
        return Err(reading(error));
    }
    let status = run.status;
    let ends_otherwise = whole && former.complete && status != former.status;
    let seen = seen.look();
    if state.difference.is_none() && (ends_otherwise || (!whole && status.is_some())) {
        let say = |status: Option<i32>| status.map_or("went on".into(), how);
        state.difference = Some(Difference {
            kind: Kind::End,
            index: seen.admitted,
            connection: None,
            first: say(former.status),
            second: say(status),
        });
    }
    let found = run.link.differs.take().or_else(|| run.link.last_words());
    if let Some(second) = found
        && state.difference.as_ref().is_none_or(|difference| difference.kind == Kind::End)
    {
        state.difference = Some(Difference {
            kind: Kind::HostFile,
            index: seen.admitted,
            connection: None,
            first: "used the file as it was".into(),
            second,
        });
    }
    Ok(Replayed { difference: state.difference.take(), seen, whole, status })
}

/// Starts the server of a link.
pub(super) fn start(
    link: &Link,
    launcher: Arc<dyn Launcher>,
) -> Result<(Keeper, Receiver<ServerEvent>), NodeError> {
    let (arena, wake) = link.descriptors().map_err(NodeError::system("copy a descriptor"))?;
    let (sender, events) = channel();
    let keeper = Keeper::start(launcher, arena, wake, link.passage.clone(), move |event| {
        // The run is over and nobody listens.
        let _ = sender.send(event);
    })
    .map_err(NodeError::system("start a thread for the server"))?;
    Ok((keeper, events))
}

/// A run from a recording.
pub(super) struct Run {
    pub(super) link: Link,
    pub(super) backlog: Backlog,
    pub(super) events: Receiver<ServerEvent>,
    pub(super) status: Option<i32>,
}

impl Run {
    /// True when the server has done all that the first one had.
    pub(super) fn go(
        &mut self,
        progress: &Progress,
        former: Former,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool, NodeError> {
        loop {
            self.backlog.feed(&mut self.link)?;
            self.link.wake_server();
            self.take_output()?;
            match self.events.try_recv() {
                Ok(ServerEvent::Launched { pid, init, layer }) => {
                    self.link.launched(pid, init, layer);
                }
                Ok(ServerEvent::Failed(error)) => return Err(error),
                Ok(ServerEvent::Ended { status }) => {
                    self.take_output()?;
                    self.status = Some(self.link.exit.unwrap_or(status));
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
            let (differs, exhausted) = {
                let state = progress.lock();
                (state.difference.is_some() || state.failed.is_some(), state.exhausted)
            };
            if differs {
                return Ok(false);
            }
            let all = self.backlog.is_empty() && exhausted;
            if self.status.is_some() {
                return Ok(all);
            }
            if self.backlog.is_empty() && former.status.is_none() {
                // A first run that was stopped in the middle of something is not gone beyond.
                match self.link.waits() {
                    Some(state::SLOT) if self.backlog.may_fill() => {
                        self.backlog.fill(&mut self.link)?;
                    }
                    None if former.complete || !exhausted => {}
                    _ => return Ok(true),
                }
            }
            if !go_on() {
                return Ok(false);
            }
            self.sleep()?;
        }
    }

    fn take_output(&mut self) -> Result<(), NodeError> {
        self.link
            .drain(ALL, &mut (), |(), _, _| Ok(()), |(), _| Ok(()))
            .map(drop)
            .map_err(|Broken(why)| broken(why))
    }

    fn sleep(&mut self) -> Result<(), NodeError> {
        self.link.close_gate();
        if !self.link.has_output(ALL).map_err(|Broken(why)| broken(why))? {
            let fd = self.link.wake_fd();
            // SAFETY: the link owns the descriptor and outlives this function.
            let wake = unsafe { BorrowedFd::borrow_raw(fd) };
            let mut waiting = [PollFd::new(wake, PollFlags::POLLIN)];
            // Whatever it answers, everything is looked at again.
            let _ = poll(&mut waiting, PollTimeout::from(LOOK_MS));
            let mut count = [0u8; 8];
            // SAFETY: reads at most 8 bytes into a live buffer; the descriptor does not block.
            unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        }
        self.link.reopen_gate();
        Ok(())
    }
}

fn broken(why: String) -> NodeError {
    NodeError::System { what: "read the server's output", error: io::Error::other(why) }
}

/// The recorded log, as far as the server has not got it.
pub(super) struct Backlog {
    entries: Entries,
    entry: Vec<u8>,
    next: Option<LogIndex>,
    ended: bool,
    /// Operations a turn, if not as many as in the first run.
    quantum: Option<u32>,
    /// The last entry given, and when and in which term it was made; kept for a run with another quantum only.
    last: (LogIndex, WallNs, Term),
    /// Time bubbles added behind the log's end.
    filled: u32,
}

impl Backlog {
    pub(super) const fn new(entries: Entries, quantum: Option<u32>) -> Self {
        let last = (LogIndex(0), WallNs(0), Term(0));
        Self { entries, entry: Vec::new(), next: None, ended: false, quantum, last, filled: 0 }
    }

    /// Whether a server that is not through at the log's end may go on: with shorter turns it needs more of them.
    const fn may_fill(&self) -> bool {
        self.quantum.is_some() && self.filled < MAX_FILLED
    }

    /// Gives the server a time bubble that is not in the log.
    fn fill(&mut self, link: &mut Link) -> Result<(), NodeError> {
        let (last, wall, term) = self.last;
        let mut bubble = EntryBuilder::new(Vec::new());
        bubble.push(Record::Bubble { turns: FILLED_TURNS });
        let index = last.next();
        link.feed.skip_to(index);
        if link.push(index, &bubble.finish(wall, term)).map_err(|Broken(why)| broken(why))? {
            self.last.0 = index;
            self.filled += 1;
        }
        Ok(())
    }

    const fn is_empty(&self) -> bool {
        self.ended && self.next.is_none()
    }

    /// Gives the server as many entries as it has room for.
    fn feed(&mut self, link: &mut Link) -> Result<(), NodeError> {
        loop {
            if self.next.is_none() && !self.ended {
                self.next = self
                    .entries
                    .next(&mut self.entry)
                    .map_err(NodeError::system("read the first run's recording"))?;
                self.ended = self.next.is_none();
                if let Some(quantum) = self.quantum {
                    if let (Some(index), Ok(entry)) = (self.next, EntryRef::parse(&self.entry)) {
                        self.last = (index, entry.wall(), entry.term());
                    }
                    self.entry = with_quantum(std::mem::take(&mut self.entry), quantum);
                }
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

/// The same entry; the log's first one with another quantum.
fn with_quantum(entry: Vec<u8>, quantum: u32) -> Vec<u8> {
    let Ok(parsed) = EntryRef::parse(&entry) else { return entry };
    let Some(Record::Start(_)) = parsed.records().next() else { return entry };
    let mut changed = EntryBuilder::new(Vec::new());
    for record in parsed.records() {
        changed.push(match record {
            Record::Start(start) => Record::Start(Start { quantum, ..start }),
            other => other,
        });
    }
    changed.finish(parsed.wall(), parsed.term())
}

/// A wait status in words.
#[must_use]
pub fn how(status: i32) -> String {
    match status & 0x7f {
        0 => format!("ended with exit status {}", status >> 8 & 0xff),
        number => match nix::sys::signal::Signal::try_from(number) {
            Ok(signal) => format!("was killed by {}", signal.as_str()),
            Err(_) => format!("was killed by signal {number}"),
        },
    }
}
