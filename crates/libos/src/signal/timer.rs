//! Timers that send signals: `timer_create` and `setitimer`, in virtual time.
//!
//! As in Linux a periodic timer is armed again when its signal is taken, not when it fires: expirations in between are counted then, and a timer
//! without a reader makes no log entries. Timers of processor time run in virtual time like all others.
//!
//! A timer that calls a function (`SIGEV_THREAD`) has a thread made for each call by a helper thread, as in glibc; both are threads like the server's
//! own.

use super::{Info, LAST, Target, process_of, send::post_from, taker::threads};
use crate::abi::{self, itimerspec};
use crate::errno::{Errno, Result, fail};
use crate::host::Host;
use crate::keys::Key;
use crate::process::{self, ProcessHandle};
pub use crate::state::signal::MAX_TIMERS;
use crate::state::signal::{Notify, SignalTimer};
use crate::time::{NS_PER_S, to_ns, to_timespec};
use skein_arena::pool::Handle;
use skein_arena::uses::Use;

/// A call that is due: a function, its argument, and the size of its stack, 0 for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: usize,
    /// `sigev_value`.
    pub value: u64,
    /// Bytes of its stack.
    pub stack_bytes: usize,
}

/// Where the helper of a process waits.
const fn calls_key(process: ProcessHandle) -> Key {
    Key::of_runtime(3, process.raw())
}

/// The kernel's `sigevent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// The value sent along.
    pub value: u64,
    /// The signal.
    pub signo: i32,
    /// `SIGEV_SIGNAL`, ...
    pub notify: i32,
    /// The thread's id, or the function.
    pub function: usize,
    /// Attributes of the thread that calls the function.
    pub attributes: usize,
}

fn alloc(k: &impl Host) -> Result<Handle<SignalTimer>> {
    let timer = k.signals.timers.alloc().ok_or(Errno(abi::EAGAIN))?;
    k.signals.timers.get(timer).process.set(Some(process::handle(k)));
    k.note(Use::Timers);
    Ok(timer)
}

/// `timer_create`: answers the id. `call` says that functions can be called (the system call cannot), on stacks of `stack_bytes`.
///
/// # Errors
/// `EINVAL` for what there is not, `EAGAIN` when there are too many.
pub fn create(
    k: &impl Host,
    clock: i32,
    event: Option<&Event>,
    call: bool,
    stack_bytes: usize,
) -> Result<usize> {
    k.deadline_of(clock, 0)?;
    let signo = event.map_or(abi::SIGALRM, |e| e.signo);
    let how = event.map_or(abi::SIGEV_SIGNAL, |e| e.notify);
    let notify = match how {
        abi::SIGEV_SIGNAL => Notify::Process,
        abi::SIGEV_NONE => Notify::Silent,
        abi::SIGEV_THREAD_ID => Notify::Thread,
        abi::SIGEV_THREAD if call => Notify::Call,
        _ => return fail(abi::EINVAL),
    };
    if matches!(notify, Notify::Process | Notify::Thread) && !(1..=LAST).contains(&signo) {
        return fail(abi::EINVAL);
    }
    let target = match (notify, event) {
        (Notify::Thread, Some(e)) => {
            let tid = e.function as u32;
            Some(
                threads(k, process::handle(k))
                    .find(|h| k.threads.get(*h).tid.get() == tid)
                    .ok_or(Errno(abi::EINVAL))?,
            )
        }
        _ => None,
    };
    if notify == Notify::Call {
        start_callers(k)?;
    }
    let timer = alloc(k)?;
    let t = k.signals.timers.get(timer);
    let id = timer.raw() - 1;
    t.clock.set(clock);
    t.notify.set(notify);
    t.signo.set(signo);
    t.target.set(target.map_or(0, Handle::raw));
    t.target_tid.set(target.map_or(0, |h| k.threads.get(h).tid.get()));
    t.value.set(event.map_or(u64::from(id), |e| e.value));
    if let (Notify::Call, Some(e)) = (notify, event) {
        t.function.set(e.function);
        t.stack_bytes.set(stack_bytes);
    }
    Ok(id as usize)
}

