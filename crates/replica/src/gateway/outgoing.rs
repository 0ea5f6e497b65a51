//! Connections that the server begins.
//!
//! ```text
//! Connect frame --> wanted --> (reactor: a socket that connects) --> Connecting --> answer: Connected, ConnectFailed --> Live
//! ```
//!
//! Invariants: only a leader has any, and only those of its own term: connections of older entries have
//! been made already, or never will be. Each number is begun once, also when the leader's server is rebuilt from the log in the
//! same term. Exactly one answer for each that the server has not closed before; its other records come after that.

use super::{
    Conn, ConnId, EntryBuilder, Gateway, Phase, Record, SMALL_RECORD_BYTES, SockAddr, Socket, Term,
};
use std::collections::VecDeque;
use std::time::Duration;

/// The longest time to establish a connection; then it has timed out. Linux would try for two minutes, by the clock of one
/// machine.
pub const CONNECT_FOR: Duration = Duration::from_secs(30);

/// The server's requests, between the output ring and the entry.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    leads: bool,
    /// The last number that the server used in this term.
    last: u32,
    /// The last one that servers of an earlier edition used in it: one that uses it again is answered that there is no port left,
    former: u32,
    /// as was answered up to here.
    refused: u32,
    /// Asked for and not yet begun.
    wanted: Vec<(ConnId, SockAddr)>,
    /// Being made, oldest first, with their deadlines. Some of them may be gone or established already.
    deadlines: VecDeque<(Duration, ConnId)>,
    /// Results for the server: 0, or the errno.
    answers: VecDeque<(ConnId, u16)>,
}

impl Outgoing {
    pub fn begin_term(&mut self) {
        self.end();
        self.leads = true;
        (self.last, self.former, self.refused) = (0, 0, 0);
    }

    /// Another edition of the server begins in the same term, and numbers from 1 again.
    pub fn begin_edition(&mut self) {
        self.wanted.clear();
        self.deadlines.clear();
        self.answers.clear();
        (self.former, self.refused) = (self.last, 0);
    }

    pub fn end(&mut self) {
        self.leads = false;
        self.wanted.clear();
        self.deadlines.clear();
        self.answers.clear();
    }

    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The server begins a connection.
    pub fn wanted(&mut self, id: ConnId, addr: SockAddr, term: Term) {
        let n = id.0 as u32;
        if !self.leads || id != ConnId::new(term, n) {
            return;
        }
        if n > self.last {
            self.last = n;
            self.wanted.push((id, addr));
        } else if n <= self.former && n > self.refused {
            self.refused = n;
            self.answers.push_back((id, libc::EADDRNOTAVAIL as u16));
        }
    }

    /// The server gave it up: it gets no answer.
    pub fn forget(&mut self, id: ConnId) {
        if id.is_outgoing() {
            self.wanted.retain(|(wanted, _)| *wanted != id);
            self.answers.retain(|(answered, _)| *answered != id);
        }
    }
}

impl<S: Socket> Gateway<S> {
    /// The connections to begin now: each is to be answered by [`begin`](Self::begin) or [`fail`](Self::fail).
    pub fn take_wanted(&mut self) -> Vec<(ConnId, SockAddr)> {
        std::mem::take(&mut self.outgoing.wanted)
    }

    /// `socket` connects, from now on; [`writable`](Self::writable) is called when that has finished.
    pub fn begin(&mut self, id: ConnId, mut socket: S, now: Duration) {
        if self.full().is_some() {
            socket.reset();
            // As when a machine has no port left.
            return self.fail(id, libc::EADDRNOTAVAIL);
        }
        self.conns.insert(id, Conn::new(socket, None, Phase::Connecting));
        self.outgoing.deadlines.push_back((now + CONNECT_FOR, id));
    }

    /// It cannot be made.
    pub fn fail(&mut self, id: ConnId, errno: i32) {
        self.remove(id);
        // Zero would say that it is established.
        let errno = u16::try_from(errno).ok().filter(|e| *e != 0);
        self.outgoing.answers.push_back((id, errno.unwrap_or(libc::EHOSTUNREACH as u16)));
    }

    /// Its socket may have connected.
    pub(super) fn progressed(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.writable {
            // Known; the server will be told.
            return;
        }
        match conn.socket.connected() {
            None => {}
            Some(Ok(())) => {
                conn.writable = true;
                self.outgoing.answers.push_back((id, 0));
            }
            Some(Err(error)) => self.fail(id, error.raw_os_error().unwrap_or_default()),
        }
    }

    /// The server closed one before it knew that it was established.
    pub(super) fn abandon(&mut self, id: ConnId) {
        self.outgoing.forget(id);
        if let Some(mut conn) = self.remove(id) {
            conn.socket.reset();
        }
    }

    /// Gives up those that take too long; answers when to call again.
    pub(super) fn expire_connecting(&mut self, now: Duration) -> Option<Duration> {
        while let Some(&(deadline, id)) = self.outgoing.deadlines.front() {
            let waits =
                self.conns.get(&id).is_some_and(|c| c.phase == Phase::Connecting && !c.writable);
            if waits && deadline > now {
                return Some(deadline);
            }
            self.outgoing.deadlines.pop_front();
            if waits {
                self.fail(id, libc::ETIMEDOUT);
            }
        }
        None
    }

    /// Tells the server the results of its connections.
    pub(super) fn collect_answers(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        while entry.room() >= SMALL_RECORD_BYTES {
            let Some((conn, errno)) = self.outgoing.answers.pop_front() else { break };
            if errno != 0 {
                entry.push(Record::ConnectFailed { conn, errno });
                continue;
            }
            // Without it the answer is a reset, which is proposed already or comes next.
            let Some(known) = self.conns.get_mut(&conn) else { continue };
            entry.push(Record::Connected { conn });
            known.phase = Phase::Live;
            if known.readable {
                Self::enlist(&mut self.ready, conn, known);
            }
        }
    }
}
