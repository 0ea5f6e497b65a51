//! Messages: datagrams between sockets with names, and packets of a connection (`SOCK_SEQPACKET`).
//!
//! A datagram socket that is `connect`ed to another is in the other's list `connecting`, so that its writers and pollers hear when there
//! is room again. A writer that is not connected and finds no room waits at [`ROOM`]: that is rare, and all of them are woken when there is room.

use super::super::exchange::{Incoming, Outgoing, Patience};
use super::super::message::{self, QUEUE_BYTES};
use super::super::{SHUT_RECEIVE, SHUT_SEND, Socket, State, address, stream};
use super::bind;
use super::name::{self, Address, MAX_ADDRESS};
use super::rights::{self, Cred};
use crate::abi::{self, SCM_CREDENTIALS, SOL_SOCKET};
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::file::{self, Hold, ready};
use crate::host::Host;
use crate::keys::Key;
use skein_arena::pool::Handle;

/// Linux's `max_dgram_qlen`: a queue that is longer than this takes no more from others than its own peer.
const MAX_QUEUE: u32 = 10;
/// The part of a send buffer that Linux keeps for itself.
const RESERVED_BYTES: u64 = 32;
/// Where writers without a connection wait for room.
const ROOM: Key = Key::of_runtime(3, 0);

/// `connect` of a datagram socket.
///
/// # Errors
/// Those of `connect`.
pub fn connect<H: Host>(k: &H, socket: Handle<Socket>, addr: &[u8]) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if address::family(addr)? == abi::AF_UNSPEC {
        disconnect(k, socket, None);
        s.state.set(State::Fresh);
        return Ok(0);
    }
    let Address::Name(given) = name::read(addr)? else {
        return fail(abi::EINVAL);
    };
    if s.options.pass_cred() {
        bind::auto(k, socket)?;
    }
    let to = target(k, s, &given)?;
    if !may_send(k, socket, to) {
        return fail(abi::EPERM);
    }
    disconnect(k, socket, Some(to));
    join(k, socket, to);
    Ok(0)
}

/// A datagram socket leaves its peer for another one, or for none: its received data are lost, and a peer that is connected to it is told.
fn disconnect<H: Host>(k: &H, socket: Handle<Socket>, next: Option<Handle<Socket>>) {
    let s = k.net.sockets.get(socket);
    if s.state.get() != State::Connected {
        return;
    }
    // None if it has not noticed that its peer is closed.
    let old = s.peer.get();
    part(k, socket);
    // As in Linux this is an edge.
    file::notify(k, s.file.get(), ready::ROOM);
    if s.messages.is_empty() || (old.is_some() && next == old) {
        return;
    }
    message::clear(k, s);
    made_room(k, socket);
    if let Some(o) = old.map(|old| k.net.sockets.get(old))
        && o.peer.get() == Some(socket)
    {
        o.error.set(abi::ECONNRESET);
        file::notify(k, o.file.get(), ready::ALL);
    }
}

/// Makes `to` the peer.
pub fn join<H: Host>(k: &H, socket: Handle<Socket>, to: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    s.peer.set(Some(to));
    s.state.set(State::Connected);
    k.net.sockets.get(to).connecting.push_back(&k.net.sockets, socket);
}

/// A datagram socket has no peer any more.
fn part<H: Host>(k: &H, socket: Handle<Socket>) {
    if let Some(peer) = k.net.sockets.get(socket).peer.take() {
        k.net.sockets.get(peer).connecting.remove(&k.net.sockets, socket);
    }
}

/// A datagram socket leaves its peer, if it has one.
pub fn leave<H: Host>(k: &H, socket: Handle<Socket>) {
    if k.net.sockets.get(socket).is_datagram() {
        part(k, socket);
    }
}

/// A datagram socket closes: connected peers find out when they send.
pub fn close<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    part(k, socket);
    let holds = !s.messages.is_empty();
    while let Some(sender) = s.connecting.front() {
        let waits = !has_room(k, sender, socket);
        part(k, sender);
        let from = k.net.sockets.get(sender);
        name::share(k, &s.name, &from.peer_name);
        if holds || waits {
            file::notify(k, from.file.get(), ready::ROOM);
        }
    }
    k.keys.wake(k, ROOM, u32::MAX, u32::MAX);
}

/// The receiver of a datagram.
fn target<H: Host>(k: &H, s: &Socket, given: &name::Given) -> Result<Handle<Socket>> {
    let to = bind::look_up(k, given, s.kind.get())?;
    if k.net.sockets.get(to).kind.get() != s.kind.get() {
        return fail(abi::EPROTOTYPE);
    }
    Ok(to)
}

/// A connected socket receives from its peer only, and from nobody while it has not noticed that its peer is closed.
fn may_send<H: Host>(k: &H, from: Handle<Socket>, to: Handle<Socket>) -> bool {
    let t = k.net.sockets.get(to);
    let lost = t.is_datagram() && t.state.get() == State::Connected;
    t.peer.get().map_or(!lost, |peer| peer == from)
}

fn has_room<H: Host>(k: &H, from: Handle<Socket>, to: Handle<Socket>) -> bool {
    let t = k.net.sockets.get(to);
    let mutual = t.peer.get() == Some(from);
    t.charged.get() < QUEUE_BYTES && (mutual || t.messages.len() <= MAX_QUEUE)
}

/// Whether something can be sent to the peer, if there is one.
pub fn writable<H: Host>(k: &H, socket: Handle<Socket>) -> bool {
    k.net.sockets.get(socket).peer.get().is_none_or(|peer| has_room(k, socket, peer))
}

