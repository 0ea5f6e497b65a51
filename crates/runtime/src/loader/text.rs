//! Reads the loader's code: finds the places whose results differ between replicas.
//!
//! Pure: it looks at given bytes. The loader has no symbols for these places; each is recognised by its code, and code in another form is
//! not found.

use crate::patch::Stretch;
use core::ops::Range;

/// `mov rsi, [rbx + 16]; mov rdi, [rbx + 8]; call ...`: a resolver asks for the function.
const ASKS: [u8; 9] = [0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x7b, 0x08, 0xe8];
/// `mov r11, rax`: where it will go on.
const ANSWERED: [u8; 3] = [0x49, 0x89, 0xc3];
/// `push rbx; mov rbx, rsp; and rsp, ...`: its first instructions.
const BEGINS: [u8; 7] = [0x53, 0x48, 0x89, 0xe3, 0x48, 0x83, 0xe4];
/// `jmp r11`: its last one.
const ENDS: [u8; 3] = [0x41, 0xff, 0xe3];
/// `endbr64`, in front of the first.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// From its first instruction to where it asks at most.
const RESOLVER_BYTES: usize = 256;
/// There is one for each way of saving registers.
pub const MOST_RESOLVERS: usize = 4;

/// How the loader binds functions at their first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolvers {
    /// Where they begin: `_dl_runtime_resolve_fxsave`, `_xsave`, `_xsavec`; 0: no more.
    pub begins: [usize; MOST_RESOLVERS],
    /// The function that they call: `_dl_fixup`.
    pub fixup: usize,
}

/// The resolvers of a loader's text; `None` when they do not have the known form.
pub fn resolvers(text: Stretch<'_>) -> Option<Resolvers> {
    let bytes = text.bytes;
    let mut found = Resolvers { begins: [0; MOST_RESOLVERS], fixup: 0 };
    let mut count = 0;
    for asks in places(bytes, &ASKS) {
        let behind = asks + ASKS.len() + 4;
        if !bytes.get(behind..).is_some_and(|rest| rest.starts_with(&ANSWERED)) {
            continue;
        }
        let fixup = text.at.wrapping_add_signed((behind as isize) + distance(bytes, behind - 4)?);
        let first = asks.saturating_sub(RESOLVER_BYTES);
        let head = &bytes[first..asks];
        let begin = places(head, &BEGINS).last()?;
        let same = found.fixup == 0 || found.fixup == fixup;
        if !same || !text.contains(fixup) || places(&head[begin..], &ENDS).next().is_some() {
            return None;
        }
        let landing = head[..begin].ends_with(&LANDING);
        found.fixup = fixup;
        *found.begins.get_mut(count)? =
            text.at + first + begin - if landing { LANDING.len() } else { 0 };
        count += 1;
    }
    (count > 0).then_some(found)
}

/// `mov eax, number`, in front of a system call.
const fn number(nr: i64) -> [u8; 5] {
    let [a, b, c, d] = (nr as u32).to_le_bytes();
    [0xb8, a, b, c, d]
}

/// The `syscall` instructions by which the loader asks about files.
pub fn questions(text: Stretch<'_>) -> impl Iterator<Item = usize> {
    /// Between the number and the instruction, other arguments may be set.
    const NEAR: usize = 12;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const NUMBERS: [[u8; 5]; 2] = [number(libc::SYS_newfstatat), number(libc::SYS_fstat)];
    NUMBERS.iter().flat_map(move |number| {
        places(text.bytes, number).filter_map(move |at| {
            let behind = at + number.len();
            let near = text.bytes.get(behind..)?;
            let near = &near[..near.len().min(NEAR)];
            Some(text.at + behind + places(near, &SYSCALL).next()?)
        })
    })
}

