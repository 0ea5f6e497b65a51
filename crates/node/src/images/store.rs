//! The directory of a replica's images.
//!
//! ```text
//! image-INDEX                  the server after the entry INDEX, whole and durable
//! image-INDEX.unconfirmed      the same, of a server that was not yet compared with the others'; removed at the next start
//! image-INDEX.part             being written; one that a crash left is removed at the next start
//! image-INDEX-DIGEST.incoming  being received; the next try continues behind it ([`super::incoming`]); removed when there is a later image
//! image-INDEX.damaged          set aside for an operator
//! doubted                      the entry before which images may have what differed between servers: they go when there is a later one
//! pack-DIGEST                  pages of images, which name it ([`skein_image::pack`]); those that no image names are removed ([`super::packs`])
//! pack-DIGEST.incoming         being received, with the image that names it
//! pack-DIGEST.part             about to be removed
//! pack-DIGEST.damaged          set aside, as all images that name it
//! ```
//!
//! A name without an ending, or with that of an unconfirmed one, says that the file was synced before it was named so. All is for the node's user only: an image holds clients' bytes.

use super::packs::Pins;
use crate::processor;
use skein_image::Beyond;
use skein_image::file::{self, Head, ImageError, Opened, Owner, Verified};
use skein_image::pack::PackId;
use skein_log::disk::durable;
use skein_model::LogIndex;
use skein_replica::environment::{Image, ImageFile};
use skein_replica::server::ServerState;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const NAME: &str = "image-";
pub(super) const PART: &str = "part";
pub(super) const UNCONFIRMED: &str = "unconfirmed";
pub(super) const DAMAGED: &str = "damaged";
const DOUBTED: &str = "doubted";

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    owner: Owner,
    /// Shared by all that work with this directory.
    pub(super) pins: Pins,
    repairs: Arc<AtomicU64>,
    /// See [`Self::take_lost`].
    pub(super) lost: Arc<Mutex<Vec<LogIndex>>>,
}

/// What is known of a file without unpacking it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its head.
    pub head: Head,
    /// The length of its file, and of the packs that no image before it needs.
    pub bytes: u64,
    /// With all packs that it needs.
    pub total_bytes: u64,
    /// Its server was like the others'.
    pub confirmed: bool,
}

/// The entry of an image, and what the file says, or why it cannot be used.
pub type Listed = (LogIndex, Result<Found, ImageError>);

impl Store {
    /// The images of `owner` in this directory, which need not exist: changes nothing.
    #[must_use]
    pub fn new(dir: PathBuf, owner: Owner) -> Self {
        Self { dir, owner, pins: Pins::default(), repairs: Arc::default(), lost: Arc::default() }
    }

    /// A file of the server was written from outside: no image knows that, so the next one reads all.
    pub fn files_were_repaired(&self) {
        self.repairs.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was.
    #[must_use]
    pub fn repairs(&self) -> u64 {
        self.repairs.load(Ordering::Relaxed)
    }

    /// Makes the directory, if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_dir(&self) -> Result<(), ImageError> {
        durable::create_dir(&self.dir).map_err(ImageError::io(&self.dir))
    }

    /// Removes what an interrupted writer left, and images that were not confirmed. Packs that cannot be removed stay.
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
        match self.indices()?.last() {
            // What is to be received may be of that entry, when a server could not continue from the one that is here.
            Some(newest) => self.forget_incoming(LogIndex(newest.0.saturating_sub(1))),
            None => self.try_to_collect(),
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
        let doubted = self.dir.join(DOUBTED);
        if doubted.exists() {
            durable::remove(&doubted).map_err(ImageError::io(&doubted))?;
        }
        Ok(())
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file for what is much of a copy. The disk is not waited for: a server stands meanwhile.
    #[must_use]
    pub fn beyond(&self) -> Beyond {
        Beyond::In(self.dir.clone())
    }

    /// The file of the image at this entry, once it is confirmed.
    #[must_use]
    pub fn path(&self, index: LogIndex) -> PathBuf {
        self.dir.join(format!("{NAME}{index}"))
    }

    pub(super) fn unconfirmed(&self, index: LogIndex) -> PathBuf {
        self.path(index).with_extension(UNCONFIRMED)
    }

    /// The file of the image at this entry, confirmed or not.
    #[must_use]
    pub fn any_path(&self, index: LogIndex) -> PathBuf {
        let path = self.path(index);
        if path.exists() { path } else { self.unconfirmed(index) }
    }

    /// From now on the image counts, also after a loss of power.
    ///
    /// # Errors
    /// It is not there, or its name cannot be made durable.
    pub fn confirm(&self, index: LogIndex) -> Result<(), ImageError> {
        let file = self.unconfirmed(index);
        let packs = file::packs_of(&file)?.unwrap_or_default();
        self.give_name(&file, &self.path(index), &packs)?;
        self.forget_incoming(index);
        Ok(())
    }

    /// Images of entries before this one may have what differed between servers.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn doubt(&self, before: LogIndex) -> Result<(), ImageError> {
        self.make_dir()?;
        let path = self.dir.join(DOUBTED);
        durable::write(&path, &format!("{before}\n")).map_err(ImageError::io(&path))
    }

