//! System V message queues.

use super::permission::{self, ALTER, Head, READ, Wire};
use super::{Message, consume, free, message};
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
pub use crate::state::ipc::Queue;
use crate::thread::Wake;
use crate::{process, thread};
use skein_arena::pool::Handle;

/// The longest message (`MSGMAX`), and the capacity of a queue (`MSGMNB`), as in Linux.
const MOST_BYTES: usize = 8192;
/// See [`MOST_BYTES`].
const QUEUE_BYTES: u64 = 16_384;

// Commands of `msgctl` that libc does not name.
const MSG_STAT: i32 = 11;
const MSG_INFO: i32 = 12;
const MSG_STAT_ANY: i32 = 13;

impl permission::Object for Queue {
    fn head(&self) -> &Head {
        &self.head
    }
}

/// `msgget`.
pub fn get<H: Host>(k: &H, key: i32, flags: i32) -> Result<usize> {
    permission::get(
        k,
        &k.ipc.queues,
        &k.ipc.queue_list,
        key,
        flags,
        |_| true,
        |queue| {
            queue.limit.set(QUEUE_BYTES);
            Ok(())
        },
    )
}

/// Where receivers and senders wait.
fn keys(queue: Handle<Queue>) -> [Key; 2] {
    [7, 8].map(|kind| Key::of_runtime(kind, queue.raw()))
}

fn wake<H: Host>(k: &H, key: Key) {
    k.keys.wake(k, key, u32::MAX, u32::MAX);
}

fn wake_all<H: Host>(k: &H, queue: Handle<Queue>) {
    for key in keys(queue) {
        wake(k, key);
    }
}

/// Waits until a queue may have changed; never repeated after a handler.
fn wait<H: Host>(k: &H, key: Key) -> Result<()> {
    let why = thread::cancellable(k, || k.keys.wait(k, key, u32::MAX, None));
    if why == Wake::Interrupted && !k.interrupted(false) {
        return Err(Errno(abi::EINTR));
    }
    Ok(())
}

/// The queue, which may have been removed in a wait.
fn still<H: Host>(k: &H, id: i32) -> Result<&Queue> {
    permission::find(&k.ipc.queues, id).map(|h| k.ipc.queues.get(h)).map_err(|_| Errno(abi::EIDRM))
}

/// `msgsnd`.
///
/// # Safety
/// `from` is a type and `len` bytes behind it.
pub unsafe fn send<H: Host>(
    k: &H,
    id: i32,
    from: *const i64,
    len: usize,
    flags: i32,
) -> Result<usize> {
    if from.is_null() {
        return Err(Errno(abi::EFAULT));
    }
    // SAFETY: the caller's contract.
    let kind = unsafe { from.read_unaligned() };
    if len > MOST_BYTES || kind < 1 || id < 0 {
        return Err(Errno(abi::EINVAL));
    }
    let handle = permission::find(&k.ipc.queues, id)?;
    loop {
        let queue = still(k, id)?;
        queue.head.check(k, ALTER)?;
        let limit = queue.limit.get();
        if queue.bytes.get() + len as u64 <= limit && u64::from(queue.messages.len()) < limit {
            // SAFETY: the caller's contract.
            let message = unsafe { message(k, kind, from.add(1).cast(), len)? };
            queue.messages.push_back(&k.ipc.messages, message);
            queue.bytes.set(queue.bytes.get() + len as u64);
            queue.sender.set(process::this(k).pid.get());
            queue.sent_s.set(permission::now_s(k));
            wake(k, keys(handle)[0]);
            return Ok(0);
        }
        if flags & abi::IPC_NOWAIT != 0 {
            return Err(Errno(abi::EAGAIN));
        }
        wait(k, keys(handle)[1])?;
    }
}

/// The message that a receiver of this type takes.
fn choose<H: Host>(k: &H, queue: &Queue, wanted: i64, flags: i32) -> Option<Handle<Message>> {
    let mut best: Option<(Handle<Message>, i64)> = None;
    for (message, m) in queue.messages.iter(&k.ipc.messages) {
        let kind = m.kind.get();
        let fits = match wanted {
            0 => true,
            1.. if flags & abi::MSG_EXCEPT != 0 => kind != wanted,
            1.. => kind == wanted,
            _ => {
                if kind <= wanted.saturating_neg() && best.is_none_or(|(_, least)| kind < least) {
                    best = Some((message, kind));
                }
                false
            }
        };
        if fits {
            return Some(message);
        }
    }
    best.map(|(message, _)| message)
}

