//! Timers that send signals: `timer_create` and `setitimer`, in virtual time.
//!
//! As in Linux a periodic timer is armed again when its signal is taken, not when it fires: what expired in between is counted then, and a timer
//! that nobody looks at makes no log entries. Timers of processor time run in virtual time like all others.
//!
//! A timer that calls a function (`SIGEV_THREAD`) has a thread made for each call by a helper thread, as in glibc; both are threads like the server's
//! own.

use super::{Info, LAST, Target, post_from, process_of, threads};
use crate::frame::entry;
use crate::kernel::{Kernel, kernel};
use crate::process::ProcessHandle;
use crate::process::{self, Process};
use crate::thread::{self, Thread};
use crate::{time, turn};
use core::cell::Cell;
use libc::{c_int, c_void, itimerval};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::abi::itimerspec;
use skein_libos::errno::{Errno, Result};
use skein_libos::keys::Key;
use skein_libos::timers::Timer;
use skein_sched::op::{Kind, Object};

/// Timers that send signals at one time: 4096.
pub const MAX_TIMERS: u32 = 4096;

/// How a timer tells of its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Notify {
    /// Not in use.
    Free = 0,
    /// Not at all: it is looked at.
    Silent,
    /// By a signal to the process.
    Process,
    /// By a signal to a thread.
    Thread,
    /// By calling a function.
    Call,
    /// One of `setitimer`'s.
    Interval,
}

/// A timer that sends signals.
#[repr(C)]
pub struct SignalTimer {
    clock: Cell<c_int>,
    notify: Cell<Notify>,
    signo: Cell<c_int>,
    process: Link<skein_libos::Process>,
    target: Link<Thread>,
    target_tid: Cell<u32>,
    /// The pending deadline.
    timer: Link<Timer>,
    /// In the server's time of day; of the last expiry once it has fired.
    deadline_ns: Cell<u64>,
    interval_ns: Cell<u64>,
    /// It has been set, and has expirations ahead.
    armed: Cell<bool>,
    /// It has fired, and nobody has taken that.
    waits: Cell<bool>,
    /// Expirations that were not told of on their own: since the last signal was sent, and at the last that was taken.
    missed: Cell<u64>,
    overrun: Cell<u64>,
    /// `sigev_value`, and for calls the function, its stack's size and the place in the order of calls.
    value: Cell<u64>,
    function: Cell<usize>,
    stack_bytes: Cell<usize>,
    call_order: Cell<u64>,
}

// SAFETY: cells and links; all-zero is a free timer.
unsafe impl ArenaObject for SignalTimer {}

/// The helper thread that makes threads for timers. All-zero: not there.
#[repr(C)]
pub struct Callers {
    started: Cell<bool>,
    calls: Cell<u64>,
}

/// Where the helper of a process waits.
const fn calls_key(process: ProcessHandle) -> Key {
    Key::of_runtime(3, process.raw())
}

/// The kernel's `sigevent`.
#[repr(C)]
pub struct Event {
    value: u64,
    signo: c_int,
    notify: c_int,
    /// The thread's id, or the function.
    function: usize,
    attributes: usize,
}

fn alloc(k: &Kernel) -> Result<Handle<SignalTimer>> {
    let timer = k.signals.timers.alloc().ok_or(Errno(libc::EAGAIN))?;
    k.signals.timers.get(timer).process.set(Some(process::handle()));
    crate::uses::note(crate::uses::Use::Timers);
    Ok(timer)
}

