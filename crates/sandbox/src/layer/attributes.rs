//! Attributes of files: read for a packed layer, and set again.
//!
//! Of the extended ones those are kept that a server can set: `user.`, but for overlayfs' own, and access control lists.

use std::ffi::CString;
use std::io::{self, Error};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, getegid, geteuid};

use super::stat::Stat;
use super::stream::{Attributes, MAX_EXTENDED_BYTES};

/// Overlayfs keeps its own notes below this.
const OVERLAYS: &[u8] = b"user.overlay.";

/// Names and values of extended attributes.
pub(super) type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// The attributes of a file, with these extended ones.
pub(super) fn of(about: &Stat, extended: Extended) -> Attributes {
    let (own_user, own_group) = (geteuid().as_raw(), getegid().as_raw());
    let id = |id: u32, own: u32| if id == own { 0 } else { id };
    let time = |(s, ns): (i64, i64)| (s, ns as u32);
    Attributes {
        mode: about.mode & 0o7777,
        user: id(about.user, own_user),
        group: id(about.group, own_group),
        accessed: time(about.accessed),
        modified: time(about.modified),
        extended,
    }
}

/// The value of an extended attribute.
pub(super) fn value(place: &Path, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let (place, name) = (c_string(place.as_os_str().as_bytes())?, c_string(name)?);
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: two terminated strings, and a live buffer of this length.
    let len = unsafe {
        libc::lgetxattr(place.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    match usize::try_from(len) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        Err(_) => none_if_missing(Error::last_os_error()),
    }
}

/// A file system without extended attributes has none.
fn none_if_missing<T>(error: Error) -> io::Result<Option<T>> {
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::EOPNOTSUPP) => Ok(None),
        _ => Err(error),
    }
}

/// The extended attributes of the file at `place`, as far as they are packed.
pub(super) fn extended(place: &Path) -> io::Result<Extended> {
    values(place, &names(place)?)
}

/// The names of all extended attributes of the file at `place`, each with a zero byte behind it.
pub(super) fn names(place: &Path) -> io::Result<Vec<u8>> {
    let path = c_string(place.as_os_str().as_bytes())?;
    // Most files have none, and a server may have many files.
    // SAFETY: a terminated string, and no buffer.
    if unsafe { libc::llistxattr(path.as_ptr(), std::ptr::null_mut(), 0) } == 0 {
        return Ok(Vec::new());
    }
    let mut names = vec![0u8; 64 << 10];
    // SAFETY: a terminated string, and a live buffer of this length.
    let len = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let Ok(len) = usize::try_from(len) else {
        return none_if_missing(Error::last_os_error()).map(Option::unwrap_or_default);
    };
    names.truncate(len);
    Ok(names)
}

/// The values of those of these names that are packed.
pub(super) fn values(place: &Path, names: &[u8]) -> io::Result<Extended> {
    let is_servers = |name: &&[u8]| {
        name.starts_with(b"user.") && !name.starts_with(OVERLAYS)
            || name.starts_with(b"system.posix_acl_")
    };
    let (mut found, mut bytes) = (Vec::new(), 0);
    for name in names.split(|byte| *byte == 0).filter(is_servers) {
        let Some(value) = value(place, name)? else { continue };
        bytes += name.len() + value.len();
        if bytes > MAX_EXTENDED_BYTES {
            return Err(Error::other("a file has more than 1 MiB of extended attributes"));
        }
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

/// Gives the file at `place`, of which nobody else knows, its attributes. The mode comes last: it may close the file.
pub(super) fn set(place: &Path, is_link: bool, attributes: &Attributes) -> io::Result<()> {
    let (own_user, own_group) = (geteuid(), getegid());
    let user = if attributes.user == 0 { own_user } else { Uid::from_raw(attributes.user) };
    let group = if attributes.group == 0 { own_group } else { Gid::from_raw(attributes.group) };
    let meta = std::fs::symlink_metadata(place)?;
    if (meta.uid(), meta.gid()) != (user.as_raw(), group.as_raw()) {
        std::os::unix::fs::lchown(place, Some(user.as_raw()), Some(group.as_raw()))?;
    }
    let path = c_string(place.as_os_str().as_bytes())?;
    for (name, value) in &attributes.extended {
        let name = c_string(name)?;
        // SAFETY: two terminated strings, and a live value of this length.
        let set = unsafe {
            libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        };
        if set != 0 {
            return Err(Error::last_os_error());
        }
    }
    let time = |(s, ns): (i64, u32)| TimeSpec::new(s, i64::from(ns));
    let (accessed, modified) = (time(attributes.accessed), time(attributes.modified));
    let flags = UtimensatFlags::NoFollowSymlink;
    utimensat(nix::fcntl::AT_FDCWD, place, &accessed, &modified, flags)?;
    if !is_link {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(attributes.mode);
        std::fs::set_permissions(place, mode)?;
    }
    Ok(())
}

fn c_string(text: &[u8]) -> io::Result<CString> {
    Ok(CString::new(text)?)
}
