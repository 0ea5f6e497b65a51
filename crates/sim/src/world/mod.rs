//! The world around the replicas: time, network, machines, and their faults.
//!
//! One queue of events in order of time; all chance comes from one generator. Nothing depends on addresses, threads or
//! the real clock, so a seed is a whole history.

mod broken;
mod clients;
mod end;
mod faults;
mod idle;
mod images;
mod lag;
mod levels;
mod network;
mod nodes;
mod operator;
mod outside;
mod servers;

use crate::check::Checker;
use crate::client::{Client, End};
use crate::history::Operation;
use crate::machine::Machine;
use crate::machines::Machines;
use crate::options::{Levels, Options, Plan, Scenario, YEAR_US};
use crate::shelf::{Imaged, Shelved};
use crate::wire::Wire;
use network::{Frames, Network};
use skein_arena::Sizes;
use skein_log::disk::sim::SimRng;
use skein_log::{OldEntries, Role};
use skein_model::{ConnId, LogIndex, ReplicaId, WallNs};
use skein_replica::environment::ImageNews;
use skein_replica::replica::Inbox;
use skein_replica::server::ServerState;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Operations a register: the most that the search for an order can take.
const OPERATIONS_PER_KEY: usize = 100;
/// More events are never under way, unless replicas answer each other without end.
const MAX_UNDER_WAY: usize = 10_000;
/// The true time at the start: 1980.
const BEGINS_US: u64 = 10 * YEAR_US as u64;

/// The summary of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The replicas that it began with,
    pub founders: u64,
    /// and its members in the end.
    pub members: usize,
    /// Committed entries.
    pub entries: usize,
    /// Answered operations, and all of them.
    pub answered: usize,
    /// All operations.
    pub operations: usize,
    /// Terms with a leader.
    pub terms: usize,
    /// Faults injected.
    pub faults: usize,
    /// Servers that were started beyond the first of each node's life.
    pub rebuilds: usize,
    /// Servers whose memory alone differed,
    pub flips: usize,
    /// and of those the ones that were found by that.
    pub mended: usize,
    /// Images that were taken,
    pub images: usize,
    /// of those the ones where comparisons are not configured,
    pub in_turn: usize,
    /// and the ones for which a follower's server stood while another follower's did.
    pub stood_together: usize,
    /// Images that a replica received from another one.
    pub fetched: usize,
    /// Servers that continued from an image.
    pub restores: usize,
    /// Servers that could not, for want of memory.
    pub not_restored: usize,
    /// Changes of the members, and of the leader, that an operator brought to their end.
    pub changes: usize,
    /// Logs that begin later than with entry 1 at the end.
    pub forgot: usize,
    /// Time from the last fault to the first client's answer, in us.
    pub served_after_us: u64,
    /// The longest time without an answer from then on, in us.
    pub silence_us: u64,
    /// Connections to hosts outside, datagrams that left, and lines that operators could read.
    pub effects: usize,
    /// The leader at the end, if there is one.
    pub leader: u64,
    /// The longest time by which the fastest follower's server was behind, in us; of the scenario with slow followers.
    pub lag_us: u64,
    /// The most syncs of one replica's log while nobody asked, and how long that was, in us.
    pub idle_syncs: u64,
    /// The most wake-ups of one node in that time.
    pub idle_wakes: u64,
    /// The leaders that were elected meanwhile,
    pub idle_leaders: usize,
    /// and the entries that were made.
    pub idle_entries: u64,
    /// Entries of timers that servers took by themselves.
    pub planned: usize,
    /// The longest time after which a node heard then what another had said.
    pub idle_heard_us: u64,
    /// How long that was, in us.
    pub idle_us: u64,
    /// The longest time meanwhile from the execution of a timer that said something until that left, in us.
    pub said_after_us: u64,
    /// The replica that a scenario broke.
    pub broken: u64,
    /// And the time from its start until its server was in step, in us, where it comes back.
    pub in_step_after_us: u64,
    /// A damaged disk was refused when its node started, or later.
    pub refused: bool,
    /// Upgrades that were undone because the loader refuses the new program.
    pub undone: usize,
    /// Simulated time, in us.
    pub took_us: u64,
    /// A digest over all events: equal for equal seeds.
    pub fingerprint: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The simulated time.
    pub at_us: u64,
    /// The violation.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at_us, what } = self;
        write!(
            f,
            "seed {seed} at {at_us} us: {what}\nreplay: SKEIN_SIM_SEED={seed} cargo test --profile checked -p skein-sim no_seed -- --nocapture"
        )
    }
}

