//! File locks: held by the kernel, waited for here.
//!
//! A thread that slept in the kernel would keep the turn for ever, so a blocking call is tried without blocking, and tried again whenever a lock may have
//! been released: by an unlock, by a close, by the end of a process. All waiters try in the order in which they began to wait.

use crate::fatal::refused;
use crate::io::table;
use crate::kernel::Kernel;
use crate::sys;
use crate::turn;
use libc::c_int;
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::keys::Key;
use skein_libos::thread::{Wake, cancellable};
use skein_sched::op::{Kind, Object};

/// Where they wait.
const KEY: Key = Key::of_runtime(9, 0);

/// A lock may have been released.
#[inline]
pub fn released(k: &Kernel) {
    k.keys.wake(k, KEY, u32::MAX, u32::MAX);
}

fn wait(k: &Kernel) -> Result<()> {
    match cancellable(k, || k.keys.wait(k, KEY, u32::MAX, None)) {
        Wake::Interrupted => fail(libc::EINTR),
        _ => Ok(()),
    }
}

fn until_granted(k: &Kernel, attempt: impl Fn() -> Result<usize>) -> Result<usize> {
    loop {
        match attempt() {
            Err(Errno(libc::EAGAIN | libc::EACCES)) => wait(k)?,
            result => return result,
        }
    }
}

/// `flock`.
pub fn flock(fd: c_int, operation: c_int) -> Result<usize> {
    let turn = turn::enter(Object::Files, Kind::Lock);
    let k = &*turn;
    table::not_own(fd)?;
    let call = |operation: c_int| {
        // SAFETY: no memory is involved.
        unsafe { sys::call(libc::SYS_flock, sys::args([fd as usize, operation as usize])) }
    };
    let result = if operation & (libc::LOCK_NB | libc::LOCK_UN) != 0 {
        call(operation)
    } else {
        until_granted(k, || call(operation | libc::LOCK_NB))
    };
    // A shared lock may have been an exclusive one before.
    if result.is_ok() && operation & libc::LOCK_EX == 0 {
        released(k);
    }
    result
}

/// The kernel would signal the server when a file of it is opened, or its directory changed.
fn refuse_notice(command: c_int) -> Result<usize> {
    let _turn = turn::enter(Object::Files, Kind::Refuse);
    refused(if command == libc::F_NOTIFY { b"fcntl F_NOTIFY" } else { b"fcntl F_SETLEASE" });
    Err(Errno(libc::EINVAL))
}

/// `fcntl` with a lock, a lease or a notice: `None` when the command is another one.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn fcntl(fd: c_int, command: c_int, arg: usize) -> Option<Result<usize>> {
    let attempt = match command {
        libc::F_SETLKW => libc::F_SETLK,
        libc::F_OFD_SETLKW => libc::F_OFD_SETLK,
        libc::F_SETLK | libc::F_OFD_SETLK => command,
        libc::F_NOTIFY | libc::F_SETLEASE => return Some(refuse_notice(command)),
        _ => return None,
    };
    let turn = turn::enter(Object::Files, Kind::Lock);
    let k = &*turn;
    let call = || {
        // SAFETY: the server's own lock; the kernel checks the address.
        unsafe { sys::call(libc::SYS_fcntl, sys::args([fd as usize, attempt as usize, arg])) }
    };
    let result = if attempt == command { call() } else { until_granted(k, call) };
    if result.is_ok() {
        released(k);
    }
    Some(result)
}
