//! The gateway: a leader's connections with the outside, between their sockets and the log. Clients open most of them; the
//! server can open some, too ([`outgoing`]).
//!
//! Owns every client socket, its output queue and its connection's credit. Knows no kernel: a
//! [`Socket`] is a trait and time is an argument, so that a simulation drives the same code.
//!
//! ```text
//! socket --read, within credit--> Data, Fin, Reset, Drained records of the turn's entry
//! output ring --Send, Fin, Close, Abort--> pieces of the ring --one writev a turn--> socket
//!                                           refused bytes --> queue, bounded by the virtual send buffer
//! ```
//!
//! Invariants: no more is read from a client than its receive window in the server has room for; a connection's records
//! are proposed in the order in which they happened; after `Reset` no record of it is proposed; a client that does not read
//! or write costs only its own buffers, and no other client's time. A connection id is never used twice.
//!
//! Threads: the reactor's. Crash: the clients see a reset; the next leader's `TermStart` resets their connections in the
//! server.

mod conn;
mod crowd;
mod outgoing;
mod read;
mod write;

pub use conn::Socket;
pub use outgoing::CONNECT_FOR;

use conn::{Conn, Phase};
use crowd::Crowd;
use outgoing::Outgoing;
use skein_model::{ConnId, EntryBuilder, OutFrame, Record, SockAddr, Term};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// Room for one more small record that an entry must have left.
const SMALL_RECORD_BYTES: usize = 128;
/// How long a connection that the server closed may go without progress before it is cut.
const LINGER_IDLE: Duration = Duration::from_secs(30);
/// How long, and for how many bytes, a client that got everything is read and ignored before its socket is closed.
/// Otherwise its late bytes would make the kernel drop data that it has not received yet.
const DISCARD_FOR: Duration = Duration::from_secs(2);
const DISCARD_BYTES: usize = 4 << 20;

/// Bounds of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes on their way to and from the server, over all connections.
    pub memory_bytes: usize,
}

/// The reason why a client was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of connections is reached.
    Connections(usize),
    /// The limit of waiting bytes is reached.
    Memory(usize),
    /// The connection numbers of this term are used up.
    Ids,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connections(n) => write!(f, "{n} connections are open (tuning.max_connections)"),
            Self::Memory(n) => write!(f, "{n} bytes wait (tuning.max_memory_bytes)"),
            Self::Ids => f.write_str("all connection numbers of this term are used"),
        }
    }
}

/// The server sent more than its virtual send buffer holds, or otherwise broke the rules of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowExceeded(pub ConnId);

/// A hash of a connection id: ids are counters, one multiplication spreads them.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// A map by connection id.
pub type ConnMap<V> = HashMap<ConnId, V, BuildHasherDefault<IdHasher>>;

/// All client connections of a term.
#[derive(Debug)]
pub struct Gateway<S> {
    term: Term,
    next: u32,
    limits: Limits,
    /// Connections that the server begins.
    outgoing: Outgoing,
    conns: ConnMap<Conn<S>>,
    /// Connections with something to read, oldest first: the next turn starts where this one stopped.
    ready: VecDeque<ConnId>,
    /// Connections whose `Reset` is still to be proposed.
    resets: VecDeque<ConnId>,
    /// Connections whose `Drained` is still to be proposed.
    drained: VecDeque<ConnId>,
    /// Connections that got frames in this pass.
    dirty: Vec<ConnId>,
    /// The number of connections that only deliver their queue or drop input,
    lingering: usize,
    /// and when to look at them: a postponed deadline is postponed here when it is reached.
    deadlines: BinaryHeap<Reverse<(Duration, ConnId)>>,
    crowd: Crowd,
    /// Bytes that the server has not taken (beyond its reporting step) or that clients have not.
    held_bytes: usize,
    /// The number of connections that were cut because too many bytes were held,
    cut: u64,
    /// and the clients of those that were not reported yet.
    cut_clients: Vec<SockAddr>,
    /// Bytes read from clients.
    pub bytes_in: u64,
    /// Bytes written to clients.
    pub bytes_out: u64,
}

impl<S: Socket> Gateway<S> {
    /// A gateway without connections.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            term: Term(0),
            next: 0,
            limits,
            outgoing: Outgoing::default(),
            conns: ConnMap::default(),
            ready: VecDeque::new(),
            resets: VecDeque::new(),
            drained: VecDeque::new(),
            dirty: Vec::new(),
            lingering: 0,
            deadlines: BinaryHeap::new(),
            crowd: Crowd::default(),
            held_bytes: 0,
            cut: 0,
            cut_clients: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// This node leads in `term`: ids count from 1 again. There are no connections.
    pub fn begin_term(&mut self, term: Term) {
        self.reset_all();
        self.term = term;
        self.next = 0;
        self.outgoing.begin_term();
    }

