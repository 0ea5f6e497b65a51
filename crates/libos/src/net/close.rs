//! The end of connections: shutdown, close, reset.

use super::{
    SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, Socket, State, Transport, bind, datagram, external,
    message, multicast, netlink, of, unix,
};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::{self, Hold, ready};
use crate::host::Host;
use skein_arena::pool::Handle;
use skein_model::SockAddr;

/// `shutdown`.
///
/// # Errors
/// Those of `shutdown`.
pub fn shutdown<H: Host>(k: &H, hold: &Hold<'_, H>, how: i32) -> Result<usize> {
    let socket = of(k, hold)?;
    let shut = match how {
        abi::SHUT_RD => SHUT_RECEIVE,
        abi::SHUT_WR => SHUT_SEND,
        abi::SHUT_RDWR => SHUT_BOTH,
        _ => return fail(abi::EINVAL),
    };
    let s = k.net.sockets.get(socket);
    if s.family.get() == abi::AF_UNIX {
        unix::shutdown(k, socket, shut);
        return Ok(0);
    }
    if s.family.get() == abi::AF_NETLINK {
        return fail(abi::EOPNOTSUPP);
    }
    if s.is_datagram() {
        return datagram::shutdown(k, socket, shut);
    }
    shutdown_tcp(k, socket, shut)
}

fn shutdown_tcp<H: Host>(k: &H, socket: Handle<Socket>, shut: u32) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let mut result = Ok(0);
    match s.state.get() {
        State::Fresh | State::Dead => {
            s.shut.set(s.shut.get() | shut);
            result = fail(abi::ENOTCONN);
        }
        State::Listening => {
            if shut & SHUT_RECEIVE != 0 {
                bind::stop_listening(k, socket);
            }
        }
        State::Connecting => disconnect(k, socket),
        State::Connected => {
            // Its success is known now: another `connect` does not report it.
            s.connect_pending.set(false);
            let before = s.shut.get();
            s.shut.set(before | shut);
            // One that was shut before it was connected has not sent its end yet; to a socket of the server it is told once.
            let is_sent = before & SHUT_SEND != 0 && s.peer.get().is_none();
            if shut & SHUT_SEND != 0 && !is_sent {
                send_end(k, socket);
            }
        }
    }
    file::notify(k, s.file.get(), ready::ALL);
    result
}

/// The socket has sent its last byte.
fn send_end<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    match s.peer.get() {
        Some(peer) => receive_end(k, peer),
        None if s.live.get() => external::send_end(k, s),
        None => {}
    }
    if s.ended.get() {
        s.state.set(State::Dead);
        s.shut.set(SHUT_BOTH);
    }
}

/// The peer has sent its last byte.
pub fn receive_end<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    if s.ended.replace(true) {
        return;
    }
    s.shut.set(s.shut.get() | SHUT_RECEIVE);
    if s.shut.get() & SHUT_SEND != 0 {
        s.state.set(State::Dead);
    }
    file::notify(k, s.file.get(), ready::ALL);
}

/// The peer has reset the connection. Bytes received before can still be read.
pub fn reset<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    if let Some(peer) = s.peer.take() {
        k.net.sockets.get(peer).peer.set(None);
    }
    if s.state.get() != State::Connected {
        return;
    }
    let half_closed = s.ended.get();
    s.error.set(if half_closed { abi::EPIPE } else { abi::ECONNRESET });
    s.state.set(State::Dead);
    s.shut.set(SHUT_BOTH);
    file::notify(k, s.file.get(), ready::ALL);
}

/// The last reference to a socket is gone.
pub fn release<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    s.file.set(None);
    match (s.family.get(), s.is_datagram()) {
        (abi::AF_NETLINK, _) => netlink::release(k, socket),
        (abi::AF_UNIX, true) => unix::packet::close(k, socket),
        (_, true) => {
            multicast::leave_all(k, socket);
            message::clear(k, s);
        }
        _ => end(k, socket),
    }
    if s.family.get() == abi::AF_UNIX {
        unix::release(k, socket);
    } else {
        bind::disown(k, socket);
    }
    free(k, socket);
}

/// Frees a socket that has no peer any more.
pub fn free<H: Host>(k: &H, socket: Handle<Socket>) {
    k.net.sockets.get(socket).received.clear(&k.chunks);
    k.net.sockets.free(socket);
}

/// Ends the socket's current activity, as `close` does.
fn end<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    match s.state.get() {
        State::Listening => bind::stop_listening(k, socket),
        State::Connecting => {
            if let Some(listener) = s.listener.take() {
                k.net.sockets.get(listener).connecting.remove(&k.net.sockets, socket);
            }
        }
        State::Connected | State::Fresh | State::Dead => {}
    }
    let hard =
        s.options.hard_close() || (s.state.get() == State::Connected && !s.received.is_empty());
    if s.live.get() {
        if hard { external::abort(k, socket) } else { external::close(k, socket) }
    }
    let Some(peer) = s.peer.take() else { return };
    k.net.sockets.get(peer).peer.set(None);
    if s.family.get() == abi::AF_UNIX {
        let unread = !s.received.is_empty() || !s.messages.is_empty();
        unix::end_connection(k, socket, peer, unread);
    } else if hard {
        reset(k, peer);
    } else {
        receive_end(k, peer);
    }
}

/// Back to a fresh socket, which keeps its port if it was bound.
pub fn disconnect<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    let connected = s.state.get() == State::Connected;
    if connected {
        // In the middle of a connection this is a reset.
        if s.live.get() {
            external::abort(k, socket);
        }
        if let Some(peer) = s.peer.take() {
            reset(k, peer);
        }
    }
    end(k, socket);
    s.received.clear(&k.chunks);
    s.state.set(State::Fresh);
    s.transport.set(Transport::None);
    s.shut.set(0);
    s.error.set(if connected { abi::ECONNRESET } else { 0 });
    s.ended.set(false);
    s.connect_pending.set(false);
    s.remote.set(SockAddr::NOWHERE);
    if !s.is_bound.get() {
        s.local.set(SockAddr::NOWHERE);
    }
}
