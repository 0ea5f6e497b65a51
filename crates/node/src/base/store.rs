//! Contents by their digests.

use super::index::{hex, unhex};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use skein_log::disk::durable;
use skein_sandbox::clone_contents;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// A larger file is not pinned: 1 GiB.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Files beyond so many bytes together are not pinned: 8 GiB.
pub const BASE_BYTES_MAX: u64 = 8 << 30;

const PART: &str = "part";
const PIECE_BYTES: usize = 256 << 10;

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

/// The directory of contents.
#[derive(Debug)]
pub struct Objects {
    dir: PathBuf,
    next: AtomicU64,
    /// Held while an index is made whose contents nothing names yet, and while what nothing names is removed.
    making: Mutex<()>,
}

impl Objects {
    pub(super) const fn new(dir: PathBuf) -> Self {
        Self { dir, next: AtomicU64::new(0), making: Mutex::new(()) }
    }

    /// Nothing is removed, and no other index is made, until this is dropped.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Makes the names of what was added durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    /// Keeps the contents of a file, which is not followed if it is a link.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, too large, or changes meanwhile; or there is no room.
    pub fn add(&self, path: &Path) -> io::Result<Added> {
        let mut options = OpenOptions::new();
        let from =
            options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        let before = from.metadata()?;
        if !before.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if before.len() > FILE_BYTES_MAX {
            let most = FILE_BYTES_MAX >> 30;
            return Err(io::Error::other(format!("it is larger than {most} GiB")));
        }
        self.make_dir()?;
        let (part, mut to) = self.begin()?;
        let added = copy(&from, &mut to).and_then(|added| {
            let state = |meta: &Metadata| {
                (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec())
            };
            if state(&before) != state(&from.metadata()?) || added.size != before.len() {
                return Err(io::Error::other("it changes while it is read"));
            }
            self.keep(&part, &to, added.digest)?;
            Ok(added)
        });
        if added.is_err() {
            // The error of the copying is the one that matters.
            let _ = fs::remove_file(&part);
        }
        added
    }

    /// A new file for contents whose digest is not known yet.
    pub(super) fn begin(&self) -> io::Result<(PathBuf, File)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let part = self.dir.join(format!("{}-{number}.{PART}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&part)?;
        Ok((part, file))
    }

    /// Gives whole contents their name.
    pub(super) fn keep(&self, part: &Path, file: &File, digest: Digest) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(part, self.path(digest))
    }

    /// Opens contents; reading leaves no time of access, in which servers' files have something else.
    ///
    /// # Errors
    /// They are not here.
    pub fn open(&self, digest: Digest) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NOATIME;
        OpenOptions::new().read(true).custom_flags(flags).open(self.path(digest))
    }

    /// Whether contents are here, as they were when they were added.
    #[must_use]
    pub fn is_whole(&self, digest: Digest, size: u64, sum: Sum) -> bool {
        let read = || -> io::Result<bool> {
            let mut file = self.open(digest)?;
            let mut now = Xxh3::new();
            let mut piece = vec![0; PIECE_BYTES];
            let mut len = 0;
            while len <= size {
                match file.read(&mut piece)? {
                    0 => break,
                    n => {
                        now.update(&piece[..n]);
                        len += n as u64;
                    }
                }
            }
            Ok(len == size && Sum::of(now.digest128().to_be_bytes()) == sum)
        };
        read().unwrap_or(false)
    }

    /// Whether contents with this digest are here.
    #[must_use]
    pub fn has(&self, digest: Digest, size: u64) -> bool {
        let read = || -> io::Result<bool> {
            let found = hashed(&self.open(digest)?, &mut io::sink())?;
            Ok((found.digest, found.size) == (digest, size))
        };
        read().unwrap_or(false)
    }

    /// Removes all that is not named, and what a crash left.
    pub(super) fn collect(&self, named: &BTreeSet<Digest>) -> io::Result<()> {
        let named: BTreeSet<String> = named.iter().map(Digest::to_string).collect();
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| named.contains(name)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Digest and size of what a file has now.
///
/// # Errors
/// It cannot be read.
pub fn digest_of(path: &Path) -> io::Result<(Digest, u64)> {
    let found = hashed(&File::open(path)?, &mut io::sink())?;
    Ok((found.digest, found.size))
}

/// Copies what is in a file, sharing it where the file system can; reads it once.
fn copy(from: &File, to: &mut File) -> io::Result<Added> {
    if clone_contents(from, to) {
        return hashed(to, &mut io::sink());
    }
    hashed(from, to)
}

fn hashed(mut from: &File, to: &mut impl Write) -> io::Result<Added> {
    let (mut digest, mut hash, mut size) = (Sha256::new(), Xxh3::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let bytes = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => &piece[..n],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(bytes)?;
        digest.update(bytes);
        hash.update(bytes);
        size += bytes.len() as u64;
    }
    let digest = Digest(digest.finalize().into());
    Ok(Added { digest, size, hash: hash.digest128().to_be_bytes() })
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
        let (part, _file) = objects.begin().unwrap();
        objects.collect(&[c.digest].into()).unwrap();
        assert!(!part.exists() && count() == 1 && is_whole(&c, 5));
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        assert!(objects.add(&dir.path().join("link")).is_err());
        assert!(objects.add(dir.path()).is_err() && count() == 1);
    }
}
