//! Where a file has content, and where holes: asked of the kernel, or derived from what was asked before.
//!
//! A file system in memory looks at page after page of a file to find the end of its content: 10 ms and more for a table of 256 MiB. It is spared that for a file of which the taker of
//! the stream knows each write: only pages that were written since and had no content are asked for, each by itself, since that is quick. As a check, the pages must be as many as
//! the file occupies: so a page that came to be by being read, which no record names, or that was allocated beyond the end of the file, lets all be asked for again.

use std::fs::File;
use std::io::{self, Error};
use std::os::fd::AsFd;

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek64};

use super::stat::Stat;

/// Bytes of a page in memory, and in a record of writes.
const PAGE_BYTES: u64 = 4096;
/// Blocks of a page, as the kernel counts them.
const PAGE_BLOCKS: u64 = PAGE_BYTES / 512;
/// When more than one in so many pages is to be asked for, asking for each takes as long as asking for all.
const FEW: u64 = 4;

/// From one position to another, in order; they do not touch.
pub(super) type Parts = Vec<(u64, u64)>;

/// Where a file has content.
pub(super) fn all(file: &File, size: u64) -> io::Result<Parts> {
    let (mut parts, mut at) = (Parts::new(), 0);
    while at < size
        && let Some(start) = seek(file, at, Whence::SeekData)?
        && let Some(end) = seek(file, start, Whence::SeekHole)?
    {
        let (start, end) = (start.min(size), end.min(size));
        if start < end {
            parts.push((start, end));
        }
        at = end.max(start);
    }
    Ok(parts)
}

/// The same of a file that had content there before, by the pages that may have been written since, in order. None: that is not certain, or would not be quicker.
pub(super) fn since(
    before: &[(u64, u64)],
    written: &[(u64, u64)],
    file: &File,
    about: &Stat,
) -> io::Result<Option<Parts>> {
    let pages = about.size.div_ceil(PAGE_BYTES);
    // Only what reaches to the end, wherever that is, may have made a hole, as a truncation does.
    let remade = written.last().filter(|(_, to)| *to == u64::MAX).copied();
    let before = before.iter().map(|(from, to)| (from / PAGE_BYTES, to.div_ceil(PAGE_BYTES)));
    let mut found = without(before, remade.as_slice(), pages);
    let asked = without(written.iter().copied(), &found, pages);
    let count = |parts: &Parts| parts.iter().map(|(from, to)| to - from).sum::<u64>();
    if count(&asked) > pages / FEW || fstatfs(file)?.filesystem_type() != TMPFS_MAGIC {
        return Ok(None);
    }
    for (mut at, to) in asked {
        while at < to
            && let Some(data) = seek(file, at * PAGE_BYTES, Whence::SeekData)?
            && data < to * PAGE_BYTES
        {
            at = data / PAGE_BYTES + 1;
            found.push((at - 1, at));
        }
    }
    found.sort_unstable();
    found.dedup_by(|next, last| {
        let touches = last.1 == next.0;
        if touches {
            last.1 = next.1;
        }
        touches
    });
    let bytes = |(from, to): (u64, u64)| (from * PAGE_BYTES, (to * PAGE_BYTES).min(about.size));
    let is_all = count(&found) * PAGE_BLOCKS == about.blocks;
    Ok(is_all.then(|| found.into_iter().map(bytes).collect()))
}

/// These pages up to `end`, but for those of `others`. Both are in order.
fn without(parts: impl Iterator<Item = (u64, u64)>, others: &[(u64, u64)], end: u64) -> Parts {
    let mut left = Parts::new();
    for (from, to) in parts {
        let (mut at, to) = (from, to.min(end));
        let first = others.partition_point(|(_, to)| *to <= from);
        for (from, behind) in &others[first..] {
            if *from >= to {
                break;
            }
            if at < *from {
                left.push((at, *from));
            }
            at = at.max(*behind);
        }
        if at < to {
            left.push((at, to));
        }
    }
    left
}