/// The words in `data` to which the loader writes times by the processor's counter.
pub fn times(text: Stretch<'_>, data: Range<usize>) -> impl Iterator<Item = usize> {
    /// From the counter to where it is stored at most.
    const NEAR: usize = 64;
    const RDTSC: [u8; 2] = [0x0f, 0x31];
    /// `mov [rip + ...], rax` and `add [rip + ...], rax`.
    const STORES: [[u8; 3]; 2] = [[0x48, 0x89, 0x05], [0x48, 0x01, 0x05]];
    places(text.bytes, &RDTSC).filter_map(move |at| {
        let near = text.bytes.get(at..)?;
        let near = &near[..near.len().min(NEAR)];
        let first = STORES.iter().filter_map(|store| places(near, store).next()).min()?;
        let behind = at + first + 3 + 4;
        let word = text.at.wrapping_add_signed(behind as isize + distance(text.bytes, behind - 4)?);
        (data.contains(&word) && word.is_multiple_of(8)).then_some(word)
    })
}

/// Where libc draws malloc's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Behind the `syscall` instruction.
    pub behind: usize,
    /// The word that receives it.
    pub key: usize,
}

/// The place in libc's text that asks for eight random bytes, if there are any by now, for a variable of libc's.
pub fn draw(libc: Stretch<'_>) -> Option<Draw> {
    /// From the number to the other arguments, in front of it and behind, and to the instruction.
    const NEAR: usize = 48;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    const NUMBER: [u8; 5] = number(libc::SYS_getrandom);
    /// `mov esi, 8` and `mov edx, GRND_NONBLOCK`.
    const LEN: [u8; 5] = [0xbe, 8, 0, 0, 0];
    const FLAGS: [u8; 5] = [0xba, 1, 0, 0, 0];
    /// `lea rdi, [rip + ...]`.
    const WORD: [u8; 3] = [0x48, 0x8d, 0x3d];
    places(libc.bytes, &NUMBER).find_map(|at| {
        let first = at.saturating_sub(NEAR);
        let rest = libc.bytes.get(at..)?;
        let call = at + places(&rest[..rest.len().min(NEAR)], &SYSCALL).next()?;
        let around = &libc.bytes[first..call];
        places(around, &LEN).next()?;
        places(around, &FLAGS).next()?;
        let word = first + places(around, &WORD).last()? + WORD.len();
        let behind = (word + 4) as isize + distance(libc.bytes, word)?;
        let key = libc.at.wrapping_add_signed(behind);
        key.is_multiple_of(8).then_some(Draw { behind: libc.at + call + SYSCALL.len(), key })
    })
}

/// The four bytes at `at`, which a processor adds to an address.
fn distance(bytes: &[u8], at: usize) -> Option<isize> {
    let word = bytes.get(at..at + 4)?;
    Some(i32::from_le_bytes(word.try_into().ok()?) as isize)
}

