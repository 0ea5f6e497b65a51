//! What is told of an image that was asked for.

use serde::{Deserialize, Serialize};

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
