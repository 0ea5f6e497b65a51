//! POSIX message queues: found by a name, used as descriptors that can be waited for.

use super::{InQueue, Message, consume, free, message, permission};
use crate::abi;
use crate::errno::{Errno, RESTART, Result, fail};
use crate::file::ops::FileOps;
use crate::file::wait::wait;
use crate::file::{self, File, Hold, Kind, handle, ready};
use crate::host::Host;
pub use crate::state::ipc::Mq;
use crate::state::ipc::NAME_BYTES;
use core::ffi::{CStr, c_char};
use skein_arena::list::List;
use skein_arena::pool::Handle;

/// The default limits of a queue, which are also the largest for users other than root: Linux's.
const USUAL: (i64, i64) = (10, 8192);
/// The largest limits for root.
const MOST: (i64, i64) = (65_536, 16 << 20);
/// Priorities are below this.
pub const PRIORITIES: u32 = 32_768;

/// The kernel's `mq_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    flags: i64,
    most: i64,
    most_bytes: i64,
    count: i64,
    reserved: [i64; 4],
}

#[cfg(test)]
impl Attributes {
    /// Of a new queue.
    pub fn of(most: i64, most_bytes: i64) -> Self {
        Self { most, most_bytes, ..Self::default() }
    }

    /// To be set.
    pub fn with_flags(flags: i64) -> Self {
        Self { flags, ..Self::default() }
    }

    /// Flags, the most messages, the most bytes of one, messages.
    pub fn numbers(&self) -> [i64; 4] {
        [self.flags, self.most, self.most_bytes, self.count]
    }
}

