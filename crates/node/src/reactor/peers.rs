//! Connections between nodes.
//!
//! One connection a pair: the replica with the greater id connects, again and again with a growing pause, the other
//! accepts. Both say hello first; who belongs to another cluster, runs another program or another durability is
//! refused, with one log line. What a peer sends is checked by `skein-log`'s frames; nonsense ends the connection.
//!
//! What cannot be sent at once is queued up to a bound and then dropped: consensus lives with lost messages.

use super::ports;
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use skein_log::frame::{self, Decoder, Hello};
use skein_log::{ClusterId, Outgoing};
use skein_model::ReplicaId;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A connection without a hello is cut after this.
const HELLO_WITHIN: Duration = Duration::from_secs(3);
/// Connections that have not said hello: more are refused.
const MAX_STRANGERS: usize = 32;
/// What may wait for one peer: four of the largest frames.
const MAX_QUEUE_BYTES: usize = 4 * frame::MAX_FRAME_BYTES;
const READ_BYTES: usize = 256 << 10;

/// What peers bring.
#[derive(Debug)]
pub enum PeerEvent {
    /// A peer is there, with what it said.
    Joined(Hello),
    /// A frame of it.
    Frame(ReplicaId, u8, Vec<u8>),
    /// Its connection closed.
    Lost(ReplicaId),
}

#[derive(Debug, PartialEq, Eq)]
enum Side {
    /// We connected to this replica.
    Dialed(ReplicaId),
    Accepted,
}

struct Link {
    stream: TcpStream,
    side: Side,
    peer: Option<ReplicaId>,
    decoder: Decoder,
    out: Vec<u8>,
    out_start: usize,
    writable: bool,
    since: Duration,
}

struct Dialer {
    peer: ReplicaId,
    address: SocketAddr,
    at: Duration,
    pause: Duration,
}

/// All connections to peers.
pub struct Peers {
    cluster: ClusterId,
    hello: Hello,
    members: Vec<ReplicaId>,
    listener: TcpListener,
    links: BTreeMap<usize, Link>,
    by_peer: BTreeMap<ReplicaId, usize>,
    dialers: Vec<Dialer>,
    refused: BTreeMap<String, Duration>,
    first_token: usize,
    next_token: usize,
    buffer: Vec<u8>,
    /// What has come from peers so far, frames and all.
    pub bytes_in: u64,
    /// And what has gone to them.
    pub bytes_out: u64,
}

