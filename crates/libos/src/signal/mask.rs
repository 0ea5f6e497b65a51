//! A thread's blocked signals, and its blocked pending ones.

use super::{NEVER_BLOCKED, bit, process_of, taker};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;

/// Sets the turn's holder's mask. Signals that another thread can take now instead are passed on.
pub fn set_mask<H: Host>(k: &H, mask: u64) {
    let t = k.this();
    let before = t.signals.mask.replace(mask & !NEVER_BLOCKED);
    let closed = mask & !before;
    let common = process_of(k, t).pending.bits() & closed;
    if k.signals.any.get() != 0 && common != 0 {
        taker::hand_on(k, t, common);
    }
}

/// `sigprocmask`: changes the mask, answers the one before.
///
/// # Errors
/// `EINVAL` for an unknown `how`.
pub fn change_mask<H: Host>(k: &H, how: i32, set: Option<u64>) -> Result<u64> {
    let before = k.this().signals.mask.get();
    if let Some(set) = set {
        let mask = match how {
            abi::SIG_BLOCK => before | set,
            abi::SIG_UNBLOCK => before & !set,
            abi::SIG_SETMASK => set,
            _ => return fail(abi::EINVAL),
        };
        set_mask(k, mask & !bit(abi::SIGSYS) & !bit(skein_model::limits::SPIN_SIGNAL));
    }
    Ok(before)
}

/// The signals that are pending for the turn's holder and blocked.
pub fn pending<H: Host>(k: &H) -> u64 {
    let t = k.this();
    (t.signals.pending.bits() | process_of(k, t).pending.bits()) & t.signals.mask.get()
}
