//! Numbers and times of files.
//!
//! A file that the server looks at or changes gets the next number, by the kernel's device and inode number as the key. When the server makes
//! a file, the number is a fresh one whatever the key was before: the server does not see that the kernel reuses inode numbers. A file that the server changes
//! has the time of the change here.
//!
//! The table has room for [`INODES`] files. When it is full the oldest is forgotten, preferably one that the server has not changed: it gets a
//! new number when it is looked at again. That is as deterministic as the rest, since looks and changes are the same on all replicas.

use core::cell::Cell;
use core::mem::offset_of;
use skein_arena::inodes::{self, CHANGED, INODES};
pub use skein_arena::inodes::{MADE, MAPPED, OWNED};
use skein_libos::file::fifo::Name;
use skein_libos::room::Room;

/// No copy of a host's file.
const NO_MARK: Time = Time { s: 0, ns: 0 };
/// The seconds of marks begin beyond every real time: in 2242.
pub const FIRST_MARK_S: i64 = 1 << 33;
/// They end before 2446, as the times that ext4 and xfs keep.
pub const LAST_MARK_S: i64 = 0x3_7fff_0000;
/// The first number.
const FIRST_NUMBER: u64 = 1000;
/// The number of changed files that the search for a place spares.
const SPARED: usize = 64;
/// In place of a file's stamp: it must be looked at again. No stamp is even.
const STALE: u64 = 2;

/// The kernel's name for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Id {
    /// Device.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

impl Id {
    /// The file of `st`.
    pub fn of(st: &libc::stat) -> Self {
        Self { dev: st.st_dev, ino: st.st_ino }
    }

    /// The same for the library.
    pub fn name(self) -> Name {
        Name { device: self.dev, inode: self.ino }
    }

    fn bucket(self) -> usize {
        let mixed = (self.ino ^ self.dev.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - INODES.ilog2())) as usize
    }
}

/// A time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Time {
    /// Seconds since the epoch.
    pub s: i64,
    /// Nanoseconds.
    pub ns: i64,
}

impl Time {
    /// From nanoseconds since the epoch.
    pub const fn from_ns(ns: u64) -> Self {
        Self { s: (ns / 1_000_000_000) as i64, ns: (ns % 1_000_000_000) as i64 }
    }
}

const ACCESS_SET: u32 = 2;
/// The file's existence is agreed on.
pub const THERE: u32 = 16;
/// It was made without a name, and gets none (`O_TMPFILE` with `O_EXCL`).
pub const NAMELESS: u32 = 64;

/// A file.
#[repr(C)]
pub struct Inode {
    id: Cell<Id>,
    /// 0: the place is free.
    number: Cell<u64>,
    modified: Cell<Time>,
    accessed: Cell<Time>,
    flags: Cell<u32>,
    /// The next one of the bucket, from 1.
    next: Cell<u32>,
    /// For a file of the host: the mark that identifies it, as the kernel reported last; 0 if it has not yet.
    pub stamp: Cell<u64>,
    /// Hash of the agreed facts about it, 0 if there are none,
    pub about: Cell<u64>,
    /// of its contents,
    pub contents: Cell<u64>,
    /// and of its entries, as they were when the server changed them last.
    pub listing: Cell<u64>,
    /// The identity of the copy of a host's file ([`Inodes::find`]).
    mark: Cell<Time>,
}

impl Inode {
    /// Whether it has a flag.
    pub fn is(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }

    /// Gives it a flag.
    pub fn set(&self, flag: u32) {
        self.flags.set(self.flags.get() | flag);
    }
}

// The part that a node reads.
const _: () = assert!(
    size_of::<Inode>() == inodes::INODE_BYTES
        && offset_of!(Inode, id) == inodes::ID_AT
        && offset_of!(Inode, number) == inodes::NUMBER_AT
        && offset_of!(Inode, modified) == inodes::MODIFIED_AT
        && offset_of!(Inode, flags) == inodes::FLAGS_AT
        && offset_of!(Inode, mark) == inodes::MARK_AT
);

/// The table. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Inodes {
    places: Cell<usize>,
    buckets: Cell<usize>,
    given: Cell<u64>,
    hand: Cell<u32>,
    /// Whether a file of the server's own was forgotten.
    lost: Cell<bool>,
    /// When the server began, by the kernel's clock.
    pub begun: Cell<Time>,
    /// How often the kernel has numbered all files anew.
    renewals: Cell<u64>,
}

/// A file of the table: its place, valid as long as its number is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    place: u32,
    /// The number that the server sees.
    pub number: u64,
}

impl Seen {
    /// As two words, for a cache.
    pub const fn words(self) -> (u32, u64) {
        (self.place, self.number)
    }

    /// Back from two words.
    pub const fn from_words(place: u32, number: u64) -> Self {
        Self { place, number }
    }
}

