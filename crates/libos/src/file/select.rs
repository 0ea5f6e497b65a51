//! select.

use super::wait::{WaitSet, looks_again};
use super::{ready, table};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::thread::Wake;
use crate::time::Timeout;

const READ: u32 = ready::IN | abi::EPOLLRDBAND as u32 | ready::HUP | ready::ERR;
const WRITE: u32 = ready::OUT | abi::EPOLLWRBAND as u32 | ready::ERR;
const EXCEPT: u32 = abi::EPOLLPRI as u32;
const KINDS: [u32; 3] = [READ, WRITE, EXCEPT];
/// Words of a set.
const WORDS: usize = 1024 / 64;

/// The three sets: requested, or found.
type Bits = [[u64; WORDS]; 3];

/// `select`: sets as arrays of 64-bit words, null when not requested. Answers the count and the time left of the timeout.
///
/// # Safety
/// Sets that are not null have room for `count` bits, rounded up to a word.
pub unsafe fn select<H: Host>(
    k: &H,
    count: i32,
    sets: [*mut u64; 3],
    timeout: Timeout,
) -> (Result<usize>, u64) {
    if count < 0 {
        return (fail(abi::EINVAL), 0);
    }
    let count = count as usize;
    if count > WORDS * 64 {
        // Larger than an fd_set: Linux allows it for programs that allocate their own.
        k.refused(format_args!("select on descriptors from 1024 on"));
        return (fail(abi::EINVAL), 0);
    }
    let words = count.div_ceil(64);
    let mut asked: Bits = [[0; WORDS]; 3];
    for (kind, set) in sets.iter().enumerate() {
        for (at, word) in asked[kind].iter_mut().enumerate().take(words) {
            if !set.is_null() {
                // SAFETY: the caller's contract.
                *word = unsafe { set.add(at).read() } & used_bits(count, at);
            }
        }
    }
    let deadline = timeout.deadline_ns(k);
    let mut found: Bits = [[0; WORDS]; 3];
    let result = wait(k, count, &asked, &mut found, timeout, deadline);
    if result.is_ok() {
        for (kind, set) in sets.iter().enumerate() {
            for (at, word) in found[kind].iter().enumerate().take(words) {
                if !set.is_null() {
                    // SAFETY: the caller's contract.
                    unsafe { set.add(at).write(*word) };
                }
            }
        }
    }
    (result, deadline.map_or(0, |at| at.saturating_sub(k.now_ns.get())))
}

/// The bits of word `at` that belong to the first `count` descriptors.
const fn used_bits(count: usize, at: usize) -> u64 {
    if count >= (at + 1) * 64 { u64::MAX } else { (1 << (count - at * 64)) - 1 }
}

fn wait<H: Host>(
    k: &H,
    count: usize,
    asked: &Bits,
    found: &mut Bits,
    timeout: Timeout,
    deadline: Option<u64>,
) -> Result<usize> {
    loop {
        let n = look(k, count, asked, found)?;
        if n > 0 {
            return Ok(n);
        }
        if matches!(timeout, Timeout::Poll) {
            if !looks_again(k)? {
                return Ok(0);
            }
            continue;
        }
        let waits = WaitSet::default();
        let added = each(count, asked, |fd, events, _| match table::file(k, fd) {
            Some(file) => waits.add(k, file, events, false),
            None => Ok(()),
        });
        if let Err(e) = added {
            waits.clear(k);
            return Err(e);
        }
        match waits.block(k, deadline) {
            Wake::Event => {}
            Wake::Timeout => return look(k, count, asked, found),
            Wake::Interrupted => {
                k.test_cancel();
                if !k.interrupted(false) {
                    return fail(abi::EINTR);
                }
            }
        }
    }
}

fn look<H: Host>(k: &H, count: usize, asked: &Bits, found: &mut Bits) -> Result<usize> {
    *found = [[0; WORDS]; 3];
    let mut n = 0;
    each(count, asked, |fd, _, kinds| {
        let mask = match table::file(k, fd) {
            Some(file) => super::mask(k, file),
            None if k.of_kernel(fd).is_some() => ready::IN | ready::OUT,
            None => return fail(abi::EBADF),
        };
        for (kind, events) in KINDS.iter().enumerate() {
            if kinds[kind] && mask & events != 0 {
                found[kind][fd as usize / 64] |= 1 << (fd % 64);
                n += 1;
            }
        }
        Ok(())
    })?;
    Ok(n)
}

/// Calls `f` for each requested descriptor: its number, its events, and its sets.
fn each(
    count: usize,
    asked: &Bits,
    mut f: impl FnMut(i32, u32, [bool; 3]) -> Result<()>,
) -> Result<()> {
    let words = asked[0].iter().zip(&asked[1]).zip(&asked[2]).map(|((r, w), e)| r | w | e);
    for (at, mut left) in words.enumerate().take(count.div_ceil(64)) {
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let kinds = [0, 1, 2].map(|kind: usize| asked[kind][at] >> bit & 1 != 0);
            let events = (0..3).filter(|kind| kinds[*kind]).fold(0, |all, kind| all | KINDS[kind]);
            f((at * 64) as i32 + bit as i32, events, kinds)?;
        }
    }
    Ok(())
}
