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
    /// when the server was told to stand,
    pub asked: Duration,
    /// when it stood,
    pub stood: Option<Duration>,
    /// and how long.
    pub copied: Option<Duration>,
    /// Its processes forked, and the copies were read.
    pub forked: bool,
    /// How long it stood for its files, which were read when it went on.
    stood_before: Duration,
}

impl Taking {
    /// After this entry of this server.
    #[must_use]
    pub const fn begin(after: LogIndex, generation: u64, now: Duration) -> Self {
        let (stood, copied, stood_before) = (None, None, Duration::ZERO);
        let forked = false;
        Self { after, generation, since: now, asked: now, stood, copied, forked, stood_before }
    }

    /// The same, when files were read for it before.
    #[must_use]
    pub fn behind(self, before: &Self) -> Self {
        Self { since: before.since, stood_before: before.stood_so_far(), ..self }
    }

    /// How long the server has stood for it.
    #[must_use]
    pub fn stood_so_far(&self) -> Duration {
        self.stood_before + self.copied.unwrap_or_default()
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
    /// How long the server stood, in microseconds.
    pub stood_us: u64,
    /// Why it stood no longer, or that long.
    pub how: Taken,
    /// How long it took until it was on disk, in microseconds.
    pub took_us: u64,
}
