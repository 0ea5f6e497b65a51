//! `futex_waitv(2)`: waiting at several words.

use super::futex::word;
use super::passed;
use crate::abi::{self, timespec};
use crate::errno::{Errno, RESTART, Result};
use crate::host::Host;
use crate::keys::{Key, MAX_SEVERAL};
use crate::thread::Wake;
use crate::time;

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

/// `futex_waitv`: answers the word at which it was woken; [`RESTART`] when it must be repeated.
pub fn waitv(k: &impl Host, a: [usize; 6]) -> Result<usize> {
    let (count, flags) = (a[1] as u32 as usize, a[2] as u32);
    if flags != 0 || a[0] == 0 || !(1..=MAX_SEVERAL).contains(&count) {
        return Err(Errno(abi::EINVAL));
    }
    // SAFETY: null, or the server's own pointer.
    let deadline_ns = match unsafe { (a[3] as *const timespec).as_ref() } {
        None => None,
        Some(at) if [abi::CLOCK_REALTIME, abi::CLOCK_MONOTONIC].contains(&(a[4] as i32)) => {
            Some(k.deadline_of(a[4] as i32, time::to_ns(at)?)?)
        }
        Some(_) => return Err(Errno(abi::EINVAL)),
    };
    // SAFETY: the server's own array of so many.
    let waiters = unsafe { core::slice::from_raw_parts(a[0] as *const Waiter, count) };
    let mut keys = [Key(0); MAX_SEVERAL];
    let known = SIZE_U32 | abi::FUTEX_PRIVATE_FLAG as u32;
    if waiters.iter().any(|w| w.flags & !known != 0 || w.flags & SIZE_U32 == 0 || w.reserved != 0) {
        return Err(Errno(abi::EINVAL));
    }
    for (key, waiter) in keys.iter_mut().zip(waiters) {
        *key = Key::of(k, word(waiter.address as usize)?);
    }
    for waiter in waiters {
        if word(waiter.address as usize)?.get() != waiter.value as u32 {
            return Err(Errno(abi::EAGAIN));
        }
    }
    if passed(k, deadline_ns) {
        return Err(Errno(abi::ETIMEDOUT));
    }
    match k.keys.wait_at_several(k, &keys[..count], deadline_ns) {
        None => Err(Errno(abi::ENOMEM)),
        Some((Wake::Event, hit)) => Ok(hit),
        Some((Wake::Timeout, _)) => Err(Errno(abi::ETIMEDOUT)),
        Some((Wake::Interrupted, _)) if k.interrupted(deadline_ns.is_none()) => Err(RESTART),
        Some((Wake::Interrupted, _)) => Err(Errno(abi::EINTR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::sync::futex::{Word, futex};

    fn waiter(word: &Word, value: u64) -> Waiter {
        let address = core::ptr::from_ref(word) as u64;
        Waiter { value, address, flags: SIZE_U32, reserved: 0 }
    }

    #[test]
    fn the_word_that_was_woken_is_told() {
        let (words, fake) = ([Word::new(1), Word::new(2)], Fake::new(2));
        let all = [waiter(&words[0], 1), waiter(&words[1], 2)];
        let call = |count| waitv(&fake, [all.as_ptr() as usize, count, 0, 0, 0, 0]);
        let wake = [core::ptr::from_ref(&words[1]) as usize, abi::FUTEX_WAKE as usize, 1, 0, 0, 0];
        fake.then(2, move |f| assert_eq!(futex(f, wake), Ok(1)));
        assert_eq!(call(2), Ok(1));
        fake.then(2, |f| assert!(f.interrupt(1)));
        assert_eq!(call(2), Err(RESTART));
        words[0].set(5);
        assert_eq!(call(2), Err(Errno(abi::EAGAIN)));
        assert_eq!(call(0), Err(Errno(abi::EINVAL)));
    }
}
