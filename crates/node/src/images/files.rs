//! A server's files on their way into an image, while the server stands still.

use skein_image::ahead::Survey;
use skein_image::{About, FilesCopied, Layered};
use skein_sandbox::{Content, Packs, Shown};
use std::fs::File;
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

    fn follows(&self, shown: &Shown) -> Option<(u64, u64)> {
        self.0.follows(&about(shown))
    }

    fn written(&self, number: u64, noted: u64) -> Option<Vec<(u64, u64)>> {
        self.0.written(number, noted)
    }

    fn contents(&mut self, content: &Content<'_>, start: u64, end: u64) -> io::Result<()> {
        self.0.contents(&InLayer(content), start, end)
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

    fn follows(&self, shown: &Shown) -> Option<(u64, u64)> {
        self.0.follows(&about(shown))
    }

    fn written(&self, number: u64, noted: u64) -> Option<Vec<(u64, u64)>> {
        self.0.written(number, noted)
    }

    fn contents(&mut self, content: &Content<'_>, start: u64, end: u64) -> io::Result<()> {
        self.0.contents(&InLayer(content), start, end);
        Ok(())
    }
}

/// A file as both crates know it.
struct InLayer<'a>(&'a Content<'a>);

impl Layered for InLayer<'_> {
    fn id(&self) -> (u64, u64) {
        self.0.id()
    }

    fn about(&self) -> About {
        about(&self.0.shown())
    }

    fn file(&self) -> io::Result<&File> {
        self.0.file()
    }
}

/// What the server's mounts show of a file.
pub const fn about(shown: &Shown) -> About {
    About { id: shown.id, accessed: shown.accessed, changed: shown.changed }
}
