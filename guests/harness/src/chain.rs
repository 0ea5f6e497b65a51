//! Images in a row of one guest, each of what changed since the one before.

use crate::sys;
use skein_image::before::Before;
use skein_image::contents::{Contents, Rewritten};
use skein_image::copied::{Page, hash};
use skein_image::precopy::Precopied;
use skein_image::shared::SharedAhead;
use skein_image::take::{Figures, Taken};
use skein_image::{About, Copied, FilesCopied, MemoryError, Plain};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// How a guest's memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Pages that the kernel says were written since the image before.
    Watched,
    /// As [`Watched`](Self::Watched), when as many of them as possible were read while the guest went on.
    Precopied,
    /// All, and those are left out that are as they were.
    Compared,
    /// All, and there is no image before.
    Whole,
    /// As [`Watched`](Self::Watched), from copies of its processes, while the guest could go on. In the sandbox.
    Forked,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Chain {
    before: Option<Before>,
    /// What was read of the guest's memory since.
    precopied: Precopied,
    /// The same of what its processes share.
    shared: Option<SharedAhead>,
    /// All pages of the images so far, by their hashes.
    pages: HashMap<u128, Box<[u8; 4096]>>,
    /// The pages that the last image had itself.
    pub fresh: usize,
    /// The pages that were read before it.
    pub read_before: usize,
    /// The pages of files that the last image had from one before.
    pub known: usize,
}

impl Chain {
    /// Takes the image before away: without another one, the next is read as a whole.
    pub const fn take_before(&mut self) -> Option<Before> {
        self.before.take()
    }

    /// Takes away what was read of what the guest's processes share.
    pub const fn take_shared(&mut self) -> Option<SharedAhead> {
        self.shared.take()
    }

    /// The image before.
    #[must_use]
    pub const fn before(&self) -> Option<&Before> {
        self.before.as_ref()
    }

    /// Reads memory of the guest, whose processes are below `init`, while it does something else.
    ///
    /// # Errors
    /// The image before does not count any more.
    pub fn precopy_beside<T>(
        &mut self,
        (init, arena): (u32, &File),
        other: impl FnOnce() -> T,
    ) -> Result<T, MemoryError> {
        let before = self.before.get_or_insert_default();
        let (precopied, shared) = (&mut self.precopied, &mut self.shared);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let is_wanted = &mut || !is_over.load(Ordering::Relaxed);
                while is_wanted() {
                    precopied.read(init, before, is_wanted)?;
                    // It takes off what protects pages.
                    drop(shared.take());
                    let all = &mut || true;
                    *shared = SharedAhead::read(arena, init, before, 0, &mut None, all);
                }
                Ok(())
            });
            let done = other();
            is_over.store(true, Ordering::Relaxed);
            thread.join().unwrap_or_else(|panic| resume_unwind(panic)).map(|()| done)
        })
    }

    /// The restore file of an image, with the pages that it shares with those `before`. The contents of the guest's own files at `paths` below `root` are what they are found to be in an image.
    ///
    /// # Errors
    /// There is no memory for it, a page is nowhere, or one of a file is an old one.
    pub fn file(
        &mut self,
        taken: Taken<'_>,
        before: Option<&Before>,
        root: BorrowedFd<'_>,
        paths: &BTreeSet<PathBuf>,
    ) -> io::Result<(File, Figures)> {
        let Taken { copied, figures, places, rewritten } = taken;
        let mut hashes = Vec::new();
        for page in copied.each() {
            hashes.push(match page {
                Page::Known(hash) => {
                    if let Some(page) = self.precopied.get(hash) {
                        self.pages.insert(hash, Box::new(*page));
                    }
                    hash
                }
                Page::Here(page) => {
                    let hash = hash(page);
                    self.pages.insert(hash, Box::new(*page));
                    hash
                }
            });
        }
        self.fresh = copied.fresh();
        self.read_before = std::mem::take(&mut self.precopied).pages();
        let mut file = sys::memfd(c"image")?;
        self.write(&copied, &hashes, &mut file)?;
        let (of_files, contents) = self.files(rewritten, before, root, paths)?;
        self.before = Some(places.with(hashes, of_files, contents));
        Ok((file, figures))
    }

    /// The pages of the guest's own files, by their hashes.
    fn files(
        &mut self,
        rewritten: Rewritten,
        before: Option<&Before>,
        root: BorrowedFd<'_>,
        paths: &BTreeSet<PathBuf>,
    ) -> io::Result<(Vec<u128>, Contents)> {
        let root = Path::new("/proc/self/fd").join(root.as_raw_fd().to_string());
        let mut own = Vec::new();
        for path in paths.iter().filter_map(|path| path.strip_prefix("/").ok()) {
            let path = root.join(path);
            // What is gone, or another's, is not in an image.
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_file() && rewritten.is_own(&About::from(&about)) {
                let file = Plain::new(File::open(&path)?)?;
                own.push((fs::read(&path)?, path, file));
            }
        }
        let mut files = FilesCopied::new(before, None, rewritten, None);
        for (bytes, _, file) in &own {
            files.contents(file, 0, bytes.len() as u64)?;
        }
        let (copied, contents) = files.finish();
        self.known = copied.each().filter(|page| matches!(page, Page::Known(_))).count();
        let pages = own
            .iter()
            .flat_map(|(bytes, path, _)| bytes.chunks(4096).map(move |page| (path, page)));
        let mut hashes = Vec::new();
        for (found, (path, page)) in copied.each().zip(pages) {
            let mut whole = [0; 4096];
            whole[..page.len()].copy_from_slice(page);
            let found = match found {
                Page::Known(hash) => hash,
                Page::Here(page) => hash(page),
            };
            if found != hash(&whole) {
                let why = format!("the image has an old page of {}", path.display());
                return Err(io::Error::other(why));
            }
            hashes.push(found);
        }
        Ok((hashes, contents))
    }

    fn write(&self, copied: &Copied<'_>, hashes: &[u128], file: &mut File) -> io::Result<()> {
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