/// A name without the slash that libc takes off.
///
/// # Safety
/// `name` is null or a string.
unsafe fn name_of(name: *const c_char) -> Result<[u8; NAME_BYTES + 1]> {
    if name.is_null() {
        return fail(abi::EFAULT);
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut bytes = [0; NAME_BYTES + 1];
    match text {
        b"" => fail(abi::ENOENT),
        b"." | b".." => fail(abi::EACCES),
        _ if text.contains(&b'/') => fail(abi::EACCES),
        _ if text.len() > NAME_BYTES => fail(abi::ENAMETOOLONG),
        _ => {
            bytes[..text.len()].copy_from_slice(text);
            Ok(bytes)
        }
    }
}

fn find<H: Host>(k: &H, name: &[u8; NAME_BYTES + 1]) -> Option<Handle<Mq>> {
    let mut named = k.ipc.mq_list.iter(&k.ipc.mqs).filter(|(_, q)| q.name.get() == *name);
    named.next().map(|(queue, _)| queue)
}

/// `mq_open`.
///
/// # Safety
/// `name` is a string; `attributes` is null or valid.
pub unsafe fn open<H: Host>(
    k: &H,
    name: *const c_char,
    flags: i32,
    mode: u32,
    attributes: *const Attributes,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let name = unsafe { name_of(name)? };
    let (queue, fresh) = match find(k, &name) {
        Some(_) if flags & abi::O_CREAT != 0 && flags & abi::O_EXCL != 0 => {
            return fail(abi::EEXIST);
        }
        Some(queue) => {
            let wanted = match flags & abi::O_ACCMODE {
                abi::O_RDONLY => permission::READ,
                abi::O_WRONLY => permission::ALTER,
                _ => permission::READ | permission::ALTER,
            };
            let q = k.ipc.mqs.get(queue);
            permission::allowed(k, q.mode.get(), &[q.owner.get()], wanted)?;
            (queue, false)
        }
        None if flags & abi::O_CREAT == 0 => return fail(abi::ENOENT),
        // SAFETY: the caller's contract.
        None => (make(k, name, mode, unsafe { attributes.as_ref() })?, true),
    };
    let status = flags & (abi::O_ACCMODE | abi::O_NONBLOCK);
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

fn make<H: Host>(
    k: &H,
    name: [u8; NAME_BYTES + 1],
    mode: u32,
    attributes: Option<&Attributes>,
) -> Result<Handle<Mq>> {
    let us = k.user();
    let (most, most_bytes) = attributes.map_or(USUAL, |a| (a.most, a.most_bytes));
    let limit = if us[0] == 0 { MOST } else { USUAL };
    if !(1..=limit.0).contains(&most) || !(1..=limit.1).contains(&most_bytes) {
        return fail(abi::EINVAL);
    }
    let Some(queue) = k.ipc.mqs.alloc() else { return fail(abi::ENOSPC) };
    let q = k.ipc.mqs.get(queue);
    q.name.set(name);
    q.mode.set(mode & 0o777 & !k.file_mask());
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
pub unsafe fn unlink<H: Host>(k: &H, name: *const c_char) -> Result<usize> {
    // SAFETY: the caller's contract.
    let queue = find(k, &unsafe { name_of(name)? }).ok_or(Errno(abi::ENOENT))?;
    let us = k.user()[0];
    if us != 0 && us != k.ipc.mqs.get(queue).owner.get()[0] {
        return fail(abi::EACCES);
    }
    unname(k, queue);
    Ok(0)
}

fn unname<H: Host>(k: &H, queue: Handle<Mq>) {
    let q = k.ipc.mqs.get(queue);
    k.ipc.mq_list.remove(&k.ipc.mqs, queue);
    q.unlinked.set(true);
    if q.files.is_empty() {
        destroy(k, queue);
    }
}

fn destroy<H: Host>(k: &H, queue: Handle<Mq>) {
    let q = k.ipc.mqs.get(queue);
    while let Some(message) = q.messages.pop_front(&k.ipc.messages) {
        free(k, message);
    }
    k.ipc.mqs.free(queue);
}

/// The functions of message queues' files.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    #[inline]
    fn mask(&self, k: &H, file: &File) -> u32 {
        let q = k.ipc.mqs.get(handle(file.object.get()));
        let count = i64::from(q.messages.len());
        let readable = if count > 0 { ready::IN } else { 0 };
        let writable = if count < q.most.get() { ready::OUT } else { 0 };
        readable | writable
    }

    fn release(&self, k: &H, file: Handle<File>) {
        let queue = handle(k.fds.files.get(file).object.get());
        let q = k.ipc.mqs.get(queue);
        q.files.remove(&k.fds.files, file);
        if q.files.is_empty() && q.unlinked.get() {
            destroy(k, queue);
        }
    }
}

fn tell<H: Host>(k: &H, q: &Mq, events: u32) {
    for (file, _) in q.files.iter(&k.fds.files) {
        file::notify(k, Some(file), events);
    }
}

/// A call on a queue's descriptor that may block until the deadline.
fn on_queue<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    mode: i32,
    deadline_ns: Option<u64>,
    mut call: impl FnMut(&Mq) -> Option<Result<usize>>,
) -> Result<usize> {
    let f = hold.file(k);
    let (has, queue) = (f.flags.get() & abi::O_ACCMODE, f.as_kind(Kind::MessageQueue));
    let Some(queue) = queue.filter(|_| has == mode || has == abi::O_RDWR) else {
        return fail(abi::EBADF);
    };
    let events = if mode == abi::O_RDONLY { ready::IN } else { ready::OUT };
    let q = k.ipc.mqs.get(queue);
    loop {
        if let Some(result) = call(q) {
            return result;
        }
        if f.nonblocking() {
            return fail(abi::EAGAIN);
        }
        if deadline_ns.is_some_and(|at| at <= k.now_ns.get()) {
            return fail(abi::ETIMEDOUT);
        }
        match wait(k, hold.0, events, false, deadline_ns) {
            Err(Errno(abi::EAGAIN)) => return fail(abi::ETIMEDOUT),
            // The limit is a clock's reading: the call can be repeated.
            Err(Errno(abi::EINTR)) if deadline_ns.is_some() => return Err(RESTART),
            other => other?,
        }
    }
}

/// `mq_timedsend`.
///
/// # Errors
/// `EBADF` when the file is no queue that can be written, `EMSGSIZE`, `EAGAIN`, `ETIMEDOUT`, `ENOMEM`, and those of an interrupted wait.
///
/// # Safety
/// `from` is `len` bytes.
pub unsafe fn send<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    from: *const u8,
    len: usize,
    priority: u32,
    deadline_ns: Option<u64>,
) -> Result<usize> {
    on_queue(k, hold, abi::O_WRONLY, deadline_ns, |q| {
        if len as i64 > q.most_bytes.get() {
            return Some(fail(abi::EMSGSIZE));
        }
        if i64::from(q.messages.len()) >= q.most.get() {
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
    })
}

/// Puts a message behind all of its priority or a higher one.
fn insert<H: Host>(k: &H, q: &Mq, message: Handle<Message>) {
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

/// `mq_timedreceive`: the oldest message of the highest priority.
///
/// # Errors
/// As [`send`], but for `ENOMEM`.
///
/// # Safety
/// `to` is `len` bytes; `priority` is null or writable.
pub unsafe fn receive<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    to: *mut u8,
    len: usize,
    priority: *mut u32,
    deadline_ns: Option<u64>,
) -> Result<usize> {
    on_queue(k, hold, abi::O_RDONLY, deadline_ns, |q| {
        if (len as i64) < q.most_bytes.get() {
            return Some(fail(abi::EMSGSIZE));
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
    })
}

/// `mq_getsetattr`: answers the attributes before.
///
/// # Errors
/// `EBADF` when the file is no queue, `EINVAL` for flags that cannot be set.
pub fn attributes<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    new: Option<&Attributes>,
) -> Result<Attributes> {
    let nonblock = i64::from(abi::O_NONBLOCK);
    if new.is_some_and(|new| new.flags & !nonblock != 0) {
        return fail(abi::EINVAL);
    }
    let f = hold.file(k);
    let Some(queue) = f.as_kind::<Mq>(Kind::MessageQueue) else { return fail(abi::EBADF) };
    let q = k.ipc.mqs.get(queue);
    let before = Attributes {
        flags: i64::from(f.flags.get()) & nonblock,
        most: q.most.get(),
        most_bytes: q.most_bytes.get(),
        count: q.messages.len().into(),
        reserved: [0; 4],
    };
    if let Some(new) = new {
        let flag = (new.flags & nonblock) as i32;
        f.flags.set(f.flags.get() & !abi::O_NONBLOCK | flag);
    }
    Ok(before)
}
