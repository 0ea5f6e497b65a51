//! The receiver of a signal: which thread of a process takes it, and which signals the turn's holder must take.

use super::{Info, NEVER_BLOCKED, Target, process_of};
use crate::host::Host;
use crate::process::{self, ProcessHandle};
use crate::thread::{Life, Wake};
use skein_arena::pool::Handle;

/// The threads of a process that can take signals, oldest first.
pub(super) fn threads<H: Host>(
    k: &H,
    process: ProcessHandle,
) -> impl Iterator<Item = Handle<H::Thread>> {
    process::threads_of(k, process)
        .filter(|(_, t)| t.tid.get() != 0 && !matches!(t.life.get(), Life::Unborn | Life::Ended))
        .map(|(h, _)| h)
}

/// The main thread has its process's number.
pub(super) fn main_thread<H: Host>(k: &H, process: ProcessHandle) -> Option<Handle<H::Thread>> {
    let pid = k.processes.get(process).pid.get() as u32;
    threads(k, process).find(|h| k.threads.get(*h).tid.get() == pid)
}

/// The thread that takes a signal sent to the process: the main thread if it has it unblocked, else the first thread that has.
pub(super) fn pick<H: Host>(k: &H, process: ProcessHandle, set: u64) -> Option<Handle<H::Thread>> {
    let wants = |h: &Handle<H::Thread>| {
        let t = k.threads.get(*h);
        t.signals.mask.get() & set == 0 && !t.exiting.get()
    };
    main_thread(k, process).filter(wants).or_else(|| threads(k, process).find(wants))
}

/// The thread that waits for it in `sigwait`.
pub(super) fn waiter<H: Host>(
    k: &H,
    target: Target<H::Thread>,
    set: u64,
) -> Option<Handle<H::Thread>> {
    let waits = |h: &Handle<H::Thread>| k.threads.get(*h).signals.waiting.get() & set != 0;
    match target {
        Target::Thread(h) => Some(h).filter(waits),
        Target::Process(process) => threads(k, process).find(waits),
    }
}

/// The signals that the turn's holder must take now.
#[inline(never)]
pub(super) fn due<H: Host>(k: &H) -> u64 {
    let me = k.current();
    let t = k.this();
    let process = t.process.get().expect("a thread's process");
    let open = !t.signals.mask.get();
    let mut all = t.signals.pending.bits() & open;
    let mut common = process_of(k, t).pending.bits() & open;
    while common != 0 {
        let one = common & common.wrapping_neg();
        common &= !one;
        if pick(k, process, one) == Some(me) {
            all |= one;
        }
    }
    all
}

/// Whether the turn's holder must run a handler before it may block.
#[inline]
pub fn is_due<H: Host>(k: &H) -> bool {
    k.signals.any.get() != 0 && due(k) != 0
}

/// Takes the next signal of `set` for the turn's holder.
pub(super) fn take<H: Host>(k: &H, set: u64) -> Option<Info> {
    let t = k.this();
    t.signals.pending.take(k, set).or_else(|| process_of(k, t).pending.take(k, set))
}

/// Takes a signal of `set` for the turn's holder, as a signalfd does.
pub fn take_of<H: Host>(k: &H, set: u64) -> Option<Info> {
    take(k, set & !NEVER_BLOCKED)
}

/// Whether a signal of `set` waits for the turn's holder.
pub fn waits_for<H: Host>(k: &H, set: u64) -> bool {
    let t = k.this();
    (t.signals.pending.bits() | process_of(k, t).pending.bits()) & set & !NEVER_BLOCKED != 0
}

/// A thread no longer takes signals of its process: others do.
pub(super) fn hand_on<H: Host>(k: &H, t: &H::Thread, mut common: u64) {
    let Some(process) = t.process.get() else { return };
    while common != 0 {
        let one = common & common.wrapping_neg();
        common &= !one;
        if let Some(taker) = pick(k, process, one) {
            k.resume(taker, Wake::Interrupted);
        }
    }
}
