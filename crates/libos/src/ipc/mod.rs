//! System V semaphores, message queues and shared memory, POSIX message queues: objects of the whole server, which its processes find by key or name.
//!
//! - [`semaphore`]: sets of semaphores, and the undoing at a process's end. - [`queue`]: message queues.
//! - [`segment`]: shared memory. - [`mq`]: POSIX message queues, which are descriptors. - [`permission`]: owners, permissions and times of changes.
//!
//! They live as long as the server, or until it removes them; the namespace begins empty on each replica.

pub mod mq;
pub mod permission;
pub mod queue;
pub mod records;
pub mod segment;
pub mod semaphore;
#[cfg(test)]
mod tests;
mod undo;

use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::process::ProcessHandle;
use crate::state::ipc::InQueue;
pub use crate::state::ipc::{Ipc, Message};
use skein_arena::pool::Handle;

/// A thread never runs again.
pub fn abandon<H: Host>(k: &H, thread: Handle<H::Thread>) {
    semaphore::abandon(k, thread);
}

/// A process ends, all its threads abandoned: its `SEM_UNDO` operations are undone.
pub fn process_ended<H: Host>(k: &H, process: ProcessHandle) {
    undo::apply_all(k, process);
}

/// A fresh message with these bytes, in no queue yet.
///
/// # Safety
/// `from` is `len` readable bytes.
unsafe fn message<H: Host>(
    k: &H,
    kind: i64,
    from: *const u8,
    len: usize,
) -> Result<Handle<Message>> {
    let Some(message) = k.ipc.messages.alloc() else {
        return fail(abi::ENOMEM);
    };
    let m = k.ipc.messages.get(message);
    m.kind.set(kind);
    // SAFETY: the caller's contract; no other thread runs.
    let bytes = if len == 0 { &[] } else { unsafe { core::slice::from_raw_parts(from, len) } };
    if m.bytes.push(&k.chunks, bytes) < len {
        free(k, message);
        return fail(abi::ENOMEM);
    }
    Ok(message)
}

/// Copies the first `len` bytes of a message out, and frees it.
///
/// # Safety
/// `to` is `len` writable bytes.
unsafe fn consume<H: Host>(k: &H, message: Handle<Message>, to: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller's contract; no other thread runs.
        let out = unsafe { core::slice::from_raw_parts_mut(to, len) };
        k.ipc.messages.get(message).bytes.peek(&k.chunks, 0, out);
    }
    free(k, message);
}

/// Frees a message that is in no queue.
fn free<H: Host>(k: &H, message: Handle<Message>) {
    k.ipc.messages.get(message).bytes.clear(&k.chunks);
    k.ipc.messages.free(message);
}
