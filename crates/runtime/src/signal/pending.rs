//! What waits for delivery: the pending sets of threads and processes, and the queue of what comes with each signal.

use super::timer::{self, SignalTimer};
use super::{FAULTS, FIRST_REALTIME, Info, bit};
use crate::kernel::Kernel;
use core::cell::Cell;
use libc::c_int;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Errno, Result};

/// A signal in a queue.
#[repr(C)]
pub struct Queued {
    node: Node<Queued>,
    info: Cell<Info>,
    /// The timer that sent it.
    timer: Link<SignalTimer>,
}

/// A queue of pending signals.
pub struct OnQueue;

// SAFETY: cells and links; all-zero is valid.
unsafe impl ArenaObject for Queued {}
impl In<OnQueue> for Queued {
    fn node(&self) -> &Node<Queued> {
        &self.node
    }
}

/// Signals that wait for delivery. All-zero: none.
#[repr(C)]
pub struct Pending {
    bits: Cell<u64>,
    queue: List<Queued, OnQueue>,
    _pad: Cell<u32>,
}

impl Pending {
    /// What is pending.
    pub fn bits(&self) -> u64 {
        self.bits.get()
    }

    fn set_bits(&self, k: &Kernel, bits: u64) {
        let before = self.bits.replace(bits);
        let any = &k.signals.any;
        any.set(any.get() + u32::from(bits != 0) - u32::from(before != 0));
    }

    /// Adds a signal. One below the real-time ones that is pending already is pending once.
    pub(super) fn add(
        &self,
        k: &Kernel,
        info: Info,
        timer: Option<Handle<SignalTimer>>,
    ) -> Result<bool> {
        let known = self.bits.get() & bit(info.signo) != 0;
        // Each timer has an entry of its own.
        if known && info.signo < FIRST_REALTIME && timer.is_none() {
            return Ok(false);
        }
        match k.signals.queued.alloc() {
            Some(entry) => {
                let e = k.signals.queued.get(entry);
                e.info.set(info);
                e.timer.set(timer);
                self.queue.push_back(&k.signals.queued, entry);
            }
            None if info.signo >= FIRST_REALTIME && info.code != 0 => {
                return Err(Errno(libc::EAGAIN));
            }
            // As in Linux: the signal comes, without what belongs to it.
            None => {}
        }
        self.set_bits(k, self.bits.get() | bit(info.signo));
        Ok(true)
    }

    /// Makes a signal that is pending already an interval timer's, too. Answers whether there was one.
    pub(super) fn attach(&self, k: &Kernel, signo: c_int, timer: Handle<SignalTimer>) -> bool {
        let mut found = false;
        self.each(k, signo, |entry| {
            let e = k.signals.queued.get(entry);
            found = e.timer.get().is_none();
            if found {
                e.timer.set(Some(timer));
            }
            !found
        });
        found
    }

    /// Takes the first signal of `set`: faults first, then the lowest number, then the oldest.
    pub(super) fn take(&self, k: &Kernel, set: u64) -> Option<Info> {
        let there = self.bits.get() & set;
        if there == 0 {
            return None;
        }
        let first = if there & FAULTS != 0 { there & FAULTS } else { there };
        let signo = first.trailing_zeros() as c_int + 1;
        let mut found = None;
        let mut more = false;
        self.each(k, signo, |entry| {
            more = found.is_some();
            found.get_or_insert(entry);
            !more
        });
        if !more {
            self.set_bits(k, self.bits.get() & !bit(signo));
        }
        let Some(entry) = found else { return Some(Info { signo, ..Info::default() }) };
        self.queue.remove(&k.signals.queued, entry);
        let e = k.signals.queued.get(entry);
        let (mut info, timer) = (e.info.get(), e.timer.take());
        k.signals.queued.free(entry);
        if let Some(timer) = timer {
            timer::taken(k, timer, &mut info);
        }
        Some(info)
    }

    /// Forgets what is pending of `set`.
    pub(super) fn forget(&self, k: &Kernel, set: u64) {
        for (entry, e) in self.queue.iter(&k.signals.queued) {
            if set & bit(e.info.get().signo) != 0 {
                self.queue.remove(&k.signals.queued, entry);
                if let Some(timer) = e.timer.take() {
                    timer::dropped(k, timer);
                }
                k.signals.queued.free(entry);
            }
        }
        self.set_bits(k, self.bits.get() & !set);
    }

    /// A timer is gone: what it sent stays, but is nobody's.
    pub(super) fn forget_timer(&self, k: &Kernel, timer: Handle<SignalTimer>) {
        for (_, e) in self.queue.iter(&k.signals.queued) {
            if e.timer.get() == Some(timer) {
                e.timer.set(None);
            }
        }
    }

    fn each(&self, k: &Kernel, signo: c_int, mut f: impl FnMut(Handle<Queued>) -> bool) {
        for (entry, e) in self.queue.iter(&k.signals.queued) {
            if e.info.get().signo == signo && !f(entry) {
                return;
            }
        }
    }
}