/// Readiness.
pub fn mask<H: Host>(k: &H, socket: Handle<Socket>) -> u32 {
    let s = k.net.sockets.get(socket);
    let closed = !s.is_datagram() && s.is_closed();
    message::mask(s, writable(k, socket)) | if closed { ready::HUP } else { 0 }
}

/// Sends a message.
pub fn send<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    let sent = rights::collect(k, outgoing)?;
    let result = transmit(k, hold, socket, buffers, outgoing, &sent);
    rights::drop_all(k, &sent.rights);
    result
}

fn transmit<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
    sent: &rights::Sent,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if !s.is_datagram() {
        if s.error.get() != 0 {
            return fail(s.take_error());
        }
        if s.state.get() != State::Connected {
            return fail(abi::ENOTCONN);
        }
    }
    let given = if s.is_datagram() && outgoing.has_destination() {
        match name::read(outgoing.to)? {
            Address::Name(given) => Some(given),
            Address::Empty => return fail(abi::EINVAL),
        }
    } else if s.is_datagram() && s.state.get() != State::Connected {
        return fail(abi::ENOTCONN);
    } else {
        None
    };
    if s.options.pass_cred() {
        bind::auto(k, socket)?;
    }
    let n = buffers.left();
    if n as u64 > QUEUE_BYTES - RESERVED_BYTES {
        return fail(abi::EMSGSIZE);
    }
    if s.error.get() != 0 {
        return fail(s.take_error());
    }
    if s.shut.get() & SHUT_SEND != 0 {
        return stream::broken_pipe(k, outgoing.flags);
    }
    let to = match await_room(k, hold, socket, given, outgoing.flags) {
        Ok(to) => to,
        Err(e) => {
            // On Linux the message that was made has taken room, and gives it back: an edge.
            file::notify(k, s.file.get(), ready::ROOM);
            return Err(e);
        }
    };
    let message = message::make(k, buffers)?;
    let (m, t) = (k.net.messages.get(message), k.net.sockets.get(to));
    name::share(k, &s.name, &m.name);
    // One that is not accepted yet may ask later.
    let asked = s.options.pass_cred() || t.options.pass_cred() || t.file.get().is_none();
    m.cred.set(sent.cred.or_else(|| asked.then(|| Cred::real(k))).unwrap_or_default());
    rights::hand_over(k, &sent.rights, &m.rights);
    message::push(k, t, message);
    file::notify(k, t.file.get(), ready::CAME);
    Ok(n)
}

/// The receiver of a message, as soon as it has room.
fn await_room<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    given: Option<name::Given>,
    flags: i32,
) -> Result<Handle<Socket>> {
    let s = k.net.sockets.get(socket);
    let patience = Patience::to_send(k, hold, s, flags);
    loop {
        let to = match (&given, s.peer.get()) {
            (Some(given), _) => target(k, s, given)?,
            (None, Some(peer)) => peer,
            (None, None) => {
                // It was closed, and what it has sent is lost with it.
                s.state.set(State::Fresh);
                message::clear(k, s);
                made_room(k, socket);
                return fail(abi::ECONNREFUSED);
            }
        };
        if !may_send(k, socket, to) {
            return fail(abi::EPERM);
        }
        if k.net.sockets.get(to).shut.get() & SHUT_RECEIVE != 0 {
            return stream::broken_pipe(k, flags);
        }
        if has_room(k, socket, to) {
            return Ok(to);
        }
        if given.is_some() {
            patience.wait_at(k, ROOM)?;
        } else {
            patience.wait(k, hold, ready::OUT)?;
        }
        if s.error.get() != 0 {
            return fail(s.take_error());
        }
        if s.shut.get() & SHUT_SEND != 0 {
            return stream::broken_pipe(k, flags);
        }
    }
}

/// Receives a message.
pub fn receive<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if !s.is_datagram() && s.state.get() != State::Connected {
        return fail(abi::ENOTCONN);
    }
    let Some(first) = message::await_first(k, hold, s, incoming.flags)? else { return Ok(0) };
    let m = k.net.messages.get(first);
    let answer = message::copy_out(k, m, buffers, incoming);
    if m.name.get().is_some() {
        let mut bytes = [0; MAX_ADDRESS];
        let len = name::encode(k, m.name.get(), &mut bytes);
        incoming.put_name(&bytes[..len]);
    }
    if s.options.pass_cred() {
        let cred = m.cred.get();
        let cred = if cred == Cred::default() { Cred::NOBODY } else { cred };
        incoming.put_control(SOL_SOCKET, SCM_CREDENTIALS, &cred.bytes());
    }
    if incoming.flags & abi::MSG_PEEK != 0 {
        if rights::duplicate(k, &m.rights, &incoming.rights).is_err() {
            incoming.out_flags |= abi::MSG_CTRUNC;
        }
    } else {
        rights::hand_over(k, &m.rights, &incoming.rights);
        message::pop(k, s);
        message::free(k, first);
        made_room(k, socket);
    }
    rights::deliver(k, incoming);
    Ok(answer)
}

/// A message was taken: blocked senders look again.
fn made_room<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    if s.is_datagram() {
        for (_, sender) in s.connecting.iter(&k.net.sockets) {
            file::notify(k, sender.file.get(), ready::ROOM);
        }
        k.keys.wake(k, ROOM, u32::MAX, u32::MAX);
    } else if let Some(peer) = s.peer.get() {
        file::notify(k, k.net.sockets.get(peer).file.get(), ready::ROOM);
    }
}
