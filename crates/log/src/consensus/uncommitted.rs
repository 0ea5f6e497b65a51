//! How much a leader has proposed that is not committed yet: its memory's bound.
//!
//! The library counts that, too, but takes off only what it hands out by itself, and that waits for the leader's own disk. What is handed
//! out ahead of that disk must not count: else a disk that hangs stops the service, though a majority has everything.

use skein_model::LogIndex;
use std::collections::VecDeque;

/// Bytes of the entries that a leader has proposed and not yet handed out.
#[derive(Debug)]
pub struct Uncommitted {
    term: u64,
    entries: VecDeque<(LogIndex, usize)>,
    bytes: usize,
    max: usize,
}

impl Uncommitted {
    /// Nothing yet, and at most `max` bytes.
    pub const fn new(max: usize) -> Self {
        Self { term: 0, entries: VecDeque::new(), bytes: 0, max }
    }

    /// Whether `bytes` more may be proposed in `term`: always when nothing else is.
    pub fn has_room(&mut self, term: u64, bytes: usize) -> bool {
        if self.term != term {
            // What an earlier leadership proposed is the next leader's.
            *self = Self { term, ..Self::new(self.max) };
        }
        self.entries.is_empty() || self.bytes + bytes <= self.max
    }

    /// So many bytes were proposed as `index`.
    pub fn proposed(&mut self, index: LogIndex, bytes: usize) {
        self.entries.push_back((index, bytes));
        self.bytes += bytes;
    }

    /// All up to `index` is committed.
    pub fn committed(&mut self, index: LogIndex) {
        while let Some((_, bytes)) = self.entries.pop_front_if(|(at, _)| *at <= index) {
            self.bytes -= bytes;
        }
    }
}
