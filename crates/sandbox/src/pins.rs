//! Pinned files: what a server sees in place of its host's files of these paths, whatever has become of those.
//!
//! They lie between the server's private layer and the host, in two parts. Contents and symbolic links are in a *tree*, a directory of the node's with a file for
//! each pinned path. Directories, with their attributes, and absences are made in memory by the plan, since the kernel takes absences only
//! from the layer above the one that they hide.
//!
//! An ordinary user can make no file of another user's. Its files get the rights that the node had, and the attributes that the server is to see
//! as their time of last access ([`agreed`](skein_arena::inodes::agreed)), which servers never see.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{AccessFlags, Whence, faccessat, lseek};
use serde::{Deserialize, Serialize};
use skein_arena::inodes::agreed::{self, Agreed};

use super::owner::{Owner, id_owner};

/// Attributes of a pinned file, as its host had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Permissions.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// What the node's user could do: read 4, write 2, execute 1.
    pub rights: u32,
    /// Time of the last change of the contents.
    pub modified: (i64, u32),
}

impl About {
    /// Of the file at `path`.
    #[must_use]
    pub fn of(path: &Path, meta: &Metadata) -> Self {
        let asked = [(AccessFlags::R_OK, 4), (AccessFlags::W_OK, 2), (AccessFlags::X_OK, 1)];
        let mut rights = 7;
        if !meta.is_symlink() {
            let has = asked.into_iter().filter(|(right, _)| allowed(path, *right));
            rights = has.map(|(_, bit)| bit).sum();
        }
        Self {
            mode: meta.mode() & 0o7777,
            user: meta.uid(),
            group: meta.gid(),
            rights,
            modified: (meta.mtime(), meta.mtime_nsec() as u32),
        }
    }

    /// The mode of a file in its place. A file of another user that becomes the node's user's gives that user no more rights than before.
    pub(super) fn mode(&self, owner: Owner) -> u32 {
        if self.is_others(owner) { (self.mode & 0o1077) | self.rights << 6 } else { self.mode }
    }

    /// The owner of a file in its place; none: that of the process which makes it.
    pub(super) fn owner(&self, owner: Owner) -> Option<(u32, u32)> {
        (owner == Owner::Kept).then_some((self.user, self.group))
    }

    /// Whether another user's, for an ordinary user's node.
    pub(super) fn is_others(&self, owner: Owner) -> bool {
        matches!(owner, Owner::Single { uid, gid } if self.user != uid || self.group != gid)
    }

    /// The time of last access of a file in its place. `is_stuck`: a directory in which the server's layer cannot hold changes.
    pub(super) fn accessed(&self, owner: Owner, is_stuck: bool) -> (i64, i64) {
        match owner {
            Owner::Single { uid, gid } if is_stuck || self.is_others(owner) => Agreed {
                mode: self.mode,
                user: (self.user != uid).then_some(agreed::UNKNOWN),
                group: (self.group != gid).then_some(agreed::UNKNOWN),
                is_stuck,
            }
            .time(),
            _ => (self.modified.0, i64::from(self.modified.1)),
        }
    }
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// Nothing.
    Absent,
    /// A directory: other entries than pinned ones are the host's, but for those that are not in the listing, if there is one.
    Directory {
        /// Its attributes.
        about: About,
        /// The names in it.
        listing: Option<BTreeSet<OsString>>,
    },
    /// A symbolic link.
    Link {
        /// Its attributes.
        about: About,
        /// Its target.
        to: PathBuf,
    },
    /// A regular file.
    File {
        /// Its attributes.
        about: About,
        /// Bytes.
        size: u64,
        /// A file with its contents.
        from: PathBuf,
        /// It is one more name of this path's file.
        same_as: Option<PathBuf>,
    },
}

/// All pins of a start.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    /// The directory with their contents ([`Pins::lay`]).
    pub tree: PathBuf,
    /// By path: absolute, without symbolic links on the way. Each directory on the way is there.
    pub all: BTreeMap<PathBuf, Pin>,
}

impl Pins {
    /// What is pinned at a path.
    pub(super) fn at(&self, path: &Path) -> Option<&Pin> {
        self.all.get(path)
    }

    /// The names pinned in a directory, absences too.
    pub(super) fn inside<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = OsString> + 'a {
        let after = (Bound::Excluded(path.to_owned()), Bound::Unbounded);
        let below = self.all.range(after).map(|(path, _)| path);
        below
            .take_while(move |below| below.starts_with(path))
            .filter(move |below| below.parent() == Some(path))
            .filter_map(|below| below.file_name().map(ToOwned::to_owned))
    }

    /// Whether an entry that is not pinned itself is not to be seen, because its directory's listing has not got it.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return false };
        match self.all.get(dir) {
            Some(Pin::Directory { listing: Some(listing), .. }) => {
                !listing.contains(name) && !self.all.contains_key(path)
            }
            _ => false,
        }
    }

    /// Makes the tree, a new directory. Contents are links to the files that have them, where these are in the same file system and not linked twice.
    ///
    /// # Errors
    /// A file cannot be made or is missing.
    pub fn lay(&self) -> io::Result<()> {
        let owner = id_owner();
        fs::DirBuilder::new().mode(0o755).create(&self.tree)?;
        let mut linked = BTreeSet::new();
        for (path, pin) in &self.all {
            let Ok(rest) = path.strip_prefix("/") else { continue };
            let place = self.tree.join(rest);
            let failed = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            match pin {
                Pin::Absent => {}
                Pin::Directory { .. } => {
                    fs::DirBuilder::new().mode(0o755).create(&place).map_err(failed)?;
                }
                Pin::Link { about, to } => {
                    symlink(to, &place).and_then(|()| set(&place, about, owner)).map_err(failed)?;
                }
                Pin::File { about, from, same_as, .. } => {
                    let other = same_as.as_ref().and_then(|other| other.strip_prefix("/").ok());
                    let made = match other.map(|other| self.tree.join(other)) {
                        Some(other) if other.exists() => fs::hard_link(other, &place),
                        _ if linked.insert(from) && fs::hard_link(from, &place).is_ok() => Ok(()),
                        _ => copy(from, &place),
                    };
                    made.and_then(|()| set(&place, about, owner)).map_err(failed)?;
                }
            }
        }
        Ok(())
    }
}

