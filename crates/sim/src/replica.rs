//! One node: the real consensus, log, gateway and order mode, put together as a reactor would, over a simulated disk.

use crate::{
    check::Checker,
    options::{Break, Plan},
    server::{RegisterServer, put},
};
use skein_log::{
    Batch, ClusterId, Config, Consensus, Durability, Outgoing, Persist, ProgramHash, Recovered,
    Role, RoleChange, Ticket,
    disk::sim::SimDisk,
    identity::Identity,
    wal::{Wal, WalError, WalOptions},
};
use skein_model::{
    ConnId, EntryBuilder, EntryRef, LogIndex, OutFrame, Record, ReplicaId, SockAddr, WallNs,
    entry::Start,
};
use skein_node::{
    gateway::{Gateway, Limits, Socket},
    order::{
        ahead::{Ahead, Lost},
        clocks::Clocks,
        digest::OutputDigest,
        feed::{Feed, Step, is_for_server},
        lead::Lead,
        virtual_time::{VirtualTime, WallClocks},
    },
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{self, IoSlice},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

const CLUSTER: ClusterId = ClusterId(0x5eed);
const PROGRAM: ProgramHash = ProgramHash([1; 32]);
/// Small, so that every run has several segments.
const SEGMENT_BYTES: u64 = 8 << 10;

/// The two ends of a client's connection.
#[derive(Debug, Default)]
pub struct Wire {
    /// From the client, not yet read.
    pub inbound: VecDeque<u8>,
    /// The client closed its direction.
    pub ended: bool,
    /// To the client, not yet under way.
    pub outbound: Vec<u8>,
    /// The node closed its direction.
    pub shut: bool,
    /// Either side reset it.
    pub reset: bool,
    /// What the next writes take before they would block.
    pub room: usize,
}

/// The node's end.
#[derive(Clone, Debug)]
pub struct WireEnd(pub Rc<RefCell<Wire>>);

impl Socket for WireEnd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        if wire.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if wire.inbound.is_empty() && !wire.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(wire.inbound.len());
        for (to, from) in buffer.iter_mut().zip(wire.inbound.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        if wire.reset {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut count = 0;
        for byte in slices.iter().flat_map(|slice| slice.iter()).take(wire.room) {
            wire.outbound.push(*byte);
            count += 1;
        }
        wire.room -= count;
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn shutdown_write(&mut self) {
        self.0.borrow_mut().shut = true;
    }

    fn reset(&mut self) {
        self.0.borrow_mut().reset = true;
    }
}

/// A client's connection as the node sees it.
pub struct Link {
    pub client: usize,
    pub epoch: u64,
    pub wire: Rc<RefCell<Wire>>,
    /// Known once it is accepted.
    pub conn: Option<ConnId>,
}

/// What a turn needs from the world and gives to it.
pub struct Turn<'a> {
    pub now: Duration,
    /// What a wall clock shows that is right.
    pub true_time: WallNs,
    pub checker: &'a mut Checker,
    pub broken: Option<Break>,
    pub messages: Vec<Outgoing>,
    pub roles: Vec<RoleChange>,
    pub violation: Option<String>,
    /// Servers that began anew as they had executed what was not committed.
    pub astray: usize,
}

impl Turn<'_> {
    fn note(&mut self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(violation);
        }
    }
}

/// What a process holds and loses with its life.
pub struct Process {
    pub consensus: Consensus,
    /// Of a replica with a log on disk.
    wal: Option<Wal>,
    _identity: Option<Identity>,
    /// To be appended when the disk is idle.
    to_write: Vec<Persist>,
    /// Being synced.
    pub writing: Option<Ticket>,
    pub lead: Option<Lead>,
    gateway: Gateway<WireEnd>,
    feed: Feed,
    /// Its leader's server executes what is proposed.
    execute_ahead: bool,
    ahead: Ahead,
    started: bool,
    time: VirtualTime,
    pub clocks: Clocks,
    digest: OutputDigest,
    pub server: RegisterServer,
    ring: Vec<u8>,
    /// An entry that the log was too busy for.
    unproposed: Option<Vec<u8>>,
    pub links: Vec<Link>,
    /// The server takes no entries for now.
    pub lagging: bool,
}

/// A machine, with or without a running node.
pub struct Replica {
    pub id: ReplicaId,
    /// Grows with each start: what was meant for an earlier life is not delivered.
    pub life: u64,
    pub incarnation: u64,
    pub disk: SimDisk,
    /// Somebody asked for a log to be begun, as this incarnation.
    pub begin: Option<u64>,
    pub process: Option<Process>,
    pub stopped: bool,
    /// By how much its wall clock is off the true time.
    pub clock_offset_us: i64,
}

