//! Pages of files: where they lie, which were written, and what is known of files that were read ahead of an image ([`crate::ahead`]).

use skein_arena::writes::{TO_THE_END, Write};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Device and inode number; or a time of last access; or pages, from one to another.
pub(crate) type Two<T> = (T, T);

/// Pages that were written, by the numbers of their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes(pub(crate) HashMap<u64, Vec<Two<u64>>>);

/// Rows, from and to, in order, each part of them once.
pub(crate) fn put_in_order(rows: &mut Vec<Two<u64>>) {
    rows.sort_unstable();
    rows.dedup_by(|next, last| {
        let meets = next.0 <= last.1;
        if meets {
            last.1 = last.1.max(next.1);
        }
        meets
    });
}

impl Writes {
    pub(crate) fn add(&mut self, writes: impl Iterator<Item = Write>) {
        for write in writes {
            let to = if write.to == TO_THE_END { u64::MAX } else { write.to.into() };
            let pages = self.0.entry(write.number).or_default();
            match pages.last_mut() {
                Some(last)
                    if last.0 <= u64::from(write.from) && u64::from(write.from) <= last.1 =>
                {
                    last.1 = last.1.max(to);
                }
                _ => pages.push((write.from.into(), to)),
            }
        }
    }

    /// Puts the pages of each file in order, each once.
    pub(crate) fn sort(&mut self) {
        self.0.values_mut().for_each(put_in_order);
    }

    /// The first rows of pages of a file that end behind page `from`.
    pub(crate) fn behind(&self, number: u64, from: u64) -> Option<Two<u64>> {
        let pages = self.0.get(&number)?;
        pages.get(pages.partition_point(|(_, end)| *end <= from)).copied()
    }

    pub(crate) fn names(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }

    /// Adds what others have; answers how many rows of pages there are.
    pub(crate) fn join(&mut self, others: Self) -> usize {
        for (number, pages) in others.0 {
            self.0.entry(number).or_default().extend(pages);
        }
        self.len()
    }

    /// How many pages those are that [`sort`](Self::sort) has put in order; so many to the end of a file.
    pub(crate) fn pages(&self, to_the_end: u64) -> u64 {
        let pages = |(from, to): &Two<u64>| if *to == u64::MAX { to_the_end } else { to - from };
        self.0.values().flatten().map(pages).sum()
    }

    /// How many rows of pages there are.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// A file in an image.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// When the kernel had changed it last.
    pub(crate) changed: Two<i64>,
    pub(crate) extents: Vec<Extent>,
}

/// Pages of a file that lie behind one another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The place of the first one's hash.
    pub(crate) place: usize,
}

impl Stored {
    /// So many pages from page `from` on, whose hashes are at `place` and behind.
    pub(crate) fn put(&mut self, from: u64, pages: u64, place: usize) {
        match self.extents.last_mut() {
            Some(last)
                if last.to == from && last.place + (last.to - last.from) as usize == place =>
            {
                last.to += pages;
            }
            _ => self.extents.push(Extent { from, to: from + pages, place }),
        }
    }
}

/// What was read ahead of an image.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The arena's file, as the kernel names it: of one server.
    pub(crate) arena: Two<u64>,
    /// How often that server had noted a write at the survey,
    pub(crate) surveyed: u64,
    /// and when it was last looked,
    pub(crate) noted: u64,
    /// and what was noted since the survey.
    pub(crate) written: Writes,
    /// So many rows of that were left when they were put in order last.
    pub(crate) sorted: usize,
    pub(crate) files: HashMap<Two<u64>, OneAhead>,
}

/// A file that was surveyed.
#[derive(Debug)]
pub(crate) struct OneAhead {
    /// As the server sees it.
    pub(crate) number: u64,
    /// Open, if it is read ahead.
    pub(crate) file: Option<File>,
    pub(crate) stored: Stored,
    /// 0: it is to be read.
    pub(crate) hashes: Vec<u128>,
    /// How many of those there are.
    pub(crate) unread: u64,
}

impl Ahead {
    /// What is known of the file with this number.
    pub(crate) fn file(&self, number: u64, id: Two<u64>) -> Option<(&Stored, &[u128])> {
        let one = self.files.get(&id).filter(|one| one.number == number)?;
        Some((&one.stored, &one.hashes))
    }

    /// Whether it is of the server with this arena.
    ///
    /// # Errors
    /// The arena cannot be asked about.
    pub fn is_of(&self, arena: &File) -> io::Result<bool> {
        let about = arena.metadata()?;
        Ok(self.arena == (about.dev(), about.ino()))
    }
}

impl OneAhead {
    /// Whether the kernel has not changed it since it was surveyed, nor any name of it.
    pub(crate) fn is_unchanged(&self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let about = file.metadata()?;
        Ok(self.stored.changed == (about.ctime(), about.ctime_nsec()))
    }

    /// The pieces to be read, of so many pages at most: a page, the place of its hash, and the number of pages.
    pub(crate) fn pieces(&self, most: usize) -> Vec<(u64, usize, usize)> {
        let mut pieces = Vec::new();
        for extent in &self.stored.extents {
            let hashes = &self.hashes[extent.place..][..(extent.to - extent.from) as usize];
            let mut at = 0;
            for row in hashes.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
                for part in row.chunks(most) {
                    if part[0] == 0 {
                        pieces.push((extent.from + at as u64, extent.place + at, part.len()));
                    }
                    at += part.len();
                }
            }
        }
        pieces
    }
}
