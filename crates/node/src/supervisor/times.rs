//! When the server modified its files, as it sees it itself.
//!
//! These are the runtime's ([decision 8](../../../../docs/decisions/0008-what-is-said-about-files.md)), which keeps them in the arena by the kernel's
//! numbers of the files as the server's mounts show them. Read while the server stands still, and not trusted: a server can only spoil its own.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use skein_arena::inodes::{INODE_BYTES, INODES, changed};

/// Seconds since the epoch, and nanoseconds.
pub type Time = (i64, i64);

/// Where a server's runtime keeps them.
#[derive(Debug)]
pub struct KeptTimes {
    arena: File,
    at: u64,
}

impl KeptTimes {
    /// In the arena, from byte `at` on.
    #[must_use]
    pub fn new(arena: OwnedFd, at: u64) -> Self {
        Self { arena: arena.into(), at }
    }

    /// Reads them.
    ///
    /// # Errors
    /// The arena cannot be read.
    pub fn read(&self) -> io::Result<Times> {
        let mut table = vec![0; INODES * INODE_BYTES];
        self.arena.read_exact_at(&mut table, self.at)?;
        let (places, _) = table.as_chunks::<INODE_BYTES>();
        let changed = places.iter().filter_map(changed);
        Ok(Times(changed.map(|file| ((file.dev, file.ino), (file.s, file.ns))).collect()))
    }
}

/// They, as they were.
#[derive(Debug, Default)]
pub struct Times(HashMap<(u64, u64), Time>);

impl Times {
    /// When the server modified the file that its mounts show as `meta`. Of one that it has not, the host's time is no matter of its.
    #[must_use]
    pub fn modified(&self, meta: &Metadata) -> Option<Time> {
        self.0.get(&(meta.dev(), meta.ino())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_arena::inodes::{CHANGED, FLAGS_AT, MODIFIED_AT, NUMBER_AT};
    use std::io::Write;

    #[test]
    fn a_file_that_was_modified_is_found_in_the_table() {
        let (mut arena, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let meta = arena.metadata().unwrap();
        let mut table = vec![0; 8 + INODES * INODE_BYTES];
        let words = [
            (0, meta.dev()),
            (8, meta.ino()),
            (NUMBER_AT, 1000),
            (MODIFIED_AT, 2_000),
            (MODIFIED_AT + 8, 7),
            (FLAGS_AT, u64::from(CHANGED)),
        ];
        for (at, word) in words {
            let at = table.len() - INODE_BYTES + at;
            table[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        arena.write_all(&table).unwrap();
        let times = KeptTimes::new(arena.into(), 8).read().unwrap();
        assert_eq!(times.modified(&meta), Some((2_000, 7)));
        assert_eq!(times.modified(&other.metadata().unwrap()), None);
    }
}
