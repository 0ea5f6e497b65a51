//! The packs in a directory of images: which must stay, and the removal of the others.
//!
//! A pack stays while an image names it, also one that is being received, or while it is pinned: by a writer of an image that will name it, by its receiver, or while files that were read ahead of an image are known.
//! One lock is held while packs are pinned, removed or set aside, and while an image gets a name by which it counts. So no pack is removed between the decision to
//! use it and the file that says so, and no new image names one that was set aside. The reactor takes the lock when it confirms an image: its other holders only list and rename. A crash leaves packs that nobody
//! names; the next start removes them.

use super::incoming::INCOMING;
use super::store::{DAMAGED, NAME, PART, Store, UNCONFIRMED};
use skein_image::file::{self, ImageError};
use skein_image::pack::{Pack, PackId};
use skein_image::packed::Earlier;
use skein_log::disk::durable;
use skein_model::LogIndex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

const PACK: &str = "pack-";

/// The packs that are pinned. Its lock is that of the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Pins(Arc<Mutex<State>>, Arc<Condvar>);

#[derive(Debug, Default)]
struct State {
    /// The entries of images that are to be removed.
    removals: Vec<LogIndex>,
    /// How many need each pack.
    counts: BTreeMap<PackId, usize>,
    /// How often an image got a name, or packs were removed: what was read before is out of date.
    changes: u64,
}

impl Pins {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder panics")
    }
}

/// What images name.
#[derive(Default)]
struct Named {
    /// Those of the newest image first; some more than once.
    packs: Vec<PackId>,
    /// Some image could not be read, or is of a later version: it may name others.
    is_incomplete: bool,
}

/// Packs that stay until this is dropped.
#[derive(Debug)]
pub(super) struct Pinned {
    pins: Pins,
    ids: Mutex<Vec<PackId>>,
}

impl Pinned {
    /// Their names, those of the newest image first.
    pub(super) fn ids(&self) -> Vec<PackId> {
        self.ids.lock().expect("no holder panics").clone()
    }

    /// One more, unless it is pinned here already.
    pub(super) fn add(&self, id: PackId) {
        if self.ids().contains(&id) {
            return;
        }
        *self.pins.lock().counts.entry(id).or_default() += 1;
        self.ids.lock().expect("no holder panics").push(id);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let counts = &mut self.pins.lock().counts;
        for id in self.ids() {
            if let Some(count) = counts.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&id);
                }
            }
        }
    }
}

/// An image that is to be removed. One of the same entry that is taken here gets its place after that.
#[derive(Debug)]
pub struct Removal {
    pins: Pins,
    /// Its entry.
    pub index: LogIndex,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let removals = &mut self.pins.lock().removals;
        if let Some(at) = removals.iter().position(|index| *index == self.index) {
            removals.swap_remove(at);
        }
        self.pins.1.notify_all();
    }
}

impl Store {
    /// The image of this entry is to be removed, by whoever gets this.
    #[must_use]
    pub fn removal(&self, index: LogIndex) -> Removal {
        self.pins.lock().removals.push(index);
        Removal { pins: self.pins.clone(), index }
    }

    /// Waits until no image of this entry is to be removed.
    pub(super) fn wait_for_removals(&self, index: LogIndex) {
        let is_removed = |state: &mut State| state.removals.contains(&index);
        drop(self.pins.1.wait_while(self.pins.lock(), is_removed).expect("no holder panics"));
    }

    /// Pins the packs of all images that can be read.
    pub(super) fn pin_all(&self) -> Result<Pinned, ImageError> {
        let (named, mut pins) = self.named_now(false)?;
        let mut seen = BTreeSet::new();
        let ids: Vec<PackId> = named.packs.into_iter().filter(|id| seen.insert(*id)).collect();
        for id in &ids {
            *pins.counts.entry(*id).or_default() += 1;
        }
        drop(pins);
        Ok(Pinned { pins: self.pins.clone(), ids: Mutex::new(ids) })
    }

    /// Pins these packs.
    pub(super) fn pin(&self, ids: &[PackId]) -> Pinned {
        let pinned = Pinned { pins: self.pins.clone(), ids: Mutex::default() };
        ids.iter().for_each(|id| pinned.add(*id));
        pinned
    }

    /// Gives the file of an image, which needs these packs, a name by which it counts: durably.
    pub(super) fn give_name(
        &self,
        file: &Path,
        name: &Path,
        packs: &[PackId],
    ) -> Result<(), ImageError> {
        let mut pins = self.pins.lock();
        // One may have been set aside since it was read.
        let gone = packs.iter().map(|pack| pack.path(self.dir())).find(|path| !path.exists());
        if let Some(path) = gone {
            let why = format!("its pack {} is gone", path.display());
            return Err(ImageError::Damaged { path: file.to_owned(), why });
        }
        pins.changes += 1;
        fs::rename(file, name).map_err(ImageError::io(name))?;
        drop(pins);
        self.sync()
    }

    /// Removes what has come of images up to this entry: there is one of it, or a later one. What cannot be removed only takes room.
    pub(super) fn forget_incoming(&self, newest: LogIndex) {
        let is_old = |path: &PathBuf| {
            path.extension().is_some_and(|ending| ending == INCOMING)
                && entry_of(path).is_some_and(|index| index <= newest.0)
        };
        let found = self.files(NAME).unwrap_or_default();
        for path in found.into_iter().filter(is_old) {
            if let Err(error) = durable::remove(&path) {
                tracing::warn!(event = "incoming_not_removed", %error);
            }
        }
        self.try_to_collect();
    }