/// The timer with an id.
fn find(k: &impl Host, id: usize) -> Result<Handle<SignalTimer>> {
    let raw = u32::try_from(id).ok().and_then(|id| id.checked_add(1));
    raw.filter(|raw| *raw <= k.signals.timers.high())
        .and_then(Handle::from_raw)
        .filter(|h| {
            let t = k.signals.timers.get(*h);
            !matches!(t.notify.get(), Notify::Free | Notify::Interval)
                && t.process.get() == Some(process::handle(k))
        })
        .ok_or(Errno(abi::EINVAL))
}

fn disarm(k: &impl Host, t: &SignalTimer) {
    if let Some(pending) = t.timer.take() {
        k.timers.remove(pending);
    }
    t.armed.set(false);
}

fn arm(k: &impl Host, timer: Handle<SignalTimer>, deadline_ns: u64) {
    let t = k.signals.timers.get(timer);
    t.armed.set(true);
    t.deadline_ns.set(deadline_ns);
    if deadline_ns <= k.now_ns.get() {
        fired(k, timer.raw());
    } else {
        t.timer.set(Some(k.timers.set_signal(k, timer.raw(), deadline_ns)));
    }
}

/// Periods that have passed since the last expiry.
fn periods(k: &impl Host, t: &SignalTimer) -> u64 {
    let passed = k.now_ns.get().saturating_sub(t.deadline_ns.get());
    passed.checked_div(t.interval_ns.get()).unwrap_or(0)
}

/// Arms a periodic timer that has fired for its next expiry; answers the number of missed ones.
fn forward(k: &impl Host, timer: Handle<SignalTimer>) -> u64 {
    let t = k.signals.timers.get(timer);
    if !t.armed.get() || t.interval_ns.get() == 0 || t.timer.get().is_some() {
        return 0;
    }
    let missed = periods(k, t);
    let next = t.interval_ns.get().saturating_mul(missed + 1).saturating_add(t.deadline_ns.get());
    t.deadline_ns.set(next);
    t.timer.set(Some(k.timers.set_signal(k, timer.raw(), next)));
    missed
}

/// A deadline of timer `raw` has passed.
pub fn fired(k: &impl Host, raw: u32) {
    let timer = Handle::from_raw(raw).expect("a timer");
    let t = k.signals.timers.get(timer);
    t.timer.set(None);
    if t.interval_ns.get() == 0 {
        t.armed.set(false);
    }
    if t.waits.replace(true) {
        t.missed.set(t.missed.get() + 1);
        return;
    }
    t.missed.set(0);
    let process = t.process.get().expect("a timer's process");
    let (id, value) = ((raw - 1) as i32, t.value.get());
    let info =
        Info { signo: t.signo.get(), code: abi::SI_TIMER, pid: id, value, ..Info::default() };
    let sent = match t.notify.get() {
        Notify::Interval => {
            let p = k.processes.get(process);
            if p.signals.pending.attach(k, t.signo.get(), timer) {
                return;
            }
            post_from(k, Target::Process(process), Info::of_kernel(t.signo.get()), Some(timer))
        }
        Notify::Process => post_from(k, Target::Process(process), info, Some(timer)),
        Notify::Thread => match Handle::from_raw(t.target.get()) {
            Some(h) if k.threads.get(h).tid.get() == t.target_tid.get() => {
                post_from(k, Target::Thread(h), info, Some(timer))
            }
            _ => return,
        },
        Notify::Call => {
            let calls = &k.processes.get(process).signals.callers.calls;
            calls.set(calls.get() + 1);
            t.call_order.set(calls.get());
            k.keys.wake(k, calls_key(process), u32::MAX, u32::MAX);
            return;
        }
        Notify::Silent | Notify::Free => {
            t.waits.set(false);
            return;
        }
    };
    if sent.is_err() {
        t.waits.set(false);
    }
}

/// The signal of a timer was taken.
pub fn taken(k: &impl Host, timer: Handle<SignalTimer>, info: &mut Info) {
    let t = k.signals.timers.get(timer);
    t.waits.set(false);
    let missed = t.missed.replace(0) + forward(k, timer);
    t.overrun.set(missed);
    if t.notify.get() != Notify::Interval {
        info.uid = missed.min(i32::MAX as u64) as i32;
    }
}

