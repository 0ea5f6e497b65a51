//! The one latency-critical thread of a node: clients, consensus, peers and the arena, in one event loop.
//!
//! One turn of the loop, from a wake-up to the next sleep:
//!
//! 1. what the server sent for committed entries goes to the clients (`serve.rs`, [`crate::gateway`]);
//! 2. what clients sent becomes one entry, is proposed, and put into the input ring (`agree.rs`);
//! 3. what consensus wants done is done: messages, the write-ahead log, on followers committed entries into the input ring;
//! 4. the peers' queues are written, once each; the server is woken, once.
//!
//! So a cluster of one replica with its log in memory takes an input from the socket to the server in one turn, without
//! another thread's help.
//!
//! Invariants: what a server sends for an entry leaves only after the entry's commit, and only a leader's server gets an
//! entry before that ([`crate::order::ahead`]); only a leader whose server has executed its own `TermStart` accepts or
//! reads clients; the loop never waits for a process or a peer, nor for a disk for long (`relief.rs`).
//!
//! Threads: other threads speak to it through [`Inbox`] and a waker. Crash: the server dies with the node; the log's
//! promises are on disk (or in the other replicas' memory); clients see resets.

mod agree;
mod ahead;
mod clients;
mod compare;
mod datagrams;
mod dispute;
mod forwarding;
mod health;
mod inputs;
mod lifecycle;
mod old;
mod outgoing;
mod peers;
mod ports;
mod publish;
mod pulse;
mod rebuilds;
mod relief;
mod serve;
mod snapshot;
mod sources;
mod spin;
mod standstill;

use crate::begin::Answered;
use crate::config::{DurabilityMode, NodeConfig};
use crate::error::{ExitReason, NodeError};
use crate::forward::Forward;
use crate::gateway::{Gateway, Limits};
use crate::metrics::Metrics;
use crate::order::admission::Admission;
use crate::order::gather::{Cost, Gather};
use crate::order::lead::Lead;
use crate::order::leisure::Leisure;
use crate::order::verdict::Rounds;
use crate::server::shared_core::SharedCore;
use crate::server::{Launcher, Link, ServerEvent};
use crate::status::NodeStatus;
use crate::timer::Timer;
use crate::transport::Key;
use crate::transport::socket::Listener;
use bytes::Bytes;
use clients::ClientSocket;
use compare::Comparison;
use datagrams::Datagrams;
use forwarding::Forwarding;
use health::Health;
use lifecycle::Lifecycle;
use mio::{Token, Waker};
use old::OldReader;
use peers::{PeerEvent, Peers};
use ports::Ports;
use pulse::Pulse;
use relief::Relief;
use skein_log::frame::Hello;
use skein_log::wal::thread::{Claim, WalThread};
use skein_log::wal::{WalError, WalReader};
use skein_log::{Consensus, LogEntry, Persist, Role, Ticket};
use skein_model::entry::MAX_ENTRY_BYTES;
use skein_model::{LogIndex, ReplicaId};
use sources::{Happened, Sources};
use standstill::Standstill;
pub use standstill::{STANDS, Standing, Stood};
use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
/// The eventfd of the server's `n`th generation is `SERVER + n`.
const SERVER: usize = 1 << 33;
const PORTS: usize = 1 << 34;
const DATAGRAMS: usize = 1 << 35;
const PEERS: usize = 1 << 40;
/// Client tokens are the connection's number in its term: 32 bits, from 2 on by this offset.
const CLIENTS: usize = 2;

/// Consensus counts time in ticks of 10 ms.
pub const TICK: Duration = Duration::from_millis(10);
/// A turn counts no more than this and one: the others' silence is known only while this thread runs. Else one that waited for a busy machine's processor
/// takes its own pause for theirs.
const MAX_TICKS: u32 = 2;
/// While the server runs, its output is fetched at least this often.
const BUSY_POLL: Duration = Duration::from_millis(1);
/// And on a follower, which is not woken for it.
const FOLLOWER_POLL: Duration = Duration::from_millis(5);
/// Nor does it wake its server for each entry: nobody waits for it.
const FOLLOWER_NAP: Duration = Duration::from_millis(3);

/// How a node ends.
type Outcome = Result<ExitReason, NodeError>;

/// Why the loop pauses.
enum Pause {
    /// This is to be written before it goes on.
    Write(Vec<Persist>, Claim),
    End(ExitReason),
}

