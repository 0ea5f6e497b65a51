//! A pack: pages that one image has written, for itself and for those after it.
//!
//! ```text
//! head      magic, version
//! blocks    zstd of 64 pages each, the last one of fewer
//! index     per block its end, u64; per page the hash of its content, 128 bits
//! trailer   magic, number of pages, XXH3 (128 bits) of all bytes before it
//! ```
//!
//! Numbers are little-endian. A pack is never changed. Its digest is its name, so images name packs by what they hold, and a pack of one replica is the same on
//! another. The file's digest is XXH3: replicas trust each other, so what is to be found is rot. Pages have a cryptographic hash, since their contents are strangers'.

use crate::copied::hash;
use crate::form::{ImageError, PAGE_BYTES, PIECE_BYTES, field};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// `skeinpck` and the version.
const HEAD: [u8; 12] = *b"skeinpck\x01\0\0\0";
/// Of the trailer.
const END: [u8; 8] = *b"skeinpke";
const TRAILER_BYTES: usize = 8 + 8 + 16;
/// Pages that are compressed together: 256 KiB. To read one costs 64.
const BLOCK_PAGES: usize = 64;
const PAGE: usize = PAGE_BYTES as usize;
/// The most pages of a pack: 16 TiB of memory.
const MAX_PAGES: u64 = 1 << 32;
/// Of zstd: fast, and four to five times smaller than memory is.
pub(crate) const LEVEL: i32 = 1;

/// A pack's name: what it holds, and the length of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId {
    /// XXH3 of all bytes before the trailer's digest.
    pub digest: u128,
    /// The length of the file.
    pub bytes: u64,
}

impl PackId {
    /// Its file in a directory of images.
    #[must_use]
    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("pack-{:032x}", self.digest))
    }
}

/// Writes a pack.
pub struct PackWriter<'a> {
    out: &'a mut dyn Write,
    hash: Xxh3,
    bytes: u64,
    block: Vec<u8>,
    ends: Vec<u64>,
    hashes: Vec<u128>,
    compressor: zstd::bulk::Compressor<'static>,
}

impl<'a> PackWriter<'a> {
    /// Into an empty file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        let (block, hash) = (Vec::with_capacity(BLOCK_PAGES * PAGE), Xxh3::new());
        let compressor = zstd::bulk::Compressor::new(LEVEL)?;
        let (ends, hashes) = (Vec::new(), Vec::new());
        let mut writer = Self { out, hash, bytes: 0, block, ends, hashes, compressor };
        writer.put(&HEAD)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// The number of its pages so far.
    #[must_use]
    pub fn pages(&self) -> u32 {
        // A pack has at most as many pages as its images' tables can name.
        self.hashes.len() as u32
    }

    /// Adds a page with this hash; answers its place.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn page(&mut self, page: &[u8; PAGE], hash: u128) -> io::Result<u32> {
        let place = self.pages();
        if place == u32::MAX {
            return Err(io::Error::other("an image has more than 16 TiB"));
        }
        self.block.extend_from_slice(page);
        self.hashes.push(hash);
        if self.block.len() == BLOCK_PAGES * PAGE {
            self.end_block()?;
        }
        Ok(place)
    }

    fn end_block(&mut self) -> io::Result<()> {
        let compressed = self.compressor.compress(&self.block)?;
        self.block.clear();
        self.put(&compressed)?;
        self.ends.push(self.bytes);
        Ok(())
    }

    /// Writes the rest; answers the pack's name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<PackId> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        let (ends, hashes) = (std::mem::take(&mut self.ends), std::mem::take(&mut self.hashes));
        let mut index = Vec::with_capacity(ends.len() * 8 + hashes.len() * 16);
        ends.iter().for_each(|end| index.extend(end.to_le_bytes()));
        hashes.iter().for_each(|hash| index.extend(hash.to_le_bytes()));
        index.extend(END);
        index.extend((hashes.len() as u64).to_le_bytes());
        self.put(&index)?;
        let digest = self.hash.digest128();
        self.out.write_all(&digest.to_le_bytes())?;
        self.out.flush()?;
        Ok(PackId { digest, bytes: self.bytes + 16 })
    }
}

/// Where a pack's blocks end, and the hashes of its pages.
struct Index {
    ends: Vec<u64>,
    hashes: Vec<u128>,
}

