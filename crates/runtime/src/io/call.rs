//! Calls on descriptors: an operation each, on the file behind the number.

use crate::io::Answer;
use crate::io::table;
use crate::kernel::{Kernel, kernel};
use crate::turn::Turn;
use crate::{signal, turn};
use skein_libos::Host;
use skein_libos::errno::{Errno, RESTART, Result, fail};
use skein_sched::op::{Kind as Op, Object};

/// A call in progress on a file.
pub type Hold<'k> = skein_libos::file::Hold<'k, Kernel>;

/// Begins a call on a descriptor: an operation. `None` when the descriptor is not virtual.
#[inline(always)]
fn enter(fd: i32, op: Op) -> Option<(Turn, Result<Hold<'static>>)> {
    let file = kernel().file(fd)?;
    let turn = turn::enter(Object::File(file.raw()), op);
    // Another thread may have closed it meanwhile.
    let file = turn.file(fd);
    let hold = file.map_or_else(|| fail(libc::EBADF), |file| Ok(Hold::new(turn.kernel(), file)));
    Some((turn, hold))
}

/// A call on a descriptor that does not block.
pub fn with(fd: i32, op: Op, call: impl FnOnce(&Kernel, &Hold<'_>) -> Result<usize>) -> Answer {
    let (turn, hold) = enter(fd, op)?;
    Some(hold.and_then(|hold| call(&turn, &hold)))
}

/// A call on a descriptor that may block: a cancellation point, done again when a signal handler says so.
#[inline]
pub fn with_cancel(
    fd: i32,
    op: Op,
    mut call: impl FnMut(&Kernel, &Hold<'_>) -> Result<usize>,
) -> Answer {
    loop {
        kernel().file(fd)?;
        kernel().test_cancel();
        let (turn, hold) = enter(fd, op)?;
        let result = hold.and_then(|hold| call(&turn, &hold));
        if let Some(result) = signal::deliver::settle(interruptible(result)) {
            return Some(result);
        }
    }
}

/// A call that only virtual files support, on a descriptor that may be the kernel's: those answer `errno`, closed ones `EBADF`.
pub fn only_virtual(answer: Answer, fd: i32, errno: i32) -> Result<usize> {
    answer.unwrap_or_else(|| fail(if table::is_open(fd) { errno } else { libc::EBADF }))
}

/// The end of a call that is a cancellation point: if it was interrupted for a cancellation, ends the thread, with nothing held.
pub fn interruptible(result: Result<usize>) -> Result<usize> {
    if matches!(result, Err(Errno(libc::EINTR) | RESTART)) {
        kernel().test_cancel();
    }
    result
}

/// The error of a descriptor that is no epoll set or timerfd.
pub fn of_kind(fd: i32, answer: Answer) -> Result<usize> {
    only_virtual(answer, fd, libc::EINVAL)
}
