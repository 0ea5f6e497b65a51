//! One replica: its decisions, without any I/O of its own.
//!
//! All its effects are behind [`Environment`]: on a machine a node's event loop drives it, and a simulation drives the same code.
//!
//! One [turn](Replica::turn), from a wake-up to the next sleep:
//!
//! 1. the server's output for committed entries goes to the clients (`serve.rs`, [`crate::gateway`]);
//! 2. clients' input becomes one entry, is proposed, and put into the input ring (`agree.rs`);
//! 3. the duties of consensus are done: messages, the write-ahead log, on followers committed entries into the input ring;
//! 4. the peers' queues are written, once each; the server is woken, once.
//!
//! So a cluster of one replica with its log in memory takes an input from the socket to the server in one turn, without
//! another thread's help.
//!
//! Invariants: a server's output for an entry leaves only after the entry's commit, and only a leader's server gets an
//! entry before that ([`crate::server::ahead`]); only a leader whose server has executed its own `TermStart` accepts or
//! reads clients; a turn never waits for a process, a peer or a disk.
//!
//! Crash: the server dies with the node; the log's promises are on disk (or in the other replicas' memory); clients see resets.

mod agree;
mod ahead;
mod compare;
mod dispute;
mod elsewhere;
mod health;
mod images;
mod inputs;
mod kinds;
mod left;
mod levels;
mod lifecycle;
pub mod members;
mod outgoing;
mod planned;
mod pulse;
mod repair;
mod rhythm;
mod roots;
mod scrub;
mod serve;
pub mod shared_core;
mod snapshot;
mod spin;
mod standstill;
mod ticks;
mod unhurried;
pub mod upgrade;

use crate::agreement::deferred_sync::DeferredSync;
use crate::agreement::gather::{Cost, Gather};
use crate::agreement::lead::Lead;
use crate::agreement::regular::Regular;
use crate::agreement::unhurried::Unhurried;
pub use crate::config::TICK;
use crate::config::{DurabilityMode, ReplicaConfig};
use crate::environment::{Environment, Image, ImageNews};
use crate::error::{ExitReason, ReplicaError};
use crate::gateway::{Gateway, Limits};
pub use crate::images::{Checkpointed, Taken as ImageTaken};
use crate::members::{Answer, Request};
use crate::metrics::Metrics;
use crate::modes::Mode;
pub use crate::server::Stood;
use crate::server::{Link, ServerEvent, Slot, Source};
use crate::status::NodeStatus;
use crate::verdicts::rounds::Rounds;
use bytes::Bytes;
use compare::Comparison;
use elsewhere::{Asker, Elsewhere, Upgrader};
use health::Health;
pub use images::Reply as CheckpointReply;
use lifecycle::Ends;
use members::Members;
use pulse::Pulse;
use rhythm::Rhythm;
use roots::Roots;
use shared_core::SharedCore;
use skein_log::wal::WalError;
use skein_log::{Consensus, LogEntry, Persist, Role, Ticket};
use skein_model::entry::MAX_ENTRY_BYTES;
use skein_model::{LogIndex, ReplicaId, WallNs};
use standstill::Standstill;
pub use standstill::{STANDS, STANDS_ON, Standing};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use upgrade::Upgrades;

/// While the server runs, its output is fetched at least this often.
const BUSY_POLL: Duration = Duration::from_millis(1);
/// And on a follower, which is not woken for it.
const FOLLOWER_POLL: Duration = Duration::from_millis(5);
/// Deadlines within this time get a timer of their own.
const SOON: Duration = Duration::from_millis(5);

/// Results of work beside the replica, and requests of others.
#[derive(Debug)]
pub enum Inbox {
    /// The write-ahead log is durable up to this ticket, or broken.
    Durable(Result<Ticket, WalError>),
    /// Old entries from this index on, for a follower.
    Old(LogIndex, Result<Vec<LogEntry>, WalError>),
    /// The next server's arena is made, or cannot be.
    Arena(Result<Box<Link>, ReplicaError>),
    /// An event of the process of a server's generation.
    Server(u64, ServerEvent),
    /// News of images of the server.
    Images(ImageNews),
    /// An operator's request.
    Command(Command),
}

