//! A replica's environment in a simulation: it notes the replica's requests, and the [world](crate::world) carries them out.

use crate::outside;
use crate::scripted::Scripted;
use crate::server::{PORT, RegisterServer};
use crate::wire::{Wire, WireEnd};
use bytes::Bytes;
use skein_arena::Sizes;
use skein_log::disk::sim::SimRng;
use skein_log::frame::{Hello, Levels};
use skein_log::identity::Identity;
use skein_log::{LogEntry, OldEntries, Persist};
use skein_model::{ConnId, EntryBuilder, LogIndex, Record, ReplicaId, SockAddr, Term, WallNs};
use skein_replica::ReplicaError;
use skein_replica::config::Noted;
use skein_replica::environment::{
    Clock, Image, ImageFile, Images, Kept, Observer, Outside, PeerEvent, Places, Servers, Since,
    Storage, Transport,
};
use skein_replica::server::{Link, ServerState};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The number of messages that fit on a new connection.
const FITS: u64 = 10;

/// A request about the server's process.
pub enum Wish {
    /// An arena for this generation.
    Arena(Sizes, u64),
    /// A process in it, which exists already and has not run.
    Start(Box<Scripted>),
    /// Its end.
    Kill,
    /// An image of it.
    Prepare,
    Take(Box<ServerState>),
    /// The image of this entry counts.
    Confirm(LogIndex),
    /// The image of this entry is read and compared.
    Check(LogIndex),
    /// The image of this entry goes.
    Remove(LogIndex),
    /// Another replica asks for bytes of an image, from this position on.
    Read(ReplicaId, LogIndex, u64),
    /// Bytes of an image came, from this position on.
    Receive(ImageFile, u64, Vec<u8>),
}

/// A message for a peer, over the connection that there was then.
pub struct Said {
    /// The receiver.
    pub to: ReplicaId,
    /// The connection.
    pub connection: u64,
    /// The kind, as [`skein_log::frame`] numbers it.
    pub kind: u8,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// See the [module](self).
pub struct Around {
    /// Time since it began.
    pub elapsed: Duration,
    /// The reading of its wall clock.
    pub wall: WallNs,
    /// Its random numbers.
    pub rng: SimRng,
    /// The timer of its servers, in ns.
    pub timer_ns: u64,
    /// The expirations at which it says something.
    pub timer_speaks: u64,

    /// Arrived events of peers.
    pub heard: Vec<PeerEvent>,
    /// After how long a connection is silent, if the replica has said it.
    pub silence: Option<Duration>,
    /// Connected peers, with their connections.
    pub peers: BTreeMap<ReplicaId, u64>,
    /// The share of messages that find no room, in percent.
    pub refuses: u64,
    /// The number of messages that a connection has taken.
    queued: BTreeMap<u64, u64>,
    /// Messages on their way.
    pub said: Vec<Said>,
    /// Messages that leave with the next one to the same peer.
    later: BTreeMap<ReplicaId, Vec<Said>>,
    /// The replicas that it knows, and those whose connections it takes: all, or those of a change of the members.
    pub known: BTreeSet<ReplicaId>,
    pub since: Option<Since>,
    /// What it has noted of the members, if it did.
    pub noted: Option<Noted>,
    /// What is on disk of a log in memory.
    pub identity: Option<Identity>,
    /// The newest change of the members that each peer knew when it was connected.
    pub claims: BTreeMap<ReplicaId, LogIndex>,
    /// What its hellos say of levels.
    pub levels: Option<Levels>,
    /// Connections with replicas that are no members any more, which end.
    pub parted: Vec<(ReplicaId, u64)>,
    /// Peers that sent invalid bytes, with the bytes.
    pub distrusted: Vec<(ReplicaId, String)>,

    /// Whether there is a log on disk.
    pub durable: bool,
    /// Waiting writes.
    pub to_write: Vec<Persist>,
    /// There is no room on the disk.
    pub full: bool,
    /// Pending reads for followers.
    pub wanted: Vec<OldEntries>,
    /// Kept texts.
    pub kept: BTreeSet<String>,

