//! A directory that is only read: a copy of a log, or that of a node that does not run.

use super::{Disk, File};
use std::{any::Any, fs, io, path::PathBuf};

/// A directory of a real file system. All changes fail.
pub struct StoredDir {
    path: PathBuf,
}

impl StoredDir {
    /// Opens the directory at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

fn refused() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

impl Disk for StoredDir {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Box<dyn File>> {
        if create {
            return Err(refused());
        }
        Ok(Box::new(StoredFile(fs::File::open(self.path.join(name))?)))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Err(refused())
    }

    /// Tells whether a node has the directory, without locking others out: a node that starts now finds it free. A copy may lack the file.
    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let file = match fs::File::open(self.path.join("lock")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Box::new(()))),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Box::new(()))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

struct StoredFile(fs::File);

impl File for StoredFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        super::real::read_at(&self.0, buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn zero(&self, _: u64, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }
}
