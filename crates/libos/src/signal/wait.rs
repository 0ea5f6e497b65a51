//! Threads that wait for signals: sigwait and its like, pause; and calls with a mask of their own.

use super::taker::{is_due, take};
use super::{Info, set_mask};
use crate::abi;
use crate::errno::{Errno, Result, fail};
use crate::host::Host;
use crate::thread::{self, Wake};

/// `sigtimedwait` and its like: takes a signal of `set`.
///
/// # Errors
/// `EAGAIN` after `timeout_ns`, `EINTR` when a handler ran.
pub fn wait_for<H: Host>(k: &H, set: u64, timeout_ns: Option<u64>) -> Result<Info> {
    k.test_cancel();
    let deadline_ns = timeout_ns.map(|ns| k.after(ns));
    loop {
        if let Some(info) = take(k, set) {
            return Ok(info);
        }
        if timeout_ns == Some(0) {
            return fail(abi::EAGAIN);
        }
        let t = k.this();
        t.signals.waiting.set(set);
        t.at_cancel_point.set(true);
        let why = k.suspend(deadline_ns);
        t.at_cancel_point.set(false);
        t.signals.waiting.set(0);
        match why {
            Wake::Event => {}
            Wake::Timeout => return take(k, set).ok_or(Errno(abi::EAGAIN)),
            Wake::Interrupted => {
                k.test_cancel();
                if let Some(info) = take(k, set) {
                    return Ok(info);
                }
                if !k.interrupted(false) {
                    return fail(abi::EINTR);
                }
            }
        }
    }
}

/// `pause`: until a handler has run.
///
/// # Errors
/// `EINTR`, always.
pub fn pause<H: Host>(k: &H) -> Result<usize> {
    while thread::cancellable(k, || k.suspend(None)) != Wake::Interrupted || k.interrupted(false) {}
    fail(abi::EINTR)
}

/// A call with another mask (`sigsuspend`, `ppoll`, ...): the thread's own mask comes back with the end of the handler that interrupts the call, or with the
/// call's end.
///
/// # Errors
/// Those of the call.
pub fn with_mask<H: Host, T>(
    k: &H,
    mask: Option<u64>,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let Some(mask) = mask else { return call() };
    let s = &k.this().signals;
    s.saved.set(s.mask.get());
    s.has_saved.set(true);
    set_mask(k, mask);
    let result = call();
    if matches!(result, Err(Errno(abi::EINTR))) && is_due(k) {
        k.deliver_signals();
    }
    if s.has_saved.replace(false) {
        set_mask(k, s.saved.get());
    }
    result
}