/// An operator's requests.
#[derive(Debug)]
pub enum Command {
    /// Its status.
    Status(oneshot::Sender<NodeStatus>),
    /// Give the server nothing more for a moment; answers its last entry.
    Hold(oneshot::Sender<Result<u64, String>>),
    /// Go on to this entry and no further; answers when the server waits there.
    StandAt(LogIndex, oneshot::Sender<Standing>),
    /// Stand there for so much longer; no shorter than before if it is at least so long.
    StandOn(Duration, bool, oneshot::Sender<Standing>),
    /// End the standstill; answers whether the server has stood up to now.
    GoOn(oneshot::Sender<bool>),
    /// All servers were found equal at this entry, their memory and files included.
    FoundEqual(LogIndex),
    /// What differed in servers that stand at this entry was repaired from another one; `here`: in this replica's.
    Repaired {
        /// The entry.
        index: LogIndex,
        /// What was repaired in this replica's server, in words.
        here: Option<String>,
    },
    /// The server differs from the others' in what cannot be repaired in it: build it again.
    Rebuild(String, oneshot::Sender<Result<(), String>>),
    /// End, in order.
    Stop,
    /// The published address of each server port.
    Places(oneshot::Sender<Vec<(u16, std::net::SocketAddr)>>),
    /// Send the server a signal through the log, here or by the leader; answers the entry when it is committed.
    Signal(u8, oneshot::Sender<Result<u64, String>>),
    /// Take an image of the server now.
    Checkpoint(CheckpointReply),
    /// Remove the image of this entry.
    RemoveImage(LogIndex, oneshot::Sender<Result<(), String>>),
    /// Have the servers end, for another edition to follow, here or by the leader; answers when that is committed.
    Upgrade(upgrade::Wanted, upgrade::Reply),
    /// Change the members.
    Members(Request, oneshot::Sender<Answer>),
    /// Hand leadership to this replica, or to any.
    Transfer(Option<u64>, oneshot::Sender<Result<u64, String>>),
}

/// The start state of a replica.
pub struct Parts<E> {
    /// The configuration, checked.
    pub config: ReplicaConfig,
    /// The rules by which it keeps its server equal to the others'.
    pub mode: Box<dyn Mode>,
    /// Consensus, with what was recovered.
    pub consensus: Consensus,
    /// Its environment.
    pub env: E,
    /// The arena of the first server, which was given nothing. A passive replica and a witness begin without one.
    pub server: Option<Link>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
}

/// How long it may rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Until then, without events; a millisecond more does no harm.
    pub until: Option<Duration>,
    /// Until exactly then.
    pub precise: Option<Duration>,
    /// What peers say need not end it: it is to be heard at its end.
    pub peers_wait: bool,
}

impl Rest {
    /// Not beyond this time, if there is one.
    fn at(&mut self, when: Option<Duration>) {
        if let Some(when) = when {
            self.until = Some(self.until.map_or(when, |until| until.min(when)));
        }
    }
}

/// See the [module](self).
pub struct Replica<E: Environment> {
    /// Its environment.
    pub env: E,
    config: ReplicaConfig,
    own: ReplicaId,
    /// So many have a vote.
    replicas: usize,
    members: Members,
    now: Duration,
    next_tick: Duration,
    /// When the last rest was to end,
    rested_until: Duration,
    /// and when it was to end for ticks.
    ticks_until: Duration,
    rhythm: Rhythm,
    /// The server's timer.
    regular: Regular,
    /// The last time that peers said anything but routine, or were asked for it.
    stirred: Duration,
    /// Ticks were counted in this turn.
    ticked: bool,
    /// After a gap in time a leader serves again when it has heard a majority: these it has heard.
    hearing: Option<BTreeSet<ReplicaId>>,

    consensus: Consensus,
    /// Deferred writes of the log on disk, while others have the entries, or nobody waits for them.
    deferred_sync: DeferredSync<Persist>,
    unhurried: Unhurried,
    /// A leader waits for the commit of the entries up to this one.
    sync_asked: LogIndex,
    /// When this leader asked for syncs again.
    sync_told: Duration,
    /// The write for the caller before it sleeps,
    own_writes: Vec<Persist>,
    /// unless the disk has been slow, until then.
    slow_until: Duration,
    /// The last time of that, for one write.
    slow_at: Option<Duration>,
    /// The last entry handed out by consensus, as far as the server's feed knows.
    handed: LogIndex,
    /// The last entry that was in the log at the start.
    recovered: LogIndex,
    /// The log has a `Start`.
    started: bool,
    /// Proposals are committed at once.
    agrees_alone: bool,

