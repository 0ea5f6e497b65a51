//! The files that a server has written: the private layer over the host's files, and its comparison.
//!
//! The server's mount namespace shows the layer in pieces: init hands the node descriptors of two directories before it lets go of them. In one, in memory or on disk, `u/N` is the
//! upper directory of an overlay: the server wrote everything in it. In the other, always in memory, `r` is the root: files that
//! existed when the server began are left out unless they changed since. They are looked up and not taken from the plan: files removed from the
//! host in between never existed for the server.
//!
//! Reading leaves times of last access of files alone, in which the runtime has marks: a disk's mount would change them.
//!
//! Compared for each entry: path, kind, mode, owner (the node's own user counts as 0), size, contents; a symbolic link's target. Modification times
//! are the runtime's ([`Times`]), by numbers of files that only the server's own mounts show: so the node has a descriptor of its root, too. Not
//! compared: other times; sockets; the content of files and directories that are closed to the node's user (root sees all).

mod attributes;
pub(super) mod disk;
mod extents;
mod pack;
mod parts;
mod remembered;
mod stat;
mod stream;
pub(super) mod tree;
mod unpack;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use serde::{Deserialize, Serialize};
use skein_arena::inodes::agreed;
use xxhash_rust::xxh3::Xxh3;

use super::plan::{Step, UPPERS};
use super::times::{Time, Times};
pub use extents::{EXTENT_BYTES, Extent, Extents};
use remembered::{Looking, Remembered};
use stat::Stat;
use stream::Attributes;
pub use stream::{Content, Packs, Shown};

/// The most entries in a list; the digest covers all.
const LISTED: usize = 20_000;

/// A changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Its path in the server.
    pub path: String,
    /// `file`, `directory`, `link`, `fifo`, or `deleted`.
    pub kind: String,
    /// Permissions.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// The server's modification time, in virtual time: seconds since the epoch with nine digits behind the point. Empty for entries that it has not modified
    /// (a directory on the way to a written file), and where the time is not reported.
    pub modified: Option<String>,
    /// XXH3, 128 bits, of kind, mode, owner, contents and modification time, in hexadecimal.
    pub digest: String,
}

/// All changes of a server to its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Of all paths and digests, in order.
    pub digest: String,
    /// The number of entries.
    pub count: u64,
    /// Bytes in files.
    pub bytes: u64,
    /// The first entries by path.
    pub files: Vec<WrittenFile>,
}

/// A server's layer.
#[derive(Debug)]
pub struct Layer {
    /// Has `u`.
    uppers: OwnedFd,
    /// Has `r`.
    top: OwnedFd,
    /// The server's root, as its mounts show it.
    root: Option<File>,
    /// Number of the upper directory, and the directory below it.
    overlays: Vec<(String, PathBuf)>,
    /// The entries of the root when the server began, with their change times.
    made: BTreeMap<PathBuf, (i64, i64)>,
    /// By the last packing.
    remembered: Mutex<Remembered>,
}

impl Layer {
    /// The layer that `steps` have made, by the descriptors of its directories. Nothing is mounted there any more, and the server has not begun.
    pub(super) fn new([uppers, top]: [OwnedFd; 2], steps: &[Step]) -> io::Result<Self> {
        let host = |path: &std::ffi::CStr| {
            let path = Path::new(OsStr::from_bytes(path.to_bytes()));
            path.strip_prefix("/r").ok().map(|rest| Path::new("/").join(rest))
        };
        let mut overlays = Vec::new();
        for step in steps {
            let Step::Overlay { target, data, .. } = step else { continue };
            let data = String::from_utf8_lossy(data.as_bytes()).into_owned();
            let upper = data.split(',').find_map(|word| word.strip_prefix("upperdir="));
            let upper = upper.and_then(|upper| upper.strip_prefix(UPPERS));
            if let (Some(upper), Some(path)) = (upper, host(target)) {
                overlays.push((upper.to_owned(), path));
            }
        }
        let (root, made, remembered) = (None, BTreeMap::new(), Mutex::default());
        let mut layer = Self { uppers, top, root, overlays, made, remembered };
        let mut made = BTreeMap::new();
        walk(&layer.rest(), Path::new("/"), &mut |_, path, meta| {
            made.insert(path.to_owned(), changed(meta));
            Ok(())
        })?;
        layer.made = made;
        Ok(layer)
    }

    /// The server's root, as its mounts show it.
    pub(super) fn shown_by(self, root: Option<File>) -> Self {
        Self { root, ..self }
    }

    /// The upper directory of this name.
    fn upper(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/u/{name}", self.uppers.as_raw_fd()))
    }

