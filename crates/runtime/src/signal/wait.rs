//! Calls that wait for signals, and calls with a mask of their own.

use super::{Info, change_mask};
use crate::turn;
use libc::sigset_t;
use skein_libos::errno::Result;
use skein_libos::signal::wait;
use skein_sched::op::{Kind, Object};

/// `sigtimedwait` and its like: takes a signal of `set`.
///
/// # Errors
/// `EAGAIN` after `timeout_ns`, `EINTR` when a handler ran.
pub fn wait_for(set: u64, timeout_ns: Option<u64>) -> Result<Info> {
    let turn = turn::enter(Object::Signals, Kind::Wait);
    wait::wait_for(&*turn, set, timeout_ns)
}

/// `pause`: until a handler has run.
pub fn pause() -> Result<usize> {
    let turn = turn::enter(Object::Signals, Kind::Wait);
    wait::pause(&*turn)
}

/// `sigsuspend`.
pub fn suspend(mask: u64) -> Result<usize> {
    let turn = turn::enter(Object::Signals, Kind::Wait);
    wait::with_mask(&*turn, Some(mask), || wait::pause(&*turn))
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
    // The mask is a thread's own, but signals that wait may come through it. The call itself is another operation.
    let turn = turn::enter(Object::Signals, Kind::Set);
    wait::with_mask(&*turn, Some(mask), || {
        turn.end();
        call()
    })
}
