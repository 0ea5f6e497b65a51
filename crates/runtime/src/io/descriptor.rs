//! Calls on descriptors themselves: dup, fcntl, ioctl, stat, and what opens FIFOs and devices. Those that close a number: `files/close.rs`.

use crate::io::{Answer, call, table};
use crate::kernel::{Kernel, kernel};
use crate::{signal, turn};
use skein_libos::Host;
use skein_libos::abi;
use skein_libos::errno::{Result, fail};
use skein_libos::file::fifo::{self, Name};
use skein_libos::file::{descriptor, random};
use skein_sched::op::{Kind as Op, Object};

/// `dup`.
pub fn dup(fd: i32) -> Answer {
    call::with(fd, Op::Duplicate, |k, hold| descriptor::duplicate(k, hold, 0, false))
}

/// `close_range`: always handled, as the runtime's own descriptors may lie in the range.
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<usize> {
    descriptor::close_range(&*turn::enter(Object::Descriptors, Op::Close), first, last, flags)
}

/// `fcntl`.
pub fn fcntl(fd: i32, command: i32, arg: usize) -> Answer {
    if table::is_own(fd) {
        return Some(fail(libc::EBADF));
    }
    call::with(fd, Op::Set, |k, hold| descriptor::control(k, hold, fd, command, arg))
}

/// `ioctl`.
///
/// # Safety
/// `arg` is the request's argument.
pub unsafe fn ioctl(fd: i32, request: usize, arg: usize) -> Answer {
    // SAFETY: the caller's contract.
    call::with(fd, Op::Set, |k, hold| unsafe { descriptor::ioctl(k, hold, fd, request, arg) })
}

/// `lseek`: answers the error of a file without a position.
pub fn lseek(fd: i32, whence: i32) -> Answer {
    call::with(fd, Op::Set, |k, hold| descriptor::seek(k, hold, whence))
}

/// `fsync` and its like.
pub fn sync(fd: i32) -> Answer {
    call::with(fd, Op::Refuse, |_, _| fail(libc::EINVAL))
}

/// `isatty`, `tcgetattr`.
pub fn not_a_terminal(fd: i32) -> Answer {
    call::with(fd, Op::Ask, |_, _| fail(libc::ENOTTY))
}

/// `fstat`.
///
/// # Safety
/// `out` is writable.
pub unsafe fn fstat(fd: i32, out: *mut libc::stat) -> Answer {
    call::with(fd, Op::Ask, |k, hold| {
        // SAFETY: the caller's contract; both are Linux's structure.
        unsafe { out.cast::<abi::stat>().write_unaligned(descriptor::stat(k, hold)) };
        Ok(0)
    })
}

/// `fchmod` and `fchown` of a virtual descriptor: the mode of a UNIX socket is that of the path which it is bound to later.
pub fn change_mode(fd: i32, mode: Option<u32>) -> Answer {
    call::with(fd, Op::Set, |k, hold| {
        if let Some(mode) = mode {
            descriptor::change_mode(k, hold, mode);
        }
        Ok(0)
    })
}

/// Opens the FIFO that `find` answers: as the kernel calls it, and what is said of it.
pub fn open_fifo(
    find: impl Fn(&Kernel) -> Result<(Name, libc::stat)>,
    flags: i32,
) -> Result<usize> {
    again(|k| {
        let (name, stat) = find(k)?;
        // SAFETY: both are Linux's structure.
        let stat = unsafe { (&raw const stat).cast::<abi::stat>().read() };
        fifo::open(k, name, &stat, flags)
    })
}

/// Opens an end of a virtual pipe, or a FIFO, by the name of its descriptor (`/dev/fd`).
pub fn reopen(fd: i32, flags: i32) -> Result<usize> {
    again(|k| fifo::reopen(k, fd, flags))
}

/// Does a call that is a cancellation point, once more when a signal handler says so. Finding the file was an operation of its own.
fn again(mut call: impl FnMut(&Kernel) -> Result<usize>) -> Result<usize> {
    turn::end();
    loop {
        kernel().test_cancel();
        let turn = turn::enter(Object::Descriptors, Op::Open);
        let result = call(&turn);
        if let Some(result) = signal::deliver::settle(call::interruptible(result)) {
            return result;
        }
    }
}

/// Opens /dev/urandom or /dev/random. Finding it was an operation of its own.
pub fn open_random(flags: i32) -> Result<usize> {
    turn::end();
    random::open(&*turn::enter(Object::Descriptors, Op::Open), flags)
}
