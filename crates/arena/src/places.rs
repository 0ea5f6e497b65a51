//! Instructions of the server's programs and libraries that trapped: which, how often, and whether the runtime has replaced them since.
//!
//! The entry of a place holds for all of the server's processes, including processes that execute the program later: a place is named by its
//! object's build id and its offset in the object. The runtime writes, in the turn; a node reads plain numbers that it need not trust.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The most places. A program's further places are counted by [`crate::trapped`] only.
pub const PLACES: usize = 512;
/// Bytes kept of an object's name, a multiple of eight.
pub const NAME_BYTES: usize = 24;

/// How a place is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its traps are counted.
    Counting,
    /// It cannot be replaced: it goes on trapping.
    Stays,
    /// A jump can replace this many bytes from the instruction on and this many bytes before it; every process replaces them when it arrives here.
    Replaced {
        /// Bytes from the instruction on.
        from: u8,
        /// Bytes in front of it.
        before: u8,
    },
}

impl Verdict {
    const fn word(self) -> u32 {
        match self {
            Self::Counting => 0,
            Self::Stays => 1,
            Self::Replaced { from, before } => 2 | (from as u32) << 8 | (before as u32) << 16,
        }
    }

    const fn of(word: u32) -> Self {
        match word & 0xff {
            0 => Self::Counting,
            2 => Self::Replaced { from: (word >> 8) as u8, before: (word >> 16) as u8 },
            _ => Self::Stays,
        }
    }
}

/// An object's build id; longer ones are cut. All zero: it has none.
pub type Id = [u64; 2];

/// One place.
#[repr(C)]
#[derive(Debug)]
pub struct Place {
    object: [AtomicU64; 2],
    name: [AtomicU64; NAME_BYTES / 8],
    offset: AtomicU64,
    traps: AtomicU64,
    in_executed: AtomicU64,
    address: AtomicU64,
    /// The call's number in [`crate::trapped`], of the last trap.
    call: AtomicU32,
    verdict: AtomicU32,
}

impl Place {
    /// How the place is treated.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.verdict.load(Ordering::Relaxed))
    }

    /// Sets how the place is treated.
    pub fn judge(&self, verdict: Verdict) {
        self.verdict.store(verdict.word(), Ordering::Relaxed);
    }

    /// Adds traps of `call`, a number in [`crate::trapped`]. Answers their sum.
    pub fn note(&self, call: usize, traps: u64) -> u64 {
        self.call.store(call as u32, Ordering::Relaxed);
        self.traps.fetch_add(traps, Ordering::Relaxed) + traps
    }

    /// Adds traps that happened in a program that the server executed.
    pub fn note_in_executed(&self, traps: u64) {
        self.in_executed.fetch_add(traps, Ordering::Relaxed);
    }

    /// The number of traps in executed programs.
    pub fn in_executed(&self) -> u64 {
        self.in_executed.load(Ordering::Relaxed)
    }

    /// Its address in the process that met it last.
    pub fn address(&self) -> u64 {
        self.address.load(Ordering::Relaxed)
    }

    /// Notes its address in this process.
    pub fn is_at(&self, address: u64) {
        self.address.store(address, Ordering::Relaxed);
    }

    /// Its object's build id.
    pub fn object(&self) -> Id {
        [0, 1].map(|n: usize| self.object[n].load(Ordering::Relaxed))
    }

    /// Its offset in the object.
    pub fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }
}

/// A place as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The object's name, padded with zeros.
    pub name: [u8; NAME_BYTES],
    /// Offset in the object.
    pub offset: u64,
    /// Number of traps.
    pub traps: u64,
    /// The last call that trapped, as a number in [`crate::trapped`].
    pub call: usize,
    /// How the runtime treats it.
    pub verdict: Verdict,
}

