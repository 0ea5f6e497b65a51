//! The second run: the recorded log, fed as fast as the server takes it, like a follower that is behind.
//!
//! Conditions that must make no difference differ from the first run: arrival times of entries, the time of day, the processor, and the
//! load of the machine.

use super::compare::{Comparer, Difference, Kind, Progress};
use super::recording::{Entries, Recording};
use super::seen::{Seen, Shared};
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::server::offline::broken;
use crate::server::{Backlog, Launcher, Offline, Source};
use skein_arena::layout::state;
use skein_model::entry::Start;
use skein_model::{EntryBuilder, EntryRef, LogIndex, Record, Term, WallNs};
use skein_replica::server::{Broken, Link};
use std::sync::Arc;

/// Turns of a time bubble that is added behind a log's end, and the most such bubbles.
const FILLED_TURNS: u32 = 1 << 16;
/// See [`FILLED_TURNS`].
const MAX_FILLED: u32 = 1000;

/// The result of the second run.
#[derive(Debug)]
pub struct Replayed {
    /// The first difference, if any.
    pub difference: Option<Difference>,
    /// The observations.
    pub seen: Seen,
    /// It was given the whole log, executed it and repeated all output of the first run.
    pub whole: bool,
    /// How its server ended, if it did by itself.
    pub status: Option<i32>,
}

/// Facts about the first run.
#[derive(Clone, Copy, Debug)]
pub struct Former {
    /// It had executed its whole log when it was stopped.
    pub complete: bool,
    /// How its server ended, if it did by itself.
    pub status: Option<i32>,
}

/// Runs the server again from a recording; `go_on` is asked often and ends the run by answering false.
///
/// # Errors
/// The system lacks a resource, or the recording cannot be read.
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
    let mut run = Run::start(link, launcher, entries, None)?;
    let outcome = run.go(&progress, former, || go_on(&seen.lock()));
    run.server.end();
    let server = &mut run.server;
    // The comparison is complete when its tap is gone.
    drop(server.link.tap.take());
    let whole = outcome?;
    let mut state = progress.lock();
    if let Some(error) = state.failed.take() {
        return Err(reading(error));
    }
    let status = server.status;
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
    let found = server.link.differs.take().or_else(|| server.link.last_words());
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

/// A run from a recording.
pub(super) struct Run {
    pub(super) server: Offline,
    backlog: Backlog<Recorded>,
}

impl Run {
    /// Starts it; `quantum`: operations a turn, if not as many as in the first run.
    pub(super) fn start(
        link: Link,
        launcher: Arc<dyn Launcher>,
        entries: Entries,
        quantum: Option<u32>,
    ) -> Result<Self, NodeError> {
        let last = (LogIndex(0), WallNs(0), Term(0));
        let backlog = Backlog::new(Recorded { entries, quantum, last, filled: 0 });
        Ok(Self { server: Offline::start(link, launcher, None)?, backlog })
    }

    /// True when the server has repeated everything that the first one did.
    pub(super) fn go(
        &mut self,
        progress: &Progress,
        former: Former,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool, NodeError> {
        loop {
            let Self { server, backlog } = self;
            backlog.feed(&mut server.link)?;
            server.step()?;
            let (differs, exhausted) = {
                let state = progress.lock();
                (state.difference.is_some() || state.failed.is_some(), state.exhausted)
            };
            if differs {
                return Ok(false);
            }
            let all = backlog.is_empty() && exhausted;
            if server.status.is_some() {
                return Ok(all);
            }
            if backlog.is_empty() && former.status.is_none() {
                // The comparison does not go beyond the point where the first run was stopped.
                match server.link.waits() {
                    Some(state::SLOT) if backlog.source.may_fill() => {
                        backlog.source.fill(&mut server.link)?;
                    }
                    None if former.complete || !exhausted => {}
                    _ => return Ok(true),
                }
            }
            if !go_on() {
                return Ok(false);
            }
            server.sleep()?;
        }
    }
}

/// The recorded log.
struct Recorded {
    entries: Entries,
    /// Operations a turn, if not as many as in the first run.
    quantum: Option<u32>,
    /// The last entry given, with its stamp and term; kept for a run with another quantum only.
    last: (LogIndex, WallNs, Term),
    /// Time bubbles added behind the log's end.
    filled: u32,
}

impl Source for Recorded {
    fn next(&mut self, entry: &mut Vec<u8>) -> Result<Option<LogIndex>, NodeError> {
        let next = self.entries.next(entry);
        let next = next.map_err(NodeError::system("read the first run's recording"))?;
        if let Some(quantum) = self.quantum {
            if let (Some(index), Ok(entry)) = (next, EntryRef::parse(entry)) {
                self.last = (index, entry.wall(), entry.term());
            }
            *entry = with_quantum(std::mem::take(entry), quantum);
        }
        Ok(next)
    }
}

impl Recorded {
    /// Whether a server that is not finished at the log's end may continue: with shorter turns it needs more of them.
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
