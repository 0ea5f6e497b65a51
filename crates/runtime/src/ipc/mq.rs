//! POSIX message queues: found by a name, used as descriptors that can be waited for.

use super::{InQueue, Message, Messages, consume, free, message, permission};
use crate::io::call;
use crate::io::call::Hold;
use crate::kernel::Kernel;
use crate::{time, turn};
use core::cell::Cell;
use core::ffi::CStr;
use libc::{c_char, c_int, c_long};
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle};
use skein_libos::abi::timespec;
use skein_libos::errno::RESTART;
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::file::wait::wait;
use skein_libos::file::{self, File, Kind, ready};
use skein_sched::op::{Kind as Op, Object};

/// The longest name.
const NAME_BYTES: usize = 255;
/// What a queue is made with when nothing is said, and what those get who are not root: Linux's defaults.
const USUAL: (c_long, c_long) = (10, 8192);
/// What root may ask for.
const MOST: (c_long, c_long) = (65_536, 16 << 20);
/// Priorities are below this.
const PRIORITIES: u32 = 32_768;

/// A queue.
#[repr(C)]
pub struct Mq {
    node: Node<Mq>,
    name: Cell<[u8; NAME_BYTES + 1]>,
    /// Its name is gone; it goes with its last descriptor.
    unlinked: Cell<bool>,
    mode: Cell<u32>,
    owner: Cell<[u32; 2]>,
    most: Cell<c_long>,
    most_bytes: Cell<c_long>,
    /// Highest priority first, then oldest first.
    messages: Messages,
    /// Open file descriptions.
    files: List<File, OnQueue>,
}

/// The place of a queue among those that have names.
pub struct HasName;
/// All of them.
pub type Named = List<Mq, HasName>;
/// An open file description's place on its queue.
pub struct OnQueue;

// No file is both an end of a pipe and a queue's.
impl In<OnQueue> for File {
    fn node(&self) -> &Node<File> {
        &self.reading
    }
}

// SAFETY: cells and lists; all-zero is a queue without a name.
unsafe impl ArenaObject for Mq {}
impl In<HasName> for Mq {
    fn node(&self) -> &Node<Mq> {
        &self.node
    }
}

/// The kernel's `mq_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Attributes {
    flags: c_long,
    most: c_long,
    most_bytes: c_long,
    count: c_long,
    reserved: [c_long; 4],
}

/// A name without the slash that libc takes off.
///
/// # Safety
/// `name` is null or a string.
unsafe fn name_of(name: *const c_char) -> Result<[u8; NAME_BYTES + 1]> {
    if name.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut bytes = [0; NAME_BYTES + 1];
    match text {
        b"" => fail(libc::ENOENT),
        b"." | b".." => fail(libc::EACCES),
        _ if text.contains(&b'/') => fail(libc::EACCES),
        _ if text.len() > NAME_BYTES => fail(libc::ENAMETOOLONG),
        _ => {
            bytes[..text.len()].copy_from_slice(text);
            Ok(bytes)
        }
    }
}

fn find(k: &Kernel, name: &[u8; NAME_BYTES + 1]) -> Option<Handle<Mq>> {
    let mut named = k.ipc.mq_list.iter(&k.ipc.mqs).filter(|(_, q)| q.name.get() == *name);
    named.next().map(|(queue, _)| queue)
}

/// `mq_open`.
///
/// # Safety
/// `name` is a string; `attributes` is null or valid.
pub unsafe fn open(
    name: *const c_char,
    flags: c_int,
    mode: u32,
    attributes: *const Attributes,
) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Op::Open);
    let k = &*turn;
    // SAFETY: the caller's contract.
    let name = unsafe { name_of(name)? };
    let (queue, fresh) = match find(k, &name) {
        Some(_) if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 => {
            return fail(libc::EEXIST);
        }
        Some(queue) => {
            let wanted = match flags & libc::O_ACCMODE {
                libc::O_RDONLY => permission::READ,
                libc::O_WRONLY => permission::ALTER,
                _ => permission::READ | permission::ALTER,
            };
            let q = k.ipc.mqs.get(queue);
            permission::allowed(q.mode.get(), &[q.owner.get()], wanted)?;
            (queue, false)
        }
        None if flags & libc::O_CREAT == 0 => return fail(libc::ENOENT),
        // SAFETY: the caller's contract.
        None => (make(k, name, mode, unsafe { attributes.as_ref() })?, true),
    };
    let status = flags & (libc::O_ACCMODE | libc::O_NONBLOCK);
    // Such a descriptor is always closed by an exec.
    let (file, fd) =
        file::open(k, Kind::MessageQueue, queue.raw(), status, true).inspect_err(|_| {
            if fresh {
                unname(k, queue);
            }
        })?;
    k.ipc.mqs.get(queue).files.push_back(&k.fds.files, file);
    Ok(fd as usize)
}

