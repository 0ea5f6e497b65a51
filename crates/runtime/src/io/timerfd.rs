//! timerfd.
//!
//! As in Linux a periodic timer is re-armed when it is looked at, not when it fires: expirations in between are counted then, and a timer that
//! nobody reads makes no log entries.

use crate::io::Answer;
use crate::io::file::{self, File, Hold, Kind, ready};
use crate::io::iov::Buffers;
use crate::io::wait::wait_if_blocking;
use crate::kernel::Kernel;
use crate::timers::Timer;
use crate::{time, turn};
use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::abi::itimerspec;
use skein_libos::errno::{Errno, Result, fail};
use skein_sched::op::{Kind as Op, Object};

/// A timerfd.
#[repr(C)]
pub struct TimerFd {
    clock: Cell<i32>,
    file: Link<File>,
    /// The pending deadline.
    timer: Link<Timer>,
    armed: Cell<bool>,
    /// In the server's time of day; of the last expiry once it has fired.
    deadline_ns: Cell<u64>,
    interval_ns: Cell<u64>,
    /// Expirations that were not read.
    expired: Cell<u64>,
}

// SAFETY: cells and links.
unsafe impl ArenaObject for TimerFd {}

/// `timerfd_create`.
pub fn create(clock: i32, flags: i32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Op::Create);
    let clocks = [
        libc::CLOCK_REALTIME,
        libc::CLOCK_MONOTONIC,
        libc::CLOCK_BOOTTIME,
        libc::CLOCK_REALTIME_ALARM,
        libc::CLOCK_BOOTTIME_ALARM,
    ];
    if flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) != 0 || !clocks.contains(&clock) {
        return fail(libc::EINVAL);
    }
    let k = &*turn;
    let Some(timer) = k.io.timerfds.alloc() else { return fail(libc::ENFILE) };
    crate::uses::note(crate::uses::Use::Timers);
    let t = k.io.timerfds.get(timer);
    t.clock.set(clock);
    let status = libc::O_RDWR | flags & libc::O_NONBLOCK;
    let cloexec = flags & libc::TFD_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::TimerFd, timer.raw(), status, cloexec)
        .inspect_err(|_| k.io.timerfds.free(timer))?;
    t.file.set(Some(file));
    Ok(fd as usize)
}

/// The last reference is gone.
pub fn release(k: &Kernel, timer: Handle<TimerFd>) {
    disarm(k, k.io.timerfds.get(timer));
    k.io.timerfds.free(timer);
}

fn disarm(k: &Kernel, t: &TimerFd) {
    if let Some(pending) = t.timer.take() {
        k.timers.remove(pending);
    }
    t.armed.set(false);
}

fn arm(k: &Kernel, raw: u32, t: &TimerFd, deadline_ns: u64) {
    t.armed.set(true);
    t.deadline_ns.set(deadline_ns);
    if deadline_ns <= k.now_ns.get() {
        expire(k, t);
    } else {
        t.timer.set(Some(k.timers.set_timerfd(raw, deadline_ns)));
    }
}

fn expire(k: &Kernel, t: &TimerFd) {
    t.expired.set(t.expired.get() + 1);
    if t.interval_ns.get() == 0 {
        t.armed.set(false);
    }
    file::notify(k, t.file.get(), ready::IN);
}

/// Counts the periods that have passed since the last expiry and arms the next one.
fn forward(k: &Kernel, raw: u32, t: &TimerFd) {
    let interval = t.interval_ns.get();
    if t.expired.get() == 0 || interval == 0 || t.timer.get().is_some() {
        return;
    }
    let missed = k.now_ns.get().saturating_sub(t.deadline_ns.get()) / interval;
    t.expired.set(t.expired.get() + missed);
    let next = t.deadline_ns.get().saturating_add(interval.saturating_mul(missed + 1));
    t.deadline_ns.set(next);
    t.timer.set(Some(k.timers.set_timerfd(raw, next)));
}

