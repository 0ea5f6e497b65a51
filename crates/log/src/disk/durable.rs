//! Directories and small files that survive a loss of power once these functions have returned.
//!
//! A name is durable when its directory and each directory above that were synced. All files made here are for
//! this user only: a replica's files hold clients' bytes.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Creates a directory and its missing parents.
///
/// An interrupted start may have made existing directories: all parents are synced, whoever made them.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for above in path.canonicalize()?.ancestors().skip(1) {
        sync_above(above)?;
    }
    Ok(())
}

/// Another user's directory may be unreadable, or on a file system that syncs no directories: nothing can be done there.
pub fn sync_above(dir: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    let cannot = [PermissionDenied, InvalidInput, Unsupported, ReadOnlyFilesystem];
    match sync_dir(dir) {
        Err(error) if !cannot.contains(&error.kind()) => Err(error),
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_dir(Path::new(".")),
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Writes a whole file: a reader, or a crash, sees the old text or the new one.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    // A crash may have left anything there.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    sync_parent(path)
}

/// Opens a file that grows at its end; a new one is for this user only.
pub fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Takes a directory's permissions, and those of the files in it, from all but this user. A directory of another user, or one that all may
/// write (`/tmp`), is left alone with its files.
pub fn make_private(dir: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let meta = fs::metadata(dir)?;
    let own = nix::unistd::geteuid().as_raw();
    if meta.uid() != own || meta.mode() & STICKY != 0 {
        return Ok(());
    }
    tighten(dir, &meta)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Not the target of a symbolic link.
        let meta = entry.metadata()?;
        if meta.is_file() && meta.uid() == own {
            tighten(&entry.path(), &meta)?;
        }
    }
    Ok(())
}

fn tighten(path: &Path, meta: &fs::Metadata) -> io::Result<()> {
    match meta.mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(meta.mode() & 0o700)),
    }
}

/// Removes a file, if it exists. A file that an earlier call removed and could not sync is surely gone after this one.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_parent(path),
    }
}

/// Gives a file or directory another name in the same directory.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}
