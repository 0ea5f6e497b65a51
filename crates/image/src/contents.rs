//! Pages of a server's files that are those of the image before, by the record of writes that its runtime keeps ([`skein_arena::writes`]): they need not be read while the server stands.
//!
//! A page counts as the one before if the same server's record names no write to it since. Read again is also each file that was ever mapped to be written to, one that the record does not
//! name although its time of change is another, and all of them when more was noted than the record keeps. The last notes before that image are told again, since they may stand for later
//! writes: a file of theirs is named, whoever changed it.

use crate::file_pages::{Ahead, Extent, Stored, Two, Writes};
use crate::inode_table::InodeTable;
use crate::layered::{About, Layered};
use crate::noted::noted_since;
use skein_arena::inodes::{FLAGS_AT, MAPPED, NUMBER_AT, known};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Where an image has the contents of files.
#[derive(Debug, Default)]
pub struct Contents {
    /// The arena's file, as the kernel names it: of one server.
    pub(crate) arena: Two<u64>,
    /// How often that server had noted a write.
    pub(crate) noted: u64,
    /// By the numbers that the server sees.
    files: HashMap<u64, Stored>,
}

/// A file as the arena knows it.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The number that the server sees.
    number: u64,
    is_mapped: bool,
    is_hosts: bool,
}

/// What a server that stands has written since the image before, and since its files were read ahead.
#[derive(Debug, Default)]
pub struct Rewritten {
    pub(crate) arena: Two<u64>,
    pub(crate) noted: u64,
    /// By the kernel's numbers, and by the marks of copies.
    rows: HashMap<Two<u64>, Row>,
    marked: HashMap<Two<i64>, Row>,
    /// How much was noted when the image before was taken, and when the files were looked through to be read ahead.
    since: [u64; 2],
    /// `None`: it is not known.
    written: Option<Writes>,
    written_ahead: Option<Writes>,
}

impl Rewritten {
    /// From an arena, its table of files, and where its record of writes is in the heap; 0: nowhere.
    pub(crate) fn read(
        arena: &File,
        table: &InodeTable<'_>,
        record: u64,
        before: Option<&Contents>,
        ahead: Option<&Ahead>,
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
        let read = |at: usize, bytes: &mut [u8]| -> io::Result<()> {
            table.heap.copy(record + at as u64, bytes);
            Ok(())
        };
        let mut count = [0; 8];
        read(0, &mut count)?;
        new.noted = u64::from_ne_bytes(count);
        let written = |noted: u64, earlier: Writes| {
            let (_, writes) = noted_since(noted, read).ok()?;
            let mut written = earlier;
            written.add(writes?.into_iter());
            written.sort();
            Some(written)
        };
        let before = before.filter(|before| before.arena == new.arena);
        let ahead = ahead.filter(|ahead| ahead.arena == new.arena);
        let since = [before.map(|before| before.noted), ahead.map(|ahead| ahead.surveyed)];
        new.since = since.map(Option::unwrap_or_default);
        new.written = before.and_then(|before| written(before.noted, Writes::default()));
        new.written_ahead = ahead.and_then(|ahead| written(ahead.noted, ahead.written.clone()));
        Ok(new)
    }

    /// Whether the server made or changed this file.
    #[must_use]
    pub fn is_own(&self, about: &About) -> bool {
        self.row(about).is_some_and(|row| !row.is_hosts)
    }

    /// The files that the server may have written to through a mapping.
    pub(crate) fn mapped(&self) -> BTreeSet<Two<u64>> {
        self.rows.iter().filter(|(_, row)| row.is_mapped).map(|(id, _)| *id).collect()
    }

    fn row(&self, about: &About) -> Option<Row> {
        let marked = self.marked.get(&about.accessed);
        marked.or_else(|| self.rows.get(&about.id)).copied()
    }
}

/// The contents of files while they are put into an image.
#[derive(Debug)]
pub struct Listed<'a> {
    pub(crate) now: Rewritten,
    before: Option<(&'a Contents, &'a [u128])>,
    ahead: Option<&'a Ahead>,
    list: Contents,
    /// The pages that were put in.
    pages: usize,
}

/// The next pages of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Those of the image before, or that were read ahead, by their hashes.
    Known(&'a [u128]),
    /// So many that are to be read, at most.
    Read(u64),
}

/// What is known about one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneFile<'a> {
    number: Option<u64>,
    /// All that is written to it is noted.
    is_followed: bool,
    /// It was read ahead.
    pub(crate) is_ahead: bool,
    extents: &'a [Extent],
    hashes: &'a [u128],
}

impl OneFile<'_> {
    /// Its number, if all that is written to it is noted.
    pub(crate) fn followed(&self) -> Option<u64> {
        self.number.filter(|_| self.is_followed)
    }
}

impl<'a> Listed<'a> {
    pub(crate) fn new(
        now: Rewritten,
        before: Option<(&'a Contents, &'a [u128])>,
        ahead: Option<&'a Ahead>,
    ) -> Self {
        let list = Contents { arena: now.arena, noted: now.noted, files: HashMap::new() };
        Self { now, before, ahead, list, pages: 0 }
    }

    /// The number of a file of which all that is written to it is noted, and how much was noted so far.
    #[must_use]
    pub fn follows(&self, about: &About) -> Option<(u64, u64)> {
        let is_followed = |row: &Row| !row.is_mapped && self.list.noted > 0;
        self.now.row(about).filter(is_followed).map(|row| (row.number, self.list.noted))
    }

