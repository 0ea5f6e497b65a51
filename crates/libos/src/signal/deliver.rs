//! Delivery: the turn's holder acts on its signals.
//!
//! As in Linux a signal that becomes deliverable while another is about to be handled goes first: its handler is run on top of the other's.

use super::taker::{due, take};
use super::{Action, Info, NEVER_BLOCKED, STOPS, bit, process_of, set_mask, stop};
use crate::abi;
use crate::host::Host;
use crate::process;

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// No handler ran.
    Nothing,
    /// The handler of the first signal has no `SA_RESTART`.
    Interrupts,
    /// The handler of the first signal has it.
    Restarts,
}

/// Delivers all signals for the turn's holder.
pub fn deliver<H: Host>(k: &H) {
    run(k);
}

/// A call with nothing held was interrupted: delivers, and answers whether it must be repeated. `restartable` says whether `SA_RESTART` counts.
pub fn interrupted<H: Host>(k: &H, restartable: bool) -> bool {
    match run(k) {
        Handled::Nothing => true,
        Handled::Restarts => restartable,
        Handled::Interrupts => false,
    }
}

fn run<H: Host>(k: &H) -> Handled {
    let mut handled = Handled::Nothing;
    loop {
        stop::obey(k);
        let set = due(k);
        let Some(info) = take(k, set) else { return handled };
        let p = process_of(k, k.this());
        let action = p.action(info.signo);
        match action.handler {
            abi::SIG_IGN => {}
            abi::SIG_DFL if p.ends(info.signo) => k.end_by_signal(info.signo),
            abi::SIG_DFL => {
                if STOPS & bit(info.signo) != 0 {
                    stop::stop(k, process::handle(k), info.signo);
                }
            }
            _ => {
                if handled == Handled::Nothing {
                    let restarts = action.has(abi::SA_RESTART);
                    handled = if restarts { Handled::Restarts } else { Handled::Interrupts };
                }
                handle(k, &info, &action);
            }
        }
    }
}

fn handle<H: Host>(k: &H, info: &Info, action: &Action) {
    let before = enter(k, info.signo, action);
    // Signals that this one does not block go first, on top.
    let back = k.call_handler(info, action, before, || {
        run(k);
    });
    // The handler may have changed the mask that comes back.
    set_mask(k, back);
}

/// Sets the mask for a handler; answers the mask that comes back afterwards.
pub fn enter<H: Host>(k: &H, signo: i32, action: &Action) -> u64 {
    let t = k.this();
    let s = &t.signals;
    let mask = s.mask.get();
    let before = if s.has_saved.replace(false) { s.saved.get() } else { mask };
    let itself = if action.has(abi::SA_NODEFER) { 0 } else { bit(signo) };
    set_mask(k, (mask | action.mask | itself) & !NEVER_BLOCKED);
    if action.has(abi::SA_RESETHAND) {
        process_of(k, t).reset(signo);
    }
    before
}