    /// The server's listening port, while this replica accepts clients.
    pub open: bool,
    /// Clients that wait to be accepted.
    pub waiting: VecDeque<Rc<RefCell<Wire>>>,
    /// Connections with possible events before they were watched, and whether they ended.
    pub ready: Vec<(ConnId, bool)>,
    /// All connections whose socket the gateway may have.
    held: Vec<Rc<RefCell<Wire>>>,
    /// Begun connections to hosts outside: number, address, and the host's end.
    pub calls: Vec<(ConnId, SockAddr, Rc<RefCell<Wire>>)>,
    /// The server waits for datagrams, and this replica reads them.
    pub hears: bool,
    /// Senders of datagrams that arrived and are not read.
    pub datagrams: VecDeque<SockAddr>,
    /// Datagrams that cannot arrive: source and destination.
    undeliverable: VecDeque<(SockAddr, SockAddr)>,
    /// Datagrams that left: destination and bytes.
    pub sent: Vec<(SockAddr, Vec<u8>)>,

    /// How many images were to be prepared: not all are.
    prepared: u64,
    /// Requests about the server and its images.
    pub wishes: Vec<Wish>,
    /// The images that are on the disk when it begins,
    pub images: Vec<Image>,
    /// and the servers in them.
    pub imaged: BTreeMap<LogIndex, RegisterServer>,

    /// Committed entries: index, term and payload.
    pub committed: Vec<(LogIndex, Term, Bytes)>,
    /// Terms in which it leads.
    pub led: Vec<Term>,
}

impl Around {
    /// Nothing has happened.
    pub fn new(rng: SimRng, timer: (u64, u64), durable: bool, refuses: u64) -> Self {
        let (timer_ns, timer_speaks) = timer;
        Self {
            elapsed: Duration::ZERO,
            wall: WallNs(0),
            rng,
            timer_ns,
            timer_speaks,
            heard: Vec::new(),
            silence: None,
            peers: BTreeMap::new(),
            refuses,
            queued: BTreeMap::new(),
            said: Vec::new(),
            later: BTreeMap::new(),
            known: BTreeSet::new(),
            since: None,
            noted: None,
            identity: None,
            claims: BTreeMap::new(),
            levels: None,
            parted: Vec::new(),
            distrusted: Vec::new(),
            durable,
            to_write: Vec::new(),
            full: false,
            wanted: Vec::new(),
            kept: BTreeSet::new(),
            open: false,
            waiting: VecDeque::new(),
            ready: Vec::new(),
            held: Vec::new(),
            calls: Vec::new(),
            hears: false,
            datagrams: VecDeque::new(),
            undeliverable: VecDeque::new(),
            sent: Vec::new(),
            prepared: 0,
            wishes: Vec::new(),
            images: Vec::new(),
            imaged: BTreeMap::new(),
            committed: Vec::new(),
            led: Vec::new(),
        }
    }
}

impl Around {
    /// Whether it takes a connection with this replica.
    pub fn takes(&self, hello: &Hello) -> bool {
        let knows_more = |since: Since| hello.membership > since.index;
        self.since.is_none_or(knows_more) || self.known.contains(&hello.replica)
    }
}

impl Clock for Around {
    fn elapsed(&self) -> Duration {
        self.elapsed
    }

    fn wall(&self) -> WallNs {
        self.wall
    }

    fn steady(&self) -> Duration {
        self.elapsed
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for word in seed.chunks_exact_mut(8) {
            word.copy_from_slice(&self.rng.next_u64().to_le_bytes());
        }
        seed
    }
}

impl Transport for Around {
    fn heard(&mut self) -> &mut Vec<PeerEvent> {
        &mut self.heard
    }

    fn connected(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.peers.keys().copied()
    }

