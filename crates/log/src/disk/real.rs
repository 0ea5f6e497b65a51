//! The disk of the machine: one directory.

use super::{Disk, File, durable};
use std::{
    any::Any,
    fs, io,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
    path::PathBuf,
};

/// A directory of a real file system.
pub struct DirDisk {
    path: PathBuf,
}

impl DirDisk {
    /// Uses `path`, which is created, durably, if it does not exist.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        durable::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Disk for DirDisk {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Box<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(create)
            .mode(0o600)
            .open(self.path.join(name))?;
        Ok(Box::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Reads, and retries after a signal.
pub(super) fn read_at(file: &fs::File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at(&self.0, buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        use nix::{errno::Errno, fcntl};
        let len = i64::try_from(len).map_err(io::Error::other)?;
        match fcntl::fallocate(self.0.as_fd(), fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, len) {
            // A file system that cannot reserve: a write finds a full disk later.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = from;
        while at < to {
            let len = (to - at).min(ZEROS.len() as u64);
            self.0.write_all_at(&ZEROS[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
