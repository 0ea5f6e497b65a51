//! Directories for layers on disk: where they can be, and their removal.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::statfs::statfs;

/// File systems that the kernel takes no upper directory of an overlay from, or that are memory: magic number, and what is said of them.
const UNFIT: [(i64, &str); 12] = [
    (0x794c_7630, "overlayfs, on which the kernel puts no further layer"),
    (0x0102_1994, "tmpfs, which is memory"),
    (0x8584_58f6, "ramfs, which is memory"),
    (0x6969, "NFS, which holds no layer"),
    (0xff53_4d42, "CIFS, which holds no layer"),
    (0xfe53_4d42, "SMB, which holds no layer"),
    (0x6573_5546, "FUSE, which holds no layer"),
    (0x0102_1997, "9p, which holds no layer"),
    (0x00c3_6400, "Ceph, which holds no layer"),
    (0x4d44, "FAT, which holds no layer"),
    (0x2011_bab0, "exFAT, which holds no layer"),
    (0xf15f, "eCryptfs, which holds no layer"),
];

/// The kind of file system that a directory is in, as the kernel numbers it.
///
/// # Errors
/// It cannot be asked.
pub fn file_system(dir: &Path) -> io::Result<i64> {
    Ok(statfs(dir)?.filesystem_type().0)
}

/// Why no layer can be in a directory, as far as its file system's kind says it.
///
/// # Errors
/// It cannot be asked.
pub fn unfit_for_layer(dir: &Path) -> io::Result<Option<&'static str>> {
    let kind = file_system(dir)?;
    Ok(UNFIT.iter().find(|(unfit, _)| *unfit == kind).map(|(_, what)| *what))
}

/// Makes a directory for a layer.
///
/// # Errors
/// It cannot be made; or ([`ErrorKind::Unsupported`]) its file system has no extended attributes, in which overlays keep notes.
pub fn make_layer(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let name = c"user.overlay.skein";
    // SAFETY: two terminated strings, and a live value of this length.
    let set = unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), c"y".as_ptr().cast(), 1, 0) };
    if set != 0 {
        let error = io::Error::last_os_error();
        fs::remove_dir(dir)?;
        return Err(match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => ErrorKind::Unsupported.into(),
            _ => error,
        });
    }
    Ok(())
}

/// Removes a layer that no server has any more, whatever modes its directories have. Another thread may be doing the same.
///
/// However deep the server has nested its directories: each is moved to the top first.
///
/// # Errors
/// Something cannot be removed.
pub fn remove_layer(dir: &Path) -> io::Result<()> {
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let mut moved = 0;
    let mut left = Vec::new();
    empty(dir, |inner| {
        left.push(inner);
        Ok(())
    })?;
    while let Some(inner) = left.pop() {
        empty(&inner, |deeper| {
            moved += 1;
            let to = dir.join(format!("{begun:x}-{moved}"));
            if there(fs::rename(&deeper, &to))? {
                left.push(to);
            }
            Ok(())
        })?;
        match fs::remove_dir(&inner) {
            // Entries may be missed while others are removed.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => left.push(inner),
            removed => drop(there(removed)?),
        }
    }
    there(fs::remove_dir(dir)).map(drop)
}

/// Removes all of a directory but directories, which `each` is told.
fn empty(dir: &Path, mut each: impl FnMut(PathBuf) -> io::Result<()>) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                // Its owner needs these rights to list, empty and move it.
                if there(fs::set_permissions(&path, Permissions::from_mode(0o700)))? {
                    each(path)?;
                }
            }
            removed => drop(there(removed)?),
        }
    }
    Ok(())
}

/// Whether it was there.
fn there(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_removed_however_deep_and_closed_it_is() {
        let root = tempfile::tempdir().unwrap();
        let layer = root.path().join("layer");
        make_layer(&layer).unwrap();
        let mut deep = layer.join("u");
        // Longer than any path may be.
        for n in 0..3 {
            let name = "d".repeat(200);
            let mut inner = deep.clone();
            fs::create_dir_all(&inner).unwrap();
            for _ in 0..15 {
                inner.push(&name);
                fs::create_dir(&inner).unwrap();
            }
            fs::write(inner.join("file"), "x").unwrap();
            let next = layer.join(format!("next-{n}"));
            fs::create_dir(&next).unwrap();
            fs::rename(&deep, next.join("below")).unwrap();
            deep = next;
        }
        fs::write(layer.join("file"), "x").unwrap();
        std::os::unix::fs::symlink("/", layer.join("next-2/link")).unwrap();
        fs::create_dir(layer.join("next-2/closed")).unwrap();
        fs::create_dir(layer.join("next-2/closed/inner")).unwrap();
        fs::set_permissions(layer.join("next-2/closed"), Permissions::from_mode(0o000)).unwrap();
        remove_layer(&layer).unwrap();
        assert!(!layer.exists());
        remove_layer(&layer).unwrap();
    }

    #[test]
    fn memory_is_unfit_for_a_layer_on_disk() {
        assert!(unfit_for_layer(Path::new("/dev/shm")).unwrap().unwrap().contains("memory"));
    }
}
