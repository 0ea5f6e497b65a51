//! Traps on a kernel thread that libc has just made, before it has come to the runtime: noted without the turn, for the turn's holder.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The most places in libc's start of a thread.
const PLACES: usize = 8;

struct Slot {
    address: AtomicUsize,
    call: AtomicU32,
    traps: AtomicU32,
}

static SLOTS: [Slot; PLACES] = [const {
    Slot { address: AtomicUsize::new(0), call: AtomicU32::new(0), traps: AtomicU32::new(0) }
}; PLACES];

/// The instruction at `address` has trapped, which is counted as `call`.
pub fn note(address: usize, call: usize) {
    for slot in &SLOTS {
        let there = slot.address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
        if there.is_ok() || there == Err(address) {
            slot.call.store(call as u32, Ordering::Relaxed);
            slot.traps.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Hands over the notes: address, call, traps. No thread is new.
pub fn take(mut each: impl FnMut(usize, usize, u64)) {
    for slot in &SLOTS {
        let traps = slot.traps.swap(0, Ordering::Relaxed);
        if traps != 0 {
            let call = slot.call.load(Ordering::Relaxed) as usize;
            each(slot.address.load(Ordering::Relaxed), call, traps.into());
        }
    }
}
