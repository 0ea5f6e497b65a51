//! A server's files on their way into an image, while the server stands still.

use skein_image::FilesCopied;
use skein_image::ahead::Survey;
use skein_sandbox::Packs;
use std::fs::{File, Metadata};
use std::io;

/// See the [module](self).
pub struct FilesPacked<'a>(pub FilesCopied<'a>);

impl Packs for FilesPacked<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.put(bytes);
        Ok(())
    }

    fn keeps_contents(&self) -> bool {
        true
    }

    fn contents(&mut self, file: &File, about: &Metadata, start: u64, end: u64) -> io::Result<()> {
        self.0.contents(file, about, start, end)
    }
}

/// Only looked through, for what is to be read ahead.
pub struct FilesSurveyed<'a>(pub Survey<'a>);

impl Packs for FilesSurveyed<'_> {
    fn bytes(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn keeps_contents(&self) -> bool {
        true
    }

    fn contents(&mut self, file: &File, about: &Metadata, start: u64, end: u64) -> io::Result<()> {
        self.0.contents(file, about, start, end)
    }
}