    /// The pages of the file with this number that may have been written since so much was noted, in order. None: it is not known.
    #[must_use]
    pub fn written(&self, number: u64, noted: u64) -> Option<Vec<Two<u64>>> {
        let Rewritten { since, written, written_ahead, .. } = &self.now;
        let all = since.iter().zip([written, written_ahead]);
        let known =
            all.filter(|(since, _)| **since <= noted).find_map(|(_, written)| written.as_ref());
        known.map(|written| written.0.get(&number).cloned().unwrap_or_default())
    }

    /// Begins a file.
    #[must_use]
    pub fn begin(&mut self, file: &dyn Layered) -> OneFile<'a> {
        let about = file.about();
        let Some(Row { number, is_mapped, .. }) = self.now.row(&about) else {
            return OneFile::default();
        };
        let changed = about.changed;
        self.list.files.entry(number).or_default().changed = changed;
        let is_followed = !is_mapped && self.list.noted > 0;
        let new = OneFile { number: Some(number), is_followed, ..OneFile::default() };
        if is_mapped {
            return new;
        }
        let fits = |stored: &Stored, written: &Option<Writes>| {
            let noted = |written: &Writes| stored.changed == changed || written.names(number);
            written.as_ref().is_some_and(noted)
        };
        if let Some(ahead) = self.ahead
            && let Some((stored, hashes)) = ahead.file(number, file.id())
            && fits(stored, &self.now.written_ahead)
        {
            return OneFile { is_ahead: true, extents: &stored.extents, hashes, ..new };
        }
        if let Some((before, hashes)) = self.before
            && let Some(stored) = before.files.get(&number)
            && fits(stored, &self.now.written)
        {
            return OneFile { extents: &stored.extents, hashes, ..new };
        }
        new
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
        let now = &self.now;
        let written = if file.is_ahead { &now.written_ahead } else { &now.written };
        let written = written.as_ref().zip(file.number);
        let mut end = to.min(extent.to);
        match written.and_then(|(written, number)| written.behind(number, from)) {
            Some((first, behind)) if first <= from => return Next::Read(behind.min(end) - from),
            Some((first, _)) => end = end.min(first),
            None => {}
        }
        let at = extent.place + (from - extent.from) as usize;
        let Some(hashes) = file.hashes.get(at..at + (end - from) as usize) else {
            return Next::Read(end - from);
        };
        if !file.is_ahead {
            return Next::Known(hashes);
        }
        // 0: it could not be read ahead.
        match hashes.iter().position(|hash| *hash == 0) {
            Some(0) => Next::Read(hashes.iter().take_while(|hash| **hash == 0).count() as u64),
            Some(known) => Next::Known(&hashes[..known]),
            None => Next::Known(hashes),
        }
    }

    /// So many pages of the file from page `from` on are in the image now, behind all before.
    pub fn put(&mut self, file: &OneFile<'_>, from: u64, pages: u64) {
        if let Some(stored) = file.number.and_then(|number| self.list.files.get_mut(&number)) {
            stored.put(from, pages, self.pages);
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
        let mut pages = Writes(HashMap::from([(7, written.to_vec())]));
        pages.sort();
        let written = Some(pages);
        Listed::new(Rewritten { written, ..Rewritten::default() }, Some((before, hashes)), None)
    }

    #[test]
    fn pages_are_those_before_unless_they_were_written() {
        let hashes: Vec<u128> = (100..120).collect();
        // Pages 2..8 and 10..12.
        let extents =
            vec![Extent { from: 2, to: 8, place: 5 }, Extent { from: 10, to: 12, place: 11 }];
        let before = Contents::default();
        let file =
            OneFile { number: Some(7), extents: &extents, hashes: &hashes, ..OneFile::default() };
        let all = |written: &[Two<u64>]| {
            let listed = listed(written, &before, &hashes);
            let (mut at, mut found) = (0, Vec::new());
            while at < 14 {
                match listed.next(&file, at, 14) {
                    Next::Known(hashes) => {
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
        // Pages that could not be read ahead.
        let mut unread = hashes.clone();
        (unread[5], unread[6], unread[8]) = (0, 0, 0);
        let listed = listed(&[], &before, &hashes);
        let file = OneFile { is_ahead: true, hashes: &unread, ..file };
        assert_eq!(listed.next(&file, 2, 14), Next::Read(2));
        assert_eq!(listed.next(&file, 4, 14), Next::Known(&[107]));
        // A list of hashes that is too short.
        let short = OneFile { hashes: &hashes[..8], ..file };
        assert_eq!(listed.next(&short, 2, 14), Next::Read(6));
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

    #[test]
    fn what_was_written_is_told_only_since_then() {
        let writes = |pages: &[Two<u64>]| {
            let mut writes = Writes(HashMap::from([(7, pages.to_vec())]));
            writes.sort();
            Some(writes)
        };
        let [written, written_ahead] = [writes(&[(4, u64::MAX), (1, 2)]), writes(&[(9, 10)])];
        let now = Rewritten { since: [10, 20], written, written_ahead, ..Rewritten::default() };
        let told = |now: &Rewritten, noted| {
            let now = Rewritten {
                since: now.since,
                written: now.written.clone(),
                written_ahead: now.written_ahead.clone(),
                ..Rewritten::default()
            };
            Listed::new(now, None, None).written(7, noted)
        };
        let old = Some(vec![(1, 2), (4, u64::MAX)]);
        assert_eq!([told(&now, 10), told(&now, 19), told(&now, 9)], [old.clone(), old, None]);
        let now = Rewritten { written: None, ..now };
        assert_eq!([told(&now, 20), told(&now, 19)], [Some(vec![(9, 10)]), None]);
        let now = Rewritten { written_ahead: writes(&[]), ..now };
        assert_eq!(told(&now, 30), Some(Vec::new()));
        let now = Rewritten { written_ahead: None, ..now };
        assert_eq!(told(&now, 30), None);
    }
}
