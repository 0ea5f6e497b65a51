//! read and write in all their forms.

use crate::fatal;
use crate::io::file::{self, Hold, Kind};
use crate::io::iov::{Buffers, single};
use crate::io::socket::exchange::{self, Incoming, Outgoing};
use crate::io::{Answer, eventfd, inotify, pipe, random, signalfd, timerfd};
use crate::kernel::Kernel;
use libc::{c_void, iovec};
use skein_libos::errno::{Result, fail};
use skein_sched::op::Kind as Op;

/// Whether the file's access mode allows `wanted` (`O_RDONLY` or `O_WRONLY`).
fn allows(hold: &Hold, k: &Kernel, wanted: i32) -> bool {
    let mode = hold.file(k).flags.get() & libc::O_ACCMODE;
    mode == wanted || mode == libc::O_RDWR
}

fn read_into(k: &Kernel, hold: &Hold, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    if let Some(socket) = f.as_kind(Kind::Socket) {
        // As in Linux a read of nothing does not look at the socket.
        return if buffers.left() == 0 {
            Ok(0)
        } else {
            exchange::receive(k, hold, socket, buffers, &mut Incoming::plain(0))
        };
    }
    if !allows(hold, k, libc::O_RDONLY) {
        return fail(libc::EBADF);
    }
    match f.kind.get() {
        Kind::PipeReader | Kind::PipeBoth => pipe::read(k, hold, buffers),
        Kind::EventFd => {
            eventfd::read(k, hold, f.as_kind(Kind::EventFd).expect("its kind"), buffers)
        }
        Kind::TimerFd => {
            timerfd::read(k, hold, f.as_kind(Kind::TimerFd).expect("its kind"), buffers)
        }
        Kind::SignalFd => {
            signalfd::read(k, hold, f.as_kind(Kind::SignalFd).expect("its kind"), buffers)
        }
        Kind::Random => Ok(random::read(k, buffers)),
        Kind::Inotify => inotify::read(k, hold),
        _ => fail(libc::EINVAL),
    }
}

/// Writes to a virtual file.
pub fn write_from(k: &Kernel, hold: &Hold, buffers: &mut Buffers<'_>) -> Result<usize> {
    let f = hold.file(k);
    if let Some(socket) = f.as_kind(Kind::Socket) {
        return exchange::send(k, hold, socket, buffers, &Outgoing::plain(0));
    }
    if !allows(hold, k, libc::O_WRONLY) {
        return fail(libc::EBADF);
    }
    match f.kind.get() {
        Kind::PipeWriter | Kind::PipeBoth => pipe::write(k, hold, buffers),
        Kind::EventFd => {
            eventfd::write(k, hold, f.as_kind(Kind::EventFd).expect("its kind"), buffers)
        }
        Kind::Random => Ok(random::write(buffers)),
        _ => fail(libc::EINVAL),
    }
}

/// `read`.
pub fn read(fd: i32, to: *mut c_void, len: usize) -> Answer {
    file::with_cancel(fd, Op::Read, |k, hold| {
        read_into(k, hold, &mut Buffers::new(&[single(to, len)])?)
    })
}

/// `write`.
pub fn write(fd: i32, from: *const c_void, len: usize) -> Answer {
    file::with_cancel(fd, Op::Write, |k, hold| {
        write_from(k, hold, &mut Buffers::new(&[single(from.cast_mut(), len)])?)
    })
}

/// `readv`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn readv(fd: i32, list: *const iovec, count: i32) -> Answer {
    file::with_cancel(fd, Op::Read, |k, hold| {
        // SAFETY: the caller's contract.
        read_into(k, hold, &mut unsafe { parts(list, count) }?)
    })
}

/// `writev`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn writev(fd: i32, list: *const iovec, count: i32) -> Answer {
    file::with_cancel(fd, Op::Write, |k, hold| {
        // SAFETY: the caller's contract.
        write_from(k, hold, &mut unsafe { parts(list, count) }?)
    })
}

unsafe fn parts<'a>(list: *const iovec, count: i32) -> Result<Buffers<'a>> {
    if count < 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's contract.
    unsafe { Buffers::from_raw(list, count as usize, libc::EINVAL) }
}

/// `preadv2`: with a position of -1 a `readv`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn preadv2(fd: i32, list: *const iovec, count: i32, at: i64, flags: i32) -> Answer {
    // SAFETY: the caller's contract.
    if at == -1 && flags == 0 { unsafe { readv(fd, list, count) } } else { flagged(fd, at, flags) }
}

/// `pwritev2`: with a position of -1 a `writev`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn pwritev2(fd: i32, list: *const iovec, count: i32, at: i64, flags: i32) -> Answer {
    // SAFETY: the caller's contract.
    if at == -1 && flags == 0 { unsafe { writev(fd, list, count) } } else { flagged(fd, at, flags) }
}

/// A call with a position, or with flags, which virtual files do not know.
fn flagged(fd: i32, at: i64, flags: i32) -> Answer {
    if at != -1 {
        return positioned(fd);
    }
    file::with(fd, Op::Refuse, |_, _| {
        fatal::refused(
            fatal::line!("preadv2 or pwritev2 with flags {flags:#x} on a socket or pipe").bytes(),
        );
        fail(libc::EOPNOTSUPP)
    })
}

/// `pread` and its like: nothing virtual has positions.
pub fn positioned(fd: i32) -> Answer {
    file::with(fd, Op::Refuse, |_, _| fail(libc::ESPIPE))
}
