//! A copy of what an image is made of: bytes, and pages among them, as they were while the server stood still. Compressing, hashing and writing follow when it
//! has gone on.
//!
//! A page is here itself, or known by its content's hash: then an earlier image has it.

use crate::form::{PAGE_BYTES, is_zero};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::ptr;
use std::ptr::NonNull;

const PAGE: usize = PAGE_BYTES as usize;
/// Memory for pages is got in pieces of 8 MiB: so huge pages fit, and little is left over.
const CHUNK_BYTES: usize = 8 << 20;
/// The first piece has small pages, got so many at a time: most copies are small, a huge page takes as long as hundreds of small ones, and on some hosts one takes 10 us.
const STEP_BYTES: usize = 64 << 10;
/// Further pages go to a file, if there is one, whose memory the kernel can use for others: 256 MiB.
const IN_MEMORY_BYTES: usize = 256 << 20;

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Copied<'b> {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// In order.
    rows: Vec<Row<'b>>,
    chunks: Vec<Chunk>,
    /// The first of them has its memory already.
    has_room: bool,
    /// The number of pages in them.
    fresh: usize,
    len: u64,
    /// For chunks beyond [`IN_MEMORY_BYTES`].
    beyond: Option<Beyond>,
}

/// Bytes, and the pages behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The number of bytes.
    pub bytes: u64,
    /// What the pages stand for: the last one may be filled up with zeros.
    pub paged: u64,
}

impl Piece {
    /// The number of its pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.paged.div_ceil(PAGE_BYTES)
    }
}

/// Pages in a row of a copy.
#[derive(Clone, Copy, Debug)]
enum Row<'b> {
    /// The next ones of those that are here.
    Here(usize),
    /// An earlier image has a page with this hash,
    Known(u128),
    /// pages with these. They are many: a server that stands does not wait for a list of its own.
    AllKnown(&'b [u128]),
}

impl Row<'_> {
    const fn pages(&self) -> usize {
        match self {
            Self::Here(pages) => *pages,
            Self::Known(_) => 1,
            Self::AllKnown(hashes) => hashes.len(),
        }
    }

    /// The hash of one of its pages; `None`: it is here.
    fn hash(&self, number: usize) -> Option<u128> {
        match self {
            Self::Here(_) => None,
            Self::Known(hash) => Some(*hash),
            Self::AllKnown(hashes) => Some(hashes[number]),
        }
    }
}

/// An empty file that nobody else has.
#[derive(Debug)]
pub enum Beyond {
    /// It is there.
    Made(File),
    /// It is made in this directory when it is needed, which takes some disks a millisecond, while a server stands.
    In(PathBuf),
}

impl Beyond {
    /// Where the file system can make one.
    fn file(&mut self) -> Option<&File> {
        if let Self::In(dir) = self {
            let mut new = OpenOptions::new();
            new.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
            let open = || new.open(&*dir).ok();
            let made = open().or_else(|| {
                DirBuilder::new().recursive(true).mode(0o700).create(&*dir).ok()?;
                open()
            });
            *self = Self::Made(made?);
        }
        match self {
            Self::Made(file) => Some(file),
            Self::In(_) => None,
        }
    }
}

/// A page of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page<'a> {
    /// It is here.
    Here(&'a [u8; PAGE]),
    /// An earlier image has a page with this hash.
    Known(u128),
}

/// The hash of a page; never 0. BLAKE3: clients choose what is in pages, and must not be able to make two that are taken for one.
#[must_use]
pub fn hash(page: &[u8]) -> u128 {
    let hash = blake3::hash(page);
    let half = hash.as_bytes().first_chunk().expect("32 bytes");
    u128::from_le_bytes(*half).max(1)
}

impl<'b> Copied<'b> {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing; what is much will be in a file.
    #[must_use]
    pub fn with_file(beyond: Beyond) -> Self {
        Self { beyond: Some(beyond), ..Self::default() }
    }

    /// The first pages, which there are none of yet, will be in memory that is there already.
    #[must_use]
    pub fn with_room(mut self, room: Option<Room>) -> Self {
        self.chunks.extend(room.into_iter().flat_map(|room| room.0));
        self.has_room = !self.chunks.is_empty();
        self
    }

