//! How one side sleeps until the other has published something, without a lost wake-up.
//!
//! The sleeper closes the gate, looks again at everything that could wake it, and only then sleeps. The other side
//! publishes first and then opens the gate; if it was closed, it must wake the sleeper. The sequentially consistent fences on
//! both sides order "close, then look" against "publish, then open": one of the two sees the other (model-checked in
//! `tests/loom.rs`).
//!
//! A sleeper may close the gate *for news only*: the waker opens it if it has said something since the sleeper looked, or will need it earlier than the sleeper
//! wakes by itself ([`News`]).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Open: the sleeper is awake. Also the value that a futex wait must not find.
pub const OPEN: u32 = 0;
/// Closed: the sleeper sleeps or is about to.
pub const CLOSED: u32 = 1;
/// Closed for news only.
pub const CALM: u32 = 2;

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

    /// Sleeper: as [`close`](Self::close), but it is to be woken for [`News`] only.
    pub fn close_calmly(&self) {
        self.word.store(CALM, Ordering::Relaxed);
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
        self.open_for(|| true)
    }

    /// Waker: as [`open`](Self::open), if it may have no news, which it looks at for a sleeper that wants no more.
    #[must_use]
    pub fn open_for(&self, has_news: impl Fn() -> bool) -> bool {
        fence(Ordering::SeqCst);
        let opens = match self.word.load(Ordering::Relaxed) {
            OPEN => false,
            CALM => has_news(),
            _ => true,
        };
        opens && self.word.swap(OPEN, Ordering::AcqRel) != OPEN
    }

    /// The futex word, for a sleeper that sleeps in the kernel on [`CLOSED`].
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

/// What a sleeper that closed its gate for news only is woken for.
#[repr(C)]
#[derive(Debug)]
pub struct News {
    /// The waker looks at this: one from before does not, and its sleeper closes its gate for everything.
    known: AtomicU32,
    /// How often it has said something; only the waker writes it,
    said: AtomicU32,
    /// and how often it had when the sleeper looked last; only the sleeper does.
    heard: AtomicU32,
    /// The sleeper wakes by itself before what is needed from this time on.
    until_ns: AtomicU64,
}

impl Default for News {
    fn default() -> Self {
        let zero = || AtomicU32::new(0);
        Self { known: zero(), said: zero(), heard: zero(), until_ns: AtomicU64::new(0) }
    }
}

impl News {
    /// Waker: it looks at this, from its start on.
    pub fn know(&self) {
        self.known.store(1, Ordering::Relaxed);
    }

    /// Sleeper: whether the waker does.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed) != 0
    }

    /// Sleeper, before it closes its gate: it looks at all that was said up to now. It needs not be woken for what is due from `until_ns` on.
    pub fn expect(&self, until_ns: u64) {
        self.until_ns.store(until_ns, Ordering::Relaxed);
        // Acquires what was published before it was said.
        self.heard.store(self.said.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// Waker, after publishing something.
    pub fn say(&self) {
        self.said.store(self.said.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Waker, when its gate is closed for news only: whether there are any; what it needs next is due at `due_ns`, which a plan may say is expected ([`crate::planned`]).
    pub fn has_any(&self, due_ns: u64, expected: Option<bool>) -> bool {
        let heard = self.heard.load(Ordering::Relaxed) == self.said.load(Ordering::Relaxed);
        let expected = expected.unwrap_or_else(|| due_ns >= self.until_ns.load(Ordering::Relaxed));
        !heard || !expected
    }
}
