//! The file operations of the log as a trait, so that tests can put a faulty disk under it.
//!
//! Promises that the log relies on: bytes written before [`File::sync`] returned `Ok` survive a crash; other bytes
//! may survive wholly, partly (any bytes of them) or not at all, in any order; a created file survives once
//! [`Disk::sync_dir`] returned. [`sim::SimDisk`] uses every freedom that this leaves.

pub mod durable;
mod real;
pub mod sim;
mod stored;

pub use real::DirDisk;
pub use stored::StoredDir;

use std::{any::Any, io};

/// A flat directory of files.
pub trait Disk: Send + Sync {
    /// The directory's name for messages.
    fn location(&self) -> String;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file for reading and writing; creates it, empty, if `create`, and then it must not exist.
    fn open(&self, name: &str, create: bool) -> io::Result<Box<dyn File>>;
    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// 64 unpredictable bits.
    fn random(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
    /// Takes the directory for this process until the guard is dropped; `None` if another process has it.
    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
}

/// An open file. Reads may come from other threads than the one that writes.
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`; the file grows as needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file, or grows it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space, so that writes below `len` cannot fail for want of it. The length does not change.
    fn reserve(&self, len: u64) -> io::Result<()>;
    /// Fills `from..to`, at or behind the end of the file, with zeros that later writes go over: a sync that finds the length and
    /// the blocks of a file unchanged has less to write.
    fn zero(&self, from: u64, to: u64) -> io::Result<()>;
    /// Makes all writes and the length durable.
    fn sync(&self) -> io::Result<()>;
    /// True if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Reads a whole range, or as much of it as the file has.
pub(crate) fn read_range(file: &dyn File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut buf[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    buf.truncate(filled);
    Ok(buf)
}
