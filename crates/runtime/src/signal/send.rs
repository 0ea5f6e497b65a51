//! Sending: `kill` and its kin, and [`post`], by which every signal comes in.

use super::timer::{self, SignalTimer};
use super::{
    Info, LAST, STOPS, bit, main_thread, pick, stop, terminate_by_signal, threads, waiter,
};
use crate::io;
use crate::kernel::Kernel;
use crate::process::ProcessHandle;
use crate::process::{self, Process};
use crate::thread::Thread;
use crate::turn;
use libc::c_int;
use skein_arena::pool::Handle;
use skein_libos::errno::{Errno, Result};
use skein_libos::thread::Wake;
use skein_sched::op::{Kind, Object};

/// Whom a signal is for.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// One thread.
    Thread(Handle<Thread>),
    /// A process: one of its threads.
    Process(ProcessHandle),
}

/// Sends a signal.
///
/// # Errors
/// `EAGAIN` when too many real-time signals are queued.
pub fn post(k: &Kernel, target: Target, info: Info) -> Result<()> {
    post_from(k, target, info, None)
}

/// As [`post`], for a timer.
pub(super) fn post_from(
    k: &Kernel,
    target: Target,
    info: Info,
    timer: Option<Handle<SignalTimer>>,
) -> Result<()> {
    let (signo, set) = (info.signo, bit(info.signo));
    let process = match target {
        Target::Thread(thread) => k.threads.get(thread).process.get().expect("a thread's process"),
        Target::Process(process) => process,
    };
    if k.processes.get(process).life.get() != process::Life::Alive {
        return Ok(());
    }
    let p = &k.processes.get(process).signals;
    stop::before_post(k, process, signo);
    if signo == libc::SIGSTOP {
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
        io::signalfd::notify(k);
    }
    if let Some(waiter) = waiter {
        // One signal for one waiter.
        k.threads.get(waiter).signals.waiting.set(0);
        turn::resume(waiter, Wake::Event);
    } else if let Some(taker) = taker {
        turn::resume(taker, Wake::Interrupted);
    }
    Ok(())
}

/// The thread of this number, of any process.
fn thread_by_id(k: &Kernel, tid: u32) -> Option<Handle<Thread>> {
    process::all(k)
        .flat_map(|(process, _)| threads(k, process))
        .find(|h| k.threads.get(*h).tid.get() == tid)
}

/// `kill`, `tgkill`, ...: checks a number. 0 asks whether the target is there.
pub fn check(signo: c_int) -> Result<()> {
    if (0..=LAST).contains(&signo) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
}

/// Sends `info` to the processes that `kill` means by `pid`.
pub fn send_to_process(pid: libc::pid_t, info: Info) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Send);
    check(info.signo)?;
    let k = &*turn;
    let this = process::handle();
    let group = process::this().group.get();
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
        } else if info.signo == libc::SIGKILL {
            process::end::terminate(k, h, libc::SIGKILL);
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
        false => Err(Errno(if pid == 1 { libc::EPERM } else { libc::ESRCH })),
    }
}

/// This process ends now if it sends itself (or its thread) a signal that does that.
fn end_at_once(k: &Kernel, thread: Option<Handle<Thread>>, signo: c_int) {
    let this = process::handle();
    let p = &k.processes.get(this).signals;
    let (set, target) = (bit(signo), thread.map_or(Target::Process(this), Target::Thread));
    let open = match thread {
        Some(h) => k.threads.get(h).signals.mask.get() & set == 0,
        None => pick(k, this, set).is_some(),
    };
    let ends = p.ends(signo) && open && waiter(k, target, set).is_none();
    if signo == libc::SIGKILL || ends {
        terminate_by_signal(signo);
    }
}

/// Sends `info` to the thread with this id, of process `pid` when that is given.
pub fn send_to_thread(pid: Option<libc::pid_t>, tid: libc::pid_t, info: Info) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Send);
    check(info.signo)?;
    if tid <= 0 || pid.is_some_and(|pid| pid <= 0) {
        return Err(Errno(libc::EINVAL));
    }
    let k = &*turn;
    let found = thread_by_id(k, tid as u32).ok_or(Errno(libc::ESRCH))?;
    let process = k.threads.get(found).process.get().expect("a thread's process");
    if pid.is_some_and(|pid| k.processes.get(process).pid.get() != pid) {
        return Err(Errno(libc::ESRCH));
    }
    send_to(k, found, info)
}

/// Sends `info` to a thread.
pub fn send_to(k: &Kernel, thread: Handle<Thread>, info: Info) -> Result<()> {
    let process = k.threads.get(thread).process.get().expect("a thread's process");
    if info.signo == 0 {
        return Ok(());
    }
    if process == process::handle() {
        end_at_once(k, Some(thread), info.signo);
    } else if info.signo == libc::SIGKILL {
        process::end::terminate(k, process, libc::SIGKILL);
        return Ok(());
    }
    post(k, Target::Thread(thread), info)
}

/// The turn's holder sends itself a signal because of what it does (SIGPIPE).
pub fn raise_here(k: &Kernel, signo: c_int) {
    let _ = post(k, Target::Thread(k.current()), Info::sent(signo, libc::SI_USER));
}
