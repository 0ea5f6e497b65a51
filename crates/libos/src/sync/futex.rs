//! `futex(2)` for code that calls it itself: through `syscall`, inside libc, in other languages' runtimes.
//!
//! A word is its address in its process. Priorities mean nothing under a schedule: locks that pass them on are [`super::futex_pi`]. Addresses that are
//! not mapped fault instead of giving `EFAULT`.

use super::futex_pi;
use crate::abi::{self, timespec};
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use crate::time;
use core::cell::Cell;

/// A futex word.
pub type Word = Cell<u32>;

/// `futex(2)`.
pub fn futex(k: &impl Host, a: [usize; 6]) -> Result<usize> {
    let op = a[1] as i32;
    let command = op & !(abi::FUTEX_PRIVATE_FLAG | abi::FUTEX_CLOCK_REALTIME);
    let realtime = op & abi::FUTEX_CLOCK_REALTIME != 0;
    let (value, bits) = (a[2] as u32, a[5] as u32);
    if let Some(result) = futex_pi::futex(k, command, realtime, a) {
        return result;
    }
    let deadline_ns = match command {
        abi::FUTEX_WAIT | abi::FUTEX_WAIT_BITSET => deadline(k, command, realtime, a[3])?,
        _ => None,
    };
    if realtime && command != abi::FUTEX_WAIT_BITSET {
        return Err(Errno(abi::ENOSYS));
    }
    if bits == 0 && matches!(command, abi::FUTEX_WAIT_BITSET | abi::FUTEX_WAKE_BITSET) {
        return Err(Errno(abi::EINVAL));
    }
    match command {
        abi::FUTEX_WAIT => wait(k, word(a[0])?, value, u32::MAX, deadline_ns),
        abi::FUTEX_WAIT_BITSET => wait(k, word(a[0])?, value, bits, deadline_ns),
        abi::FUTEX_WAKE => wake(k, word(a[0])?, value, u32::MAX),
        abi::FUTEX_WAKE_BITSET => wake(k, word(a[0])?, value, bits),
        abi::FUTEX_REQUEUE | abi::FUTEX_CMP_REQUEUE => {
            let expected = (command == abi::FUTEX_CMP_REQUEUE).then_some(bits);
            if (value as i32) < 0 || (a[3] as i32) < 0 {
                return Err(Errno(abi::EINVAL));
            }
            requeue(k, word(a[0])?, word(a[4])?, value as i32, a[3] as i32, expected)
        }
        abi::FUTEX_WAKE_OP => {
            let (first, second) = (word(a[0])?, word(a[4])?);
            let (new, matches) = operate(bits, second.get())?;
            second.set(new);
            let matches = matches?;
            let woken = wake(k, first, value, u32::MAX)?;
            let also = if matches { wake(k, second, a[3] as u32, u32::MAX)? } else { 0 };
            Ok(woken + also)
        }
        _ => {
            k.refused(format_args!("futex operation {command}"));
            Err(Errno(abi::ENOSYS))
        }
    }
}

/// The word at an address.
pub fn word<'a>(address: usize) -> Result<&'a Word> {
    if !address.is_multiple_of(4) {
        return Err(Errno(abi::EINVAL));
    }
    if address < 4096 {
        return Err(Errno(abi::EFAULT));
    }
    // SAFETY: aligned; the server's own memory, which no other thread touches while this one has the turn.
    Ok(unsafe { &*(address as *const Word) })
}

/// `FUTEX_WAIT` takes a time from now, `FUTEX_WAIT_BITSET` a clock's reading.
fn deadline(k: &impl Host, command: i32, realtime: bool, at: usize) -> Result<Option<u64>> {
    // SAFETY: null, or the server's own pointer.
    let Some(at) = (unsafe { (at as *const timespec).as_ref() }) else { return Ok(None) };
    let ns = time::to_ns(at)?;
    if command == abi::FUTEX_WAIT {
        return Ok(Some(k.now_ns.get().saturating_add(ns)));
    }
    let clock = if realtime { abi::CLOCK_REALTIME } else { abi::CLOCK_MONOTONIC };
    k.deadline_of(clock, ns).map(Some)
}

fn wait(
    k: &impl Host,
    word: &Word,
    value: u32,
    bits: u32,
    deadline_ns: Option<u64>,
) -> Result<usize> {
    if word.get() != value {
        return Err(Errno(abi::EAGAIN));
    }
    if super::passed(k, deadline_ns) {
        return Err(Errno(abi::ETIMEDOUT));
    }
    match k.keys.wait(k, Key::of(k, word), bits, deadline_ns) {
        Wake::Event => Ok(0),
        Wake::Timeout => Err(Errno(abi::ETIMEDOUT)),
        Wake::Interrupted if k.interrupted(deadline_ns.is_none()) => {
            wait(k, word, value, bits, deadline_ns)
        }
        Wake::Interrupted => Err(Errno(abi::EINTR)),
    }
}

