//! connect: between sockets of this server, or to the outside ([`outbound`]).

use super::{
    Socket, State, Transport, address, bind, close, datagram, make, multicast, netlink, of,
    outbound, unix,
};
use crate::abi;
use crate::errno::{Errno, RESTART, Result, fail};
use crate::file::wait::wait;
use crate::file::{self, Hold, ready};
use crate::host::Host;
use skein_arena::pool::Handle;
use skein_model::SockAddr;

/// `connect`.
///
/// # Errors
/// Those of `connect`.
pub fn connect<H: Host>(k: &H, hold: &Hold<'_, H>, addr: &[u8]) -> Result<usize> {
    let socket = of(k, hold)?;
    let s = k.net.sockets.get(socket);
    if s.family.get() == abi::AF_UNIX {
        return unix::connect::connect(k, hold, socket, addr);
    }
    if s.family.get() == abi::AF_NETLINK {
        return netlink::connect(k, socket, addr);
    }
    if s.is_datagram() {
        return datagram::connect(k, socket, addr);
    }
    if address::family(addr)? == abi::AF_UNSPEC {
        return disconnect(k, socket);
    }
    let to = address::read(addr, s.family.get(), abi::EAFNOSUPPORT);
    let done = begin_or_go_on(k, hold, socket, to);
    if matches!(done, Err(Errno(abi::EINTR) | RESTART)) {
        // It continues in the background; a second call waits for its end.
        s.connect_pending.set(true);
    }
    done
}

fn begin_or_go_on<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    to: Result<SockAddr>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if s.connect_pending.get() {
        // Called again after an answer of EINPROGRESS.
        if s.state.get() == State::Connecting {
            if hold.file(k).nonblocking() {
                return fail(abi::EALREADY);
            }
            return complete(k, hold, socket);
        }
        s.connect_pending.set(false);
        return outcome(k, socket);
    }
    match s.state.get() {
        State::Connected | State::Listening => return fail(abi::EISCONN),
        State::Dead if s.ended.get() || s.remote.get().port != 0 => return fail(abi::EISCONN),
        _ => {}
    }
    start(k, socket, to?)?;
    if hold.file(k).nonblocking() {
        s.connect_pending.set(true);
        return fail(abi::EINPROGRESS);
    }
    complete(k, hold, socket)
}

/// Waits until the connection is established or has failed.
fn complete<H: Host>(k: &H, hold: &Hold<'_, H>, socket: Handle<Socket>) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let deadline = s.options.send_deadline(k);
    while s.state.get() == State::Connecting {
        if let Err(e) = wait(k, hold.0, ready::OUT, false, deadline) {
            s.connect_pending.set(true);
            return if e == Errno(abi::EAGAIN) { fail(abi::EINPROGRESS) } else { Err(e) };
        }
    }
    s.connect_pending.set(false);
    outcome(k, socket)
}

/// The answer of a `connect` that is no longer in progress. After a failure the socket is as good as new.
fn outcome<H: Host>(k: &H, socket: Handle<Socket>) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if s.state.get() == State::Connected {
        return Ok(0);
    }
    let error = match s.take_error() {
        0 => abi::ECONNABORTED,
        error => error,
    };
    // What came before a reset goes, too.
    s.received.clear(&k.chunks);
    s.state.set(State::Fresh);
    s.shut.set(0);
    s.ended.set(false);
    // Linux wakes threads that wait for errors when it resets the socket's state.
    file::notify(k, s.file.get(), ready::ERR);
    fail(error)
}