impl Index {
    /// That of a file of this length, which is to be this pack.
    fn read(file: &impl FileExt, bytes: u64, id: PackId, path: &Path) -> Result<Self, ImageError> {
        let failed = ImageError::reading(path);
        let damaged = |why: &str| ImageError::damaged(path, why);
        if bytes != id.bytes || bytes < (HEAD.len() + TRAILER_BYTES) as u64 {
            return Err(damaged("it has another length than its image says"));
        }
        let mut trailer = [0; TRAILER_BYTES];
        let trailer_at = bytes - TRAILER_BYTES as u64;
        file.read_exact_at(&mut trailer, trailer_at).map_err(&failed)?;
        let mut head = [0; HEAD.len()];
        file.read_exact_at(&mut head, 0).map_err(&failed)?;
        let pages = u64::from_le_bytes(field(&trailer, 8));
        let is_own = u128::from_le_bytes(field(&trailer, 16)) == id.digest;
        if head != HEAD || trailer[..8] != END || !is_own || pages > MAX_PAGES {
            return Err(damaged("it is no pack of pages, or another one"));
        }
        let blocks = pages.div_ceil(BLOCK_PAGES as u64);
        let index_bytes = blocks * 8 + pages * 16;
        if index_bytes > trailer_at - HEAD.len() as u64 {
            return Err(damaged("it has no room for its index"));
        }
        let mut index = vec![0; index_bytes as usize];
        file.read_exact_at(&mut index, trailer_at - index_bytes).map_err(&failed)?;
        let (ends, hashes) = index.split_at(blocks as usize * 8);
        let ends: Vec<u64> =
            ends.as_chunks().0.iter().map(|end| u64::from_le_bytes(*end)).collect();
        let hashes = hashes.as_chunks().0.iter().map(|hash| u128::from_le_bytes(*hash)).collect();
        let first = HEAD.len() as u64;
        let starts = std::iter::once(&first).chain(&ends);
        let in_order = starts.zip(&ends).all(|(start, end)| start < end);
        if !in_order || ends.last().is_some_and(|end| *end > trailer_at - index_bytes) {
            return Err(damaged("its index is none"));
        }
        Ok(Self { ends, hashes })
    }
}

/// A pack that can be read.
pub struct Pack {
    id: PackId,
    path: PathBuf,
    file: Arc<File>,
    index: Arc<Index>,
    /// The number of the block that was read last, and its pages.
    block: (usize, Vec<u8>),
    compressed: Vec<u8>,
    unpacker: zstd::bulk::Decompressor<'static>,
    /// All of it was compared with its checksum: its pages need not be.
    is_verified: bool,
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pack").field(&self.path).finish()
    }
}

impl Pack {
    /// Opens the pack with this name, and reads its index.
    ///
    /// # Errors
    /// It is missing or damaged.
    pub fn open(dir: &Path, id: PackId) -> Result<Self, ImageError> {
        Self::of(id.path(dir), id)
    }

    /// Reads all of a file that is to be this pack.
    ///
    /// # Errors
    /// It is another one, or damaged.
    pub fn check(path: &Path, id: PackId) -> Result<(), ImageError> {
        Self::of(path.to_owned(), id)?.verify()
    }