/// What other threads tell the reactor.
#[derive(Debug)]
pub enum Inbox {
    /// The write-ahead log is durable up to this ticket, or broken.
    Durable(Result<Ticket, WalError>),
    /// Old entries from this one on, for a follower.
    Old(LogIndex, Result<Vec<LogEntry>, WalError>),
    /// The next server's arena is made, or cannot be.
    Arena(Result<Box<Link>, NodeError>),
    /// Something happened to the process of a server's generation.
    Server(u64, ServerEvent),
    /// An operator asks for something.
    Command(Command),
}

/// What an operator may ask.
#[derive(Debug)]
pub enum Command {
    /// How is it?
    Status(tokio::sync::oneshot::Sender<NodeStatus>),
    /// Give the server nothing more for a moment; answers the last entry that it has.
    Hold(tokio::sync::oneshot::Sender<Result<u64, String>>),
    /// Go on to this entry and no further; answers when the server waits there.
    StandAt(LogIndex, tokio::sync::oneshot::Sender<Standing>),
    /// Stand there for a while longer.
    StandOn(tokio::sync::oneshot::Sender<Standing>),
    /// End the standstill; answers whether the server has stood up to now.
    GoOn(tokio::sync::oneshot::Sender<bool>),
    /// End, in order.
    Stop,
    /// Which port of the server is published where?
    Places(tokio::sync::oneshot::Sender<Vec<(u16, std::net::SocketAddr)>>),
    /// Send the server a signal through the log; answers the entry when it is committed.
    Signal(u8, tokio::sync::oneshot::Sender<Result<u64, String>>),
    /// Hand leadership to this replica, or to any.
    Transfer(Option<u64>, tokio::sync::oneshot::Sender<Result<u64, String>>),
}

/// How other threads reach the reactor.
#[derive(Clone, Debug)]
pub struct Door {
    sender: mpsc::Sender<Inbox>,
    waker: Arc<Waker>,
}

impl Door {
    /// Says something; false when the reactor is gone.
    pub fn tell(&self, what: Inbox) -> bool {
        self.sender.send(what).is_ok() && self.waker.wake().is_ok()
    }
}

/// What a reactor is made of.
pub struct Parts {
    /// The configuration, checked.
    pub config: NodeConfig,
    /// Consensus, with what was recovered.
    pub consensus: Consensus,
    /// How this node introduces itself.
    pub hello: Hello,
    /// The cluster.
    pub cluster: skein_log::ClusterId,
    /// Starts servers.
    pub launcher: Arc<dyn Launcher>,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

/// See the module.
pub struct Reactor {
    config: NodeConfig,
    own: ReplicaId,
    replicas: usize,
    sources: Sources,
    timer: Timer,
    door: Door,
    inbox: Receiver<Inbox>,
    start: Instant,
    now: Duration,
    next_tick: Duration,
    /// After a gap in time a leader serves again when it has heard a majority: these it has heard.
    hearing: Option<BTreeSet<ReplicaId>>,

    consensus: Consensus,
    wal: Option<WalThread>,
    /// Reads what followers that are far behind need.
    old: Option<OldReader>,
    /// Notes when the outside first sees anything of what is in the log.
    answered: Answered,
    /// What the log on disk is to get, while others have it.
    leisure: Leisure<Persist>,
    /// What this thread is to write by itself before it sleeps,
    own_writes: Vec<Persist>,
    /// unless the disk has been slow, until then.
    slow_until: Duration,
    /// When last it was, for one write.
    slow_at: Option<Duration>,
    /// What came of it.
    written: Option<Result<Ticket, WalError>>,
    peers: Peers,
    peer_events: Vec<PeerEvent>,
    /// Handed out by consensus up to here, as far as the server's feed was told.
    handed: LogIndex,
    /// The log has a `Start`.
    started: bool,
    /// What is proposed is committed at once.
    agrees_alone: bool,

    gateway: Gateway<ClientSocket>,
    ports: Ports,
    datagrams: Datagrams,
    forwarding: Forwarding,
    lead: Option<Lead>,
    pulse: Pulse,
    admission: Admission,
    gather: Gather,
    /// What clients said waits for this long.
    nap: Option<Duration>,
    /// Who waits for a signal to be committed, and in which entry it is.
    signals: Vec<(LogIndex, tokio::sync::oneshot::Sender<Result<u64, String>>)>,
    /// A proposal that consensus was too busy for.
    unsent: Option<Bytes>,
    /// When the server last asked about files of its host.
    asked_at: Option<Duration>,
    spare: Vec<u8>,