/// All places.
#[repr(C)]
#[derive(Debug)]
pub struct Places {
    used: AtomicU32,
    /// How often a place was found replaceable.
    replaced: AtomicU32,
    _pad: [u64; 7],
    places: [Place; PLACES],
}

impl Places {
    /// The noted places, in order.
    pub fn all(&self) -> &[Place] {
        &self.places[..(self.used.load(Ordering::Relaxed) as usize).min(PLACES)]
    }

    /// The place at `offset` of an object, if it was noted, and its number.
    pub fn find(&self, object: Id, name: &[u8; NAME_BYTES], offset: u64) -> Option<usize> {
        let words = words_of(name);
        self.all().iter().position(|place| {
            place.offset() == offset
                && place.object() == object
                && words.iter().zip(&place.name).all(|(a, b)| *a == b.load(Ordering::Relaxed))
        })
    }

    /// Notes a new place. Answers its number, if there is room.
    pub fn add(&self, object: Id, name: &[u8; NAME_BYTES], offset: u64) -> Option<usize> {
        let n = self.all().len();
        let place = self.places.get(n)?;
        for (to, from) in place.object.iter().zip(object) {
            to.store(from, Ordering::Relaxed);
        }
        for (to, from) in place.name.iter().zip(words_of(name)) {
            to.store(from, Ordering::Relaxed);
        }
        place.offset.store(offset, Ordering::Relaxed);
        self.used.store(n as u32 + 1, Ordering::Release);
        Some(n)
    }

    /// How often a place was found replaceable. A process that has seen as many has nothing to do.
    pub fn replaced(&self) -> u32 {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Counts one more.
    pub fn note_replaced(&self) {
        self.replaced.fetch_add(1, Ordering::Relaxed);
    }

    /// All places that trapped, for a node.
    pub fn seen(&self) -> impl Iterator<Item = Seen> + '_ {
        let used = (self.used.load(Ordering::Acquire) as usize).min(PLACES);
        self.places[..used].iter().map(|place| {
            let mut name = [0; NAME_BYTES];
            for (to, from) in name.chunks_exact_mut(8).zip(&place.name) {
                to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
            }
            Seen {
                name,
                offset: place.offset(),
                traps: place.traps.load(Ordering::Relaxed),
                call: place.call.load(Ordering::Relaxed) as usize,
                verdict: place.verdict(),
            }
        })
    }
}

fn words_of(name: &[u8; NAME_BYTES]) -> [u64; NAME_BYTES / 8] {
    let word = |n: usize| core::array::from_fn(|i| name[8 * n + i]);
    core::array::from_fn(|n| u64::from_ne_bytes(word(n)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn verdicts_survive_the_way_through_memory() {
        let replaced = Verdict::Replaced { from: 19, before: 7 };
        for verdict in [Verdict::Counting, Verdict::Stays, replaced] {
            assert_eq!(Verdict::of(verdict.word()), verdict);
        }
    }

    #[test]
    fn places_are_found_again() {
        // SAFETY: all-zero atomics are an empty table.
        let places: Box<Places> = unsafe { Box::new_zeroed().assume_init() };
        let name = *b"libc.so.6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(places.find([1, 2], &name, 7), None);
        assert_eq!(places.add([1, 2], &name, 7), Some(0));
        assert_eq!(places.find([1, 2], &name, 7), Some(0));
        assert_eq!(places.find([1, 3], &name, 7), None);
        assert_eq!(places.find([1, 2], &name, 8), None);
        assert_eq!((places.all()[0].note(56, 1), places.all()[0].note(56, 1)), (1, 2));
        let seen: Vec<Seen> = places.seen().collect();
        let all = Seen { name, offset: 7, traps: 2, call: 56, verdict: Verdict::Counting };
        assert_eq!(seen, [all]);
        for n in 1..PLACES {
            assert_eq!(places.add([1, 2], &name, n as u64 + 100), Some(n));
        }
        assert_eq!(places.add([1, 2], &name, 7_000), None);
    }
}