/// A replica in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    replica: u64,
    life: u64,
}

#[derive(Debug)]
enum Event {
    /// A node wakes by itself.
    Wake(Life),
    /// A peer's message arrives.
    Frames {
        from: u64,
        to: u64,
        connection: u64,
        frames: Frames,
    },
    /// A node learns that it is connected to another one,
    Joined {
        at: Life,
        peer: u64,
        connection: u64,
    },
    /// or disconnected.
    Lost {
        at: Life,
        peer: u64,
        connection: u64,
    },
    Dial(u64, u64),
    /// A connection ends, as the second is no member any more.
    Part {
        from: u64,
        to: u64,
        connection: u64,
    },
    /// A node checks whether a connection is silent.
    LookAtPeers(Life),
    /// A sync ends.
    Synced(Life),
    /// The log's witness is due.
    Witness(Life),
    OldRead(Life, OldEntries),
    ArenaMade(Life, Sizes, u64),
    Launched(Life, u64),
    ServerRuns(Life, u64),
    ServerWakes(Life, u64),
    ServerEnded(Life, u64, i32),
    ServerGoesOn(u64),
    /// A server was read, and what its replica knew of it then.
    ImageCopied(Life, u64, Box<ServerState>),
    ImageWritten(Life, Box<Shelved>),
    /// Other news of images.
    Images(Life, Box<ImageNews>),
    Start(u64),
    Continue(u64),
    Heal,
    Room(u64),
    DiskWorks(u64),
    Fault,
    FirstLeaderDies(Life),
    /// A client's next step.
    Client(usize, u64),
    Connect(usize, u64),
    ToNode {
        client: usize,
        epoch: u64,
        bytes: Vec<u8>,
    },
    FromNode {
        client: usize,
        epoch: u64,
        bytes: Vec<u8>,
        ended: End,
    },
    GiveUp {
        client: usize,
        waiting: usize,
    },
    Impatient(usize, u64),
    /// A client closes a connection that the server has closed before.
    HangUp(u64, Rc<RefCell<Wire>>),
    Took(Life, Rc<RefCell<Wire>>),
    /// A host outside acts on a connection that a node began.
    Outside(Life, ConnId, outside::Does),
    /// The server gets a datagram from outside.
    Datagram,
    /// The operator looks at what is wanted.
    Operator,
    /// A node gets another version of Skein.
    Install,
    /// An operator has read that a node's version is too old.
    Renew(u64),
    /// The scenario's one fault.
    Break,
    /// A server that cannot work acts as it does.
    Spoil(Life, u64),
    /// Clients are to end the server.
    Finale,
    /// A node that has ended closes its connections.
    Gone(u64),
}

impl Event {
    /// The node whose kernel keeps the event while the node's process is stopped.
    const fn waits_for(&self) -> Option<u64> {
        match self {
            Self::Frames { to, .. } => Some(*to),
            Self::Joined { at, .. }
            | Self::Lost { at, .. }
            | Self::Synced(at)
            | Self::OldRead(at, _)
            | Self::ArenaMade(at, ..)
            | Self::Launched(at, _)
            | Self::ImageCopied(at, ..)
            | Self::ImageWritten(at, _)
            | Self::Images(at, _)
            | Self::Outside(at, ..)
            | Self::ServerEnded(at, ..) => Some(at.replica),
            _ => None,
        }
    }
}

/// The reading of a wall clock with this error.
fn wall(now_us: u64, off_us: i64) -> WallNs {
    WallNs((BEGINS_US + now_us).saturating_add_signed(off_us) * 1000)
}

