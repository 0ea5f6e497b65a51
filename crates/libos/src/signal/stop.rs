//! Stopping and continuing a process: its threads get no turn meanwhile.
//!
//! A process is stopped at the moment of the signal, by a mark; the host puts its threads aside when their turn comes. The one that has the
//! turn, when its own process is stopped, gives it up at the end of its call ([`super::deliver`]).

use super::taker::threads;
use super::{Info, STOPS, Target, bit, post};
use crate::abi;
use crate::host::Host;
use crate::process::wait::{CONTINUED, stopped_by};
use crate::process::{self, Process, ProcessHandle, group};
use crate::thread::Life;

/// A signal comes: a stop cancels a pending continuation, and the other way round.
pub(super) fn before_post(k: &impl Host, process: ProcessHandle, signo: i32) {
    if signo == abi::SIGCONT {
        forget(k, process, STOPS);
        go_on(k, process);
    } else if STOPS & bit(signo) != 0 {
        forget(k, process, bit(abi::SIGCONT));
    }
}

fn forget(k: &impl Host, process: ProcessHandle, set: u64) {
    if k.signals.any.get() == 0 {
        return;
    }
    k.processes.get(process).signals.pending.forget(k, set);
    for thread in threads(k, process) {
        k.threads.get(thread).signals.pending.forget(k, set);
    }
}

/// Stops a process. Stops from a terminal have no effect where no process could continue it.
pub(super) fn stop(k: &impl Host, process: ProcessHandle, signo: i32) {
    let p = k.processes.get(process);
    if signo != abi::SIGSTOP && group::is_orphaned(k, p.group.get(), None)
        || p.stopped.replace(true)
    {
        return;
    }
    count(k, 1);
    report(k, process, stopped_by(signo));
}

/// Continues a process, if it is stopped.
fn go_on(k: &impl Host, process: ProcessHandle) {
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

/// One stopped process more, or less: signals are examined while there is one.
fn count(k: &impl Host, by: u32) {
    k.processes.stopped.set(k.processes.stopped.get().wrapping_add(by));
    k.signals.any.set(k.signals.any.get().wrapping_add(by));
}

/// A process ends.
pub(super) fn ended(k: &impl Host, p: &Process) {
    if p.stopped.replace(false) {
        count(k, u32::MAX);
    }
}

/// The parent can learn of it, and is told unless it opted out.
fn report(k: &impl Host, process: ProcessHandle, status: i32) {
    let p = k.processes.get(process);
    p.report.set(status);
    let Some(parent) = p.parent.get() else { return };
    if !k.processes.get(parent).signals.action(abi::SIGCHLD).has(abi::SA_NOCLDSTOP) {
        let _ = post(k, Target::Process(parent), Info::of_child(k, p, status));
    }
    k.keys.wake(k, process::children_key(parent), u32::MAX, u32::MAX);
}

/// A stopped process does not run until it is continued: the turn's holder waits for that.
pub(super) fn obey<H: Host>(k: &H) {
    while process::this(k).stopped.get() {
        k.stand_aside();
    }
}

/// Process `ends` ends, and with it perhaps the last one that could continue stopped ones of a group: they get SIGHUP and continue.
pub fn release_orphans(k: &impl Host, group: i32, ends: ProcessHandle) {
    let stopped = |p: &Process| p.group.get() == group && p.stopped.get();
    if !group::is_orphaned(k, group, Some(ends)) || !process::all(k).any(|(_, p)| stopped(p)) {
        return;
    }
    for signo in [abi::SIGHUP, abi::SIGCONT] {
        for (member, p) in process::all(k) {
            if p.group.get() == group && member != ends {
                let _ = post(k, Target::Process(member), Info::of_kernel(signo));
            }
        }
    }
}
