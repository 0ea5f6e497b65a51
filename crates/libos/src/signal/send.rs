//! Sending: `kill` and its kin, and [`post`], which every signal passes.

use super::taker::{main_thread, pick, threads, waiter};
use super::timer;
use super::{Info, LAST, STOPS, bit, set_mask, signalfd, stop};
use crate::abi;
use crate::errno::{Errno, Result, fail};
use crate::host::Host;
use crate::process::{self, Life, Process, ProcessHandle};
use crate::state::signal::SignalTimer;
use crate::thread::Wake;
use core::fmt;
use skein_arena::pool::Handle;

/// The receiver of a signal; `T` is a thread.
pub enum Target<T> {
    /// One thread.
    Thread(Handle<T>),
    /// A process: one of its threads.
    Process(ProcessHandle),
}

impl<T> Clone for Target<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Target<T> {}
impl<T> fmt::Debug for Target<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => write!(f, "thread {thread:?}"),
            Self::Process(process) => write!(f, "process {process:?}"),
        }
    }
}

/// Sends a signal.
///
/// # Errors
/// `EAGAIN` when too many real-time signals are queued.
pub fn post<H: Host>(k: &H, target: Target<H::Thread>, info: Info) -> Result<()> {
    post_from(k, target, info, None)
}

/// As [`post`], for a timer.
pub(super) fn post_from<H: Host>(
    k: &H,
    target: Target<H::Thread>,
    info: Info,
    timer: Option<Handle<SignalTimer>>,
) -> Result<()> {
    let (signo, set) = (info.signo, bit(info.signo));
    let process = match target {
        Target::Thread(thread) => k.threads.get(thread).process.get().expect("a thread's process"),
        Target::Process(process) => process,
    };
    if k.processes.get(process).life.get() != Life::Alive {
        return Ok(());
    }
    let p = &k.processes.get(process).signals;
    stop::before_post(k, process, signo);
    if signo == abi::SIGSTOP {
        stop::stop(k, process, signo);
        return Ok(());
    }
    let asked = match target {
        Target::Thread(thread) => Some(thread),
        Target::Process(process) => main_thread(k, process),
    };
    let blocked = asked.is_some_and(|h| k.threads.get(h).signals.mask.get() & set != 0);
    let waiter = waiter(k, target, set);
    if p.ignores(signo) && !blocked {
        if let Some(timer) = timer {
            timer::dropped(k, timer);
        }
        return Ok(());
    }
    let taker = match target {
        Target::Thread(h) => (!blocked).then_some(h),
        Target::Process(process) => pick(k, process, set),
    };
    if STOPS & set != 0 && waiter.is_none() && taker.is_some() && p.defaults(signo) {
        stop::stop(k, process, signo);
        return Ok(());
    }
    let pending = match target {
        Target::Thread(h) => &k.threads.get(h).signals.pending,
        Target::Process(_) => &p.pending,
    };
    if pending.add(k, info, timer)? {
        signalfd::notify(k);
    }
    if let Some(waiter) = waiter {
        // One signal for one waiter.
        k.threads.get(waiter).signals.waiting.set(0);
        k.resume(waiter, Wake::Event);
    } else if let Some(taker) = taker {
        k.resume(taker, Wake::Interrupted);
    }
    Ok(())
}

/// The thread of this number, of any process.
fn thread_by_id<H: Host>(k: &H, tid: u32) -> Option<Handle<H::Thread>> {
    process::all(k)
        .flat_map(|(process, _)| threads(k, process))
        .find(|h| k.threads.get(*h).tid.get() == tid)
}

/// `kill`, `tgkill`, ...: checks a number. 0 tests whether the target exists.
///
/// # Errors
/// `EINVAL` for a number that is no signal's.
pub fn check(signo: i32) -> Result<()> {
    if (0..=LAST).contains(&signo) { Ok(()) } else { fail(abi::EINVAL) }
}