    server: Link,
    /// Whether it runs where this thread does.
    core: SharedCore,
    /// When a follower's server is woken for what it has got.
    rouse: Option<Duration>,
    life: Lifecycle,
    health: Health,
    /// The server is to stop at an entry.
    standstill: Option<Standstill>,
    rounds: Rounds,
    compare: Comparison,
    metrics: Arc<Metrics>,
    notes: std::collections::VecDeque<String>,
    ending: Option<ExitReason>,
}

impl Reactor {
    /// Makes a reactor and starts its server. The write-ahead log comes by [`attach_wal`](Self::attach_wal).
    ///
    /// # Errors
    /// What it needs from the system cannot be had.
    pub fn new(parts: Parts) -> Result<Self, NodeError> {
        let Parts { config, consensus, hello, cluster, launcher, metrics } = parts;
        let sources = Sources::new().map_err(NodeError::system("make an event loop"))?;
        let waker =
            Waker::new(sources.urgent(), WAKER).map_err(NodeError::system("make a waker"))?;
        let (sender, inbox) = mpsc::channel();
        let door = Door { sender, waker: Arc::new(waker) };
        let timer = Timer::new(sources.urgent(), TIMER)?;
        let members: Vec<_> =
            config.peers.iter().map(|p| (ReplicaId(p.id), p.address.clone())).collect();
        let address = config.listen_address().expect("a checked configuration lists this replica");
        let key = config.key_file.as_ref().map(|path| {
            Key::read(path).map_err(|error| NodeError::Key { path: path.clone(), error })
        });
        let key = key.transpose()?;
        let listen = |error| NodeError::Listen { address: address.clone(), error };
        let listener = Listener::bind(&address).map_err(listen)?;
        let mut peers = Peers::new(
            cluster,
            hello,
            &members,
            key,
            listener,
            PEERS,
            Duration::from_millis(config.tuning.election_timeout_ms),
        );
        peers.register(sources.urgent()).map_err(listen)?;
        let tuning = &config.tuning;
        let limits =
            Limits { connections: tuning.max_connections, memory_bytes: tuning.max_memory_bytes };
        let (server, life) = Lifecycle::begin(&config, launcher, &door, sources.urgent())?;
        let started = has_payload(&consensus)?;
        let alone = config.peers.len() == 1 && config.durability == DurabilityMode::Memory;
        let cost = match config.durability {
            DurabilityMode::Fsync => Cost::Highest,
            DurabilityMode::Memory if alone => Cost::Low,
            DurabilityMode::Memory => Cost::High,
        };
        Ok(Self {
            own: ReplicaId(config.id),
            replicas: config.peers.len(),
            sources,
            timer,
            door,
            inbox,
            start: Instant::now(),
            now: Duration::ZERO,
            next_tick: TICK,
            hearing: None,
            handed: consensus.applied(),
            started,
            agrees_alone: alone,
            consensus,
            wal: None,
            old: None,
            answered: Answered::default(),
            leisure: Leisure::default(),
            own_writes: Vec::new(),
            slow_until: Duration::ZERO,
            slow_at: None,
            written: None,
            peers,
            peer_events: Vec::new(),
            gateway: Gateway::new(limits),
            ports: Ports::new(config.publisher.clone(), PORTS),
            datagrams: Datagrams::new(config.publisher.clone(), DATAGRAMS),
            forwarding: Forwarding::new(None),
            lead: None,
            pulse: Pulse::new(
                ReplicaId(config.id),
                config.peers.len(),
                Duration::from_millis(tuning.max_lag_ms),
            ),
            admission: Admission::new(Duration::from_micros(tuning.wtimeout_us), tuning.nclock),
            gather: Gather::new(cost),
            nap: None,
            signals: Vec::new(),
            unsent: None,
            asked_at: None,
            spare: Vec::new(),
            server,
            core: SharedCore::new(false),
            rouse: None,
            life,
            health: Health::new(members.iter().map(|(id, _)| *id).filter(|id| id.0 != config.id)),
            standstill: None,
            rounds: Rounds::default(),
            compare: Comparison::new(&config.server.env),
            metrics,
            notes: std::collections::VecDeque::new(),
            ending: None,
            config,
        })
    }

