//! The record of wait queues ([`crate::keys`]).

use crate::state::thread::Waiting;
use core::cell::Cell;
use skein_arena::list::List;

pub(crate) const BUCKETS: usize = 1024;

/// Wait queues by address, first come first served. `T` is the host's record of a thread. All-zero bytes are empty queues.
#[repr(C)]
pub struct KeyQueues<T> {
    pub(crate) buckets: [List<T, Waiting>; BUCKETS],
    /// Threads that wait at several addresses.
    pub(crate) several: Cell<u32>,
    pub(crate) _pad: Cell<u32>,
}
