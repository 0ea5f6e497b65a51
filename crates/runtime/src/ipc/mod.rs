//! Calls on System V semaphores, message queues and shared memory and on POSIX message queues: operations on the library's objects, with the server's
//! pointers.
//!
//! - [`segment`]: shared memory.

pub mod segment;

use crate::io::call;
use crate::kernel::Kernel;
use crate::{sys, thread, turn};
use libc::{c_char, c_int};
use skein_libos::Host;
use skein_libos::abi::{sembuf, timespec};
use skein_libos::errno::{Result, fail};
use skein_libos::ipc::{mq, queue, semaphore};
use skein_sched::op::{Kind, Object};

pub use skein_libos::ipc::mq::Attributes;

/// `semget`.
pub fn semget(key: c_int, count: c_int, flags: c_int) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Open);
    semaphore::get(turn.kernel(), key, count, flags)
}

/// `semop`, and with a time limit `semtimedop`.
///
/// # Safety
/// `operations` is `count` operations; `limit` is null or a time.
pub unsafe fn semop(
    id: c_int,
    operations: *const sembuf,
    count: usize,
    limit: *const timespec,
) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Lock);
    // SAFETY: the caller's contract.
    unsafe { semaphore::operate(turn.kernel(), id, operations, count, limit) }
}

/// `semctl`; `arg` is the union.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn semctl(id: c_int, number: c_int, command: c_int, arg: usize) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Set);
    // SAFETY: the caller's contract.
    unsafe { semaphore::control(turn.kernel(), id, number, command, arg) }
}

/// `msgget`.
pub fn msgget(key: c_int, flags: c_int) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Open);
    queue::get(turn.kernel(), key, flags)
}

/// `msgsnd`.
///
/// # Safety
/// `from` is null, or a type and `len` bytes behind it.
pub unsafe fn msgsnd(id: c_int, from: *const i64, len: usize, flags: c_int) -> Result<usize> {
    thread::test_cancel();
    let turn = turn::enter(Object::Ipc, Kind::Write);
    // SAFETY: the caller's contract.
    unsafe { queue::send(turn.kernel(), id, from, len, flags) }
}

/// `msgrcv`.
///
/// # Safety
/// `to` has room for a type and `len` bytes behind it.
pub unsafe fn msgrcv(
    id: c_int,
    to: *mut i64,
    len: usize,
    wanted: i64,
    flags: c_int,
) -> Result<usize> {
    thread::test_cancel();
    let turn = turn::enter(Object::Ipc, Kind::Read);
    // SAFETY: the caller's contract.
    unsafe { queue::receive(turn.kernel(), id, to, len, wanted, flags) }
}

/// `msgctl`.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn msgctl(id: c_int, command: c_int, arg: usize) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Set);
    // SAFETY: the caller's contract.
    unsafe { queue::control(turn.kernel(), id, command, arg) }
}

/// `mq_open`.
///
/// # Safety
/// `name` is null or a string; `attributes` is null or valid.
pub unsafe fn mq_open(
    name: *const c_char,
    flags: c_int,
    mode: u32,
    attributes: *const Attributes,
) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Open);
    // SAFETY: the caller's contract.
    unsafe { mq::open(turn.kernel(), name, flags, mode, attributes) }
}

/// `mq_unlink`.
///
/// # Safety
/// `name` is null or a string.
pub unsafe fn mq_unlink(name: *const c_char) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Kind::Destroy);
    // SAFETY: the caller's contract.
    unsafe { mq::unlink(turn.kernel(), name) }
}

/// The time of day at which a call on a queue gives up.
///
/// # Safety
/// `limit` is null or a time.
unsafe fn limit_ns(limit: *const timespec) -> Result<Option<u64>> {
    // SAFETY: the caller's contract.
    unsafe { limit.as_ref() }.map(skein_libos::time::to_ns).transpose()
}

/// The same as the server's own time.
fn deadline(k: &Kernel, limit_ns: Option<u64>) -> Result<Option<u64>> {
    limit_ns.map(|at| k.deadline_of(libc::CLOCK_REALTIME, at)).transpose()
}

/// `mq_timedsend`.
///
/// # Safety
/// `from` is `len` bytes; `limit` is null or a time.
pub unsafe fn mq_send(
    fd: c_int,
    from: *const u8,
    len: usize,
    priority: u32,
    limit: *const timespec,
) -> Result<usize> {
    if priority >= mq::PRIORITIES {
        let _turn = turn::enter(Object::Ipc, Kind::Refuse);
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's contract.
    let limit_ns = unsafe { limit_ns(limit)? };
    let answer = call::with_cancel(fd, Kind::Write, |k, hold| {
        let deadline_ns = deadline(k, limit_ns)?;
        // SAFETY: the caller's contract.
        unsafe { mq::send(k, hold, from, len, priority, deadline_ns) }
    });
    answer.unwrap_or_else(|| fail(libc::EBADF))
}

/// `mq_timedreceive`.
///
/// # Safety
/// `to` is `len` bytes; `priority` is null or writable; `limit` is null or a time.
pub unsafe fn mq_receive(
    fd: c_int,
    to: *mut u8,
    len: usize,
    priority: *mut u32,
    limit: *const timespec,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let limit_ns = unsafe { limit_ns(limit)? };
    let answer = call::with_cancel(fd, Kind::Read, |k, hold| {
        let deadline_ns = deadline(k, limit_ns)?;
        // SAFETY: the caller's contract.
        unsafe { mq::receive(k, hold, to, len, priority, deadline_ns) }
    });
    answer.unwrap_or_else(|| fail(libc::EBADF))
}

/// `mq_getsetattr`.
///
/// # Safety
/// Both are null or valid.
pub unsafe fn mq_attributes(
    fd: c_int,
    new: *const Attributes,
    old: *mut Attributes,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let new = unsafe { new.as_ref() };
    let answer = call::with(fd, Kind::Ask, |k, hold| {
        let before = mq::attributes(k, hold, new)?;
        if !old.is_null() {
            // SAFETY: the caller's contract.
            unsafe { old.write(before) };
        }
        Ok(0)
    });
    answer.unwrap_or_else(|| fail(libc::EBADF))
}

fn id_of(nr: i64) -> u32 {
    // SAFETY: a call without arguments.
    unsafe { sys::raw(nr, sys::args([])) as u32 }
}

/// The effective user and group of the process.
pub fn user() -> [u32; 2] {
    [id_of(libc::SYS_geteuid), id_of(libc::SYS_getegid)]
}

/// Whether the process is in a group.
pub fn in_group(group: u32) -> bool {
    let mut groups = [0u32; 256];
    // SAFETY: writes at most so many words to a local.
    let count = unsafe {
        sys::call(libc::SYS_getgroups, sys::args([groups.len(), groups.as_mut_ptr() as usize]))
    };
    id_of(libc::SYS_getegid) == group || groups[..count.unwrap_or(0)].contains(&group)
}

/// The process's `umask`.
pub fn file_mask() -> u32 {
    // SAFETY: numbers only; the mask is put back at once, and nobody else runs.
    unsafe {
        let mask = sys::raw(libc::SYS_umask, sys::args([0o777]));
        sys::raw(libc::SYS_umask, sys::args([mask as usize]));
        mask as u32
    }
}
