//! read and write in all their forms.

use crate::fatal;
use crate::io::Answer;
use crate::io::call;
use crate::io::call::Hold;
use crate::kernel::Kernel;
use libc::c_void;
use skein_libos::abi::iovec;
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::{Buffers, single};
use skein_libos::file::{Kind, ops};
use skein_sched::op::Kind as Op;

/// `read`.
pub fn read(fd: i32, to: *mut c_void, len: usize) -> Answer {
    call::with_cancel(fd, Op::Read, |k, hold| {
        ops::read(k, hold, &mut Buffers::new(&[single(to, len)])?)
    })
}

/// `write`.
pub fn write(fd: i32, from: *const c_void, len: usize) -> Answer {
    call::with_cancel(fd, Op::Write, |k, hold| {
        ops::write(k, hold, &mut Buffers::new(&[single(from.cast_mut(), len)])?)
    })
}

/// `readv`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn readv(fd: i32, list: *const iovec, count: i32) -> Answer {
    call::with_cancel(fd, Op::Read, |k, hold| {
        // SAFETY: the caller's contract.
        let mut buffers = unsafe { parts(list, count) }?;
        let readable = |kind| matches!(kind, Kind::TimerFd | Kind::SignalFd);
        if buffers.left() == 0 && (is_duplex(k, hold) || readable(hold.file(k).kind.get())) {
            return Ok(0);
        }
        ops::read(k, hold, &mut buffers)
    })
}

/// `writev`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn writev(fd: i32, list: *const iovec, count: i32) -> Answer {
    call::with_cancel(fd, Op::Write, |k, hold| {
        // SAFETY: the caller's contract.
        let mut buffers = unsafe { parts(list, count) }?;
        if buffers.left() == 0 && is_duplex(k, hold) {
            return Ok(0);
        }
        ops::write(k, hold, &mut buffers)
    })
}

/// Whether the file is of a kind that is read and written: Linux does not ask it for a list of no bytes, as it does for no bytes by `read` and `write`.
fn is_duplex(k: &Kernel, hold: &Hold) -> bool {
    matches!(hold.file(k).kind.get(), Kind::Socket | Kind::EventFd)
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
    call::with(fd, Op::Refuse, |_, _| {
        fatal::refused(
            fatal::line!("preadv2 or pwritev2 with flags {flags:#x} on a socket or pipe").bytes(),
        );
        fail(libc::EOPNOTSUPP)
    })
}

/// `pread` and its like: nothing virtual has positions.
pub fn positioned(fd: i32) -> Answer {
    call::with(fd, Op::Refuse, |_, _| fail(libc::ESPIPE))
}
