//! The record of files of the kernel on their way from one process of the server to another: [`crate::io::park`] maintains it.

use core::cell::Cell;

/// The parking place's books. All-zero bytes: nothing is parked.
#[repr(C)]
pub struct Park {
    /// The ticket given last.
    pub last_ticket: Cell<u64>,
    /// Files that wait.
    pub parked: Cell<u32>,
    _pad: Cell<u32>,
}
