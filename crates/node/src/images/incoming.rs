//! An image that another replica sends, in parts: its file, and behind that its packs in order, as if all were one file. What is here already is skipped.
//!
//! All is written into files of their own, whose names have their digests: so a later try, also in another life of the node, goes on behind what is there, and
//! never behind another image's bytes. Only whole files are believed, after all of them was read and compared. Lengths are those that another replica says: one
//! that does not fit the others is damage.

use super::packs::Pinned;
use super::store::Store;
use super::write::SYNC_BYTES;
use crate::base::room::free;
use skein_image::file::{self, ImageError};
use skein_image::pack::{Pack, PackId};
use skein_log::disk::durable;
use skein_replica::environment::{Image, ImageFile};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) const INCOMING: &str = "incoming";

/// See the [module](self).
#[derive(Debug)]
pub struct Incoming {
    store: Store,
    expected: ImageFile,
    /// The image's own file.
    path: PathBuf,
    /// The packs that it needs, once so much of it has come.
    packs: Option<Vec<PackId>>,
    /// They stay meanwhile.
    pinned: Option<Pinned>,
    /// The next byte.
    at: u64,
    /// Bytes that were written since the last sync.
    unsynced: u64,
}

/// The state after bytes have come.
#[derive(Debug)]
pub enum Progress {
    /// So many are there.
    Has(u64),
    /// All of it, durable and whole.
    Whole(Image),
}

