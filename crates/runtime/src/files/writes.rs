//! The record of which pages of which files the server has written to, for the node's images ([`skein_arena::writes`]).
//!
//! A file that was ever mapped to be written to is marked in its row instead ([`MAPPED`](super::inode::MAPPED)): what is written there passes by the runtime.

use crate::sys;
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};
use skein_arena::writes::{GROWING, LONG_ONES_STAY, TO_THE_END, WRITES, Write};
use skein_libos::room::Room;

const PAGE_BITS: u32 = 12;

/// Two words: the counter, or a note.
type Row = Cell<[u64; 2]>;

/// The record. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Writes {
    rows: Cell<usize>,
}

/// Bytes of a file that were written.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// So many bytes up to the descriptor's position, which the kernel has moved.
    Behind(usize),
    /// So many bytes at a position.
    At(i64, usize),
    /// All from a position on. So is noted whatever may make a hole: only there an image looks for new ones.
    From(i64),
}

impl Writes {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        const COUNT: u32 = WRITES as u32 + 1;
        let rows = room.row::<Row>("writes to files", COUNT);
        self.rows.set(rows as usize);
        room.own::<Row>(rows, COUNT, 0, size_of::<Row>());
    }

    /// Its address.
    pub fn address(&self) -> usize {
        self.rows.get()
    }

    fn row(&self, at: usize) -> &Row {
        assert!(at <= WRITES, "a row of the record");
        // SAFETY: within the record, which is zeroed memory for as long as the arena lives.
        unsafe { &*(self.rows.get() as *const Row).add(at) }
    }

    fn kept(&self, n: u64) -> &Row {
        self.row(1 + (n % WRITES as u64) as usize)
    }

    /// Notes what was written to the file with this number.
    pub fn note(&self, number: u64, fd: i32, place: Place) {
        let (from, to) = match place {
            Place::At(_, 0) | Place::Behind(0) => return,
            Place::At(at, len) => (at as u64, Some(at as u64 + len as u64)),
            Place::From(at) => (at as u64, None),
            Place::Behind(len) => match position(fd) {
                Some(end) => (end.saturating_sub(len as u64), Some(end)),
                // It has none: not the case of a file whose number is known.
                None => (0, None),
            },
        };
        let page = |at: u64| (at >> PAGE_BITS).min(u64::from(TO_THE_END)) as u32;
        let to = to.map_or(TO_THE_END, |to| page(to - 1).saturating_add(1));
        self.pages(Write { number, from: page(from), to });
    }

    fn pages(&self, new: Write) {
        let [count, _] = self.row(0).get();
        for n in count.saturating_sub(GROWING)..count {
            let old = Write::from_words(self.kept(n).get());
            let touches = old.number == new.number && new.from <= old.to && old.from <= new.to;
            if !touches || !old.is_short() {
                continue;
            }
            let both = Write { from: old.from.min(new.from), to: old.to.max(new.to), ..new };
            if both.is_short() {
                self.kept(n).set(both.words());
                return;
            }
        }
        self.kept(count).set(new.words());
        // A node may read it now.
        compiler_fence(Ordering::Release);
        self.row(0).set([count + 1, LONG_ONES_STAY]);
    }
}

fn position(fd: i32) -> Option<u64> {
    let args = sys::args([fd as usize, 0, libc::SEEK_CUR as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_lseek, args) }.ok().map(|at| at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_arena::writes::since;

    /// What a node is told that has read so many notes before.
    fn told(writes: &Writes, noted: u64) -> Vec<[u64; 3]> {
        let (_, told) = since(|at| writes.row(at).get(), noted);
        told.unwrap().map(|w| [w.number, w.from.into(), w.to.into()]).collect()
    }

    #[test]
    fn what_is_long_is_told_once() {
        let rows = vec![Row::new([0; 2]); WRITES + 1];
        let writes = Writes { rows: Cell::new(rows.as_ptr() as usize) };
        const END: u64 = TO_THE_END as u64;
        let pages = |n: i64, pages: usize| Place::At(n << PAGE_BITS, pages << PAGE_BITS);
        // A file is emptied, and appended to: by little,
        writes.note(7, -1, Place::From(0));
        (0..24).for_each(|n| writes.note(7, -1, pages(n, 1)));
        assert_eq!(told(&writes, 0), [[7, 0, END], [7, 0, 16], [7, 16, 24]]);
        (24..31).for_each(|n| writes.note(7, -1, pages(n, 1)));
        assert_eq!(told(&writes, 3), [[7, 0, 16], [7, 16, 31]], "but not all of it");
        // and by much.
        writes.note(7, -1, pages(31, 100));
        assert_eq!(told(&writes, 3), [[7, 0, 16], [7, 16, 31], [7, 31, 131]]);
        writes.note(7, -1, pages(131, 100));
        assert_eq!(told(&writes, 4), [[7, 0, 16], [7, 16, 31], [7, 131, 231]]);
        // What is written again is told again, wherever it was noted before.
        writes.note(7, -1, pages(40, 1));
        writes.note(7, -1, pages(31, 100));
        writes.note(7, -1, Place::From(0));
        writes.note(7, -1, Place::From(0));
        writes.note(8, -1, pages(3, 1));
        let again = [[7, 40, 41], [7, 31, 131], [7, 0, END], [7, 0, END], [8, 3, 4]];
        assert_eq!(told(&writes, 5)[2..], again);
    }
}