/// Where a pattern occurs. Each program that begins looks through 150 KiB: by the byte of the pattern that is rarest in code, with libc's fast search.
fn places<const N: usize>(bytes: &[u8], pattern: &'static [u8; N]) -> impl Iterator<Item = usize> {
    /// From the most frequent one on.
    const FREQUENT: [u8; 7] = [0x48, 0x8b, 0x00, 0x89, 0x0f, 0xe8, 0x49];
    let frequency = |at: &usize| FREQUENT.iter().rev().position(|b| *b == pattern[*at]);
    let rare = (0..N).min_by_key(|at| frequency(at).map_or(0, |n| n + 1)).unwrap_or(0);
    let mut next = rare;
    core::iter::from_fn(move || {
        loop {
            let rest = bytes.get(next..)?;
            // SAFETY: within the bytes.
            let found =
                unsafe { libc::memchr(rest.as_ptr().cast(), i32::from(pattern[rare]), rest.len()) };
            if found.is_null() {
                return None;
            }
            let at = found.addr() - bytes.as_ptr().addr();
            next = at + 1;
            if bytes[at - rare..].starts_with(pattern) {
                return Some(at - rare);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A resolver of which `fixup` is so far away.
    fn resolver(landing: bool, fixup: i32) -> Vec<u8> {
        let mut code = if landing { LANDING.to_vec() } else { vec![] };
        code.extend(BEGINS);
        code.extend([0xc0; 60]);
        code.extend(ASKS);
        code.extend(fixup.to_le_bytes());
        code.extend(ANSWERED);
        code.extend([0x90; 20]);
        code.extend(ENDS);
        code
    }

    fn at(at: usize, bytes: &[u8]) -> Stretch<'_> {
        Stretch { at, bytes }
    }

    #[test]
    fn resolvers_are_known_by_what_they_do() {
        let (first, second) = (resolver(false, -80), resolver(true, 0));
        let mut code = [&[0x90; 16], &first[..]].concat();
        let one = resolvers(at(0x1000, &code)).expect("a resolver");
        assert_eq!(one.begins, [0x1010, 0, 0, 0]);
        // The call's own end, less 80.
        assert_eq!(one.fixup, 0x1010 + 7 + 60 + 13 - 80);
        code.extend(&second);
        let distance = -((code.len() - 0x17 - 16) as i32);
        let call = code.len() - ENDS.len() - 20 - ANSWERED.len() - 4;
        let to = one.fixup as i32 - (0x1000 + call as i32 + 4);
        assert!(to < 0 && distance < 0);
        code[call..call + 4].copy_from_slice(&to.to_le_bytes());
        let both = resolvers(at(0x1000, &code)).expect("two resolvers");
        assert_eq!(both.begins, [0x1010, 0x1010 + first.len(), 0, 0]);
        // Two that ask different functions, a begin that belongs to another function, no begin, nothing at all.
        code[call] ^= 1;
        assert_eq!(resolvers(at(0x1000, &code)), None);
        let mut ended = resolver(false, -10);
        ended[20..23].copy_from_slice(&ENDS);
        assert_eq!(resolvers(at(0x1000, &ended)), None);
        assert_eq!(resolvers(at(0x1000, &resolver(false, -80)[7..])), None);
        assert_eq!(resolvers(at(0x1000, &[0x90; 100])), None);
    }

    #[test]
    fn questions_and_times_are_found() {
        let mut code = vec![0x90; 8];
        code.extend(number(libc::SYS_newfstatat));
        code.extend([0x31, 0xd2, 0x0f, 0x05]);
        code.extend([0x90; 16]);
        code.extend(number(libc::SYS_newfstatat));
        code.extend([0x90; 16]);
        let found: Vec<_> = questions(at(0x5000, &code)).collect();
        assert_eq!(found, [0x5000 + 8 + 5 + 2]);

        let mut code = vec![0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0];
        code.extend([0x48, 0x89, 0x05]);
        code.extend(0x1000i32.to_le_bytes());
        let word = 0x5000 + code.len() + 0x1000;
        for (data, found) in
            [(word..word + 8, 1), (word - 8..word, 0), (word - 0x100..word + 0x100, 1)]
        {
            // At a place where a word can be.
            let shift = word % 8;
            let data = data.start - shift..data.end - shift;
            assert_eq!(times(at(0x5000 - shift, &code), data).count(), found);
        }
    }

    #[test]
    fn the_draw_of_mallocs_key_is_found() {
        // As in glibc 2.43.
        let head = [0x55, 0xbe, 8, 0, 0, 0, 0xb8, 0x3e, 1, 0, 0, 0x48, 0x8d, 0x3d];
        let tail = [0x53, 0x48, 0x83, 0xec, 0x28, 0xba, 1, 0, 0, 0, 0x0f, 0x05, 0x48];
        let code = [&[0x90; 60], &head[..], &0x1002i32.to_le_bytes(), &tail].concat();
        let found = draw(at(0x5000, &code)).expect("a draw");
        assert_eq!(found, Draw { behind: 0x5000 + 60 + 18 + 12, key: 0x5000 + 60 + 18 + 0x1002 });
        // Another length, other flags, no variable, a key that is no word, no call.
        for changed in [62, 84, 73, 74, 88] {
            let mut other = code.clone();
            other[changed] ^= 2;
            assert_eq!(draw(at(0x5000, &other)), None, "{changed}");
        }
    }

    /// The loader of this machine is one that is known.
    #[test]
    fn the_loader_of_this_machine_is_known() {
        let image = crate::loader::Image::find().expect("this test has a loader");
        let found = resolvers(image.text).expect("resolvers");
        assert!(found.begins[0] != 0 && found.begins[1] != 0, "{found:x?}");
        assert!(questions(image.text).count() >= 1);
        assert!(times(image.text, image.data).count() >= 2);
    }
}
