//! Waits of a thread that are cancellation points.

pub mod records;
use crate::host::Host;
pub use crate::state::thread::{Life, Queue, Thread, Waiting, Wake};

/// A wait of the turn's holder that is a cancellation point.
pub fn cancellable<H: Host>(k: &H, wait: impl FnOnce() -> Wake) -> Wake {
    k.test_cancel();
    let this = k.this();
    this.at_cancel_point.set(true);
    let why = wait();
    this.at_cancel_point.set(false);
    k.test_cancel();
    why
}
