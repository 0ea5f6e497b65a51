//! Contents of files that are read while the server goes on, before an image is taken: it need not stand for gigabytes.
//!
//! 1. A [`Survey`] of a server that stands says which pages the next image would have to read. Are they few, the image is taken.
//! 2. Otherwise the server goes on, and [`Unread::read`] reads them into a pack. Meanwhile it follows the record of writes, which keeps only the newest.
//! 3. The next try finds them in [`Ahead`], and reads again what was written since the survey. If that is much, it is read ahead in turn.
//!
//! A page counts if no write to it was noted since the survey: a write is noted when it is done, so what was read in the middle of one is read again. The files stay open
//! until the image is taken, so no other file gets their numbers. Files that are mapped to be written to are not read ahead, since no record names what is written there.

use crate::before::Before;
use crate::contents::{Listed, Next, Rewritten};
use crate::copied::hash;
pub use crate::file_pages::Ahead;
use crate::file_pages::{OneAhead, Stored, Two, Writes};
use crate::form::{ImageError, PAGE_BYTES};
use crate::inode_table::{InodeTable, inside};
use crate::layered::{About, Layered};
use crate::noted::noted_since;
use crate::pack::{PackId, PackWriter};
use crate::packed::Earlier;
use crate::raw::Raw;
use crate::sparse::copy_pages;
use crate::{MemoryError, Result};
use skein_arena::Sizes;
use skein_arena::inodes::{INODE_BYTES, INODES};
use skein_arena::layout::Header;
use skein_arena::writes::{GROWING, RECORD_BYTES, WRITES};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const PAGE: usize = PAGE_BYTES as usize;
/// Read at a time: 1 MiB. Then it is looked what was written meanwhile.
const PIECE_PAGES: usize = 256;
/// A file with fewer unread pages is read while the server stands.
const MIN_PAGES: u64 = 16;
/// The most files that are open at a time.
const MAX_FILES: usize = 1000;
/// The most rows of written pages that are kept: 64 MiB.
const MAX_WRITES: usize = 4 << 20;
/// So many rows are noted before they are put in order.
const SORTED_AT_ONCE: usize = 64 << 10;
/// So many pages count as written where all up to the end of a file are.
const OF_THE_END: u64 = 16;

/// A server's record of writes, in its arena's file.
struct Record {
    arena: File,
    heap_at: u64,
    /// Where it is in the heap; 0: nowhere.
    at: u64,
    /// Where the table of files is.
    table_at: u64,
}

impl Record {
    fn of(arena: &File, sizes: Sizes) -> io::Result<Self> {
        let place = |name: usize, bytes| {
            let mut word = [0; 8];
            arena.read_exact_at(&mut word, name as u64)?;
            io::Result::Ok(inside(u64::from_ne_bytes(word), bytes, sizes))
        };
        Ok(Self {
            arena: arena.try_clone()?,
            heap_at: (sizes.file_bytes() - sizes.heap) as u64,
            at: place(offset_of!(Header, writes_at), RECORD_BYTES)?,
            table_at: place(offset_of!(Header, inodes_at), INODES * INODE_BYTES)?,
        })
    }

    /// Fills bytes from a position of it on.
    fn read(&self, at: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.arena.read_exact_at(bytes, self.heap_at + self.at + at as u64)
    }

    /// What was noted since it was `noted`, while the server may note more; `None`: that was more than the record keeps.
    fn since(&self, noted: u64) -> io::Result<Option<(u64, Writes)>> {
        // The notes before this one are whole, but for the growing ones, which are told again.
        let (count, writes) = noted_since(noted, |at, bytes| self.read(at, bytes))?;
        let Some(writes) = writes else { return Ok(None) };
        let mut written = Writes::default();
        written.add(writes.into_iter());
        let oldest = noted.saturating_sub(GROWING);
        // The next note is written before it is counted.
        let mut now = [0; 8];
        self.read(0, &mut now)?;
        let is_kept = u64::from_ne_bytes(now).saturating_sub(oldest) < WRITES as u64;
        Ok(is_kept.then_some((count, written)))
    }

    /// What they say, by these pages of the heap.
    fn rewritten(
        &self,
        arena: &File,
        heap: &Raw,
        before: Option<&Before>,
        ahead: Option<&Ahead>,
    ) -> Result<Rewritten> {
        let table = InodeTable::new(heap, self.table_at);
        let contents = before.map(|before| before.contents().0);
        Rewritten::read(arena, &table, self.at, contents, ahead)
            .map_err(MemoryError::read("the arena"))
    }

