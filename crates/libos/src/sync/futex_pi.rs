//! Futexes that are locks (`FUTEX_LOCK_PI` and its like), for code that makes them itself: the kernel keeps the holder's thread id in
//! the word and hands the lock over. Priorities mean nothing under a schedule, so there is none to inherit.
//!
//! The word: the holder's id, 0 when free; a bit that says that a thread may wait, so that the holder must ask the kernel to unlock it.

use super::futex::{Word, word};
use super::{me, passed};
use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use crate::time;

const WAITERS: u32 = abi::FUTEX_WAITERS;
const OWNER_DIED: u32 = abi::FUTEX_OWNER_DIED;
const TID: u32 = !(WAITERS | OWNER_DIED);
/// Takes its time by the clock of the flag; the older call always uses the time of day.
const LOCK_PI2: i32 = 13;

/// An operation on a lock; `None` when it is none.
pub fn futex(k: &impl Host, command: i32, realtime: bool, a: [usize; 6]) -> Option<Result<usize>> {
    let deadline = |clock| deadline(k, clock, a[3]);
    let clock = if realtime { abi::CLOCK_REALTIME } else { abi::CLOCK_MONOTONIC };
    let lock = |clock| lock(k, word(a[0])?, deadline(clock)?);
    Some(match command {
        abi::FUTEX_LOCK_PI => lock(abi::CLOCK_REALTIME),
        LOCK_PI2 => lock(clock),
        abi::FUTEX_TRYLOCK_PI => word(a[0]).and_then(|w| try_lock(k, w)),
        abi::FUTEX_UNLOCK_PI => unlock_at(k, a[0]),
        abi::FUTEX_WAIT_REQUEUE_PI => wait_requeue(k, a, deadline(clock)),
        abi::FUTEX_CMP_REQUEUE_PI => requeue(k, a),
        _ => return None,
    })
}

fn deadline(k: &impl Host, clock: i32, at: usize) -> Result<Option<u64>> {
    // SAFETY: null, or the server's own pointer.
    let Some(at) = (unsafe { (at as *const timespec).as_ref() }) else { return Ok(None) };
    k.deadline_of(clock, time::to_ns(at)?).map(Some)
}

/// Takes a free lock. Waiting threads keep waiting.
fn take(k: &impl Host, w: &Word) -> bool {
    if w.get() & TID != 0 {
        return false;
    }
    let more = if k.keys.waited(k, Key::of(k, w)) { WAITERS } else { 0 };
    w.set(me(k) | w.get() & OWNER_DIED | more);
    true
}

fn try_lock(k: &impl Host, w: &Word) -> Result<usize> {
    match w.get() & TID {
        holder if holder == me(k) => Err(Errno(abi::EDEADLK)),
        _ if take(k, w) => Ok(0),
        holder => {
            // As in Linux the holder has to ask the kernel from now on.
            w.set(w.get() | WAITERS);
            Err(Errno(if exists(k, holder) { abi::EAGAIN } else { abi::ESRCH }))
        }
    }
}

fn lock(k: &impl Host, w: &Word, deadline_ns: Option<u64>) -> Result<usize> {
    match w.get() & TID {
        holder if holder == me(k) => return Err(Errno(abi::EDEADLK)),
        0 => {}
        holder if !exists(k, holder) => {
            w.set(w.get() | WAITERS);
            return Err(Errno(abi::ESRCH));
        }
        _ => {}
    }
    wait_for(k, w, Key::of(k, w), deadline_ns)
}

/// Waits at `key` until the lock is the caller's.
fn wait_for(k: &impl Host, w: &Word, key: Key, deadline_ns: Option<u64>) -> Result<usize> {
    loop {
        if take(k, w) {
            return Ok(0);
        }
        w.set(w.get() | WAITERS);
        if passed(k, deadline_ns) {
            return Err(Errno(abi::ETIMEDOUT));
        }
        let why = k.keys.wait(k, key, u32::MAX, deadline_ns);
        if w.get() & TID == me(k) {
            return Ok(0);
        }
        match why {
            Wake::Event => {}
            Wake::Timeout => return Err(Errno(abi::ETIMEDOUT)),
            Wake::Interrupted if k.interrupted(true) => {}
            Wake::Interrupted => return Err(Errno(abi::EINTR)),
        }
    }
}

fn exists(k: &impl Host, tid: u32) -> bool {
    (1..=k.threads.high())
        .filter_map(skein_arena::pool::Handle::from_raw)
        .any(|thread| k.threads.get(thread).tid.get() == tid)
}

/// As in Linux the holder counts before the address does.
fn unlock_at(k: &impl Host, address: usize) -> Result<usize> {
    if address >= 4096 {
        // SAFETY: the server's own memory, which no other thread touches while this one has the turn.
        let value = unsafe { (address as *const u32).read_unaligned() };
        if value & TID != me(k) {
            return Err(Errno(abi::EPERM));
        }
    }
    let w = word(address)?;
    hand_over(k, w);
    Ok(0)
}

/// Makes the thread that has waited longest the holder.
fn hand_over(k: &impl Host, w: &Word) {
    w.set(match k.keys.wake_oldest(k, Key::of(k, w)) {
        Some(next) => {
            let more = if k.keys.waited(k, Key::of(k, w)) { WAITERS } else { 0 };
            k.threads.get(next).tid.get() | more
        }
        None => 0,
    });
}

/// Waits at one word to be moved to a lock, and returns with it.
fn wait_requeue(k: &impl Host, a: [usize; 6], deadline_ns: Result<Option<u64>>) -> Result<usize> {
    let (from, lock, deadline_ns) = (word(a[0])?, word(a[4])?, deadline_ns?);
    if core::ptr::eq(from, lock) {
        return Err(Errno(abi::EINVAL));
    }
    if from.get() != a[2] as u32 {
        return Err(Errno(abi::EAGAIN));
    }
    if passed(k, deadline_ns) {
        return Err(Errno(abi::ETIMEDOUT));
    }
    let why = k.keys.wait(k, Key::of(k, from), u32::MAX, deadline_ns);
    if why == Wake::Interrupted {
        k.interrupted(false);
    }
    if lock.get() & TID == me(k) {
        return Ok(0);
    }
    Err(Errno(match why {
        // Woken without the lock: the waking thread did not use it as a lock.
        Wake::Event => abi::EAGAIN,
        Wake::Timeout => abi::ETIMEDOUT,
        Wake::Interrupted => abi::EINTR,
    }))
}

/// Moves those that wait at a word to a lock; the first gets it if it is free.
fn requeue(k: &impl Host, a: [usize; 6]) -> Result<usize> {
    let (from, lock) = (word(a[0])?, word(a[4])?);
    if core::ptr::eq(from, lock) || a[2] as u32 != 1 || (a[3] as i32) < 0 {
        return Err(Errno(abi::EINVAL));
    }
    if from.get() != a[5] as u32 {
        return Err(Errno(abi::EAGAIN));
    }
    let mut first = 0;
    if lock.get() & TID == 0
        && let Some(next) = k.keys.wake_oldest(k, Key::of(k, from))
    {
        lock.set(k.threads.get(next).tid.get() | lock.get() & (WAITERS | OWNER_DIED));
        first = 1;
    }
    // One is woken and the others moved; when none could be woken that one is moved as well.
    let most = (a[3] as u32).saturating_add(1 - first);
    let moved = k.keys.requeue(k, Key::of(k, from), Key::of(k, lock), most);
    if k.keys.waited(k, Key::of(k, lock)) {
        lock.set(lock.get() | WAITERS);
    }
    Ok((first + moved) as usize)
}