    /// Another edition of the server begins in the same term.
    pub fn begin_edition(&mut self) {
        self.outgoing.begin_edition();
    }

    /// Resets every client and proposes nothing. For a leader that steps down.
    pub fn reset_all(&mut self) {
        for conn in self.conns.values_mut() {
            conn.socket.reset();
        }
        self.conns.clear();
        self.ready.clear();
        self.resets.clear();
        self.drained.clear();
        self.dirty.clear();
        self.lingering = 0;
        self.deadlines.clear();
        self.crowd.forget();
        self.held_bytes = 0;
        self.outgoing.end();
    }

    /// Resets every client and proposes that. For a leader whose server is rebuilt while it goes on leading.
    pub fn reset_all_in_order(&mut self) {
        let ids: Vec<ConnId> = self.conns.keys().copied().collect();
        for id in ids {
            self.cut_off(id);
        }
    }

    /// The number of connections, including lingering ones.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Bytes that wait for the server or for clients.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The number of connections that were cut because too many bytes waited, since the start.
    #[must_use]
    pub const fn cut_connections(&self) -> u64 {
        self.cut
    }

    /// The clients that were cut since the last call.
    pub fn take_cut(&mut self) -> Vec<SockAddr> {
        std::mem::take(&mut self.cut_clients)
    }

