//! Effects of entries on sockets. Records for unknown connections are skipped: the server may have closed them while
//! the record was on its way.

use super::bind::Ends;
use super::{Socket, State, Transport, bind, close, connect, external, make, outbound};
use crate::abi;
use crate::file::{self, ready};
use crate::host::Host;
use skein_arena::pool::Handle;
use skein_model::{ConnId, OutFrame, SockAddr, Term};

/// Connections of older terms are reset: the old leader had their other ends.
pub fn term_start<H: Host>(k: &H, term: Term) {
    // Ids hold the low half of the term.
    let current = ConnId::new(term, 0).term();
    k.net.outbound.term_start(current);
    for (socket, s) in k.net.external.iter(k) {
        if s.conn.get().term() < current {
            lose(k, socket);
        }
    }
}

/// A client connected.
pub fn open<H: Host>(k: &H, conn: ConnId, peer: SockAddr, local: SockAddr) {
    let Some((listener, ends)) = bind::find_listener_for(k, Ends { local, peer }, conn.0) else {
        k.emit(OutFrame::Abort { conn });
        return;
    };
    let l = k.net.sockets.get(listener);
    let Ok(socket) = make(k, l.family.get()) else {
        k.notice(format_args!("too many sockets: a client's connection was reset"));
        k.emit(OutFrame::Abort { conn });
        return;
    };
    let s = k.net.sockets.get(socket);
    s.options.inherit(&l.options);
    s.state.set(State::Connected);
    s.transport.set(Transport::External);
    let v6 = l.family.get() == abi::AF_INET6;
    s.local.set(SockAddr { v6, ..ends.local });
    s.remote.set(SockAddr { v6, ..ends.peer });
    k.net.external.add(k, socket, conn);
    connect::enqueue(k, listener, socket);
}

/// Bytes from a client.
pub fn data<H: Host>(k: &H, conn: ConnId, bytes: &[u8]) {
    let Some(socket) = k.net.external.find(k, conn) else { return };
    let s = k.net.sockets.get(socket);
    if s.ended.get() || s.state.get() == State::Dead {
        return;
    }
    if s.received.push(&k.chunks, bytes) < bytes.len() {
        k.notice(format_args!("no memory for received bytes: a client's connection was reset"));
        s.received.clear(&k.chunks);
        external::abort(k, socket);
        close::reset(k, socket);
        return;
    }
    file::notify(k, s.file.get(), ready::CAME);
}

/// A client has shut its sending side.
pub fn fin<H: Host>(k: &H, conn: ConnId) {
    if let Some(socket) = k.net.external.find(k, conn) {
        close::receive_end(k, socket);
    }
}

/// A client is gone.
pub fn reset<H: Host>(k: &H, conn: ConnId) {
    if let Some(socket) = k.net.external.find(k, conn) {
        lose(k, socket);
    }
}

fn lose<H: Host>(k: &H, socket: Handle<Socket>) {
    if k.net.sockets.get(socket).state.get() == State::Connecting {
        // Nothing was sent on it: trying again is as safe as after a refusal.
        return outbound::give_up(k, socket, abi::ECONNREFUSED);
    }
    k.net.external.remove(k, socket);
    close::reset(k, socket);
}

/// A client took bytes.
pub fn drained<H: Host>(k: &H, conn: ConnId, bytes: u64) {
    let Some(socket) = k.net.external.find(k, conn) else { return };
    let s = k.net.sockets.get(socket);
    let was_writable = s.writable(k);
    s.undrained.set(s.undrained.get().saturating_sub(bytes));
    if !was_writable && s.writable(k) {
        file::notify(k, s.file.get(), ready::ROOM);
    }
}