/// `timer_create`: answers the id. `call` says that functions can be called (the system call cannot).
///
/// # Safety
/// `event` is null or a valid `sigevent`.
pub unsafe fn create(clock: c_int, event: *const Event, call: bool) -> Result<usize> {
    let turn = turn::enter(Object::Timers, Kind::Create);
    time::deadline_of(clock, 0)?;
    let k = &*turn;
    // SAFETY: the caller's contract.
    let event = unsafe { event.as_ref() };
    let signo = event.map_or(libc::SIGALRM, |e| e.signo);
    let how = event.map_or(libc::SIGEV_SIGNAL, |e| e.notify);
    let notify = match how {
        libc::SIGEV_SIGNAL => Notify::Process,
        libc::SIGEV_NONE => Notify::Silent,
        libc::SIGEV_THREAD_ID => Notify::Thread,
        libc::SIGEV_THREAD if call => Notify::Call,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if matches!(notify, Notify::Process | Notify::Thread) && !(1..=LAST).contains(&signo) {
        return Err(Errno(libc::EINVAL));
    }
    let target = match (notify, event) {
        (Notify::Thread, Some(e)) => {
            let tid = e.function as u32;
            Some(
                threads(k, process::handle())
                    .find(|h| k.threads.get(*h).tid.get() == tid)
                    .ok_or(Errno(libc::EINVAL))?,
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
    t.target.set(target);
    t.target_tid.set(target.map_or(0, |h| k.threads.get(h).tid.get()));
    t.value.set(event.map_or(u64::from(id), |e| e.value));
    if let (Notify::Call, Some(e)) = (notify, event) {
        t.function.set(e.function);
        let mut bytes = 0;
        if e.attributes != 0 {
            // SAFETY: the server's own attributes, which it initialised.
            unsafe {
                libc::pthread_attr_getstacksize(e.attributes as *const _, &raw mut bytes);
            }
        }
        t.stack_bytes.set(bytes);
    }
    Ok(id as usize)
}

/// The timer with an id.
fn find(k: &Kernel, id: usize) -> Result<Handle<SignalTimer>> {
    let raw = u32::try_from(id).ok().and_then(|id| id.checked_add(1));
    raw.filter(|raw| *raw <= k.signals.timers.high())
        .and_then(Handle::from_raw)
        .filter(|h| {
            let t = k.signals.timers.get(*h);
            !matches!(t.notify.get(), Notify::Free | Notify::Interval)
                && t.process.get() == Some(process::handle())
        })
        .ok_or(Errno(libc::EINVAL))
}

fn disarm(k: &Kernel, t: &SignalTimer) {
    if let Some(pending) = t.timer.take() {
        k.timers.remove(pending);
    }
    t.armed.set(false);
}

fn arm(k: &Kernel, timer: Handle<SignalTimer>, deadline_ns: u64) {
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
fn periods(k: &Kernel, t: &SignalTimer) -> u64 {
    let passed = k.now_ns.get().saturating_sub(t.deadline_ns.get());
    passed.checked_div(t.interval_ns.get()).unwrap_or(0)
}

/// Arms a periodic timer that has fired for its next expiry; answers how many it missed.
fn forward(k: &Kernel, timer: Handle<SignalTimer>) -> u64 {
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
pub fn fired(k: &Kernel, raw: u32) {
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
    const SI_TIMER: c_int = -2;
    let (id, value) = ((raw - 1) as c_int, t.value.get());
    let info = Info { signo: t.signo.get(), code: SI_TIMER, pid: id, value, ..Info::default() };
    let sent = match t.notify.get() {
        Notify::Interval => {
            let p = k.processes.get(process);
            if p.signals.pending.attach(k, t.signo.get(), timer) {
                return;
            }
            post_from(k, Target::Process(process), Info::of_kernel(t.signo.get()), Some(timer))
        }
        Notify::Process => post_from(k, Target::Process(process), info, Some(timer)),
        Notify::Thread => match t.target.get() {
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
pub fn taken(k: &Kernel, timer: Handle<SignalTimer>, info: &mut Info) {
    let t = k.signals.timers.get(timer);
    t.waits.set(false);
    let missed = t.missed.replace(0) + forward(k, timer);
    t.overrun.set(missed);
    if t.notify.get() != Notify::Interval {
        info.uid = missed.min(i32::MAX as u64) as c_int;
    }
}

/// The signal of a timer was ignored.
pub fn dropped(k: &Kernel, timer: Handle<SignalTimer>) {
    let t = k.signals.timers.get(timer);
    t.waits.set(false);
    // As in Linux `setitimer`'s stops then.
    if t.notify.get() != Notify::Interval {
        forward(k, timer);
    }
}

fn setting(k: &Kernel, t: &SignalTimer) -> (u64, u64) {
    let left = match (t.armed.get(), t.interval_ns.get()) {
        (false, _) => 0,
        (true, 0) => t.deadline_ns.get().saturating_sub(k.now_ns.get()).max(1),
        (true, interval) => {
            let mut at = t.deadline_ns.get();
            if at <= k.now_ns.get() {
                at += interval.saturating_mul(periods(k, t) + 1);
            }
            at.saturating_sub(k.now_ns.get()).max(1)
        }
    };
    (left, t.interval_ns.get())
}

/// Sets a timer to `value` and `interval` nanoseconds; answers what is left of the time before.
fn set(
    k: &Kernel,
    timer: Handle<SignalTimer>,
    value: u64,
    interval: u64,
    absolute: bool,
) -> Result<(u64, u64)> {
    let t = k.signals.timers.get(timer);
    let deadline =
        if absolute { time::deadline_of(t.clock.get(), value)? } else { time::after(value) };
    let before = setting(k, t);
    disarm(k, t);
    forget_sent(k, timer);
    t.waits.set(false);
    t.missed.set(0);
    t.overrun.set(0);
    t.interval_ns.set(interval);
    if value != 0 {
        arm(k, timer, deadline);
    }
    Ok(before)
}

/// What a timer has sent is its own no longer.
fn forget_sent(k: &Kernel, timer: Handle<SignalTimer>) {
    let t = k.signals.timers.get(timer);
    if t.waits.get() {
        let process = t.process.get().expect("a timer's process");
        k.processes.get(process).signals.pending.forget_timer(k, timer);
        if let Some(h) = t.target.get() {
            k.threads.get(h).signals.pending.forget_timer(k, timer);
        }
    }
}

/// A process has ended: its timers are gone.
pub fn process_ended(k: &Kernel, p: &Process) {
    remove_all(k, p, |_| true);
}

/// A process has executed another program: the timers that it made are gone, those of `setitimer` go on.
pub fn executed(k: &Kernel, p: &Process) {
    remove_all(k, p, |timer| {
        p.signals.interval_timers.iter().all(|interval| interval.get() != Some(timer))
    });
    // Its helper ended with the other threads.
    p.signals.callers.started.set(false);
    p.signals.callers.calls.set(0);
}

fn remove_all(k: &Kernel, p: &Process, which: impl Fn(Handle<SignalTimer>) -> bool) {
    for timer in (1..=k.signals.timers.high()).filter_map(Handle::from_raw) {
        let t = k.signals.timers.get(timer);
        let its = t.process.get().is_some_and(|h| core::ptr::eq(k.processes.get(h), p));
        if t.notify.get() != Notify::Free && its && which(timer) {
            disarm(k, t);
            t.notify.set(Notify::Free);
            k.signals.timers.free(timer);
        }
    }
}

/// `timer_settime`.
pub fn set_time(id: usize, flags: c_int, new: &itimerspec) -> Result<itimerspec> {
    let turn = turn::enter(Object::Timers, Kind::Set);
    let k = &*turn;
    let timer = find(k, id)?;
    let (value, interval) =
        (skein_libos::time::to_ns(&new.it_value)?, skein_libos::time::to_ns(&new.it_interval)?);
    let before = set(k, timer, value, interval, flags & libc::TIMER_ABSTIME != 0)?;
    Ok(to_spec(before))
}

fn to_spec((value, interval): (u64, u64)) -> itimerspec {
    itimerspec {
        it_interval: skein_libos::time::to_timespec(interval),
        it_value: skein_libos::time::to_timespec(value),
    }
}

/// `timer_gettime`.
pub fn get_time(id: usize) -> Result<itimerspec> {
    let turn = turn::enter(Object::Timers, Kind::Ask);
    let k = &*turn;
    let timer = find(k, id)?;
    Ok(to_spec(setting(k, k.signals.timers.get(timer))))
}

/// `timer_getoverrun`.
pub fn overrun(id: usize) -> Result<usize> {
    let turn = turn::enter(Object::Timers, Kind::Ask);
    let k = &*turn;
    let timer = find(k, id)?;
    Ok(k.signals.timers.get(timer).overrun.get().min(i32::MAX as u64) as usize)
}

/// `timer_delete`.
pub fn delete(id: usize) -> Result<usize> {
    let turn = turn::enter(Object::Timers, Kind::Destroy);
    let k = &*turn;
    let timer = find(k, id)?;
    let t = k.signals.timers.get(timer);
    disarm(k, t);
    forget_sent(k, timer);
    t.notify.set(Notify::Free);
    k.signals.timers.free(timer);
    Ok(0)
}

const INTERVAL_SIGNALS: [c_int; 3] = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF];

/// `setitimer`, in nanoseconds: `None` only asks.
pub fn interval(which: c_int, new: Option<(u64, u64)>) -> Result<(u64, u64)> {
    let turn = turn::enter(Object::Timers, Kind::Set);
    let at = usize::try_from(which).ok().filter(|at| *at < 3).ok_or(Errno(libc::EINVAL))?;
    let k = &*turn;
    let place = &process_of(k, k.this()).interval_timers[at];
    let Some((value, interval)) = new else {
        return Ok(place.get().map_or((0, 0), |t| setting(k, k.signals.timers.get(t))));
    };
    let timer = match place.get() {
        Some(timer) => timer,
        None => {
            let timer = alloc(k)?;
            let t = k.signals.timers.get(timer);
            t.clock.set(libc::CLOCK_MONOTONIC);
            t.notify.set(Notify::Interval);
            t.signo.set(INTERVAL_SIGNALS[at]);
            place.set(Some(timer));
            timer
        }
    };
    set(k, timer, value, interval, false)
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
            .then(|| tv.tv_sec as u64 * skein_libos::time::NS_PER_S + tv.tv_usec as u64 * NS_PER_US)
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
            tv_sec: (ns / skein_libos::time::NS_PER_S) as i64,
            tv_usec: (ns % skein_libos::time::NS_PER_S / NS_PER_US) as i64,
        };
        // One that is due says so by the smallest time.
        let left = if left == 0 { 0 } else { left.max(NS_PER_US) };
        // SAFETY: the caller's contract.
        unsafe { old.write(itimerval { it_interval: tv(period), it_value: tv(left) }) };
    }
    Ok(0)
}

/// `alarm`: answers the seconds that were left, rounded as in Linux.
pub fn alarm(seconds: u32) -> u32 {
    let (left, _) =
        interval(libc::ITIMER_REAL, Some((u64::from(seconds) * skein_libos::time::NS_PER_S, 0)))
            .unwrap_or((0, 0));
    let half = skein_libos::time::NS_PER_S / 2;
    let rounded =
        if left != 0 && left < half { 1 } else { (left + half) / skein_libos::time::NS_PER_S };
    rounded as u32
}

fn start_callers(k: &Kernel) -> Result<()> {
    let started = &process::this().signals.callers.started;
    if started.replace(true) {
        return Ok(());
    }
    let mut helper = 0;
    // SAFETY: a start routine of the right type without attributes.
    let made = unsafe {
        thread::create(&raw mut helper, core::ptr::null_mut(), callers as *const () as usize, 0)
    };
    if made.is_err() {
        started.set(false);
    } else if let Some(h) = thread::find(k, helper) {
        k.threads.get(h).signals.mask.set(u64::MAX);
    }
    made
}

/// The timer whose call has waited longest.
fn next_call(k: &Kernel) -> Option<Handle<SignalTimer>> {
    (1..=k.signals.timers.high())
        .filter_map(Handle::from_raw)
        .filter(|h| {
            let t = k.signals.timers.get(*h);
            t.notify.get() == Notify::Call
                && t.waits.get()
                && t.process.get() == Some(process::handle())
        })
        .min_by_key(|h| k.signals.timers.get(*h).call_order.get())
}

/// The helper thread.
#[unsafe(naked)]
extern "C" fn callers(nothing: *mut c_void) -> *mut c_void {
    entry!(make_callers)
}

extern "C" fn make_callers(_: *mut c_void) -> *mut c_void {
    let k = kernel();
    loop {
        let _turn = turn::enter(Object::Timers, Kind::Wait);
        let Some(timer) = next_call(k) else {
            k.keys.wait(k, calls_key(process::handle()), u32::MAX, None);
            continue;
        };
        let t = k.signals.timers.get(timer);
        taken(k, timer, &mut Info::default());
        if make_caller(k, t.function.get(), t.value.get(), t.stack_bytes.get()).is_err() {
            crate::fatal::notice(b"no thread could be made for a timer's function");
        }
    }
}

/// Makes a thread that calls a timer's function.
fn make_caller(k: &Kernel, function: usize, value: u64, stack_bytes: usize) -> Result<()> {
    // SAFETY: all-zero bytes, made attributes by the next call.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    let mut pthread = 0;
    // SAFETY: libc's functions on locals; the function takes its value in the register of a start routine's argument.
    let made = unsafe {
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        if stack_bytes != 0 {
            libc::pthread_attr_setstacksize(&raw mut attributes, stack_bytes);
        }
        let made = thread::create(&raw mut pthread, &raw mut attributes, function, value as usize);
        libc::pthread_attr_destroy(&raw mut attributes);
        made
    };
    if let Some(h) = thread::find(k, pthread).filter(|_| made.is_ok()) {
        k.threads.get(h).signals.mask.set(0);
    }
    made
}
