//! What the replicas of a new cluster begin with, if they begin with something: `--import`.
//!
//! It is taken as a whole into a directory of its own first, and given to each replica then. So nothing is lost when it turns out to be damaged, and a try that failed or was
//! killed leaves nothing in a replica's directory that the next one would begin with.

use crate::error::NodeError;
use crate::{archive, begin, import};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory, in that of a cluster or of a replica.
const NAME: &str = "importing";

/// What was taken. It goes with this value; what a killed process has left goes with the next one.
#[derive(Debug)]
pub struct Beginnings {
    dir: PathBuf,
}

impl Beginnings {
    /// Takes what `from` is into `dir`, durably: a directory of files, or what was exported. None: nothing.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or there is no room for it.
    pub fn take(from: Option<&Path>, dir: &Path) -> Result<Self, NodeError> {
        let taken = Self { dir: dir.join(NAME) };
        taken.remove().map_err(|error| NodeError::DataDir { path: taken.dir.clone(), error })?;
        match from {
            Some(file) if file.is_file() => archive::take(file, &taken.dir)?,
            Some(files) => drop(import::pack(files, &taken.dir)?),
            None => {}
        }
        Ok(taken)
    }

    /// Lets the next start of a node with this data directory begin the log of a founding member with that, and with nothing that is there.
    ///
    /// # Errors
    /// There is a log, no room, or the directory cannot be written. What it was to begin with is gone again.
    pub fn found(&self, data_dir: &Path) -> Result<(), NodeError> {
        import::forget(data_dir)?;
        let founded = import::share(&self.dir, data_dir).and_then(|()| begin::found(data_dir));
        if founded.is_err() {
            // The error from before is the one that matters.
            let _ = import::forget(data_dir);
        }
        founded
    }

    /// The same for a replica that may have been asked to begin before: once that is given up, what fails leaves none that begins with nothing.
    ///
    /// # Errors
    /// As for [`found`](Self::found).
    pub fn found_anew(&self, data_dir: &Path) -> Result<(), NodeError> {
        if data_dir.exists() {
            begin::done(data_dir)?;
        }
        self.found(data_dir)
    }

    fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Beginnings {
    fn drop(&mut self) {
        // What stays is removed before the next one is taken.
        let _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_gets_nothing_begins_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (data, taken) = (root.path().join("data"), root.path().join("taken"));
        begin::found(&data).unwrap();
        // No file, so it cannot be given.
        fs::create_dir_all(taken.join("import")).unwrap();
        let taken = Beginnings { dir: taken };
        assert!(taken.found_anew(&data).is_err());
        assert_eq!(begin::asked(&data).unwrap(), None);
        fs::remove_dir(taken.dir.join("import")).unwrap();
        taken.found_anew(&data).unwrap();
        assert_eq!(begin::asked(&data).unwrap(), Some(0));
    }

    #[test]
    fn nothing_of_another_try_is_begun_with() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("data/importing")).unwrap();
        fs::write(path("data/importing/import"), "of a try that was killed").unwrap();
        let left = ["import", "import.image", "import.part", "base/index", "edition"];
        fs::create_dir_all(path("data/node/base")).unwrap();
        left.iter().for_each(|name| fs::write(path("data/node").join(name), "left").unwrap());
        fs::create_dir(path("files")).unwrap();
        let node = path("data/node");

        let error = Beginnings::take(Some(&path("missing")), &path("data")).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        assert!(!path("data/importing").exists());

        let taken = Beginnings::take(Some(&path("files")), &path("data")).unwrap();
        taken.found(&node).unwrap();
        drop(taken);
        assert!(import::Import::of(&node).unwrap().is_some() && begin::answered_nobody(&node));
        assert!(left[1..].iter().all(|name| !node.join(name).exists()));
        Beginnings::take(None, &path("data")).unwrap().found(&node).unwrap();
        assert!(!import::is_there(&node) && !path("data/importing").exists());
    }

    #[test]
    fn a_log_that_was_begun_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("node/log")).unwrap();
        fs::write(path("node/log/0000000000000001.wal"), "").unwrap();
        fs::write(path("node/import"), "its own").unwrap();
        let taken = Beginnings::take(None, root.path()).unwrap();
        assert!(matches!(taken.found(&path("node")), Err(NodeError::HasLog { .. })));
        assert_eq!(fs::read(path("node/import")).unwrap(), b"its own");
    }
}
