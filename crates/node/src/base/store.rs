//! Contents by their digests.
//!
//! A file is shared with the host's where the file system can (reflinks): that takes no room, so nothing bounds it. Other contents are copied, holes left out, as far as there
//! is [`room`](super::room). Work on large files goes on in a thread that everything else goes before, and ends when the node does.

use super::contents::{copy, data_bytes, read, sum};
use super::index::{hex, unhex};
use super::notes::{NOTED_BYTES, Notes, State};
use super::quiet::quietly;
use super::room::{self, Room};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skein_log::disk::durable;
use skein_sandbox::clone_contents;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Larger contents are read in a thread that everything else goes before: 64 MiB.
pub const LARGE_BYTES: u64 = 64 << 20;

const PART: &str = "part";
/// The pause before the next look at whether an index is still being made.
const PAUSE: Duration = Duration::from_millis(100);

/// The SHA-256 of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("no digest")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The XXH3 of contents, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum(pub u64, pub u64);

impl Sum {
    /// From the form that facts have.
    #[must_use]
    pub fn of(hash: [u8; 16]) -> Self {
        let whole = u128::from_be_bytes(hash);
        Self((whole >> 64) as u64, whole as u64)
    }
}

/// Contents that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// By what they are kept.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// Their hash as facts have it: XXH3, 128 bits.
    pub hash: [u8; 16],
}

/// What is asked of the file system; tests give answers of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSystem {
    /// Bytes that it has for this user.
    pub free: fn(&Path) -> io::Result<u64>,
    /// Makes an empty file share the bytes of another; false where it cannot.
    pub share: fn(&File, &File) -> bool,
}

/// The directory of contents.
#[derive(Debug)]
pub struct Objects {
    dir: PathBuf,
    file_system: FileSystem,
    next: AtomicU64,
    /// Held while an index is made, and while its contents come from another replica.
    making: Mutex<()>,
    /// Held while a tree is laid.
    laying: Mutex<()>,
    /// Read while there are contents that no index names yet, or an index is about to be read; written, by one who never waits for it, while what nothing names is removed.
    keeping: RwLock<()>,
    /// The names of files that are being written.
    writing: Mutex<BTreeSet<String>>,
    /// Contents that somebody reads without an index that names them, by the reader's number.
    held: Mutex<BTreeMap<u64, BTreeSet<Digest>>>,
    notes: Mutex<Notes>,
    /// Bytes of contents on disk but for shared ones, once that was counted.
    bytes: Mutex<Option<u64>>,
    /// The node ends: work on large files is given up.
    ends: AtomicBool,
    /// The node is about to end: what comes from others, and reading again what is here, is given up. Small files are still pinned.
    leaves: AtomicBool,
    /// Parts of contents that have come from other replicas.
    came: AtomicU64,
}

/// A file that is being written, and stays while this is there; nobody else writes it.
#[derive(Debug)]
pub(super) struct Part<'a> {
    objects: &'a Objects,
    name: String,
    pub path: PathBuf,
    pub file: File,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut writing = self.objects.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.remove(&self.name);
    }
}

/// Contents that stay while this is there.
#[derive(Debug)]
pub struct Hold {
    objects: Arc<Objects>,
    number: u64,
}

impl Hold {
    /// These, too.
    pub fn add(&self, digests: impl IntoIterator<Item = Digest>) {
        let mut held = self.objects.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry(self.number).or_default().extend(digests);
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let held = self.objects.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&self.number).map_or(0, BTreeSet::len)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.objects.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&self.number);
    }
}

