//! eventfd.

use crate::io::file::{self, File, Hold, Kind, ready};
use crate::io::iov::Buffers;
use crate::io::wait::wait_if_blocking;
use crate::kernel::Kernel;
use crate::turn;
use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_sched::op::{Kind as Op, Object};

/// An eventfd.
#[repr(C)]
pub struct EventFd {
    count: Cell<u64>,
    /// Its file.
    pub file: Link<File>,
    semaphore: Cell<bool>,
}

// SAFETY: cells and a link.
unsafe impl ArenaObject for EventFd {}

/// `eventfd`.
pub fn create(count: u32, flags: i32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Op::Create);
    if flags & !(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE) != 0 {
        return fail(libc::EINVAL);
    }
    let k = &*turn;
    let Some(event) = k.io.eventfds.alloc() else { return fail(libc::ENFILE) };
    let e = k.io.eventfds.get(event);
    e.count.set(u64::from(count));
    e.semaphore.set(flags & libc::EFD_SEMAPHORE != 0);
    let status = libc::O_RDWR | flags & libc::O_NONBLOCK;
    let cloexec = flags & libc::EFD_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::EventFd, event.raw(), status, cloexec)
        .inspect_err(|_| k.io.eventfds.free(event))?;
    e.file.set(Some(file));
    Ok(fd as usize)
}

/// Readiness.
pub fn mask(k: &Kernel, event: Handle<EventFd>) -> u32 {
    let count = k.io.eventfds.get(event).count.get();
    let readable = if count > 0 { ready::IN } else { 0 };
    let writable = if count < u64::MAX - 1 { ready::OUT } else { 0 };
    let overflow = if count == u64::MAX { ready::ERR } else { 0 };
    readable | writable | overflow
}

/// Takes the count, or 1 of a semaphore.
pub fn read(
    k: &Kernel,
    hold: &Hold,
    event: Handle<EventFd>,
    buffers: &mut Buffers<'_>,
) -> Result<usize> {
    if buffers.left() < 8 {
        return fail(libc::EINVAL);
    }
    let e = k.io.eventfds.get(event);
    while e.count.get() == 0 {
        wait_if_blocking(k, hold, ready::IN)?;
    }
    let taken = if e.semaphore.get() { 1 } else { e.count.get() };
    e.count.set(e.count.get() - taken);
    file::notify(k, Some(hold.0), ready::OUT);
    // SAFETY: the server's buffers; one thread runs at a time.
    unsafe { buffers.scatter(&taken.to_ne_bytes()) };
    Ok(8)
}

/// Adds to the count.
pub fn write(
    k: &Kernel,
    hold: &Hold,
    event: Handle<EventFd>,
    buffers: &mut Buffers<'_>,
) -> Result<usize> {
    if buffers.left() < 8 {
        return fail(libc::EINVAL);
    }
    let e = k.io.eventfds.get(event);
    let mut more = [0; 8];
    // SAFETY: the server's buffers; one thread runs at a time.
    unsafe { buffers.gather(&mut more) };
    let more = u64::from_ne_bytes(more);
    if more == u64::MAX {
        return fail(libc::EINVAL);
    }
    while u64::MAX - e.count.get() <= more {
        wait_if_blocking(k, hold, ready::OUT)?;
    }
    e.count.set(e.count.get() + more);
    file::notify(k, Some(hold.0), ready::IN);
    Ok(8)
}
