//! What a forked child writes into pipes, sockets and eventfds that its parent has too.
//!
//! The child runs to its end before its parent goes on ([`crate::process`]), so its writes never meet a reader: they are noted, without a
//! limit of the channel's, and put into the parent's channel afterwards. What the child made itself is its own.

use crate::fatal;
use crate::io::file::{self, ready};
use crate::io::iov::Buffers;
use crate::kernel::Kernel;
use crate::process;
use skein_arena::pool::Handle;

const PIPE: u32 = 0;
const SOCKET: u32 = 1;
const EVENT: u32 = 2;
const KIND_BITS: u32 = 2;

/// Something that bytes are written into.
#[derive(Clone, Copy, Debug)]
pub enum Channel {
    /// A pipe.
    Pipe(u32),
    /// The socket that receives.
    Socket(u32),
    /// An eventfd.
    Event(u32),
}

impl Channel {
    const fn number(self) -> u32 {
        match self {
            Self::Pipe(raw) => raw << KIND_BITS | PIPE,
            Self::Socket(raw) => raw << KIND_BITS | SOCKET,
            Self::Event(raw) => raw << KIND_BITS | EVENT,
        }
    }
}

/// Notes what a child writes; the caller has seen that it is one.
#[cold]
pub fn note(channel: Channel, buffers: &mut Buffers<'_>) -> usize {
    let mut done = 0;
    loop {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_ref(usize::MAX) };
        if piece.is_empty() {
            return done;
        }
        process::child_wrote(channel.number(), piece);
        buffers.advance(piece.len());
        done += piece.len();
    }
}

/// Parent: puts what an ended child wrote into the channel.
pub fn effect(k: &Kernel, channel: u32, bytes: &[u8]) {
    let raw = channel >> KIND_BITS;
    let (pushed, reader) = match channel & ((1 << KIND_BITS) - 1) {
        PIPE => crate::io::pipe::push_from_child(k, raw, bytes),
        SOCKET => {
            let s = k.io.sockets.get(Handle::from_raw(raw).expect("a socket"));
            (s.received.push(&k.chunks, bytes), s.file.get())
        }
        _ => {
            let e = k.io.eventfds.get(Handle::from_raw(raw).expect("an eventfd"));
            e.add_from_child(bytes);
            (bytes.len(), e.file.get())
        }
    };
    if pushed < bytes.len() {
        fatal::refuse!("no memory for what a forked child wrote");
    }
    file::notify(k, reader, ready::IN);
}
