//! timerfd.
//!
//! As in Linux a periodic timer is re-armed when it is read or polled, not when it fires: expirations in between are counted then, and a timer without a
//! reader makes no log entries.

use super::buffers::Buffers;
use super::ops::FileOps;
use super::wait::wait_if_blocking;
use super::{File, Hold, Kind, handle, ready};
use crate::abi::{self, itimerspec};
use crate::errno::{Errno, Result, fail};
use crate::host::Host;
use crate::state::file::TimerFd;
use crate::time;
use skein_arena::pool::Handle;
use skein_arena::uses::Use;

/// `timerfd_create`.
pub fn create<H: Host>(k: &H, clock: i32, flags: i32) -> Result<usize> {
    let clocks = [
        abi::CLOCK_REALTIME,
        abi::CLOCK_MONOTONIC,
        abi::CLOCK_BOOTTIME,
        abi::CLOCK_REALTIME_ALARM,
        abi::CLOCK_BOOTTIME_ALARM,
    ];
    if flags & !(abi::TFD_CLOEXEC | abi::TFD_NONBLOCK) != 0 || !clocks.contains(&clock) {
        return fail(abi::EINVAL);
    }
    let Some(timer) = k.fds.timerfds.alloc() else { return fail(abi::ENFILE) };
    k.note(Use::Timers);
    let t = k.fds.timerfds.get(timer);
    t.clock.set(clock);
    let status = abi::O_RDWR | flags & abi::O_NONBLOCK;
    let cloexec = flags & abi::TFD_CLOEXEC != 0;
    let (file, fd) = super::open(k, Kind::TimerFd, timer.raw(), status, cloexec)
        .inspect_err(|_| k.fds.timerfds.free(timer))?;
    t.file.set(Some(file));
    Ok(fd as usize)
}

fn disarm<H: Host>(k: &H, t: &TimerFd) {
    if let Some(pending) = t.timer.take() {
        k.timers.remove(pending);
    }
    t.armed.set(false);
}

fn arm<H: Host>(k: &H, raw: u32, t: &TimerFd, deadline_ns: u64) {
    t.armed.set(true);
    t.deadline_ns.set(deadline_ns);
    if deadline_ns <= k.now_ns.get() {
        expire(k, t);
    } else {
        t.timer.set(Some(k.timers.set_timerfd(k, raw, deadline_ns)));
    }
}

fn expire<H: Host>(k: &H, t: &TimerFd) {
    t.expired.set(t.expired.get() + 1);
    if t.interval_ns.get() == 0 {
        t.armed.set(false);
    }
    super::notify(k, t.file.get(), ready::IN);
}

/// Counts the periods that have passed since the last expiry and arms the next one.
fn forward<H: Host>(k: &H, raw: u32, t: &TimerFd) {
    let interval = t.interval_ns.get();
    if t.expired.get() == 0 || interval == 0 || t.timer.get().is_some() {
        return;
    }
    let missed = k.now_ns.get().saturating_sub(t.deadline_ns.get()) / interval;
    t.expired.set(t.expired.get() + missed);
    let next = t.deadline_ns.get().saturating_add(interval.saturating_mul(missed + 1));
    t.deadline_ns.set(next);
    t.timer.set(Some(k.timers.set_timerfd(k, raw, next)));
}

/// A deadline of timerfd `raw` has passed.
pub fn fired<H: Host>(k: &H, raw: u32) {
    let t = k.fds.timerfds.get(Handle::from_raw(raw).expect("a timerfd"));
    t.timer.set(None);
    expire(k, t);
}

/// The functions of a timerfd.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    fn mask(&self, k: &H, file: &File) -> u32 {
        let expired = k.fds.timerfds.get(handle(file.object.get())).expired.get();
        if expired > 0 { ready::IN } else { 0 }
    }

    fn release(&self, k: &H, file: Handle<File>) {
        let timer = handle(k.fds.files.get(file).object.get());
        disarm(k, k.fds.timerfds.get(timer));
        k.fds.timerfds.free(timer);
    }

    /// Takes the count of expirations.
    fn read(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        if buffers.left() < 8 {
            return fail(abi::EINVAL);
        }
        let timer = of(k, hold)?;
        let t = k.fds.timerfds.get(timer);
        while t.expired.get() == 0 {
            wait_if_blocking(k, hold, ready::IN)?;
        }
        forward(k, timer.raw(), t);
        let count = t.expired.replace(0);
        // SAFETY: the server's buffers; one thread runs at a time.
        unsafe { buffers.scatter(&count.to_ne_bytes()) };
        Ok(8)
    }

    fn stays(&self) -> bool {
        true
    }
}

fn of<H: Host>(k: &H, hold: &Hold<'_, H>) -> Result<Handle<TimerFd>> {
    hold.file(k).as_kind(Kind::TimerFd).map_or(fail(abi::EINVAL), Ok)
}

fn setting<H: Host>(k: &H, t: &TimerFd) -> itimerspec {
    let left = match t.armed.get() {
        // A timer that is due reports the smallest time, because zero means disarmed.
        true => t.deadline_ns.get().saturating_sub(k.now_ns.get()).max(1),
        false => 0,
    };
    itimerspec {
        it_interval: time::to_timespec(t.interval_ns.get()),
        it_value: time::to_timespec(left),
    }
}

/// `timerfd_settime`.
pub fn set<H: Host>(k: &H, hold: &Hold<'_, H>, flags: i32, new: &itimerspec) -> Result<itimerspec> {
    if flags & !(abi::TFD_TIMER_ABSTIME | abi::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return fail(abi::EINVAL);
    }
    let (value, interval) = (time::to_ns(&new.it_value)?, time::to_ns(&new.it_interval)?);
    let timer = of(k, hold)?;
    let t = k.fds.timerfds.get(timer);
    forward(k, timer.raw(), t);
    let before = setting(k, t);
    disarm(k, t);
    t.expired.set(0);
    t.interval_ns.set(interval);
    if value != 0 {
        let deadline = match flags & abi::TFD_TIMER_ABSTIME {
            0 => k.now_ns.get().saturating_add(value),
            _ => k.deadline_of(t.clock.get(), value)?,
        };
        arm(k, timer.raw(), t, deadline);
    }
    Ok(before)
}

/// `timerfd_gettime`.
pub fn get<H: Host>(k: &H, hold: &Hold<'_, H>) -> Result<itimerspec> {
    let timer = of(k, hold)?;
    let t = k.fds.timerfds.get(timer);
    forward(k, timer.raw(), t);
    Ok(setting(k, t))
}

/// `timerfd_settime`.
///
/// # Safety
/// `new` is null or valid, `old` null or valid.
pub unsafe fn settime<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    flags: i32,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        let before = set(k, hold, flags, new.as_ref().ok_or(Errno(abi::EFAULT))?)?;
        if let Some(old) = old.as_mut() {
            *old = before;
        }
    }
    Ok(0)
}
