//! A third run, on another schedule: whether the bytes that each client gets depend on the order in which threads run.
//!
//! The result says nothing about determinism, for the schedule is a part of the log; it tells how the program might behave
//! natively, and the effect of another schedule.

use super::compare::{Progress, State};
use super::recording::{Frames, Recording, parse};
use super::second::{Former, Run};
use super::seen::Shared;
use crate::config::NodeConfig;
use crate::error::NodeError;
use crate::server::Launcher;
use skein_arena::layout::Header;
use skein_model::{ConnId, LogIndex, OutFrame};
use skein_replica::server::tap::Tap;
use skein_replica::server::{Files, Link};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// The clients' bytes: a hash for each connection, however it was cut into frames.
#[derive(Default)]
struct Answers(BTreeMap<ConnId, Xxh3>);

impl Answers {
    fn frame(&mut self, frame: &OutFrame<'_>) {
        if let OutFrame::Send { conn, bytes } = *frame {
            self.0.entry(conn).or_default().update(bytes);
        }
    }

    fn of(mut frames: Frames) -> io::Result<Self> {
        let mut answers = Self::default();
        let mut raw = Vec::new();
        while frames.next(&mut raw)? {
            answers.frame(&parse(&raw).map_err(|broken| io::Error::other(broken.0))?);
        }
        Ok(answers)
    }

    /// The number of connections with other bytes. A connection without any bytes in one of the runs does not count: with shorter turns it may have
    /// come before the server listened. `None` when all are such.
    fn others(&self, other: &Self) -> Option<u64> {
        let both = self.0.iter().filter_map(|(conn, one)| Some((one, other.0.get(conn)?)));
        let digests: Vec<_> = both.map(|(one, other)| (one.digest(), other.digest())).collect();
        let differ = digests.iter().filter(|(one, other)| one != other).count();
        (!digests.is_empty()).then_some(differ as u64)
    }
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Answers>>, Shared);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Tap for Listener {
    fn launched(&mut self, _: Option<&Files>) {}

    fn entry(&mut self, _: LogIndex, _: &[u8]) {}

    fn frame(&mut self, _: &[u8], frame: &OutFrame<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).frame(frame);
    }

    fn drained(&mut self, header: &Header, rests: bool) {
        self.1.lock().drained(header, rests);
    }
}

/// Runs the server from a recording with another number of operations a turn; answers the number of connections with other
/// answers, and `None` when the run did not come to rest at the log's end: then nothing can be said. `go_on` as in
/// [`super::replay`].
///
/// # Errors
/// The system lacks a resource, or the recording cannot be read.
pub fn other_answers(
    config: &NodeConfig,
    launcher: Arc<dyn Launcher>,
    recording: &Recording,
    quantum: u32,
    go_on: impl FnMut() -> bool,
) -> Result<Option<u64>, NodeError> {
    let reading = |error| NodeError::System { what: "read the first run's recording", error };
    let first = Answers::of(recording.read().map_err(reading)?.1).map_err(reading)?;
    let (entries, _) = recording.read().map_err(reading)?;
    let listener = Listener::default();
    let mut link = Link::new(config.tuning.sizes(), 1, None)?;
    // With other turns it looks at files at other points.
    link.header().asks_nothing.store(1, Ordering::Relaxed);
    link.tap = Some(Box::new(listener.clone()));
    let mut run = Run::start(link, launcher, entries, Some(quantum))?;
    let progress = Progress::default();
    *progress.lock() = State::nothing();
    let former = Former { complete: true, status: None };
    let outcome = run.go(&progress, former, go_on);
    run.server.end();
    // Its behaviour with a log that was made for another schedule may be anything, an end included.
    let rests = listener.1.look().quiescent;
    if !matches!(outcome, Ok(true)) || run.server.status.is_some() || !rests {
        return Ok(None);
    }
    let others = listener.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(first.others(&others))
}