    /// The entry of that which was written last.
    #[must_use]
    pub fn doubted(&self) -> LogIndex {
        let text = fs::read_to_string(self.dir.join(DOUBTED)).unwrap_or_default();
        LogIndex(text.trim().parse().unwrap_or(0))
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
        let mut seen = BTreeSet::new();
        let named = self.named()?.into_iter();
        Ok(named
            .map(|(index, confirmed)| (index, self.find(index, confirmed, &mut seen)))
            .collect())
    }

    /// `seen`: the packs of the images before it.
    fn find(
        &self,
        index: LogIndex,
        confirmed: bool,
        seen: &mut BTreeSet<PackId>,
    ) -> Result<Found, ImageError> {
        let path = if confirmed { self.path(index) } else { self.unconfirmed(index) };
        let head = Opened::open(&path, &self.owner)?.head;
        let mut bytes = fs::metadata(&path).map_err(ImageError::io(&path))?.len();
        let mut total_bytes = bytes;
        for pack in file::packs_of(&path)?.unwrap_or_default() {
            total_bytes += pack.bytes;
            if seen.insert(pack) {
                bytes += pack.bytes;
            }
        }
        Ok(Found { head, bytes, total_bytes, confirmed })
    }

    /// Reads an image from its beginning to its end, confirmed or not.
    ///
    /// # Errors
    /// It is not what was written, or no image of this store.
    pub fn verify(&self, index: LogIndex) -> Result<Verified, ImageError> {
        Self::verify_file(&self.any_path(index), index, &self.owner, &mut BTreeSet::new())
    }

    /// `known`: packs that were verified before.
    fn verify_file(
        path: &Path,
        index: LogIndex,
        owner: &Owner,
        known: &mut BTreeSet<PackId>,
    ) -> Result<Verified, ImageError> {
        let verified = Opened::open(path, owner)?.verify_new(known)?;
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
        Self::image_of(&self.path(index), index, &self.owner, &mut BTreeSet::new())
    }

    /// `known`: packs that were verified before.
    pub(super) fn image_of(
        path: &Path,
        index: LogIndex,
        owner: &Owner,
        known: &mut BTreeSet<PackId>,
    ) -> Result<Image, ImageError> {
        let verified = Self::verify_file(path, index, owner, known)?;
        let (bytes, digest) = (verified.total_bytes(), verified.seal.digest);
        let (state, _) = verified.unpack()?;
        let state = state_of(&state, path, index)?;
        Ok(Image { state: Arc::new(state), file: ImageFile { index, bytes, digest } })
    }

    /// All images that can be used, oldest first. A damaged one is set aside; each other one is named and left.
    #[must_use]
    pub fn all(&self) -> Vec<Image> {
        let indices = self.indices().unwrap_or_else(|error| {
            tracing::warn!(event = "images_unread", %error);
            Vec::new()
        });
        let mut known = BTreeSet::new();
        let mut image = |index| Self::image_of(&self.path(index), index, &self.owner, &mut known);
        let usable = |index: LogIndex| match image(index) {
            Ok(image) => Some(image),
            Err(error) => {
                let aside = error.is_damage() && self.set_aside(index);
                tracing::warn!(event = "image_unusable", index = index.0, aside, %error);
                None
            }
        };
        indices.into_iter().filter_map(usable).collect()
    }

    /// Removes an image, confirmed or not; also one that is not there.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, index: LogIndex) -> Result<(), ImageError> {
        for path in [self.unconfirmed(index), self.path(index)] {
            durable::remove(&path).map_err(ImageError::io(&path))?;
        }
        self.collect()
    }

    /// Gives an image, and packs of it that are damaged, names under which they are not used; false, with a line, when it cannot.
    pub fn set_aside(&self, index: LogIndex) -> bool {
        let path = self.path(index);
        if !path.exists() {
            return true;
        }
        let aside = self.set_packs_aside(&path).and_then(|packs| {
            let renamed = durable::rename(&path, &path.with_extension(DAMAGED));
            self.set_users_aside(&packs)?;
            renamed.map_err(ImageError::io(&path))
        });
        if let Err(error) = &aside {
            tracing::warn!(event = "image_not_set_aside", index = index.0, %error);
        }
        aside.is_ok()
    }

    /// The entries of images that were set aside for a pack that they had in common with another one, since this was asked last.
    #[must_use]
    pub fn take_lost(&self) -> Vec<LogIndex> {
        std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there is no image of this entry, and none that was damaged.
    #[must_use]
    pub fn is_removed(&self, index: LogIndex) -> bool {
        !self.any_path(index).exists() && !self.path(index).with_extension(DAMAGED).exists()
    }

    /// Whose images they are.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// What an image's replica knew of its server: one that can go on here.
pub(super) fn state_of(
    bytes: &[u8],
    path: &Path,
    index: LogIndex,
) -> Result<ServerState, ImageError> {
    let path = || path.to_owned();
    let state = ServerState::decode(bytes).filter(|state| state.index == index);
    let state = state.ok_or_else(|| ImageError::Damaged {
        path: path(),
        why: "its state is none of a server at this entry".into(),
    })?;
    match processor::missing(&state.processor) {
        Some(missing) => Err(ImageError::OtherProcessor { path: path(), missing }),
        None => Ok(state),
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
