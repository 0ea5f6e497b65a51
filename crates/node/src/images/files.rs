//! Copies a server's files into an image, while the server stands still.

use skein_image::before::Before;
use skein_image::copied::hash;
use skein_image::{Copied, PAGE_BYTES};
use skein_sandbox::Packs;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;

/// Read at a time.
const PIECE_BYTES: u64 = 256 << 10;
const PAGE: usize = PAGE_BYTES as usize;

/// Files of so many bytes are copied; of what is beyond, only what the image before has not. Hashing costs the server more time than copying, and memory
/// is bounded.
const COPIED_BYTES: usize = 256 << 20;

/// See the [module](self).
pub struct FilesCopied<'a> {
    copied: Copied,
    piece: Vec<u8>,
    before: Option<&'a Before>,
}

impl<'a> FilesCopied<'a> {
    /// Nothing yet.
    #[must_use]
    pub fn new(before: Option<&'a Before>) -> Self {
        Self { copied: Copied::new(), piece: vec![0; PIECE_BYTES as usize], before }
    }

    /// All that was copied.
    #[must_use]
    pub fn finish(self) -> Copied {
        self.copied
    }
}

impl Packs for FilesCopied<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.copied.put(bytes);
        Ok(())
    }

    fn keeps_contents(&self) -> bool {
        true
    }

    fn contents(&mut self, file: &File, _: &Metadata, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let piece = &mut self.piece[..(end - at).min(PIECE_BYTES) as usize];
            file.read_exact_at(piece, at)?;
            for page in piece.chunks(PAGE) {
                let many = self.copied.fresh() >= COPIED_BYTES / PAGE;
                // The hash of a part of a page is that of the page filled up with zeros.
                let known = self.before.filter(|_| many && page.len() == PAGE).and_then(|before| {
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
}