/// `msgrcv`.
///
/// # Safety
/// `to` has room for a type and `len` bytes behind it.
pub unsafe fn receive<H: Host>(
    k: &H,
    id: i32,
    to: *mut i64,
    len: usize,
    wanted: i64,
    flags: i32,
) -> Result<usize> {
    if flags & abi::MSG_COPY != 0 {
        k.refused(format_args!("msgrcv with MSG_COPY"));
        return Err(Errno(abi::ENOSYS));
    }
    if id < 0 || len > isize::MAX as usize {
        return Err(Errno(abi::EINVAL));
    }
    let handle = permission::find(&k.ipc.queues, id)?;
    loop {
        let queue = still(k, id)?;
        queue.head.check(k, READ)?;
        if let Some(message) = choose(k, queue, wanted, flags) {
            let m = k.ipc.messages.get(message);
            let (kind, whole) = (m.kind.get(), m.bytes.len());
            if whole > len && flags & abi::MSG_NOERROR == 0 {
                return Err(Errno(abi::E2BIG));
            }
            let taken = whole.min(len);
            queue.messages.remove(&k.ipc.messages, message);
            queue.bytes.set(queue.bytes.get() - whole as u64);
            queue.receiver.set(process::this(k).pid.get());
            queue.received_s.set(permission::now_s(k));
            // SAFETY: the caller's contract.
            unsafe {
                to.write_unaligned(kind);
                consume(k, message, to.add(1).cast(), taken);
            }
            wake(k, keys(handle)[1]);
            return Ok(taken);
        }
        if flags & abi::IPC_NOWAIT != 0 {
            return Err(Errno(abi::ENOMSG));
        }
        wait(k, keys(handle)[0])?;
    }
}

/// The kernel's `msqid64_ds`.
#[repr(C)]
#[derive(Clone, Copy)]
struct About {
    permission: Wire,
    sent_s: i64,
    received_s: i64,
    changed_s: i64,
    bytes: u64,
    count: u64,
    limit: u64,
    sender: i32,
    receiver: i32,
    unused: [u64; 2],
}

fn about(queue: &Queue) -> About {
    About {
        permission: queue.head.wire(),
        sent_s: queue.sent_s.get(),
        received_s: queue.received_s.get(),
        changed_s: queue.head.changed_s.get(),
        bytes: queue.bytes.get(),
        count: queue.messages.len().into(),
        limit: queue.limit.get(),
        sender: queue.sender.get(),
        receiver: queue.receiver.get(),
        unused: [0; 2],
    }
}

/// `msgctl`.
///
/// # Safety
/// `arg` is the command's argument.
pub unsafe fn control<H: Host>(k: &H, id: i32, command: i32, arg: usize) -> Result<usize> {
    match command {
        abi::IPC_INFO | MSG_INFO => {
            // `msginfo`: pool, map, MSGMAX, MSGMNB, MSGMNI, size of segments, MSGTQL, segments.
            let queues = k.ipc.queues.capacity() as i32;
            let (most, per) = (MOST_BYTES as i32, QUEUE_BYTES as i32);
            let mut limits = [queues * per / 1024, per, most, per, queues, 16, per, 0xffff];
            if command == MSG_INFO {
                let queues = k.ipc.queue_list.iter(&k.ipc.queues);
                let bytes: u64 = queues.map(|(_, queue)| queue.bytes.get()).sum();
                limits[0] = k.ipc.queues.used() as i32;
                limits[1] = k.ipc.messages.used() as i32;
                limits[6] = bytes as i32;
            }
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, limits)? };
            return Ok(permission::highest(&k.ipc.queues));
        }
        MSG_STAT | MSG_STAT_ANY => {
            let queue = k.ipc.queues.get(permission::by_number(&k.ipc.queues, id)?);
            if command == MSG_STAT {
                queue.head.check(k, READ)?;
            }
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, about(queue))? };
            return Ok(queue.head.id.get() as usize);
        }
        _ => {}
    }
    let handle = permission::find(&k.ipc.queues, id)?;
    let queue = k.ipc.queues.get(handle);
    match command {
        abi::IPC_STAT => {
            queue.head.check(k, READ)?;
            // SAFETY: the caller's contract.
            unsafe { permission::put(arg, about(queue)) }
        }
        abi::IPC_SET => {
            queue.head.check_owner(k)?;
            // SAFETY: the caller's contract.
            let wanted = unsafe { permission::fetch::<About>(arg)? };
            if wanted.limit > QUEUE_BYTES && k.user()[0] != 0 {
                return Err(Errno(abi::EPERM));
            }
            queue.limit.set(wanted.limit);
            queue.head.set(k, &wanted.permission);
            wake_all(k, handle);
            Ok(0)
        }
        abi::IPC_RMID => {
            queue.head.check_owner(k)?;
            while let Some(message) = queue.messages.pop_front(&k.ipc.messages) {
                free(k, message);
            }
            queue.head.id.set(0);
            k.ipc.queue_list.remove(&k.ipc.queues, handle);
            k.ipc.queues.free(handle);
            wake_all(k, handle);
            Ok(0)
        }
        _ => Err(Errno(abi::EINVAL)),
    }
}
