//! Condition variables: waiters at the variable's own address, woken oldest first.
//!
//! Of glibc's layout only `refs` is kept, at its place, with its flags for the clock and the number of waiters: zero is a fresh variable that
//! waits by the time of day. The thread that ends a wait subtracts it, so that a variable can be destroyed as soon as its waiters were woken.
//!
//! A wait is a cancellation point. A cancelled waiter has the mutex again when its clean-up handlers run, and never takes a signal with it: a waiter that
//! was signalled first returns, and is cancelled at its next cancellation point.

use super::mutex::Mutex;
use super::{Until, block_cancellably, deadline, passed};
use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use core::cell::Cell;

/// `pthread_cond_t`.
#[repr(C)]
pub struct Cond {
    unused: [Cell<u32>; 9],
    /// Waiters, above two flags.
    refs: Cell<u32>,
    unused_signals: [Cell<u32>; 2],
}

const _: () = assert!(size_of::<Cond>() == 48);

/// Deadlines are of the monotonic clock.
const MONOTONIC: u32 = 2;
/// A waiter.
const WAITER: u32 = 8;

/// `pthread_cond_init`, for deadlines of this clock.
///
/// # Safety
/// `cond` is the server's to write.
pub unsafe fn init(cond: *mut Cond, clock: i32) {
    // SAFETY: the server's own memory, of a condition variable's size; all-zero is one.
    let c = unsafe {
        cond.write_bytes(0, 1);
        &*cond
    };
    c.refs.set(if clock == abi::CLOCK_MONOTONIC { MONOTONIC } else { 0 });
}

impl Cond {
    #[cfg(test)]
    pub(super) fn zeroed() -> Self {
        // SAFETY: as the static initialiser makes it.
        unsafe { core::mem::zeroed() }
    }

    fn key(&self, k: &impl Host) -> Key {
        Key::of(k, self)
    }

    fn waiters(&self) -> u32 {
        self.refs.get() / WAITER
    }

    fn count_off(&self, waiters: u32) {
        self.refs.set(self.refs.get() - waiters.min(self.waiters()) * WAITER);
    }

    /// `pthread_cond_timedwait`: by the clock that the variable was made with.
    pub fn timed_wait(&self, k: &impl Host, m: &Mutex, at: &timespec) -> Result<()> {
        let monotonic = self.refs.get() & MONOTONIC != 0;
        let clock = if monotonic { abi::CLOCK_MONOTONIC } else { abi::CLOCK_REALTIME };
        self.wait(k, m, Some((clock, at)))
    }

    /// `pthread_cond_wait` and `pthread_cond_clockwait`.
    pub fn wait(&self, k: &impl Host, m: &Mutex, until: Until<'_>) -> Result<()> {
        let deadline_ns = deadline(k, until)?;
        k.test_cancel();
        m.leave(k)?;
        if passed(k, deadline_ns) {
            // Other threads need the mutex all the same: one may poll in a loop.
            k.yield_now();
            m.come_back(k)?;
            return Err(Errno(abi::ETIMEDOUT));
        }
        // No other thread runs between the unlock and the wait, so no signal is missed.
        self.refs.set(self.refs.get() + WAITER);
        let why = block_cancellably(k, self.key(k), deadline_ns);
        if why != Wake::Event {
            self.count_off(1);
        }
        if why == Wake::Interrupted && !k.this().cancel_pending() {
            // Handlers run without the mutex. A signal sent meanwhile did not find this thread, so it looks again.
            k.deliver_signals();
        }
        let back = m.come_back(k);
        match why {
            Wake::Event => back,
            Wake::Timeout => back.and(Err(Errno(abi::ETIMEDOUT))),
            Wake::Interrupted => {
                k.test_cancel();
                back
            }
        }
    }

    /// `pthread_cond_signal`, and `pthread_cond_broadcast` with all.
    pub fn wake(&self, k: &impl Host, most: u32) {
        if self.waiters() != 0 {
            let woken = k.keys.wake(k, self.key(k), most, u32::MAX);
            self.count_off(woken);
        }
    }
}