pub(crate) struct World {
    seed: u64,
    options: Options,
    plan: Plan,
    rng: SimRng,
    now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    order: u64,
    machines: Machines,
    /// Events for a stopped node.
    backlog: BTreeMap<u64, VecDeque<Event>>,
    network: Network,
    clients: Vec<Client>,
    history: Vec<Operation>,
    per_key: BTreeMap<u64, usize>,
    next_value: u64,
    checker: Checker,
    /// The committed entries when the faults had ended.
    goal: Option<LogIndex>,
    /// The time since when all work was done and no client has asked.
    quiet_since_us: Option<u64>,
    /// The number of checks that failed while no client asked.
    unquiet: u32,
    /// The time since when clients end the server, and the ends of its nodes.
    finale_since_us: Option<u64>,
    ends: BTreeMap<u64, (LogIndex, i32)>,
    /// Operators who sent a signal and wait for an answer.
    signals: Vec<oneshot::Receiver<Result<u64, String>>>,
    lag: lag::Lag,
    /// Until when each server stands for its last image, in us,
    standing: BTreeMap<u64, u64>,
    /// and how often two followers' did so at one time.
    stood_together: usize,
    idle: idle::Idle,
    /// The replica that the scenario broke.
    broken: u64,
    returns: Option<broken::Return>,
    refused: bool,
    operator: operator::Operator,
    effects: usize,
    faults: usize,
    rebuilds: usize,
    planned: usize,
    /// Servers that began to answer otherwise than others,
    different: usize,
    /// and those whose memory alone differed from then on.
    flips: usize,
    mended: usize,
    /// A server was rebuilt without a reason.
    alarm: Option<String>,
    fingerprint: u64,
    /// All images that were ever taken.
    images: Vec<Imaged>,
    /// The number of those that another replica received, and of servers that continued from one.
    fetched: usize,
    restores: usize,
    not_restored: usize,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let mut rng = SimRng::new(seed);
        let plan = Plan::new(seed, &mut rng, options);
        let bad_clock = 1 + rng.below(plan.replicas);
        let clock =
            |id: u64| id as i64 * 1000 + if id == bad_clock { plan.bad_clock_us } else { 0 };
        let mut world = Self {
            seed,
            options: options.clone(),
            rng,
            now_us: 0,
            queue: BTreeMap::new(),
            order: 0,
            machines: (1..=plan.replicas)
                .map(|id| {
                    let peers = (1..).zip(plan.kinds.iter().copied()).collect();
                    Machine::new(id, peers, clock(id), plan.levels.first())
                })
                .collect(),
            backlog: BTreeMap::new(),
            network: Network::default(),
            clients: (0..plan.clients).map(|_| Client::default()).collect(),
            history: Vec::new(),
            per_key: BTreeMap::new(),
            next_value: 0,
            checker: Checker::default(),
            goal: None,
            quiet_since_us: None,
            unquiet: 0,
            finale_since_us: None,
            ends: BTreeMap::new(),
            signals: Vec::new(),
            lag: lag::Lag::default(),
            standing: BTreeMap::new(),
            stood_together: 0,
            idle: idle::Idle::default(),
            broken: 0,
            returns: None,
            refused: false,
            operator: operator::Operator::default(),
            effects: 0,
            faults: 0,
            rebuilds: 0,
            planned: 0,
            different: 0,
            flips: 0,
            mended: 0,
            alarm: None,
            fingerprint: 0,
            images: Vec::new(),
            fetched: 0,
            restores: 0,
            not_restored: 0,
            plan,
        };
        for id in 1..=world.plan.replicas {
            let delay = world.rng.below(10_000);
            world.schedule(delay, Event::Start(id));
        }
        for (low, high) in world.pairs() {
            world.schedule(10_000, Event::Dial(low, high));
        }
        for client in 0..world.clients.len() {
            let at = 300_000 + world.rng.below(100_000);
            world.ask_later(client, at);
        }
        if world.plan.fault_every_us > 0 {
            world.schedule(400_000, Event::Fault);
        }
        if options.scenario != Scenario::Random {
            // After what is to end has ended.
            world.schedule(world.plan.faults_until_us + 20_000, Event::Break);
        }
        if world.plan.operator {
            world.schedule(500_000, Event::Operator);
        }
        if matches!(world.plan.levels, Levels::Grow(_)) {
            world.schedule(500_000, Event::Install);
        }
        if world.plan.datagrams_us > 0 {
            world.schedule(400_000, Event::Datagram);
        }
        let plan = world.plan.clone();
        world.trace(|| format!("{plan:?}"));
        world
    }

    pub(crate) fn run(mut self) -> Result<Report, Failure> {
        match self.run_to_end() {
            Ok(()) => Ok(Report {
                founders: self.plan.replicas,
                members: self.members().len(),
                entries: self.checker.extent().0,
                answered: self.history.iter().filter(|op| op.returned_us.is_some()).count(),
                operations: self.history.len(),
                terms: self.checker.terms(),
                faults: self.faults,
                rebuilds: self.rebuilds,
                flips: self.flips,
                mended: self.mended,
                images: self.images.len(),
                in_turn: match self.plan.checkpoint.leader_intervals {
                    0 => self.images.len(),
                    _ => 0,
                },
                stood_together: self.stood_together,
                fetched: self.fetched,
                restores: self.restores,
                not_restored: self.not_restored,
                changes: self.operator.done,
                forgot: self.forgot(),
                served_after_us: self.served_after_us().unwrap_or_default(),
                silence_us: self.silence_us(),
                effects: self.effects,
                leader: self.leader().unwrap_or_default(),
                lag_us: self.lag.longest_us,
                idle_syncs: self.idle.most_syncs(),
                idle_wakes: self.idle.most_wakes(),
                idle_leaders: self.idle.leaders(self.checker.terms()),
                idle_entries: self.idle.entries(self.entries()),
                planned: self.planned,
                idle_heard_us: self.idle.heard_after_us,
                idle_us: self.idle.took_us(self.now_us),
                said_after_us: self.idle.said_after_us,
                broken: self.broken,
                in_step_after_us: self.in_step_after_us(),
                refused: self.refused,
                undone: self.checker.undone(),
                took_us: self.now_us,
                fingerprint: self.fingerprint,
            }),
            Err(what) => Err(Failure { seed: self.seed, at_us: self.now_us, what }),
        }
    }

    fn run_to_end(&mut self) -> Result<(), String> {
        let mut ended = false;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now_us = at;
            if self.queue.len() > MAX_UNDER_WAY {
                let many = self.queue.len();
                return Err(format!("{many} events are under way: {}", self.describe()));
            }
            if !ended && at >= self.plan.faults_until_us {
                ended = true;
                self.end_faults();
            }
            if ended && self.is_at_end()? {
                return Ok(());
            }
            self.dispatch(event)?;
        }
        Err("nothing happens any more".to_owned())
    }

    fn describe(&self) -> String {
        let line = |machine: &Machine| match &machine.process {
            None => format!("{}: down", machine.id),
            Some(process) => {
                let status = process.replica.consensus().status();
                let server = process.replica.server();
                let server = server.map_or((0, 0), |link| (link.admitted.0, link.generation));
                format!(
                    "{}{}{}: {} {} level {} of {} term {} commit {} last {} from {} image {} server {} of generation {}{}{}",
                    machine.id,
                    if machine.retired {
                        " (retired)"
                    } else if machine.lost {
                        " (lost)"
                    } else {
                        ""
                    },
                    if machine.stopped { " (stopped)" } else { "" },
                    machine.kind(),
                    status.role,
                    process.replica.consensus().agreed_level(),
                    machine.level,
                    status.term,
                    status.commit,
                    status.last_index,
                    status.first_index,
                    process.replica.snapshot().replica.images.index,
                    server.0,
                    server.1,
                    if process.server_lives { "" } else { " (down)" },
                    if process.replica.serves() { " serves" } else { "" },
                )
            }
        };
        let lines: Vec<_> = self.machines.values().map(line).collect();
        let (members, operator) = (self.members(), &self.operator);
        format!(
            "{}; members {members:?}, {operator:?}; the goal is {:?}",
            lines.join("; "),
            self.goal
        )
    }

    /// The number of replicas whose log begins later than with entry 1.
    fn forgot(&self) -> usize {
        let forgot = |machine: &&Machine| {
            let process = machine.process.as_ref();
            process.is_some_and(|p| p.replica.consensus().first_index() > LogIndex(1))
        };
        self.machines.values().filter(forgot).count()
    }

    fn schedule(&mut self, delay_us: u64, event: Event) {
        self.schedule_at(self.now_us + delay_us, event);
    }

    fn schedule_at(&mut self, at_us: u64, event: Event) {
        self.order += 1;
        self.queue.insert((at_us, self.order), event);
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if self.options.trace {
            println!("{:>9} {}", self.now_us, line());
        }
    }

    fn mix(&mut self, number: u64) {
        self.fingerprint =
            (self.fingerprint ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    fn at(&mut self, id: u64) -> &mut Machine {
        self.machines.get_mut(id)
    }

    fn life(&self, id: u64) -> Life {
        Life { replica: id, life: self.machines[&id].life }
    }

    fn lives(&self, life: Life) -> bool {
        let machine = &self.machines[&life.replica];
        machine.life == life.life && machine.process.is_some()
    }

    fn delay(&mut self) -> u64 {
        100 + self.rng.below(self.plan.delay_us)
    }

    fn dispatch(&mut self, event: Event) -> Result<(), String> {
        if let Some(id) = event.waits_for().filter(|id| self.machines[id].stopped) {
            self.backlog.entry(id).or_default().push_back(event);
            return Ok(());
        }
        match event {
            Event::Wake(life) => self.wake(life),
            Event::ImageCopied(life, generation, state) => {
                self.image_copied(life, generation, *state)
            }
            Event::ImageWritten(life, image) => self.image_written(life, *image),
            Event::Images(life, news) => {
                if let ImageNews::Named(index) = &*news {
                    self.image_named(life, *index);
                }
                self.tell(life, Inbox::Images(*news))
            }
            Event::Frames { from, to, connection, frames } => {
                self.frames(from, to, connection, frames)
            }
            Event::Joined { at, peer, connection } => self.joined(at, peer, connection),
            Event::Lost { at, peer, connection } => self.lost(at, peer, connection),
            Event::Dial(low, high) => {
                self.dial(low, high);
                Ok(())
            }
            Event::Part { from, to, connection } => {
                self.part(from, to, connection);
                Ok(())
            }
            Event::LookAtPeers(life) => self.look_at_peers(life),
            Event::Synced(life) => self.synced(life),
            Event::Witness(life) => self.witness(life),
            Event::OldRead(life, wanted) => self.old_read(life, &wanted),
            Event::ArenaMade(life, sizes, generation) => self.arena_made(life, sizes, generation),
            Event::Launched(life, generation) => self.launched(life, generation),
            Event::ServerRuns(life, generation) => self.server_runs(life, generation),
            Event::ServerWakes(life, generation) => self.server_wakes(life, generation),
            Event::ServerEnded(life, generation, status) => {
                self.server_ended(life, generation, status)
            }
            Event::ServerGoesOn(id) => {
                if let Some(process) = &mut self.at(id).process {
                    process.server_hangs = false;
                }
                self.round(id)
            }
            Event::Start(id) => self.start(id),
            Event::Continue(id) => self.go_on(id),
            Event::Heal => {
                self.heal();
                Ok(())
            }
            Event::Room(id) => self.make_room(id),
            Event::DiskWorks(id) => self.disk_works(id),
            Event::Fault => self.fault(),
            Event::FirstLeaderDies(life) => {
                self.first_leader_dies(life);
                Ok(())
            }
            Event::Client(client, epoch) => {
                self.client(client, epoch);
                Ok(())
            }
            Event::Connect(client, target) => self.connect(client, target),
            Event::ToNode { client, epoch, bytes } => self.reach_node(client, epoch, &bytes),
            Event::FromNode { client, epoch, bytes, ended } => {
                self.reach_client(client, epoch, &bytes, ended)
            }
            Event::GiveUp { client, waiting } => self.give_up(client, waiting),
            Event::Impatient(client, epoch) => self.impatient(client, epoch),
            Event::HangUp(target, wire) => self.hang_up(target, &wire),
            Event::Took(life, wire) => self.took(life, &wire),
            Event::Outside(life, conn, does) => self.outside_does(life, conn, does),
            Event::Datagram => self.datagram(),
            Event::Operator => self.operate(),
            Event::Install => {
                self.install();
                Ok(())
            }
            Event::Renew(id) => {
                self.renew(id);
                Ok(())
            }
            Event::Break => self.break_one(),
            Event::Spoil(life, generation) => {
                self.spoil(life, generation);
                Ok(())
            }
            Event::Finale => self.ask_for_the_end(),
            Event::Gone(id) => {
                self.at(id).lost = true;
                self.kill(id, true);
                Ok(())
            }
        }
    }

    fn leader(&self) -> Option<u64> {
        let leads = |machine: &Machine| {
            let consensus = machine.process.as_ref()?.replica.consensus();
            (consensus.role() == Role::Leader).then(|| (consensus.term(), machine.id.0))
        };
        self.machines.values().filter_map(leads).max().map(|(_, id)| id)
    }

    fn pairs(&self) -> Vec<(u64, u64)> {
        let ids = self.ids();
        let with = |low: u64| ids.iter().map(move |high| (low, *high));
        ids.iter().flat_map(|low| with(*low)).filter(|(low, high)| low < high).collect()
    }
}

/// A replica's id in the world's numbering.
const fn id(replica: ReplicaId) -> u64 {
    replica.0
}

const fn us(duration: Duration) -> u64 {
    duration.as_micros() as u64
}
