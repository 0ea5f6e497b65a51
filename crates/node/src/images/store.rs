//! The directory of a replica's images.
//!
//! ```text
//! image-INDEX                  the server after the entry INDEX, whole and durable
//! image-INDEX.unconfirmed      the same, of a server that was not yet compared with the others'; removed at the next start
//! image-INDEX.part             being written; one that a crash left is removed at the next start
//! image-INDEX-DIGEST.incoming  being received; the next try continues behind it ([`super::incoming`])
//! image-INDEX.damaged          set aside for an operator
//! ```
//!
//! A name without an ending, or with that of an unconfirmed one, says that the file was synced before it was named so. All is for the node's user only: an image holds clients' bytes.

use skein_image::file::{self, Contents, Head, ImageError, Opened, Owner, Seal, Verified};
use skein_log::disk::durable;
use skein_model::LogIndex;
use skein_replica::environment::{Image, ImageFile};
use skein_replica::server::ServerState;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAME: &str = "image-";
const PART: &str = "part";
const UNCONFIRMED: &str = "unconfirmed";
const DAMAGED: &str = "damaged";
/// So much is synced at a time: the log's syncs do not wait behind gigabytes.
const SYNC_BYTES: usize = 8 << 20;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    owner: Owner,
}

/// What is known of a file without unpacking it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its head.
    pub head: Head,
    /// Its length.
    pub bytes: u64,
    /// Its server was like the others'.
    pub confirmed: bool,
}

/// The entry of an image, and what the file says, or why it cannot be used.
pub type Listed = (LogIndex, Result<Found, ImageError>);

impl Store {
    /// The images of `owner` in this directory, which need not exist: changes nothing.
    #[must_use]
    pub const fn new(dir: PathBuf, owner: Owner) -> Self {
        Self { dir, owner }
    }