    gateway: Gateway<E::Socket>,
    lead: Option<Lead>,
    pulse: Pulse,
    mode: Box<dyn Mode>,
    gather: Gather,
    /// Clients' requests wait until this time.
    wait: Option<Duration>,
    /// Requesters that wait for a signal to be committed, with its entry.
    signals: Vec<(LogIndex, Asker<u64>)>,
    /// A proposal that consensus was too busy for.
    unsent: Option<Bytes>,
    /// When the server last asked about files of its host.
    asked_at: Option<Duration>,
    spare: Vec<u8>,

    slot: Slot,
    /// Whether it runs on the caller's core.
    core: SharedCore,
    /// When a follower's server is woken for its entries.
    wake_at: Option<Duration>,
    ends: Ends,
    health: Health,
    /// The server must stop at an entry.
    standstill: Option<Standstill>,
    images: images::Images,
    upgrades: Upgrades,
    /// Requesters that wait for an upgrade to be committed, with its entry and its edition's number.
    upgrade_asked: Vec<(LogIndex, u64, Upgrader)>,
    elsewhere: Elsewhere,
    levels: levels::Heard,
    rounds: Rounds,
    compare: Comparison,
    roots: Roots,
    metrics: Arc<Metrics>,
    notes: VecDeque<String>,
    ending: Option<ExitReason>,
}

impl<E: Environment> Replica<E> {
    /// Makes a replica and starts its server, if it has one.
    ///
    /// # Errors
    /// A resource is missing.
    pub fn new(parts: Parts<E>) -> Result<Self, ReplicaError> {
        let Parts { config, mode, mut consensus, mut env, server, metrics } = parts;
        let tuning = &config.tuning;
        let limits =
            Limits { connections: tuning.max_connections, memory_bytes: tuning.max_memory_bytes };
        let kept = images::of_this_log(&mut env, &consensus);
        consensus.hold_images(kept.iter().map(Image::index));
        let (first, last) = (consensus.first_index(), consensus.last_index());
        let mut upgrades = Upgrades::new(&kept, first);
        upgrades.read(&mut consensus, &mut env)?;
        let images = images::Images::new(&config.checkpoint, kept, env.doubted());
        let source = images.source(first, last, &upgrades.editions);
        // Virtual time continues from there even if no entry is left of the log.
        let imaged = match &source {
            Some(Source::Image(state) | Source::Files(state, _)) => Some(state.wall),
            _ => None,
        };
        let slot = match (server, source) {
            (Some(mut server), Some(source)) => {
                begin(&mut env, &mut server, &source)?;
                Slot::new(Some(server))
            }
            // It begins when there is an image.
            (Some(server), None) => Slot::awaiting(server),
            (None, _) => Slot::new(None),
        };
        let members = Members::of_kind(consensus.kind_of(config.id));
        let recovered = last_stamp(&consensus)?;
        let alone = consensus.is_alone() && config.durability == DurabilityMode::Memory;
        let cost = Cost::of(config.durability, alone);
        let others = config.members.iter().map(|m| m.id).filter(|id| *id != config.id);
        let mut pulse =
            Pulse::new(config.id, config.members.len(), Duration::from_millis(tuning.max_lag_ms));
        // Virtual time continues from the log's stamps, independent of wall clocks.
        for stamp in recovered.into_iter().chain(imaged) {
            pulse.observe(stamp, &env);
        }
        Ok(Self {
            env,
            own: config.id,
            replicas: config.members.len(),
            members,
            now: Duration::ZERO,
            next_tick: TICK,
            rested_until: Duration::ZERO,
            ticks_until: Duration::ZERO,
            rhythm: Rhythm::default(),
            regular: Regular::new(Duration::from_millis(tuning.idle_slack_ms)),
            stirred: Duration::ZERO,
            ticked: false,
            hearing: None,
            handed: consensus.applied(),
            recovered: consensus.last_index(),
            // A log that begins later has its `Start` before that.
            started: recovered.is_some() || consensus.first_index() > LogIndex(1),
            agrees_alone: alone,
            consensus,
            deferred_sync: DeferredSync::default(),
            unhurried: Unhurried::default(),
            sync_asked: LogIndex(0),
            sync_told: Duration::ZERO,
            own_writes: Vec::new(),
            slow_until: Duration::ZERO,
            slow_at: None,
            gateway: Gateway::new(limits),
            lead: None,
            pulse,
            mode,
            gather: Gather::new(cost),
            wait: None,
            signals: Vec::new(),
            unsent: None,
            asked_at: None,
            spare: Vec::new(),
            slot,
            core: SharedCore::new(false),
            wake_at: None,
            ends: Ends::default(),
            health: Health::new(others),
            standstill: None,
            images,
            upgrades,
            upgrade_asked: Vec::new(),
            elsewhere: Elsewhere::default(),
            levels: levels::Heard::default(),
            rounds: Rounds::default(),
            compare: Comparison::default(),
            roots: Roots::default(),
            metrics,
            notes: VecDeque::new(),
            ending: None,
            config,
        })
    }

