//! An image that is being taken, and what is told of it.

use serde::{Deserialize, Serialize};
use skein_model::LogIndex;
use std::time::Duration;

/// An image that is being taken.
#[derive(Debug)]
pub struct Taking {
    /// The server's last entry in it.
    pub after: LogIndex,
    /// The server.
    pub generation: u64,
    /// When it was begun,
    pub since: Duration,
    /// when the server was asked to stand, for the last time,
    asked: Duration,
    /// when the server was last seen to get on with what it was given before,
    moved: Duration,
    /// with which entry,
    executed: LogIndex,
    /// when it stood,
    pub stood: Option<Duration>,
    /// how long that took, as it executes what it was given before,
    waited: Duration,
    /// and how long.
    pub copied: Option<Duration>,
    /// Its processes forked, and the copies were read.
    pub forked: bool,
    /// Pages that were copied, once that is known.
    pub pages: u64,
    /// How long the server was read before it was begun.
    pub prepared: Duration,
    /// How long it stood for its files, which were read when it went on.
    stood_before: Duration,
}

impl Taking {
    /// After this entry of this server.
    #[must_use]
    pub const fn begin(after: LogIndex, generation: u64, now: Duration) -> Self {
        let (stood, copied, stood_before) = (None, None, Duration::ZERO);
        let waited = Duration::ZERO;
        let (forked, pages, prepared) = (false, 0, Duration::ZERO);
        Self {
            after,
            generation,
            since: now,
            asked: now,
            moved: now,
            executed: LogIndex(0),
            stood,
            waited,
            copied,
            forked,
            pages,
            prepared,
            stood_before,
        }
    }

    /// The server has executed all up to this entry; answers since when it has not got on. What it `awaits` are the other replicas, or a disk: what it executes ahead is not seen before.
    pub fn gets_on(&mut self, executed: LogIndex, awaits: bool, now: Duration) -> Duration {
        if executed > self.executed || awaits {
            (self.executed, self.moved) = (executed, now);
        }
        self.moved
    }

    /// The same, when files were read for it before.
    #[must_use]
    pub fn behind(self, before: &Self) -> Self {
        let Self { since, prepared, waited, .. } = *before;
        Self { since, prepared, waited, stood_before: before.stood_so_far(), ..self }
    }

    /// The server stands.
    pub fn stands(&mut self, now: Duration) {
        self.stood = Some(now);
        self.waited += now.saturating_sub(self.asked);
    }

    /// What it has cost, when it is whole: nothing is done while a server that is behind executes what it was given.
    #[must_use]
    pub fn cost(&self, now: Duration) -> Duration {
        (self.prepared + now.saturating_sub(self.since)).saturating_sub(self.waited)
    }

    /// How long the server has stood for it.
    #[must_use]
    pub fn stood_so_far(&self) -> Duration {
        self.stood_before + self.copied.unwrap_or_default()
    }

    /// What is told of it when it is whole: so many bytes, so long after it was begun.
    #[must_use]
    pub fn told(&self, bytes: u64, took: Duration) -> Checkpointed {
        Checkpointed {
            index: self.after.0,
            bytes,
            pages: self.pages,
            stood_us: self.stood_so_far().as_micros() as u64,
            how: if self.forked { Taken::Fork } else { Taken::Standstill },
            took_us: (self.prepared + took).as_micros() as u64,
        }
    }
}

/// How an image was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Taken {
    /// The server stood until it was read.
    Standstill,
    /// It stood until its processes had forked, and the copies were read.
    Fork,
}

/// A requested image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// The last entry that the server had executed.
    pub index: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Pages of 4 KiB of memory and files that were copied for it, but for those that were read while the server went on. 0 if its node is from before this was told.
    #[serde(default)]
    pub pages: u64,
    /// How long the server stood, in microseconds.
    pub stood_us: u64,
    /// Why it stood no longer, or that long.
    pub how: Taken,
    /// How long it took until it was on disk, in microseconds.
    pub took_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_had_to_execute_before_is_no_cost_of_an_image() {
        let at = Duration::from_millis;
        let mut first = Taking::begin(LogIndex(500), 1, at(1000));
        first.prepared = at(30);
        first.stands(at(1800));
        first.copied = Some(at(5));
        assert_eq!(first.cost(at(1900)), at(130));
        // Its files are read meanwhile, and it stands again.
        let mut second = Taking::begin(LogIndex(600), 1, at(2000)).behind(&first);
        second.stands(at(2400));
        assert_eq!(second.cost(at(2500)), at(30 + 1500 - 800 - 400));
        assert_eq!(second.told(0, at(1500)).took_us, 1_530_000);
    }

    #[test]
    fn a_server_that_is_far_behind_has_time_as_long_as_it_gets_on() {
        let at = Duration::from_millis;
        let mut taking = Taking::begin(LogIndex(500), 1, at(0));
        let mut gets_on =
            |executed, awaits, now| taking.gets_on(LogIndex(executed), awaits, at(now));
        assert_eq!(gets_on(100, false, 1), at(1));
        assert_eq!(gets_on(100, false, 300), at(1), "the same entry");
        assert_eq!(gets_on(101, false, 400), at(400));
        assert_eq!(gets_on(101, false, 1000), at(400));
        assert_eq!(gets_on(101, true, 1100), at(1100), "a commit is awaited");
        assert_eq!(gets_on(101, false, 1200), at(1100));
    }
}
