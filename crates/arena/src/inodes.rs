//! The table of files in the heap, as far as a node reads it: which files the server changed, and when.
//!
//! The runtime keeps it (`crates/runtime/src/files/inode.rs`) and puts its position into the header. A node reads it while the server stands still, and
//! takes every word of it as a plain number.

pub mod agreed;

/// Capacity of the table: 65,536 files.
pub const INODES: usize = 64 << 10;
/// Bytes of one row.
pub const INODE_BYTES: usize = 112;
/// Offset of the key in a row: the kernel's device and inode number.
pub const ID_AT: usize = 0;
/// Offset of the row's number, which is 0 when the row is free.
pub const NUMBER_AT: usize = 16;
/// Offset of the time of the last change: seconds and nanoseconds.
pub const MODIFIED_AT: usize = 24;
/// Offset of the flags, 32 bits.
pub const FLAGS_AT: usize = 56;
/// Offset of the time that marks the copy of a host's file: seconds and nanoseconds, all zero if the file has none.
pub const MARK_AT: usize = 96;
/// Flag: the server has changed the file.
pub const CHANGED: u32 = 1;
/// Flag: the server has made the file.
pub const MADE: u32 = 4;
/// Flag: the server may have written to the file through a mapping.
pub const MAPPED: u32 = 32;
/// Flag: the file is a copy of the server's own, or its metadata is.
pub const OWNED: u32 = 8;

/// A file that the server has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The kernel's device number.
    pub dev: u64,
    /// The kernel's inode number.
    pub ino: u64,
    /// The access time that identifies the copy of a host's file even if its inode number changes.
    pub mark: Option<(i64, i64)>,
    /// Time of the change in virtual time: seconds since the epoch.
    pub s: i64,
    /// Nanoseconds.
    pub ns: i64,
}

/// A file that the server has looked at, and that still exists as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The kernel's device and inode number.
    pub file: (u64, u64),
    /// As in [`Changed`].
    pub mark: Option<(i64, i64)>,
    /// Whether it is one of the host's, unchanged.
    pub is_hosts: bool,
}

fn word(place: &[u8; INODE_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&place[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

fn mark(place: &[u8; INODE_BYTES]) -> Option<(i64, i64)> {
    let mark = (word(place, MARK_AT).cast_signed(), word(place, MARK_AT + 8).cast_signed());
    (mark != (0, 0)).then_some(mark)
}

/// Reads one row of the table.
#[must_use]
pub fn known(place: &[u8; INODE_BYTES]) -> Option<Known> {
    let file = (word(place, ID_AT), word(place, ID_AT + 8));
    let is_hosts = word(place, FLAGS_AT) as u32 & (MADE | OWNED) == 0;
    let exists = word(place, NUMBER_AT) != 0 && file.0 != 0;
    exists.then(|| Known { file, mark: mark(place), is_hosts })
}

/// Reads one row of the table.
#[must_use]
pub fn changed(place: &[u8; INODE_BYTES]) -> Option<Changed> {
    let word = |at: usize| word(place, at);
    let flags = word(FLAGS_AT) as u32;
    (word(NUMBER_AT) != 0 && flags & CHANGED != 0).then(|| Changed {
        dev: word(ID_AT),
        ino: word(ID_AT + 8),
        mark: mark(place),
        s: word(MODIFIED_AT).cast_signed(),
        ns: word(MODIFIED_AT + 8).cast_signed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_changed_is_told() {
        let mut place = [0; INODE_BYTES];
        let words = [(0, 3), (8, 4), (NUMBER_AT, 1000), (MODIFIED_AT, 5), (MODIFIED_AT + 8, 6)];
        for (at, word) in words {
            place[at..at + 8].copy_from_slice(&u64::to_ne_bytes(word));
        }
        assert_eq!(changed(&place), None);
        place[FLAGS_AT] = 3;
        let mut file = Changed { dev: 3, ino: 4, mark: None, s: 5, ns: 6 };
        assert_eq!(changed(&place), Some(file));
        place[MARK_AT] = 7;
        file.mark = Some((7, 0));
        assert_eq!(changed(&place), Some(file));
        place[NUMBER_AT..NUMBER_AT + 8].fill(0);
        assert_eq!(changed(&place), None);
    }
}