fn seek(file: &File, at: u64, whence: Whence) -> io::Result<Option<u64>> {
    match lseek64(file.as_fd(), at.cast_signed(), whence) {
        Ok(found) => Ok(Some(found.cast_unsigned())),
        Err(nix::Error::ENXIO) => Ok(None),
        Err(error) => Err(Error::from(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn others_pages_are_left_out() {
        let of = |others: &[(u64, u64)], end| {
            without([(2, 10), (20, 30), (40, 41)].into_iter(), others, end)
        };
        assert_eq!(of(&[], 50), [(2, 10), (20, 30), (40, 41)]);
        assert_eq!(of(&[], 25), [(2, 10), (20, 25)]);
        assert_eq!(of(&[(0, 3), (5, 6), (9, 21), (40, u64::MAX)], 50), [(3, 5), (6, 9), (21, 30)]);
        assert_eq!(of(&[(0, u64::MAX)], 50), []);
        assert_eq!(of(&[(10, 20), (30, 40)], 50), [(2, 10), (20, 30), (40, 41)]);
    }

    /// A file in memory, and what a record would name.
    struct Followed(File, Parts, Vec<(u64, u64)>);

    impl Followed {
        fn new(pages: u64) -> Self {
            let file = tempfile::tempfile_in("/dev/shm").unwrap();
            file.write_all_at(&vec![1; (pages * PAGE_BYTES) as usize], 0).unwrap();
            let parts = all(&file, pages * PAGE_BYTES).unwrap();
            Self(file, parts, Vec::new())
        }

        /// What is derived, if something is, is right.
        fn is_derived(&self) -> bool {
            let Self(file, before, written) = self;
            let about = Stat::from(&file.metadata().unwrap());
            let derived = since(before, written, file, &about).unwrap();
            let is = all(file, about.size).unwrap();
            derived.is_some_and(|derived| {
                assert_eq!(derived, is);
                true
            })
        }
    }

    fn fallocate(file: &File, flags: i32, at: u64, len: u64) {
        let flags = nix::fcntl::FallocateFlags::from_bits_retain(flags);
        nix::fcntl::fallocate(file, flags, at as i64, len as i64).unwrap();
    }

    #[test]
    fn what_is_derived_is_what_would_be_found() {
        let mut file = Followed::new(100);
        assert!(file.is_derived());
        file.0.write_all_at(b"later", 120 * PAGE_BYTES + 5).unwrap();
        assert!(!file.is_derived(), "it is not named");
        file.2 = vec![(120, 121)];
        assert!(file.is_derived());
        file.2 = vec![(1, 5), (118, 119), (120, 123)];
        assert!(file.is_derived(), "more is named");
        let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        fallocate(&file.0, flags, 98 * PAGE_BYTES, PAGE_BYTES);
        assert!(!file.is_derived(), "it is not named");
        file.2 = vec![(1, 5), (98, u64::MAX)];
        assert!(file.is_derived());
        file.0.set_len(90 * PAGE_BYTES + 1).unwrap();
        assert!(file.is_derived(), "its size says it");
        file.2 = vec![(1, 5), (90, u64::MAX)];
        assert!(file.is_derived());
        file.0.set_len(110 * PAGE_BYTES).unwrap();
        assert!(file.is_derived(), "a hole behind it");
    }

    #[test]
    fn what_no_record_names_lets_all_be_asked_for() {
        let file = Followed::new(100);
        file.0.set_len(110 * PAGE_BYTES).unwrap();
        assert!(file.is_derived());
        fallocate(&file.0, libc::FALLOC_FL_KEEP_SIZE, 110 * PAGE_BYTES, PAGE_BYTES);
        assert!(!file.is_derived(), "beyond its end");
        let mut file = Followed::new(100);
        fallocate(&file.0, 0, 100 * PAGE_BYTES, PAGE_BYTES);
        file.2 = vec![(100, u64::MAX)];
        assert!(!file.is_derived(), "allocated, and a hole");
        let mut file = Followed::new(100);
        file.2 = vec![(0, 26)];
        assert!(file.is_derived());
        file.2 = vec![(60, u64::MAX)];
        assert!(!file.is_derived(), "it is much");
    }

    #[test]
    fn only_files_in_memory_are_derived() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let is_in_memory = fstatfs(&file).unwrap().filesystem_type() == TMPFS_MAGIC;
        file.write_all_at(&[1; 8 * PAGE_BYTES as usize], 0).unwrap();
        let followed = Followed(file, vec![(0, 8 * PAGE_BYTES)], Vec::new());
        assert_eq!(followed.is_derived(), is_in_memory);
    }
}