impl Incoming {
    /// Begins to receive this image, or goes on. Files of other images that were not received to their end are removed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(store: &Store, expected: ImageFile) -> Result<Self, ImageError> {
        let name = format!("image-{}-{:032x}.{INCOMING}", expected.index, expected.digest);
        let path = store.dir().join(name);
        let failed = ImageError::io(store.dir());
        store.make_dir()?;
        for entry in fs::read_dir(store.dir()).map_err(&failed)? {
            let other = entry.map_err(&failed)?.path();
            let is_image = other
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"image-"));
            if is_image
                && other != path
                && other.extension().is_some_and(|ending| ending == INCOMING)
            {
                durable::remove(&other).map_err(ImageError::io(&other))?;
            }
        }
        store.collect()?;
        let store = store.clone();
        let mut incoming =
            Self { store, expected, path, packs: None, pinned: None, at: 0, unsynced: 0 };
        append(&incoming.path)?;
        if let Err(error) = incoming.look() {
            incoming.give_up(&error);
            return Err(error);
        }
        Ok(incoming)
    }

    /// The image that is received.
    #[must_use]
    pub const fn expected(&self) -> ImageFile {
        self.expected
    }

    /// Takes bytes from a position on; those that are here, or are not the next ones, are left out. None: looks at what is there.
    ///
    /// # Errors
    /// They cannot be written, or a whole file is not the expected one: then nothing of it stays, nor where there is no room: the log needs that.
    pub fn take(&mut self, from: u64, bytes: &[u8]) -> Result<Progress, ImageError> {
        let taken = self.put(from, bytes).and_then(|()| {
            if self.at < self.expected.bytes {
                Ok(Progress::Has(self.at))
            } else {
                self.finish().map(Progress::Whole)
            }
        });
        if let Err(error) = &taken
            && (error.is_damage() || matches!(error, ImageError::DiskFull { .. }))
        {
            self.give_up(error);
        }
        taken
    }

    /// The next try begins anew, and gets the packs that were damaged here.
    fn give_up(&mut self, error: &ImageError) {
        if error.is_damage()
            && let Err(error) = self.store.set_aside_all_of(&self.path)
        {
            tracing::warn!(event = "packs_not_set_aside", %error);
        }
        // The try has failed already, for a reason that is told.
        let _ = durable::remove(&self.path);
        self.pinned = None;
        self.store.try_to_collect();
    }

    fn put(&mut self, from: u64, given: &[u8]) -> Result<(), ImageError> {
        // Parts that were asked for before it was known what is here: the next bytes may be in the midst of one, and do not come again.
        let known = self.at.checked_sub(from).and_then(|n| usize::try_from(n).ok());
        let Some(given) = known.and_then(|n| given.get(n..)) else { return Ok(()) };
        let from = self.at;
        let mut bytes = given;
        if bytes.len() as u64 > self.expected.bytes - from {
            return Err(self.damaged("more has come than its length"));
        }
        // A part may be the end of one file and the beginning of the next.
        while !bytes.is_empty() {
            let (path, end) = self.next();
            let most = bytes.len().min(usize::try_from(end - self.at).unwrap_or(usize::MAX));
            let mut out = append(&path)?;
            let there = out.metadata().map_err(ImageError::io(&path))?.len();
            if let Err(error) = out.write_all(&bytes[..most]) {
                // What was written of them is not counted.
                let _ = out.set_len(there);
                return Err(ImageError::io(&path)(error));
            }
            self.unsynced += most as u64;
            if self.unsynced >= SYNC_BYTES as u64 {
                // With little memory there is no room for more that waits for the disk.
                out.sync_data().map_err(ImageError::io(&path))?;
                self.unsynced = 0;
            }
            let written = self.at + most as u64;
            let knew = self.packs.is_some();
            self.at = written;
            bytes = &bytes[most..];
            if !knew || written == end {
                self.look()?;
            }
            // More of it is here already; or it was the beginning of a pack, which is known only now, and is cut off again.
            match self.at.checked_sub(written) {
                Some(more) => bytes = bytes.get(more as usize..).unwrap_or(&[]),
                None => {
                    let again = self.at.checked_sub(from).and_then(|n| given.get(n as usize..));
                    let again = again.ok_or_else(|| self.damaged("its lengths do not fit"))?;
                    return self.put(self.at, again);
                }
            }
        }
        Ok(())
    }

    /// The file that the next byte belongs to, and the position of its end.
    fn next(&self) -> (PathBuf, u64) {
        let Some(packs) = &self.packs else { return (self.path.clone(), self.expected.bytes) };
        let mut end = self.own_bytes(packs);
        if self.at < end {
            return (self.path.clone(), end);
        }
        for pack in packs {
            end += pack.bytes;
            if self.at < end {
                return (self.part(*pack), end);
            }
        }
        (self.path.clone(), self.expected.bytes)
    }

    fn damaged(&self, why: &str) -> ImageError {
        ImageError::Damaged { path: self.path.clone(), why: why.into() }
    }

    /// The length of the image's own file.
    fn own_bytes(&self, packs: &[PackId]) -> u64 {
        self.expected.bytes.saturating_sub(packs.iter().map(|pack| pack.bytes).sum())
    }

    fn part(&self, pack: PackId) -> PathBuf {
        pack.path(self.store.dir()).with_extension(INCOMING)
    }

    /// Finds out which byte is the next one that is not here.
    fn look(&mut self) -> Result<(), ImageError> {
        let bytes = fs::metadata(&self.path).map_err(ImageError::io(&self.path))?.len();
        if bytes > self.expected.bytes {
            return Err(self.damaged("it is longer than the other replica said"));
        }
        if self.packs.is_none() {
            let packs = file::packs_of(&self.path)?;
            let sum: u64 = packs.iter().flatten().map(|pack| pack.bytes).sum();
            if sum > self.expected.bytes {
                return Err(self.damaged("its packs are longer than the other replica said"));
            }
            self.packs = packs;
            self.pinned = self.packs.as_ref().map(|packs| self.store.pin(packs));
            self.check_room()?;
        }
        self.at = bytes;
        let Some(packs) = self.packs.clone() else { return Ok(()) };
        let mut start = self.own_bytes(&packs);
        if bytes > start {
            append(&self.path)?.set_len(start).map_err(ImageError::io(&self.path))?;
            self.at = start;
        }
        if bytes < start {
            return Ok(());
        }
        for pack in packs {
            let whole = pack.path(self.store.dir());
            if whole.exists() {
                let there = fs::metadata(&whole).map_err(ImageError::io(&whole))?.len();
                if there != pack.bytes {
                    return Err(self.damaged("a pack of it has another length here"));
                }
            } else {
                let path = self.part(pack);
                let there = match fs::metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    about => about.map_err(ImageError::io(&path))?.len(),
                };
                if there < pack.bytes {
                    self.at = start + there;
                    return Ok(());
                }
                self.keep(pack)?;
            }
            start += pack.bytes;
        }
        self.at = start;
        Ok(())
    }

    /// Whether all that is to come fits, before it does.
    fn check_room(&self) -> Result<(), ImageError> {
        let Some(packs) = &self.packs else { return Ok(()) };
        let length = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
        let own = self.own_bytes(packs).saturating_sub(length(&self.path));
        let lacks = packs.iter().filter(|pack| !pack.path(self.store.dir()).exists());
        let lacks = lacks.map(|pack| pack.bytes.saturating_sub(length(&self.part(*pack))));
        let needed = own.saturating_add(lacks.sum());
        let free = free(self.store.dir()).map_err(ImageError::io(self.store.dir()))?;
        if needed <= free {
            return Ok(());
        }
        Err(ImageError::DiskFull { path: self.path.clone() })
    }

    /// A pack that is whole gets its name.
    fn keep(&self, pack: PackId) -> Result<(), ImageError> {
        let (part, name) = (self.part(pack), pack.path(self.store.dir()));
        let failed = ImageError::io(&part);
        File::open(&part).and_then(|file| file.sync_all()).map_err(&failed)?;
        let checked = Pack::check(&part, pack);
        if checked.as_ref().is_err_and(ImageError::is_damage) {
            durable::remove(&part).map_err(&failed)?;
        }
        checked?;
        durable::rename(&part, &name).map_err(failed)
    }

    fn finish(&self) -> Result<Image, ImageError> {
        let failed = ImageError::io(&self.path);
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(&failed)?;
        let index = self.expected.index;
        let image = Store::image_of(&self.path, index, self.store.owner(), &mut BTreeSet::new())?;
        if image.file != self.expected {
            return Err(self.damaged("it is not the one that the other replica named"));
        }
        let packs = self.packs.as_deref().unwrap_or_default();
        self.store.give_name(&self.path, &self.store.path(index), packs)?;
        Ok(image)
    }
}

/// A file that grows at its end; a new one is for this user only.
fn append(path: &Path) -> Result<File, ImageError> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    file.map_err(ImageError::io(path))
}

/// Reads a part of an image to be sent: of its file, or of its packs behind that; less at the end of the last one.
///
/// # Errors
/// It cannot be read.
pub fn read_part(path: &Path, from: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let packs = file::packs_of(path).map_err(io::Error::other)?.unwrap_or_default();
    let dir = path.parent().unwrap_or(Path::new(""));
    let files = std::iter::once(path.to_owned()).chain(packs.iter().map(|pack| pack.path(dir)));
    let mut part = vec![0; bytes];
    let (mut filled, mut start) = (0, 0);
    for path in files {
        let file = File::open(&path)?;
        let end = start + file.metadata()?.len();
        while filled < bytes && from + (filled as u64) < end {
            let most = (bytes - filled).min((end - from - filled as u64) as usize);
            let into = &mut part[filled..filled + most];
            match file.read_at(into, from + filled as u64 - start) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        start = end;
    }
    part.truncate(filled);
    Ok(part)
}
