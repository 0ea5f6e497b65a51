//! eventfd.

use super::buffers::Buffers;
use super::ops::FileOps;
use super::wait::wait_if_blocking;
use super::{File, Hold, Kind, handle, ready};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::state::file::EventFd;
use skein_arena::pool::Handle;

/// `eventfd`.
pub fn create<H: Host>(k: &H, count: u32, flags: i32) -> Result<usize> {
    if flags & !(abi::EFD_CLOEXEC | abi::EFD_NONBLOCK | abi::EFD_SEMAPHORE) != 0 {
        return fail(abi::EINVAL);
    }
    let Some(event) = k.fds.eventfds.alloc() else { return fail(abi::ENFILE) };
    let e = k.fds.eventfds.get(event);
    e.count.set(u64::from(count));
    e.semaphore.set(flags & abi::EFD_SEMAPHORE != 0);
    let status = abi::O_RDWR | flags & abi::O_NONBLOCK;
    let cloexec = flags & abi::EFD_CLOEXEC != 0;
    let (file, fd) = super::open(k, Kind::EventFd, event.raw(), status, cloexec)
        .inspect_err(|_| k.fds.eventfds.free(event))?;
    e.file.set(Some(file));
    Ok(fd as usize)
}

/// The functions of an eventfd.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    fn mask(&self, k: &H, file: &File) -> u32 {
        let count = k.fds.eventfds.get(handle(file.object.get())).count.get();
        let readable = if count > 0 { ready::IN } else { 0 };
        let writable = if count < u64::MAX - 1 { ready::OUT } else { 0 };
        let overflow = if count == u64::MAX { ready::ERR } else { 0 };
        readable | writable | overflow
    }

    fn release(&self, k: &H, file: Handle<File>) {
        k.fds.eventfds.free(handle(k.fds.files.get(file).object.get()));
    }

    /// Takes the count, or 1 from a semaphore.
    fn read(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        if buffers.left() < 8 {
            return fail(abi::EINVAL);
        }
        let e = of(k, hold);
        while e.count.get() == 0 {
            wait_if_blocking(k, hold, ready::IN)?;
        }
        let taken = if e.semaphore.get() { 1 } else { e.count.get() };
        e.count.set(e.count.get() - taken);
        super::notify(k, Some(hold.0), ready::OUT);
        // SAFETY: the server's buffers; one thread runs at a time.
        unsafe { buffers.scatter(&taken.to_ne_bytes()) };
        Ok(8)
    }

    /// Adds to the count.
    fn write(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        if buffers.left() < 8 {
            return fail(abi::EINVAL);
        }
        let e = of(k, hold);
        let mut more = [0; 8];
        // SAFETY: the server's buffers; one thread runs at a time.
        unsafe { buffers.gather(&mut more) };
        let more = u64::from_ne_bytes(more);
        if more == u64::MAX {
            return fail(abi::EINVAL);
        }
        while u64::MAX - e.count.get() <= more {
            wait_if_blocking(k, hold, ready::OUT)?;
        }
        e.count.set(e.count.get() + more);
        super::notify(k, Some(hold.0), ready::IN);
        Ok(8)
    }

    fn stays(&self) -> bool {
        true
    }
}

fn of<'k, H: Host>(k: &'k H, hold: &Hold<'_, H>) -> &'k EventFd {
    k.fds.eventfds.get(handle(hold.file(k).object.get()))
}