/// Sends `info` to the processes that `kill` addresses by `pid`.
///
/// # Errors
/// `EINVAL` for a number that is no signal's, `ESRCH` when nobody is meant, `EPERM` for init, `EAGAIN` of [`post`].
pub fn to_process<H: Host>(k: &H, pid: i32, info: Info) -> Result<()> {
    check(info.signo)?;
    let this = process::handle(k);
    let group = process::this(k).group.get();
    let meant = |h: ProcessHandle, p: &Process| match pid {
        0 => p.group.get() == group,
        -1 => h != this,
        ..-1 => p.group.get() == pid.wrapping_neg(),
        _ => p.pid.get() == pid,
    };
    let mut found = false;
    let mut itself = false;
    for (h, p) in process::all(k) {
        if !meant(h, p) {
            continue;
        }
        found = true;
        if h == this {
            itself = true;
        } else if info.signo == abi::SIGKILL {
            k.kill(h);
        } else if info.signo != 0 {
            post(k, Target::Process(h), info)?;
        }
    }
    if itself && info.signo != 0 {
        end_at_once(k, None, info.signo);
        post(k, Target::Process(this), info)?;
    }
    match found {
        true => Ok(()),
        false => fail(if pid == 1 { abi::EPERM } else { abi::ESRCH }),
    }
}

/// This process ends now if it sends itself (or its thread) a deadly signal.
fn end_at_once<H: Host>(k: &H, thread: Option<Handle<H::Thread>>, signo: i32) {
    let this = process::handle(k);
    let p = &k.processes.get(this).signals;
    let (set, target) = (bit(signo), thread.map_or(Target::Process(this), Target::Thread));
    let open = match thread {
        Some(h) => k.threads.get(h).signals.mask.get() & set == 0,
        None => pick(k, this, set).is_some(),
    };
    let ends = p.ends(signo) && open && waiter(k, target, set).is_none();
    if signo == abi::SIGKILL || ends {
        k.end_by_signal(signo);
    }
}

/// Sends `info` to the thread with this id, of process `pid` when that is given.
///
/// # Errors
/// `EINVAL` for numbers that are none, `ESRCH` when there is no such thread, `EAGAIN` of [`post`].
pub fn to_thread_id<H: Host>(k: &H, pid: Option<i32>, tid: i32, info: Info) -> Result<()> {
    check(info.signo)?;
    if tid <= 0 || pid.is_some_and(|pid| pid <= 0) {
        return fail(abi::EINVAL);
    }
    let found = thread_by_id(k, tid as u32).ok_or(Errno(abi::ESRCH))?;
    let process = k.threads.get(found).process.get().expect("a thread's process");
    if pid.is_some_and(|pid| k.processes.get(process).pid.get() != pid) {
        return fail(abi::ESRCH);
    }
    to_thread(k, found, info)
}

/// Sends `info` to a thread.
///
/// # Errors
/// `EAGAIN` of [`post`].
pub fn to_thread<H: Host>(k: &H, thread: Handle<H::Thread>, info: Info) -> Result<()> {
    let process = k.threads.get(thread).process.get().expect("a thread's process");
    if info.signo == 0 {
        return Ok(());
    }
    if process == process::handle(k) {
        end_at_once(k, Some(thread), info.signo);
    } else if info.signo == abi::SIGKILL {
        k.kill(process);
        return Ok(());
    }
    post(k, Target::Thread(thread), info)
}

/// The turn's holder sends itself a signal because of its own action (SIGPIPE).
pub fn raise_here<H: Host>(k: &H, signo: i32) {
    let _ = post(k, Target::Thread(k.current()), Info::sent(k, signo, abi::SI_USER));
}

/// A file of process `pid` is ready (`O_ASYNC`). A process with a full queue of signals has this one already.
pub fn sigio(k: &impl Host, pid: i32) {
    if let Some(owner) = process::find(k, pid) {
        let _ = post(k, Target::Process(owner), Info::of_kernel(abi::SIGIO));
    }
}

/// A signal comes through the log: for the first process. It is dropped when that has ended.
pub fn from_outside(k: &impl Host, signo: i32) {
    if (1..=LAST).contains(&signo)
        && let Some(root) = k.processes.root.get()
    {
        let _ = post(k, Target::Process(root), Info { signo, ..Info::default() });
    }
}

/// `abort`: the handler of SIGABRT runs, and when it returns the default action is taken.
pub fn abort<H: Host>(k: &H) -> ! {
    set_mask(k, k.this().signals.mask.get() & !bit(abi::SIGABRT));
    let info = Info::sent(k, abi::SIGABRT, abi::SI_TKILL);
    let _ = post(k, Target::Thread(k.current()), info);
    k.deliver_signals();
    k.end_by_signal(abi::SIGABRT)
}