    /// Makes the directory, if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_dir(&self) -> Result<(), ImageError> {
        durable::create_dir(&self.dir).map_err(ImageError::io(&self.dir))
    }

    /// Removes what an interrupted writer left, and images that were not confirmed.
    ///
    /// # Errors
    /// The directory cannot be read or written.
    pub fn tidy(&self) -> Result<(), ImageError> {
        let failed = ImageError::io(&self.dir);
        if !self.dir.exists() {
            return Ok(());
        }
        durable::make_private(&self.dir).map_err(&failed)?;
        for entry in fs::read_dir(&self.dir).map_err(&failed)? {
            let path = entry.map_err(&failed)?.path();
            if path.extension().is_some_and(|ending| ending == PART || ending == UNCONFIRMED) {
                durable::remove(&path).map_err(ImageError::io(&path))?;
            }
        }
        Ok(())
    }

    /// Removes all that is there: a cluster that is founded has no past.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn forget(&self) -> Result<(), ImageError> {
        for index in self.indices()? {
            self.remove(index)?;
        }
        Ok(())
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of the image at this entry, once it is confirmed.
    #[must_use]
    pub fn path(&self, index: LogIndex) -> PathBuf {
        self.dir.join(format!("{NAME}{index}"))
    }

    fn unconfirmed(&self, index: LogIndex) -> PathBuf {
        self.path(index).with_extension(UNCONFIRMED)
    }

    /// The file of the image at this entry, confirmed or not.
    #[must_use]
    pub fn any_path(&self, index: LogIndex) -> PathBuf {
        let path = self.path(index);
        if path.exists() { path } else { self.unconfirmed(index) }
    }

    /// From now on the image counts, also after a crash of the node; after a loss of power once [`Self::sync`] has returned.
    ///
    /// # Errors
    /// It is not there.
    pub fn confirm(&self, index: LogIndex) -> Result<(), ImageError> {
        let path = self.path(index);
        fs::rename(self.unconfirmed(index), &path).map_err(ImageError::io(&path))
    }

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    /// It cannot be synced.
    pub fn sync(&self) -> Result<(), ImageError> {
        let sync = || File::open(&self.dir)?.sync_all();
        sync().map_err(ImageError::io(&self.dir))
    }

    /// The entries of all images that count, in order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn indices(&self) -> Result<Vec<LogIndex>, ImageError> {
        let named = self.named()?;
        Ok(named.into_iter().filter_map(|(index, counts)| counts.then_some(index)).collect())
    }

    /// All images, in order, and whether they are confirmed.
    fn named(&self) -> Result<Vec<(LogIndex, bool)>, ImageError> {
        let failed = ImageError::io(&self.dir);
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(&failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(&failed)?.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix(NAME)).unwrap_or_default();
            let (number, ending) = name.split_once('.').unwrap_or((name, ""));
            let known = ending.is_empty() || ending == UNCONFIRMED;
            let index = number.parse().ok().filter(|_| known).map(LogIndex);
            found.extend(index.map(|index| (index, ending.is_empty())));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// What all images say of themselves, in order, and why some cannot be used.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, ImageError> {
        let named = self.named()?.into_iter();
        Ok(named.map(|(index, confirmed)| (index, self.find(index, confirmed))).collect())
    }

    fn find(&self, index: LogIndex, confirmed: bool) -> Result<Found, ImageError> {
        let path = if confirmed { self.path(index) } else { self.unconfirmed(index) };
        let head = Opened::open(&path, &self.owner)?.head;
        let bytes = fs::metadata(&path).map_err(ImageError::io(&path))?.len();
        Ok(Found { head, bytes, confirmed })
    }

    /// Reads an image from its beginning to its end.
    ///
    /// # Errors
    /// It is not what was written, or no image of this store.
    pub fn verify(&self, index: LogIndex) -> Result<Verified, ImageError> {
        Self::verify_file(&self.path(index), index, &self.owner)
    }

    fn verify_file(path: &Path, index: LogIndex, owner: &Owner) -> Result<Verified, ImageError> {
        let verified = Opened::open(path, owner)?.verify()?;
        if verified.head().index != index {
            let why = format!("it is the image of entry {}", verified.head().index);
            return Err(ImageError::Damaged { path: path.to_owned(), why });
        }
        Ok(verified)
    }

    /// Verifies an image and reads what its replica knew of the server.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn image(&self, index: LogIndex) -> Result<Image, ImageError> {
        Self::image_of(&self.path(index), index, &self.owner)
    }

    pub(super) fn image_of(
        path: &Path,
        index: LogIndex,
        owner: &Owner,
    ) -> Result<Image, ImageError> {
        let verified = Self::verify_file(path, index, owner)?;
        let (state, _) = verified.unpack()?;
        let state = ServerState::decode(&state).filter(|state| state.index == index);
        let state = state.ok_or_else(|| ImageError::Damaged {
            path: path.to_owned(),
            why: "its state is none of a server at this entry".into(),
        })?;
        let Seal { bytes, digest } = verified.seal;
        Ok(Image { state: Arc::new(state), file: ImageFile { index, bytes, digest } })
    }

    /// All images that can be used, oldest first. A damaged one is set aside; each other one is named and left.
    #[must_use]
    pub fn all(&self) -> Vec<Image> {
        let indices = self.indices().unwrap_or_else(|error| {
            tracing::warn!(event = "images_unread", %error);
            Vec::new()
        });
        let usable = |index: LogIndex| match self.image(index) {
            Ok(image) => Some(image),
            Err(error) => {
                let aside = error.is_damage() && self.set_aside(index);
                tracing::warn!(event = "image_unusable", index = index.0, aside, %error);
                None
            }
        };
        indices.into_iter().filter_map(usable).collect()
    }

    /// Writes an image, which is to be [confirmed](Self::confirm), durably. When that fails, nothing of it is left.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, head: &Head, contents: Contents<'_>) -> Result<ImageFile, ImageError> {
        let part = self.path(head.index).with_extension(PART);
        let written = self.write_part(&part, head, contents);
        if written.is_err() {
            // A file that stays is removed at the next start.
            let _ = durable::remove(&part);
        }
        let Seal { bytes, digest } = written?;
        Ok(ImageFile { index: head.index, bytes, digest })
    }

    fn write_part(
        &self,
        part: &Path,
        head: &Head,
        contents: Contents<'_>,
    ) -> Result<Seal, ImageError> {
        let failed = ImageError::io(part);
        self.make_dir()?;
        let mut new = OpenOptions::new();
        let file = new.write(true).create(true).truncate(true).mode(0o600).open(part);
        let mut file = Synced::new(file.map_err(&failed)?);
        let seal = file::write(&mut file, part, head, contents)?;
        file.file.sync_all().map_err(&failed)?;
        durable::rename(part, &self.unconfirmed(head.index)).map_err(&failed)?;
        Ok(seal)
    }

    /// A file in the directory that goes when it is closed.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn nameless(&self, index: LogIndex) -> Result<File, ImageError> {
        let path = self.dir.join(format!("files-{index}")).with_extension(PART);
        let failed = ImageError::io(&path);
        self.make_dir()?;
        let mut new = OpenOptions::new();
        let file = new.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.map_err(&failed)?;
        fs::remove_file(&path).map_err(&failed)?;
        Ok(file)
    }

    /// Removes an image, confirmed or not; also one that is not there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, index: LogIndex) -> Result<(), ImageError> {
        for path in [self.unconfirmed(index), self.path(index)] {
            durable::remove(&path).map_err(ImageError::io(&path))?;
        }
        Ok(())
    }

    /// Gives an image a name under which it is not used; false, with a line, when it cannot.
    pub fn set_aside(&self, index: LogIndex) -> bool {
        let path = self.path(index);
        let renamed = durable::rename(&path, &path.with_extension(DAMAGED));
        if let Err(error) = &renamed {
            tracing::warn!(event = "image_not_set_aside", index = index.0, %error);
        }
        renamed.is_ok()
    }

    /// Whose images they are.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// A file that is synced while it grows.
struct Synced {
    file: File,
    since: usize,
}

impl Synced {
    const fn new(file: File) -> Self {
        Self { file, since: 0 }
    }
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

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
