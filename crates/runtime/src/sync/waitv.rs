//! `futex_waitv(2)`: waiting at several words.

use super::futex::word;
use super::passed;
use crate::errno::{Errno, Result};
use crate::keys::{Key, MAX_SEVERAL};
use crate::turn::Wake;
use crate::{signal, time, turn};
use libc::timespec;
use skein_sched::op::{Kind, Object};

/// `struct futex_waitv`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// A word of 32 bits, the only size there is.
const SIZE_U32: u32 = 2;

/// `futex_waitv`: answers which word it was woken at.
pub fn waitv(a: [usize; 6]) -> Result<usize> {
    let turn = turn::enter(Object::Several, Kind::Wait);
    let k = &*turn;
    let (count, flags) = (a[1] as u32 as usize, a[2] as u32);
    if flags != 0 || a[0] == 0 || !(1..=MAX_SEVERAL).contains(&count) {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: null, or the server's own pointer.
    let deadline_ns = match unsafe { (a[3] as *const timespec).as_ref() } {
        None => None,
        Some(at) if [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC].contains(&(a[4] as i32)) => {
            Some(time::deadline_of(a[4] as i32, time::to_ns(at)?)?)
        }
        Some(_) => return Err(Errno(libc::EINVAL)),
    };
    // SAFETY: the server's own array of so many.
    let waiters = unsafe { core::slice::from_raw_parts(a[0] as *const Waiter, count) };
    let mut keys = [Key(0); MAX_SEVERAL];
    for (key, waiter) in keys.iter_mut().zip(waiters) {
        let known = SIZE_U32 | libc::FUTEX_PRIVATE_FLAG as u32;
        if waiter.flags & !known != 0 || waiter.flags & SIZE_U32 == 0 || waiter.reserved != 0 {
            return Err(Errno(libc::EINVAL));
        }
        *key = Key::of(word(waiter.address as usize)?);
    }
    for waiter in waiters {
        if word(waiter.address as usize)?.get() != waiter.value as u32 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    if passed(k, deadline_ns) {
        return Err(Errno(libc::ETIMEDOUT));
    }
    match k.keys.wait_at_several(k, &keys[..count], deadline_ns) {
        None => Err(Errno(libc::ENOMEM)),
        Some((Wake::Event, hit)) => Ok(hit),
        Some((Wake::Timeout, _)) => Err(Errno(libc::ETIMEDOUT)),
        Some((Wake::Interrupted, _)) if signal::interrupted(deadline_ns.is_none()) => waitv(a),
        Some((Wake::Interrupted, _)) => Err(Errno(libc::EINTR)),
    }
}