fn start<H: Host>(k: &H, socket: Handle<Socket>, mut to: SockAddr) -> Result<()> {
    let s = k.net.sockets.get(socket);
    to = address::or_loopback(to);
    to.v6 = s.family.get() == abi::AF_INET6;
    if to.v6 && to.ipv4().is_some() && s.options.only_v6() {
        return fail(abi::ENETUNREACH);
    }
    let listener = bind::find_listener(k, to, 0);
    if listener.is_none() && is_group(to) {
        return fail(abi::ENETUNREACH);
    }
    let from = address::source(k, to, listener.is_some());
    if s.local.get().port == 0 {
        let port = bind::free_port(k, s)?;
        s.local.set(SockAddr { port, ..from });
    } else if s.local.get().is_unspecified() {
        s.local.set(SockAddr { port: s.local.get().port, ..from });
    }
    s.error.set(0);
    s.ended.set(false);
    match listener {
        None if bind::is_owned(k, s, to) => {
            s.remote.set(to);
            refuse(k, socket, abi::ECONNREFUSED);
            Ok(())
        }
        None => outbound::begin(k, socket, to),
        Some(listener) => {
            s.remote.set(to);
            let l = k.net.sockets.get(listener);
            if l.queue.len() > l.backlog.get() || !join(k, socket, listener)? {
                s.state.set(State::Connecting);
                s.listener.set(Some(listener));
                l.connecting.push_back(&k.net.sockets, socket);
            }
            Ok(())
        }
    }
}

/// Whether an address is of many hosts: no connection can be made to it.
fn is_group(to: SockAddr) -> bool {
    to.ipv4() == Some([255; 4]) || multicast::is_group(to)
}

/// Makes the listener's end of a connection and puts it into the queue. `false` when there is no room for another socket.
fn join<H: Host>(k: &H, client: Handle<Socket>, listener: Handle<Socket>) -> Result<bool> {
    let (c, l) = (k.net.sockets.get(client), k.net.sockets.get(listener));
    let Ok(server) = make(k, l.family.get()) else { return fail(abi::ENOBUFS) };
    let s = k.net.sockets.get(server);
    s.options.inherit(&l.options);
    for (one, other) in [(c, server), (s, client)] {
        one.state.set(State::Connected);
        one.transport.set(Transport::Local);
        one.peer.set(Some(other));
    }
    let v6 = l.family.get() == abi::AF_INET6;
    s.local.set(SockAddr { v6, ..c.remote.get() });
    s.remote.set(SockAddr { v6, ..c.local.get() });
    // The client hears first that it is connected, as its end is the first to be.
    file::notify(k, c.file.get(), ready::ALL);
    enqueue(k, listener, server);
    Ok(true)
}

/// A connection waits to be accepted.
pub fn enqueue<H: Host>(k: &H, listener: Handle<Socket>, server: Handle<Socket>) {
    let l = k.net.sockets.get(listener);
    k.net.sockets.get(server).listener.set(Some(listener));
    l.queue.push_back(&k.net.sockets, server);
    file::notify(k, l.file.get(), ready::CAME);
}

/// There may be room in a listener's queue: the oldest sockets that wait for it are connected.
pub fn promote<H: Host>(k: &H, listener: Handle<Socket>) {
    let l = k.net.sockets.get(listener);
    if l.family.get() == abi::AF_UNIX {
        return unix::connect::promote(k, listener);
    }
    while l.queue.len() <= l.backlog.get() {
        let Some(client) = l.connecting.pop_front(&k.net.sockets) else { return };
        let c = k.net.sockets.get(client);
        c.listener.set(None);
        if join(k, client, listener).is_err() {
            refuse(k, client, abi::ECONNREFUSED);
        }
    }
}

/// The connection cannot be made: there is no listener (any more), or another errno.
pub fn refuse<H: Host>(k: &H, socket: Handle<Socket>, errno: i32) {
    let s = k.net.sockets.get(socket);
    s.state.set(State::Dead);
    s.remote.set(SockAddr { port: 0, ..s.remote.get() });
    s.error.set(errno);
    s.shut.set(super::SHUT_BOTH);
    file::notify(k, s.file.get(), ready::ALL);
}

/// `connect` to no family: the socket is as good as new.
fn disconnect<H: Host>(k: &H, socket: Handle<Socket>) -> Result<usize> {
    close::disconnect(k, socket);
    Ok(0)
}
