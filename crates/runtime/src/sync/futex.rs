//! `futex(2)` for code that calls it itself: through `syscall`, from libc's insides, from other languages' runtimes.
//!
//! A word is its address in its process. Priorities mean nothing under a schedule: locks that pass them on are [`super::futex_pi`]. Addresses that are
//! not mapped fault instead of giving `EFAULT`.

use super::futex_pi;
use crate::errno::{Errno, Result};
use crate::fatal::{line, refused};
use crate::kernel::Kernel;
use crate::keys::Key;
use crate::turn::Wake;
use crate::{signal, time, turn};
use core::cell::Cell;
use libc::timespec;
use skein_sched::op::{Kind, Object};

/// A futex word.
pub type Word = Cell<u32>;

/// `futex(2)`.
pub fn futex(a: [usize; 6]) -> Result<usize> {
    let turn = turn::enter(Object::Memory(a[0]), Kind::Wait);
    let k = &*turn;
    let op = a[1] as i32;
    let command = op & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let realtime = op & libc::FUTEX_CLOCK_REALTIME != 0;
    let (value, bits) = (a[2] as u32, a[5] as u32);
    if let Some(result) = futex_pi::futex(k, command, realtime, a) {
        return result;
    }
    let deadline_ns = match command {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => deadline(command, realtime, a[3])?,
        _ => None,
    };
    if realtime && command != libc::FUTEX_WAIT_BITSET {
        return Err(Errno(libc::ENOSYS));
    }
    match command {
        libc::FUTEX_WAIT => wait(k, word(a[0])?, value, u32::MAX, deadline_ns),
        libc::FUTEX_WAIT_BITSET => wait(k, word(a[0])?, value, bits, deadline_ns),
        libc::FUTEX_WAKE => wake(k, word(a[0])?, value, u32::MAX),
        libc::FUTEX_WAKE_BITSET => wake(k, word(a[0])?, value, bits),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            let expected = (command == libc::FUTEX_CMP_REQUEUE).then_some(bits);
            requeue(k, word(a[0])?, word(a[4])?, value as i32, a[3] as i32, expected)
        }
        libc::FUTEX_WAKE_OP => {
            let (first, second) = (word(a[0])?, word(a[4])?);
            let (new, matches) = operate(bits, second.get())?;
            second.set(new);
            let woken = wake(k, first, value, u32::MAX)?;
            let also = if matches { wake(k, second, a[3] as u32, u32::MAX)? } else { 0 };
            Ok(woken + also)
        }
        _ => {
            refused(line!("futex operation {command}").bytes());
            Err(Errno(libc::ENOSYS))
        }
    }
}

/// The word at an address.
pub fn word<'a>(address: usize) -> Result<&'a Word> {
    if !address.is_multiple_of(4) {
        return Err(Errno(libc::EINVAL));
    }
    if address < 4096 {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: aligned; the server's own memory, which no other thread touches while this one has the turn.
    Ok(unsafe { &*(address as *const Word) })
}

/// `FUTEX_WAIT` takes a time from now, `FUTEX_WAIT_BITSET` a clock's reading.
fn deadline(command: i32, realtime: bool, at: usize) -> Result<Option<u64>> {
    // SAFETY: null, or the server's own pointer.
    let Some(at) = (unsafe { (at as *const timespec).as_ref() }) else { return Ok(None) };
    let ns = time::to_ns(at)?;
    if command == libc::FUTEX_WAIT {
        return Ok(Some(time::after(ns)));
    }
    let clock = if realtime { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
    time::deadline_of(clock, ns).map(Some)
}

fn wait(k: &Kernel, word: &Word, value: u32, bits: u32, deadline_ns: Option<u64>) -> Result<usize> {
    if bits == 0 {
        return Err(Errno(libc::EINVAL));
    }
    if word.get() != value {
        return Err(Errno(libc::EAGAIN));
    }
    if super::passed(k, deadline_ns) {
        return Err(Errno(libc::ETIMEDOUT));
    }
    match k.keys.wait(k, Key::of(word), bits, deadline_ns) {
        Wake::Event => Ok(0),
        Wake::Timeout => Err(Errno(libc::ETIMEDOUT)),
        Wake::Interrupted if signal::interrupted(deadline_ns.is_none()) => {
            wait(k, word, value, bits, deadline_ns)
        }
        Wake::Interrupted => Err(Errno(libc::EINTR)),
    }
}

/// The kernel counts after it has woken one, so that asking for none, or for a negative number, wakes one.
fn wake(k: &Kernel, word: &Word, most: u32, bits: u32) -> Result<usize> {
    if bits == 0 {
        return Err(Errno(libc::EINVAL));
    }
    let most = (most as i32).max(1) as u32;
    Ok(k.keys.wake(k, Key::of(word), most, bits) as usize)
}

fn requeue(
    k: &Kernel,
    from: &Word,
    to: &Word,
    wake: i32,
    most: i32,
    expected: Option<u32>,
) -> Result<usize> {
    if wake < 0 || most < 0 {
        return Err(Errno(libc::EINVAL));
    }
    if expected.is_some_and(|expected| from.get() != expected) {
        return Err(Errno(libc::EAGAIN));
    }
    let woken = k.keys.wake(k, Key::of(from), wake as u32, u32::MAX);
    let moved = k.keys.requeue(k, Key::of(from), Key::of(to), most as u32);
    Ok((woken + moved) as usize)
}

/// What `FUTEX_WAKE_OP`'s `code` makes of the second word, and whether its old value says to wake there, too.
fn operate(code: u32, old: u32) -> Result<(u32, bool)> {
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
        _ => return Err(Errno(libc::ENOSYS)),
    };
    let old = old as i32;
    let matches = match code >> 24 & 15 {
        0 => old == compared,
        1 => old != compared,
        2 => old < compared,
        3 => old >= compared,
        4 => old <= compared,
        5 => old > compared,
        _ => return Err(Errno(libc::ENOSYS)),
    };
    Ok((new, matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(op: u32, operand: i32, compare: u32, compared: i32) -> u32 {
        op << 28 | compare << 24 | (operand as u32 & 0xfff) << 12 | compared as u32 & 0xfff
    }

    #[test]
    fn wake_op_changes_the_word_and_compares_its_old_value() {
        assert_eq!(operate(code(0, 3, 5, 100), 7), Ok((3, false)));
        assert_eq!(operate(code(1, 7, 0, 0), 0), Ok((7, true)));
        assert_eq!(operate(code(1, -1, 2, 0), 0), Ok((u32::MAX, false)));
        assert_eq!(operate(code(2, 6, 1, 1), 1), Ok((7, false)));
        assert_eq!(operate(code(3, 6, 3, 7), 7), Ok((1, true)));
        assert_eq!(operate(code(4, 6, 4, -1), u32::MAX), Ok((!6, true)));
    }

    #[test]
    fn wake_op_shifts_its_operand() {
        assert_eq!(operate(code(8 | 2, 4, 0, 0), 0), Ok((16, true)));
    }

    #[test]
    fn wake_op_refuses_what_does_not_exist() {
        assert_eq!(operate(code(5, 0, 0, 0), 0), Err(Errno(libc::ENOSYS)));
        assert_eq!(operate(code(0, 0, 6, 0), 0), Err(Errno(libc::ENOSYS)));
    }
}
