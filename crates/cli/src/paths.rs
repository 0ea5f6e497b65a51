//! Paths of a cluster's files: its data (log, configuration, the server's output) and its runtime directory (sockets,
//! lock, state), which means something only while it runs.
//!
//! | | root | ordinary user |
//! |---|---|---|
//! | data | `/var/lib/skein/NAME` | `$XDG_STATE_HOME/skein/NAME`, `~/.local/state/skein/NAME` |
//! | runtime | `/run/skein/NAME` | `$XDG_RUNTIME_DIR/skein/NAME`, `/tmp/skein-UID/NAME` |
//!
//! `SKEIN_RUN_DIR` puts the runtime directories of all clusters elsewhere.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Longest path of a unix socket that the kernel takes: `sun_path` without its final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Room for the longest file name in a runtime directory.
const SOCKET_NAME_BYTES: usize = "/publish.sock".len();

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// The default data directory of the cluster `name`.
pub fn data_dir(name: &str) -> Result<PathBuf, Failure> {
    if is_root() {
        return Ok(Path::new("/var/lib/skein").join(name));
    }
    if let Some(state) = variable("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        return Ok(state.join("skein").join(name));
    }
    match variable("HOME").filter(|path| path.is_absolute()) {
        Some(home) => Ok(home.join(".local/state/skein").join(name)),
        None => Err(Failure::new(
            "data directory",
            "neither XDG_STATE_HOME nor HOME is set",
            "say where it shall be with --data DIR",
        )),
    }
}

/// The directory that holds the runtime directories of all of this user's clusters.
pub fn runtime_root() -> PathBuf {
    if let Some(root) = variable("SKEIN_RUN_DIR") {
        return root;
    }
    if is_root() {
        return "/run/skein".into();
    }
    match variable("XDG_RUNTIME_DIR").filter(|path| path.is_dir()) {
        Some(runtime) => runtime.join("skein"),
        None => format!("/tmp/skein-{}", nix::unistd::geteuid()).into(),
    }
}

/// Creates a directory and its missing parents; new ones are for this user only.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates the runtime directory of the cluster `name` under `root` and checks that no other user can reach into it.
pub fn create_runtime_dir(root: &Path, name: &str) -> Result<PathBuf, Failure> {
    let dir = root.join(name);
    let what = || format!("runtime directory {}", dir.display());
    let elsewhere = "set SKEIN_RUN_DIR to a directory of your own";
    if dir.as_os_str().len() + SOCKET_NAME_BYTES > MAX_SOCKET_PATH_BYTES {
        return Err(Failure::new(what(), "its path is too long for sockets", elsewhere));
    }
    create_private(&dir).map_err(|error| Failure::new(what(), error, elsewhere))?;
    for path in [root, &dir] {
        let meta = fs::symlink_metadata(path).map_err(|e| Failure::new(what(), e, elsewhere))?;
        let foreign = meta.uid() != nix::unistd::geteuid().as_raw();
        if !meta.is_dir() || foreign || meta.permissions().mode() & 0o022 != 0 {
            let why = format!(
                "{} belongs to another user, or another user can write to it",
                path.display()
            );
            return Err(Failure::new(what(), why, elsewhere));
        }
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
        .map_err(|error| Failure::new(what(), error, elsewhere))?;
    Ok(dir)
}

/// Writes a file so that a reader sees the old text or the new one, never a part. Only this user may read it: a server's
/// environment and arguments may hold secrets. A file that is that already is left: there may be no room for another.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if is_already(path, text) {
        return Ok(());
    }
    let fresh = path.with_extension("new");
    write_private(&fresh, text)?;
    fs::rename(&fresh, path)
}

fn is_already(path: &Path, text: &str) -> bool {
    let is_private = |meta: fs::Metadata| meta.is_file() && meta.mode() & 0o777 == 0o600;
    fs::symlink_metadata(path).is_ok_and(is_private)
        && fs::read(path).is_ok_and(|bytes| bytes == text.as_bytes())
}

fn write_private(path: &Path, text: &str) -> io::Result<fs::File> {
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let failure = create_runtime_dir(root.path(), "x").unwrap_err();
        assert!(failure.to_string().contains("another user"), "{failure}");
    }

    #[test]
    fn a_path_that_no_socket_takes_is_refused() {
        let root = Path::new("/tmp").join("x".repeat(100));
        let failure = create_runtime_dir(&root, "x").unwrap_err();
        assert!(failure.to_string().contains("too long"), "{failure}");
        assert!(!root.exists());
    }

    #[test]
    fn a_file_is_written_whole() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.json");
        write_whole(&path, "1").unwrap();
        write_whole(&path, "2").unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        write_whole(&path, "2").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), before, "it needs no room");
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
