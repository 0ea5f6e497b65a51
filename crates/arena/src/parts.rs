//! The parts of the heap: their positions, and which bytes belong to one replica only.
//!
//! The runtime notes them once, when it lays the heap out, and puts their position into the header. A node reads them when it compares replicas
//! (`skein verify`): to name differences, and to leave out bytes that may differ. It takes every word as a plain number: a server that writes here
//! spoils only its own comparison.

use core::cell::Cell;

/// Bytes of a name.
pub const NAME_BYTES: usize = 48;
/// The most parts.
pub const PARTS: usize = 96;
/// The most kinds of bytes that belong to one replica.
pub const OWNS: usize = 32;
/// Bytes of all tables.
pub const PARTS_BYTES: usize = size_of::<Parts>();

/// A row of objects of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Part {
    /// Name of the type, padded with zeros.
    pub name: [u8; NAME_BYTES],
    /// Offset of the first object in the heap.
    pub at: u64,
    /// Distance between two objects, in bytes.
    pub stride: u32,
    /// Number of objects.
    pub count: u32,
}

/// Bytes that may differ between replicas: the same bytes in each object of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Own {
    /// Offset of these bytes in the first object, from the heap's start.
    pub at: u64,
    /// Distance between two objects.
    pub stride: u64,
    /// Number of objects.
    pub count: u64,
    /// Bytes in each object.
    pub len: u64,
}

/// Where a debugger finds the threads: offsets in bytes. Those of fields count from the start of the thread or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Threads {
    /// Offset of the first thread in the heap.
    pub at: u64,
    /// Distance between two threads.
    pub stride: u32,
    /// The most threads.
    pub count: u32,
    /// State of a thread: 0 none or not born, 1 has the turn, 2 could run, 3 blocked, 4 ended, 5 its process is stopped. u32.
    pub life: u32,
    /// Stack pointer of its suspended context. u64.
    pub sp: u32,
    /// FS base of its suspended context. u64.
    pub fs: u32,
    /// The kernel's thread number. u32.
    pub tid: u32,
    /// Whether it runs on its own kernel thread. u8.
    pub pinned: u32,
    /// Its process's number, from 1; 0 for none. u32.
    pub process: u32,
    /// Its name. 16 bytes.
    pub name: u32,
    /// Distance between two processes.
    pub process_stride: u32,
    /// Offset of the first process in the heap.
    pub processes_at: u64,
    /// The kernel's process number. u32.
    pub pid: u32,
    /// The most processes.
    pub processes: u32,
}

/// All tables; all-zero bytes are empty ones.
#[repr(C)]
#[derive(Debug)]
pub struct Parts {
    parts: [Cell<Part>; PARTS],
    owns: [Cell<Own>; OWNS],
    threads: Cell<Threads>,
}

impl Parts {
    /// Notes a row of objects; without effect when the table is full.
    pub fn note(&self, name: &str, at: u64, stride: usize, count: u32) {
        let mut part =
            Part { name: [0; NAME_BYTES], at, stride: stride.try_into().unwrap_or(0), count };
        let name = name.as_bytes();
        let name = &name[name.len().saturating_sub(NAME_BYTES)..];
        part.name[..name.len()].copy_from_slice(name);
        if let Some(free) = self.parts.iter().find(|part| part.get().count == 0) {
            free.set(part);
        }
    }

    /// Notes bytes that belong to one replica; without effect when the table is full.
    pub fn note_own(&self, own: Own) {
        if let Some(free) = self.owns.iter().find(|own| own.get().count == 0) {
            free.set(own);
        }
    }

    /// Notes where the threads are.
    pub fn note_threads(&self, threads: Threads) {
        self.threads.set(threads);
    }

    /// The threads' position; all zero when it was not noted.
    #[must_use]
    pub const fn threads(&self) -> Threads {
        self.threads.get()
    }

    /// Reads all tables from the bytes of a heap; leaves out rows that are not in use or impossible.
    #[must_use]
    pub fn read(bytes: &[u8; PARTS_BYTES]) -> Self {
        // SAFETY: plain numbers only, for which every bit pattern is a value.
        unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
    }

