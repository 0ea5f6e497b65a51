//! Copies the contents of a server's files, while the server stands still.

use crate::PAGE_BYTES;
use crate::before::Before;
use crate::contents::{Contents, Listed, Next, OneFile, Rewritten};
use crate::copied::{Beyond, Copied, Room, hash};
use crate::file_pages::Ahead;
use crate::layered::{About, Layered};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Read at a time.
const PIECE_BYTES: u64 = 256 << 10;
const PAGE: usize = PAGE_BYTES as usize;

/// Files of so many bytes are copied; of what is beyond, only what the image before has not. Hashing costs the server more time than copying, and memory
/// is bounded.
const COPIED_BYTES: usize = 256 << 20;

/// See the [module](self).
pub struct FilesCopied<'a> {
    copied: Copied<'a>,
    piece: Vec<u8>,
    before: Option<&'a Before>,
    listed: Listed<'a>,
    /// Until when the server stands for it.
    deadline: Option<Instant>,
}

impl<'a> FilesCopied<'a> {
    /// Nothing yet; `rewritten` is from [`crate::take::Taken`]. With a file for what is much memory is bounded in any case.
    #[must_use]
    pub fn new(
        before: Option<&'a Before>,
        ahead: Option<&'a Ahead>,
        rewritten: Rewritten,
        beyond: Option<Beyond>,
    ) -> Self {
        let listed = Before::list(before, ahead, rewritten);
        let copied = beyond.map_or_else(Copied::new, Copied::with_file);
        Self { copied, piece: Vec::new(), before, listed, deadline: None }
    }

    /// With memory for the first pages.
    #[must_use]
    pub fn with_room(self, room: Option<Room>) -> Self {
        Self { copied: self.copied.with_room(room), ..self }
    }

    /// With an end of the time for it: what takes longer fails.
    #[must_use]
    pub fn until(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// All that was copied, and which files those are.
    #[must_use]
    pub fn finish(self) -> (Copied<'a>, Contents) {
        (self.copied, self.listed.finish())
    }

    /// Reads a part of a file.
    fn read(&mut self, file: &File, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        while at < end {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let mib = (self.copied.fresh() * PAGE) >> 20;
                let why = format!("it took too long to read them; {mib} MiB were read");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            let len = (end - at).min(PIECE_BYTES) as usize;
            let has_files = self.before.is_some_and(Before::has_files);
            if !has_files || self.copied.fresh() < COPIED_BYTES / PAGE {
                at += self.copied.fill(len, |room| file.read_exact_at(room, at))? as u64;
                continue;
            }
            self.piece.resize(PIECE_BYTES as usize, 0);
            let piece = &mut self.piece[..len];
            file.read_exact_at(piece, at)?;
            for page in piece.chunks(PAGE) {
                // The hash of a part of a page is that of the page filled up with zeros.
                let known = self.before.filter(|_| page.len() == PAGE).and_then(|before| {
                    let hash = hash(page);
                    before.has_of_files(hash).then_some(hash)
                });
                match known {
                    Some(hash) => self.copied.known(hash, PAGE),
                    None => self.copied.page(page)?,
                }
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The pages of a file from one to another, all whole.
    fn pages(
        &mut self,
        file: &dyn Layered,
        about: &OneFile<'a>,
        from: u64,
        to: u64,
    ) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let pages = match self.listed.next(about, at, to) {
                Next::Known(hashes) => {
                    self.copied.all_known(hashes);
                    hashes.len() as u64
                }
                Next::Read(pages) => {
                    self.read(file.file()?, at * PAGE_BYTES, (at + pages) * PAGE_BYTES)?;
                    pages
                }
            };
            self.listed.put(about, at, pages);
            at += pages;
        }
        Ok(())
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

    /// Adds bytes that are in no file.
    pub fn put(&mut self, bytes: &[u8]) {
        self.copied.put(bytes);
    }

    /// Adds what is in a file from one position to another: there is no hole.
    ///
    /// # Errors
    /// It cannot be read, or there is no memory.
    pub fn contents(&mut self, file: &dyn Layered, start: u64, end: u64) -> io::Result<()> {
        if !start.is_multiple_of(PAGE_BYTES) {
            self.read(file.file()?, start, end)?;
            self.listed.put(&OneFile::default(), 0, (end - start).div_ceil(PAGE_BYTES));
            return Ok(());
        }
        let about = self.listed.begin(file);
        let whole = end / PAGE_BYTES;
        self.pages(file, &about, start / PAGE_BYTES, whole)?;
        if whole * PAGE_BYTES < end {
            self.read(file.file()?, whole * PAGE_BYTES, end)?;
            self.listed.put(&about, whole, 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plain;
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn what_takes_too_long_fails_by_a_line() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * PAGE]).unwrap();
        let file = Plain::new(file).unwrap();
        let read = |deadline| {
            let mut copied =
                FilesCopied::new(None, None, Rewritten::default(), None).until(deadline);
            copied.contents(&file, 0, 3 * PAGE_BYTES).map(|()| copied.finish().0.fresh())
        };
        let now = Instant::now();
        assert_eq!(read(now + Duration::from_secs(600)).unwrap(), 3);
        let error = read(now).unwrap_err();
        assert_eq!(error.to_string(), "it took too long to read them; 0 MiB were read");
    }
}
