//! Copies a server's files into an image, while the server stands still.

use skein_image::{Copied, PAGE_BYTES};
use skein_sandbox::Packs;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;

/// Read at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// See the [module](self).
pub struct FilesCopied {
    copied: Copied,
    piece: Vec<u8>,
}

impl Default for FilesCopied {
    fn default() -> Self {
        Self { copied: Copied::new(), piece: vec![0; PIECE_BYTES as usize] }
    }
}

impl FilesCopied {
    /// All that was copied.
    #[must_use]
    pub fn finish(self) -> Copied {
        self.copied
    }
}

impl Packs for FilesCopied {
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
            for page in piece.chunks(PAGE_BYTES as usize) {
                self.copied.page(page)?;
            }
            at += piece.len() as u64;
        }
        Ok(())
    }
}
