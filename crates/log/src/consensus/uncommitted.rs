//! Bytes that a leader has proposed and that are not committed yet: the bound of its memory.
//!
//! The library counts them, too, but subtracts only entries that it hands out itself, and that waits for the leader's own disk. Entries handed
//! out ahead of that disk must not count: otherwise a disk that hangs stops the service, although a majority has everything.

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

    /// Whether `bytes` more may be proposed in `term`: always when nothing else is uncommitted.
    pub fn has_room(&mut self, term: u64, bytes: usize) -> bool {
        if self.term != term {
            // Proposals of an earlier leadership belong to the next leader.
            *self = Self { term, ..Self::new(self.max) };
        }
        self.entries.is_empty() || self.bytes + bytes <= self.max
    }

    /// `bytes` were proposed as entry `index`.
    pub fn proposed(&mut self, index: LogIndex, bytes: usize) {
        self.entries.push_back((index, bytes));
        self.bytes += bytes;
    }

    /// All entries up to `index` are committed.
    pub fn committed(&mut self, index: LogIndex) {
        while let Some((_, bytes)) = self.entries.pop_front_if(|(at, _)| *at <= index) {
            self.bytes -= bytes;
        }
    }
}
