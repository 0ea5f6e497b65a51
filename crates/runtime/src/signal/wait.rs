//! Threads that wait for signals: sigwait and its like, sigsuspend, pause; and calls with a mask of their own.

use super::{Info, change_mask, deliver, is_due, set_mask, take};
use crate::kernel::kernel;
use crate::turn;
use crate::{thread, time};
use libc::sigset_t;
use skein_libos::errno::{Errno, Result};
use skein_libos::thread::Wake;
use skein_sched::op::{Kind, Object};

/// `sigtimedwait` and its like: takes a signal of `set`.
///
/// # Errors
/// `EAGAIN` after `timeout_ns`, `EINTR` when a handler ran.
pub fn wait_for(set: u64, timeout_ns: Option<u64>) -> Result<Info> {
    let turn = turn::enter(Object::Signals, Kind::Wait);
    thread::test_cancel();
    let k = &*turn;
    let deadline_ns = timeout_ns.map(time::after);
    loop {
        if let Some(info) = take(k, set) {
            return Ok(info);
        }
        if timeout_ns == Some(0) {
            return Err(Errno(libc::EAGAIN));
        }
        let t = k.this();
        t.signals.waiting.set(set);
        t.at_cancel_point.set(true);
        let why = turn::suspend(deadline_ns);
        t.at_cancel_point.set(false);
        t.signals.waiting.set(0);
        match why {
            Wake::Event => {}
            Wake::Timeout => return take(k, set).ok_or(Errno(libc::EAGAIN)),
            Wake::Interrupted => {
                thread::test_cancel();
                if let Some(info) = take(k, set) {
                    return Ok(info);
                }
                if !super::interrupted(false) {
                    return Err(Errno(libc::EINTR));
                }
            }
        }
    }
}

/// `pause`: until a handler has run.
pub fn pause() -> Result<usize> {
    let _turn = turn::enter(Object::Signals, Kind::Wait);
    while thread::cancellable(|| turn::suspend(None)) != Wake::Interrupted
        || super::interrupted(false)
    {}
    Err(Errno(libc::EINTR))
}

/// `sigsuspend`.
pub fn suspend(mask: u64) -> Result<usize> {
    with_mask(Some(mask), pause)
}

/// A call with another mask (`ppoll`, ...): the thread's own comes back with the end of the handler that interrupts the call, or with the
/// call's end.
pub fn with_mask<T>(mask: Option<u64>, call: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(mask) = mask else { return call() };
    let k = kernel();
    let s = &k.this().signals;
    s.saved.set(s.mask.get());
    s.has_saved.set(true);
    set_mask(k, mask);
    let result = call();
    if matches!(result, Err(Errno(libc::EINTR))) && is_due(k) {
        deliver(k);
    }
    if s.has_saved.replace(false) {
        set_mask(k, s.saved.get());
    }
    result
}

/// `sigprocmask` on the server's own sets, of which the kernel's is the first word.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn change_mask_at(how: i32, set: *const u64, old: *mut u64) -> Result<()> {
    // SAFETY: the caller's contract.
    let before = change_mask(how, unsafe { set.as_ref() }.copied())?;
    if !old.is_null() {
        // SAFETY: the caller's contract.
        unsafe { old.write(before) };
    }
    Ok(())
}

/// Runs a call with another signal mask.
///
/// # Safety
/// `mask` is null or valid.
pub unsafe fn masked(mask: *const sigset_t, call: impl FnOnce() -> Result<usize>) -> Result<usize> {
    if mask.is_null() {
        return call();
    }
    // SAFETY: the caller's contract; the kernel's set is the first word of libc's.
    let mask = unsafe { mask.cast::<u64>().read() };
    with_mask(Some(mask), call)
}
