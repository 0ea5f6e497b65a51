//! Stopping a process and letting it go on: its threads get no turn meanwhile.
//!
//! A process is stopped at the moment of the signal, by a mark; its threads are put aside when their turn comes ([`turn`]). The one that has the
//! turn, when its own process is stopped, gives it up at the end of its call ([`super::deliver`]).

use super::{Info, STOPS, Target, bit, post, threads};
use crate::kernel::Kernel;
use crate::process::ProcessHandle;
use crate::process::{self, Process, group};
use crate::turn;
use libc::c_int;
use skein_libos::thread::Life;

/// The wait status of a process that has been let go on.
const CONTINUED: c_int = 0xffff;

/// The wait status of a process that a signal has stopped.
const fn stopped_by(signo: c_int) -> c_int {
    signo << 8 | 0x7f
}

/// A signal comes: a stop takes back that the process is to go on, and the other way round.
pub(super) fn before_post(k: &Kernel, process: ProcessHandle, signo: c_int) {
    if signo == libc::SIGCONT {
        forget(k, process, STOPS);
        go_on(k, process);
    } else if STOPS & bit(signo) != 0 {
        forget(k, process, bit(libc::SIGCONT));
    }
}

fn forget(k: &Kernel, process: ProcessHandle, set: u64) {
    if k.signals.any.get() == 0 {
        return;
    }
    k.processes.get(process).signals.pending.forget(k, set);
    for thread in threads(k, process) {
        k.threads.get(thread).signals.pending.forget(k, set);
    }
}

/// Stops a process. Those that a terminal sends do nothing where nobody could let it go on.
pub(super) fn stop(k: &Kernel, process: ProcessHandle, signo: c_int) {
    let p = k.processes.get(process);
    if signo != libc::SIGSTOP && group::is_orphaned(k, p.group.get(), None)
        || p.stopped.replace(true)
    {
        return;
    }
    count(k, 1);
    report(k, process, stopped_by(signo));
}

/// Lets a process go on, if it is stopped.
fn go_on(k: &Kernel, process: ProcessHandle) {
    let p = k.processes.get(process);
    if !p.stopped.replace(false) {
        return;
    }
    count(k, u32::MAX);
    for (thread, t) in k.set_aside.iter(&k.threads) {
        if t.process.get() == Some(process) {
            k.set_aside.remove(&k.threads, thread);
            t.life.set(Life::Runnable);
            k.run_queue.push_back(&k.threads, thread);
        }
    }
    report(k, process, CONTINUED);
}

/// One stopped process more, or less: signals are looked at while there is one.
fn count(k: &Kernel, by: u32) {
    k.processes.stopped.set(k.processes.stopped.get().wrapping_add(by));
    k.signals.any.set(k.signals.any.get().wrapping_add(by));
}

/// A process ends.
pub(super) fn ended(k: &Kernel, p: &Process) {
    if p.stopped.replace(false) {
        count(k, u32::MAX);
    }
}

/// The parent can learn of it, and is told unless it does not want to be.
fn report(k: &Kernel, process: ProcessHandle, status: c_int) {
    let p = k.processes.get(process);
    p.report.set(status);
    let Some(parent) = p.parent.get() else { return };
    if !k.processes.get(parent).signals.action(libc::SIGCHLD).has(libc::SA_NOCLDSTOP) {
        let _ = post(k, Target::Process(parent), Info::of_child(p, status));
    }
    k.keys.wake(k, process::children_key(parent), u32::MAX, u32::MAX);
}

/// A process that is stopped does not go on until it is let: the turn's holder waits for that.
pub(super) fn obey() {
    while process::this().stopped.get() {
        turn::stand_aside();
    }
}

/// Process `ends` does, and with it perhaps the last one that could let stopped ones of a group go on: they hang up and go on.
pub fn release_orphans(k: &Kernel, group: libc::pid_t, ends: ProcessHandle) {
    let stopped = |p: &Process| p.group.get() == group && p.stopped.get();
    if !group::is_orphaned(k, group, Some(ends)) || !process::all(k).any(|(_, p)| stopped(p)) {
        return;
    }
    for signo in [libc::SIGHUP, libc::SIGCONT] {
        for (member, p) in process::all(k) {
            if p.group.get() == group && member != ends {
                let _ = post(k, Target::Process(member), Info::of_kernel(signo));
            }
        }
    }
}