    fn send(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool {
        let Some(&connection) = self.peers.get(&to) else { return false };
        // A queue is never full at once.
        let queued = self.queued.entry(connection).or_default();
        *queued += 1;
        if *queued > FITS && self.rng.chance(self.refuses) {
            return false;
        }
        self.said.append(self.later.entry(to).or_default());
        self.said.push(Said { to, connection, kind, payload: payload.to_vec() });
        true
    }

    fn send_later(&mut self, to: ReplicaId, kind: u8, payload: &[u8]) -> bool {
        let Some(&connection) = self.peers.get(&to) else { return false };
        let said = Said { to, connection, kind, payload: payload.to_vec() };
        self.later.entry(to).or_default().push(said);
        true
    }

    fn flush(&mut self, _now: Duration) {}

    fn distrust(&mut self, peer: ReplicaId, why: &str, _now: Duration) {
        if self.peers.remove(&peer).is_some() {
            self.heard.push(PeerEvent::Lost(peer));
        }
        self.distrusted.push((peer, why.to_owned()));
    }

    fn silent_after(&mut self, silence: Duration) {
        self.silence = Some(silence);
    }

    fn set_peers(&mut self, peers: Vec<(ReplicaId, String)>, since: Option<Since>, _now: Duration) {
        if let Some(identity) = self.identity.as_mut().filter(|_| !peers.is_empty()) {
            identity.meets_others().expect("only a log on disk meets a disk that fails");
        }
        self.known = peers.iter().map(|(id, _)| *id).collect();
        if let Some(since) = since {
            self.noted = Some(Noted { member_at: Some(since.index), others: peers });
        }
        self.since = since;
        let Self { known, peers, heard, parted, claims, .. } = self;
        if let Some(since) = since {
            let ends = |id: &ReplicaId| {
                !known.contains(id) && claims.get(id).is_none_or(|claim| *claim <= since.index)
            };
            for (peer, connection) in peers.extract_if(.., |id, _| ends(id)) {
                heard.push(PeerEvent::Lost(peer));
                parted.push((peer, connection));
            }
        }
    }

    fn say_levels(&mut self, levels: Option<Levels>) {
        self.levels = levels;
    }

    fn host(&self, _peer: ReplicaId) -> Option<IpAddr> {
        None
    }

    fn traffic(&self) -> (u64, u64) {
        (0, 0)
    }
}

impl Storage for Around {
    fn has_log(&self) -> bool {
        self.durable
    }

    fn append(&mut self, persist: Persist) {
        self.to_write.push(persist);
    }

    fn is_full(&self) -> bool {
        self.full
    }

    fn read_old(&mut self, wanted: OldEntries) -> Result<(), ReplicaError> {
        self.wanted.push(wanted);
        Ok(())
    }

    fn note_answered(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_answer_noted(&self) -> bool {
        true
    }

    fn begin_answering(&mut self, _now: Duration) -> bool {
        true
    }

    fn look_at_answering(&mut self, _now: Duration) -> io::Result<()> {
        Ok(())
    }

    fn answering_wake(&self, _now: Duration) -> Option<Duration> {
        None
    }

    fn answering_since(&self) -> Option<Duration> {
        None
    }

    fn keep(&mut self, name: &str, _text: impl FnOnce() -> String) -> Kept {
        if self.kept.insert(name.to_owned()) { Kept::At(PathBuf::from(name)) } else { Kept::Before }
    }
}

impl Outside for Around {
    type Socket = WireEnd;

    fn publish(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        receiving: &BTreeSet<SockAddr>,
        serves: bool,
    ) -> Result<(), ReplicaError> {
        self.open = serves && !listening.is_empty();
        self.hears = serves && !receiving.is_empty();
        if !self.hears {
            self.datagrams.clear();
            self.undeliverable.clear();
        }
        Ok(())
    }

    fn places(&self) -> Vec<(u16, SocketAddr)> {
        Vec::new()
    }

    fn addresses(&self) -> Vec<String> {
        Vec::new()
    }

    fn may_accept(&self) -> bool {
        self.open && !self.waiting.is_empty()
    }

    fn client_waits(&mut self) -> bool {
        self.may_accept()
    }

    fn accept(&mut self) -> Option<(WireEnd, SockAddr, SockAddr)> {
        if !self.open {
            return None;
        }
        let wire = self.waiting.pop_front()?;
        self.held.retain(|held| !held.borrow().gone);
        let is_open = |held: &&Rc<RefCell<Wire>>| !held.borrow().shut;
        wire.borrow_mut().others = self.held.iter().filter(is_open).count();
        self.held.push(wire.clone());
        let (peer, local) = (SockAddr::v4([10, 0, 0, 1], 40_000), SockAddr::v4([10, 0, 0, 9], 1));
        Some((WireEnd(wire), peer, local))
    }

    fn watch(&mut self, id: ConnId, socket: &mut WireEnd) -> io::Result<()> {
        let mut wire = socket.0.borrow_mut();
        wire.conn = Some(id);
        self.ready.push((id, wire.ended || wire.reset));
        Ok(())
    }

    fn connect(&mut self, id: ConnId, to: SockAddr) -> io::Result<WireEnd> {
        let wire = Rc::new(RefCell::new(Wire { room: usize::MAX, ..Wire::default() }));
        wire.borrow_mut().conn = Some(id);
        self.calls.push((id, to, wire.clone()));
        self.held.push(wire.clone());
        outside::refuses_at_once(to).map_or(Ok(WireEnd(wire)), Err)
    }

