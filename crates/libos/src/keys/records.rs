//! The record of wait queues ([`crate::keys`]).

use crate::state::thread::Waiting;
use core::cell::Cell;
use skein_arena::list::List;

pub(in crate::keys) const BUCKETS: usize = 1024;

/// Wait queues by address, first come first served. `T` is the host's record of a thread. All-zero bytes are empty queues.
#[repr(C)]
pub struct KeyQueues<T> {
    pub(in crate::keys) buckets: [List<T, Waiting>; BUCKETS],
    /// Threads that wait at several addresses.
    pub(in crate::keys) several: Cell<u32>,
    pub(in crate::keys) _pad: Cell<u32>,
}
