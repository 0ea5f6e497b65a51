//! The record of which pages of which files the server has written to, for the node's images ([`skein_arena::writes`]).
//!
//! A file that was ever mapped to be written to is marked in its row instead ([`MAPPED`](super::inode::MAPPED)): what is written there passes by the runtime.

use crate::sys;
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};
use skein_arena::writes::{GROWING, TO_THE_END, WRITES, Write};
use skein_libos::room::Room;

/// A note grows up to so many pages. A growing one is told again, so this bounds what is read twice.
const MAX_GROWN: u32 = 16;
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
            if old.number == new.number && new.from <= old.to && old.from <= new.to {
                let both = Write { from: old.from.min(new.from), to: old.to.max(new.to), ..new };
                if both == old {
                    return;
                }
                if both.to - both.from <= MAX_GROWN {
                    self.kept(n).set(both.words());
                    return;
                }
            }
        }
        self.kept(count).set(new.words());
        // A node may read it now.
        compiler_fence(Ordering::Release);
        self.row(0).set([count + 1, 0]);
    }
}

fn position(fd: i32) -> Option<u64> {
    let args = sys::args([fd as usize, 0, libc::SEEK_CUR as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_lseek, args) }.ok().map(|at| at as u64)
}
