//! Timers that send signals: the server's calls.

use crate::turn;
use libc::{c_int, itimerval};
use skein_libos::abi::itimerspec;
use skein_libos::errno::{Errno, Result};
use skein_libos::signal::timer;
use skein_libos::time::NS_PER_S;
use skein_sched::op::{Kind, Object};

pub use skein_libos::signal::timer::Event;

/// `timer_create`: answers the id. `call` says that functions can be called (the system call cannot).
///
/// # Safety
/// `event` is null or a valid `sigevent`.
pub unsafe fn create(clock: c_int, event: *const Event, call: bool) -> Result<usize> {
    let turn = turn::enter(Object::Timers, Kind::Create);
    // SAFETY: the caller's contract.
    let event = unsafe { event.as_ref() };
    let mut stack_bytes = 0;
    if let Some(e) = event
        && call
        && e.notify == libc::SIGEV_THREAD
        && e.attributes != 0
    {
        // SAFETY: the server's own attributes, which it initialised.
        unsafe {
            libc::pthread_attr_getstacksize(e.attributes as *const _, &raw mut stack_bytes);
        }
    }
    timer::create(&*turn, clock, event, call, stack_bytes)
}

/// `timer_settime`.
pub fn set_time(id: usize, flags: c_int, new: &itimerspec) -> Result<itimerspec> {
    let turn = turn::enter(Object::Timers, Kind::Set);
    timer::set_time(&*turn, id, flags, new)
}

/// `timer_gettime`.
pub fn get_time(id: usize) -> Result<itimerspec> {
    let turn = turn::enter(Object::Timers, Kind::Ask);
    timer::get_time(&*turn, id)
}

/// `timer_getoverrun`.
pub fn overrun(id: usize) -> Result<usize> {
    let turn = turn::enter(Object::Timers, Kind::Ask);
    timer::overrun(&*turn, id)
}

/// `timer_delete`.
pub fn delete(id: usize) -> Result<usize> {
    let turn = turn::enter(Object::Timers, Kind::Destroy);
    timer::delete(&*turn, id)
}

/// `setitimer`, in nanoseconds: `None` only asks.
pub fn interval(which: c_int, new: Option<(u64, u64)>) -> Result<(u64, u64)> {
    let turn = turn::enter(Object::Timers, Kind::Set);
    timer::interval(&*turn, which, new)
}

const NS_PER_US: u64 = 1000;

/// `setitimer` and `getitimer` on the server's structures.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn interval_at(
    which: c_int,
    new: *const itimerval,
    old: *mut itimerval,
) -> Result<usize> {
    let ns = |tv: &libc::timeval| {
        let whole = tv.tv_sec >= 0 && (0..1_000_000).contains(&tv.tv_usec);
        whole
            .then(|| tv.tv_sec as u64 * NS_PER_S + tv.tv_usec as u64 * NS_PER_US)
            .ok_or(Errno(libc::EINVAL))
    };
    // SAFETY: the caller's contract.
    let new = match unsafe { new.as_ref() } {
        Some(new) => Some((ns(&new.it_value)?, ns(&new.it_interval)?)),
        None => None,
    };
    let (left, period) = interval(which, new)?;
    if !old.is_null() {
        let tv = |ns: u64| libc::timeval {
            tv_sec: (ns / NS_PER_S) as i64,
            tv_usec: (ns % NS_PER_S / NS_PER_US) as i64,
        };
        // One that is due says so by the smallest time.
        let left = if left == 0 { 0 } else { left.max(NS_PER_US) };
        // SAFETY: the caller's contract.
        unsafe { old.write(itimerval { it_interval: tv(period), it_value: tv(left) }) };
    }
    Ok(0)
}

/// `alarm`: answers the seconds that were left.
pub fn alarm(seconds: u32) -> u32 {
    let turn = turn::enter(Object::Timers, Kind::Set);
    timer::alarm(&*turn, seconds)
}
