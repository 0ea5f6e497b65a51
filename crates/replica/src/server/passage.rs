//! How far a server was fed and how far that is committed: what its keeper needs to know before it shows anybody what the server printed.
//!
//! Threads: the replica's writes it, the keeper's reads it.

use skein_model::LogIndex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The last entry given to one generation of a server, or planned for it, and the last committed one. A plan may be withdrawn: then the first is less than it was.
#[derive(Debug, Default)]
pub struct Passage {
    given: AtomicU64,
    committed: AtomicU64,
    answered: AtomicU64,
    condemned: AtomicBool,
}

impl Passage {
    /// The server is about to get this entry, or may take all up to it by itself.
    pub fn gives(&self, index: LogIndex) {
        self.given.store(index.0, Ordering::SeqCst);
    }

    /// All up to this entry is committed.
    pub fn committed(&self, index: LogIndex) {
        self.committed.store(index.0, Ordering::SeqCst);
    }

    /// This question of the server's is answered, and all before it.
    pub fn answered(&self, ask: u64) {
        self.answered.fetch_max(ask, Ordering::SeqCst);
    }

    /// The server has executed entries that were never committed. To be called before other entries are committed in their place.
    pub fn condemn(&self) {
        self.condemned.store(true, Ordering::SeqCst);
    }

    /// The last entry that the server was given: all output so far follows from it at the latest. To be read after the size of the output.
    #[must_use]
    pub fn given(&self) -> LogIndex {
        LogIndex(self.given.load(Ordering::SeqCst))
    }

    /// Whether output may be read that was printed when the server had been given entries up to `given` and had asked up to `asked`.
    #[must_use]
    pub fn lets_out(&self, given: LogIndex, asked: u64) -> bool {
        given.0 <= self.committed.load(Ordering::SeqCst)
            && asked <= self.answered.load(Ordering::SeqCst)
            && !self.condemned.load(Ordering::SeqCst)
    }
}
