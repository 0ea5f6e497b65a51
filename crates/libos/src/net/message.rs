//! Messages of datagram and packet sockets, and the data beside the bytes of a UNIX stream.
//!
//! Invariant: a socket's `charged` is the sum of the costs of its waiting messages. A message that was taken out frees its bytes and its
//! sender's name; the descriptors in it are the receiver's, or closed.

use super::exchange::{Incoming, Patience};
use super::unix::name::{self};
use super::unix::rights::{self};
use super::{SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, Socket};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::file::{Hold, ready};
use crate::host::Host;
pub use crate::state::net::Message;
use skein_arena::pool::Handle;

/// The cost of a waiting message besides its bytes, about as in Linux.
const OVERHEAD_BYTES: u64 = 768;
/// The most that a socket's waiting messages may cost before the next one is dropped (UDP) or waits (UNIX): Linux's default.
pub const QUEUE_BYTES: u64 = 212_992;

impl Message {
    fn cost(&self) -> u64 {
        self.bytes.len() as u64 + OVERHEAD_BYTES
    }
}

/// A message of all of `buffers`, in no queue yet.
pub fn make<H: Host>(k: &H, buffers: &mut Buffers<'_>) -> Result<Handle<Message>> {
    let Some(message) = k.net.messages.alloc() else { return fail(abi::ENOBUFS) };
    let m = k.net.messages.get(message);
    m.at_ns.set(k.now_ns.get());
    loop {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_ref(usize::MAX) };
        if piece.is_empty() {
            return Ok(message);
        }
        let pushed = m.bytes.push(&k.chunks, piece);
        buffers.advance(pushed);
        if pushed < piece.len() {
            // No chunk is left in the arena.
            free(k, message);
            return fail(abi::ENOBUFS);
        }
    }
}

/// Frees a message that is in no queue, with all that is in it.
pub fn free<H: Host>(k: &H, message: Handle<Message>) {
    let m = k.net.messages.get(message);
    m.bytes.clear(&k.chunks);
    if let Some(name) = m.name.take() {
        name::drop_ref(k, name);
    }
    rights::drop_all(k, &m.rights);
    k.net.messages.free(message);
}

/// Appends a message to the waiting ones.
pub fn push<H: Host>(k: &H, s: &Socket, message: Handle<Message>) {
    s.charged.set(s.charged.get() + k.net.messages.get(message).cost());
    s.messages.push_back(&k.net.messages, message);
}

/// The first message is not waiting any more; the caller has it.
pub fn pop<H: Host>(k: &H, s: &Socket) -> Option<Handle<Message>> {
    let message = s.messages.pop_front(&k.net.messages)?;
    s.charged.set(s.charged.get().saturating_sub(k.net.messages.get(message).cost()));
    Some(message)
}

/// Drops all waiting messages.
pub fn clear<H: Host>(k: &H, s: &Socket) {
    while let Some(message) = pop(k, s) {
        free(k, message);
    }
}

/// The first message, for which a receive with `flags` waits as long as it may; `None` when none will come any more.
pub fn await_first<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    s: &Socket,
    flags: i32,
) -> Result<Option<Handle<Message>>> {
    let patience = Patience::to_receive(k, hold, s, flags);
    loop {
        if s.error.get() != 0 {
            return fail(s.take_error());
        }
        if let Some(first) = s.messages.front() {
            return Ok(Some(first));
        }
        if s.shut.get() & SHUT_RECEIVE != 0 {
            // As on Linux a datagram socket tells only those that would wait.
            let told = !s.is_datagram() || patience.may_wait();
            return if told { Ok(None) } else { fail(abi::EAGAIN) };
        }
        patience.wait(k, hold, ready::IN)?;
    }
}

/// Copies out as many of a message's bytes as fit, and marks a cut; answers the result of the receive: the number of bytes, or
/// the length of the message if the caller asked for that (`MSG_TRUNC`).
pub fn copy_out<H: Host>(
    k: &H,
    m: &Message,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
) -> usize {
    let whole = m.bytes.len();
    let mut done = 0;
    while done < whole {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_mut(whole - done) };
        if piece.is_empty() {
            incoming.out_flags |= abi::MSG_TRUNC;
            break;
        }
        let n = m.bytes.peek(&k.chunks, done, piece);
        buffers.advance(n);
        done += n;
    }
    if incoming.flags & abi::MSG_TRUNC != 0 { whole } else { done }
}

/// Bytes of the first message, and of all.
pub fn unread<H: Host>(k: &H, s: &Socket) -> (usize, usize) {
    let (mut first, mut all) = (None, 0);
    for (_, m) in s.messages.iter(&k.net.messages) {
        let len = m.bytes.len();
        first = first.or(Some(len));
        all += len;
    }
    (first.unwrap_or(0), all)
}

/// Readiness of a socket of messages that can be written to when `writable`.
pub fn mask(s: &Socket, writable: bool) -> u32 {
    let shut = s.shut.get();
    let mut mask = 0;
    if shut == SHUT_BOTH {
        mask |= ready::HUP;
    }
    if shut & SHUT_RECEIVE != 0 {
        mask |= ready::IN | ready::RDHUP;
    }
    if !s.messages.is_empty() {
        mask |= ready::IN;
    }
    if writable || shut & SHUT_SEND != 0 {
        mask |= ready::OUT;
    }
    if s.error.get() != 0 {
        mask |= ready::ERR;
    }
    mask
}
