//! The core on which the server's processes hand the turn to each other, and the server hands over to its node.
//!
//! The kernel likes to wake a thread on an idle core, which takes ten times as long as to wake it where the waker is about to sleep
//! (`cargo xtask handoff`). As one thread of the server runs at a time, nothing is gained by two cores: so a carrier that gets the turn binds itself to
//! the core that it comes from. Every so many times that the server waits for its node it may move again, and the others follow it: the choice of the core
//! stays the kernel's.
//!
//! A leading node may name the server's core: the node's own, while the server is busy only briefly ([`super::cpu_burst`]). Then that
//! counts, for as long as the node says so.

use crate::kernel::Kernel;
use crate::kernel::turns::{CORE_WORDS as WORDS, Cores};
use crate::local::LOCAL;
use crate::local::header;
use crate::sys;
use core::sync::atomic::Ordering;

/// The number of sleeps at the gate after which the server may move to another core.
const STAYS: u32 = 512;
/// At the server's start: notes where it may run.
pub fn begin(k: &Kernel) {
    let mut cores = [0u64; WORDS];
    let ask = sys::args([0, size_of::<Cores>(), cores.as_mut_ptr() as usize]);
    // SAFETY: writes a local.
    if unsafe { sys::call(libc::SYS_sched_getaffinity, ask) }.is_ok() {
        k.cores.set(cores);
    }
}

/// The turn goes to another process: it is to run on this core.
pub(super) fn lead(k: &Kernel) {
    if k.core.get() == 0 {
        let mut core = 0u32;
        // SAFETY: writes a local.
        let told = unsafe { sys::call(libc::SYS_getcpu, sys::args([&raw mut core as usize])) };
        if told.is_ok() && (core as usize) < WORDS * 64 {
            k.core.set(core + 1);
        }
    }
}

/// The turn has come from another process: goes to where it came from.
pub(super) fn follow(k: &Kernel) {
    go(k.core.get());
}

/// The carrier sleeps until the node wakes it: now and then it may go elsewhere. Not each time, since the others, which are bound where it was, would
/// have to follow through a core that may be busy by now.
#[inline]
pub fn at_gate(k: &Kernel) {
    if LOCAL.core.load(Ordering::Relaxed) != 0
        && k.told.get() == 0
        && k.sleeps.replace(k.sleeps.get() + 1) == STAYS
    {
        k.sleeps.set(0);
        roam(k);
    }
}

/// Input of the node arrived: moves to the core that the node names, if it names one, and away from there when it no longer does.
#[inline]
pub fn at_work(k: &Kernel) {
    let wanted = header().core.load(Ordering::Relaxed);
    if k.told.replace(wanted) != wanted {
        k.core.set(wanted);
        if wanted == 0 {
            roam(k);
        }
    }
    if wanted != 0 {
        go(wanted);
    }
}

/// The carrier may run anywhere: it executes another program, which does not know that it is bound.
#[inline]
pub fn roam(k: &Kernel) {
    if LOCAL.core.load(Ordering::Relaxed) != 0 {
        LOCAL.core.store(0, Ordering::Relaxed);
        k.core.set(0);
        bind(&k.cores.get());
    }
}

/// Binds the carrier to a core, from 1, if it is not already bound to it.
#[inline]
fn go(core: u32) {
    if core != 0 && LOCAL.core.load(Ordering::Relaxed) != core && core as usize <= WORDS * 64 {
        let mut one = [0u64; WORDS];
        one[(core as usize - 1) / 64] = 1 << ((core - 1) % 64);
        bind(&one);
        LOCAL.core.store(core, Ordering::Relaxed);
    }
}

/// A failure costs time, nothing else.
#[cold]
fn bind(cores: &Cores) {
    let args = sys::args([0, size_of::<Cores>(), cores.as_ptr() as usize]);
    // SAFETY: reads a live set.
    unsafe { sys::raw(libc::SYS_sched_setaffinity, args) };
}
