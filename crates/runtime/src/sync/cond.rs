//! Condition variables: waiters at the variable's own address, woken oldest first.
//!
//! Of glibc's layout only `refs` is kept, at its place, with its flags for the clock and how many wait: zero is a fresh variable that
//! waits by the time of day. Whoever ends a wait counts it off, so that a variable can be destroyed as soon as its waiters were woken.
//!
//! A wait is a cancellation point. A cancelled waiter has the mutex again when its clean-up handlers run, and never takes a signal with it: one that
//! was signalled first returns, and is cancelled at its next cancellation point.

use super::mutex::Mutex;
use super::{Until, block_cancellably, deadline, passed};
use crate::errno::{Errno, Result};
use crate::kernel::Kernel;
use crate::keys::Key;
use crate::turn::{self, Wake};
use crate::{signal, thread};
use core::cell::Cell;
use libc::{c_int, pthread_condattr_t, timespec};

/// `pthread_cond_t`.
#[repr(C)]
pub struct Cond {
    unused: [Cell<u32>; 9],
    /// Waiters, above two flags.
    refs: Cell<u32>,
    unused_signals: [Cell<u32>; 2],
}

const _: () = assert!(size_of::<Cond>() == size_of::<libc::pthread_cond_t>());

/// Deadlines are of the monotonic clock.
const MONOTONIC: u32 = 2;
/// A waiter.
const WAITER: u32 = 8;

unsafe extern "C" {
    fn pthread_condattr_getclock(attr: *const pthread_condattr_t, out: *mut c_int) -> c_int;
}

/// `pthread_cond_init`.
///
/// # Safety
/// `cond` is the server's to write; `attr` is null or initialised.
pub unsafe fn init(cond: *mut Cond, attr: *const pthread_condattr_t) -> Result<()> {
    let mut clock = libc::CLOCK_REALTIME;
    if !attr.is_null() {
        // SAFETY: libc's function on an initialised attribute object and a local.
        unsafe { pthread_condattr_getclock(attr, &raw mut clock) };
    }
    // SAFETY: the server's own memory, of a condition variable's size; all-zero is one.
    let c = unsafe {
        cond.write_bytes(0, 1);
        &*cond
    };
    c.refs.set(if clock == libc::CLOCK_MONOTONIC { MONOTONIC } else { 0 });
    Ok(())
}

impl Cond {
    fn key(&self) -> Key {
        Key::of(self)
    }

    fn waiters(&self) -> u32 {
        self.refs.get() / WAITER
    }

    fn count_off(&self, waiters: u32) {
        self.refs.set(self.refs.get() - waiters.min(self.waiters()) * WAITER);
    }

    /// `pthread_cond_timedwait`: by the clock that the variable was made with.
    pub fn timed_wait(&self, k: &Kernel, m: &Mutex, at: &timespec) -> Result<()> {
        let monotonic = self.refs.get() & MONOTONIC != 0;
        let clock = if monotonic { libc::CLOCK_MONOTONIC } else { libc::CLOCK_REALTIME };
        self.wait(k, m, Some((clock, at)))
    }

    /// `pthread_cond_wait` and `pthread_cond_clockwait`.
    pub fn wait(&self, k: &Kernel, m: &Mutex, until: Until<'_>) -> Result<()> {
        let deadline_ns = deadline(until)?;
        thread::test_cancel();
        m.leave(k)?;
        if passed(k, deadline_ns) {
            // Others get at the mutex all the same: somebody may poll in a loop.
            turn::yield_now();
            m.come_back(k)?;
            return Err(Errno(libc::ETIMEDOUT));
        }
        // From the unlock to the wait nobody else runs, so no signal is missed.
        self.refs.set(self.refs.get() + WAITER);
        let why = block_cancellably(k, self.key(), deadline_ns);
        if why != Wake::Event {
            self.count_off(1);
        }
        if why == Wake::Interrupted && !thread::cancel_pending() {
            // Handlers run without the mutex; whoever signalled meanwhile did not find this thread, so it looks again.
            signal::deliver(k);
        }
        let back = m.come_back(k);
        match why {
            Wake::Event => back,
            Wake::Timeout => back.and(Err(Errno(libc::ETIMEDOUT))),
            Wake::Interrupted => {
                thread::test_cancel();
                back
            }
        }
    }

    /// `pthread_cond_signal`, and `pthread_cond_broadcast` with all.
    pub fn wake(&self, k: &Kernel, most: u32) {
        if self.waiters() != 0 {
            let woken = k.keys.wake(k, self.key(), most, u32::MAX);
            self.count_off(woken);
        }
    }
}
