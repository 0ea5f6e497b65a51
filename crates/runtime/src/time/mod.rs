//! Virtual time. The time of day is the stamp of the last admitted entry, moved on a little by every look at it, so that clocks
//! never stand still nor run backwards inside an entry; all other clocks are offsets from it.

pub mod calls;

use crate::kernel::{Kernel, kernel, process};
use crate::turn;
use skein_libos::errno::{Errno, Result};
use skein_libos::process::{find, threads_of};
use skein_libos::thread::{Wake, cancellable};
use skein_libos::time::NS_PER_S;
use skein_sched::Policy;
use skein_sched::op::{Kind, Object};

/// The monotonic clock at the server's start: some time after "boot", as on any machine.
const MONOTONIC_AT_START_NS: u64 = 1000 * NS_PER_S;

/// A look at a clock: an operation. Answers the time of day.
pub fn look() -> u64 {
    let k = kernel();
    k.pace.begin(k.sched.operations());
    let _turn = turn::enter(Object::Clock, Kind::Ask);
    if k.pace.needs_entry(k.now_ns.get()) {
        turn::await_entry();
    }
    let now = k.now_ns.get();
    let now = now + k.pace.end(k.sched.operations(), now);
    k.now_ns.set(now);
    now
}

/// Whether `clock` is the time of day.
const fn is_realtime(clock: i32) -> bool {
    matches!(
        clock,
        libc::CLOCK_REALTIME
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_REALTIME_ALARM
            | libc::CLOCK_TAI
    )
}

/// The clock's reading when the time of day is `now_ns`.
fn reading(k: &Kernel, clock: i32, now_ns: u64) -> Result<u64> {
    let since_start = now_ns - k.boot_ns.get();
    match clock {
        _ if is_realtime(clock) => Ok(now_ns),
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_BOOTTIME_ALARM => Ok(MONOTONIC_AT_START_NS + since_start),
        // CPU time is the number of operations, a microsecond each: it grows with work and is the same everywhere.
        libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => {
            Ok(k.sched.operations() * 1000)
        }
        clock if clock < 0 && is_somebodys(k, clock) => Ok(k.sched.operations() * 1000),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Clocks of processes and threads have negative numbers: the inverted id, and its kind. Whether there is such a one.
fn is_somebodys(k: &Kernel, clock: i32) -> bool {
    const OF_THREAD: i32 = 4;
    const KIND: i32 = 3;
    let id = !(clock >> 3);
    if clock & KIND == KIND {
        return false;
    }
    if clock & OF_THREAD != 0 {
        let mut own = threads_of(k, process::handle());
        return id == 0 || own.any(|(_, t)| t.tid.get() == id as u32);
    }
    id == 0 || find(k, id).is_some()
}

/// `clock_gettime`, in nanoseconds.
pub fn clock_ns(clock: i32) -> Result<u64> {
    let now = look();
    // Belongs to the operation of the look. The state's address is read again: to keep it in between costs more.
    reading(kernel(), clock, now)
}

/// The time of day at which `clock` will read `at_ns`: how absolute deadlines become the server's own.
pub fn deadline_of(k: &Kernel, clock: i32, at_ns: u64) -> Result<u64> {
    let now = k.now_ns.get();
    let reads = reading(k, clock, now)?;
    Ok(if at_ns >= reads {
        now.saturating_add(at_ns - reads)
    } else {
        now.saturating_sub(reads - at_ns)
    })
}

/// Sleeps until the server's time of day is `deadline_ns`.
fn sleep_until(k: &Kernel, deadline_ns: u64) -> Wake {
    cancellable(k, || {
        if deadline_ns <= k.now_ns.get() {
            turn::yield_now();
            return Wake::Timeout;
        }
        turn::suspend(Some(deadline_ns))
    })
}
