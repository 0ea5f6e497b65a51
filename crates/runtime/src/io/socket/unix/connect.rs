//! connect, and the listener's side of it.

use super::super::{SHUT_RECEIVE, Socket, State, Transport, close, make};
use super::name::{self, Address};
use super::rights::Cred;
use super::{bind, packet};
use crate::io::call::Hold;
use crate::kernel::Kernel;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_libos::file::wait::wait;
use skein_libos::file::{self, ready};

/// `connect`.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn connect(
    k: &Kernel,
    hold: &Hold,
    socket: Handle<Socket>,
    addr: *const sockaddr,
    len: socklen_t,
) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    if s.is_datagram() {
        // SAFETY: the caller's contract.
        return unsafe { packet::connect(k, socket, addr, len) };
    }
    // SAFETY: the caller's contract.
    let Address::Name(given) = unsafe { name::read(addr, len) }? else {
        return fail(libc::EINVAL);
    };
    let deadline = s.options.send_deadline();
    loop {
        let listener = bind::look_up(k, &given)?;
        let l = k.io.sockets.get(listener);
        if l.kind.get() != s.kind.get() {
            return fail(libc::EPROTOTYPE);
        }
        if s.options.pass_cred() {
            bind::auto(k, socket)?;
        }
        if l.state.get() != State::Listening || l.shut.get() & SHUT_RECEIVE != 0 {
            return fail(libc::ECONNREFUSED);
        }
        match s.state.get() {
            State::Fresh | State::Dead => {}
            State::Connected => return fail(libc::EISCONN),
            State::Listening | State::Connecting => return fail(libc::EINVAL),
        }
        if l.queue.len() <= l.backlog.get() {
            join(k, socket, listener)?;
            return Ok(0);
        }
        if hold.file(k).nonblocking() {
            return fail(libc::EAGAIN);
        }
        s.state.set(State::Connecting);
        s.listener.set(Some(listener));
        l.connecting.push_back(&k.io.sockets, socket);
        let waited = wait(k, hold.0, ready::OUT, false, deadline);
        if s.listener.take().is_some() {
            l.connecting.remove(&k.io.sockets, socket);
        }
        s.state.set(State::Fresh);
        waited?;
    }
}

/// Makes the listener's end of a connection and puts it into the queue.
fn join(k: &Kernel, client: Handle<Socket>, listener: Handle<Socket>) -> Result<()> {
    let (c, l) = (k.io.sockets.get(client), k.io.sockets.get(listener));
    let Ok(server) = make(k, libc::AF_UNIX) else { return fail(libc::ENOMEM) };
    let s = k.io.sockets.get(server);
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
    s.cred.set(Cred::effective());
    s.listener.set(Some(listener));
    l.queue.push_back(&k.io.sockets, server);
    file::notify(k, l.file.get(), ready::IN);
    Ok(())
}

/// There may be room in a listener's queue: as many waiting clients as fit try again.
pub fn promote(k: &Kernel, listener: Handle<Socket>) {
    let l = k.io.sockets.get(listener);
    let mut room = (l.backlog.get() + 1).saturating_sub(l.queue.len());
    while room > 0 {
        let Some(client) = l.connecting.pop_front(&k.io.sockets) else { return };
        let c = k.io.sockets.get(client);
        c.listener.set(None);
        file::notify(k, c.file.get(), ready::ALL);
        room -= 1;
    }
}

/// A listener closes: connections that were not accepted are reset, and waiting clients are refused.
pub fn stop_listening(k: &Kernel, listener: Handle<Socket>) {
    let l = k.io.sockets.get(listener);
    l.state.set(State::Fresh);
    bind::disown(k, listener);
    while let Some(pending) = l.queue.pop_front(&k.io.sockets) {
        let p = k.io.sockets.get(pending);
        p.listener.set(None);
        if let Some(peer) = p.peer.take() {
            super::end_connection(k, pending, peer, true);
        }
        super::release(k, pending);
        close::free(k, pending);
    }
    while let Some(waiting) = l.connecting.pop_front(&k.io.sockets) {
        let w = k.io.sockets.get(waiting);
        w.listener.set(None);
        file::notify(k, w.file.get(), ready::ALL);
    }
}
