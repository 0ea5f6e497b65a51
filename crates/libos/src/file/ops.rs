//! What a kind of file does: one row of functions for each, chosen once.

use super::buffers::Buffers;
use super::{File, Hold, Kind, epoll, eventfd, inotify, pipe, timerfd};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::ipc::mq;
use skein_arena::pool::Handle;

/// A kind of file.
pub trait FileOps<H: Host> {
    /// What it is ready for.
    fn mask(&self, k: &H, file: &File) -> u32;

    /// The last reference is gone: frees what is behind it.
    fn release(&self, k: &H, file: Handle<File>);

    /// Takes bytes; the access mode allows it.
    ///
    /// # Errors
    /// `EINVAL` of a kind that has none.
    fn read(&self, _k: &H, _hold: &Hold<'_, H>, _buffers: &mut Buffers<'_>) -> Result<usize> {
        fail(abi::EINVAL)
    }

    /// Adds bytes; the access mode allows it.
    ///
    /// # Errors
    /// `EINVAL` of a kind that takes none.
    fn write(&self, _k: &H, _hold: &Hold<'_, H>, _buffers: &mut Buffers<'_>) -> Result<usize> {
        fail(abi::EINVAL)
    }
}

/// The functions of a kind.
// Always: one look into a table then, whoever has the kind.
#[inline(always)]
pub fn of<'s, H: Host + 's>(kind: Kind) -> &'s dyn FileOps<H> {
    match kind {
        Kind::PipeReader => &pipe::ReadEnd,
        Kind::PipeWriter => &pipe::WriteEnd,
        Kind::PipeBoth => &pipe::BothEnds,
        Kind::Epoll => &epoll::Ops,
        Kind::EventFd => &eventfd::Ops,
        Kind::TimerFd => &timerfd::Ops,
        Kind::Inotify => &inotify::Ops,
        Kind::Free => &Nothing,
        Kind::MessageQueue => &mq::Ops,
        Kind::Socket | Kind::Random | Kind::SignalFd | Kind::PidFd => H::ops(kind),
    }
}

/// What a file is ready for: as its row says, without a call through a table, as each wait for many files asks for it.
#[inline]
pub fn mask<H: Host>(k: &H, f: &File) -> u32 {
    match f.kind.get() {
        Kind::PipeReader => pipe::ReadEnd.mask(k, f),
        Kind::PipeWriter => pipe::WriteEnd.mask(k, f),
        Kind::PipeBoth => pipe::BothEnds.mask(k, f),
        Kind::Epoll => epoll::Ops.mask(k, f),
        Kind::EventFd => eventfd::Ops.mask(k, f),
        Kind::TimerFd => timerfd::Ops.mask(k, f),
        Kind::Inotify => inotify::Ops.mask(k, f),
        Kind::Free => Nothing.mask(k, f),
        Kind::MessageQueue => mq::Ops.mask(k, f),
        Kind::Socket | Kind::Random | Kind::SignalFd | Kind::PidFd => k.mask(f),
    }
}

/// No file.
struct Nothing;

impl<H: Host> FileOps<H> for Nothing {
    fn mask(&self, _: &H, _: &File) -> u32 {
        0
    }

    fn release(&self, _: &H, _: Handle<File>) {}
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