    /// How other threads reach this reactor.
    #[must_use]
    pub fn door(&self) -> Door {
        self.door.clone()
    }

    /// Who passes clients on to the leader.
    pub fn attach_forwarder(&mut self, forwarder: UnboundedSender<Forward>) {
        self.forwarding = Forwarding::new(Some(forwarder));
    }

    /// Who looks on at what passes between the node and its first server.
    pub fn attach_tap(&mut self, tap: Box<dyn crate::server::tap::Tap>) {
        self.server.tap = Some(tap);
    }

    /// The log on disk, and who reads its old entries for others.
    pub fn attach_wal(&mut self, wal: WalThread, old: WalReader) {
        self.consensus.read_aside();
        self.old = Some(OldReader::new(old));
        self.answered = Answered::of(&self.config.data_dir);
        self.wal = Some(wal);
    }

    /// Runs until the node ends. The server is gone afterwards.
    ///
    /// # Errors
    /// What the node cannot go on with.
    pub fn run(mut self) -> Outcome {
        // What came before was no pause.
        self.start = Instant::now();
        if self.replicas == 1 {
            self.consensus.campaign_now();
        }
        self.core = SharedCore::new(self.config.tuning.share_core);
        let relief = Relief::default();
        let writes = self.wal.is_some() && self.replicas > 1;
        std::thread::scope(|scope| {
            let other = writes.then(|| {
                let other = std::thread::Builder::new().name("skein-relief".into());
                other.spawn_scoped(scope, || Self::take_part(&relief, None))
            });
            match other {
                Some(Err(error)) => {
                    relief.end(Some(Err(NodeError::system("start a thread")(error))))
                }
                _ => Self::take_part(&relief, Some(Box::new(self))),
            }
        });
        relief.into_end().expect("the loop comes to an end")
    }

