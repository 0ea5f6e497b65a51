//! How one side sleeps until the other has published something, without a lost wake-up.
//!
//! The sleeper closes the gate, looks again at everything that could wake it, and only then sleeps. The other side
//! publishes first and then opens the gate; if it was closed, it must wake the sleeper. The sequentially consistent fences on
//! both sides order "close, then look" against "publish, then open": one of the two sees the other (model-checked in
//! `tests/loom.rs`).

use crate::sync::{AtomicU32, Ordering, fence};

/// Open: the sleeper is awake. Also the value that a futex wait must not find.
pub const OPEN: u32 = 0;
/// Closed: the sleeper sleeps or is about to.
pub const CLOSED: u32 = 1;

/// One sleeper, one waker.
#[repr(C)]
#[derive(Debug)]
pub struct Gate {
    word: AtomicU32,
}

impl Default for Gate {
    fn default() -> Self {
        Self { word: AtomicU32::new(OPEN) }
    }
}

impl Gate {
    /// Sleeper: announce that it is going to sleep. Look at all wake-up conditions after this.
    pub fn close(&self) {
        self.word.store(CLOSED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Sleeper: awake, whether or not it slept.
    pub fn reopen(&self) {
        self.word.store(OPEN, Ordering::Relaxed);
    }

    /// Sleeper: whether nobody has opened the gate since it was closed.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) == CLOSED
    }

    /// Waker: call after publishing; `true` means that the sleeper must be woken now.
    #[must_use]
    pub fn open(&self) -> bool {
        fence(Ordering::SeqCst);
        self.word.load(Ordering::Relaxed) == CLOSED
            && self.word.swap(OPEN, Ordering::AcqRel) == CLOSED
    }

    /// The futex word, for a sleeper that sleeps in the kernel on [`CLOSED`].
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }
}
