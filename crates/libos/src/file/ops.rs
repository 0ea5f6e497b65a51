//! The functions of each kind of file.

use super::buffers::Buffers;
use super::{File, Hold, Kind};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use skein_arena::pool::Handle;

/// The bytes of a file that an `ioctl` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Bytes that can be read (`FIONREAD`).
    Unread,
    /// Bytes that were written and have not arrived (`TIOCOUTQ`).
    Sent,
}

/// A kind of file.
pub trait FileOps<H: Host> {
    /// The events that it is ready for.
    fn mask(&self, k: &H, file: &File) -> u32;

    /// The last reference is gone: frees the object.
    fn release(&self, k: &H, file: Handle<File>);

    /// Reads bytes; the access mode allows it.
    ///
    /// # Errors
    /// `EINVAL` of a kind that has none.
    fn read(&self, _k: &H, _hold: &Hold<'_, H>, _buffers: &mut Buffers<'_>) -> Result<usize> {
        fail(abi::EINVAL)
    }

    /// Writes bytes; the access mode allows it.
    ///
    /// # Errors
    /// `EINVAL` of a kind that takes none.
    fn write(&self, _k: &H, _hold: &Hold<'_, H>, _buffers: &mut Buffers<'_>) -> Result<usize> {
        fail(abi::EINVAL)
    }

    /// As `read`, for a splice: never waits, whatever the file's mode.
    ///
    /// # Errors
    /// `EINVAL` of a kind that is not spliced, pipes among them, which a splice knows itself.
    fn read_at_once(
        &self,
        _k: &H,
        _hold: &Hold<'_, H>,
        _buffers: &mut Buffers<'_>,
    ) -> Result<usize> {
        fail(abi::EINVAL)
    }

    /// As `write`, for a splice: never waits, whatever the file's mode.
    ///
    /// # Errors
    /// As [`read_at_once`](Self::read_at_once).
    fn write_at_once(
        &self,
        _k: &H,
        _hold: &Hold<'_, H>,
        _buffers: &mut Buffers<'_>,
    ) -> Result<usize> {
        fail(abi::EINVAL)
    }

    /// The number of its bytes in a queue.
    ///
    /// # Errors
    /// `ENOTTY` of a kind that has none.
    fn queued(&self, _k: &H, _file: &File, _queue: Queue) -> Result<usize> {
        fail(abi::ENOTTY)
    }

    /// `ioctl` with a request that not all kinds know.
    ///
    /// # Safety
    /// `arg` is the request's argument.
    ///
    /// # Errors
    /// `ENOTTY` when this one does not.
    unsafe fn ioctl(&self, _k: &H, _file: &File, _request: usize, _arg: usize) -> Result<usize> {
        fail(abi::ENOTTY)
    }

    /// Whether `lseek` succeeds, though there is no position.
    fn stays(&self) -> bool {
        false
    }

    /// The answer of `fstat`.
    fn stat(&self, _k: &H, file: Handle<File>) -> abi::stat {
        anonymous(0o600, numbered(file))
    }

    /// `fchmod`.
    fn change_mode(&self, _k: &H, _file: &File, _mode: u32) {}
}

/// The device of files without a path, as Linux numbers it on most machines.
const DEVICE: u64 = 8;

/// The answer of `fstat` about a file without a path.
pub fn anonymous(mode: u32, inode: u64) -> abi::stat {
    abi::stat {
        st_dev: DEVICE,
        st_ino: inode,
        st_mode: mode,
        st_nlink: 1,
        st_blksize: 4096,
        ..Default::default()
    }
}

/// The inode number of a file that shares its object with no other.
pub fn numbered(file: Handle<File>) -> u64 {
    u64::from(file.raw()) + (2 << 20)
}

/// The functions of all kinds, for every host: `above.rs` lists them, as some are of rooms above this one.
pub trait Kinds: Host {
    /// The functions of a kind.
    fn ops<'s>(kind: Kind) -> &'s dyn FileOps<Self>
    where
        Self: 's;

    /// The events that a file is ready for: by its kind's function, called directly, because each wait for many files asks for it.
    fn mask_of(&self, f: &File) -> u32;
}

/// The functions of a kind.
// Inlined: one look into a table then, when the kind is known.
#[inline(always)]
pub fn of<'s, H: Host + 's>(kind: Kind) -> &'s dyn FileOps<H> {
    H::ops(kind)
}

/// Whether the file's access mode allows `wanted` (`O_RDONLY` or `O_WRONLY`).
#[inline]
fn allows(f: &File, wanted: i32) -> bool {
    let mode = f.flags.get() & abi::O_ACCMODE;
    mode == wanted || mode == abi::O_RDWR
}

/// `read` and its like.
#[inline]
pub fn read<H: Host>(k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    if !allows(f, abi::O_RDONLY) {
        return fail(abi::EBADF);
    }
    of::<H>(f.kind.get()).read(k, hold, buffers)
}

/// `write` and its like.
#[inline]
pub fn write<H: Host>(k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    if !allows(f, abi::O_WRONLY) {
        return fail(abi::EBADF);
    }
    of::<H>(f.kind.get()).write(k, hold, buffers)
}
