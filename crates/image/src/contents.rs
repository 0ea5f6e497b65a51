//! Pages of a server's files that are those of the image before, by the record of writes that its runtime keeps ([`skein_arena::writes`]): they need not be read while the server stands.
//!
//! A page counts as the one before if the same server's record names no write to it since. Read again is also each file that was ever mapped to be written to, one that the record does not
//! name although its time of change is another, and all of them when more was noted than the record keeps.

use crate::inode_table::InodeTable;
use skein_arena::inodes::{FLAGS_AT, MAPPED, NUMBER_AT, known};
use skein_arena::writes::{RECORD_BYTES, TO_THE_END, since};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Device and inode number; or a time of last access.
type Two<T> = (T, T);

/// Where an image has the contents of files.
#[derive(Debug, Default)]
pub struct Contents {
    /// The arena's file, as the kernel names it: of one server.
    arena: Two<u64>,
    /// How often that server had noted a write.
    noted: u64,
    /// By the numbers that the server sees.
    files: HashMap<u64, Stored>,
}

/// A file in an image.
#[derive(Debug, Default)]
struct Stored {
    /// When the kernel had changed it last.
    changed: Two<i64>,
    extents: Vec<Extent>,
}

/// Pages of a file that lie behind one another.
#[derive(Clone, Copy, Debug)]
struct Extent {
    from: u64,
    to: u64,
    /// The place of the first one among all pages of files.
    place: usize,
}

/// A file as the arena knows it.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The number that the server sees.
    number: u64,
    is_mapped: bool,
    is_hosts: bool,
}

/// What a server that stands has written since the image before.
#[derive(Debug, Default)]
pub struct Rewritten {
    arena: Two<u64>,
    noted: u64,
    /// By the kernel's numbers, and by the marks of copies.
    rows: HashMap<Two<u64>, Row>,
    marked: HashMap<Two<i64>, Row>,
    /// Pages by the file's number, in order; `None`: it is not known.
    written: Option<HashMap<u64, Vec<Two<u64>>>>,
}

impl Rewritten {
    /// From an arena, its table of files, and where its record of writes is in the heap; 0: nowhere.
    pub(crate) fn read(
        arena: &File,
        table: &InodeTable<'_>,
        record: u64,
        before: Option<&Contents>,
    ) -> io::Result<Self> {
        let about = arena.metadata()?;
        let mut new = Self { arena: (about.dev(), about.ino()), ..Self::default() };
        for row in table.rows() {
            let Some(file) = known(row) else { continue };
            let word = |at: usize| u64::from_ne_bytes(*row[at..].first_chunk().expect("in a row"));
            let is_mapped = word(FLAGS_AT) as u32 & MAPPED != 0;
            let about = Row { number: word(NUMBER_AT), is_mapped, is_hosts: file.is_hosts };
            new.rows.insert(file.file, about);
            new.marked.extend(file.mark.map(|mark| (mark, about)));
        }
        if record == 0 {
            return Ok(new);
        }
        let record = table.heap.bytes(record, record + RECORD_BYTES as u64);
        let same = before.filter(|before| before.arena == new.arena);
        let (noted, writes) = since(&record, same.map_or(0, |before| before.noted));
        new.noted = noted;
        if same.is_none() {
            return Ok(new);
        }
        new.written = writes.map(|writes| {
            let mut written = HashMap::<u64, Vec<Two<u64>>>::new();
            for write in writes {
                let to = if write.to == TO_THE_END { u64::MAX } else { write.to.into() };
                written.entry(write.number).or_default().push((write.from.into(), to));
            }
            written.values_mut().for_each(|pages| pages.sort_unstable());
            written
        });
        Ok(new)
    }

    /// Whether the server made or changed this file.
    #[must_use]
    pub fn is_own(&self, about: &Metadata) -> bool {
        self.row(about).is_some_and(|row| !row.is_hosts)
    }

    fn row(&self, about: &Metadata) -> Option<Row> {
        let marked = self.marked.get(&(about.atime(), about.atime_nsec()));
        marked.or_else(|| self.rows.get(&(about.dev(), about.ino()))).copied()
    }
}

/// The contents of files while they are put into an image.
#[derive(Debug)]
pub struct Listed<'a> {
    now: Rewritten,
    before: Option<(&'a Contents, &'a [u128])>,
    list: Contents,
    /// The pages that were put in.
    pages: usize,
}

/// The next pages of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Those of the image before, by their hashes.
    Before(&'a [u128]),
    /// So many that are to be read, at most.
    Read(u64),
}

/// What is known about one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneFile<'a> {
    number: Option<u64>,
    extents: &'a [Extent],
    hashes: &'a [u128],
}

impl<'a> Listed<'a> {
    pub(crate) fn new(now: Rewritten, before: Option<(&'a Contents, &'a [u128])>) -> Self {
        let list = Contents { arena: now.arena, noted: now.noted, files: HashMap::new() };
        Self { now, before, list, pages: 0 }
    }