    /// Sets an observer of everything that passes between the node and its first server.
    pub fn attach_tap(&mut self, tap: Box<dyn crate::server::tap::Tap>) {
        if let Some(server) = self.slot.link_mut() {
            server.tap = Some(tap);
        }
    }

    /// Time begins. From now on the calling thread may share its core with the server, if that is configured.
    pub fn begin(&mut self) {
        self.follow_level();
        self.follow_members();
        if self.env.has_log() {
            self.consensus.read_aside();
        }
        self.core = SharedCore::new(self.config.tuning.share_core && self.env.may_share_core());
    }

    /// Final steps; the server is gone afterwards.
    pub fn finish(&mut self) {
        self.write_held();
        self.hand_over_own_writes();
        // A last message: that the server ended, for peers that count ends.
        self.env.flush(self.now);
        self.gateway.reset_all();
        self.env.finish();
    }

    /// Consensus, for inspection.
    #[must_use]
    pub const fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// The server, or the last one, for inspection; `None` on a replica without one.
    #[must_use]
    pub const fn server(&self) -> Option<&Link> {
        self.slot.link()
    }

    /// Its end, once it has ended.
    #[must_use]
    pub const fn ending(&self) -> Option<ExitReason> {
        self.ending
    }

    /// The time of this turn.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// How long clients' requests wait, if they do.
    pub const fn take_wait(&mut self) -> Option<Duration> {
        self.wait.take()
    }

    /// An event on a connection: available bytes are read in the next turn. `more`: there is more than before, handle it at once.
    pub fn readable(&mut self, number: u32, more: bool) {
        self.gateway.readable(self.gateway.id_of(number), more, self.now);
    }

    /// A connection takes bytes again.
    pub fn writable(&mut self, number: u32) {
        self.gateway.writable(self.gateway.id_of(number), self.now);
    }

    /// The pause is over.
    pub fn awake(&mut self) {
        self.reopen_gate();
        self.read_clock();
        self.settle_plan();
    }

    /// One turn; see the [module](self).
    ///
    /// # Errors
    /// The error that ends the replica.
    pub fn turn(&mut self) -> Result<(), ReplicaError> {
        self.read_clock();
        self.count_ticks();
        self.hear_peers()?;
        self.tick();
        if self.server().is_some_and(|server| !server.ahead.is_empty()) {
            // Newly committed entries may have been executed already.
            self.drive()?;
        }
        self.fetch_output()?;
        self.tend_standstill();
        self.tend_images();
        self.look_after_followers();
        self.propose_inputs();
        let leads = self.consensus.leader().map(|leader| (leader, self.consensus.term()));
        let to = self.lead.is_none().then_some(&self.compare.places);
        self.env.forward(leads, to, self.now);
        self.drive()?;
        self.propose_for_server();
        self.drive()?;
        self.tend_unhurried();
        self.feed_backlog()?;
        self.compare_digests()?;
        self.drive()?;
        self.tend_log();
        self.tend_rhythm();
        self.drive()?;
        self.env.flush(self.now);
        if !self.env.heard().is_empty() {
            self.hear_peers()?;
            self.drive()?;
        }
        self.wake_server();
        self.tend_removal();
        self.tend_server()
    }