    /// Its length.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that are in no page.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The order of bytes and pages.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The number of pages that are here.
    #[must_use]
    pub const fn fresh(&self) -> usize {
        self.fresh
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(last) if last.paged == 0 => last.bytes += bytes.len() as u64,
            _ => self.pieces.push(Piece { bytes: bytes.len() as u64, paged: 0 }),
        }
        self.bytes.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
    }

    /// Replaces the first bytes.
    ///
    /// # Panics
    /// They are not there.
    pub fn put_first(&mut self, bytes: &[u8]) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
    }

    /// Adds a page, or the last part of one.
    ///
    /// # Errors
    /// There is no memory, or no room in the file.
    ///
    /// # Panics
    /// It is longer than a page.
    pub fn page(&mut self, page: &[u8]) -> io::Result<()> {
        self.room()?[..page.len()].copy_from_slice(page);
        self.put_here(page.len());
        Ok(())
    }

    /// Adds pages that are in order, of so many bytes at most: `read` fills them. Answers the number of bytes; the last page may be a part of one.
    ///
    /// # Errors
    /// As [`page`](Self::page), or those of `read`: then the copy is of no use.
    pub fn fill(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let room = self.room()?;
        let len = bytes.min(room.len());
        read(&mut room[..len])?;
        for at in (0..len).step_by(PAGE) {
            self.put_here(PAGE.min(len - at));
        }
        Ok(len)
    }

    /// Adds those of whole pages that `read` fills, of so many at most, that are not zero: `each` gets their numbers among all that were read, whose number is answered.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    pub(crate) fn fill_unless_zero(
        &mut self,
        pages: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
        mut each: impl FnMut(usize),
    ) -> io::Result<usize> {
        let room = self.room()?;
        let pages = pages.min(room.len() / PAGE);
        let room = &mut room[..pages * PAGE];
        read(room)?;
        let mut kept = 0;
        for number in 0..pages {
            let page = number * PAGE..(number + 1) * PAGE;
            if is_zero(&room[page.clone()]) {
                continue;
            }
            if kept < number {
                room.copy_within(page, kept * PAGE);
            }
            each(number);
            kept += 1;
        }
        room[kept * PAGE..].fill(0);
        (0..kept).for_each(|_| self.put_here(PAGE));
        Ok(pages)
    }

    /// Memory for the next pages, one at least. What was never used is zero, which fills pages up.
    fn room(&mut self) -> io::Result<&mut [u8]> {
        let (chunk, at) = (self.fresh * PAGE / CHUNK_BYTES, self.fresh * PAGE % CHUNK_BYTES);
        if chunk == self.chunks.len() {
            let is_beyond = chunk >= IN_MEMORY_BYTES / CHUNK_BYTES;
            let beyond = self.beyond.as_mut().filter(|_| is_beyond);
            self.chunks.push(match beyond.and_then(Beyond::file) {
                Some(file) => Chunk::in_file(file, chunk - IN_MEMORY_BYTES / CHUNK_BYTES)?,
                None => Chunk::new(chunk > 0)?,
            });
        }
        let in_steps = chunk == 0 && !self.has_room;
        if in_steps && at.is_multiple_of(STEP_BYTES) {
            self.chunks[0].populate(at, STEP_BYTES);
        }
        let end = if in_steps { (at / STEP_BYTES + 1) * STEP_BYTES } else { CHUNK_BYTES };
        Ok(&mut self.chunks[chunk].bytes_mut()[at..end])
    }

    /// Its next page is here, or the last part of one.
    fn put_here(&mut self, len: usize) {
        self.fresh += 1;
        match self.rows.last_mut() {
            Some(Row::Here(pages)) => *pages += 1,
            _ => self.rows.push(Row::Here(1)),
        }
        self.paged(len);
    }

    /// Adds a page that an earlier image has, or the last part of one.
    pub fn known(&mut self, hash: u128, len: usize) {
        self.rows.push(Row::Known(hash));
        self.paged(len);
    }

    /// Adds whole pages that an earlier image has.
    pub fn all_known(&mut self, hashes: &'b [u128]) {
        let Some(others) = hashes.len().checked_sub(1) else { return };
        self.rows.push(Row::AllKnown(hashes));
        self.paged(PAGE);
        let bytes = others as u64 * PAGE_BYTES;
        self.pieces.last_mut().expect("the first one's").paged += bytes;
        self.len += bytes;
    }

    /// One of the pages that are here, by its number among them.
    pub(crate) fn here(&self, number: usize) -> &[u8] {
        let (chunk, at) = (number * PAGE / CHUNK_BYTES, number * PAGE % CHUNK_BYTES);
        &self.chunks[chunk].bytes()[at..at + PAGE]
    }

    fn paged(&mut self, len: usize) {
        assert!(0 < len && len <= PAGE, "a page");
        match self.pieces.last_mut() {
            // Nothing may follow a part of a page but bytes.
            Some(last) if last.paged.is_multiple_of(PAGE_BYTES) => last.paged += len as u64,
            _ => self.pieces.push(Piece { bytes: 0, paged: len as u64 }),
        }
        self.len += len as u64;
    }

    /// All pages, in order.
    pub fn each(&self) -> impl Iterator<Item = Page<'_>> {
        let mut here = self.chunks.iter().flat_map(|chunk| chunk.bytes().as_chunks::<PAGE>().0);
        let hashes = self.rows.iter().flat_map(|row| (0..row.pages()).map(|n| row.hash(n)));
        hashes.map(move |hash| match hash {
            None => Page::Here(here.next().expect("as many pages are here as the list says")),
            Some(hash) => Page::Known(hash),
        })
    }

    /// Reads it from its beginning. Fails at a page that is not here.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        let pieces = self.pieces.iter().copied().collect();
        Reader { bytes: &self.bytes, pieces, pages: Box::new(self.each()), page: &[] }
    }
}

