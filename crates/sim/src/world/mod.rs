//! The world around the replicas: time, network, machines, and what goes wrong with them.
//!
//! One queue of events in order of time; all chance comes from one generator. Nothing depends on addresses, threads or
//! the real clock, so a seed is a whole history.

mod clients;
mod faults;

use crate::{
    check::Checker,
    client::Client,
    history::{self, Operation},
    options::{Break, Options, Plan},
    replica::{Link, Process, Replica, Turn, Wire},
};
use skein_log::{
    Outgoing, Role,
    disk::sim::{Faults, SimDisk, SimRng},
};
use skein_model::{ReplicaId, WallNs};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    rc::Rc,
    time::Duration,
};

const TICK_US: u64 = 10_000;
/// The log's witness is written so often.
const TICKS_TO_WITNESS: u64 = 50;
/// Operations a register: what the search for an order can take.
const OPERATIONS_PER_KEY: usize = 100;
/// How long clients go on after the last fault.
const CALM_US: u64 = 2_000_000;
/// By then all replicas must agree.
const CONVERGED_BY_US: u64 = 10_000_000;
/// 365 days.
const YEAR_US: u64 = 365 * 24 * 3600 * 1_000_000;
/// The true time at the start: 1980.
const BEGINS_US: u64 = 10 * YEAR_US;

/// What a run was like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Committed entries.
    pub entries: usize,
    /// Operations that were answered, and all of them.
    pub answered: usize,
    /// All operations.
    pub operations: usize,
    /// Terms in which somebody led.
    pub terms: usize,
    /// Faults injected.
    pub faults: usize,
    /// Servers that had executed what was not committed, and began anew.
    pub astray: usize,
    /// A digest over everything that happened: equal for equal seeds.
    pub fingerprint: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// When, in simulated time.
    pub at_us: u64,
    /// What.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, at_us, what } = self;
        write!(
            f,
            "seed {seed} at {at_us} us: {what}\nreplay: SKEIN_SIM_SEED={seed} cargo test -p skein-sim -- --nocapture"
        )
    }
}

#[derive(Debug)]
enum Event {
    Tick(u64),
    /// A message between nodes arrives.
    Message {
        from: u64,
        to: u64,
        bytes: Vec<u8>,
    },
    /// A sync ends.
    Synced {
        replica: u64,
        life: u64,
    },
    /// A node learns that its connection to another one closed.
    PeerLost {
        replica: u64,
        life: u64,
        peer: u64,
    },
    Start(u64),
    Continue(u64),
    Heal,
    Fault,
    CatchUp(u64),
    /// A client does the next thing.
    Client(usize),
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
        ended: bool,
    },
    GiveUp {
        client: usize,
        waiting: usize,
    },
    Took {
        replica: u64,
        life: u64,
        wire: Rc<RefCell<Wire>>,
    },
}

/// What a wall clock shows that is off by so much.
fn shows(now: Duration, off_us: i64) -> WallNs {
    let us = BEGINS_US + now.as_micros() as u64;
    WallNs(us.saturating_add_signed(off_us) * 1000)
}

pub(crate) struct World {
    seed: u64,
    options: Options,
    plan: Plan,
    rng: SimRng,
    now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    order: u64,
    replicas: BTreeMap<u64, Replica>,
    /// What waits for a stopped node.
    backlog: BTreeMap<u64, VecDeque<Event>>,
    cut: BTreeSet<(u64, u64)>,
    clients: Vec<Client>,
    history: Vec<Operation>,
    per_key: BTreeMap<u64, usize>,
    next_value: u64,
    checker: Checker,
    faults: usize,
    astray: usize,
    fingerprint: u64,
}

impl World {
    pub(crate) fn new(seed: u64, options: &Options) -> Self {
        let mut rng = SimRng::new(seed);
        let plan = Plan::new(&mut rng, options);
        let machine = |id| Replica {
            id: ReplicaId(id),
            life: 0,
            incarnation: 0,
            disk: SimDisk::new(),
            begin: Some(0),
            process: None,
            stopped: false,
            clock_offset_us: id as i64 * 1000,
        };
        let mut world = Self {
            seed,
            options: options.clone(),
            rng,
            now_us: 0,
            queue: BTreeMap::new(),
            order: 0,
            replicas: (1..=plan.replicas).map(|id| (id, machine(id))).collect(),
            backlog: BTreeMap::new(),
            cut: BTreeSet::new(),
            clients: (0..plan.clients).map(|_| Client::default()).collect(),
            history: Vec::new(),
            per_key: BTreeMap::new(),
            next_value: 0,
            checker: Checker::default(),
            faults: 0,
            astray: 0,
            fingerprint: 0,
            plan,
        };
        for id in 1..=world.plan.replicas {
            world.schedule(0, Event::Start(id));
            let first_tick = world.rng.below(TICK_US);
            world.schedule(first_tick, Event::Tick(id));
        }
        for client in 0..world.clients.len() {
            let at = 300_000 + world.rng.below(100_000);
            world.schedule(at, Event::Client(client));
        }
        if world.plan.fault_every_us > 0 {
            world.schedule(400_000, Event::Fault);
        }
        world
    }

