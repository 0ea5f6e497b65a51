//! Synchronisation objects: they live in the server's own memory, where its static initialisers put them, and block at
//! [`crate::keys`].
//!
//! One thread runs at a time and the turn moves only when the [`Host`] suspends it, so the code between two such calls is atomic and the
//! objects change through cells. Each call is one operation of the schedule, counted by its hook.
//!
//! The next owner of a released object:
//!
//! - A mutex is free after an unlock: the oldest waiter is woken and tries, and the thread with the turn may be faster (fewer turns
//!   than a hand-over). A waiter that was woken in vain once makes the mutex pass from hand to hand, oldest first, until
//!   no thread waits: a schedule that repeats itself could otherwise let one thread wait for ever.
//! - Semaphores, rwlocks and spin locks are handed over: a woken waiter already owns its token or lock.
//!
//! A waiter never reads its result from the object's memory: that may be destroyed as soon as it was woken.
//!
//! A crash loses nothing: all of this is rebuilt by executing the log again.

pub mod barrier;
pub mod cond;
pub mod futex;
pub mod futex_pi;
pub mod mutex;
pub mod rwlock;
pub mod semaphore;
pub mod spin;
#[cfg(test)]
mod tests;
pub mod waitv;

use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use crate::time;

/// The limit of a wait: none, or a clock's reading.
pub type Until<'a> = Option<(i32, &'a timespec)>;

/// The kernel's id of the turn's holder, as objects keep it.
fn me(k: &impl Host) -> u32 {
    k.this().tid.get()
}

/// The deadline in the server's time of day.
///
/// # Errors
/// `EINVAL` for a clock that glibc does not wait on, or nanoseconds that are none.
fn deadline(k: &impl Host, until: Until<'_>) -> Result<Option<u64>> {
    let Some((clock, at)) = until else { return Ok(None) };
    if clock != abi::CLOCK_REALTIME && clock != abi::CLOCK_MONOTONIC {
        return Err(Errno(abi::EINVAL));
    }
    // A time before the epoch is in the past, not an error.
    let at = timespec { tv_sec: at.tv_sec.max(0), tv_nsec: at.tv_nsec };
    k.deadline_of(clock, time::to_ns(&at)?).map(Some)
}

/// Whether the deadline is not in the future.
fn passed(k: &impl Host, deadline_ns: Option<u64>) -> bool {
    deadline_ns.is_some_and(|at| at <= k.now_ns.get())
}

/// Blocks at `key`, in a call that signals do not end: their handlers run here. A deadline in the past is answered at once: no entry need tell the
/// time.
pub fn block(k: &impl Host, key: Key, deadline_ns: Option<u64>) -> Wake {
    let why = block_raw(k, key, deadline_ns);
    if why == Wake::Interrupted {
        k.deliver_signals();
    }
    why
}

fn block_raw(k: &impl Host, key: Key, deadline_ns: Option<u64>) -> Wake {
    if passed(k, deadline_ns) {
        return Wake::Timeout;
    }
    k.keys.wait(k, key, u32::MAX, deadline_ns)
}

/// As [`block`], as a cancellation point: a cancelled thread is interrupted, as is one that has a signal to handle. The caller restores its state and then
/// tests and delivers.
fn block_cancellably(k: &impl Host, key: Key, deadline_ns: Option<u64>) -> Wake {
    let this = k.this();
    this.at_cancel_point.set(true);
    let why = block_raw(k, key, deadline_ns);
    this.at_cancel_point.set(false);
    why
}
