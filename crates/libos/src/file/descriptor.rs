//! Calls on descriptors themselves: dup, close_range, fcntl, ioctl, lseek, fstat.

use super::ops::Queue;
use super::{Hold, ops, pipe, table};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;

/// `dup`, `F_DUPFD`: one more descriptor of the file, by the lowest number from `least` on.
pub fn duplicate<H: Host>(k: &H, hold: &Hold<'_, H>, least: i32, cloexec: bool) -> Result<usize> {
    table::of(k).install(k, hold.0, least, cloexec).map(|fd| fd as usize)
}

/// `dup3`, or `dup2` when `flags` is `None`, of a virtual descriptor.
pub fn duplicate_to<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    old: i32,
    new: i32,
    flags: Option<i32>,
) -> Result<usize> {
    let bits = flags.unwrap_or(0);
    if bits & !abi::O_CLOEXEC != 0 || (flags.is_some() && old == new) {
        return fail(abi::EINVAL);
    }
    if old != new {
        table::of(k).replace(k, hold.0, new, bits & abi::O_CLOEXEC != 0)?;
    }
    Ok(new as usize)
}

/// The same of a descriptor of the kernel's, to a number that may be virtual: the kernel's takes its place.
pub fn give_way<H: Host>(k: &H, old: i32, new: i32, flags: Option<i32>) -> Result<usize> {
    k.duplicate_kernels(old, new, flags)?;
    if let Some(file) = table::of(k).forget(&k.chunks, new) {
        super::drop_ref(k, file);
    }
    Ok(new as usize)
}

/// `close_range`, of virtual descriptors and of the kernel's.
pub fn close_range<H: Host>(k: &H, first: u32, last: u32, flags: u32) -> Result<usize> {
    if flags & !(abi::CLOSE_RANGE_CLOEXEC | abi::CLOSE_RANGE_UNSHARE) != 0 || first > last {
        return fail(abi::EINVAL);
    }
    // The numbers of virtual ones, too.
    k.close_kernels(first, last, flags)?;
    let (table, most) = (table::of(k), table::MAX_FDS as u32);
    let (first, end) = (first.min(most) as i32, last.saturating_add(1).min(most) as i32);
    for fd in table.within(&k.chunks, first, end) {
        if flags & abi::CLOSE_RANGE_CLOEXEC != 0 {
            table.set_cloexec(&k.chunks, fd, true);
        } else if let Some(file) = table.forget(&k.chunks, fd) {
            super::drop_ref(k, file);
        }
    }
    Ok(0)
}

/// `fcntl`.
pub fn control<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    fd: i32,
    command: i32,
    arg: usize,
) -> Result<usize> {
    let (f, table) = (hold.file(k), table::of(k));
    match command {
        abi::F_DUPFD => duplicate(k, hold, arg as i32, false),
        abi::F_DUPFD_CLOEXEC => duplicate(k, hold, arg as i32, true),
        abi::F_GETFD => Ok(usize::from(table.cloexec(&k.chunks, fd))),
        abi::F_SETFD => {
            table.set_cloexec(&k.chunks, fd, arg as i32 & abi::FD_CLOEXEC != 0);
            Ok(0)
        }
        abi::F_GETFL => Ok(f.flags.get() as usize),
        abi::F_SETFL => {
            let settable = abi::O_NONBLOCK | abi::O_APPEND | abi::O_NOATIME | abi::O_ASYNC;
            f.flags.set(f.flags.get() & !settable | arg as i32 & settable);
            Ok(0)
        }
        abi::F_GETPIPE_SZ | abi::F_SETPIPE_SZ => match pipe::of(k, f) {
            None => fail(abi::EBADF),
            Some(p) if command == abi::F_GETPIPE_SZ => Ok(p.capacity()),
            Some(p) => pipe::resize(k, p, arg as u32 as usize),
        },
        abi::F_GETOWN => Ok(f.owner.get() as usize),
        abi::F_SETOWN if (arg as i32) < 0 => {
            k.refused(format_args!("fcntl F_SETOWN with a process group"));
            fail(abi::EINVAL)
        }
        abi::F_SETOWN => {
            f.owner.set(arg as i32);
            Ok(0)
        }
        // The signal is always SIGIO.
        F_GETSIG => Ok(0),
        _ => fail(abi::EINVAL),
    }
}

/// Not named by the C library's own crate.
const F_GETSIG: i32 = 11;

/// `ioctl`.
///
/// # Safety
/// `arg` is the request's argument.
pub unsafe fn ioctl<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    fd: i32,
    request: usize,
    arg: usize,
) -> Result<usize> {
    let (f, table) = (hold.file(k), table::of(k));
    // Requests are 32 bits wide.
    let request = request as u32;
    match request {
        abi::FIOCLEX | abi::FIONCLEX => {
            table.set_cloexec(&k.chunks, fd, request == abi::FIOCLEX);
            Ok(0)
        }
        abi::FIONBIO | abi::FIOASYNC => {
            let flag = if request == abi::FIONBIO { abi::O_NONBLOCK } else { abi::O_ASYNC };
            // SAFETY: the request takes a number.
            let on = unsafe { *(arg as *const i32) } != 0;
            f.flags.set(f.flags.get() & !flag | if on { flag } else { 0 });
            Ok(0)
        }
        abi::FIONREAD | abi::TIOCOUTQ => {
            let queue = if request == abi::FIONREAD { Queue::Unread } else { Queue::Sent };
            let n = ops::of::<H>(f.kind.get()).queued(k, f, queue)?;
            // SAFETY: the request writes a number.
            unsafe { *(arg as *mut i32) = n as i32 };
            Ok(0)
        }
        // SAFETY: the caller's contract.
        _ => unsafe { ops::of::<H>(f.kind.get()).ioctl(k, f, request as usize, arg) },
    }
}

/// `lseek`: answers the error of a file without a position.
pub fn seek<H: Host>(k: &H, hold: &Hold<'_, H>, whence: i32) -> Result<usize> {
    if !(abi::SEEK_SET..=abi::SEEK_HOLE).contains(&whence) {
        return fail(abi::EINVAL);
    }
    if ops::of::<H>(hold.file(k).kind.get()).stays() { Ok(0) } else { fail(abi::ESPIPE) }
}

/// `fstat`.
pub fn stat<H: Host>(k: &H, hold: &Hold<'_, H>) -> abi::stat {
    ops::of::<H>(hold.file(k).kind.get()).stat(k, hold.0)
}

/// `fchmod`.
pub fn change_mode<H: Host>(k: &H, hold: &Hold<'_, H>, mode: u32) {
    let f = hold.file(k);
    ops::of::<H>(f.kind.get()).change_mode(k, f, mode);
}
