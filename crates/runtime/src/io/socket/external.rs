//! Connections of clients, whose other end the node holds.

use super::Socket;
use crate::kernel::Kernel;
use crate::turn::output;
use skein_arena::list::List;
use skein_arena::pool::{Handle, Link};
use skein_libos::file::buffers::Buffers;
use skein_model::frame::MAX_SEND_BYTES;
use skein_model::limits::CONSUMED_STEP_BYTES;
use skein_model::{ConnId, OutFrame};

const BUCKETS: usize = 4096;

/// A connection's place in the list of all that the node knows, oldest first.
pub struct OnNode;

/// The connections that the node knows, by id. All-zero bytes are none.
#[repr(C)]
pub struct Connections {
    buckets: [Link<Socket>; BUCKETS],
    all: List<Socket, OnNode>,
    _pad: core::cell::Cell<u32>,
}

impl Connections {
    fn bucket(&self, conn: ConnId) -> &Link<Socket> {
        // Fibonacci hashing: the upper bits of the product.
        let hash = conn.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.ilog2());
        &self.buckets[hash as usize]
    }

    /// The socket of a connection.
    pub fn find(&self, k: &Kernel, conn: ConnId) -> Option<Handle<Socket>> {
        let mut at = self.bucket(conn).get();
        while let Some(socket) = at {
            let s = k.io.sockets.get(socket);
            if s.conn.get() == conn {
                return Some(socket);
            }
            at = s.bucket_next.get();
        }
        None
    }

    /// The node knows this connection from now on.
    pub fn add(&self, k: &Kernel, socket: Handle<Socket>, conn: ConnId) {
        let s = k.io.sockets.get(socket);
        let bucket = self.bucket(conn);
        s.conn.set(conn);
        s.live.set(true);
        s.bucket_next.set(bucket.get());
        bucket.set(Some(socket));
        self.all.push_back(&k.io.sockets, socket);
    }

    /// The node does not know this connection any more.
    pub fn remove(&self, k: &Kernel, socket: Handle<Socket>) {
        let s = k.io.sockets.get(socket);
        if !s.live.replace(false) {
            return;
        }
        self.all.remove(&k.io.sockets, socket);
        let mut link = self.bucket(s.conn.get());
        while let Some(at) = link.get() {
            if at == socket {
                link.set(s.bucket_next.take());
                return;
            }
            link = &k.io.sockets.get(at).bucket_next;
        }
    }

    /// All connections, the oldest first.
    pub fn iter<'a>(&self, k: &'a Kernel) -> impl Iterator<Item = (Handle<Socket>, &'a Socket)> {
        self.all.iter(&k.io.sockets)
    }
}

/// Sends `n` bytes, which the window has room for.
pub fn send(s: &Socket, buffers: &mut Buffers<'_>, n: usize) {
    let mut left = n;
    while left > 0 {
        let piece = left.min(MAX_SEND_BYTES);
        output::emit_send(s.conn.get(), piece, |space| {
            // SAFETY: the server's buffers; one thread runs at a time.
            unsafe { buffers.gather(space) };
        });
        left -= piece;
    }
    s.undrained.set(s.undrained.get() + n as u64);
}

/// The server took `n` bytes: gives credit back from time to time.
pub fn took(s: &Socket, n: usize) {
    let taken = s.taken.get() + n as u64;
    if taken < CONSUMED_STEP_BYTES as u64 || !s.live.get() {
        s.taken.set(taken);
        return;
    }
    s.taken.set(0);
    output::emit(OutFrame::Consumed { conn: s.conn.get(), bytes: taken });
}

/// The server shuts its sending side.
pub fn send_end(s: &Socket) {
    output::emit(OutFrame::Fin { conn: s.conn.get() });
}

/// The server closes in order.
pub fn close(k: &Kernel, socket: Handle<Socket>) {
    let s = k.io.sockets.get(socket);
    output::emit(OutFrame::Close { conn: s.conn.get() });
    k.io.external.remove(k, socket);
}

/// The server resets the connection.
pub fn abort(k: &Kernel, socket: Handle<Socket>) {
    let s = k.io.sockets.get(socket);
    output::emit(OutFrame::Abort { conn: s.conn.get() });
    k.io.external.remove(k, socket);
}
