//! Connections between nodes.
//!
//! One connection a pair: the replica with the greater id connects, again and again with a growing pause, the other
//! accepts. When that has brought nothing for a second, the other connects, too: the first may not know yet that this one is a member, or no longer. Both send a hello first, the accepting side only to a peer that has proved the key and named the cluster ([`crate::transport`]). A peer of
//! another cluster, with another program or another durability, is refused with one log line. A peer's bytes are checked by
//! `skein-log`'s frames; invalid bytes end the connection.
//!
//! Whose connections are taken changes with the cluster's members ([`Peers::set`]). A replica of the cluster that is none of them is told so before its connection
//! ends: it may have been removed while it was away. One that knows of later members is taken, as this node may be the one that was away.
//! One that names a replica which is connected waits ([`super::claims`]).
//!
//! Strangers are connections whose hello has not come. There are few at a time, and not for long; a new one takes the place of the oldest,
//! first of those from hosts without a peer: so a client that only connects keeps no one out.
//!
//! All peers send several messages a second ([`super::health`]). A connection without any for a few election timeouts is closed and
//! dialled again: TCP would notice a cut link after minutes, and a mended one after as long as the cut had lasted.
//!
//! Messages that cannot be sent at once are queued up to a bound and then dropped: consensus copes with lost messages.

