//! Connections that the server begins to the outside.
//!
//! A `Connect` frame tells every replica's node; the leader's alone makes the connection, and the result is in the log: `Connected` or
//! `ConnectFailed`, then the same records as for a client's connection. The server sees only virtual addresses of its own end.
//!
//! Numbers count from 1 in each term, so a leader recognises a number that it has begun already when its server is rebuilt from the log, and one of
//! an earlier term, which it must not begin. A term's start resets the connections of earlier ones: their other ends were the old
//! leader's.

use super::{Socket, State, Transport, connect};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::{self, ready};
use crate::host::Host;
pub use crate::state::net::Numbers;
use skein_arena::pool::Handle;
use skein_arena::uses::Use;
use skein_model::{ConnId, OutFrame, SockAddr, Term};

impl Numbers {
    /// A leader of `term`; that of the same term again keeps its numbers.
    pub fn term_start(&self, term: Term) {
        if self.term.replace(term.0) != term.0 {
            self.begun.set(0);
        }
    }

    fn next(&self) -> Result<ConnId> {
        let n = self.begun.get() + 1;
        if n == ConnId::OUTGOING {
            return fail(abi::EADDRNOTAVAIL);
        }
        self.begun.set(n);
        Ok(ConnId::outgoing(Term(self.term.get()), n))
    }
}

/// Begins a connection to `to`; the socket has its own address already.
pub fn begin<H: Host>(k: &H, socket: Handle<Socket>, to: SockAddr) -> Result<()> {
    let conn = k.net.outbound.next()?;
    k.note(Use::Outgoing);
    let s = k.net.sockets.get(socket);
    s.remote.set(to);
    s.undrained.set(0);
    s.taken.set(0);
    s.transport.set(Transport::External);
    s.state.set(State::Connecting);
    k.net.external.add(k, socket, conn);
    k.emit(OutFrame::Connect { conn, addr: to });
    Ok(())
}

/// The leader has connected.
pub fn connected<H: Host>(k: &H, conn: ConnId) {
    let Some(socket) = k.net.external.find(k, conn) else { return };
    let s = k.net.sockets.get(socket);
    if s.state.get() == State::Connecting {
        s.state.set(State::Connected);
        file::notify(k, s.file.get(), ready::ALL);
    }
}

/// The leader could not connect.
pub fn failed<H: Host>(k: &H, conn: ConnId, errno: u16) {
    let Some(socket) = k.net.external.find(k, conn) else { return };
    if k.net.sockets.get(socket).state.get() == State::Connecting {
        give_up(k, socket, i32::from(errno));
    }
}

/// A connection that is being made is cancelled.
pub fn give_up<H: Host>(k: &H, socket: Handle<Socket>, errno: i32) {
    k.net.external.remove(k, socket);
    k.net.sockets.get(socket).transport.set(Transport::None);
    connect::refuse(k, socket, errno);
}