    /// Goes round whenever it is this thread's turn; see [`relief`].
    fn take_part(relief: &Relief<Box<Self>, Outcome>, mut mine: Option<Box<Self>>) {
        /// However this thread ends, the other one does not wait for it.
        struct Leave<'a>(&'a Relief<Box<Reactor>, Outcome>);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.end(None);
            }
        }
        let _leave = Leave(relief);
        // Naps are as short as they are meant to be. What fails makes them longer, no more.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        let mut happened = Happened::new();
        loop {
            let mut reactor = match mine.take() {
                Some(reactor) => reactor,
                None => {
                    let Some(mut reactor) = relief.take_up() else { return };
                    reactor.disk_was_slow();
                    reactor
                }
            };
            match reactor.go_round(&mut happened) {
                Ok(Pause::Write(writes, claim)) => {
                    let (door, since) = (reactor.door(), Instant::now());
                    let (kept, result) = relief.aside(reactor, || claim.write(&writes));
                    if let Some(mut reactor) = kept {
                        reactor.wrote(result, since.elapsed());
                        mine = Some(reactor);
                    } else {
                        // The reactor is gone when the node has ended; what is written is written.
                        let _ = door.tell(Inbox::Durable(result));
                    }
                }
                Ok(Pause::End(reason)) => return relief.end(Some(reactor.finish(Ok(reason)))),
                Err(error) => return relief.end(Some(reactor.finish(Err(error)))),
            }
        }
    }

    /// Last things; the server is gone afterwards.
    fn finish(mut self, result: Outcome) -> Outcome {
        if let Err(error) = &result {
            tracing::error!(event = "node_failed", %error);
        }
        self.hand_over_own_writes();
        self.write_held();
        // Last words: that the server ended, for peers that count.
        self.peers.flush(self.now, &mut self.peer_events);
        self.gateway.reset_all();
        self.life.finish();
        result
    }

    /// Goes round until the node ends, or this thread is to write something.
    fn go_round(&mut self, happened: &mut Happened) -> Result<Pause, NodeError> {
        if let Some(result) = self.written.take() {
            self.persisted(result?);
        }
        loop {
            self.turn()?;
            if let Some(reason) = self.ending {
                return Ok(Pause::End(reason));
            }
            if let Some((writes, claim)) = self.claim_own_writes() {
                // Another thread may go on.
                self.leave_core();
                return Ok(Pause::Write(writes, claim));
            }
            let mut timeout = self.prepare_sleep()?;
            if let Some(nap) = self.nap.take()
                && timeout != Some(Duration::ZERO)
            {
                self.sources.nap(nap);
                timeout = Some(Duration::ZERO);
            }
            self.sources.wait(happened, timeout).map_err(NodeError::system("wait for events"))?;
            self.server.reopen_gate();
            self.read_clock();
            let mut told = false;
            for event in happened.iter() {
                let token = event.token();
                match token.0 {
                    n if self.peers.owns(token) => {
                        debug_assert!(n >= PEERS);
                        self.peers.ready(
                            event,
                            self.sources.urgent(),
                            self.now,
                            &mut self.peer_events,
                        );
                    }
                    n if n >= DATAGRAMS => self.datagrams.ready(token),
                    n if n >= PORTS => self.ports.ready(token),
                    n if n >= SERVER => {}
                    0 => told = true,
                    1 => {}
                    n => {
                        let id = self.gateway.id_of((n - CLIENTS) as u32);
                        if event.is_readable() || event.is_error() {
                            let more = event.is_read_closed() || event.is_priority();
                            let more = more || event.is_error();
                            self.gateway.readable(id, more, self.now);
                        }
                        if event.is_writable() {
                            self.gateway.writable(id, self.now);
                        }
                    }
                }
            }
            if told {
                self.read_inbox()?;
            }
        }
    }

    /// One turn; see the module.
    fn turn(&mut self) -> Result<(), NodeError> {
        self.read_clock();
        self.hear_peers()?;
        self.tick();
        if !self.server.ahead.is_empty() {
            // What is committed now may have been executed already.
            self.drive()?;
        }
        self.fetch_output()?;
        self.tend_standstill();
        self.look_after_followers();
        self.propose_inputs();
        self.forward_clients();
        self.drive()?;
        self.propose_facts();
        self.propose_for_server();
        self.drive()?;
        self.feed_backlog()?;
        self.compare_digests()?;
        self.drive()?;
        self.tend_log();
        self.peers.flush(self.now, &mut self.peer_events);
        if !self.peer_events.is_empty() {
            self.hear_peers()?;
            self.drive()?;
        }
        self.wake_server();
        self.tend_server()
    }

    /// Wakes the server for what it has got: at once if somebody waits for it, or it could not take much more.
    fn wake_server(&mut self) {
        if self.core.is_over(self.now) {
            self.leave_core();
        }
        if !self.server.has_unseen() {
            return;
        }
        let waited_for = self.lead.is_some()
            || self.standstill.is_some()
            || !self.server.has_room(MAX_ENTRY_BYTES).unwrap_or(false);
        let when = *self.rouse.get_or_insert(self.now + FOLLOWER_NAP);
        if waited_for || when <= self.now {
            self.rouse = None;
            if self.server.wake_server() && self.lead.is_some() {
                let core = self.core.handed_over(self.server.stint(), self.now);
                core.inspect(|&core| self.server.call_to(core));
            }
        }
    }

    /// The server may run anywhere, and this thread.
    pub(super) fn leave_core(&mut self) {
        if self.core.part() {
            self.server.call_to(0);
        }
    }

    fn read_clock(&mut self) {
        let before = self.now;
        self.now = self.start.elapsed();
        // Stopped and continued: whatever this node believes of its leadership may be of the past.
        let gap = self.now.saturating_sub(before);
        if gap > Duration::from_millis(self.config.tuning.election_timeout_ms) && self.replicas > 1
        {
            tracing::warn!(
                event = "gap",
                gap_ms = gap.as_millis() as u64,
                why = "the node did not run"
            );
            self.hearing = Some(BTreeSet::new());
            self.next_tick = self.now + TICK;
        }
    }

    fn tick(&mut self) {
        if self.replicas == 1 {
            return;
        }
        if self.next_tick <= self.now {
            self.tend_health();
            self.tell_target();
            self.beat();
        }
        self.next_tick = self.next_tick.max(self.now.saturating_sub(MAX_TICKS * TICK));
        while self.next_tick <= self.now {
            self.next_tick += TICK;
            self.consensus.tick();
        }
    }

    fn read_inbox(&mut self) -> Result<(), NodeError> {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Inbox::Durable(Ok(ticket)) => self.persisted(ticket),
                Inbox::Durable(Err(error)) => return Err(error.into()),
                Inbox::Old(from, entries) => self.consensus.give_old(from, entries),
                Inbox::Arena(link) => self.next_made(link?),
                Inbox::Server(generation, event) => self.server_event(generation, event)?,
                Inbox::Command(command) => self.command(command)?,
            }
        }
        Ok(())
    }

    fn command(&mut self, command: Command) -> Result<(), NodeError> {
        match command {
            Command::Status(reply) => {
                // Who asked may be gone.
                let _ = reply.send(self.snapshot());
            }
            Command::Hold(reply) => {
                let _ = reply.send(self.hold());
            }
            Command::StandAt(index, reply) => self.stand_at(index, reply),
            Command::StandOn(reply) => {
                let _ = reply.send(self.stand_on());
            }
            Command::GoOn(reply) => {
                let _ = reply.send(self.go_on());
            }
            Command::Places(reply) => {
                // Who asked may be gone.
                let _ = reply.send(self.ports.places());
            }
            Command::Stop => {
                let heir = self.heir();
                if let Some(to) = heir.filter(|_| self.lead.is_some()) {
                    // The last words tell it to campaign at once.
                    self.consensus.transfer_leadership(to);
                    self.drive()?;
                }
                self.ending = Some(ExitReason::Stopped);
            }
            Command::Signal(number, reply) => {
                match self.propose_signal(number) {
                    // It may be committed already.
                    Ok(index) if index > self.handed => self.signals.push((index, reply)),
                    Ok(index) => drop(reply.send(Ok(index.0))),
                    Err(why) => drop(reply.send(Err(why))),
                }
            }
            Command::Transfer(to, reply) => {
                let to = to.map(ReplicaId).or_else(|| self.heir());
                let result = match to {
                    Some(to) if self.consensus.transfer_leadership(to) => Ok(to.0),
                    Some(to) if self.consensus.role() == Role::Leader => {
                        Err(format!("replica {to} has no vote"))
                    }
                    Some(_) => Err("this replica does not lead".into()),
                    None if self.lead.is_none() => Err("this replica does not lead".into()),
                    None => Err("no other replica is connected and well".into()),
                };
                let _ = reply.send(result);
            }
        }
        Ok(())
    }

    /// Closes the server's gate to the node and decides how long to sleep; zero when there is something to do.
    fn prepare_sleep(&mut self) -> Result<Option<Duration>, NodeError> {
        let mut wake: Option<Duration> = None;
        let mut at = |when: Option<Duration>| {
            if let Some(when) = when {
                wake = Some(wake.map_or(when, |w: Duration| w.min(when)));
            }
        };
        if self.replicas > 1 {
            at(Some(self.next_tick));
            at(self.peers.tend(self.sources.urgent(), self.now));
        }
        at(self.gateway.expire(self.now));
        at(self.compare_wake());
        at(self.life.wake());
        at(self.standstill_wake());
        at(self.followers_wake());
        at(self.answered.wake(self.now));
        at(self.rouse);
        at(self.leisure.due(self.oldest_in_flight()));
        // A follower's server need not wake it: nobody waits for what it sent.
        // Nor a leader's that has only to say what cannot leave before a commit, which wakes the node itself.
        let leads = self.lead.is_some();
        if leads && (self.server.owes() || self.asks_more()) {
            self.server.close_gate();
        }
        let pending = self.nap.is_none() && self.may_propose_inputs() && self.has_inputs();
        let output = self.server.has_output(self.handed).unwrap_or(true);
        if pending
            || output
            || self.backlog_has_room()
            || self.has_come_to_stand()
            || self.may_propose_facts()
        {
            self.server.reopen_gate();
            return Ok(Some(Duration::ZERO));
        }
        if let Some(when) = self.admission_wake() {
            if when <= self.now {
                self.server.reopen_gate();
                return Ok(Some(Duration::ZERO));
            }
            if when - self.now < Duration::from_millis(5) {
                self.timer.set(when, self.now);
            } else {
                at(Some(when));
            }
        }
        if self.server_is_busy() {
            at(Some(self.now + if leads { BUSY_POLL } else { FOLLOWER_POLL }));
        }
        Ok(wake.map(|w| w.saturating_sub(self.now)))
    }
}

/// Whether the log has an entry with a payload: then it begins with a `Start`.
fn has_payload(consensus: &Consensus) -> Result<bool, NodeError> {
    let mut from = LogIndex(1);
    loop {
        let chunk = consensus.entries(from, 1 << 20).map_err(NodeError::Log)?;
        if !chunk.entries.is_empty() {
            return Ok(true);
        }
        if chunk.next == from {
            return Ok(false);
        }
        from = chunk.next;
    }
}
