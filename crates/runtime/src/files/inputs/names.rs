//! The server's knowledge of paths, and the names that it has changed itself: this separates a change of the host's from one of the server's own.
//!
//! Both are tables of fixed size, and functions of the server's calls: when the first is full it starts empty, and known facts are agreed on again; the
//! second may report a name as changed that the server has not changed, which makes a change of the host's a question instead of an end.

use core::cell::Cell;
use skein_libos::room::Room;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The capacity of the table in paths: 131,072, of which three quarters are used.
const PATHS: usize = 1 << 17;
/// The number of bits for names that the server has changed: 524,288.
const BITS: usize = 1 << 19;

/// The server's knowledge of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing is there.
    Absent,
    /// It cannot be reached.
    Error,
    /// A file, with a part of its number.
    Is(u16),
}

impl Told {
    const FILE: u16 = 0x8000;

    /// A file with a number.
    pub const fn file(number: u64) -> Self {
        Self::Is(number as u16 & !Self::FILE)
    }

    const fn word(self) -> u16 {
        match self {
            Self::Absent => 1,
            Self::Error => 2,
            Self::Is(number) => Self::FILE | number,
        }
    }
}

/// The tables. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Names {
    paths: Cell<usize>,
    bits: Cell<usize>,
    count: Cell<u64>,
}

impl Names {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        self.paths.set(room.row::<u64>("paths of files", PATHS as u32) as usize);
        self.bits.set(room.row::<u8>("bits of files", (BITS / 8) as u32) as usize);
    }

    fn path(&self, at: usize) -> &Cell<u64> {
        // SAFETY: within the table, which is zeroed memory for as long as the arena lives.
        unsafe { &*(self.paths.get() as *const Cell<u64>).add(at % PATHS) }
    }

    fn bit(&self, at: usize) -> (&Cell<u64>, u64) {
        let at = at % BITS;
        // SAFETY: as above.
        (unsafe { &*(self.bits.get() as *const Cell<u64>).add(at / 64) }, 1 << (at % 64))
    }

    /// The key of a path, for a process with this root, from a directory with this number, which is 0 for a path that begins at the root.
    pub fn key(root: u64, directory: u64, path: &[u8], follows: bool) -> u64 {
        let from = directory << 1 | u64::from(follows);
        xxh3_64_with_seed(path, from ^ root << 40) & !0xffff
    }

    /// The server's knowledge of a path.
    pub fn told(&self, key: u64) -> Option<Told> {
        let mut at = (key >> 16) as usize;
        loop {
            let word = self.path(at).get();
            if word == 0 {
                return None;
            }
            if word & !0xffff == key {
                return Some(match word as u16 {
                    1 => Told::Absent,
                    2 => Told::Error,
                    file => Told::Is(file & !Told::FILE),
                });
            }
            at += 1;
        }
    }

    /// Notes the server's knowledge of a path.
    pub fn tell(&self, key: u64, what: Told) {
        if self.count.get() >= PATHS as u64 / 4 * 3 {
            self.count.set(0);
            for at in 0..PATHS {
                self.path(at).set(0);
            }
        }
        let mut at = (key >> 16) as usize;
        loop {
            let place = self.path(at);
            let word = place.get();
            if word == 0 {
                self.count.set(self.count.get() + 1);
            }
            if word == 0 || word & !0xffff == key {
                place.set(key | u64::from(what.word()));
                return;
            }
            at += 1;
        }
    }

    fn places(name: &[u8]) -> [usize; 2] {
        let hash = xxh3_64_with_seed(name, 1) as usize;
        [hash, hash >> 32]
    }

    /// The server has made, removed or replaced an entry with this path's last name.
    pub fn touch(&self, path: &[u8]) {
        let Some(name) = parts(path).last() else { return };
        for at in Self::places(name) {
            let (word, bit) = self.bit(at);
            word.set(word.get() | bit);
        }
    }

    /// Whether the server may have changed the target of a path.
    pub fn is_touched(&self, path: &[u8]) -> bool {
        let noted = |at| {
            let (word, bit) = self.bit(at);
            word.get() & bit != 0
        };
        parts(path).any(|name| Self::places(name).into_iter().all(noted))
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}