    fn forward(
        &mut self,
        _leader: Option<(ReplicaId, Term)>,
        _to: Option<&Places>,
        _now: Duration,
    ) {
    }

    fn has_datagrams(&self) -> bool {
        self.hears && !(self.datagrams.is_empty() && self.undeliverable.is_empty())
    }

    fn collect_datagrams(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        let errno = outside::REFUSED;
        for (local, peer) in self.undeliverable.drain(..) {
            entry.push(Record::DatagramFailed { local, peer, errno });
        }
        let local = SockAddr::v4([10, 0, 0, 9], PORT);
        for peer in self.datagrams.drain(..) {
            entry.push(Record::Datagram { local, peer, bytes: b"?" });
        }
    }

    fn hears_anybody(&self, _local: SockAddr) -> bool {
        true
    }

    fn send_datagram(&mut self, _local: SockAddr, peer: SockAddr, bytes: &[u8]) -> io::Result<()> {
        self.sent.push((peer, bytes.to_vec()));
        if peer.port == outside::NOBODY {
            return Err(io::Error::from_raw_os_error(outside::REFUSED.into()));
        }
        Ok(())
    }

    fn datagram_failed(&mut self, local: SockAddr, peer: SockAddr, _error: &io::Error) {
        self.undeliverable.push_back((local, peer));
    }

    fn close_datagrams(&mut self, _local: SockAddr) {}
}

impl Servers for Around {
    fn make_arena(&mut self, sizes: Sizes, generation: u64) {
        self.wishes.push(Wish::Arena(sizes, generation));
    }

    fn start(&mut self, link: &Link, from: Option<LogIndex>) -> Result<(), ReplicaError> {
        let server = match from {
            None => {
                Scripted::start(link, RegisterServer::new(self.timer_ns, self.timer_speaks), None)
            }
            Some(index) => {
                let program = self.imaged.get(&index).expect("an image that is there").clone();
                // On the files that another one has left.
                let begins = link.edition.since > index.0;
                let program =
                    if begins { program.of_edition(&link.edition.about) } else { program };
                let mut server = Scripted::start(link, program, (!begins).then_some(index));
                if begins {
                    server.begins_on = index;
                }
                server
            }
        };
        self.wishes.push(Wish::Start(Box::new(server)));
        Ok(())
    }

    fn kill(&mut self) {
        self.wishes.push(Wish::Kill);
    }

    fn finish(&mut self) {
        self.wishes.push(Wish::Kill);
    }

    fn retire(&mut self, link: Link) {
        drop(link);
    }

    fn describe(&self, server: u32, _thread: u32, address: u64) -> (u32, String) {
        (server, format!("{address:#x}"))
    }

    fn may_share_core(&mut self) -> bool {
        false
    }

    fn bind_to_core(&mut self) -> Option<u32> {
        None
    }

    fn unbind_from_core(&mut self) {}
}

impl Images for Around {
    const PART_BYTES: u64 = 100;

    fn images_at_start(&mut self) -> Vec<Image> {
        std::mem::take(&mut self.images)
    }

    fn prepare_image(&mut self, _server: &Link) -> bool {
        self.prepared += 1;
        let prepares = !self.prepared.is_multiple_of(4);
        if prepares {
            self.wishes.push(Wish::Prepare);
        }
        prepares
    }

    fn hurry_image(&mut self) {}

    fn take_image(&mut self, _server: &Link, state: ServerState) {
        self.wishes.push(Wish::Take(Box::new(state)));
    }

    fn confirm_image(&mut self, index: LogIndex) {
        self.wishes.push(Wish::Confirm(index));
    }

    fn check_image(&mut self, index: LogIndex) {
        self.wishes.push(Wish::Check(index));
    }

    fn remove_image(&mut self, index: LogIndex, _damaged: bool) {
        self.wishes.push(Wish::Remove(index));
    }

    fn read_image(&mut self, to: ReplicaId, index: LogIndex, from: u64) {
        self.wishes.push(Wish::Read(to, index, from));
    }

    fn receive_image(&mut self, file: ImageFile, from: u64, bytes: Vec<u8>) {
        self.wishes.push(Wish::Receive(file, from, bytes));
    }
}

impl Observer for Around {
    fn committed(&mut self, entry: &LogEntry) {
        self.committed.push((entry.index, entry.term, entry.payload.clone()));
    }

    fn leads(&mut self, term: Term) {
        self.led.push(term);
    }
}