impl Objects {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self::on(dir, FileSystem { free: room::free, share: clone_contents })
    }

    pub(super) fn on(dir: PathBuf, file_system: FileSystem) -> Self {
        let notes = dir.parent().map(Notes::read).unwrap_or_default();
        Self {
            dir,
            file_system,
            next: AtomicU64::new(0),
            making: Mutex::default(),
            laying: Mutex::default(),
            keeping: RwLock::default(),
            writing: Mutex::default(),
            held: Mutex::default(),
            notes: Mutex::new(notes),
            bytes: Mutex::default(),
            ends: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            came: AtomicU64::new(0),
        }
    }

    /// No other index is made until this is dropped.
    pub(super) fn making(&self) -> MutexGuard<'_, ()> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same; `None` if somebody is making one for so long.
    pub(super) fn making_within(&self, patience: Duration) -> Option<MutexGuard<'_, ()>> {
        let until = Instant::now() + patience;
        loop {
            match self.making.try_lock() {
                Ok(making) => return Some(making),
                Err(TryLockError::Poisoned(making)) => return Some(making.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => sleep(PAUSE),
            }
        }
    }

    /// No other tree is laid until this is dropped.
    pub(super) fn laying(&self) -> MutexGuard<'_, ()> {
        self.laying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is removed until this is dropped. May be asked for again meanwhile.
    pub(super) fn keep_all(&self) -> RwLockReadGuard<'_, ()> {
        self.keeping.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Contents that are named to this are not removed until it is dropped. Those of an index are safe if it was read under [`Self::keep_all`].
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        Hold { objects: self.clone(), number: self.next.fetch_add(1, Ordering::Relaxed) }
    }

    /// A part of contents has come from another replica.
    pub(super) fn came(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// How many that were.
    pub(super) fn parts_came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// The node ends: reading and copying large contents is given up from now on.
    pub(super) fn end(&self) {
        self.leave();
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// The node is about to end: nothing more comes from other replicas, and contents are not read again.
    pub(super) fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(super) fn leaves(&self) -> &AtomicBool {
        &self.leaves
    }

    /// It is not yet.
    ///
    /// # Errors
    /// It is: [`io::ErrorKind::Interrupted`].
    pub(super) fn stays(&self) -> io::Result<()> {
        match self.leaves.load(Ordering::Relaxed) {
            true => Err(io::Error::new(io::ErrorKind::Interrupted, "the node ends")),
            false => Ok(()),
        }
    }

    /// Where contents are, if they are here.
    #[must_use]
    pub fn path(&self, digest: Digest) -> PathBuf {
        self.dir.join(digest.to_string())
    }

    /// Makes the directory.
    pub(super) fn make_dir(&self) -> io::Result<()> {
        durable::create_dir(&self.dir)
    }

    /// Makes the names of what was added durable, with what is noted of it.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()?;
        self.save_notes();
        Ok(())
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what is noted durable, so that the next start need not read it.
    pub(super) fn save_notes(&self) {
        if let Err(error) = self.write_notes() {
            tracing::warn!(event = "base_unwritten", %error, "the next start reads more contents");
        }
    }

    fn write_notes(&self) -> io::Result<()> {
        self.dir.parent().map_or(Ok(()), |dir| self.notes().write(dir))
    }

    /// Keeps the contents of a file, which is not followed if it is a link.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, or changes meanwhile; there is no room ([`io::ErrorKind::StorageFull`]); it is large, and the node ends
    /// ([`io::ErrorKind::Interrupted`]).
    pub fn add(&self, path: &Path) -> io::Result<Added> {
        self.add_until(path, &self.ends, |_| true)
    }

    /// The same, if these are wanted; large ones are given up when the node is about to end.
    ///
    /// # Errors
    /// As [`Self::add`]; or they are not wanted.
    pub(super) fn add_if(
        &self,
        path: &Path,
        is_wanted: impl Fn(Digest) -> bool + Sync,
    ) -> io::Result<Added> {
        self.add_until(path, &self.leaves, is_wanted)
    }

    fn add_until(
        &self,
        path: &Path,
        ends: &AtomicBool,
        is_wanted: impl Fn(Digest) -> bool + Sync,
    ) -> io::Result<Added> {
        let mut options = OpenOptions::new();
        let from =
            options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        let before = from.metadata()?;
        if !before.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        self.make_dir()?;
        if before.len() > LARGE_BYTES {
            return quietly(|| self.take(&from, &before, Some(ends), &is_wanted))?;
        }
        self.take(&from, &before, None, &is_wanted)
    }

    fn take(
        &self,
        from: &File,
        before: &Metadata,
        ends: Option<&AtomicBool>,
        is_wanted: &dyn Fn(Digest) -> bool,
    ) -> io::Result<Added> {
        let part = self.begin()?;
        let take = || {
            let shared = (self.file_system.share)(from, &part.file);
            let added = if shared {
                read(&part.file, ends)?
            } else {
                self.room()?.take(data_bytes(from)?)?;
                copy(from, &part.file, ends)?
            };
            let state = |meta: &Metadata| {
                (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
            };
            if state(before) != state(&from.metadata()?) || added.size != before.len() {
                return Err(io::Error::other("it changes while it is read"));
            }
            // What is wanted is held from here on.
            let _all = self.keep_all();
            if !is_wanted(added.digest) {
                return Err(io::Error::other("it has other contents"));
            }
            if ends.is_some() && self.vouches(added.digest, added.size) {
                // One that servers may have in use would only take its room twice.
                fs::remove_file(&part.path)?;
            } else {
                self.keep(&part, added.digest, Some(shared))?;
            }
            Ok(added)
        };
        let added = take();
        if added.is_err() {
            // The error of the copying is the one that matters.
            let _ = fs::remove_file(&part.path);
        }
        added
    }

    /// How much more it may take.
    fn room(&self) -> io::Result<Room> {
        let known = *self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match known {
            Some(held) => held,
            None => {
                let counted = self.count()?;
                *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
                counted
            }
        };
        Ok(Room { free: (self.file_system.free)(&self.dir)?, held })
    }

    /// Bytes of contents on disk, but for shared ones.
    fn count(&self) -> io::Result<u64> {
        let notes = self.notes();
        let mut bytes = 0;
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let digest = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if digest.is_some_and(|digest| !notes.is_shared(digest)) {
                bytes += entry.metadata()?.blocks() * 512;
            }
        }
        Ok(bytes)
    }

    /// There is room for contents of this length.
    pub(super) fn fits(&self, size: u64) -> io::Result<()> {
        self.make_dir()?;
        self.room()?.take(size)
    }

    /// A large file that is being received must leave some room.
    pub(super) fn leaves_room(&self, part: &File) -> io::Result<()> {
        let Room { free, held } = self.room()?;
        room::leaves(Room { free, held: held + part.metadata()?.blocks() * 512 })
    }

    /// A new file for contents whose digest is not known yet.
    pub(super) fn begin(&self) -> io::Result<Part<'_>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.part(format!("{}-{number}.{PART}", std::process::id()), true)
    }

    /// The file for contents that come in parts, with what came before.
    ///
    /// # Errors
    /// It cannot be opened; or another one writes it: [`io::ErrorKind::WouldBlock`].
    pub(super) fn go_on(&self, digest: Digest) -> io::Result<Part<'_>> {
        self.part(format!("{digest}.{PART}"), false)
    }

    /// Whether contents are being received in parts.
    pub(super) fn is_coming(&self, digest: Digest) -> bool {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.contains(&format!("{digest}.{PART}"))
    }

    fn part(&self, name: String, is_new: bool) -> io::Result<Part<'_>> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if writing.contains(&name) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let path = self.dir.join(&name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(is_new).mode(0o600);
        let file = options.open(&path)?;
        writing.insert(name.clone());
        Ok(Part { objects: self, name, path, file })
    }

    /// Gives whole contents their name. `shared`: whether their bytes are the host's, if that may be another than it was.
    pub(super) fn keep(
        &self,
        part: &Part<'_>,
        digest: Digest,
        shared: Option<bool>,
    ) -> io::Result<()> {
        part.file.sync_all()?;
        let takes = |meta: &Metadata| match self.is_shared(digest) {
            true => 0,
            false => meta.blocks() * 512,
        };
        let former = fs::symlink_metadata(self.path(digest)).map_or(0, |meta| takes(&meta));
        fs::rename(&part.path, self.path(digest))?;
        let meta = part.file.metadata()?;
        self.notes().was_read(digest, State::of(&meta), shared);
        // Counted when it is asked for the first time.
        let takes = takes(&meta);
        if let Some(bytes) = &mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) {
            *bytes = bytes.saturating_sub(former) + takes;
        }
        Ok(())
    }

    /// Opens contents; reading leaves no time of access, in which servers' files have something else.
    ///
    /// # Errors
    /// They are not here.
    pub fn open(&self, digest: Digest) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NOATIME;
        OpenOptions::new().read(true).custom_flags(flags).open(self.path(digest))
    }

    /// Whether contents are here, as they were when they were added: all of them are read.
    #[must_use]
    pub fn is_whole(&self, digest: Digest, size: u64, wanted: Sum) -> bool {
        self.is_whole_still(digest, size, wanted).unwrap_or(false)
    }

    /// The same.
    ///
    /// # Errors
    /// The node ends.
    pub(super) fn is_whole_still(&self, digest: Digest, size: u64, sum: Sum) -> io::Result<bool> {
        let judged = self.judge(digest, size, sum);
        let is_whole = matches!(judged, Ok(Some(_)));
        let mut notes = self.notes();
        match judged {
            Ok(Some(state)) => notes.was_read(digest, state, None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            // No note speaks for what cannot be read.
            Ok(None) | Err(_) => notes.doubt(digest),
        }
        Ok(is_whole)
    }

    /// The file that contents are, if they are whole.
    fn judge(&self, digest: Digest, size: u64, wanted: Sum) -> io::Result<Option<State>> {
        let file = self.open(digest)?;
        let before = file.metadata()?;
        let is_whole = before.len() == size && {
            let (hash, len) = sum(&file, Some(&self.leaves))?;
            len == size && Sum::of(hash.to_be_bytes()) == wanted
        };
        Ok(is_whole.then(|| State::of(&before)))
    }

    /// Whether contents with this digest are here: all of them are read.
    #[must_use]
    pub fn has(&self, digest: Digest, size: u64) -> bool {
        let read = || -> io::Result<bool> {
            let file = self.open(digest)?;
            if file.metadata()?.len() != size {
                return Ok(false);
            }
            let found = read(&file, Some(&self.leaves))?;
            Ok((found.digest, found.size) == (digest, size))
        };
        read().unwrap_or(false)
    }

    /// Whether contents share their bytes with the host's file, or did.
    pub(super) fn is_shared(&self, digest: Digest) -> bool {
        self.notes().is_shared(digest)
    }

    /// Whether contents are the file that was last read as a whole.
    pub(super) fn vouches(&self, digest: Digest, size: u64) -> bool {
        let meta = fs::symlink_metadata(self.path(digest));
        let is_it = |meta: Metadata| {
            meta.is_file() && meta.len() == size && self.notes().vouches(digest, State::of(&meta))
        };
        meta.is_ok_and(is_it)
    }

    /// Whether contents are to be read again, which are read so often.
    pub(super) fn is_due(&self, digest: Digest, size: u64, every: Duration) -> bool {
        size >= NOTED_BYTES && self.notes().is_due(digest, every)
    }

    /// The server has met other contents than the log has: the next start reads these, or all.
    pub(super) fn doubt(&self, digests: Option<BTreeSet<Digest>>) -> io::Result<()> {
        {
            let mut notes = self.notes();
            let digests = digests.unwrap_or_else(|| notes.digests().into_iter().collect());
            digests.into_iter().for_each(|digest| notes.doubt(digest));
        }
        self.write_notes()
    }

    /// Does what sets times of contents, and of nothing else about them.
    pub(super) fn while_times_are_set<T>(&self, set: impl FnOnce() -> T) -> T {
        let state = |digest: Digest| {
            fs::symlink_metadata(self.path(digest)).ok().map(|meta| (meta.len(), State::of(&meta)))
        };
        let mut known = self.notes().digests();
        known.retain(|digest| state(*digest).is_some_and(|(size, _)| self.vouches(*digest, size)));
        let answer = set();
        let mut notes = self.notes();
        for digest in known {
            if let Some((_, state)) = state(digest) {
                notes.has_time(digest, state);
            }
        }
        answer
    }

    /// Removes all that is not named or held, and what a crash left, and answers how many files; `None` if somebody has asked that nothing be removed. Which contents are
    /// named is asked when nothing can change that.
    pub(super) fn collect(
        &self,
        named: impl FnOnce() -> io::Result<BTreeSet<Digest>>,
    ) -> io::Result<Option<u64>> {
        let Ok(_alone) = self.keeping.try_write() else { return Ok(None) };
        let mut named = named()?;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        named.extend(held.values().flatten());
        drop(held);
        let mut names: BTreeSet<String> = named.iter().map(Digest::to_string).collect();
        // None is begun until the others are gone.
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        names.extend(writing.iter().cloned());
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(0)),
            entries => entries?,
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
                fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        drop(writing);
        self.notes().keep(&named);
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.save_notes();
        Ok(Some(removed))
    }
}