/// A deadline of timerfd `raw` has passed.
pub fn fired(k: &Kernel, raw: u32) {
    let t = k.io.timerfds.get(Handle::from_raw(raw).expect("a timerfd"));
    t.timer.set(None);
    expire(k, t);
}

/// Readiness.
pub fn mask(k: &Kernel, timer: Handle<TimerFd>) -> u32 {
    if k.io.timerfds.get(timer).expired.get() > 0 { ready::IN } else { 0 }
}

fn of(k: &Kernel, hold: &Hold) -> Result<Handle<TimerFd>> {
    hold.file(k).as_kind(Kind::TimerFd).map_or(fail(libc::EINVAL), Ok)
}

fn setting(k: &Kernel, t: &TimerFd) -> itimerspec {
    let left = match t.armed.get() {
        // One that is due says so by the smallest time, not by the zero of a disarmed one.
        true => t.deadline_ns.get().saturating_sub(k.now_ns.get()).max(1),
        false => 0,
    };
    itimerspec {
        it_interval: skein_libos::time::to_timespec(t.interval_ns.get()),
        it_value: skein_libos::time::to_timespec(left),
    }
}

/// `timerfd_settime`.
pub fn set(k: &Kernel, hold: &Hold, flags: i32, new: &itimerspec) -> Result<itimerspec> {
    if flags & !(libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return fail(libc::EINVAL);
    }
    let (value, interval) =
        (skein_libos::time::to_ns(&new.it_value)?, skein_libos::time::to_ns(&new.it_interval)?);
    let timer = of(k, hold)?;
    let t = k.io.timerfds.get(timer);
    forward(k, timer.raw(), t);
    let before = setting(k, t);
    disarm(k, t);
    t.expired.set(0);
    t.interval_ns.set(interval);
    if value != 0 {
        let deadline = match flags & libc::TFD_TIMER_ABSTIME {
            0 => time::after(value),
            _ => time::deadline_of(t.clock.get(), value)?,
        };
        arm(k, timer.raw(), t, deadline);
    }
    Ok(before)
}

/// `timerfd_gettime`.
pub fn get(k: &Kernel, hold: &Hold) -> Result<itimerspec> {
    let timer = of(k, hold)?;
    let t = k.io.timerfds.get(timer);
    forward(k, timer.raw(), t);
    Ok(setting(k, t))
}

/// Takes the count of expirations.
pub fn read(
    k: &Kernel,
    hold: &Hold,
    timer: Handle<TimerFd>,
    buffers: &mut Buffers<'_>,
) -> Result<usize> {
    if buffers.left() < 8 {
        return fail(libc::EINVAL);
    }
    let t = k.io.timerfds.get(timer);
    while t.expired.get() == 0 {
        wait_if_blocking(k, hold, ready::IN)?;
    }
    forward(k, timer.raw(), t);
    let count = t.expired.replace(0);
    // SAFETY: the server's buffers; one thread runs at a time.
    unsafe { buffers.scatter(&count.to_ne_bytes()) };
    Ok(8)
}

/// `timerfd_settime`.
///
/// # Safety
/// `new` is valid, `old` null or valid.
pub unsafe fn settime(fd: i32, flags: i32, new: *const itimerspec, old: *mut itimerspec) -> Answer {
    let answer = file::with(fd, Op::Set, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe {
            let before = set(k, hold, flags, new.as_ref().ok_or(Errno(libc::EFAULT))?)?;
            if let Some(old) = old.as_mut() {
                *old = before;
            }
        }
        Ok(0)
    });
    file::of_kind(fd, answer)
}

/// `timerfd_gettime`.
///
/// # Safety
/// `out` is valid.
pub unsafe fn gettime(fd: i32, out: *mut itimerspec) -> Answer {
    let answer = file::with(fd, Op::Ask, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe { out.write(get(k, hold)?) };
        Ok(0)
    });
    file::of_kind(fd, answer)
}