fn make(
    k: &Kernel,
    name: [u8; NAME_BYTES + 1],
    mode: u32,
    attributes: Option<&Attributes>,
) -> Result<Handle<Mq>> {
    let us = permission::us();
    let (most, most_bytes) = attributes.map_or(USUAL, |a| (a.most, a.most_bytes));
    let limit = if us[0] == 0 { MOST } else { USUAL };
    if !(1..=limit.0).contains(&most) || !(1..=limit.1).contains(&most_bytes) {
        return fail(libc::EINVAL);
    }
    let Some(queue) = k.ipc.mqs.alloc() else { return fail(libc::ENOSPC) };
    let q = k.ipc.mqs.get(queue);
    q.name.set(name);
    q.mode.set(mode & 0o777 & !permission::file_mask());
    q.owner.set(us);
    q.most.set(most);
    q.most_bytes.set(most_bytes);
    k.ipc.mq_list.push_back(&k.ipc.mqs, queue);
    Ok(queue)
}

/// `mq_unlink`.
///
/// # Safety
/// `name` is a string.
pub unsafe fn unlink(name: *const c_char) -> Result<usize> {
    let turn = turn::enter(Object::Ipc, Op::Destroy);
    let k = &*turn;
    // SAFETY: the caller's contract.
    let queue = find(k, &unsafe { name_of(name)? }).ok_or(Errno(libc::ENOENT))?;
    let us = permission::us()[0];
    if us != 0 && us != k.ipc.mqs.get(queue).owner.get()[0] {
        return fail(libc::EACCES);
    }
    unname(k, queue);
    Ok(0)
}

fn unname(k: &Kernel, queue: Handle<Mq>) {
    let q = k.ipc.mqs.get(queue);
    k.ipc.mq_list.remove(&k.ipc.mqs, queue);
    q.unlinked.set(true);
    if q.files.is_empty() {
        destroy(k, queue);
    }
}

fn destroy(k: &Kernel, queue: Handle<Mq>) {
    let q = k.ipc.mqs.get(queue);
    while let Some(message) = q.messages.pop_front(&k.ipc.messages) {
        free(k, message);
    }
    k.ipc.mqs.free(queue);
}

/// The last reference to an open file description is gone.
pub fn release(k: &Kernel, file: Handle<File>, queue: Handle<Mq>) {
    let q = k.ipc.mqs.get(queue);
    q.files.remove(&k.fds.files, file);
    if q.files.is_empty() && q.unlinked.get() {
        destroy(k, queue);
    }
}

/// Readiness.
pub fn mask(k: &Kernel, queue: Handle<Mq>) -> u32 {
    let q = k.ipc.mqs.get(queue);
    let count = c_long::from(q.messages.len());
    let readable = if count > 0 { ready::IN } else { 0 };
    let writable = if count < q.most.get() { ready::OUT } else { 0 };
    readable | writable
}

fn tell(k: &Kernel, q: &Mq, events: u32) {
    for (file, _) in q.files.iter(&k.fds.files) {
        file::notify(k, Some(file), events);
    }
}

/// A call on a queue's descriptor that may block until `limit`, a reading of the time of day.
///
/// # Safety
/// `limit` is null or a time.
unsafe fn on_queue(
    fd: c_int,
    mode: c_int,
    limit: *const timespec,
    mut call: impl FnMut(&Kernel, &Mq) -> Option<Result<usize>>,
    events: u32,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let limit = unsafe { limit.as_ref() }.map(skein_libos::time::to_ns).transpose()?;
    let deadline_ns = limit.map(|at| time::deadline_of(libc::CLOCK_REALTIME, at)).transpose()?;
    let op = if mode == libc::O_RDONLY { Op::Read } else { Op::Write };
    let answer = call::with_cancel(fd, op, |k, hold| {
        let f = hold.file(k);
        let (has, queue) = (f.flags.get() & libc::O_ACCMODE, f.as_kind(Kind::MessageQueue));
        let Some(queue) = queue.filter(|_| has == mode || has == libc::O_RDWR) else {
            return fail(libc::EBADF);
        };
        let q = k.ipc.mqs.get(queue);
        loop {
            if let Some(result) = call(k, q) {
                return result;
            }
            if f.nonblocking() {
                return fail(libc::EAGAIN);
            }
            if deadline_ns.is_some_and(|at| at <= k.now_ns.get()) {
                return fail(libc::ETIMEDOUT);
            }
            match wait(k, hold.0, events, false, deadline_ns) {
                Err(Errno(libc::EAGAIN)) => return fail(libc::ETIMEDOUT),
                // The limit is a clock's reading: the call can be done again.
                Err(Errno(libc::EINTR)) if deadline_ns.is_some() => return Err(RESTART),
                other => other?,
            }
        }
    });
    answer.unwrap_or_else(|| fail(libc::EBADF))
}