/// Digest and size of what a file has now. `ends`: give up once that is set.
///
/// # Errors
/// It cannot be read, or was given up: [`io::ErrorKind::Interrupted`].
pub fn digest_of(path: &Path, ends: Option<&AtomicBool>) -> io::Result<(Digest, u64)> {
    let file = File::open(path)?;
    let large = file.metadata()?.len() > LARGE_BYTES;
    let found = if large { quietly(|| read(&file, ends))?? } else { read(&file, ends)? };
    Ok((found.digest, found.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_kept_once_and_rot_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::new(dir.path().join("objects"));
        for name in ["a", "b"] {
            fs::write(dir.path().join(name), "same").unwrap();
        }
        fs::write(dir.path().join("c"), "other").unwrap();
        let add = |name: &str| objects.add(&dir.path().join(name)).unwrap();
        let (a, b, c) = (add("a"), add("b"), add("c"));
        assert_eq!(a, b);
        let is_whole =
            |added: &Added, size| objects.is_whole(added.digest, size, Sum::of(added.hash));
        assert!(is_whole(&a, 4) && !is_whole(&a, 5) && objects.has(a.digest, 4));
        let count = || fs::read_dir(dir.path().join("objects")).unwrap().count();
        assert_eq!(count(), 2);
        fs::write(objects.path(a.digest), "rot!").unwrap();
        assert!(!is_whole(&a, 4) && !objects.has(a.digest, 4));
        let part = objects.begin().unwrap();
        let collect = || objects.collect(|| Ok([c.digest].into())).unwrap();
        assert_eq!(collect(), Some(1));
        // It is being written, and by one only.
        assert!(part.path.exists());
        let path = part.path.clone();
        drop(part);
        assert_eq!(collect(), Some(1));
        let going_on = objects.go_on(a.digest).unwrap();
        let error = objects.go_on(a.digest).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(objects.is_coming(a.digest) && !objects.is_coming(c.digest));
        drop(going_on);
        assert!(!objects.is_coming(a.digest));
        drop(objects.go_on(a.digest).unwrap());
        assert_eq!(collect(), Some(1));
        assert!(!path.exists() && count() == 1 && is_whole(&c, 5));
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        assert!(objects.add(&dir.path().join("link")).is_err());
        assert!(objects.add(dir.path()).is_err() && count() == 1);
    }
}

#[cfg(test)]
#[path = "large_tests.rs"]
mod large_tests;