    /// The pages of the heap that have the table and the record.
    fn pages(&self) -> Result<Raw> {
        let failed = |error| MemoryError::Read { what: "the arena".into(), error };
        let mut parts = [(self.table_at, INODES * INODE_BYTES), (self.at, RECORD_BYTES)];
        parts.sort_unstable();
        let (mut pages, mut next) = (Raw::default(), 0);
        for (at, bytes) in parts {
            let end = (at + bytes as u64).next_multiple_of(PAGE_BYTES);
            let from = (at - at % PAGE_BYTES).max(next);
            let [from, to] = [from, end].map(|at| self.heap_at + at);
            copy_pages(&mut pages, &self.arena, [self.heap_at, from, to], || Ok(()), failed)?;
            next = end.max(next);
        }
        Ok(pages)
    }
}

/// About how many pages of its files a server has noted as written since the image before, or since they were surveyed; `None`: it is not known.
///
/// # Errors
/// Its arena cannot be read.
pub fn noted(
    arena: &File,
    sizes: Sizes,
    before: Option<&Before>,
    ahead: Option<&Ahead>,
) -> Result<Option<u64>> {
    let failed = |error| MemoryError::Read { what: "the arena".into(), error };
    let about = arena.metadata().map_err(failed)?;
    let id = (about.dev(), about.ino());
    let record = Record::of(arena, sizes).map_err(failed)?;
    let contents = before.map(|before| before.contents().0).filter(|before| before.arena == id);
    let (noted, mut written) = match (ahead.filter(|ahead| ahead.arena == id), contents) {
        _ if record.at == 0 => return Ok(None),
        (Some(ahead), _) => (ahead.noted, ahead.written.clone()),
        (None, Some(before)) => (before.noted, Writes::default()),
        (None, None) => return Ok(None),
    };
    let Some((_, since)) = record.since(noted).map_err(failed)? else { return Ok(None) };
    written.join(since);
    written.sort();
    let mut pages = written.pages(OF_THE_END);
    // What was done to a file without a note, as giving it another name, lets all of it be read.
    for one in ahead.into_iter().flat_map(|ahead| ahead.files.values()) {
        if !written.names(one.number) && !one.is_unchanged().map_err(failed)? {
            pages += one.hashes.len() as u64;
        }
    }
    Ok(Some(pages))
}

/// What a server that stands, or has ended, has written to its files.
///
/// # Errors
/// Its arena cannot be read.
pub fn rewritten(
    arena: &File,
    sizes: Sizes,
    before: Option<&Before>,
    ahead: Option<&Ahead>,
) -> Result<Rewritten> {
    let failed = |error| MemoryError::Read { what: "the arena".into(), error };
    let record = Record::of(arena, sizes).map_err(failed)?;
    record.rewritten(arena, &record.pages()?, before, ahead)
}

/// Looks through the files of a server that stands, for pages that the next image would have to read.
pub struct Survey<'a> {
    listed: Listed<'a>,
    record: Record,
    files: HashMap<Two<u64>, OneAhead>,
    /// How many are open.
    open: usize,
}

impl<'a> Survey<'a> {
    /// Of the server with this arena, which has these files already in the image `before`, and `ahead`.
    ///
    /// # Errors
    /// Its arena cannot be read.
    pub fn new(
        arena: &File,
        sizes: Sizes,
        before: Option<&'a Before>,
        ahead: Option<&'a Ahead>,
    ) -> Result<Self> {
        let failed = |error| MemoryError::Read { what: "the arena".into(), error };
        let record = Record::of(arena, sizes).map_err(failed)?;
        let now = record.rewritten(arena, &record.pages()?, before, ahead)?;
        let listed = Before::list(before, ahead, now);
        Ok(Self { listed, record, files: HashMap::new(), open: 0 })
    }

    /// The number of a file of which all that is written to it is noted, and how much was noted so far.
    #[must_use]
    pub fn follows(&self, about: &About) -> Option<(u64, u64)> {
        self.listed.follows(about)
    }

    /// The pages of the file with this number that may have been written since so much was noted, in order. None: it is not known.
    #[must_use]
    pub fn written(&self, number: u64, noted: u64) -> Option<Vec<(u64, u64)>> {
        self.listed.written(number, noted)
    }