    pub(crate) fn run(mut self) -> Result<Report, Failure> {
        match self.run_to_end() {
            Ok(()) => Ok(Report {
                entries: self.checker.extent().0,
                answered: self.history.iter().filter(|op| op.returned_us.is_some()).count(),
                operations: self.history.len(),
                terms: self.checker.terms(),
                faults: self.faults,
                astray: self.astray,
                fingerprint: self.fingerprint,
            }),
            Err(what) => Err(Failure { seed: self.seed, at_us: self.now_us, what }),
        }
    }

    fn run_to_end(&mut self) -> Result<(), String> {
        let mut ended = false;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now_us = at;
            if !ended && at >= self.plan.faults_until_us {
                ended = true;
                self.end_faults();
            }
            if self.is_over() {
                return self.judge();
            }
            if at > CONVERGED_BY_US {
                return Err(format!("no agreement after the last fault: {}", self.describe()));
            }
            self.dispatch(event)?;
        }
        Err("nothing happens any more".to_owned())
    }

    fn judge(&self) -> Result<(), String> {
        history::check(&self.history)?;
        let late = |op: &&Operation| op.returned_us > Some(self.plan.faults_until_us);
        if !self.history.iter().any(|op| late(&op)) {
            return Err(format!("no answer after the last fault: {}", self.describe()));
        }
        Ok(())
    }

    /// All replicas have executed everything, and no client waits.
    fn is_over(&self) -> bool {
        let last = self.checker.extent().1;
        self.now_us > self.plan.faults_until_us + CALM_US
            && self.clients.iter().all(|client| client.waiting.is_none())
            && self.replicas.values().all(|replica| {
                let settled = |process: &Process| {
                    process.next_entry() > last && process.consensus.role() != Role::Learner
                };
                replica.process.as_ref().is_some_and(settled)
            })
    }

    fn describe(&self) -> String {
        let line = |replica: &Replica| match &replica.process {
            None => format!("{}: down", replica.id),
            Some(process) => {
                let status = process.consensus.status();
                format!(
                    "{}: {} term {} commit {} last {} next {}",
                    replica.id,
                    status.role,
                    status.term,
                    status.commit,
                    status.last_index,
                    process.next_entry()
                )
            }
        };
        self.replicas.values().map(line).collect::<Vec<_>>().join("; ")
    }

    fn schedule(&mut self, delay_us: u64, event: Event) {
        self.order += 1;
        self.queue.insert((self.now_us + delay_us, self.order), event);
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

    fn at(&mut self, id: u64) -> &mut Replica {
        self.replicas.get_mut(&id).expect("a replica")
    }

    fn process(&mut self, id: u64) -> Option<&mut Process> {
        self.at(id).process.as_mut()
    }

    fn delay(&mut self) -> u64 {
        100 + self.rng.below(self.plan.delay_us)
    }

    fn dispatch(&mut self, event: Event) -> Result<(), String> {
        // What a stopped process would do waits until it is continued; ticks do not: its timers fire once.
        let replica = match &event {
            Event::Message { to, .. } => Some(*to),
            Event::Synced { replica, .. } | Event::PeerLost { replica, .. } => Some(*replica),
            _ => None,
        };
        if let Some(id) = replica.filter(|id| self.replicas[id].stopped) {
            self.backlog.entry(id).or_default().push_back(event);
            return Ok(());
        }
        match event {
            Event::Tick(id) => self.tick(id),
            Event::Message { from, to, bytes } => self.message(from, to, &bytes),
            Event::Synced { replica, life } => self.synced(replica, life),
            Event::PeerLost { replica, life, peer } => {
                if self.at(replica).life == life
                    && let Some(process) = self.process(replica)
                {
                    process.consensus.peer_lost(ReplicaId(peer));
                    return self.turn(replica);
                }
                Ok(())
            }
            Event::Start(id) => self.start(id),
            Event::Continue(id) => self.go_on(id),
            Event::Heal => {
                self.cut.clear();
                Ok(())
            }
            Event::Fault => self.fault(),
            Event::CatchUp(id) => {
                if let Some(process) = self.process(id) {
                    process.lagging = false;
                }
                self.turn(id)
            }
            Event::Client(client) => {
                self.client(client);
                Ok(())
            }
            Event::Connect(client, target) => self.connect(client, target),
            Event::ToNode { client, epoch, bytes } => self.reach_node(client, epoch, &bytes),
            Event::FromNode { client, epoch, bytes, ended } => {
                self.reach_client(client, epoch, &bytes, ended)
            }
            Event::GiveUp { client, waiting } => self.give_up(client, waiting),
            Event::Took { replica, life, wire } => self.took(replica, life, &wire),
        }
    }

    fn tick(&mut self, id: u64) -> Result<(), String> {
        // Clocks run up to a tenth too fast or too slow.
        let period = TICK_US * (95 + id % 5 * 3) / 100;
        self.schedule(period, Event::Tick(id));
        if self.at(id).stopped {
            return Ok(());
        }
        self.tell_clocks(id);
        let witness = self.now_us / TICK_US % TICKS_TO_WITNESS == id;
        let Some(process) = self.process(id) else { return Ok(()) };
        process.consensus.tick();
        if witness && let Err(error) = process.witness() {
            self.disk_failed(id, &error);
            return Ok(());
        }
        self.turn(id)
    }

    /// Nodes tell each other what their wall clocks show.
    fn tell_clocks(&mut self, to: u64) {
        let now = Duration::from_micros(self.now_us);
        let runs = |replica: &Replica| replica.process.is_some() && !replica.stopped;
        let heard: Vec<(ReplicaId, WallNs)> = self
            .replicas
            .values()
            .filter(|from| runs(from) && from.id.0 != to && !self.cut.contains(&(from.id.0, to)))
            .map(|from| (from.id, shows(now, from.clock_offset_us)))
            .collect();
        let Some(process) = self.process(to) else { return };
        for (from, wall) in heard {
            process.clocks.heard(from, wall, now);
        }
    }

    fn message(&mut self, from: u64, to: u64, bytes: &[u8]) -> Result<(), String> {
        if self.cut.contains(&(from, to)) {
            return Ok(());
        }
        let Some(process) = self.process(to) else { return Ok(()) };
        match process.consensus.step(ReplicaId(from), bytes) {
            Ok(()) => self.turn(to),
            Err(error) => Err(format!("replica {to} refuses a message of {from}: {error}")),
        }
    }

    fn synced(&mut self, id: u64, life: u64) -> Result<(), String> {
        if self.at(id).life != life {
            return Ok(());
        }
        let Some(process) = self.process(id) else { return Ok(()) };
        match process.end_write() {
            Ok(()) => self.turn(id),
            Err(error) => {
                self.disk_failed(id, &error);
                Ok(())
            }
        }
    }

    /// Lets a replica do all that it can, and puts what comes out of it on its way.
    fn turn(&mut self, id: u64) -> Result<(), String> {
        let now = Duration::from_micros(self.now_us);
        let broken = self.options.broken;
        let replica = self.replicas.get_mut(&id).expect("a replica");
        let Some(process) = replica.process.as_mut().filter(|_| !replica.stopped) else {
            return Ok(());
        };
        let wall = shows(now, replica.clock_offset_us);
        let mut turn = Turn {
            now,
            true_time: shows(now, 0),
            checker: &mut self.checker,
            broken,
            messages: Vec::new(),
            roles: Vec::new(),
            violation: None,
            astray: 0,
        };
        process.turn(wall, &mut turn);
        let began = process.begin_write();
        let (messages, roles, violation) = (turn.messages, turn.roles, turn.violation);
        self.astray += turn.astray;
        if let Some(violation) = violation {
            return Err(violation);
        }
        for role in roles {
            self.trace(|| format!("{id}: {} in term {}", role.role, role.term));
            self.mix(id << 32 | role.term.0 << 8 | role.role as u64);
        }
        self.send_all(id, messages);
        match began {
            Ok(true) if broken == Some(Break::AckBeforeSync) => {
                self.process(id).expect("it runs").acknowledge_unsynced();
                return self.turn(id);
            }
            Ok(true) => {
                let delay = 50 + self.rng.below(self.plan.sync_us);
                let life = self.at(id).life;
                self.schedule(delay, Event::Synced { replica: id, life });
            }
            Ok(false) => {}
            Err(error) => {
                self.disk_failed(id, &error);
            }
        }
        self.carry_answers(id);
        Ok(())
    }

    fn send_all(&mut self, from: u64, messages: Vec<Outgoing>) {
        for Outgoing { to, bytes } in messages {
            let to = to.0;
            self.mix(bytes.len() as u64 ^ to << 40 ^ from << 48);
            if self.now_us < self.plan.faults_until_us && self.rng.chance(self.plan.loss) {
                continue;
            }
            if self.rng.chance(self.plan.repeat) {
                let delay = self.delay() * 3;
                self.schedule(delay, Event::Message { from, to, bytes: bytes.clone() });
            }
            let delay = self.delay();
            self.schedule(delay, Event::Message { from, to, bytes });
        }
    }

    fn start(&mut self, id: u64) -> Result<(), String> {
        if self.at(id).process.is_some() {
            return Ok(());
        }
        let seed = self.rng.next_u64();
        let (plan, broken) = (self.plan.clone(), self.options.broken);
        let replica = self.at(id);
        // Whatever the disk had, somebody repaired it.
        replica.disk.set_faults(Faults {
            lie_about_sync: broken == Some(Break::LyingDisk),
            ..Faults::default()
        });
        match Process::start(replica.id, &replica.disk, replica.begin, &plan, broken, seed) {
            Ok((process, incarnation)) => {
                replica.process = Some(process);
                replica.begin = None;
                replica.incarnation = incarnation;
                replica.life += 1;
                replica.stopped = false;
            }
            Err(error) => return Err(format!("replica {id} cannot start again: {error}")),
        }
        self.trace(|| format!("{id}: starts"));
        self.say_hello(id);
        self.turn(id)
    }

    /// Nodes tell each other their incarnations when they connect.
    fn say_hello(&mut self, id: u64) {
        let incarnations: Vec<(u64, u64)> =
            self.replicas.iter().map(|(id, replica)| (*id, replica.incarnation)).collect();
        for (peer, replica) in &mut self.replicas {
            let Some(process) = &mut replica.process else { continue };
            for (other, incarnation) in &incarnations {
                if *peer == id || *other == id {
                    process.consensus.request_rejoin(ReplicaId(*other), *incarnation);
                }
            }
        }
    }

    /// The process dies; `noticed` if its peers' connections close by that.
    fn kill(&mut self, id: u64, noticed: bool) {
        let replica = self.at(id);
        let Some(process) = replica.process.take() else { return };
        replica.life += 1;
        replica.stopped = false;
        replica.disk.kill_process();
        self.backlog.remove(&id);
        self.trace(|| format!("{id}: dies"));
        for Link { client, epoch, .. } in process.links.iter().filter(|_| noticed) {
            let delay = self.delay();
            let (client, epoch) = (*client, *epoch);
            self.schedule(delay, Event::FromNode { client, epoch, bytes: Vec::new(), ended: true });
        }
        drop(process);
        if noticed {
            for peer in 1..=self.plan.replicas {
                let (delay, life) = (self.delay(), self.at(peer).life);
                self.schedule(delay, Event::PeerLost { replica: peer, life, peer: id });
            }
        }
        let delay = 50_000 + self.rng.below(700_000);
        self.schedule(delay, Event::Start(id));
    }

    fn go_on(&mut self, id: u64) -> Result<(), String> {
        if !std::mem::take(&mut self.at(id).stopped) {
            return Ok(());
        }
        self.trace(|| format!("{id}: goes on"));
        let backlog = self.backlog.remove(&id).unwrap_or_default();
        // What it was about to do comes first, then what waited; or the other way round.
        if self.rng.chance(50) {
            self.turn(id)?;
        }
        for event in backlog {
            self.dispatch(event)?;
        }
        let now = Duration::from_micros(self.now_us);
        if let Some(process) = self.process(id) {
            let wires: Vec<_> = process.links.iter().map(|link| link.wire.clone()).collect();
            wires.iter().for_each(|wire| process.client_spoke(wire, now));
        }
        self.turn(id)
    }

    fn leader(&self) -> Option<u64> {
        let leads = |(id, replica): (&u64, &Replica)| {
            let consensus = &replica.process.as_ref()?.consensus;
            (consensus.role() == Role::Leader).then(|| (consensus.term(), *id))
        };
        self.replicas.iter().filter_map(leads).max().map(|(_, id)| id)
    }
}