/// `mq_timedsend`.
///
/// # Safety
/// `from` is `len` bytes; `limit` is null or a time.
pub unsafe fn send(
    fd: c_int,
    from: *const u8,
    len: usize,
    priority: u32,
    limit: *const timespec,
) -> Result<usize> {
    if priority >= PRIORITIES {
        let _turn = turn::enter(Object::Ipc, Op::Refuse);
        return fail(libc::EINVAL);
    }
    let call = |k: &Kernel, q: &Mq| {
        if len as c_long > q.most_bytes.get() {
            return Some(fail(libc::EMSGSIZE));
        }
        if c_long::from(q.messages.len()) >= q.most.get() {
            return None;
        }
        // SAFETY: the caller's contract.
        let message = match unsafe { message(k, priority.into(), from, len) } {
            Ok(message) => message,
            Err(e) => return Some(Err(e)),
        };
        insert(k, q, message);
        tell(k, q, ready::IN);
        Some(Ok(0))
    };
    // SAFETY: the caller's contract.
    unsafe { on_queue(fd, libc::O_WRONLY, limit, call, ready::OUT) }
}

/// Puts a message behind all of its priority or a higher one.
fn insert(k: &Kernel, q: &Mq, message: Handle<Message>) {
    let list: &List<Message, InQueue> = &q.messages;
    let kind = k.ipc.messages.get(message).kind.get();
    list.push_back(&k.ipc.messages, message);
    // Those of a lower priority go behind it, in their order.
    let mut at = list.front();
    while let Some(other) = at {
        if other == message {
            return;
        }
        at = list.next(&k.ipc.messages, other);
        if k.ipc.messages.get(other).kind.get() < kind {
            list.remove(&k.ipc.messages, other);
            list.push_back(&k.ipc.messages, other);
        }
    }
}

/// `mq_timedreceive`.
///
/// # Safety
/// `to` is `len` bytes; `priority` is null or writable; `limit` is null or a time.
pub unsafe fn receive(
    fd: c_int,
    to: *mut u8,
    len: usize,
    priority: *mut u32,
    limit: *const timespec,
) -> Result<usize> {
    let call = |k: &Kernel, q: &Mq| {
        if (len as c_long) < q.most_bytes.get() {
            return Some(fail(libc::EMSGSIZE));
        }
        let message = q.messages.pop_front(&k.ipc.messages)?;
        let m = k.ipc.messages.get(message);
        let whole = m.bytes.len();
        // SAFETY: the caller's contract; a message is no longer than the buffer.
        unsafe {
            if !priority.is_null() {
                priority.write(m.kind.get() as u32);
            }
            consume(k, message, to, whole);
        }
        tell(k, q, ready::OUT);
        Some(Ok(whole))
    };
    // SAFETY: the caller's contract.
    unsafe { on_queue(fd, libc::O_RDONLY, limit, call, ready::IN) }
}

/// `mq_getsetattr`.
///
/// # Safety
/// Both are null or valid.
pub unsafe fn attributes(fd: c_int, new: *const Attributes, old: *mut Attributes) -> Result<usize> {
    // SAFETY: the caller's contract.
    let new = unsafe { new.as_ref() };
    let nonblock = c_long::from(libc::O_NONBLOCK);
    if new.is_some_and(|new| new.flags & !nonblock != 0) {
        return fail(libc::EINVAL);
    }
    let answer = call::with(fd, Op::Ask, |k: &Kernel, hold: &Hold| {
        let f = hold.file(k);
        let Some(queue) = f.as_kind::<Mq>(Kind::MessageQueue) else { return fail(libc::EBADF) };
        let q = k.ipc.mqs.get(queue);
        if !old.is_null() {
            let flags = c_long::from(f.flags.get()) & nonblock;
            let count = q.messages.len().into();
            let (most, most_bytes) = (q.most.get(), q.most_bytes.get());
            // SAFETY: the caller's contract.
            unsafe { old.write(Attributes { flags, most, most_bytes, count, reserved: [0; 4] }) };
        }
        if let Some(new) = new {
            let flag = (new.flags & nonblock) as c_int;
            f.flags.set(f.flags.get() & !libc::O_NONBLOCK | flag);
        }
        Ok(0)
    });
    answer.unwrap_or_else(|| fail(libc::EBADF))
}
