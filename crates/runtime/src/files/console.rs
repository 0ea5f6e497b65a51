//! The server's standard output and standard error: memory of the node's, which the server takes for pipes. What could be asked of them and differs between replicas, or is another one's where a
//! server continues from an image, is answered here: they have no position, and their status flags are the server's alone.

use crate::files::local;
use crate::files::stat::{self, Class};
use crate::kernel::{Kernel, kernel};
use crate::sys;
use crate::turn;
use libc::{c_char, c_int};
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

/// The status flags that `F_SETFL` changes. They have no effect: the node has what is printed, and nobody waits for it.
const SETTABLE: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_ASYNC;

/// Which of the two a descriptor is.
pub fn of(k: &Kernel, fd: c_int) -> Option<usize> {
    let st = stat::real_of(fd).ok()?;
    (stat::class(k, &st) == Class::Console).then(|| usize::from(!k.files().is_output(&st)))
}

/// Whether `lseek` finds no position. A descriptor that has one is looked at once.
pub fn has_no_position(k: &Kernel, fd: c_int) -> bool {
    let slot = local::slot(fd);
    if slot.is_some_and(|slot| slot.seekable.get()) {
        return false;
    }
    let Ok(st) = stat::real_of(fd) else { return false };
    let is_one = stat::class(k, &st) == Class::Console;
    if let Some(slot) = slot {
        slot.seekable.set(!is_one);
    }
    is_one
}

/// Whether a path leads to one.
///
/// # Safety
/// `path` is a string.
pub unsafe fn is_at(k: &Kernel, at: c_int, path: *const c_char) -> bool {
    // SAFETY: the caller's contract.
    unsafe { stat::real_at(at, path, 0) }.is_ok_and(|st| stat::class(k, &st) == Class::Console)
}

/// One was opened by a name: what is written there comes behind all that was printed, as in a pipe.
pub fn opened(fd: c_int, flags: c_int) {
    let flags = (flags | libc::O_APPEND) as usize;
    // SAFETY: no memory is involved.
    unsafe { sys::raw(libc::SYS_fcntl, sys::args([fd as usize, libc::F_SETFL as usize, flags])) };
}

/// `fcntl` about status flags; `None` when it is another one, or of another file.
pub fn fcntl(fd: c_int, command: c_int, arg: usize) -> Option<Result<usize>> {
    if !matches!(command, libc::F_GETFL | libc::F_SETFL) {
        return None;
    }
    let flags = of(kernel(), fd)?;
    let turn = turn::enter(Object::Files, Kind::Set);
    let flags = &turn.files().console_flags[flags];
    Some(Ok(if command == libc::F_GETFL {
        (libc::O_WRONLY | flags.get()) as usize
    } else {
        flags.set(arg as c_int & SETTABLE);
        0
    }))
}

/// `ioctl` about one of these flags; `None` as above.
///
/// # Safety
/// `arg` is the request's argument.
pub unsafe fn ioctl(fd: c_int, request: usize, arg: usize) -> Option<Result<usize>> {
    let flag = match request as u32 as u64 {
        libc::FIONBIO => libc::O_NONBLOCK,
        libc::FIOASYNC => libc::O_ASYNC,
        _ => return None,
    };
    let flags = of(kernel(), fd)?;
    // SAFETY: the request takes a number.
    let Some(on) = (unsafe { (arg as *const c_int).as_ref() }).copied() else {
        return Some(Err(Errno(libc::EFAULT)));
    };
    let turn = turn::enter(Object::Files, Kind::Set);
    let flags = &turn.files().console_flags[flags];
    flags.set(flags.get() & !flag | if on == 0 { 0 } else { flag });
    Some(Ok(0))
}