    /// What lies in no overlay.
    fn rest(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/r", self.top.as_raw_fd()))
    }

    /// The server's root, as its mounts show it; none if the server ended before it was seen.
    #[must_use]
    pub fn root(&self) -> Option<BorrowedFd<'_>> {
        self.root.as_ref().map(AsFd::as_fd)
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().expect("no holder panics")
    }

    /// Where in the server parts of it are mounted.
    #[must_use]
    pub fn mounts(&self) -> Vec<PathBuf> {
        self.overlays.iter().map(|(_, path)| path.clone()).collect()
    }

    /// The paths in the server of all that is in the layer while it goes on, whether or not the server has changed it.
    ///
    /// # Errors
    /// The layer cannot be read, or there are more than `most`.
    pub fn paths(&self, most: usize) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        self.each(&mut |path, _| {
            paths.push(path.to_owned());
            match paths.len() > most {
                true => Err(io::Error::other(format!("there are more than {most} files in it"))),
                false => Ok(()),
            }
        })?;
        Ok(paths)
    }

    /// No less than the files in the layer occupy, where it is in memory: its file system tells that at once.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn bytes_at_most(&self) -> io::Result<Option<u64>> {
        let mut bytes = 0;
        for place in [&self.uppers, &self.top] {
            let about = fstatfs(place)?;
            if about.filesystem_type() != TMPFS_MAGIC || about.blocks() == 0 {
                return Ok(None);
            }
            let used = about.blocks().saturating_sub(about.blocks_free());
            bytes += used.saturating_mul(about.block_size().unsigned_abs());
        }
        Ok(Some(bytes))
    }

    /// How many bytes the files in the layer occupy.
    ///
    /// # Errors
    /// The layer cannot be read.
    pub fn bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        self.each(&mut |_, meta| {
            bytes += meta.blocks() * 512;
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `each` for all that is in it.
    fn each(&self, each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>) -> io::Result<()> {
        let mut each = |_: &Path, path: &Path, meta: &Metadata| each(path, meta);
        for (upper, path) in &self.overlays {
            walk(&self.upper(upper), path, &mut each)?;
        }
        walk(&self.rest(), Path::new("/"), &mut each)
    }

    /// Writes the server's changes to its files, for [`Self::unpack`]. The server stands still. What is written does not depend on where the host has mounts, and
    /// is equal for equal changes. Answers the paths in the server of all that is in the layer, whether or not the server has changed it; for regular files that were packed, also how the
    /// server's mounts show them.
    ///
    /// # Errors
    /// The layer cannot be read, or `out` not be written to.
    pub fn pack(&self, out: &mut dyn Packs) -> io::Result<Vec<(PathBuf, Option<Shown>)>> {
        self.pack_shaped(out, |_| ())
    }

    /// The same of a server that has ended, for another one that begins with these files: nobody knows any more when which was modified, so all have this time. What the
    /// runtime has noted in times of last access, for a server whose memory goes on, is left out.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn pack_left(&self, out: &mut dyn Packs, modified: Time) -> io::Result<()> {
        let modified = (modified.0, modified.1 as u32);
        let shape = move |attributes: &mut Attributes| {
            let (s, ns) = attributes.accessed;
            attributes.modified = modified;
            if agreed::of((s, i64::from(ns))).is_none() {
                attributes.accessed = modified;
            }
        };
        self.pack_shaped(out, shape).map(drop)
    }

    fn pack_shaped(
        &self,
        out: &mut dyn Packs,
        shape: impl Fn(&mut Attributes) + 'static,
    ) -> io::Result<Vec<(PathBuf, Option<Shown>)>> {
        let mut looking = Looking::new(std::mem::take(&mut *self.remembered()));
        let mut packer = stream::Packer::new(out)?;
        let walk = pack::Walk::shaped(&mut packer, shape).remembering(&mut looking);
        let paths = self.pack_all(walk.shown_by(self.root()))?;
        packer.finish()?;
        *self.remembered() = looking.finish();
        Ok(paths)
    }

    fn pack_all(&self, mut walk: pack::Walk<'_, '_>) -> io::Result<Vec<(PathBuf, Option<Shown>)>> {
        let mut overlays: Vec<_> = self.overlays.iter().collect();
        overlays.sort_by(|(_, a), (_, b)| a.cmp(b));
        for (upper, path) in overlays {
            let place = self.upper(upper);
            if fs::read_dir(&place)?.next().is_some() {
                walk.top(&place, path)?;
                walk.below(&place, path, &mut |_, _| true)?;
            }
        }
        let mut left: BTreeMap<&Path, _> =
            self.made.iter().map(|(path, at)| (path.as_path(), *at)).collect();
        let mut is_new =
            |path: &Path, about: &Stat| left.remove(path).is_none_or(|at| at != about.changed);
        walk.below(&self.rest(), Path::new("/"), &mut is_new)?;
        // What was in a removed directory went with it.
        let mut gone: Option<&Path> = None;
        for path in left.into_keys() {
            if gone.is_none_or(|gone| !path.starts_with(gone)) {
                walk.removed(path)?;
                gone = Some(path);
            }
        }
        Ok(walk.finish())
    }

    /// Makes the changes that were packed in the layer of a server that has just begun and has not got an entry. If it fails, that server is of no use.
    ///
    /// # Errors
    /// The stream is damaged or cannot be read; or a file cannot be made, as when the layer is too small.
    pub fn unpack(&self, from: &mut dyn Read) -> io::Result<()> {
        let root = self.root().ok_or_else(|| io::Error::other("the server's root was not seen"))?;
        after_begin()?;
        unpack::all(root, from)
    }

    /// Lists the server's changes so far; with `times`, the table of a running server, also their times.
    ///
    /// # Errors
    /// The layer cannot be read. Entries that vanish meanwhile are left out.
    pub fn written(&self, times: Option<&Times>) -> io::Result<Written> {
        let seen = match (times, &self.root) {
            (None, _) => None,
            (Some(times), Some(root)) => Some((times, root)),
            (Some(_), None) => return Err(io::Error::other("the server's root was not seen")),
        };
        let modified = |path: &Path| {
            let (times, root) = seen?;
            let path = path.strip_prefix("/").ok()?;
            let place = Path::new("/proc/self/fd").join(root.as_raw_fd().to_string()).join(path);
            fs::symlink_metadata(place).ok().and_then(|meta| times.modified(&meta))
        };
        let entry =
            |place: &Path, path: &Path, meta: &Metadata| entry(place, path, meta, modified(path));
        let mut found = Vec::new();
        for (upper, path) in &self.overlays {
            let place = self.upper(upper);
            walk(&place, path, &mut |place, path, meta| {
                found.extend(entry(place, path, meta));
                Ok(())
            })?;
        }
        let mut left: BTreeMap<&Path, _> =
            self.made.iter().map(|(path, at)| (path.as_path(), *at)).collect();
        walk(&self.rest(), Path::new("/"), &mut |place, path, meta| {
            let old = left.remove(path);
            // Directories change with every entry.
            if old.is_none_or(|at| at != changed(meta) && !meta.is_dir()) {
                found.extend(entry(place, path, meta));
            }
            Ok(())
        })?;
        found.extend(left.into_keys().map(deleted));
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let mut all = Xxh3::new();
        for file in &found {
            all.update(file.path.as_bytes());
            all.update(&[0]);
            all.update(file.digest.as_bytes());
        }
        let (count, bytes) = (found.len() as u64, found.iter().map(|file| file.size).sum());
        found.truncate(LISTED);
        Ok(Written { digest: format!("{:032x}", all.digest128()), count, bytes, files: found })
    }
}

