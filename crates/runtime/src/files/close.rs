//! Calls that close a number, which may be that of the kernel's: close, dup2.

use super::closed;
use crate::io::{Answer, call, table};
use crate::kernel::kernel;
use crate::turn;
use skein_libos::Host;
use skein_libos::errno::fail;
use skein_libos::file::{descriptor, table as library};
use skein_sched::op::{Kind as Op, Object};

/// `close`.
pub fn close(fd: i32) -> Answer {
    if table::is_own(fd) {
        return Some(fail(libc::EBADF));
    }
    let k = kernel();
    if library::file(k, fd).is_none() {
        closed(k, fd);
        return None;
    }
    k.test_cancel();
    let turn = turn::enter(Object::Descriptors, Op::Close);
    Some(library::close(&*turn, fd).map(|()| 0))
}

/// `dup3`, or `dup2` when `flags` is `None`.
pub fn dup3(old: i32, new: i32, flags: Option<i32>) -> Answer {
    if table::is_own(old) || table::is_own(new) {
        return Some(fail(libc::EBADF));
    }
    let k = kernel();
    if old != new {
        closed(k, new);
    }
    if library::file(k, old).is_none() {
        // A file takes a virtual descriptor's place: the kernel closes the placeholder.
        library::file(k, new)?;
        let turn = turn::enter(Object::Descriptors, Op::Duplicate);
        return Some(descriptor::give_way(&*turn, old, new, flags));
    }
    call::with(old, Op::Duplicate, |k, hold| descriptor::duplicate_to(k, hold, old, new, flags))
}