/// The signal of a timer was ignored.
pub fn dropped(k: &impl Host, timer: Handle<SignalTimer>) {
    let t = k.signals.timers.get(timer);
    t.waits.set(false);
    // As in Linux `setitimer`'s stops then.
    if t.notify.get() != Notify::Interval {
        forward(k, timer);
    }
}

fn setting(k: &impl Host, t: &SignalTimer) -> (u64, u64) {
    let left = match (t.armed.get(), t.interval_ns.get()) {
        (false, _) => 0,
        (true, 0) => t.deadline_ns.get().saturating_sub(k.now_ns.get()).max(1),
        (true, interval) => {
            let mut at = t.deadline_ns.get();
            if at <= k.now_ns.get() {
                at = at.saturating_add(interval.saturating_mul(periods(k, t) + 1));
            }
            at.saturating_sub(k.now_ns.get()).max(1)
        }
    };
    (left, t.interval_ns.get())
}

/// Sets a timer to `value` and `interval` nanoseconds; answers the rest of the old time.
fn set(
    k: &impl Host,
    timer: Handle<SignalTimer>,
    value: u64,
    interval: u64,
    absolute: bool,
) -> Result<(u64, u64)> {
    let t = k.signals.timers.get(timer);
    let deadline = if absolute { k.deadline_of(t.clock.get(), value)? } else { k.after(value) };
    let before = setting(k, t);
    disarm(k, t);
    forget_sent(k, timer);
    t.waits.set(false);
    t.missed.set(0);
    t.overrun.set(0);
    // As in Linux a stopped timer has no interval, unless it is one of `setitimer`'s that count processor time.
    let counts = t.notify.get() == Notify::Interval && t.signo.get() != abi::SIGALRM;
    t.interval_ns.set(if value != 0 || counts { interval } else { 0 });
    if value != 0 {
        arm(k, timer, deadline);
    }
    Ok(before)
}

/// Signals that a timer has sent no longer belong to it.
fn forget_sent(k: &impl Host, timer: Handle<SignalTimer>) {
    let t = k.signals.timers.get(timer);
    if t.waits.get() {
        let process = t.process.get().expect("a timer's process");
        k.processes.get(process).signals.pending.forget_timer(k, timer);
        if let Some(h) = Handle::from_raw(t.target.get()) {
            k.threads.get(h).signals.pending.forget_timer(k, timer);
        }
    }
}

/// A process has ended: its timers are gone.
pub fn process_ended(k: &impl Host, process: ProcessHandle) {
    remove_all(k, process, |_| true);
}

/// A process has executed another program: the timers that it made are gone, those of `setitimer` go on.
pub fn executed(k: &impl Host, process: ProcessHandle) {
    let p = k.processes.get(process);
    remove_all(k, process, |timer| {
        p.signals.interval_timers.iter().all(|interval| interval.get() != Some(timer))
    });
    // Its helper ended with the other threads.
    p.signals.callers.started.set(false);
    p.signals.callers.calls.set(0);
}

fn remove_all(k: &impl Host, process: ProcessHandle, which: impl Fn(Handle<SignalTimer>) -> bool) {
    for timer in (1..=k.signals.timers.high()).filter_map(Handle::from_raw) {
        let t = k.signals.timers.get(timer);
        let its = t.process.get() == Some(process);
        if t.notify.get() != Notify::Free && its && which(timer) {
            disarm(k, t);
            t.notify.set(Notify::Free);
            k.signals.timers.free(timer);
        }
    }
}

/// `timer_settime`.
///
/// # Errors
/// `EINVAL` when there is no such timer, or for times that are none.
pub fn set_time(k: &impl Host, id: usize, flags: i32, new: &itimerspec) -> Result<itimerspec> {
    let timer = find(k, id)?;
    let (value, interval) = (to_ns(&new.it_value)?, to_ns(&new.it_interval)?);
    let before = set(k, timer, value, interval, flags & abi::TIMER_ABSTIME != 0)?;
    Ok(to_spec(before))
}

fn to_spec((value, interval): (u64, u64)) -> itimerspec {
    itimerspec { it_interval: to_timespec(interval), it_value: to_timespec(value) }
}