    /// The rows of objects.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        self.parts.iter().map(Cell::get).filter(|part| part.count != 0 && part.stride != 0)
    }

    /// The bytes that belong to one replica.
    pub fn owns(&self) -> impl Iterator<Item = Own> {
        self.owns.iter().map(Cell::get).filter(|own| own.count != 0)
    }
}

impl Part {
    /// The name, if it is valid text.
    #[must_use]
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.name[..len]).unwrap_or("?")
    }

    /// The number of the object that contains byte `at` of the heap, from 0, and where it begins.
    #[must_use]
    pub fn object(&self, at: u64) -> Option<(u64, u64)> {
        let inside = at.checked_sub(self.at)?;
        let n = inside.checked_div(self.stride.into())?;
        (n < self.count.into()).then(|| (n, self.at + n * u64::from(self.stride)))
    }
}

impl Own {
    /// Fills its bytes among those of `piece`, which begins at byte `at` of the heap, with zeros.
    pub fn clear(&self, piece: &mut [u8], at: u64) {
        let end = at.saturating_add(piece.len() as u64);
        let mut clear = |from: u64, to: u64| {
            let (from, to) = (from.max(at), to.min(end));
            if from < to {
                piece[(from - at) as usize..(to - at) as usize].fill(0);
            }
        };
        if self.len >= self.stride {
            let others = self.count.saturating_sub(1);
            let whole = self.stride.saturating_mul(others).saturating_add(self.len);
            return clear(self.at, self.at.saturating_add(whole));
        }
        // An object that begins before the piece may reach into it.
        let before = at.saturating_sub(self.at).saturating_sub(self.len);
        for n in before / self.stride..self.count {
            let far = n.checked_mul(self.stride).and_then(|far| far.checked_add(self.at));
            match far.filter(|from| *from < end) {
                Some(from) => clear(from, from.saturating_add(self.len)),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Parts {
        Parts::read(&[0; PARTS_BYTES])
    }

    #[test]
    fn objects_are_found_by_their_bytes() {
        let parts = empty();
        parts.note("skein::thread::Thread", 4096, 100, 3);
        let part = parts.parts().next().unwrap();
        assert_eq!(part.name(), "skein::thread::Thread");
        assert_eq!(part.object(4095), None);
        assert_eq!(part.object(4096), Some((0, 4096)));
        assert_eq!(part.object(4395), Some((2, 4296)));
        assert_eq!(part.object(4396), None);
    }

    #[test]
    fn a_long_name_keeps_its_end_and_a_full_table_its_parts() {
        let parts = empty();
        for _ in 0..=PARTS {
            parts.note(&"x".repeat(50), 0, 1, 1);
        }
        assert_eq!(parts.parts().count(), PARTS);
        assert_eq!(parts.parts().next().unwrap().name().len(), NAME_BYTES);
    }

    #[test]
    fn own_bytes_are_cleared_in_every_piece_that_they_reach_into() {
        let own = Own { at: 10, stride: 8, count: 3, len: 2 };
        let cleared = |from: u64, len: usize| {
            let mut piece = vec![1; len];
            own.clear(&mut piece, from);
            piece
                .iter()
                .enumerate()
                .filter(|(_, b)| **b == 0)
                .map(|(n, _)| n as u64 + from)
                .collect::<Vec<_>>()
        };
        assert_eq!(cleared(0, 64), [10, 11, 18, 19, 26, 27]);
        assert_eq!(cleared(11, 8), [11, 18]);
        assert_eq!(cleared(19, 7), [19]);
        assert_eq!(cleared(28, 100), [0; 0]);
    }

    #[test]
    fn impossible_numbers_do_no_harm() {
        let worst = Own { at: u64::MAX - 1, stride: 0, count: u64::MAX, len: u64::MAX };
        worst.clear(&mut [1; 8], u64::MAX - 4);
        let all = Own { at: 0, stride: u64::MAX, count: u64::MAX, len: u64::MAX };
        let mut piece = [1; 8];
        all.clear(&mut piece, 100);
        assert_eq!(piece, [0; 8]);
        let part = Part { name: [0xff; NAME_BYTES], at: u64::MAX, stride: 1, count: 1 };
        assert_eq!((part.name(), part.object(0)), ("?", None));
    }
}