    /// Whether [`collect`](Self::collect) has something to try.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.ready.is_empty()
            || !self.resets.is_empty()
            || !self.drained.is_empty()
            || self.outgoing.has_answers()
    }

    /// The number of connections with something to read.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The number of others that were just answered, and have sent nothing since.
    #[must_use]
    pub const fn awaited(&self) -> usize {
        self.crowd.awaited()
    }

    /// Accepts a client: its `Open` goes into `entry`. The id is then known to [`socket`](Self::socket).
    ///
    /// # Errors
    /// There is no room for it; the socket is reset.
    pub fn open(
        &mut self,
        mut socket: S,
        peer: SockAddr,
        local: SockAddr,
        entry: &mut EntryBuilder<Vec<u8>>,
    ) -> Result<ConnId, Refusal> {
        let ids_left = self.next + 1 < ConnId::OUTGOING;
        let refusal = self.full().or((!ids_left).then_some(Refusal::Ids));
        if let Some(refusal) = refusal {
            socket.reset();
            return Err(refusal);
        }
        self.next += 1;
        let id = ConnId::new(self.term, self.next);
        entry.push(Record::Open { conn: id, peer, local });
        self.conns.insert(id, Conn::new(socket, Some(peer), Phase::Live));
        Ok(id)
    }

    /// The reason why there is no room for one more connection, if there is none.
    fn full(&mut self) -> Option<Refusal> {
        if self.conns.len() >= self.limits.connections {
            // A connection that the server has closed makes room.
            self.end_one_lingering();
        }
        if self.conns.len() >= self.limits.connections {
            Some(Refusal::Connections(self.conns.len()))
        } else if self.held_bytes >= self.limits.memory_bytes {
            Some(Refusal::Memory(self.held_bytes))
        } else {
            None
        }
    }

    /// Drops a client that the kernel does not watch; the server learns it by a `Reset`.
    pub fn drop_client(&mut self, id: ConnId) {
        self.cut_off(id);
    }

    /// Whether one more `Open` fits into `entry`.
    #[must_use]
    pub fn has_room(entry: &EntryBuilder<Vec<u8>>) -> bool {
        entry.room() >= SMALL_RECORD_BYTES
    }

    /// The socket of a connection.
    pub fn socket(&mut self, id: ConnId) -> Option<&mut S> {
        self.conns.get_mut(&id).map(|c| &mut c.socket)
    }

    /// The `n`th connection of this term.
    #[must_use]
    pub const fn id_of(&self, n: u32) -> ConnId {
        ConnId::new(self.term, n)
    }

    /// A read would not block. `more`: also after a short read, because an end or an urgent byte came.
    pub fn readable(&mut self, id: ConnId, more: bool, now: Duration) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.readable = true;
        conn.read_on |= more;
        match conn.phase {
            Phase::Connecting => {}
            Phase::Live => {
                self.crowd.spoke(&mut conn.turn);
                Self::enlist(&mut self.ready, id, conn);
            }
            Phase::Delivering | Phase::Discarding => self.discard(id, now),
        }
    }

    /// A write would not block.
    pub fn writable(&mut self, id: ConnId, now: Duration) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.phase == Phase::Connecting {
            return self.progressed(id);
        }
        // Reported with every read event, although it rarely changes.
        if !conn.writable {
            conn.writable = true;
            self.write(id, &[], now);
        }
    }

    /// One frame of the output ring that concerns a connection. `at` is where the payload of a `Send` starts in the slice
    /// that [`flush`](Self::flush) will be given. Frames for connections that are gone are ignored.
    ///
    /// # Errors
    /// The server breaks the rules.
    pub fn frame(&mut self, frame: &OutFrame<'_>, at: usize) -> Result<(), WindowExceeded> {
        match *frame {
            OutFrame::Connect { conn, addr } => self.outgoing.wanted(conn, addr, self.term),
            OutFrame::Send { conn: id, bytes } => {
                let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
                if conn.phase != Phase::Live || conn.fin_queued {
                    return Err(WindowExceeded(id));
                }
                conn.pieces.push((at, bytes.len()));
                Self::soil(&mut self.dirty, id, conn);
            }
            OutFrame::Fin { conn: id } => {
                let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
                if conn.phase == Phase::Connecting {
                    return Err(WindowExceeded(id));
                }
                conn.fin_queued = true;
                Self::soil(&mut self.dirty, id, conn);
            }
            OutFrame::Close { conn: id } => {
                let Some(conn) = self.conns.get_mut(&id) else {
                    self.outgoing.forget(id);
                    return Ok(());
                };
                if conn.phase == Phase::Connecting {
                    self.abandon(id);
                    return Ok(());
                }
                if conn.phase == Phase::Live {
                    self.crowd.spoke(&mut conn.turn);
                    conn.phase = Phase::Delivering;
                    conn.fin_queued = true;
                    self.held_bytes -= conn.held_in().min(self.held_bytes);
                    conn.forget_input();
                    self.lingering += 1;
                }
                Self::soil(&mut self.dirty, id, conn);
            }
            OutFrame::Abort { conn: id } => {
                self.outgoing.forget(id);
                if let Some(mut conn) = self.remove(id) {
                    conn.socket.reset();
                }
            }
            OutFrame::Consumed { conn: id, bytes } => {
                let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
                if conn.phase == Phase::Live {
                    let before = conn.held_in();
                    if !conn.give_credit(bytes) {
                        return Err(WindowExceeded(id));
                    }
                    self.held_bytes -= (before - conn.held_in()).min(self.held_bytes);
                    if conn.may_read() {
                        Self::enlist(&mut self.ready, id, conn);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Cuts connections that the server closed and that make no progress. Answers when to call again, if ever.
    pub fn expire(&mut self, now: Duration) -> Option<Duration> {
        let connecting = self.expire_connecting(now);
        while let Some(&Reverse((at, id))) = self.deadlines.peek() {
            let deadline = self.conns.get(&id).and_then(|conn| conn.deadline);
            if at > now && deadline.is_some() {
                break;
            }
            self.deadlines.pop();
            match deadline {
                Some(deadline) if deadline <= now => drop(self.remove(id)),
                Some(deadline) => self.deadlines.push(Reverse((deadline, id))),
                None => {}
            }
        }
        let lingering = self.deadlines.peek().map(|Reverse((at, _))| *at);
        connecting.into_iter().chain(lingering).min()
    }

    /// The connection is cut at `deadline`, which may postpone an earlier one.
    fn cut_at(&mut self, id: ConnId, deadline: Duration) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let known = conn.deadline.replace(deadline);
        if known.is_none_or(|known| deadline < known) {
            self.deadlines.push(Reverse((deadline, id)));
        }
    }

    fn end_one_lingering(&mut self) {
        while self.lingering > 0
            && let Some(Reverse((_, id))) = self.deadlines.pop()
        {
            if self.conns.get(&id).is_some_and(|conn| conn.deadline.is_some()) {
                self.remove(id);
                return;
            }
        }
    }

    fn enlist(ready: &mut VecDeque<ConnId>, id: ConnId, conn: &mut Conn<S>) {
        if !conn.enlisted {
            conn.enlisted = true;
            ready.push_back(id);
        }
    }

    fn soil(dirty: &mut Vec<ConnId>, id: ConnId, conn: &mut Conn<S>) {
        if !conn.dirty {
            conn.dirty = true;
            dirty.push(id);
        }
    }

    fn remove(&mut self, id: ConnId) -> Option<Conn<S>> {
        let mut conn = self.conns.remove(&id)?;
        self.crowd.spoke(&mut conn.turn);
        self.lingering -= usize::from(matches!(conn.phase, Phase::Delivering | Phase::Discarding));
        let held = conn.held_in() + conn.queued();
        self.held_bytes -= held.min(self.held_bytes);
        Some(conn)
    }

    /// Forgets a connection whose client is gone; the server learns it by a `Reset`, unless it has closed already.
    fn cut_off(&mut self, id: ConnId) {
        if let Some(mut conn) = self.remove(id) {
            conn.socket.reset();
            if matches!(conn.phase, Phase::Live | Phase::Connecting) {
                self.resets.push_back(id);
            }
        }
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod outgoing_tests;
#[cfg(test)]
mod tests;