    /// The packs that images name, and the lock under which no image gets a name. The images are read without it.
    fn named_now(&self, incoming: bool) -> Result<(Named, MutexGuard<'_, State>), ImageError> {
        loop {
            let changes = self.pins.lock().changes;
            let named = self.named_packs(incoming)?;
            let pins = self.pins.lock();
            if pins.changes == changes {
                return Ok((named, pins));
            }
        }
    }

    /// Opens packs. What is missing or damaged is left out: what it had is written again.
    pub(super) fn open_packs(&self, ids: Vec<PackId>) -> Earlier {
        let opened = ids.into_iter().filter_map(|id| match Pack::open(self.dir(), id) {
            Ok(pack) => Some(pack),
            Err(error) => {
                tracing::warn!(event = "pack_unusable", %error);
                None
            }
        });
        Earlier::new(opened.collect())
    }

    /// The packs that images name, on request also one that is being received.
    fn named_packs(&self, incoming: bool) -> Result<Named, ImageError> {
        let mut named = Named::default();
        let mut paths = self.files(NAME)?;
        paths.sort_by_key(|path| Reverse(entry_of(path)));
        for path in paths {
            let ending = path.extension().and_then(|ending| ending.to_str());
            let counts = match ending {
                None | Some(UNCONFIRMED) => true,
                Some(INCOMING) => incoming,
                _ => false,
            };
            if !counts {
                continue;
            }
            match file::packs_of(&path) {
                Ok(packs) => named.packs.extend(packs.into_iter().flatten()),
                // It may be read again, as long as nobody has set it aside.
                Err(error @ ImageError::Unreadable { .. }) => {
                    tracing::warn!(event = "image_packs_unknown", %error);
                    named.is_incomplete = true;
                }
                // It cannot be used, whatever it names.
                Err(error) if error.is_damage() => {}
                // It was removed, or it got another name: then its packs are asked for again.
                Err(ImageError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(event = "image_packs_unknown", %error);
                    named.is_incomplete = true;
                }
            }
        }
        Ok(named)
    }

    /// The files whose names begin so.
    fn files(&self, start: &str) -> Result<Vec<PathBuf>, ImageError> {
        let failed = ImageError::io(self.dir());
        let entries = match fs::read_dir(self.dir()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(&failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(&failed)?;
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(start)) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// Removes the packs that no image needs; none as long as an image cannot be read.
    ///
    /// # Errors
    /// The directory cannot be read, or a file not removed.
    pub fn collect(&self) -> Result<(), ImageError> {
        let (named, mut pins) = self.named_now(true)?;
        if named.is_incomplete {
            return Ok(());
        }
        let mut needed: BTreeSet<PackId> = named.packs.into_iter().collect();
        needed.extend(pins.counts.keys());
        let names: BTreeSet<PathBuf> = needed.iter().map(|id| id.path(self.dir())).collect();
        let mut unneeded = BTreeSet::new();
        for path in self.files(PACK)? {
            let ending = path.extension().and_then(|ending| ending.to_str());
            let whole = path.with_extension("");
            let is_needed = match ending {
                None => names.contains(&whole),
                Some(INCOMING) => names.contains(&whole) && !whole.exists(),
                // An operator's, and a writer's.
                _ => true,
            };
            if !is_needed {
                // To remove a large file takes long: under the lock it only loses its name.
                let part = whole.with_extension(PART);
                fs::rename(&path, &part).map_err(ImageError::io(&path))?;
                pins.changes += 1;
                unneeded.insert(part);
            }
        }
        drop(pins);
        for path in unneeded {
            durable::remove(&path).map_err(ImageError::io(&path))?;
        }
        Ok(())
    }

    /// The same, where what stays only takes room.
    pub fn try_to_collect(&self) {
        if let Err(error) = self.collect() {
            tracing::warn!(event = "packs_not_removed", %error);
        }
    }

    /// Gives those packs of an image that are damaged other names; answers them.
    pub(super) fn set_packs_aside(&self, image: &Path) -> Result<Vec<PackId>, ImageError> {
        let mut aside = Vec::new();
        // An image that is damaged itself says nothing about its packs.
        for id in file::packs_of(image).ok().flatten().into_iter().flatten() {
            let path = id.path(self.dir());
            let Ok(about) = fs::metadata(&path) else { continue };
            // The image may be wrong about the length: that damages no pack.
            let id = PackId { bytes: about.len(), ..id };
            if Pack::check(&path, id).is_err_and(|error| error.is_damage()) {
                let pins = self.pins.lock();
                let renamed = fs::rename(&path, path.with_extension(DAMAGED));
                drop(pins);
                renamed.map_err(ImageError::io(&path))?;
                self.sync()?;
                aside.push(id);
            }
        }
        Ok(aside)
    }

    /// Sets the packs aside that damaged an image in this file, and with them all images that name them.
    pub(super) fn set_aside_all_of(&self, image: &Path) -> Result<(), ImageError> {
        let aside = self.set_packs_aside(image)?;
        self.set_users_aside(&aside)
    }

    /// Sets all images aside that name one of these packs, which are set aside; they are [told](Self::take_lost).
    pub(super) fn set_users_aside(&self, aside: &[PackId]) -> Result<(), ImageError> {
        if aside.is_empty() {
            return Ok(());
        }
        let is_aside = |pack: &PackId| aside.iter().any(|aside| aside.digest == pack.digest);
        for index in self.indices()? {
            let packs = file::packs_of(&self.path(index)).ok().flatten().unwrap_or_default();
            if packs.iter().any(is_aside) {
                let aside = self.set_aside(index);
                self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(index);
                tracing::warn!(
                    event = "image_unusable",
                    index = index.0,
                    aside,
                    "a pack of it is damaged"
                );
            }
        }
        Ok(())
    }
}

/// The entry in the name of an image's file.
fn entry_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix(NAME)?.split('-').next()?.parse().ok()
}
