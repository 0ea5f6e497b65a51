//! Dispositions: a process's choice of action for each signal.

use super::{
    Action, HARMLESS, LAST, NEVER_BLOCKED, ProcessSignals, STOPS, bit, own, process_of, taker,
};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::process;
use skein_arena::uses::Use;

impl ProcessSignals {
    /// The action for a signal.
    #[must_use]
    pub fn action(&self, signo: i32) -> Action {
        self.actions[signo as usize - 1].get()
    }

    /// Whether an unblocked signal has no effect.
    pub(super) fn ignores(&self, signo: i32) -> bool {
        match self.action(signo).handler {
            abi::SIG_IGN => true,
            abi::SIG_DFL => HARMLESS & bit(signo) != 0,
            _ => false,
        }
    }

    /// Whether the disposition of a signal is the default.
    pub(super) fn defaults(&self, signo: i32) -> bool {
        self.action(signo).handler == abi::SIG_DFL
    }

    /// Whether a signal ends the process.
    pub(super) fn ends(&self, signo: i32) -> bool {
        self.defaults(signo) && (HARMLESS | STOPS) & bit(signo) == 0
    }

    /// A handler with `SA_RESETHAND` is about to run.
    pub(super) fn reset(&self, signo: i32) {
        let action = self.action(signo);
        self.actions[signo as usize - 1].set(Action { handler: abi::SIG_DFL, ..action });
    }
}

/// `sigaction`: answers the action before.
///
/// # Errors
/// `EINVAL` for a number that is no signal's, or a signal whose action nobody changes.
pub fn set<H: Host>(k: &H, signo: i32, action: Option<Action>) -> Result<Action> {
    let unchangeable = signo == abi::SIGKILL || signo == abi::SIGSTOP;
    if !(1..=LAST).contains(&signo) || unchangeable && action.is_some() {
        return fail(abi::EINVAL);
    }
    let p = process_of(k, k.this());
    let before = p.action(signo);
    if let Some(mut action) = action
        && !own(signo)
    {
        action.mask &= !NEVER_BLOCKED;
        p.actions[signo as usize - 1].set(action);
        if ![abi::SIG_DFL, abi::SIG_IGN].contains(&action.handler) {
            k.note(Use::SignalHandlers);
        }
        if signo == abi::SIGCHLD {
            let forgets = action.handler == abi::SIG_IGN || action.has(abi::SA_NOCLDWAIT);
            process::this(k).forgets_children.set(forgets);
        }
        if p.ignores(signo) {
            // A pending signal that is ignored now is dropped, even when it is blocked.
            p.pending.forget(k, bit(signo));
            for h in taker::threads(k, process::handle(k)) {
                k.threads.get(h).signals.pending.forget(k, bit(signo));
            }
        }
    }
    Ok(before)
}

/// Whether `siginterrupt` was asked for.
pub fn interrupting<H: Host>(k: &H, signo: i32) -> bool {
    (1..=LAST).contains(&signo) && process_of(k, k.this()).interrupting.get() & bit(signo) != 0
}

/// `siginterrupt`: `action` is the signal's; answers the one to set.
pub fn set_interrupting<H: Host>(k: &H, signo: i32, interrupts: bool, action: Action) -> Action {
    let all = &process_of(k, k.this()).interrupting;
    let restart = abi::SA_RESTART as u64;
    if interrupts {
        all.set(all.get() | bit(signo));
        Action { flags: action.flags & !restart, ..action }
    } else {
        all.set(all.get() & !bit(signo));
        Action { flags: action.flags | restart, ..action }
    }
}
