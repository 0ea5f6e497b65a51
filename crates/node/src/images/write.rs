//! Writes an image: its new pages into a pack, then the file that names it. Each is synced before it has its name, so a crash leaves at most a pack that nobody names.

use super::packs::Pinned;
use super::store::{PART, Store};
use skein_image::Copied;
use skein_image::ahead::{Ahead, Unread};
use skein_image::file::{self, Head, ImageError, Seal};
use skein_image::pack::PackId;
use skein_image::packed::{self, Planned};
use skein_image::precopy::Precopied;
use skein_log::disk::durable;
use skein_replica::environment::ImageFile;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// So much is synced at a time: the log's syncs do not wait behind gigabytes.
pub(super) const SYNC_BYTES: usize = 8 << 20;

/// An image that is on the disk, and not confirmed.
#[derive(Debug)]
pub struct WrittenImage {
    /// Its file, with all its packs.
    pub file: ImageFile,
    /// The bytes that were written for it.
    pub written: u64,
    /// The hashes of the pages of its memory,
    pub hashes: Vec<u128>,
    /// and of its files.
    pub of_files: Vec<u128>,
}

/// Files that were read ahead of an image, and their packs, which are removed with it unless an image names them. To drop it may take a while.
#[derive(Debug)]
pub struct FilesAhead {
    /// The pages.
    pub ahead: Ahead,
    pinned: Option<Pinned>,
    store: Store,
}

impl FilesAhead {
    fn packs(&self) -> Vec<PackId> {
        self.pinned.as_ref().map(Pinned::ids).unwrap_or_default()
    }
}

impl Drop for FilesAhead {
    fn drop(&mut self) {
        self.pinned.take();
        self.store.try_to_collect();
    }
}

impl Store {
    /// Writes an image, which is to be [confirmed](Self::confirm), durably; of files and memory that were read before, what it refers to. When that fails, nothing of it is left.
    ///
    /// # Errors
    /// It cannot be written, or a page that it does not have itself is in no other image.
    pub fn write(
        &self,
        head: &Head,
        state: &[u8],
        [memory, layer]: [&Copied<'_>; 2],
        ahead: Option<&FilesAhead>,
        precopied: Option<&Precopied>,
    ) -> Result<WrittenImage, ImageError> {
        self.make_dir()?;
        let path = self.path(head.index);
        let part = path.with_extension(PART);
        let pack = self.dir().join(format!("pack-{}", head.index)).with_extension(PART);
        // Nothing that it refers to goes meanwhile.
        let pinned = self.pin_all_and(ahead)?;
        let written = || {
            let earlier = self.open_packs(pinned.ids());
            let (planned, own) =
                synced(&pack, |out| packed::plan(memory, layer, precopied, earlier, out, &pack))?;
            self.keep_pack(planned.own, &pack, own, &pinned)?;
            let write = |out: &mut dyn Write| file::write_packed(out, &part, head, state, &planned);
            let (seal, file) = synced(&part, write)?;
            file.sync_all().map_err(ImageError::io(&part))?;
            self.wait_for_removals(head.index);
            let name = self.unconfirmed(head.index);
            self.give_name(&part, &name, &planned.packs)?;
            Ok((seal, planned))
        };
        let written = written();
        if written.is_err() {
            // Files that stay are removed at the next start.
            let _ = durable::remove(&part);
            let _ = durable::remove(&pack);
        }
        drop(pinned);
        self.try_to_collect();
        let (Seal { bytes, digest }, planned) = written?;
        let Planned { packs, own, hashes, of_files, .. } = planned;
        let total = bytes + packs.iter().map(|pack| pack.bytes).sum::<u64>();
        let written = bytes + own.map_or(0, |pack| pack.bytes);
        let file = ImageFile { index: head.index, bytes: total, digest };
        Ok(WrittenImage { file, written, hashes, of_files })
    }

    /// Reads files ahead of an image, as long as they are wanted, into a pack that stays as long as what this answers, as all packs do that were read `before`.
    ///
    /// # Errors
    /// The pack cannot be written.
    pub fn read_ahead(
        &self,
        unread: Unread,
        before: Option<FilesAhead>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<FilesAhead, ImageError> {
        self.make_dir()?;
        let part = self.dir().join("pack-ahead").with_extension(PART);
        let pinned = self.pin_all_and(before.as_ref())?;
        let read = || {
            let earlier = self.open_packs(pinned.ids());
            let read = |out: &mut dyn Write| unread.read(&earlier, out, &part, is_wanted);
            let ((ahead, own), file) = synced(&part, read)?;
            self.keep_pack(own, &part, file, &pinned)?;
            Ok(ahead)
        };
        let read = read();
        if read.is_err() {
            // A file that stays is removed at the next start.
            let _ = durable::remove(&part);
        }
        Ok(FilesAhead { ahead: read?, pinned: Some(pinned), store: self.clone() })
    }

    pub(super) fn pin_all_and(&self, ahead: Option<&FilesAhead>) -> Result<Pinned, ImageError> {
        let pinned = self.pin_all()?;
        ahead.iter().flat_map(|ahead| ahead.packs()).for_each(|id| pinned.add(id));
        Ok(pinned)
    }

    /// Gives a new pack its name, if there is one.
    fn keep_pack(
        &self,
        own: Option<PackId>,
        part: &Path,
        file: File,
        pinned: &Pinned,
    ) -> Result<(), ImageError> {
        let failed = ImageError::io(part);
        let Some(own) = own else { return durable::remove(part).map_err(failed) };
        file.sync_all().map_err(&failed)?;
        pinned.add(own);
        durable::rename(part, &own.path(self.dir())).map_err(failed)
    }
}

/// Writes a new file, for this user only, which is to be synced to its end.
fn synced<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, ImageError>,
) -> Result<(T, File), ImageError> {
    let mut new = OpenOptions::new();
    let file = new.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = Synced { file: file.map_err(ImageError::io(path))?, since: 0 };
    let done = write(&mut file)?;
    Ok((done, file.file))
}

/// A file that is synced while it grows.
struct Synced {
    file: File,
    since: usize,
}

impl Write for Synced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.since += written;
        if self.since >= SYNC_BYTES {
            self.since = 0;
            self.file.sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
