//! Calls that move bytes: read and write in all their forms, splice, tee, vmsplice, sendfile.

use crate::io::{Answer, call, table};
use crate::kernel::{Kernel, kernel};
use crate::{signal, turn};
use core::cell::Cell;
use libc::c_void;
use skein_libos::Host;
use skein_libos::abi::iovec;
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::{Buffers, single};
use skein_libos::file::splice::{self, At};
use skein_libos::file::table::file;
use skein_libos::file::{ops, transfer};
use skein_sched::op::{Kind as Op, Object};

/// One side of a splice.
type Side<'k> = splice::Side<'k, Kernel>;

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
    // SAFETY: the caller's contract.
    call::with_cancel(fd, Op::Read, |k, hold| unsafe { transfer::readv(k, hold, list, count) })
}

/// `writev`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn writev(fd: i32, list: *const iovec, count: i32) -> Answer {
    // SAFETY: the caller's contract.
    call::with_cancel(fd, Op::Write, |k, hold| unsafe { transfer::writev(k, hold, list, count) })
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
    call::with(fd, Op::Refuse, |k, _| transfer::flagged(k, flags))
}

/// `pread` and its like: nothing virtual has positions.
pub fn positioned(fd: i32) -> Answer {
    call::with(fd, Op::Refuse, |_, _| fail(libc::ESPIPE))
}

/// The position that a call names.
///
/// # Safety
/// `at` is null or the server's own number, for as long as the call lasts.
unsafe fn place<'a>(at: *mut i64) -> At<'a> {
    // SAFETY: the caller's contract; one thread runs at a time.
    unsafe { at.cast::<Cell<i64>>().as_ref() }
}

/// `splice`; passes through when neither descriptor is virtual.
///
/// # Safety
/// Offsets are null or valid.
pub unsafe fn splice(
    in_fd: i32,
    in_at: *mut i64,
    out_fd: i32,
    out_at: *mut i64,
    len: usize,
    flags: u32,
) -> Answer {
    // SAFETY: the caller's contract.
    let at = unsafe { [place(in_at), place(out_at)] };
    between([in_fd, out_fd], at, |k, from, to| splice::splice(k, from, to, at, len, flags))
}

/// `tee`.
pub fn tee(in_fd: i32, out_fd: i32, len: usize, flags: u32) -> Answer {
    between([in_fd, out_fd], [None; 2], |k, from, to| splice::tee(k, from, to, len, flags))
}

/// A call on two descriptors, of which one at least is virtual: a cancellation point, done again when a signal handler says so.
fn between(
    fds: [i32; 2],
    at: [At<'_>; 2],
    call: impl Fn(&Kernel, &Side<'_>, &Side<'_>) -> Result<usize>,
) -> Answer {
    if fds.iter().all(|fd| file(kernel(), *fd).is_none()) {
        return None;
    }
    if let Err(e) = fds.iter().try_for_each(|fd| table::not_own(*fd)) {
        return Some(Err(e));
    }
    loop {
        kernel().test_cancel();
        let turn = turn::enter(Object::Several, Op::Move);
        let result = {
            let (from, to) = (Side::of(&*turn, fds[0], at[0]), Side::of(&*turn, fds[1], at[1]));
            call(&turn, &from, &to)
        };
        if let Some(result) = signal::deliver::settle(call::interruptible(result)) {
            return Some(result);
        }
    }
}

/// `vmsplice`.
///
/// # Safety
/// `list` is `count` valid parts.
pub unsafe fn vmsplice(fd: i32, list: *const iovec, count: usize, flags: u32) -> Answer {
    call::with_cancel(fd, Op::Move, |k, hold| {
        // SAFETY: the caller's contract.
        unsafe { splice::vmsplice(k, hold, list, count, flags) }
    })
}

/// `sendfile`, from a regular file to a virtual descriptor; passes through when neither descriptor is virtual.
///
/// # Safety
/// `at` is null or valid.
pub unsafe fn sendfile(out_fd: i32, in_fd: i32, at: *mut i64, count: usize) -> Answer {
    if file(kernel(), in_fd).is_some() {
        return call::with(in_fd, Op::Move, |_, _| fail(libc::EINVAL));
    }
    if let Err(e) = table::not_own(in_fd) {
        return Some(Err(e));
    }
    // SAFETY: the caller's contract.
    let at = unsafe { place(at) };
    call::with_cancel(out_fd, Op::Move, |k, hold| splice::sendfile(k, hold, in_fd, at, count))
}