/// Reads a copy whose pages are all here.
pub struct Reader<'a> {
    bytes: &'a [u8],
    pieces: std::collections::VecDeque<Piece>,
    pages: Box<dyn Iterator<Item = Page<'a>> + 'a>,
    /// What is left of a page.
    page: &'a [u8],
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.page.is_empty() {
            while self.pieces.front().is_some_and(|piece| *piece == Piece::default()) {
                self.pieces.pop_front();
            }
            let Some(piece) = self.pieces.front_mut() else { return Ok(0) };
            if piece.bytes > 0 {
                let n = out.len().min(usize::try_from(piece.bytes).unwrap_or(usize::MAX));
                let (now, later) = self.bytes.split_at(n);
                out[..n].copy_from_slice(now);
                self.bytes = later;
                piece.bytes -= n as u64;
                return Ok(n);
            }
            match self.pages.next() {
                Some(Page::Here(page)) => {
                    let len = piece.paged.min(PAGE_BYTES);
                    self.page = &page[..len as usize];
                    piece.paged -= len;
                }
                _ => return Err(io::Error::other("a page of it is only in an earlier image")),
            }
        }
        let n = out.len().min(self.page.len());
        let (now, later) = self.page.split_at(n);
        out[..n].copy_from_slice(now);
        self.page = later;
        Ok(n)
    }
}

/// Memory for the first pages of a copy, got before the server stands: to get it costs more than to fill it.
#[derive(Debug)]
pub struct Room(Vec<Chunk>);

impl Room {
    /// Gets it for so many pages, and some more: 8 MiB at least, and not more than copies keep in memory, as long as it is wanted.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(pages: usize, is_wanted: &mut dyn FnMut() -> bool) -> io::Result<Self> {
        let chunks = pages.div_ceil(CHUNK_BYTES / PAGE).clamp(1, IN_MEMORY_BYTES / CHUNK_BYTES);
        let mut room = Vec::new();
        while room.len() < chunks && (room.is_empty() || is_wanted()) {
            let mut chunk = Chunk::new(true)?;
            chunk.populate(0, CHUNK_BYTES);
            room.push(chunk);
        }
        Ok(Self(room))
    }

    /// The memory of a copy, for whole pages: it is not zero.
    pub(crate) fn of(copied: Copied<'_>) -> Self {
        Self(copied.chunks)
    }

    /// Whether it is not more than so many bytes need.
    pub(crate) const fn is_used_by(&self, bytes: u64) -> bool {
        self.0.len() as u64 <= bytes.div_ceil(CHUNK_BYTES as u64)
    }
}