impl Process {
    pub fn start(
        id: ReplicaId,
        disk: &SimDisk,
        begin: Option<u64>,
        plan: &Plan,
        broken: Option<Break>,
        seed: u64,
    ) -> Result<(Self, u64), WalError> {
        let voters = (1..=plan.replicas).map(ReplicaId).collect();
        let mut config = Config {
            durability: plan.durability,
            seed,
            recent_bytes: 300,
            max_message_bytes: 2000,
            eager_commit: plan.eager_commit,
            ..Config::new(id, voters)
        };
        let mut process_wal = None;
        let incarnation;
        let mut identity = None;
        let consensus = match plan.durability {
            Durability::Fsync => {
                let options = WalOptions {
                    segment_bytes: SEGMENT_BYTES,
                    tail_bytes: 500,
                    incarnation: begin.unwrap_or_default(),
                    ..WalOptions::new(CLUSTER, PROGRAM)
                };
                let opened = match begin {
                    Some(_) => Wal::create(Arc::new(disk.clone()), options)?,
                    None => Wal::open(Arc::new(disk.clone()), options)?,
                };
                let reader = Box::new(opened.wal.reader());
                process_wal = Some(opened.wal);
                incarnation = opened.incarnation;
                config.incarnation = incarnation;
                Consensus::new(config, opened.recovered, Some(reader))
            }
            Durability::Memory => {
                let taken = match begin {
                    Some(incarnation) => Identity::create(disk, CLUSTER, PROGRAM, incarnation)?,
                    None => Identity::open(disk, CLUSTER, PROGRAM)?,
                };
                config.incarnation = match broken {
                    Some(Break::ForgetIncarnation) => 0,
                    _ => taken.incarnation(),
                };
                incarnation = taken.incarnation();
                identity = Some(taken);
                Consensus::new(config, Recovered::default(), None)
            }
        };
        let process = Self {
            consensus: consensus.expect("the configuration is sound"),
            wal: process_wal,
            _identity: identity,
            to_write: Vec::new(),
            writing: None,
            lead: None,
            gateway: Gateway::new(Limits { connections: 100, memory_bytes: 1 << 20 }),
            feed: Feed::default(),
            execute_ahead: plan.execute_ahead,
            ahead: Ahead::default(),
            started: false,
            time: VirtualTime::new(),
            clocks: Clocks::new(id, plan.replicas as usize),
            digest: OutputDigest::new(None),
            server: RegisterServer::default(),
            ring: Vec::new(),
            unproposed: None,
            links: Vec::new(),
            lagging: false,
        };
        Ok((process, incarnation))
    }

