//! Records of deadlines ([`crate::timers`]).

use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Pool};

/// Deadlines at one time: 16,384.
pub(in crate::timers) const MAX_TIMERS: u32 = 16 << 10;

/// A deadline.
#[repr(C)]
pub struct Timer {
    pub(in crate::timers) at_ns: Cell<u64>,
    pub(in crate::timers) age: Cell<u64>,
    /// Its place in the heap.
    pub(in crate::timers) place: Cell<u32>,
    /// The receiver and its kind: `raw << 2 | kind`.
    pub(in crate::timers) target: Cell<u32>,
}

// SAFETY: cells of numbers.
unsafe impl ArenaObject for Timer {}

/// All deadlines. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Timers {
    pub(in crate::timers) pool: Pool<Timer>,
    pub(in crate::timers) heap: Cell<usize>,
    pub(in crate::timers) len: Cell<u32>,
    pub(in crate::timers) _pad: Cell<u32>,
    pub(in crate::timers) ages: Cell<u64>,
}
