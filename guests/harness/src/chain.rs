//! Images in a row of one guest, each of what changed since the one before.

use crate::sys;
use skein_image::Copied;
use skein_image::before::Before;
use skein_image::copied::{Page, hash};
use skein_image::take::{Figures, Taken};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};

/// How a guest's memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Pages that the kernel says were written since the image before.
    Watched,
    /// All, and those are left out that are as they were.
    Compared,
    /// All, and there is no image before.
    Whole,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Chain {
    before: Option<Before>,
    /// All pages of the images so far, by their hashes.
    pages: HashMap<u128, Box<[u8; 4096]>>,
    /// The pages that the last image had itself.
    pub fresh: usize,
}

impl Chain {
    /// The image before.
    #[must_use]
    pub const fn before(&self) -> Option<&Before> {
        self.before.as_ref()
    }

    /// The restore file of an image, with the pages that it shares with those before.
    ///
    /// # Errors
    /// There is no memory for it, or a page is nowhere.
    pub fn file(&mut self, taken: Taken) -> io::Result<(File, Figures)> {
        let Taken { copied, figures, places } = taken;
        let mut hashes = Vec::new();
        for page in copied.each() {
            hashes.push(match page {
                Page::Known(hash) => hash,
                Page::Here(page) => {
                    let hash = hash(page);
                    self.pages.insert(hash, Box::new(*page));
                    hash
                }
            });
        }
        self.fresh = copied.fresh();
        let mut file = sys::memfd(c"image")?;
        self.write(&copied, &hashes, &mut file)?;
        self.before = Some(places.with(hashes, Vec::new()));
        Ok((file, figures))
    }

    fn write(&self, copied: &Copied, hashes: &[u128], file: &mut File) -> io::Result<()> {
        let (mut bytes, mut hashes) = (copied.bytes(), hashes.iter());
        for piece in copied.pieces() {
            let (now, later) = bytes.split_at(piece.bytes as usize);
            file.write_all(now)?;
            bytes = later;
            for hash in hashes.by_ref().take(piece.pages() as usize) {
                let page = self.pages.get(hash);
                file.write_all(&page.ok_or_else(|| io::Error::other("a page is nowhere"))?[..])?;
            }
        }
        Ok(())
    }
}