    /// Wakes the server for its entries: when its mode says so, at once if its ring is nearly full.
    fn wake_server(&mut self) {
        if self.core.is_over(self.now) {
            self.leave_core();
        }
        // A node that is idle wakes it now instead of waking for that later.
        let longest = if self.is_slow() { Duration::ZERO } else { Duration::MAX };
        let Some(server) = self.slot.link_mut().filter(|server| server.has_unseen()) else {
            // It may be another server than the one that was to be woken.
            self.wake_at = None;
            return;
        };
        let waited_for =
            self.standstill.is_some() || !server.has_room(MAX_ENTRY_BYTES).unwrap_or(false);
        let within = self.mode.execution(self.lead.is_some()).within.min(longest);
        let when = (*self.wake_at.get_or_insert(self.now + within)).min(self.now + within);
        if waited_for || when <= self.now {
            self.wake_at = None;
            if server.wake_server() && self.lead.is_some() {
                let core = self.core.handed_over(server.cpu_burst(), self.now, &mut self.env);
                core.inspect(|&core| server.call_to(core));
            }
        }
    }

    /// The last entry whose output may leave.
    fn released(&self) -> LogIndex {
        self.mode.released(self.handed)
    }

    /// The server may run anywhere, and this thread.
    pub fn leave_core(&mut self) {
        if self.core.part(&mut self.env)
            && let Some(server) = self.server()
        {
            server.call_to(0);
        }
    }

    fn reopen_gate(&self) {
        if let Some(server) = self.server() {
            server.reopen_gate();
        }
    }

    /// Handles a result or a request.
    ///
    /// # Errors
    /// The error that ends the replica.
    pub fn hear(&mut self, message: Inbox) -> Result<(), ReplicaError> {
        match message {
            Inbox::Durable(Ok(ticket)) => self.persisted(ticket),
            Inbox::Durable(Err(error)) => return Err(error.into()),
            Inbox::Old(from, entries) => self.consensus.give_old(from, entries),
            Inbox::Arena(link) => self.slot.arena_made(link?),
            Inbox::Server(generation, event) => self.server_event(generation, event)?,
            Inbox::Images(news) => self.image_news(news),
            Inbox::Command(command) => self.command(command)?,
        }
        Ok(())
    }