/// Waits until a file that is made is younger than the server, by the kernel's coarse clock: the runtime tells the server's own files from the host's by that.
fn after_begin() -> io::Result<()> {
    let now = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME_COARSE);
    let before = now()?;
    while now()? == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(())
}

/// The time of a file's last change of any kind.
fn changed(meta: &Metadata) -> (i64, i64) {
    (meta.ctime(), meta.ctime_nsec())
}

/// Calls `each` for all entries below `place`, which the server knows as `path`.
fn walk(
    place: &Path,
    path: &Path,
    each: &mut dyn FnMut(&Path, &Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    for found in fs::read_dir(place)? {
        let name = found?.file_name();
        let (place, path) = (place.join(&name), path.join(&name));
        let Ok(meta) = fs::symlink_metadata(&place) else { continue };
        each(&place, &path, &meta)?;
        if meta.is_dir() {
            match walk(&place, &path, each) {
                Err(error) if !unseen(&error) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Gone meanwhile, or closed to the node's user: an ordinary user's server may close its files even to its owner.
fn unseen(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

fn entry(
    place: &Path,
    path: &Path,
    meta: &Metadata,
    modified: Option<Time>,
) -> Option<WrittenFile> {
    let kind = meta.file_type();
    let mut hash = Xxh3::new();
    let (name, size) = if kind.is_dir() {
        ("directory", 0)
    } else if kind.is_symlink() {
        hash.update(fs::read_link(place).ok()?.as_os_str().as_bytes());
        ("link", 0)
    } else if kind.is_file() {
        match contents(place, &mut hash) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => ("file", meta.len()),
            read => ("file", read.ok()?),
        }
    } else if kind.is_fifo() {
        ("fifo", 0)
    } else if kind.is_char_device() && meta.rdev() == 0 {
        return Some(deleted(path));
    } else {
        return None;
    };
    let own = nix::unistd::geteuid().as_raw();
    let owner = |id: u32| if id == own { 0 } else { id };
    let mode = meta.mode() & 0o7777;
    hash.update(format!("{name} {mode:o} {} {size}", owner(meta.uid())).as_bytes());
    let modified = modified.map(|(s, ns)| format!("{s}.{ns:09}"));
    hash.update(modified.as_deref().unwrap_or_default().as_bytes());
    Some(WrittenFile {
        path: path.to_string_lossy().into_owned(),
        kind: name.into(),
        mode,
        size,
        modified,
        digest: format!("{:032x}", hash.digest128()),
    })
}

fn deleted(path: &Path) -> WrittenFile {
    WrittenFile {
        path: path.to_string_lossy().into_owned(),
        kind: "deleted".into(),
        mode: 0,
        size: 0,
        modified: None,
        digest: format!("{:032x}", 0),
    }
}

/// Opens a file to be read, without a trace in its time of last access where it may be so: in a layer all files are the node's user's, or that is root.
fn open(place: &Path) -> io::Result<File> {
    match File::options().read(true).custom_flags(libc::O_NOATIME).open(place) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => File::open(place),
        opened => opened,
    }
}

fn contents(place: &Path, hash: &mut Xxh3) -> io::Result<u64> {
    let mut file = open(place)?;
    let mut piece = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(size),
            n => {
                hash.update(&piece[..n]);
                size += n as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::ffi::CString;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn layer(root: &Path) -> Layer {
        for path in ["u/0", "w/0", "r/etc", "r/tmp"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("r/tmp/old"), "as it was").unwrap();
        let path = |text: &str| CString::new(text).unwrap();
        let directory = |text| Step::Directory { path: path(text), mode: 0o755, owner: None };
        let steps = [
            directory("/r/etc"),
            directory("/r/tmp"),
            Step::File { path: path("/r/tmp/old"), from: None, mode: 0o644, owner: None },
            // Removed from the host meanwhile.
            Step::File { path: path("/r/tmp/gone"), from: None, mode: 0o644, owner: None },
            Step::Overlay {
                lower: path("/old/etc"),
                target: path("/r/etc"),
                data: path("userxattr,lowerdir=.,upperdir=/l/u/0,workdir=/l/w/0"),
                or_read_only: false,
            },
        ];
        let tops = [(); 2].map(|()| File::open(root).unwrap().into());
        Layer::new(tops, &steps).unwrap().shown_by(File::open(root.join("r")).ok())
    }

    fn paths(written: &Written) -> Vec<(&str, &str)> {
        written.files.iter().map(|file| (file.path.as_str(), file.kind.as_str())).collect()
    }

    #[test]
    fn tells_what_was_written_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let layer = layer(root.path());
        assert_eq!(paths(&layer.written(None).unwrap()), []);
        fs::write(root.path().join("u/0/passwd"), "new").unwrap();
        symlink("passwd", root.path().join("u/0/link")).unwrap();
        fs::create_dir(root.path().join("r/tmp/made")).unwrap();
        let written = layer.written(None).unwrap();
        assert_eq!(
            paths(&written),
            [("/etc/link", "link"), ("/etc/passwd", "file"), ("/tmp/made", "directory")]
        );
        assert_eq!((written.count, written.bytes), (3, 3));
        fs::remove_file(root.path().join("r/tmp/old")).unwrap();
        assert_eq!(paths(&layer.written(None).unwrap())[3], ("/tmp/old", "deleted"));
        // File systems' clocks are coarse: in the same tick a change may be invisible.
        let begin = std::time::Instant::now();
        loop {
            fs::write(root.path().join("r/tmp/old"), "another").unwrap();
            let written = layer.written(None).unwrap();
            match paths(&written).get(3) {
                Some(told) => break assert_eq!(*told, ("/tmp/old", "file")),
                None => assert!(begin.elapsed().as_secs() < 10, "it is not told"),
            }
        }
    }

    #[test]
    fn a_byte_a_mode_or_a_name_makes_another_digest() {
        let root = tempfile::tempdir().unwrap();
        let layer = layer(root.path());
        let file = root.path().join("u/0/file");
        let mut digests = BTreeSet::new();
        let mut note = || assert!(digests.insert(layer.written(None).unwrap().digest));
        fs::write(&file, "one").unwrap();
        note();
        fs::write(&file, "two").unwrap();
        note();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        note();
        fs::rename(&file, root.path().join("u/0/other")).unwrap();
        note();
    }
}