    /// Begins a file.
    pub fn begin(&mut self, about: &Metadata) -> OneFile<'a> {
        let Some(Row { number, is_mapped, .. }) = self.now.row(about) else {
            return OneFile::default();
        };
        let changed = (about.ctime(), about.ctime_nsec());
        self.list.files.entry(number).or_default().changed = changed;
        let mut file = OneFile { number: Some(number), ..OneFile::default() };
        if let Some((before, hashes)) = self.before
            && let Some(written) = &self.now.written
            && let Some(stored) = before.files.get(&number)
            && !is_mapped
            && (stored.changed == changed || written.contains_key(&number))
        {
            (file.extents, file.hashes) = (&stored.extents, hashes);
        }
        file
    }

    /// The next pages from page `from` on, which are whole up to `to`.
    #[must_use]
    pub fn next(&self, file: &OneFile<'a>, from: u64, to: u64) -> Next<'a> {
        let n = file.extents.partition_point(|extent| extent.to <= from);
        let Some(extent) = file.extents.get(n).filter(|extent| extent.from < to) else {
            return Next::Read(to - from);
        };
        if extent.from > from {
            return Next::Read(extent.from - from);
        }
        let written = self.now.written.as_ref().zip(file.number);
        let written = written.and_then(|(written, number)| written.get(&number));
        let mut end = to.min(extent.to);
        for (first, behind) in written.into_iter().flatten() {
            if *first >= end {
                break;
            }
            if *behind > from {
                if *first <= from {
                    return Next::Read((*behind).min(end) - from);
                }
                end = *first;
            }
        }
        let at = extent.place + (from - extent.from) as usize;
        match file.hashes.get(at..at + (end - from) as usize) {
            Some(hashes) => Next::Before(hashes),
            None => Next::Read(end - from),
        }
    }

    /// So many pages of the file from page `from` on are in the image now, behind all before.
    pub fn put(&mut self, file: &OneFile<'_>, from: u64, pages: u64) {
        if let Some(stored) = file.number.and_then(|number| self.list.files.get_mut(&number)) {
            match stored.extents.last_mut() {
                Some(last)
                    if last.to == from
                        && last.place + (last.to - last.from) as usize == self.pages =>
                {
                    last.to += pages;
                }
                _ => stored.extents.push(Extent { from, to: from + pages, place: self.pages }),
            }
        }
        self.pages += pages as usize;
    }

    /// The list of all.
    #[must_use]
    pub fn finish(self) -> Contents {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed<'a>(written: &[Two<u64>], before: &'a Contents, hashes: &'a [u128]) -> Listed<'a> {
        let written = Some(HashMap::from([(7, written.to_vec())]));
        let rows = HashMap::new();
        Listed::new(Rewritten { written, rows, ..Rewritten::default() }, Some((before, hashes)))
    }

    #[test]
    fn pages_are_those_before_unless_they_were_written() {
        let hashes: Vec<u128> = (100..120).collect();
        // Pages 2..8 and 10..12.
        let extents =
            vec![Extent { from: 2, to: 8, place: 5 }, Extent { from: 10, to: 12, place: 11 }];
        let before = Contents::default();
        let file = OneFile { number: Some(7), extents: &extents, hashes: &hashes };
        let all = |written: &[Two<u64>]| {
            let listed = listed(written, &before, &hashes);
            let (mut at, mut found) = (0, Vec::new());
            while at < 14 {
                match listed.next(&file, at, 14) {
                    Next::Before(hashes) => {
                        found.extend(hashes.iter().map(|hash| *hash as u64));
                        at += hashes.len() as u64;
                    }
                    Next::Read(pages) => {
                        found.extend((0..pages).map(|_| 0));
                        at += pages;
                    }
                }
            }
            found
        };
        let (old, new) = ([105, 106, 107, 108, 109, 110], [111, 112]);
        let whole = [&[0; 2], &old[..], &[0; 2], &new[..], &[0; 2]].concat();
        assert_eq!(all(&[]), whole);
        let mut some = whole.clone();
        (some[3], some[4], some[11]) = (0, 0, 0);
        assert_eq!(all(&[(0, 1), (3, 5), (4, 5), (11, u64::MAX)]), some);
        assert_eq!(all(&[(0, 1), (0, u64::MAX)]), vec![0; 14]);
        // A list of hashes that is too short.
        let short = OneFile { hashes: &hashes[..8], ..file };
        assert_eq!(listed(&[], &before, &hashes).next(&short, 2, 14), Next::Read(6));
    }

    #[test]
    fn what_is_put_is_found_in_the_next_image() {
        let before = Contents::default();
        let mut listed = listed(&[], &before, &[]);
        listed.list.files.insert(7, Stored::default());
        let file = OneFile { number: Some(7), ..OneFile::default() };
        listed.put(&file, 0, 3);
        listed.put(&file, 3, 1);
        listed.put(&OneFile::default(), 0, 4);
        listed.put(&file, 4, 1);
        let list = listed.finish();
        let found: Vec<_> =
            list.files[&7].extents.iter().map(|e| (e.from, e.to, e.place)).collect();
        assert_eq!(found, [(0, 4, 0), (4, 5, 8)]);
    }
}