    /// There is something in a file from one position to another. Those of one file come one after the other.
    pub fn contents(&mut self, file: &dyn Layered, start: u64, end: u64) {
        let known = self.listed.begin(file);
        let (mut at, to) = (start / PAGE_BYTES, end / PAGE_BYTES);
        let Some(number) = known.followed() else { return };
        if !start.is_multiple_of(PAGE_BYTES) || at == to {
            return;
        }
        let one = self.files.entry(file.id()).or_insert_with(|| OneAhead {
            number,
            file: None,
            stored: Stored { changed: file.about().changed, ..Stored::default() },
            hashes: Vec::new(),
            unread: 0,
        });
        while at < to {
            let place = one.hashes.len();
            let pages = match self.listed.next(&known, at, to) {
                Next::Known(hashes) => {
                    one.hashes.extend_from_slice(hashes);
                    hashes.len() as u64
                }
                Next::Read(pages) => {
                    one.hashes.resize(place + pages as usize, 0);
                    one.unread += pages;
                    pages
                }
            };
            one.stored.put(at, pages, place);
            at += pages;
        }
        // What was read ahead before stays so.
        let is_ahead = known.is_ahead || one.unread >= MIN_PAGES;
        if is_ahead
            && one.file.is_none()
            && self.open < MAX_FILES
            && let Ok(file) = file.file().and_then(File::try_clone)
        {
            one.file = Some(file);
            self.open += 1;
        }
    }

    /// What is to be read ahead.
    #[must_use]
    pub fn finish(self) -> Unread {
        let Self { listed, record, mut files, .. } = self;
        files.retain(|_, one| one.file.is_some());
        let Rewritten { arena, noted, .. } = listed.now;
        Unread { record, ahead: Ahead { arena, surveyed: noted, noted, files, ..Ahead::default() } }
    }
}

/// What a server that may go on has in its files, and no image has.
pub struct Unread {
    record: Record,
    ahead: Ahead,
}

impl Unread {
    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.ahead.files.values().map(|one| one.unread).sum()
    }

    /// Reads them, and writes those into a new pack that earlier ones have not; answers its name, if there were some. A file that cannot be read is left to the image. When the server
    /// writes more than can be followed, or it is not wanted any longer, nothing counts.
    ///
    /// # Errors
    /// The pack cannot be written, or the arena not be read.
    pub fn read(
        self,
        earlier: &Earlier,
        out: &mut dyn Write,
        path: &Path,
        is_wanted: &dyn Fn() -> bool,
    ) -> std::result::Result<(Ahead, Option<PackId>), ImageError> {
        let Self { record, mut ahead } = self;
        let (failed, arena_failed) = (ImageError::io(path), ImageError::io(Path::new("the arena")));
        let writer = PackWriter::new(out).map_err(&failed)?;
        let mut pack = NewPack { earlier, writer, own: HashSet::new() };
        let mut piece = vec![0; PIECE_PAGES * PAGE];
        let mut files = std::mem::take(&mut ahead.files);
        for one in files.values_mut() {
            for (from, place, pages) in one.pieces(PIECE_PAGES) {
                let piece = &mut piece[..pages * PAGE];
                if !read_piece(one, from, place, piece, &mut pack).map_err(&failed)? {
                    break;
                }
                if !is_wanted() || !follow(&mut ahead, &record).map_err(&arena_failed)? {
                    return Ok((Ahead::default(), None));
                }
            }
        }
        ahead.files = files;
        ahead.written.sort();
        let own = match pack.own.is_empty() {
            true => None,
            false => Some(pack.writer.finish().map_err(&failed)?),
        };
        Ok((ahead, own))
    }
}

/// Reads a piece of a file; false: it is not there any more, or cannot be read.
fn read_piece(
    one: &mut OneAhead,
    from: u64,
    place: usize,
    piece: &mut [u8],
    pack: &mut NewPack<'_, '_>,
) -> io::Result<bool> {
    let file = one.file.as_ref().expect("it is open, or would not be here");
    if file.read_exact_at(piece, from * PAGE_BYTES).is_err() {
        return Ok(false);
    }
    let (pages, _) = piece.as_chunks::<PAGE>();
    for (page, hash) in pages.iter().zip(&mut one.hashes[place..]) {
        *hash = pack.put(page)?;
        one.unread -= 1;
    }
    Ok(true)
}

/// Notes what was written since it was looked last; false when that was too much.
fn follow(ahead: &mut Ahead, record: &Record) -> io::Result<bool> {
    let Some((noted, written)) = record.since(ahead.noted)? else { return Ok(false) };
    ahead.noted = noted;
    let rows = ahead.written.join(written);
    if rows >= ahead.sorted * 2 + SORTED_AT_ONCE {
        ahead.written.sort();
        ahead.sorted = ahead.written.len();
    }
    Ok(ahead.sorted <= MAX_WRITES)
}

/// A pack of what no earlier one has.
struct NewPack<'e, 'w> {
    earlier: &'e Earlier,
    writer: PackWriter<'w>,
    own: HashSet<u128>,
}

impl NewPack<'_, '_> {
    fn put(&mut self, page: &[u8; PAGE]) -> io::Result<u128> {
        let hash = hash(page);
        if !self.earlier.has(hash) && self.own.insert(hash) {
            self.writer.page(page, hash)?;
        }
        Ok(hash)
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
