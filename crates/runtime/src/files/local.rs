//! This process's notes about its descriptors of files: a cache, not the truth. It is the process's own memory: a forked child has a copy,
//! as of the descriptors, and an executed program begins with nothing.

use crate::files::inode::Seen;
use crate::files::{list, lock};
use crate::kernel::Kernel;
use core::cell::Cell;
use skein_libos::file::table::MAX_FDS;

/// A descriptor of the kernel's.
#[derive(Debug)]
pub struct Slot {
    number: Cell<u64>,
    place: Cell<u32>,
    /// Whether it is a directory's; set when it is opened or first read.
    pub directory: Cell<bool>,
    /// Whether it is a file of the host's, which must not change.
    pub watched: Cell<bool>,
    /// Whether it was found to have a position, which the server's output has not got.
    pub seekable: Cell<bool>,
    /// The listing of an open directory, or 0.
    pub listing: Cell<usize>,
}

/// In place of a number: writes to it are not noted.
const UNNOTED: u64 = u64::MAX;

/// Whether writes to a descriptor are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Not known yet.
    Unknown,
    /// No.
    No,
    /// Yes, of this file.
    Of(Seen),
}

impl Slot {
    /// The known facts.
    pub fn noted(&self) -> Noted {
        match self.number.get() {
            0 => Noted::Unknown,
            UNNOTED => Noted::No,
            number => Noted::Of(Seen::from_words(self.place.get(), number)),
        }
    }

    /// Remembers.
    pub fn note(&self, what: Noted) {
        let (place, number) = match what {
            Noted::Unknown => (0, 0),
            Noted::No => (0, UNNOTED),
            Noted::Of(seen) => seen.words(),
        };
        self.place.set(place);
        self.number.set(number);
    }
}

struct Slots([Slot; MAX_FDS as usize]);
// SAFETY: only the turn's holder gets here.
unsafe impl Sync for Slots {}

static SLOTS: Slots = Slots(
    [const {
        Slot {
            number: Cell::new(0),
            place: Cell::new(0),
            directory: Cell::new(false),
            watched: Cell::new(false),
            seekable: Cell::new(false),
            listing: Cell::new(0),
        }
    }; MAX_FDS as usize],
);

/// The slot of a descriptor; those with very high numbers have none.
pub fn slot(fd: i32) -> Option<&'static Slot> {
    SLOTS.0.get(usize::try_from(fd).ok()?)
}

fn clear(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.number.set(0);
        slot.directory.set(false);
        slot.watched.set(false);
        slot.seekable.set(false);
        if slot.listing.get() != 0 {
            list::drop_listing(slot);
        }
    }
}

/// A descriptor of the kernel's is being closed, or another takes its place.
pub fn closed(k: &Kernel, fd: i32) {
    clear(fd);
    lock::released(k);
}

/// The same for all from `first` to `last`.
pub fn closed_range(k: &Kernel, first: u32, last: u32) {
    for fd in first..=last.min(MAX_FDS as u32 - 1) {
        clear(fd as i32);
    }
    lock::released(k);
}
