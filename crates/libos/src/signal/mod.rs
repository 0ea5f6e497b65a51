//! Signals: kept here until a thread takes them, at points that are a function of the log.
//!
//! The server's settings (dispositions, masks) are here, and never told to the kernel. Signals from the server itself, its timers and
//! the log are posted ([`send`]). A thread takes a signal that it has unblocked at the end of an operation of its own ([`deliver`]); a thread that
//! is blocked in a call is woken for it. The host calls the handlers ([`crate::Host::call_handler`]).
//!
//! - [`info`]: a signal's data, and a process's action for it.
//! - [`send`] posts signals, [`pending`] keeps them until they are taken, [`taker`] chooses the thread that takes them.
//! - [`mask`]: a thread's blocked signals. [`action`]: a process's dispositions.
//! - [`stop`] stops processes and lets them go on.
//! - [`wait`] is for threads that wait for signals, [`signalfd`] for descriptors that take them.
//! - [`timer`] has the timers that send signals.
//!
//! Invariant: [`Signals::any`] counts the pending sets that are not empty, and the stopped processes, so that nothing is examined while nothing
//! is pending. A host that wants a call at the end of each operation adds one.

pub mod action;
pub mod deliver;
pub mod info;
pub mod mask;
mod pending;
pub mod records;
pub mod send;
pub mod signalfd;
pub mod stop;
pub mod taker;
#[cfg(test)]
mod tests;
pub mod timer;
pub mod wait;

use crate::abi;
use crate::host::Host;
use crate::process::{Process, ProcessHandle};
pub use crate::state::signal::{LAST, ProcessSignals, Signals, ThreadSignals};

pub use deliver::{deliver, interrupted};
pub use info::{Action, Info};
pub use mask::{change_mask, pending, set_mask};
pub use pending::{Pending, Queued};
pub use send::{Target, post};
pub use taker::{is_due, take_of, waits_for};

/// The first real-time signal of the kernel's; these queue.
pub const FIRST_REALTIME: i32 = 32;

/// A signal's bit in a set.
#[must_use]
pub const fn bit(signo: i32) -> u64 {
    1 << (signo - 1)
}

/// Signals that cannot be blocked.
pub const NEVER_BLOCKED: u64 = bit(abi::SIGKILL) | bit(abi::SIGSTOP);
/// Signals that stop a process by default.
const STOPS: u64 = bit(abi::SIGSTOP) | bit(abi::SIGTSTP) | bit(abi::SIGTTIN) | bit(abi::SIGTTOU);
/// Signals that do nothing by default.
const HARMLESS: u64 = bit(abi::SIGCHLD) | bit(abi::SIGCONT) | bit(abi::SIGURG) | bit(abi::SIGWINCH);
/// Signals of faults; these come first.
pub const FAULTS: u64 = bit(abi::SIGSEGV)
    | bit(abi::SIGBUS)
    | bit(abi::SIGILL)
    | bit(abi::SIGTRAP)
    | bit(abi::SIGFPE)
    | bit(abi::SIGSYS);

/// Signals that belong to the host: a server can neither block nor handle them.
#[must_use]
pub const fn own(signo: i32) -> bool {
    signo == abi::SIGSYS || signo == skein_model::limits::SPIN_SIGNAL
}

/// The signals of the process that `t` is of.
pub fn process_of<'k, H: Host>(k: &'k H, t: &H::Thread) -> &'k ProcessSignals {
    &k.processes.get(t.process.get().expect("a thread's process")).signals
}

/// A thread is gone, with the signals sent to it; other threads take its share of the process's.
pub fn thread_ended<H: Host>(k: &H, t: &H::Thread) {
    abandon(k, t);
    let common = process_of(k, t).pending.bits();
    if common != 0 {
        taker::hand_on(k, t, common);
    }
}

/// Signals sent to a thread that never runs again are dropped.
pub fn abandon<H: Host>(k: &H, t: &H::Thread) {
    t.signals.pending.forget(k, u64::MAX);
    t.signals.waiting.set(0);
}

/// A process has ended: nothing is sent to it, and none of its timers runs.
pub fn process_ended(k: &impl Host, process: ProcessHandle) {
    let p = k.processes.get(process);
    p.signals.pending.forget(k, u64::MAX);
    stop::ended(k, p);
    timer::process_ended(k, process);
}

/// A new thread begins with its creator's mask.
pub fn inherit(from: &crate::Thread, to: &crate::Thread) {
    to.signals.mask.set(from.signals.mask.get());
}

/// A forked process begins with its parent's dispositions; nothing is pending, and it has no timers.
pub fn forked(parent: &Process, child: &Process) {
    for (from, to) in parent.signals.actions.iter().zip(&child.signals.actions) {
        to.set(from.get());
    }
    child.signals.interrupting.set(parent.signals.interrupting.get());
}

/// A process has executed another program: handled signals are at their default, ignored or blocked ones stay so.
pub fn executed(k: &impl Host, process: ProcessHandle, main: &crate::Thread) {
    let p = k.processes.get(process);
    for action in &p.signals.actions {
        if action.get().handler != abi::SIG_IGN {
            action.set(Action::default());
        }
    }
    p.signals.interrupting.set(0);
    timer::executed(k, process);
    main.signals.has_saved.set(false);
    main.signals.waiting.set(0);
}
