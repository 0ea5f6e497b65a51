//! Records of deadlines ([`crate::timers`]).

use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Pool};

/// Deadlines at one time: 16,384.
pub(crate) const MAX_TIMERS: u32 = 16 << 10;

/// A deadline.
#[repr(C)]
pub struct Timer {
    pub(crate) at_ns: Cell<u64>,
    pub(crate) age: Cell<u64>,
    /// Its place in the heap.
    pub(crate) place: Cell<u32>,
    /// The receiver and its kind: `raw << 2 | kind`.
    pub(crate) target: Cell<u32>,
}

// SAFETY: cells of numbers.
unsafe impl ArenaObject for Timer {}

/// All deadlines. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Timers {
    pub(crate) pool: Pool<Timer>,
    pub(crate) heap: Cell<usize>,
    pub(crate) len: Cell<u32>,
    pub(crate) _pad: Cell<u32>,
    pub(crate) ages: Cell<u64>,
}
