//! Pending signals: the sets of threads and processes, and the queue of signals with their data.

use super::timer;
use super::{FAULTS, FIRST_REALTIME, Info, bit};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::state::signal::SignalTimer;
pub use crate::state::signal::{Pending, Queued};
use skein_arena::pool::Handle;

impl Pending {
    /// The pending set.
    pub fn bits(&self) -> u64 {
        self.bits.get()
    }

    fn set_bits(&self, k: &impl Host, bits: u64) {
        let before = self.bits.replace(bits);
        let any = &k.signals.any;
        any.set(any.get() + u32::from(bits != 0) - u32::from(before != 0));
    }

    /// Adds a signal. A standard signal that is pending already is pending once.
    pub(super) fn add(
        &self,
        k: &impl Host,
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
                return fail(abi::EAGAIN);
            }
            // As in Linux: the signal comes, without its data.
            None => {}
        }
        self.set_bits(k, self.bits.get() | bit(info.signo));
        Ok(true)
    }

    /// Makes a signal that is pending already an interval timer's, too. Answers whether there was one.
    pub(super) fn attach(&self, k: &impl Host, signo: i32, timer: Handle<SignalTimer>) -> bool {
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
    pub(super) fn take(&self, k: &impl Host, set: u64) -> Option<Info> {
        let there = self.bits.get() & set;
        if there == 0 {
            return None;
        }
        let first = if there & FAULTS != 0 { there & FAULTS } else { there };
        let signo = first.trailing_zeros() as i32 + 1;
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

    /// Drops pending signals of `set`.
    pub(super) fn forget(&self, k: &impl Host, set: u64) {
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

    /// A timer is gone: its signals stay, but belong to no timer.
    pub(super) fn forget_timer(&self, k: &impl Host, timer: Handle<SignalTimer>) {
        for (_, e) in self.queue.iter(&k.signals.queued) {
            if e.timer.get() == Some(timer) {
                e.timer.set(None);
            }
        }
    }

    fn each(&self, k: &impl Host, signo: i32, mut f: impl FnMut(Handle<Queued>) -> bool) {
        for (entry, e) in self.queue.iter(&k.signals.queued) {
            if e.info.get().signo == signo && !f(entry) {
                return;
            }
        }
    }
}