impl Peers {
    /// Connections to `members`; tokens count from `first_token`, which is the listener's.
    pub fn new(
        cluster: ClusterId,
        hello: Hello,
        members: &[(ReplicaId, SocketAddr)],
        listener: TcpListener,
        first_token: usize,
    ) -> Self {
        let own = hello.replica;
        let dialer = |&(peer, address): &(ReplicaId, SocketAddr)| {
            (own > peer).then_some(Dialer { peer, address, at: Duration::ZERO, pause: FIRST_PAUSE })
        };
        Self {
            cluster,
            hello,
            members: members.iter().map(|(id, _)| *id).filter(|id| *id != own).collect(),
            listener,
            links: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            dialers: members.iter().filter_map(dialer).collect(),
            refused: BTreeMap::new(),
            first_token,
            next_token: first_token + 1,
            buffer: vec![0; READ_BYTES],
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// The poll does not take the socket.
    pub fn register(&mut self, registry: &Registry) -> std::io::Result<()> {
        registry.register(&mut self.listener, Token(self.first_token), Interest::READABLE)
    }

    /// Whether this is the token of the listener or of a connection.
    #[must_use]
    pub const fn owns(&self, token: Token) -> bool {
        token.0 >= self.first_token
    }

    /// Who is connected.
    pub fn connected(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.by_peer.keys().copied()
    }

    /// Connects where it is time to, cuts who said no hello. Answers when to call again.
    pub fn tend(&mut self, registry: &Registry, now: Duration) -> Option<Duration> {
        let strangers: Vec<usize> = self
            .links
            .iter()
            .filter(|(_, l)| l.peer.is_none() && now.saturating_sub(l.since) >= HELLO_WITHIN)
            .map(|(serial, _)| *serial)
            .collect();
        for serial in strangers {
            self.close(serial, now);
        }
        for index in 0..self.dialers.len() {
            let Dialer { peer, address, at, .. } = self.dialers[index];
            let busy = self.links.values().any(|l| l.side == Side::Dialed(peer));
            if busy || self.by_peer.contains_key(&peer) || at > now {
                continue;
            }
            match TcpStream::connect(address) {
                Ok(stream) => self.add(stream, Side::Dialed(peer), registry, now),
                Err(_) => self.pause(peer, now),
            }
        }
        let waiting = self
            .dialers
            .iter()
            .filter(|d| !self.by_peer.contains_key(&d.peer))
            .map(|d| d.at.max(now + FIRST_PAUSE));
        let hello =
            self.links.values().filter(|l| l.peer.is_none()).map(|l| l.since + HELLO_WITHIN);
        waiting.chain(hello).min()
    }

    /// Something happened at a token of its own.
    pub fn ready(
        &mut self,
        event: &Event,
        registry: &Registry,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) {
        let token = event.token();
        if token.0 == self.first_token {
            self.accept(registry, now);
            return;
        }
        let serial = token.0;
        if event.is_writable()
            && let Some(link) = self.links.get_mut(&serial)
        {
            link.writable = true;
        }
        if !self.read(serial, event.is_read_closed() || event.is_error(), now, events) {
            self.drop_link(serial, now, events);
        }
    }

    /// Queues a consensus message.
    pub fn send_raft(&mut self, message: &Outgoing) -> bool {
        self.send(message.to, frame::KIND_RAFT, &message.bytes)
    }

    /// Queues a message; false when the peer is not connected or takes nothing. [`flush`](Self::flush) sends it.
    pub fn send(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool {
        let Some(link) = self.by_peer.get(&to).and_then(|s| self.links.get_mut(s)) else {
            return false;
        };
        if link.out.len() - link.out_start + payload.len() > MAX_QUEUE_BYTES {
            return false;
        }
        frame::encode(&mut link.out, self.cluster, kind, payload);
        true
    }

    /// Sends what is queued, one write a peer.
    pub fn flush(&mut self, now: Duration, events: &mut Vec<PeerEvent>) {
        let mut broken = Vec::new();
        for (serial, link) in &mut self.links {
            if !link.flush(&mut self.bytes_out) {
                broken.push(*serial);
            }
        }
        for serial in broken {
            self.drop_link(serial, now, events);
        }
    }

    fn accept(&mut self, registry: &Registry, now: Duration) {
        loop {
            match ports::accept(&self.listener) {
                Ok(Some((stream, _))) => {
                    // Who is too many sees its connection closed and tries again.
                    if self.links.values().filter(|l| l.peer.is_none()).count() < MAX_STRANGERS {
                        self.add(stream, Side::Accepted, registry, now);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(event = "peer_accept_failed", %error);
                    return;
                }
            }
        }
    }

    fn add(&mut self, mut stream: TcpStream, side: Side, registry: &Registry, now: Duration) {
        let serial = self.next_token;
        self.next_token += 1;
        // Fails when the connection is gone already; the first read tells.
        let _ = stream.set_nodelay(true);
        if registry
            .register(&mut stream, Token(serial), Interest::READABLE | Interest::WRITABLE)
            .is_err()
        {
            return;
        }
        let mut out = Vec::new();
        frame::encode(&mut out, self.cluster, frame::KIND_HELLO, &self.hello.encode());
        let decoder = Decoder::new(self.cluster);
        let link = Link {
            stream,
            side,
            peer: None,
            decoder,
            out,
            out_start: 0,
            writable: false,
            since: now,
        };
        self.links.insert(serial, link);
    }

    /// False when the connection is over.
    fn read(
        &mut self,
        serial: usize,
        closed: bool,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) -> bool {
        loop {
            let Some(link) = self.links.get_mut(&serial) else { return true };
            let n = match link.stream.read(&mut self.buffer) {
                Ok(0) => return false,
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // Not connected yet is no end; refused is.
                Err(e) if e.kind() == ErrorKind::NotConnected => return true,
                Err(_) => return false,
            };
            self.bytes_in += n as u64;
            link.decoder.push(&self.buffer[..n]);
            // What comes after a short read is announced again; an end that came already is not.
            let drained = n < self.buffer.len() && !closed;
            loop {
                let Some(link) = self.links.get_mut(&serial) else { return true };
                match link.decoder.next_frame() {
                    Ok(None) if drained => return true,
                    Ok(None) => break,
                    Ok(Some(frame)) => match link.peer {
                        Some(peer) => {
                            events.push(PeerEvent::Frame(peer, frame.kind, frame.payload.to_vec()))
                        }
                        None => {
                            let hello = if frame.kind == frame::KIND_HELLO {
                                Hello::decode(frame.payload)
                            } else {
                                Err(frame::FrameError::Hello)
                            };
                            let judged = hello
                                .map_err(|e| e.to_string())
                                .and_then(|h| self.judge(serial, h));
                            match judged {
                                Ok(hello) => self.join(serial, hello, now, events),
                                Err(why) => {
                                    self.refuse(serial, &why, now);
                                    return false;
                                }
                            }
                        }
                    },
                    Err(error) => {
                        self.refuse(serial, &error.to_string(), now);
                        return false;
                    }
                }
            }
        }
    }

    fn judge(&self, serial: usize, hello: Hello) -> Result<Hello, String> {
        let own = &self.hello;
        let replica = hello.replica;
        if !self.members.contains(&replica) {
            return Err(format!(
                "replica {replica} is not one of this node's peers; write the same `peers` everywhere"
            ));
        }
        if let Some(Link { side: Side::Dialed(peer), .. }) = self.links.get(&serial)
            && *peer != replica
        {
            return Err(format!(
                "replica {replica} answers at the address of replica {peer}; check `peers`"
            ));
        }
        if hello.program != own.program {
            return Err(format!(
                "replica {replica} runs another program ({} instead of {}): the program, its libraries, arguments and environment, and Skein itself, must be the same",
                hello.program, own.program
            ));
        }
        if hello.durability != own.durability {
            return Err(format!(
                "replica {replica} has another durability; write the same everywhere"
            ));
        }
        Ok(hello)
    }

    fn join(&mut self, serial: usize, hello: Hello, now: Duration, events: &mut Vec<PeerEvent>) {
        let peer = hello.replica;
        // A new connection of a peer replaces the old one: the peer knows better that it is dead.
        if let Some(old) = self.by_peer.get(&peer).copied() {
            self.drop_link(old, now, events);
        }
        if let Some(link) = self.links.get_mut(&serial) {
            link.peer = Some(peer);
        }
        self.by_peer.insert(peer, serial);
        if let Some(dialer) = self.dialers.iter_mut().find(|d| d.peer == peer) {
            dialer.pause = FIRST_PAUSE;
        }
        tracing::info!(event = "peer_joined", peer = peer.0);
        events.push(PeerEvent::Joined(hello));
    }

    fn refuse(&mut self, serial: usize, why: &str, now: Duration) {
        let who = match self.links.get(&serial) {
            Some(Link { peer: Some(peer), .. } | Link { side: Side::Dialed(peer), .. }) => {
                format!("replica {peer}")
            }
            _ => "unknown".to_owned(),
        };
        // The same peer tries again and again: one line a minute.
        let line = format!("{who}: {why}");
        if self.refused.len() > 256 {
            self.refused.clear();
        }
        let last = self.refused.get(&line);
        if last.is_none_or(|at| now.saturating_sub(*at) > Duration::from_secs(60)) {
            tracing::warn!(event = "peer_refused", peer = who, why);
            self.refused.insert(line, now);
        }
    }

    fn pause(&mut self, peer: ReplicaId, now: Duration) {
        if let Some(dialer) = self.dialers.iter_mut().find(|d| d.peer == peer) {
            dialer.at = now + dialer.pause;
            dialer.pause = (dialer.pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn drop_link(&mut self, serial: usize, now: Duration, events: &mut Vec<PeerEvent>) {
        if let Some(peer) = self.close(serial, now) {
            tracing::info!(event = "peer_lost", peer = peer.0);
            events.push(PeerEvent::Lost(peer));
        }
    }

    /// Closes a connection; the answer is whose it was, if it was that peer's current one.
    fn close(&mut self, serial: usize, now: Duration) -> Option<ReplicaId> {
        let link = self.links.remove(&serial)?;
        if let Side::Dialed(peer) = link.side {
            self.pause(peer, now);
        }
        let peer = link.peer?;
        (self.by_peer.get(&peer) == Some(&serial)).then(|| {
            self.by_peer.remove(&peer);
            peer
        })
    }
}

impl Link {
    /// Adds what it sends to `sent`. False when the connection is broken.
    fn flush(&mut self, sent: &mut u64) -> bool {
        while self.writable && self.out_start < self.out.len() {
            match self.stream.write(&self.out[self.out_start..]) {
                Ok(0) => return false,
                Ok(n) => {
                    self.out_start += n;
                    *sent += n as u64;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.writable = false
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if self.out_start == self.out.len() {
            self.out.clear();
            self.out_start = 0;
            self.out.shrink_to(1 << 20);
        } else if self.out_start > self.out.len() / 2 {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
        true
    }
}
