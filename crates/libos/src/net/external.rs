//! Connections of clients, whose other end the node holds.

use super::Socket;
use crate::file::buffers::Buffers;
use crate::host::Host;
use crate::state::net::BUCKETS;
pub use crate::state::net::Connections;
use skein_arena::pool::{Handle, Link};
use skein_model::frame::MAX_SEND_BYTES;
use skein_model::limits::CONSUMED_STEP_BYTES;
use skein_model::{ConnId, OutFrame};

impl Connections {
    fn bucket(&self, conn: ConnId) -> &Link<Socket> {
        // Fibonacci hashing: the upper bits of the product.
        let hash = conn.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.ilog2());
        &self.buckets[hash as usize]
    }

    /// The socket of a connection.
    pub fn find<H: Host>(&self, k: &H, conn: ConnId) -> Option<Handle<Socket>> {
        let mut at = self.bucket(conn).get();
        while let Some(socket) = at {
            let s = k.net.sockets.get(socket);
            if s.conn.get() == conn {
                return Some(socket);
            }
            at = s.bucket_next.get();
        }
        None
    }

    /// The node knows this connection from now on.
    pub fn add<H: Host>(&self, k: &H, socket: Handle<Socket>, conn: ConnId) {
        let s = k.net.sockets.get(socket);
        let bucket = self.bucket(conn);
        s.conn.set(conn);
        s.live.set(true);
        s.bucket_next.set(bucket.get());
        bucket.set(Some(socket));
        self.all.push_back(&k.net.sockets, socket);
    }

    /// The node does not know this connection any more.
    pub fn remove<H: Host>(&self, k: &H, socket: Handle<Socket>) {
        let s = k.net.sockets.get(socket);
        if !s.live.replace(false) {
            return;
        }
        self.all.remove(&k.net.sockets, socket);
        let mut link = self.bucket(s.conn.get());
        while let Some(at) = link.get() {
            if at == socket {
                link.set(s.bucket_next.take());
                return;
            }
            link = &k.net.sockets.get(at).bucket_next;
        }
    }

    /// All connections, the oldest first.
    pub fn iter<'a, H: Host>(
        &self,
        k: &'a H,
    ) -> impl Iterator<Item = (Handle<Socket>, &'a Socket)> {
        self.all.iter(&k.net.sockets)
    }
}

/// Sends `n` bytes, which the window has room for.
pub fn send<H: Host>(k: &H, s: &Socket, buffers: &mut Buffers<'_>, n: usize) {
    let mut left = n;
    while left > 0 {
        let piece = left.min(MAX_SEND_BYTES);
        k.emit_send(s.conn.get(), piece, |space| {
            // SAFETY: the server's buffers; one thread runs at a time.
            unsafe { buffers.gather(space) };
        });
        left -= piece;
    }
    s.undrained.set(s.undrained.get() + n as u64);
}

/// The server took `n` bytes: gives credit back from time to time.
pub fn took<H: Host>(k: &H, s: &Socket, n: usize) {
    let taken = s.taken.get() + n as u64;
    if taken < CONSUMED_STEP_BYTES as u64 || !s.live.get() {
        s.taken.set(taken);
        return;
    }
    s.taken.set(0);
    k.emit(OutFrame::Consumed { conn: s.conn.get(), bytes: taken });
}

/// The server shuts its sending side.
pub fn send_end<H: Host>(k: &H, s: &Socket) {
    k.emit(OutFrame::Fin { conn: s.conn.get() });
}

/// The server closes in order.
pub fn close<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    k.emit(OutFrame::Close { conn: s.conn.get() });
    k.net.external.remove(k, socket);
}

/// The server resets the connection.
pub fn abort<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    k.emit(OutFrame::Abort { conn: s.conn.get() });
    k.net.external.remove(k, socket);
}
