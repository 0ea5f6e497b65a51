//! How the runtime waits for room in the output ring without a lost wake-up.
//!
//! The runtime says that the ring is full, closes its gate, looks for room once more and sleeps. The node makes room and then checks
//! whether the runtime said so. Only then it opens the gate: a server that waits for entries is not woken just because there is room. The
//! sequentially consistent fences ([`Gate::close`](crate::Gate::close) has the other one) order "say, then look" against "make room, then
//! look": one of the two sees the other (model-checked in `tests/loom.rs`).

use crate::layout::state::OUTPUT_FULL;
use crate::sync::{AtomicU32, Ordering, fence};

/// Runtime: marks the ring as full. Answers the mark before.
pub fn say(state: &AtomicU32) -> u32 {
    state.swap(OUTPUT_FULL, Ordering::Relaxed)
}

/// Node, after it has made room: whether the runtime waits for some, so that its gate must be opened.
#[must_use]
pub fn was_said(state: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    state.load(Ordering::Acquire) == OUTPUT_FULL
}
