//! UNIX sockets: between threads and processes of the server, never to the outside.
//!
//! A path that a socket is bound to is a real socket inode in the server's files, so that calls on it (stat, unlink, chmod,
//! permissions at `connect`) work as natively; nothing of the kernel listens behind it. The bound sockets are known here alone,
//! by the inode ([`name`]). All data travel in the arena.

pub mod bind;
pub mod connect;
pub mod name;
pub mod packet;
pub mod rights;
pub mod stream;

use super::{SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, Socket, message};
use crate::abi;
use crate::file::{self, ready};
use crate::host::Host;
use skein_arena::pool::Handle;

/// `shutdown`.
pub fn shutdown<H: Host>(k: &H, socket: Handle<Socket>, shut: u32) {
    let s = k.net.sockets.get(socket);
    s.shut.set(s.shut.get() | shut);
    // Its own end is told first, as in Linux: sets of files report in this order.
    file::notify(k, s.file.get(), ready::ALL);
    // Datagrams know no end of a connection.
    if let Some(peer) = s.peer.get()
        && !s.is_datagram()
    {
        let p = k.net.sockets.get(peer);
        let mirrored = (shut & SHUT_RECEIVE) << 1 | (shut & SHUT_SEND) >> 1;
        p.shut.set(p.shut.get() | mirrored);
        file::notify(k, p.file.get(), ready::ALL);
    }
}

/// The socket at the other end of a connection closes.
pub fn end_connection<H: Host>(k: &H, socket: Handle<Socket>, peer: Handle<Socket>, unread: bool) {
    let (s, p) = (k.net.sockets.get(socket), k.net.sockets.get(peer));
    name::share(k, &s.name, &p.peer_name);
    p.peer.set(None);
    p.shut.set(SHUT_BOTH);
    if unread {
        p.error.set(abi::ECONNRESET);
    }
    file::notify(k, p.file.get(), ready::ALL);
}

/// The last reference to a socket is gone: its name is free, and its unread data are dropped.
pub fn release<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    packet::leave(k, socket);
    bind::disown(k, socket);
    message::clear(k, s);
    for link in [&s.name, &s.peer_name] {
        if let Some(name) = link.take() {
            name::drop_ref(k, name);
        }
    }
}
