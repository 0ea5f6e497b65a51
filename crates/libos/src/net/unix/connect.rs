//! connect, and the listener's side of it.

use super::super::{SHUT_RECEIVE, Socket, State, Transport, close, make};
use super::name::{self, Address};
use super::rights::Cred;
use super::{bind, packet};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::wait::wait;
use crate::file::{self, Hold, ready};
use crate::host::Host;
use skein_arena::pool::Handle;

/// `connect`.
///
/// # Errors
/// Those of `connect`.
pub fn connect<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    addr: &[u8],
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if s.is_datagram() {
        return packet::connect(k, socket, addr);
    }
    let Address::Name(given) = name::read(addr)? else {
        return fail(abi::EINVAL);
    };
    let deadline = s.options.send_deadline(k);
    if s.options.pass_cred() {
        bind::auto(k, socket)?;
    }
    loop {
        let listener = bind::look_up(k, &given, s.kind.get())?;
        let l = k.net.sockets.get(listener);
        if l.kind.get() != s.kind.get() {
            return fail(abi::EPROTOTYPE);
        }
        if l.state.get() != State::Listening || l.shut.get() & SHUT_RECEIVE != 0 {
            return fail(abi::ECONNREFUSED);
        }
        // As in Linux the listener's state counts before the socket's own.
        let is_full = l.queue.len() > l.backlog.get();
        if is_full && hold.file(k).nonblocking() {
            return fail(abi::EAGAIN);
        }
        match s.state.get() {
            State::Fresh | State::Dead => {}
            State::Connected => return fail(abi::EISCONN),
            State::Listening | State::Connecting => return fail(abi::EINVAL),
        }
        if !is_full {
            join(k, socket, listener)?;
            return Ok(0);
        }
        s.state.set(State::Connecting);
        s.listener.set(Some(listener));
        l.connecting.push_back(&k.net.sockets, socket);
        let waited = wait(k, hold.0, ready::OUT, false, deadline);
        if s.listener.take().is_some() {
            l.connecting.remove(&k.net.sockets, socket);
        }
        s.state.set(State::Fresh);
        waited?;
    }
}

/// Makes the listener's end of a connection and puts it into the queue.
fn join<H: Host>(k: &H, client: Handle<Socket>, listener: Handle<Socket>) -> Result<()> {
    let (c, l) = (k.net.sockets.get(client), k.net.sockets.get(listener));
    let Ok(server) = make(k, abi::AF_UNIX) else { return fail(abi::ENOMEM) };
    let s = k.net.sockets.get(server);
    s.kind.set(l.kind.get());
    if l.options.pass_cred() {
        s.options.set_pass_cred();
    }
    for (one, other) in [(c, server), (s, client)] {
        one.state.set(State::Connected);
        one.transport.set(Transport::Pair);
        one.peer.set(Some(other));
    }
    name::share(k, &l.name, &s.name);
    c.cred.set(l.cred.get());
    s.cred.set(Cred::effective(k));
    s.listener.set(Some(listener));
    l.queue.push_back(&k.net.sockets, server);
    file::notify(k, l.file.get(), ready::CAME);
    Ok(())
}

/// There may be room in a listener's queue: as many waiting clients as fit try again.
pub fn promote<H: Host>(k: &H, listener: Handle<Socket>) {
    let l = k.net.sockets.get(listener);
    let mut room = (l.backlog.get() + 1).saturating_sub(l.queue.len());
    while room > 0 {
        let Some(client) = l.connecting.pop_front(&k.net.sockets) else { return };
        let c = k.net.sockets.get(client);
        c.listener.set(None);
        file::notify(k, c.file.get(), ready::ALL);
        room -= 1;
    }
}

/// A listener closes: connections that were not accepted are reset, and waiting clients are refused.
pub fn stop_listening<H: Host>(k: &H, listener: Handle<Socket>) {
    let l = k.net.sockets.get(listener);
    l.state.set(State::Fresh);
    bind::disown(k, listener);
    while let Some(pending) = l.queue.pop_front(&k.net.sockets) {
        let p = k.net.sockets.get(pending);
        p.listener.set(None);
        if let Some(peer) = p.peer.take() {
            super::end_connection(k, pending, peer, true);
        }
        super::release(k, pending);
        close::free(k, pending);
    }
    while let Some(waiting) = l.connecting.pop_front(&k.net.sockets) {
        let w = k.net.sockets.get(waiting);
        w.listener.set(None);
        file::notify(k, w.file.get(), ready::ALL);
    }
}