    fn of(path: PathBuf, id: PackId) -> Result<Self, ImageError> {
        let failed = ImageError::reading(&path);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = "an image's pages were in this file, which is gone";
                return Err(ImageError::damaged(&path, why));
            }
            file => file.map_err(&failed)?,
        };
        let bytes = file.metadata().map_err(&failed)?.len();
        let index = Arc::new(Index::read(&file, bytes, id, &path)?);
        Self::with(id, path.clone(), Arc::new(file), index, false).map_err(ImageError::io(&path))
    }

    fn with(
        id: PackId,
        path: PathBuf,
        file: Arc<File>,
        index: Arc<Index>,
        is_verified: bool,
    ) -> io::Result<Self> {
        let unpacker = zstd::bulk::Decompressor::new()?;
        let (block, compressed) = ((usize::MAX, Vec::new()), Vec::new());
        Ok(Self { id, path, file, index, block, compressed, unpacker, is_verified })
    }

    /// The same pack for another thread.
    ///
    /// # Errors
    /// There is no memory.
    pub fn again(&self) -> Result<Self, ImageError> {
        let (path, file, index) = (self.path.clone(), self.file.clone(), self.index.clone());
        Self::with(self.id, path, file, index, self.is_verified).map_err(ImageError::io(&self.path))
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> PackId {
        self.id
    }

    /// The hashes of its pages, by their places.
    #[must_use]
    pub fn hashes(&self) -> &[u128] {
        &self.index.hashes
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// It is not as it was written, or cannot be read.
    pub fn verify(&mut self) -> Result<(), ImageError> {
        let mut hash = Xxh3::new();
        let mut piece = vec![0; PIECE_BYTES];
        let (mut at, before) = (0, self.id.bytes - 16);
        while at < before {
            let part = piece.len().min((before - at) as usize);
            let read = self.file.read_exact_at(&mut piece[..part], at);
            read.map_err(ImageError::reading(&self.path))?;
            hash.update(&piece[..part]);
            at += part as u64;
        }
        self.is_verified = hash.digest128() == self.id.digest;
        if self.is_verified {
            Ok(())
        } else {
            Err(ImageError::damaged(&self.path, "its checksum does not fit"))
        }
    }

    /// Reads a page, which is compared with its hash unless all of the pack was [verified](Self::verify). Those behind it are there already.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    pub fn page(&mut self, place: u32) -> Result<&[u8; PAGE], ImageError> {
        let pages = self.pages(place, 1)?;
        Ok(pages.first_chunk().expect("as many pages were asked for"))
    }

    /// The same of `count` pages or fewer, at least one: those that are compressed together.
    ///
    /// # Errors
    /// As for [`page`](Self::page).
    pub fn pages(&mut self, place: u32, count: u32) -> Result<&[u8], ImageError> {
        let first = place as usize;
        let damaged = |why: &dyn std::fmt::Display| ImageError::damaged(&self.path, why);
        let Index { ends, hashes } = &*self.index;
        let block = first / BLOCK_PAGES;
        let end = hashes.len().min(first + count as usize).min((block + 1) * BLOCK_PAGES);
        let Some(expected) = hashes.get(first..end).filter(|pages| !pages.is_empty()) else {
            return Err(damaged(&"an image names a page that it has not got"));
        };
        if self.block.0 != block {
            let start = block.checked_sub(1).map_or(HEAD.len() as u64, |before| ends[before]);
            self.compressed.resize((ends[block] - start) as usize, 0);
            let read = self.file.read_exact_at(&mut self.compressed, start);
            read.map_err(ImageError::reading(&self.path))?;
            self.block.0 = usize::MAX;
            self.block.1.resize(BLOCK_PAGES * PAGE, 0);
            let unpacked =
                self.unpacker.decompress_to_buffer(&self.compressed, &mut self.block.1[..]);
            self.block.1.truncate(unpacked.map_err(|error| damaged(&error))?);
            self.block.0 = block;
        }
        let at = first % BLOCK_PAGES * PAGE;
        let pages = self.block.1.get(at..at + expected.len() * PAGE);
        let are_whole = |pages: &&[u8]| {
            self.is_verified
                || pages.chunks_exact(PAGE).zip(expected).all(|(page, is)| hash(page) == *is)
        };
        pages
            .filter(are_whole)
            .ok_or_else(|| ImageError::damaged(&self.path, "a page of it is not what was written"))
    }

    /// The first place behind this one whose page is not compressed together with it.
    pub(crate) const fn next_block(place: u32) -> u32 {
        (place / BLOCK_PAGES as u32 + 1).saturating_mul(BLOCK_PAGES as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn page(n: u32) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page.as_chunks_mut().0[..700].fill(n.to_le_bytes());
        page
    }

    fn written(dir: &Path, pages: u32) -> PackId {
        let mut bytes = Vec::new();
        let mut writer = PackWriter::new(&mut bytes).unwrap();
        for n in 0..pages {
            assert_eq!(writer.page(&page(n), hash(&page(n))).unwrap(), n);
        }
        let id = writer.finish().unwrap();
        assert_eq!(id.bytes, bytes.len() as u64);
        fs::write(id.path(dir), bytes).unwrap();
        id
    }

    #[test]
    fn pages_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        for pages in [0, 1, 63, 64, 65, 1000] {
            let id = written(dir.path(), pages);
            let mut pack = Pack::open(dir.path(), id).unwrap();
            pack.verify().unwrap();
            assert_eq!(pack.hashes().len(), pages as usize);
            for n in (0..pages).rev() {
                assert_eq!(pack.page(n).unwrap(), &page(n));
            }
            assert!(pack.page(pages).unwrap_err().is_damage());
            let (mut found, mut again) = (0, pack.again().unwrap());
            while found < pages {
                let together = again.pages(found, u32::MAX).unwrap().as_chunks::<PAGE>().0;
                assert!(together.iter().zip(found..).all(|(is, n)| *is == page(n)));
                found += together.len() as u32;
                assert_eq!(found, pages.min(Pack::next_block(found - 1)));
            }
        }
    }

    #[test]
    fn an_index_that_the_disk_cannot_read_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let id = written(dir.path(), 3);
        let path = id.path(dir.path());
        let whole = fs::read(&path).unwrap();
        let read = |lost| {
            let disk = crate::form::Rotten { bytes: whole.clone(), lost };
            Index::read(&disk, id.bytes, id, &path)
        };
        assert_eq!(read(u64::MAX).unwrap().hashes.len(), 3);
        let index = id.bytes - TRAILER_BYTES as u64 - 1;
        for lost in [0, index, id.bytes - 1] {
            assert!(read(lost).err().unwrap().is_damage(), "byte {lost}");
        }
    }

    #[test]
    fn no_changed_byte_and_no_missing_end_goes_unseen() {
        let dir = tempfile::tempdir().unwrap();
        let id = written(dir.path(), 3);
        let path = id.path(dir.path());
        let whole = fs::read(&path).unwrap();
        let open = || {
            let mut pack = Pack::open(dir.path(), id)?;
            pack.verify()
        };
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(open().unwrap_err().is_damage(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(open().unwrap_err().is_damage(), "cut at {at}");
        }
        fs::remove_file(&path).unwrap();
        assert!(open().unwrap_err().is_damage(), "it is gone");
        fs::write(&path, &whole).unwrap();
        open().unwrap();
    }
}