    /// True if clients are served.
    pub fn serves(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::serves)
    }

    /// The next entry that the server gets.
    pub fn next_entry(&self) -> LogIndex {
        self.feed.next()
    }

    /// What a reactor does when anything happened: until nothing is left to do.
    pub fn turn(&mut self, wall: WallNs, turn: &mut Turn<'_>) {
        while turn.violation.is_none() {
            let mut progress = false;
            while let Some(batch) = self.consensus.take_ready() {
                progress = true;
                self.batch(batch, turn);
            }
            self.refill(turn);
            progress |= self.lead_turn(wall, turn);
            if !progress {
                break;
            }
        }
        self.gateway.expire(turn.now);
    }

    fn batch(&mut self, batch: Batch, turn: &mut Turn<'_>) {
        if let Some(change) = batch.role {
            self.role(change, turn);
        }
        turn.messages.extend(batch.messages);
        self.to_write.extend(batch.persist);
        let own = self.consensus.status().id;
        for entry in &batch.committed {
            let checked = turn.checker.committed(own, entry.index, entry.term, &entry.payload);
            turn.note(checked);
            if let Ok(parsed) = EntryRef::parse(&entry.payload) {
                self.time.observe(parsed.wall(), turn.now);
                let checked = turn.checker.stamped(parsed.wall(), turn.true_time);
                turn.note(checked);
            }
            match self.ahead.committed(entry.index, entry.term) {
                Ok(true) => {}
                Ok(false) if self.lagging => {}
                Ok(false) => self.offer(entry.index, &entry.payload, turn),
                Err(lost) => self.went_astray(lost, turn),
            }
        }
        if let Err(lost) = self.ahead.all_committed(batch.applied) {
            self.went_astray(lost, turn);
        }
        self.take_output(turn);
        if let Some(lead) = &mut self.lead {
            let _ = lead.committed(batch.applied);
        }
    }

    fn role(&mut self, change: RoleChange, turn: &mut Turn<'_>) {
        turn.roles.push(change);
        let status = self.consensus.status();
        let led = self.lead.as_ref().map(Lead::term);
        if change.role == Role::Leader {
            let checked = turn.checker.leads(status.id, change.term);
            turn.note(checked);
            if led != Some(change.term) {
                self.gateway.begin_term(change.term);
                self.unproposed = None;
                self.time.begin_term();
                self.lead = Some(Lead::new(change.term, status.last_index, self.started));
            }
        } else if led.is_some() {
            self.lead = None;
            self.unproposed = None;
            self.gateway.reset_all();
        }
    }

    /// Gives the server what it has not got, out of the log.
    fn refill(&mut self, turn: &mut Turn<'_>) {
        while !self.lagging
            && turn.violation.is_none()
            && self.feed.next() <= self.consensus.applied()
        {
            let next = self.feed.next();
            let chunk = match self.consensus.entries(next, 2000) {
                Ok(chunk) => chunk,
                Err(error) => {
                    turn.violation = Some(format!("the log cannot be read back: {error}"));
                    return;
                }
            };
            assert!(chunk.next > next, "committed entries are there");
            for entry in &chunk.entries {
                let own = self.consensus.status().id;
                let checked = turn.checker.committed(own, entry.index, entry.term, &entry.payload);
                turn.note(checked);
                self.feed.skip_to(entry.index);
                self.offer(entry.index, &entry.payload, turn);
            }
            self.feed.skip_to(chunk.next);
        }
    }

    fn offer(&mut self, index: LogIndex, payload: &[u8], turn: &mut Turn<'_>) {
        let entry = match EntryRef::parse(payload) {
            Ok(entry) => entry,
            Err(error) => {
                turn.violation = Some(format!("entry {index} is damaged: {error}"));
                return;
            }
        };
        if self.feed.step(index, Some(&entry)) != Step::Give {
            return;
        }
        self.execute(index, &entry);
        self.take_output(turn);
        if let Some(lead) = &mut self.lead {
            let _ = lead.applied(index);
        }
        if let Some(value) = self.server.twice {
            turn.violation.get_or_insert(format!("{value} was written twice"));
        }
    }

    fn execute(&mut self, index: LogIndex, entry: &EntryRef<'_>) {
        self.feed.gave(index);
        self.started |= entry.records().any(|record| matches!(record, Record::Start(_)));
        self.server.execute(index, entry, &mut self.ring);
    }

    /// The leader's server executes what is proposed, if it has executed all before it.
    fn go_ahead(&mut self, index: LogIndex, before: LogIndex, payload: &[u8]) {
        if !self.execute_ahead
            || self.lagging
            || !self.serves()
            || !self.feed.has_all(self.consensus.applied(), before)
        {
            return;
        }
        let entry = EntryRef::parse(payload).expect("just made");
        assert!(is_for_server(&entry), "only inputs are proposed here");
        let behind = self.feed.given();
        self.feed.skip_to(index);
        self.execute(index, &entry);
        self.ahead.went(index, self.consensus.term(), behind);
    }

    /// The server executed what was not committed: it begins anew.
    fn went_astray(&mut self, _: Lost, turn: &mut Turn<'_>) {
        turn.astray += 1;
        self.ahead.forget();
        if turn.broken != Some(Break::KeepAstray) {
            self.server = RegisterServer::default();
            self.feed = Feed::default();
            self.digest = OutputDigest::new(None);
            self.ring.clear();
        }
    }

    /// Reads the output ring as the node does: up to the first entry that is not committed.
    fn take_output(&mut self, turn: &mut Turn<'_>) {
        let committed = match turn.broken {
            Some(Break::ReleaseAhead) => LogIndex(u64::MAX),
            _ => self.consensus.applied(),
        };
        let mut ring = std::mem::take(&mut self.ring);
        let mut at = 0;
        while let Some((frame, len)) =
            OutFrame::parse(&ring[at..]).expect("the server writes frames")
        {
            if matches!(frame, OutFrame::Admitted { index, .. } if index > committed) {
                break;
            }
            self.digest.frame(&ring[at..at + len], &frame);
            let early = turn.broken == Some(Break::ReplyBeforeCommit)
                && matches!(frame, OutFrame::Send { bytes: b"OK\n", .. });
            if self.lead.is_some() && !early {
                self.gateway.frame(&frame, at + 16).expect("the server keeps to its window");
            }
            at += len;
        }
        self.gateway.flush(&ring, turn.now).expect("the server keeps to its window");
        self.digest.settle();
        ring.drain(..at);
        self.ring = ring;
        let own = self.consensus.status().id;
        if let Some((index, digest)) = self.digest.latest() {
            let checked = turn.checker.digest(own, index, digest);
            turn.note(checked);
        }
    }

    /// What a leader proposes. True if something was.
    fn lead_turn(&mut self, wall: WallNs, turn: &mut Turn<'_>) -> bool {
        let Some(lead) = &self.lead else { return false };
        let mut entry = EntryBuilder::new(Vec::new());
        let announces = lead.must_announce();
        if announces {
            if !self.started {
                entry.push(Record::Start(Start { seed: [3; 32], quantum: 16, nclock: 64 }));
            }
            entry.push(Record::TermStart);
        } else if lead.serves() && self.unproposed.is_none() {
            for link in self.links.iter_mut().filter(|link| link.conn.is_none()) {
                let socket = WireEnd(link.wire.clone());
                let (peer, local) =
                    (SockAddr::v4([10, 0, 0, 1], 40_000), SockAddr::v4([10, 0, 0, 9], 1));
                link.conn = self.gateway.open(socket, peer, local, &mut entry).ok();
                if let Some(conn) = link.conn {
                    self.gateway.readable(conn, false, turn.now);
                }
            }
            self.gateway.collect(&mut entry);
        }
        let (term, before) = (lead.term(), lead.last_proposed());
        if !entry.is_empty() {
            let trusts_itself = turn.broken == Some(Break::TrustOwnClock);
            let clocks = || match trusts_itself {
                true => WallClocks { agreed: Some(wall), earliest: wall },
                false => self.clocks.read(wall, turn.now),
            };
            let stamp = self.time.stamp(turn.now, clocks);
            self.unproposed = Some(entry.finish(stamp, term));
        }
        let Some(payload) = self.unproposed.take() else { return false };
        match self.consensus.propose(payload.clone()) {
            Ok(index) => {
                self.go_ahead(index, before, &payload);
                if turn.broken == Some(Break::ReleaseAhead) {
                    self.take_output(turn);
                }
                let lead = self.lead.as_mut().expect("it leads");
                lead.proposed(index, payload.len(), turn.now);
                if announces {
                    lead.announced(index);
                } else if turn.broken == Some(Break::ReplyBeforeCommit) {
                    self.reply_early(&payload, turn);
                }
                true
            }
            Err(_) => {
                self.unproposed = (!announces).then_some(payload);
                false
            }
        }
    }

    /// The broken rule: writes are answered before they are committed.
    fn reply_early(&mut self, payload: &[u8], turn: &mut Turn<'_>) {
        let entry = EntryRef::parse(payload).expect("just made");
        let mut ring = Vec::new();
        for record in entry.records() {
            if let Record::Data { conn, bytes: [b'S', ..] } = record {
                put(&mut ring, &OutFrame::Send { conn, bytes: b"OK\n" });
            }
        }
        let mut at = 0;
        while let Some((frame, len)) = OutFrame::parse(&ring[at..]).expect("just made") {
            let _ = self.gateway.frame(&frame, at + 16);
            at += len;
        }
        let _ = self.gateway.flush(&ring, turn.now);
    }

    /// The kernel says that something came from a client, or that it closed.
    pub fn client_spoke(&mut self, wire: &Rc<RefCell<Wire>>, now: Duration) {
        let link = self.links.iter().find(|link| Rc::ptr_eq(&link.wire, wire));
        if let Some(conn) = link.and_then(|link| link.conn) {
            let closed = wire.borrow().ended || wire.borrow().reset;
            self.gateway.readable(conn, closed, now);
        }
    }

    /// The kernel says that a client took what was sent.
    pub fn client_took(&mut self, wire: &Rc<RefCell<Wire>>, now: Duration) {
        let link = self.links.iter().find(|link| Rc::ptr_eq(&link.wire, wire));
        if let Some(conn) = link.and_then(|link| link.conn) {
            self.gateway.writable(conn, now);
        }
    }

    /// Hands the disk what gathered, if it is idle. True if a sync began.
    pub fn begin_write(&mut self) -> Result<bool, WalError> {
        let Some(wal) = &mut self.wal else { return Ok(false) };
        if self.writing.is_some() || self.to_write.is_empty() {
            return Ok(false);
        }
        for persist in self.to_write.drain(..) {
            wal.append(&persist)?;
            self.writing = Some(persist.ticket);
        }
        Ok(true)
    }

    /// The sync is over.
    pub fn end_write(&mut self) -> Result<(), WalError> {
        if let (Some(wal), Some(ticket)) = (&mut self.wal, self.writing.take()) {
            wal.sync()?;
            self.consensus.persisted(ticket);
        }
        Ok(())
    }

    /// The log's witness is written now and then.
    pub fn witness(&mut self) -> Result<(), WalError> {
        self.wal.as_mut().map_or(Ok(()), Wal::witness)
    }

    /// The broken rule: durable before it is.
    pub fn acknowledge_unsynced(&mut self) {
        if let Some(ticket) = self.writing.take() {
            self.consensus.persisted(ticket);
        }
    }
}