/// The kernel counts after it has woken one, so that asking for none, or for a negative number, wakes one.
fn wake(k: &impl Host, word: &Word, most: u32, bits: u32) -> Result<usize> {
    let most = (most as i32).max(1) as u32;
    Ok(k.keys.wake(k, Key::of(k, word), most, bits) as usize)
}

fn requeue(
    k: &impl Host,
    from: &Word,
    to: &Word,
    wake: i32,
    most: i32,
    expected: Option<u32>,
) -> Result<usize> {
    if expected.is_some_and(|expected| from.get() != expected) {
        return Err(Errno(abi::EAGAIN));
    }
    let woken = k.keys.wake(k, Key::of(k, from), wake as u32, u32::MAX);
    let moved = k.keys.requeue(k, Key::of(k, from), Key::of(k, to), most as u32);
    Ok((woken + moved) as usize)
}

/// The new value of the second word by `FUTEX_WAKE_OP`'s `code`, and whether its old value says to wake there, too. As in Linux the word changes even if the
/// comparison does not exist.
fn operate(code: u32, old: u32) -> Result<(u32, Result<bool>)> {
    // Twelve bits with a sign.
    let signed = |field: u32| ((field << 20) as i32) >> 20;
    let (mut operand, compared) = (signed(code >> 12), signed(code));
    if code >> 31 != 0 {
        operand = 1i32.wrapping_shl(operand as u32);
    }
    let operand = operand as u32;
    let new = match code >> 28 & 7 {
        0 => operand,
        1 => old.wrapping_add(operand),
        2 => old | operand,
        3 => old & !operand,
        4 => old ^ operand,
        _ => return Err(Errno(abi::ENOSYS)),
    };
    let old = old as i32;
    let matches = match code >> 24 & 15 {
        0 => Ok(old == compared),
        1 => Ok(old != compared),
        2 => Ok(old < compared),
        3 => Ok(old >= compared),
        4 => Ok(old <= compared),
        5 => Ok(old > compared),
        _ => Err(Errno(abi::ENOSYS)),
    };
    Ok((new, matches))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FIRST_TID, Fake};
    use core::cell::RefCell;

    fn code(op: u32, operand: i32, compare: u32, compared: i32) -> u32 {
        op << 28 | compare << 24 | (operand as u32 & 0xfff) << 12 | compared as u32 & 0xfff
    }

    #[test]
    fn wake_op_changes_the_word_and_compares_its_old_value() {
        assert_eq!(operate(code(0, 3, 5, 100), 7), Ok((3, Ok(false))));
        assert_eq!(operate(code(1, 7, 0, 0), 0), Ok((7, Ok(true))));
        assert_eq!(operate(code(1, -1, 2, 0), 0), Ok((u32::MAX, Ok(false))));
        assert_eq!(operate(code(2, 6, 1, 1), 1), Ok((7, Ok(false))));
        assert_eq!(operate(code(3, 6, 3, 7), 7), Ok((1, Ok(true))));
        assert_eq!(operate(code(4, 6, 4, -1), u32::MAX), Ok((!6, Ok(true))));
    }

    #[test]
    fn wake_op_shifts_its_operand() {
        assert_eq!(operate(code(8 | 2, 4, 0, 0), 0), Ok((16, Ok(true))));
    }

    #[test]
    fn wake_op_refuses_what_does_not_exist() {
        assert_eq!(operate(code(5, 0, 0, 0), 0), Err(Errno(abi::ENOSYS)));
        assert_eq!(operate(code(0, 9, 6, 0), 0), Ok((9, Err(Errno(abi::ENOSYS)))));
    }

    fn call(fake: &Fake<'_>, op: i32, word: &Word, value: u32, rest: [usize; 3]) -> Result<usize> {
        let [time, second, bits] = rest;
        let word = core::ptr::from_ref(word) as usize;
        futex(fake, [word, op as usize, value as usize, time, second, bits])
    }

    #[test]
    fn a_wait_ends_by_a_wake_that_shares_a_bit() {
        let w = Word::new(7);
        let wake = |f: &Fake<'_>, bits| call(f, abi::FUTEX_WAKE_BITSET, &w, 1, [0, 0, bits]);
        let fake = Fake::new(2);
        fake.then(2, |f| assert_eq!(wake(f, 4), Ok(0)));
        fake.then(2, |f| assert_eq!(wake(f, 2), Ok(1)));
        assert_eq!(call(&fake, abi::FUTEX_WAIT_BITSET, &w, 7, [0, 0, 3]), Ok(0));
        assert!(fake.is_over());
        assert_eq!(call(&fake, abi::FUTEX_WAIT, &w, 8, [0; 3]), Err(Errno(abi::EAGAIN)));
        assert_eq!(call(&fake, abi::FUTEX_WAKE, &w, 1, [0; 3]), Ok(0));
    }

    #[test]
    fn a_wait_times_out() {
        let (w, fake) = (Word::new(0), Fake::new(1));
        let in_2_ms = timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let at = core::ptr::from_ref(&in_2_ms) as usize;
        assert_eq!(call(&fake, abi::FUTEX_WAIT, &w, 0, [at, 0, 0]), Err(Errno(abi::ETIMEDOUT)));
        assert_eq!(fake.now_ns.get(), 3_000_000);
    }

    #[test]
    fn a_requeue_moves_waiters_to_another_word() {
        let (first, second) = (Word::new(0), Word::new(0));
        let to = core::ptr::from_ref(&second) as usize;
        let fake = Fake::new(2);
        fake.then(2, |f| {
            let moved = call(f, abi::FUTEX_CMP_REQUEUE, &first, 0, [1, to, 0]);
            assert_eq!(moved, Ok(1));
            assert_eq!(call(f, abi::FUTEX_WAKE, &first, 1, [0; 3]), Ok(0));
            assert_eq!(call(f, abi::FUTEX_WAKE, &second, 1, [0; 3]), Ok(1));
        });
        assert_eq!(call(&fake, abi::FUTEX_WAIT, &first, 0, [0; 3]), Ok(0));
    }

    #[test]
    fn the_same_address_is_another_word_in_another_process_unless_it_is_shared() {
        let w = Word::new(0);
        let woken = RefCell::new(Vec::new());
        let fake = Fake::new(2);
        let wake_from_other = |f: &Fake<'_>| {
            f.process.set(2);
            woken.borrow_mut().push(call(f, abi::FUTEX_WAKE, &w, 1, [0; 3]));
            f.process.set(1);
        };
        fake.then(2, wake_from_other);
        fake.then(2, |f| assert!(f.interrupt(1)));
        fake.no_restart.set(true);
        assert_eq!(call(&fake, abi::FUTEX_WAIT, &w, 0, [0; 3]), Err(Errno(abi::EINTR)));
        fake.shared.set((core::ptr::from_ref(&w) as usize, 4));
        fake.then(2, wake_from_other);
        assert_eq!(call(&fake, abi::FUTEX_WAIT, &w, 0, [0; 3]), Ok(0));
        assert_eq!(*woken.borrow(), [Ok(0), Ok(1)]);
    }

    #[test]
    fn an_unknown_operation_is_reported() {
        let (w, fake) = (Word::new(0), Fake::new(1));
        assert_eq!(call(&fake, 77, &w, 0, [0; 3]), Err(Errno(abi::ENOSYS)));
        assert_eq!(*fake.refused.borrow(), ["futex operation 77"]);
        assert_eq!(futex(&fake, [3, 0, 0, 0, 0, 0]), Err(Errno(abi::EINVAL)));
        assert_eq!(futex(&fake, [8, 0, 0, 0, 0, 0]), Err(Errno(abi::EFAULT)));
    }

    #[test]
    fn a_lock_is_handed_to_whoever_has_waited_longest() {
        let (w, fake) = (Word::new(0), Fake::new(2));
        assert_eq!(fake.by(2, || call(&fake, abi::FUTEX_LOCK_PI, &w, 0, [0; 3])), Ok(0));
        assert_eq!(w.get(), FIRST_TID + 1);
        fake.then(2, |f| assert_eq!(call(f, abi::FUTEX_UNLOCK_PI, &w, 0, [0; 3]), Ok(0)));
        assert_eq!(call(&fake, abi::FUTEX_LOCK_PI, &w, 0, [0; 3]), Ok(0));
        assert_eq!(w.get(), FIRST_TID);
        let again = call(&fake, abi::FUTEX_LOCK_PI, &w, 0, [0; 3]);
        assert_eq!(again, Err(Errno(abi::EDEADLK)));
        w.set(99);
        let nobodys = call(&fake, abi::FUTEX_LOCK_PI, &w, 0, [0; 3]);
        assert_eq!(nobodys, Err(Errno(abi::ESRCH)));
    }
}