/// [`CHUNK_BYTES`] of memory of its own: a fault for each page costs more than the copy of it.
#[derive(Debug)]
struct Chunk(NonNull<u8>);

// SAFETY: it owns its memory, as a box does.
unsafe impl Send for Chunk {}
// SAFETY: as above; it is changed through exclusive references only.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// `huge`: in huge pages, if there are some.
    fn new(huge: bool) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory of nothing.
        let at = unsafe { libc::mmap(ptr::null_mut(), CHUNK_BYTES, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: that memory. A kernel without huge pages refuses, which only costs time.
        unsafe { libc::madvise(at, CHUNK_BYTES, advice) };
        Ok(Self(NonNull::new(at.cast()).expect("no mapping is at 0")))
    }

    /// The same, in a file that nobody else has.
    fn in_file(file: &File, number: usize) -> io::Result<Self> {
        let at = (number * CHUNK_BYTES) as libc::off_t;
        // A page for which there is no room would end the process.
        nix::fcntl::posix_fallocate(file, at, CHUNK_BYTES as libc::off_t)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (kind, fd) = (libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: new memory of a part of the file that is there.
        let at = unsafe { libc::mmap(ptr::null_mut(), CHUNK_BYTES, access, kind, fd, at) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(NonNull::new(at.cast()).expect("no mapping is at 0")))
    }

    /// Gets a part of its memory before it is touched. Should that fail, the first touch of each page gets it.
    fn populate(&mut self, at: usize, bytes: usize) {
        assert!(at + bytes <= CHUNK_BYTES, "a part of it");
        // SAFETY: a part of this memory, whose content stays.
        unsafe { libc::madvise(self.0.as_ptr().add(at).cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped until this is dropped, and any bytes are valid.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), CHUNK_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the reference is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), CHUNK_BYTES) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), CHUNK_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_in_order() {
        let mut copied = Copied::new();
        let mut expected = vec![7; 10];
        copied.put(&[0; 10]);
        for n in 0..5000_u32 {
            let page = [(n % 251) as u8 + 1; PAGE];
            copied.page(&page).unwrap();
            expected.extend(page);
        }
        copied.page(&[9; 5]).unwrap();
        copied.page(&[8; 3]).unwrap();
        copied.put(b"end");
        copied.put_first(&[7; 10]);
        expected.extend([9; 5]);
        expected.extend([8; 3]);
        expected.extend(b"end");
        let mut found = Vec::new();
        copied.reader().read_to_end(&mut found).unwrap();
        assert!(found == expected && copied.len() == expected.len() as u64);
        assert_eq!((copied.fresh(), copied.pieces().len()), (5002, 3));
        assert_eq!(copied.pieces()[0], Piece { bytes: 10, paged: 5000 * PAGE_BYTES + 5 });
        assert!(copied.each().nth(5000).is_some_and(|page| page
            == Page::Here(&{
                let mut page = [0; PAGE];
                page[..5].fill(9);
                page
            })));
    }

    #[test]
    fn pages_are_filled_where_they_are() {
        filled(Copied::new());
        filled(Copied::new().with_room(Some(Room::new(1, &mut || false).unwrap())));
        filled(Copied::new().with_room(None));
    }

    fn filled(mut copied: Copied<'_>) {
        copied.page(&[1; PAGE]).unwrap();
        let mut left = CHUNK_BYTES + 7;
        while left > 0 {
            let fill = |room: &mut [u8]| {
                room.fill(2);
                Ok(())
            };
            left -= copied.fill(left, fill).unwrap();
        }
        assert_eq!((copied.fresh(), copied.len()), (2050, (PAGE + CHUNK_BYTES + 7) as u64));
        let mut bytes = Vec::new();
        copied.reader().read_to_end(&mut bytes).unwrap();
        assert!(bytes[..PAGE] == [1; PAGE] && bytes[PAGE..] == *vec![2; CHUNK_BYTES + 7]);
        assert_eq!(copied.here(2049)[7..], [0; PAGE - 7]);
        assert!(copied.fill(1, |_| Err(io::ErrorKind::Other.into())).is_err());
        assert_eq!(copied.fresh(), 2050);
    }

    #[test]
    fn pages_of_zeros_are_left_out_where_others_are_filled() {
        const PAGES: usize = 2 * CHUNK_BYTES / PAGE + 3;
        let of = |number: usize| if number.is_multiple_of(3) { 0 } else { number as u8 | 1 };
        let room = |pages| Some(Room::new(pages, &mut || true).unwrap());
        assert!(room(PAGES).is_some_and(|room| room.is_used_by(3 * CHUNK_BYTES as u64)));
        assert!(room(PAGES).is_some_and(|room| !room.is_used_by(2 * CHUNK_BYTES as u64)));
        for room in [None, room(1), room(PAGES)] {
            let mut copied = Copied::new().with_room(room);
            let (mut at, mut found) = (0, Vec::new());
            while at < PAGES {
                let read = |room: &mut [u8]| {
                    let pages = room.chunks_exact_mut(PAGE).enumerate();
                    pages.for_each(|(n, page)| page.fill(of(at + n)));
                    Ok(())
                };
                let read = copied.fill_unless_zero(PAGES - at, read, |n| found.push(at + n));
                at += read.unwrap();
            }
            let kept = (0..PAGES).filter(|number| of(*number) != 0);
            assert!(kept.eq(found.iter().copied()) && copied.fresh() == found.len());
            let all = copied.each().zip(found);
            all.for_each(|(page, number)| assert_eq!(page, Page::Here(&[of(number); PAGE])));
            // What is left of the room is zero.
            copied.page(&[7]).unwrap();
            let last = copied.here(copied.fresh() - 1);
            assert!(last[0] == 7 && is_zero(&last[1..]));
        }
    }

    #[test]
    fn what_is_much_is_in_a_file() {
        let file = tempfile::tempfile().unwrap();
        let mut copied = Copied::with_file(Beyond::Made(file.try_clone().unwrap()));
        let pages = (IN_MEMORY_BYTES + CHUNK_BYTES) / PAGE + 1;
        for n in 0..pages {
            copied.page(&(n as u64).to_le_bytes()).unwrap();
        }
        assert_eq!(file.metadata().unwrap().len(), 2 * CHUNK_BYTES as u64);
        for (n, page) in copied.each().enumerate() {
            let Page::Here(page) = page else { panic!("page {n}") };
            assert_eq!(page[..8], (n as u64).to_le_bytes());
        }
    }

    #[test]
    fn known_pages_are_added_together() {
        let (mut one, mut all) = (Copied::new(), Copied::new());
        for copied in [&mut one, &mut all] {
            copied.put(b"begin");
            copied.page(&[1; PAGE]).unwrap();
        }
        (5..9).for_each(|hash| one.known(hash, PAGE));
        all.all_known(&[5, 6, 7, 8]);
        all.all_known(&[]);
        assert_eq!((one.pieces(), one.len()), (all.pieces(), all.len()));
        assert!(one.each().eq(all.each()) && all.here(0) == [1; PAGE]);
    }

    #[test]
    fn a_page_that_is_elsewhere_is_not_read() {
        let mut copied = Copied::new();
        copied.known(5, PAGE);
        assert_eq!(copied.each().next(), Some(Page::Known(5)));
        assert!(copied.reader().read_to_end(&mut Vec::new()).is_err());
    }

    #[test]
    fn a_file_for_what_is_much_is_made_when_it_is_needed_and_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let mut beyond = Beyond::In(images.clone());
        assert!(!images.exists());
        beyond.file().expect("this file system has such files").set_len(1).unwrap();
        assert_eq!(images.read_dir().unwrap().count(), 0);
    }
}
