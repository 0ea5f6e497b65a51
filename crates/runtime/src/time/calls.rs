//! Calls that read the time, or wait for one.

use super::{clock_ns, deadline_of, sleep_until};
use crate::kernel::Kernel;
use crate::signal;
use crate::turn;
use libc::{c_int, c_long};
use skein_libos::errno::{Errno, Result};
use skein_libos::thread::Wake;
use skein_libos::time::{NS_PER_S, to_ns, to_timespec};
use skein_sched::op::{Kind, Object};

/// `clock_gettime`.
pub fn clock_gettime(clock: c_int, out: *mut skein_libos::abi::timespec) -> Result<usize> {
    let ns = clock_ns(clock)?;
    if out.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the server's own pointer, not null.
    unsafe { out.write(to_timespec(ns)) };
    Ok(0)
}

/// `gettimeofday`.
pub fn gettimeofday(out: *mut libc::timeval) -> Result<usize> {
    let ns = clock_ns(libc::CLOCK_REALTIME)?;
    if !out.is_null() {
        let value = libc::timeval {
            tv_sec: (ns / NS_PER_S) as i64,
            tv_usec: (ns % NS_PER_S / 1000) as i64,
        };
        // SAFETY: the server's own pointer, not null.
        unsafe { out.write(value) };
    }
    Ok(0)
}

/// `nanosleep` and `clock_nanosleep`: an interrupted relative sleep answers the rest of its time.
///
/// # Safety
/// `request` and `left` are null or valid.
pub unsafe fn nanosleep(
    clock: c_int,
    flags: c_int,
    request: *const skein_libos::abi::timespec,
    left: *mut skein_libos::abi::timespec,
) -> Result<usize> {
    let turn = turn::enter(Object::Clock, Kind::Wait);
    let k = &*turn;
    let unwaitable =
        [libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_REALTIME_COARSE, libc::CLOCK_MONOTONIC_COARSE];
    if unwaitable.contains(&clock) {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    // SAFETY: the server's own pointer.
    let request = unsafe { request.as_ref() }.ok_or(Errno(libc::EFAULT))?;
    let ns = to_ns(request)?;
    if clock == libc::CLOCK_THREAD_CPUTIME_ID {
        return Err(Errno(libc::EINVAL));
    }
    let deadline = if flags & libc::TIMER_ABSTIME != 0 {
        deadline_of(k, clock, ns)?
    } else {
        deadline_of(k, clock, 0)?;
        k.after(ns)
    };
    match sleep_left(k, deadline) {
        None => Ok(0),
        Some(ns) => {
            if !left.is_null() && flags & libc::TIMER_ABSTIME == 0 {
                // SAFETY: the caller's contract.
                unsafe { left.write(to_timespec(ns)) };
            }
            Err(Errno(libc::EINTR))
        }
    }
}

/// Sleeps; answers the remaining nanoseconds when a signal handler ran.
pub fn sleep_left(k: &Kernel, deadline_ns: u64) -> Option<u64> {
    while sleep_until(k, deadline_ns) == Wake::Interrupted {
        let left = deadline_ns.saturating_sub(k.now_ns.get());
        if !signal::interrupted(false) {
            return Some(left);
        }
    }
    None
}

/// CPU time so far, in nanoseconds: a microsecond an operation.
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// `times`.
pub fn times(out: *mut libc::tms) -> c_long {
    const TICK_NS: u64 = NS_PER_S / 100;
    if !out.is_null() {
        let user = (cpu_ns() / TICK_NS) as c_long;
        turn::end();
        // SAFETY: the server's own pointer, not null.
        unsafe {
            out.write(libc::tms { tms_utime: user, tms_stime: 0, tms_cutime: 0, tms_cstime: 0 })
        };
    }
    clock_ns(libc::CLOCK_MONOTONIC).map_or(0, |ns| (ns / TICK_NS) as c_long)
}

/// `getrusage`: processor time is the number of operations; all else is zero.
pub fn getrusage(who: c_int, out: *mut libc::rusage) -> Result<usize> {
    if ![libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN, libc::RUSAGE_THREAD].contains(&who) {
        return Err(Errno(libc::EINVAL));
    }
    let ns = if who == libc::RUSAGE_CHILDREN { 0 } else { cpu_ns() };
    // SAFETY: all-zero is a valid `rusage`; the pointer is the server's own.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        usage.ru_utime.tv_sec = (ns / NS_PER_S) as i64;
        usage.ru_utime.tv_usec = (ns % NS_PER_S / 1000) as i64;
        if out.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        out.write(usage);
    }
    Ok(0)
}
