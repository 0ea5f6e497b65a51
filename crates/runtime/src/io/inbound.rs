//! Effects of entries on sockets. Records for unknown connections are skipped: the server may have closed them while
//! the record was on its way.

use crate::fatal;
use crate::io::outbound;
use crate::io::socket::bind::Ends;
use crate::io::socket::{Socket, State, Transport, bind, close, connect, external, make};
use crate::kernel::Kernel;
use crate::turn::output;
use skein_arena::pool::Handle;
use skein_libos::file::{self, ready};
use skein_model::{ConnId, OutFrame, SockAddr, Term};

/// Connections of older terms are reset: the old leader had their other ends.
pub fn term_start(k: &Kernel, term: Term) {
    // Ids hold the low half of the term.
    let current = ConnId::new(term, 0).term();
    k.io.outbound.term_start(current);
    for (socket, s) in k.io.external.iter(k) {
        if s.conn.get().term() < current {
            lose(k, socket);
        }
    }
}

/// A client connected.
pub fn open(k: &Kernel, conn: ConnId, peer: SockAddr, local: SockAddr) {
    let Some((listener, ends)) = bind::find_listener_for(k, Ends { local, peer }, conn.0) else {
        output::emit(OutFrame::Abort { conn });
        return;
    };
    let l = k.io.sockets.get(listener);
    let Ok(socket) = make(k, l.family.get()) else {
        fatal::notice(b"too many sockets: a client's connection was reset");
        output::emit(OutFrame::Abort { conn });
        return;
    };
    let s = k.io.sockets.get(socket);
    s.options.inherit(&l.options);
    s.state.set(State::Connected);
    s.transport.set(Transport::External);
    let v6 = l.family.get() == libc::AF_INET6;
    s.local.set(SockAddr { v6, ..ends.local });
    s.remote.set(SockAddr { v6, ..ends.peer });
    k.io.external.add(k, socket, conn);
    connect::enqueue(k, listener, socket);
}

/// Bytes from a client.
pub fn data(k: &Kernel, conn: ConnId, bytes: &[u8]) {
    let Some(socket) = k.io.external.find(k, conn) else { return };
    let s = k.io.sockets.get(socket);
    if s.ended.get() || s.state.get() == State::Dead {
        return;
    }
    if s.received.push(&k.chunks, bytes) < bytes.len() {
        fatal::notice(b"no memory for received bytes: a client's connection was reset");
        s.received.clear(&k.chunks);
        external::abort(k, socket);
        close::reset(k, socket);
        return;
    }
    file::notify(k, s.file.get(), ready::IN);
}

/// A client has shut its sending side.
pub fn fin(k: &Kernel, conn: ConnId) {
    if let Some(socket) = k.io.external.find(k, conn) {
        close::receive_end(k, socket);
    }
}

/// A client is gone.
pub fn reset(k: &Kernel, conn: ConnId) {
    if let Some(socket) = k.io.external.find(k, conn) {
        lose(k, socket);
    }
}

fn lose(k: &Kernel, socket: Handle<Socket>) {
    if k.io.sockets.get(socket).state.get() == State::Connecting {
        // Nothing was sent on it: trying again is as safe as after a refusal.
        return outbound::give_up(k, socket, libc::ECONNREFUSED);
    }
    k.io.external.remove(k, socket);
    close::reset(k, socket);
}

/// A client took bytes.
pub fn drained(k: &Kernel, conn: ConnId, bytes: u64) {
    let Some(socket) = k.io.external.find(k, conn) else { return };
    let s = k.io.sockets.get(socket);
    let was_writable = s.writable(k);
    s.undrained.set(s.undrained.get().saturating_sub(bytes));
    if !was_writable && s.writable(k) {
        file::notify(k, s.file.get(), ready::OUT);
    }
}