/// Whether the node may do this, by its effective ids.
pub(super) fn allowed(path: &Path, what: AccessFlags) -> bool {
    faccessat(AT_FDCWD, path, what, AtFlags::AT_EACCESS).is_ok()
}

/// Whether overlays over files of this directory are possible: the kernel stacks no more than two.
#[must_use]
pub fn can_be_stacked(dir: &Path) -> bool {
    let found = nix::sys::statfs::statfs(dir);
    found.is_ok_and(|fs| fs.filesystem_type() != nix::sys::statfs::OVERLAYFS_SUPER_MAGIC)
}

/// A new file with the contents of another: shared with it where the file system can; otherwise holes stay holes.
///
/// # Errors
/// It exists, or cannot be written.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    // Reading must not change the time of access, in which another name of the file may have attributes.
    let from = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(from)?;
    let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    if clone_contents(&from, &to) { Ok(()) } else { copy_data(&from, &to) }
}

fn copy_data(mut from: &File, mut to: &File) -> io::Result<()> {
    let len = from.metadata()?.len();
    let mut at = 0;
    while at < len {
        let data = match lseek(from, at.cast_signed(), Whence::SeekData) {
            Ok(data) => data.cast_unsigned(),
            Err(Errno::ENXIO) => break,
            Err(_) => at,
        };
        let hole = lseek(from, data.cast_signed(), Whence::SeekHole);
        let end = hole.map_or(len, i64::cast_unsigned);
        from.seek(SeekFrom::Start(data))?;
        to.seek(SeekFrom::Start(data))?;
        io::copy(&mut from.take(end - data), &mut to)?;
        at = end;
    }
    to.set_len(len)
}

/// Makes an empty file share all contents of another; false where the file system cannot.
#[must_use]
pub fn clone_contents(from: &File, to: &File) -> bool {
    // SAFETY: two open descriptors; the call takes no pointers.
    unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) == 0 }
}

/// Gives a file of the tree its attributes, as far as it has not got them: another server may just be ending on the same file.
fn set(place: &Path, about: &About, owner: Owner) -> io::Result<()> {
    let now = fs::symlink_metadata(place)?;
    if let Some((user, group)) = about.owner(owner)
        && (now.uid(), now.gid()) != (user, group)
    {
        std::os::unix::fs::lchown(place, Some(user), Some(group))?;
    }
    let mode = about.mode(owner);
    if !now.is_symlink() && now.mode() & 0o7777 != mode {
        fs::set_permissions(place, fs::Permissions::from_mode(mode))?;
    }
    let accessed = about.accessed(owner, false);
    let modified = (about.modified.0, i64::from(about.modified.1));
    if (now.atime(), now.atime_nsec(), now.mtime(), now.mtime_nsec())
        != (accessed.0, accessed.1, modified.0, modified.1)
    {
        let time = |(s, ns): (i64, i64)| TimeSpec::new(s, ns);
        let flags = UtimensatFlags::NoFollowSymlink;
        utimensat(AT_FDCWD, place, &time(accessed), &time(modified), flags)?;
    }
    Ok(())
}

/// A path in an overlay's options, in which some bytes part one option from the next.
pub(super) fn escaped(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'\\' | b':' | b',') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_copy_has_the_holes_of_its_original() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = File::create(&from).unwrap();
        for at in [0, 3 << 20, 9 << 20] {
            file.write_all_at(b"data", at).unwrap();
        }
        file.set_len(32 << 20).unwrap();
        let new = File::create(dir.path().join("plain")).unwrap();
        copy_data(&File::open(&from).unwrap(), &new).unwrap();
        copy(&from, &to).unwrap();
        let original = fs::read(&from).unwrap();
        for name in ["plain", "to"] {
            let path = dir.path().join(name);
            assert!(fs::read(&path).unwrap() == original, "{name}");
            let blocks = fs::metadata(&path).unwrap().blocks();
            assert!(blocks * 512 < 1 << 20, "{name}: {blocks} blocks");
        }
        File::create(dir.path().join("none")).unwrap();
        copy(&dir.path().join("none"), &dir.path().join("nothing")).unwrap();
        assert_eq!(fs::read(dir.path().join("nothing")).unwrap(), b"");
    }
}
