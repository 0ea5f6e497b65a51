//! Synchronisation objects in the server's memory.

pub mod futex;

use crate::kernel::Kernel;

/// The thread with this id is gone: robust mutexes that it held are marked.
pub fn owner_gone(_k: &Kernel, _tid: u32) {}