    fn command(&mut self, command: Command) -> Result<(), ReplicaError> {
        if !matches!(command, Command::Status(_)) {
            self.is_waited_for();
        }
        match command {
            Command::Status(reply) => {
                // The requester may be gone.
                let _ = reply.send(self.snapshot());
            }
            Command::Hold(reply) => {
                let _ = reply.send(self.hold());
            }
            Command::StandAt(index, reply) => self.stand_at(index, reply),
            Command::StandOn(longer, at_least, reply) => {
                let _ = reply.send(self.stand_on(longer, at_least));
            }
            Command::GoOn(reply) => {
                let _ = reply.send(self.go_on());
            }
            Command::FoundEqual(index) => self.found_equal(index),
            Command::Repaired { index, here } => self.was_repaired(index, here),
            Command::Rebuild(why, reply) => {
                let _ = reply.send(self.rebuild_differing(&why));
            }
            Command::Places(reply) => {
                // The requester may be gone.
                let _ = reply.send(self.env.places());
            }
            Command::Stop => {
                let heir = self.heir();
                if let Some(to) = heir.filter(|_| self.lead.is_some()) {
                    // The last message tells it to campaign at once.
                    self.hand_leadership_to(to);
                    self.drive()?;
                }
                self.ending = Some(ExitReason::Stopped);
            }
            Command::Signal(number, reply) => self.ask_for_signal(number, reply),
            Command::Upgrade(wanted, reply) => self.ask_for_upgrade(wanted, reply),
            Command::Members(request, reply) => self.requested(&request, reply),
            Command::Checkpoint(reply) => self.checkpoint(reply),
            Command::RemoveImage(index, reply) => {
                // The requester may be gone.
                let _ = reply.send(self.remove_image(index));
            }
            Command::Transfer(to, reply) => {
                let to = to.map(ReplicaId).or_else(|| self.heir());
                let result = match to {
                    Some(to) if !self.members.kind_of(to).can_serve() => {
                        Err(members::is_witness(to))
                    }
                    Some(to) if self.hand_leadership_to(to) => Ok(to.0),
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

    /// Closes the server's gate to the node and decides how long to rest; nothing when there is work to do.
    pub fn rest(&mut self) -> Option<Rest> {
        let mut rest = Rest::default();
        if !self.members.alone {
            self.ticks_until = self.tick_wake() + self.heartbeats_wait();
            rest.at(Some(self.ticks_until));
        }
        rest.at(self.gateway.expire(self.now));
        rest.at(self.compare_wake());
        // A server that can begin nowhere waits for an image, and one that begins on the former one's files for these: their arrival is an event.
        let slot = self.slot.wake();
        let begins = || !self.leaves_files() && self.source().is_some();
        rest.at(slot.filter(|when| *when > self.now || begins()));
        rest.at(self.ends.wake());
        rest.at(self.standstill_wake());
        rest.at(self.images_wake());
        rest.at(self.upgrade_wake());
        rest.at(self.removal_wake());
        rest.at(self.followers_wake());
        rest.at(self.env.answering_wake(self.now));
        rest.at(self.wake_at);
        rest.at(self.deferred_sync.due(self.oldest_awaited()));
        rest.at(self.unhurried_wake());
        // A follower's server need not wake it: no client waits for its output.
        // Nor a leader's whose output cannot leave before a commit, which wakes the node itself, unless nobody waits for that commit yet, or it takes its timers' entries by itself.
        let leads = self.lead.is_some();
        let expected = self.expected_timer();
        if let Some(server) = self.server()
            && leads
            && (server.owes() || self.asks_more() || self.server_is_beyond() || expected.is_some())
        {
            match expected {
                Some(awaited) => server.close_gate_until(awaited.expected.not_before_ns),
                None => server.close_gate(),
            }
        }
        let speaks = self.speaks_unheard();
        let pending = self.wait.is_none() && self.may_propose_inputs() && self.has_inputs();
        let output =
            self.server().is_some_and(|server| server.has_output(self.released()).unwrap_or(true));
        if pending || output || speaks || self.backlog_has_room() || self.has_come_to_stand() {
            self.reopen_gate();
            return None;
        }
        // What it waits for by now may be another timer.
        let expected = expected.filter(|awaited| awaited.may_be(self.waiting()));
        if let Some(when) = self.server_wake(expected) {
            if when <= self.now {
                self.reopen_gate();
                return None;
            }
            if when - self.now < SOON {
                rest.precise = Some(when);
            } else {
                rest.at(Some(when));
            }
        }
        if let Some(awaited) = expected {
            rest.at(Some(self.plan_timers(awaited)));
        } else if self.server_is_busy() && (leads || !self.is_slow() || !self.slot.is_in_step()) {
            let look = self.now + if leads { BUSY_POLL } else { FOLLOWER_POLL };
            rest.at(Some(look));
        }
        self.rested_until = rest.until.into_iter().chain(rest.precise).min().unwrap_or(self.now);
        rest.peers_wait = self.peers_may_wait();
        Some(rest)
    }
}

/// Starts a server there; answers the stamp of the last entry that it has executed, if it continues from an image.
fn begin<E: Environment>(
    env: &mut E,
    server: &mut Link,
    source: &Source,
) -> Result<Option<WallNs>, ReplicaError> {
    let state = match source {
        Source::Log => None,
        Source::Image(state) => {
            tracing::info!(event = "restoring", index = state.index.0);
            server.continue_from(state);
            Some(state)
        }
        Source::Files(state, edition) => {
            let (number, since, index) = (edition.number, edition.since, state.index.0);
            tracing::info!(event = "edition", number, since, index);
            server.begin_edition(state, edition.clone());
            Some(state)
        }
    };
    env.start(server, state.map(|state| state.index))?;
    Ok(state.map(|state| state.wall))
}

/// The stamp of the last committed entry with a payload, if there is one: then the log begins with a `Start`.
fn last_stamp(consensus: &Consensus) -> Result<Option<WallNs>, ReplicaError> {
    let (first, end) = (consensus.first_index(), consensus.applied().0);
    // Entries without one are few: of terms and of members.
    let mut step = 16;
    loop {
        let mut from = LogIndex(end.saturating_sub(step)).max(first);
        let mut last = None;
        loop {
            let chunk = consensus.entries(from, 1 << 20).map_err(ReplicaError::Log)?;
            for entry in &chunk.entries {
                last = Some(agree::parse(entry)?.wall());
            }
            if chunk.next == from {
                break;
            }
            from = chunk.next;
        }
        if last.is_some() || end.saturating_sub(step) <= first.0 {
            return Ok(last);
        }
        step *= 16;
    }
}