use crate::base::{Base, fetch};
use crate::reactor::claims::{Claim, Claims, Judged};
use crate::reactor::link::{Link, Side};
use crate::relay::{self, Asked};
use crate::transport::channel::Sealer;
use crate::transport::wire::{self, Wire};
use crate::transport::{self, Address, Key, Listener, Stream, Watch};
use mio::event::Event;
use mio::{Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skein_log::ClusterId;
use skein_log::frame::{self, Decoder, Hello, Levels};
use skein_model::{LogIndex, ReplicaId};
use skein_replica::environment::{PeerEvent, Since};
use skein_replica::replica::members::{GONE, TWIN};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The replica with the smaller id of a pair connects when the other has not for so long.
const LATE: Duration = Duration::from_secs(1);
/// A peer that sent invalid bytes is not dialled again for this long.
const DISTRUST_FOR: Duration = Duration::from_secs(1);
/// A connection is silent after this many election timeouts; an attempt without an answer is given up as early.
const SILENT_TIMEOUTS: u32 = 4;
/// A connection without a hello is cut after this.
const HELLO_WITHIN: Duration = Duration::from_secs(3);
/// Connections that have not said hello: with more the oldest goes.
const MAX_STRANGERS: usize = 256;
/// The most bytes that wait for one peer: four of the largest frames.
const MAX_QUEUE_BYTES: usize = 4 * frame::MAX_FRAME_BYTES;
const READ_BYTES: usize = 256 << 10;

struct Dialer {
    peer: ReplicaId,
    address: Address,
    /// How often it was dialed.
    tries: u32,
    /// The other side connects first.
    late: bool,
    at: Duration,
    pause: Duration,
}

/// All connections to peers.
pub struct Peers {
    /// What replicas without a base are given.
    pub base: Option<Arc<Base>>,
    /// The thread that answers what other members ask the admin interface.
    pub admin: Option<UnboundedSender<Asked>>,
    cluster: ClusterId,
    hello: Hello,
    members: Vec<ReplicaId>,
    /// Hosts of the members.
    hosts: BTreeMap<ReplicaId, IpAddr>,
    /// Where this node's configuration says that they are.
    configured: BTreeMap<ReplicaId, Address>,
    /// The change that made these the members; none: this replica joins, and takes any replica of the cluster for one.
    since: Option<Since>,
    key: Option<Key>,
    listener: Box<dyn Listener>,
    links: BTreeMap<usize, Link>,
    by_peer: BTreeMap<ReplicaId, usize>,
    claims: Claims,
    dialers: Vec<Dialer>,
    refused: BTreeMap<String, Duration>,
    /// The longest silence of a connection.
    silence: Duration,
    /// When connections were last looked at.
    looked: Duration,
    first_token: usize,
    next_token: usize,
    buffer: Vec<u8>,
    /// What peers say is no event.
    deaf: bool,
    /// Bytes received from peers so far, frames included.
    pub bytes_in: u64,
    /// Bytes sent to them.
    pub bytes_out: u64,
}

impl Peers {
    /// No connections yet; tokens count from `first_token`, which is the listener's. A peer is silent after a few times `election_timeout`.
    pub fn new(
        cluster: ClusterId,
        hello: Hello,
        key: Option<Key>,
        configured: BTreeMap<ReplicaId, Address>,
        listener: Box<dyn Listener>,
        first_token: usize,
        election_timeout: Duration,
    ) -> Self {
        Self {
            base: None,
            admin: None,
            cluster,
            hello,
            members: Vec::new(),
            hosts: BTreeMap::new(),
            configured,
            since: Some(Since { index: LogIndex(0), voters: 0 }),
            key,
            listener,
            links: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            claims: Claims::new(SILENT_TIMEOUTS * election_timeout),
            dialers: Vec::new(),
            refused: BTreeMap::new(),
            silence: SILENT_TIMEOUTS * election_timeout,
            looked: Duration::ZERO,
            first_token,
            next_token: first_token + 1,
            buffer: vec![0; READ_BYTES],
            deaf: false,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// From now on these are the peers; connections with others end. `since`: the change that made them the members; none while this replica joins.
    pub fn set(
        &mut self,
        peers: Vec<(ReplicaId, Address)>,
        since: Option<Since>,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) {
        let own = self.hello.replica;
        if let Some(base) = &self.base {
            base.know(peers.iter().map(|(id, address)| (id.0, address.clone())).collect());
        }
        self.since = since;
        self.hello.membership = since.map_or(LogIndex(0), |since| since.index);
        self.members = peers.iter().map(|(id, _)| *id).collect();
        let host = |(id, at): &(ReplicaId, Address)| Some((*id, at.tcp()?.ip()));
        self.hosts = peers.iter().filter_map(host).collect();
        let mut known = std::mem::take(&mut self.dialers);
        for (peer, address) in peers {
            let same = |d: &Dialer| d.peer == peer && d.address == address;
            let dialer = match known.iter().position(same) {
                Some(place) => known.swap_remove(place),
                None => {
                    let late = own < peer;
                    let at = if late { now + LATE } else { Duration::ZERO };
                    Dialer { peer, address, tries: 0, late, at, pause: FIRST_PAUSE }
                }
            };
            self.dialers.push(dialer);
        }
        let is_other = |link: &Link| match (&link.peer, &link.side) {
            (Some(peer), _) => {
                !self.members.contains(peer)
                    && since.is_some_and(|since| link.membership <= since.index)
            }
            (None, Side::Dialed(peer)) => !self.members.contains(peer),
            (None, Side::Accepted) => false,
        };
        let others = self.links.iter().filter(|(_, link)| since.is_some() && is_other(link));
        let others: Vec<usize> = others.map(|(serial, _)| *serial).collect();
        for serial in others {
            self.drop_link(serial, now, events);
        }
    }

    /// From now on a connection is silent after this.
    pub fn silent_after(&mut self, silence: Duration) {
        self.silence = silence;
        self.claims.silent_after(silence);
    }

    /// From now on hellos say this of levels.
    pub const fn say_levels(&mut self, levels: Option<Levels>) {
        self.hello.levels = levels;
    }

    /// A peer's host, if it is on one that can be another.
    #[must_use]
    pub fn host(&self, peer: ReplicaId) -> Option<IpAddr> {
        self.hosts.get(&peer).copied()
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// The poll does not take the socket.
    pub fn register(&mut self, registry: &Registry) -> std::io::Result<()> {
        self.listener.register(registry, Token(self.first_token))
    }

    /// Whether this is the token of the listener or of a connection.
    #[must_use]
    pub const fn owns(&self, token: Token) -> bool {
        token.0 >= self.first_token
    }

    /// The connected peers.
    pub fn connected(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.by_peer.keys().copied()
    }

    /// Dials where it is due, cuts connections without a hello. Answers when to call again.
    pub fn tend(&mut self, registry: &Registry, now: Duration) -> Option<Duration> {
        let strangers: Vec<usize> = self
            .links
            .iter()
            .filter(|(_, l)| l.peer.is_none() && now.saturating_sub(l.since) >= self.patience(l))
            .map(|(serial, _)| *serial)
            .collect();
        for serial in strangers {
            self.close(serial, now);
        }
        for index in 0..self.dialers.len() {
            let Dialer { peer, ref address, at, tries, .. } = self.dialers[index];
            let busy = self.links.values().any(|l| l.side == Side::Dialed(peer));
            if busy || self.by_peer.contains_key(&peer) || at > now {
                continue;
            }
            // Where all hosts got new addresses, only the configuration knows them.
            let other = self.configured.get(&peer).filter(|_| tries % 2 == 1);
            let address = other.unwrap_or(address);
            let connected = transport::connect(address);
            self.dialers[index].tries = tries.wrapping_add(1);
            match connected {
                Ok(stream) => self.add(stream, Side::Dialed(peer), None, registry, now),
                Err(_) => self.pause(peer, now),
            }
        }
        let waiting = self
            .dialers
            .iter()
            .filter(|d| !self.by_peer.contains_key(&d.peer))
            .map(|d| d.at.max(now + FIRST_PAUSE));
        let hello =
            self.links.values().filter(|l| l.peer.is_none()).map(|l| l.since + self.patience(l));
        waiting.chain(hello).min()
    }

    /// An event at one of its own tokens.
    pub fn ready(
        &mut self,
        event: &Event,
        registry: &Registry,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) {
        let token = event.token();
        if token.0 == self.first_token {
            self.accept(registry, now, events);
            return;
        }
        let serial = token.0;
        if event.is_writable()
            && let Some(link) = self.links.get_mut(&serial)
        {
            link.writable = true;
            link.established = true;
        }
        if !self.read(serial, event.is_read_closed() || event.is_error(), now, events) {
            self.drop_link(serial, now, events);
        }
    }

    /// A peer has sent invalid bytes: its connection ends, and is not dialled again at once.
    pub fn distrust(
        &mut self,
        peer: ReplicaId,
        why: &str,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) {
        let Some(serial) = self.by_peer.get(&peer).copied() else { return };
        self.refuse(serial, why, now);
        self.drop_link(serial, now, events);
        if let Some(dialer) = self.dialers.iter_mut().find(|d| d.peer == peer) {
            dialer.at = now + DISTRUST_FOR;
        }
    }

    /// Queues a message; false when the peer is not connected or takes nothing. [`flush`](Self::flush) sends it if it is `due`, or another one.
    pub fn send(&mut self, to: ReplicaId, kind: u8, payload: &[u8], due: bool) -> bool {
        let Some(link) = self.by_peer.get(&to).and_then(|s| self.links.get_mut(s)) else {
            return false;
        };
        if link.out.len() - link.out_start + payload.len() > MAX_QUEUE_BYTES {
            return false;
        }
        frame::encode(&mut link.out, self.cluster, kind, payload);
        link.due |= due;
        true
    }

    /// Whether peers' messages are events from now on. If not, [`hear`](Self::hear) reads them.
    pub fn listen(
        &mut self,
        listens: bool,
        registry: &Registry,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) {
        if self.deaf != listens {
            return;
        }
        self.deaf = !listens;
        let links = self.links.iter_mut();
        let broken = links.filter_map(|(serial, link)| {
            (!link.watch(!listens, registry, *serial)).then_some(*serial)
        });
        for serial in broken.collect::<Vec<_>>() {
            self.drop_link(serial, now, events);
        }
    }

    /// Reads what peers have said meanwhile, if that was no event.
    pub fn hear(&mut self, now: Duration, events: &mut Vec<PeerEvent>) {
        if !self.deaf {
            return;
        }
        let unwatched = self.links.iter().filter(|(_, link)| link.watch == Watch::Ends);
        let (serials, mut sockets): (Vec<usize>, Vec<PollFd<'_>>) = unwatched
            .map(|(serial, link)| (*serial, PollFd::new(link.stream.as_fd(), PollFlags::POLLIN)))
            .unzip();
        // All are asked at once whether there is anything: mostly there is nothing.
        let asked = poll(&mut sockets, PollTimeout::ZERO).is_ok();
        let says = |socket: &PollFd<'_>| !asked || socket.any().unwrap_or(true);
        let all = serials.into_iter().zip(&sockets);
        let ready: Vec<usize> = all.filter(|(_, socket)| says(socket)).map(|one| one.0).collect();
        for serial in ready {
            if !self.read(serial, false, now, events) {
                self.drop_link(serial, now, events);
            }
        }
    }

    /// The longest time of a connection without a hello.
    fn patience(&self, link: &Link) -> Duration {
        match link.side {
            Side::Dialed(_) if !link.established => self.silence.min(HELLO_WITHIN),
            _ => HELLO_WITHIN,
        }
    }

    /// Sends queued bytes, one write a peer; closes silent connections.
    pub fn flush(&mut self, registry: &Registry, now: Duration, events: &mut Vec<PeerEvent>) {
        // After a pause of this node itself, bytes that came meanwhile are not read yet.
        let paused = now.saturating_sub(self.looked) >= self.silence / 2;
        self.looked = now;
        let mut broken = Vec::new();
        for (serial, link) in &mut self.links {
            if paused {
                link.heard = now;
            }
            let silent = link.peer.is_some() && now.saturating_sub(link.heard) >= self.silence;
            if silent {
                tracing::info!(event = "peer_silent", peer = link.peer.map(|peer| peer.0));
            }
            let flushes = link.due || link.peer.is_none();
            if silent
                || flushes && !link.flush(&mut self.bytes_out)
                || !link.watch(self.deaf, registry, *serial)
            {
                broken.push(*serial);
            }
        }
        for serial in broken {
            self.drop_link(serial, now, events);
        }
    }

    fn accept(&mut self, registry: &Registry, now: Duration, events: &mut Vec<PeerEvent>) {
        loop {
            match self.listener.accept() {
                Ok(Some((stream, from))) => {
                    self.make_room(now);
                    let serial = self.next_token;
                    self.add(stream, Side::Accepted, from, registry, now);
                    // A peer has sent its hello already, and is no stranger when the next one comes.
                    if !self.read(serial, false, now, events) {
                        self.drop_link(serial, now, events);
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

    /// Closes the oldest stranger when there are many, first one from a host without a peer. Serials are in the order of age.
    fn make_room(&mut self, now: Duration) {
        let unknown =
            |l: &Link| l.peer.is_none() && l.side == Side::Accepted && !l.sealer.has_proof();
        let strangers = || self.links.iter().filter(|(_, l)| unknown(l));
        if strangers().count() < MAX_STRANGERS {
            return;
        }
        let foreign =
            |l: &Link| l.from.is_some_and(|from| self.hosts.values().all(|host| *host != from));
        let oldest = strangers().find(|(_, l)| foreign(l)).or_else(|| strangers().next());
        if let Some(serial) = oldest.map(|(serial, _)| *serial) {
            self.close(serial, now);
        }
    }

    fn add(
        &mut self,
        mut stream: Box<dyn Stream>,
        side: Side,
        from: Option<IpAddr>,
        registry: &Registry,
        now: Duration,
    ) {
        let serial = self.next_token;
        self.next_token += 1;
        stream.give_up_after(self.silence);
        if stream.register(registry, Token(serial)).is_err() {
            return;
        }
        let dials = matches!(side, Side::Dialed(_));
        let (mut out, mut wire) = (Vec::new(), Vec::new());
        if dials {
            frame::encode_hello(&mut out, self.cluster, &self.hello);
        }
        let sealer = Sealer::new(self.key.as_ref(), self.cluster, dials, &mut wire);
        let decoder = Decoder::new(self.cluster);
        let link = Link { wire, out, ..Link::new(stream, side, from, sealer, decoder, now) };
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
        let mut drained = false;
        loop {
            if !self.take_frames(serial, now, events) {
                return false;
            }
            if self.claims.has(serial) {
                return !closed;
            }
            let Some(link) = self.links.get_mut(&serial).filter(|_| !drained) else { return true };
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
            link.heard = now;
            let Link { sealer, wire, decoder, .. } = link;
            let opened = sealer.open(&self.buffer[..n], wire, &mut |plain| decoder.push(plain));
            if let Err(error) = opened {
                self.refuse(serial, &error.to_string(), now);
                return false;
            }
            // Bytes after a short read cause a new event; an end that came already does not.
            drained = n < self.buffer.len() && !closed;
        }
    }

    /// Takes what was read. False when the connection is over.
    fn take_frames(&mut self, serial: usize, now: Duration, events: &mut Vec<PeerEvent>) -> bool {
        while !self.claims.has(serial)
            && let Some(link) = self.links.get_mut(&serial)
        {
            let frame = match link.decoder.next_frame() {
                Ok(None) => return true,
                Ok(Some(frame)) => frame,
                Err(error) => {
                    self.refuse(serial, &error.to_string(), now);
                    return false;
                }
            };
            if let Some(peer) = link.peer {
                events.push(PeerEvent::Frame(peer, frame.kind, frame.payload.to_vec()));
                continue;
            }
            if matches!(frame.kind, wire::BASE | wire::ADMIN) && link.side == Side::Accepted {
                let (kind, question) = (frame.kind, frame.payload.to_vec());
                self.let_answer(serial, kind, question);
                return true;
            }
            let hello = if frame.kind == frame::KIND_HELLO {
                Hello::decode(frame.payload)
            } else {
                Err(frame::FrameError::Hello)
            };
            if hello.is_ok() {
                self.answer(serial);
            }
            let gone = hello.as_ref().is_ok_and(|h| !self.is_taken(h));
            let judged = hello.map_err(|e| e.to_string()).and_then(|h| self.judge(serial, h));
            match judged {
                Ok(hello) => {
                    if !self.enter(serial, hello, now, events) {
                        return false;
                    }
                }
                Err(why) => {
                    if gone && let Some(since) = self.since.filter(|since| since.index.0 > 0) {
                        self.tell(serial, GONE, &since.gone());
                    }
                    self.refuse(serial, &why, now);
                    return false;
                }
            }
        }
        true
    }

    /// The other side asks instead of taking part, such as one that has no base yet: a thread of its own answers it from here on.
    fn let_answer(&mut self, serial: usize, kind: u8, question: Vec<u8>) {
        let Some(link) = self.links.remove(&serial) else { return };
        let wire = Wire::over(kind, link.stream, link.sealer, link.decoder, self.cluster);
        let answers = match (kind, &self.base, &self.admin) {
            (wire::BASE, Some(base), _) => fetch::serve(base.clone(), wire, question),
            (wire::ADMIN, _, Some(admin)) => relay::serve(admin.clone(), wire, question),
            _ => Ok(()),
        };
        if let Err(error) = answers {
            tracing::warn!(event = "question_not_answered", kind, %error);
        }
    }

    /// The accepting side's hello, to a member of the cluster; sent at once, so that a refused peer can report the reason.
    fn answer(&mut self, serial: usize) {
        if self.links.get(&serial).is_some_and(|link| link.side == Side::Accepted) {
            let (cluster, hello) = (self.cluster, self.hello);
            self.put(serial, |out| frame::encode_hello(out, cluster, &hello));
        }
    }

    /// Sends a message at once, as the connection may end then. A peer connects again if this is lost.
    fn tell(&mut self, serial: usize, kind: u8, payload: &[u8]) {
        let cluster = self.cluster;
        self.put(serial, |out| frame::encode(out, cluster, kind, payload));
    }

    fn put(&mut self, serial: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = self.links.get_mut(&serial) {
            encode(&mut link.out);
            // The event that says that it can be written may not have come. A broken connection is found by the next read.
            link.writable = true;
            let _ = link.flush(&mut self.bytes_out);
        }
    }

    /// A replica that knows of later members than this one may be one of these, and know the leader.
    fn is_taken(&self, hello: &Hello) -> bool {
        let knows_more = |since: Since| hello.membership > since.index;
        self.since.is_none_or(knows_more) || self.members.contains(&hello.replica)
    }

    fn judge(&self, serial: usize, hello: Hello) -> Result<Hello, String> {
        let own = &self.hello;
        let replica = hello.replica;
        if replica == own.replica {
            return Err(format!("replica {replica} is what this node is; each one has its own id"));
        }
        if !self.is_taken(&hello) {
            return Err(format!(
                "replica {replica} is not a member of the cluster: 'skein members add' takes it in; founders have the same `peers` everywhere"
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
                "replica {replica} runs another program ({} instead of {}): the program, its libraries, arguments and environment, and Skein itself, must be the same, as must the place of the server's layer and, on disk, its file system",
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

    /// A replica of the cluster has said who it is. False when the connection is over.
    fn enter(
        &mut self,
        serial: usize,
        hello: Hello,
        now: Duration,
        events: &mut Vec<PeerEvent>,
    ) -> bool {
        let replica = hello.replica;
        let Some(first) = self.by_peer.get(&replica).copied() else {
            self.join(serial, hello, now, events);
            return true;
        };
        let Some(Link { side: Side::Accepted, from, .. }) = self.links.get(&serial) else {
            // Both have connected at the same time, and the other side's connection is taken.
            return false;
        };
        let host = from.map_or(String::new(), |host| format!(" on {host}"));
        match self.claims.make(Claim { serial, hello }, first, now) {
            Judged::Waits(before) => {
                if let Some(before) = before {
                    self.close(before, now);
                }
                true
            }
            Judged::Twin => {
                self.tell(serial, TWIN, &[]);
                let why = format!(
                    "a second node{host} is replica {replica}, too, and the first one stays connected: stop one of the two; each node has its own id and data directory"
                );
                self.refuse(serial, &why, now);
                false
            }
        }
    }

    fn join(&mut self, serial: usize, hello: Hello, now: Duration, events: &mut Vec<PeerEvent>) {
        let peer = hello.replica;
        if let Some(link) = self.links.get_mut(&serial) {
            link.peer = Some(peer);
            link.membership = hello.membership;
            // It may have waited.
            link.heard = now;
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
            let pause = if dialer.late { LATE } else { dialer.pause };
            dialer.at = now + pause;
            dialer.pause = (dialer.pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn drop_link(&mut self, serial: usize, now: Duration, events: &mut Vec<PeerEvent>) {
        let Some(peer) = self.close(serial, now) else { return };
        tracing::info!(event = "peer_lost", peer = peer.0);
        events.push(PeerEvent::Lost(peer));
        let Some(Claim { serial, hello }) = self.claims.free(peer) else { return };
        let stays = match self.judge(serial, hello) {
            Ok(hello) => {
                self.join(serial, hello, now, events);
                self.read(serial, false, now, events)
            }
            Err(why) => {
                self.refuse(serial, &why, now);
                false
            }
        };
        if !stays {
            self.drop_link(serial, now, events);
        }
    }

    /// Closes a connection; answers its peer, if it was that peer's current one.
    fn close(&mut self, serial: usize, now: Duration) -> Option<ReplicaId> {
        let link = self.links.remove(&serial)?;
        self.claims.withdraw(serial);
        let peer = match link.side {
            Side::Dialed(peer) => Some(peer),
            Side::Accepted => link.peer,
        };
        if let Some(peer) = peer {
            self.pause(peer, now);
        }
        let peer = link.peer?;
        (self.by_peer.get(&peer) == Some(&serial)).then(|| {
            self.by_peer.remove(&peer);
            peer
        })
    }
}