impl Inodes {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        const COUNT: u32 = INODES as u32;
        let places = room.row::<Inode>("files by number", COUNT);
        let buckets = room.row::<Cell<u32>>("files by the kernel's number", COUNT);
        self.places.set(places as usize);
        self.buckets.set(buckets as usize);
        // The kernel's numbers and times, and the order within a bucket, are each replica's own.
        room.own_here(&self.begun);
        room.own_here(&self.renewals);
        room.own::<Inode>(places, COUNT, offset_of!(Inode, stamp), size_of::<Cell<u64>>());
        room.own::<Inode>(places, COUNT, offset_of!(Inode, id), size_of::<Id>());
        room.own::<Inode>(places, COUNT, offset_of!(Inode, mark), size_of::<Time>());
        room.own::<Inode>(places, COUNT, offset_of!(Inode, next), size_of::<Cell<u32>>());
        room.own::<Cell<u32>>(buckets, COUNT, 0, size_of::<Cell<u32>>());
    }

    /// Its address.
    pub fn address(&self) -> usize {
        self.places.get()
    }

    fn place(&self, at: u32) -> &Inode {
        assert!((at as usize) < INODES, "a place of the table");
        // SAFETY: within the table, which is zeroed memory for as long as the arena lives.
        unsafe { &*(self.places.get() as *const Inode).add(at as usize) }
    }

    fn bucket(&self, id: Id) -> &Cell<u32> {
        // SAFETY: as above; a bucket's number is smaller than the number of places.
        unsafe { &*(self.buckets.get() as *const Cell<u32>).add(id.bucket()) }
    }

    /// The file of `st`, if it has a number.
    ///
    /// The kernel names the copy of a host's file by the original as long as that has one name, and by itself when the host removes or links that: its mark identifies it
    /// then, and another file that has got the original's number is recognised by lacking the mark.
    fn find(&self, st: &libc::stat) -> Option<u32> {
        let (id, shown) = (Id::of(st), Time { s: st.st_atime, ns: st.st_atime_nsec });
        if let Some(at) = self.find_id(id) {
            let mark = self.place(at).mark.get();
            if mark == NO_MARK || mark == shown {
                return Some(at);
            }
            self.bind(at, Id { dev: 0, ino: self.place(at).number.get() });
        }
        if shown.s < FIRST_MARK_S {
            return None;
        }
        let marked = |at: &u32| {
            let place = self.place(*at);
            place.number.get() != 0 && place.mark.get() == shown
        };
        let at = (0..INODES as u32).find(marked)?;
        self.bind(at, id);
        Some(at)
    }

    fn find_id(&self, id: Id) -> Option<u32> {
        let mut at = self.bucket(id).get();
        while at != 0 {
            let place = self.place(at - 1);
            if place.id.get() == id {
                return Some(at - 1);
            }
            at = place.next.get();
        }
        None
    }

    fn unlink(&self, at: u32) {
        let gone = self.place(at);
        let mut link = self.bucket(gone.id.get());
        while link.get() != at + 1 {
            link = &self.place(link.get() - 1).next;
        }
        link.set(gone.next.get());
    }

    fn link(&self, at: u32, id: Id) {
        let (place, bucket) = (self.place(at), self.bucket(id));
        place.id.set(id);
        place.next.set(bucket.get());
        bucket.set(at + 1);
    }

    /// From now on the kernel names it by this.
    fn bind(&self, at: u32, id: Id) {
        self.unlink(at);
        self.link(at, id);
    }

    /// The kernel has no name for it any more.
    fn lose(&self, at: u32) {
        self.bind(at, Id { dev: 0, ino: self.place(at).number.get() });
        self.place(at).mark.set(NO_MARK);
    }

    fn forget(&self, at: u32) {
        self.unlink(at);
        self.place(at).number.set(0);
    }

    /// A place for a new file.
    fn free(&self) -> u32 {
        for spared in 0..=SPARED {
            let at = self.hand.get();
            self.hand.set((at + 1) % INODES as u32);
            let place = self.place(at);
            if place.number.get() == 0 {
                return at;
            }
            let own = place.is(CHANGED | ACCESS_SET | MADE | OWNED);
            if !own || spared == SPARED {
                self.lost.set(self.lost.get() | own);
                self.forget(at);
                return at;
            }
        }
        unreachable!("the last one is taken");
    }

    fn next_number(&self) -> u64 {
        self.given.set(self.given.get() + 1);
        FIRST_NUMBER + self.given.get() - 1
    }

    /// The file of `st`, which gets a number if it has none.
    pub fn see(&self, st: &libc::stat) -> Seen {
        if let Some(seen) = self.seen(st) {
            return seen;
        }
        let at = self.free();
        let (place, number) = (self.place(at), self.next_number());
        place.number.set(number);
        // A row that had to go may have said that it is mapped.
        place.flags.set(if self.lost.get() { MAPPED } else { 0 });
        place.mark.set(NO_MARK);
        for cell in [&place.stamp, &place.about, &place.contents, &place.listing] {
            cell.set(0);
        }
        self.link(at, Id::of(st));
        Seen { place: at, number }
    }

    /// The file of `st` is a new one.
    pub fn fresh(&self, st: &libc::stat, now: Time) -> Seen {
        if let Some(at) = self.find(st) {
            // It keeps its place, as on replicas whose file systems use other numbers again.
            self.lose(at);
        }
        let seen = self.see(st);
        self.place(seen.place).flags.set(MADE);
        self.modified(seen, now);
        seen
    }

    /// Whether the file cannot get a name, as the kernel called it when this table was written last.
    pub fn stays_nameless(&self, id: Id) -> bool {
        self.find_id(id).is_some_and(|at| self.place(at).is(NAMELESS))
    }

    /// Whether the server has made a file; a file that it has not looked at gets no number here.
    pub fn has_made(&self, id: Id) -> bool {
        self.find_id(id).is_some_and(|at| self.place(at).is(MADE))
    }

    /// The server has a copy of this file of the host's: as which the kernel names it now, and its mark, if it could be given one.
    pub fn copied(&self, seen: Seen, st: &libc::stat, mark: Option<Time>) {
        let place = self.place(seen.place);
        self.renamed(place.id.get(), st);
        place.mark.set(mark.unwrap_or(NO_MARK));
    }

    /// The mark of a copy.
    pub fn mark_of(&self, seen: Seen) -> Option<Time> {
        Some(self.place(seen.place).mark.get()).filter(|mark| *mark != NO_MARK)
    }

    /// The file that the kernel has named `from` is the file of `st`.
    pub fn renamed(&self, from: Id, st: &libc::stat) {
        if Id::of(st) != from
            && let Some(at) = self.find_id(from)
        {
            // One that the kernel called so before is gone.
            if let Some(gone) = self.find_id(Id::of(st)) {
                self.lose(gone);
            }
            self.bind(at, Id::of(st));
        }
    }

    /// The kernel has numbered all files anew: `now` knows how it calls a file, if that exists. Files of the host may have changed.
    pub fn renew(&self, now: impl Fn(Id) -> Option<Id>) {
        self.renewals.set(self.renewals.get() + 1);
        for at in 0..INODES {
            // SAFETY: as in `bucket`.
            unsafe { &*(self.buckets.get() as *const Cell<u32>).add(at) }.set(0);
        }
        // No place behind these was ever taken.
        for at in 0..self.given.get().min(INODES as u64) as u32 {
            let place = self.place(at);
            if place.number.get() != 0 {
                let nowhere = Id { dev: 0, ino: place.number.get() };
                self.link(at, now(place.id.get()).unwrap_or(nowhere));
                if place.stamp.get() != 0 {
                    place.stamp.set(STALE);
                }
            }
        }
    }

    /// How often that has happened. It does while the server waits: what the kernel said before then names no file any more.
    pub fn renewals(&self) -> u64 {
        self.renewals.get()
    }

    /// The file of `st`, if it has a number.
    pub fn seen(&self, st: &libc::stat) -> Option<Seen> {
        let place = self.find(st)?;
        Some(Seen { place, number: self.place(place).number.get() })
    }

    /// The known facts of a file.
    pub fn known(&self, seen: Seen) -> &Inode {
        self.place(seen.place)
    }

    /// The file that `st` is about. One that appeared while the server ran and is not known is the server's own, if such ones were forgotten.
    pub fn see_stat(&self, st: &libc::stat) -> Seen {
        let seen = self.see(st);
        let (place, begun) = (self.place(seen.place), self.begun.get());
        let is_plain = place.flags.get() & !MAPPED == 0;
        let unknown = self.lost.get() && is_plain && place.stamp.get() == 0;
        if unknown && (st.st_ctime, st.st_ctime_nsec) > (begun.s, begun.ns) {
            place.set(MADE);
        }
        seen
    }

    /// Whether the table still has this file at this place.
    pub fn holds(&self, seen: Seen) -> bool {
        self.place(seen.place).number.get() == seen.number
    }

    /// The file has changed.
    pub fn modified(&self, seen: Seen, at: Time) {
        let place = self.place(seen.place);
        place.modified.set(at);
        place.listing.set(0);
        place.set(CHANGED);
    }

    /// The server has set the time of the last access.
    pub fn accessed(&self, seen: Seen, at: Time) {
        let place = self.place(seen.place);
        place.accessed.set(at);
        place.set(ACCESS_SET);
    }

    /// When the server changed it, and the last access time that the server has set.
    pub fn times(&self, seen: Seen) -> (Option<Time>, Option<Time>) {
        let place = self.place(seen.place);
        let flags = place.flags.get();
        (
            (flags & CHANGED != 0).then(|| place.modified.get()),
            (flags & ACCESS_SET != 0).then(|| place.accessed.get()),
        )
    }
}
