//! The server's modification times of its files.
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

/// The position of the runtime's table.
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
        let mut times = Times::default();
        for file in places.iter().filter_map(changed) {
            let time = (file.s, file.ns);
            match file.mark {
                Some(mark) => times.by_mark.insert(mark, time),
                None => times.by_number.insert((file.dev, file.ino), time),
            };
        }
        Ok(times)
    }
}

/// The times by file.
#[derive(Debug, Default)]
pub struct Times {
    /// By the kernel's device and inode number,
    by_number: HashMap<(u64, u64), Time>,
    /// and of copies of the host's files, which may get other ones, by the time of last access.
    by_mark: HashMap<Time, Time>,
}

impl Times {
    /// The server's modification time of the file that its mounts show as `meta`. For an unmodified file the host's time is irrelevant.
    #[must_use]
    pub fn modified(&self, meta: &Metadata) -> Option<Time> {
        let marked = self.by_mark.get(&(meta.atime(), meta.atime_nsec()));
        marked.or_else(|| self.by_number.get(&(meta.dev(), meta.ino()))).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_arena::inodes::{CHANGED, FLAGS_AT, MARK_AT, MODIFIED_AT, NUMBER_AT};
    use std::fs::FileTimes;
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_file_that_was_modified_is_found_in_the_table() {
        let files = [(); 3].map(|()| tempfile::NamedTempFile::new().unwrap());
        for (at, file) in files.iter().enumerate() {
            let time = SystemTime::UNIX_EPOCH + Duration::new(9, at as u32);
            file.as_file().set_times(FileTimes::new().set_accessed(time)).unwrap();
        }
        let meta = |at: usize| files[at].as_file().metadata().unwrap();
        let mut table = vec![0; 8 + INODES * INODE_BYTES];
        let mut put = |place: usize, words: &[(usize, u64)]| {
            let shared = [(NUMBER_AT, 1000), (FLAGS_AT, u64::from(CHANGED))];
            for (at, word) in shared.iter().chain(words) {
                let at = table.len() - place * INODE_BYTES + at;
                table[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
        };
        put(
            1,
            &[(0, meta(0).dev()), (8, meta(0).ino()), (MODIFIED_AT, 2_000), (MODIFIED_AT + 8, 7)],
        );
        // A copy whose number has changed.
        let mark = (meta(1).atime().cast_unsigned(), meta(1).atime_nsec().cast_unsigned());
        put(2, &[(8, 1), (MODIFIED_AT, 3_000), (MARK_AT, mark.0), (MARK_AT + 8, mark.1)]);
        let mut arena = tempfile::tempfile().unwrap();
        arena.write_all(&table).unwrap();
        let times = KeptTimes::new(arena.into(), 8).read().unwrap();
        assert_eq!(
            [0, 1, 2].map(|at| times.modified(&meta(at))),
            [Some((2_000, 7)), Some((3_000, 0)), None]
        );
    }
}