/// `timer_gettime`.
///
/// # Errors
/// `EINVAL` when there is no such timer.
pub fn get_time(k: &impl Host, id: usize) -> Result<itimerspec> {
    let timer = find(k, id)?;
    Ok(to_spec(setting(k, k.signals.timers.get(timer))))
}

/// `timer_getoverrun`.
///
/// # Errors
/// `EINVAL` when there is no such timer.
pub fn overrun(k: &impl Host, id: usize) -> Result<usize> {
    let timer = find(k, id)?;
    Ok(k.signals.timers.get(timer).overrun.get().min(i32::MAX as u64) as usize)
}

/// `timer_delete`.
///
/// # Errors
/// `EINVAL` when there is no such timer.
pub fn delete(k: &impl Host, id: usize) -> Result<usize> {
    let timer = find(k, id)?;
    let t = k.signals.timers.get(timer);
    disarm(k, t);
    forget_sent(k, timer);
    t.notify.set(Notify::Free);
    k.signals.timers.free(timer);
    Ok(0)
}

const INTERVAL_SIGNALS: [i32; 3] = [abi::SIGALRM, abi::SIGVTALRM, abi::SIGPROF];

/// `setitimer`, in nanoseconds: `None` only asks.
///
/// # Errors
/// `EINVAL` for a timer that there is not, `EAGAIN` when there are too many.
pub fn interval<H: Host>(k: &H, which: i32, new: Option<(u64, u64)>) -> Result<(u64, u64)> {
    let at = usize::try_from(which).ok().filter(|at| *at < 3).ok_or(Errno(abi::EINVAL))?;
    let place = &process_of(k, k.this()).interval_timers[at];
    let Some((value, interval)) = new else {
        return Ok(place.get().map_or((0, 0), |t| setting(k, k.signals.timers.get(t))));
    };
    let timer = match place.get() {
        Some(timer) => timer,
        None => {
            let timer = alloc(k)?;
            let t = k.signals.timers.get(timer);
            t.clock.set(abi::CLOCK_MONOTONIC);
            t.notify.set(Notify::Interval);
            t.signo.set(INTERVAL_SIGNALS[at]);
            place.set(Some(timer));
            timer
        }
    };
    set(k, timer, value, interval, false)
}

/// `alarm`: answers the remaining seconds, rounded as in Linux.
pub fn alarm(k: &impl Host, seconds: u32) -> u32 {
    let (left, _) =
        interval(k, abi::ITIMER_REAL, Some((u64::from(seconds) * NS_PER_S, 0))).unwrap_or((0, 0));
    let half = NS_PER_S / 2;
    let rounded = if left != 0 && left < half { 1 } else { (left + half) / NS_PER_S };
    rounded as u32
}

fn start_callers(k: &impl Host) -> Result<()> {
    let started = &process::this(k).signals.callers.started;
    if started.replace(true) {
        return Ok(());
    }
    k.make_timer_caller().inspect_err(|_| started.set(false))
}

/// The call that has waited longest, for the helper thread; it is then no longer due.
pub fn next_call(k: &impl Host) -> Option<Call> {
    let timer = (1..=k.signals.timers.high())
        .filter_map(Handle::from_raw)
        .filter(|h| {
            let t = k.signals.timers.get(*h);
            t.notify.get() == Notify::Call
                && t.waits.get()
                && t.process.get() == Some(process::handle(k))
        })
        .min_by_key(|h| k.signals.timers.get(*h).call_order.get())?;
    taken(k, timer, &mut Info::default());
    let t = k.signals.timers.get(timer);
    let (function, value) = (t.function.get(), t.value.get());
    Some(Call { function, value, stack_bytes: t.stack_bytes.get() })
}

/// The helper thread waits until a call may be due.
pub fn await_call(k: &impl Host) {
    k.keys.wait(k, calls_key(process::handle(k)), u32::MAX, None);
}

/// Whether there is a timer of this number.
#[cfg(test)]
pub fn is_one(k: &impl Host, raw: u32) -> bool {
    let timer = Handle::from_raw(raw).filter(|_| raw <= k.signals.timers.high());
    timer.is_some_and(|timer| k.signals.timers.get(timer).notify.get() != Notify::Free)
}
