//! Replicas in one process: real consensus, real write-ahead log on simulated disks, a network that a test steers.

// Each test file uses its own part of this.
#![allow(dead_code)]

use skein_log::{
    Base, Batch, ClusterId, Config, Consensus, Durability, Kind, Outgoing, Place, ProgramHash,
    Role, StepError,
    disk::{
        Disk,
        sim::{SimDisk, SimRng},
    },
    wal::{Wal, WalOptions},
    wire,
};
use skein_model::{LogIndex, ReplicaId, Term};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// One replica: consensus, log, and a state machine that remembers what it executed.
pub struct Replica {
    pub consensus: Consensus,
    pub wal: Option<Wal>,
    pub disk: SimDisk,
    pub executed: Vec<Executed>,
    pub alive: bool,
    /// It neither runs nor reads, but its messages wait: SIGSTOP.
    pub stopped: bool,
    /// It reads its messages, and does not come to act on them.
    pub busy: bool,
    pub incarnation: u64,
    /// The shortest ticks since its last one.
    waited: u32,
    /// Its configuration's peers.
    voters: Vec<u64>,
    /// Persists are not written until this is false again.
    pub slow_disk: bool,
    pending: VecDeque<skein_log::Persist>,
    pub refused: Vec<StepError>,
    /// Images of the state machine on this replica's disk, by the last entry in them.
    pub images: BTreeMap<u64, Vec<Executed>>,
}

/// Where a replica is said to be.
pub fn address(id: u64) -> String {
    format!("host-{id}:7100")
}

/// Whether another step is left.
fn step(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
        None => true,
    }
}

/// An executed entry: index, term, payload.
pub type Executed = (LogIndex, Term, String);

/// Replicas 1 to n and the messages between them.
pub struct Cluster {
    pub replicas: BTreeMap<u64, Replica>,
    pub network: VecDeque<(u64, Outgoing)>,
    pub cut: BTreeSet<(u64, u64)>,
    /// The events in words: role changes, and messages if `trace`.
    pub events: Vec<String>,
    pub trace: bool,
    durability: Durability,
    config: fn(&mut Config),
    count: u64,
    /// Where logs begin that are begun.
    pub base: Option<Base>,
    /// Leaders bring their newest image to members who need one.
    pub brings_images: bool,
    /// The steps of writes, on all disks, until all of them hang: a write, or its sync.
    pub steps_left: Option<u64>,
    /// Some messages are lost.
    pub loses: Option<SimRng>,
    /// What this replica sends arrives so many calls of `settle` later.
    pub slow: Option<(u64, usize)>,
    /// What is on its way so, and the calls that are left.
    late: VecDeque<(usize, u64, Outgoing)>,
}

pub const CLUSTER: ClusterId = ClusterId(7);
pub const PROGRAM: ProgramHash = ProgramHash([9; 32]);

pub fn wal_options() -> WalOptions {
    WalOptions { segment_bytes: 4096, tail_bytes: 256, ..WalOptions::new(CLUSTER, PROGRAM) }
}

impl Replica {
    #[allow(clippy::too_many_arguments)]
    fn start(
        id: u64,
        voters: Vec<u64>,
        durability: Durability,
        incarnation: u64,
        disk: SimDisk,
        adjust: fn(&mut Config),
        base: Option<&Base>,
        images: BTreeMap<u64, Vec<Executed>>,
    ) -> Self {
        let ids: Vec<_> = voters.iter().copied().map(ReplicaId).collect();
        let places = ids.iter().map(|id| (*id, Place::at(address(id.0)))).collect();
        let config = Config::new(ReplicaId(id), ids);
        let mut config = Config { durability, incarnation, places, ..config };
        // Readable scenarios: timeouts differ by replica and nothing else.
        config.election_ticks = 10;
        config.recent_bytes = 64;
        adjust(&mut config);
        let (consensus, wal) = match durability {
            Durability::Memory => (Consensus::new(config, Default::default(), None), None),
            Durability::Fsync => {
                let shared = Arc::new(disk.clone());
                let opened = match disk.list().expect("a disk").is_empty() {
                    true => {
                        Wal::create_after(shared, wal_options(), base.cloned().unwrap_or_default())
                    }
                    false => Wal::open(shared, wal_options()),
                };
                let opened = opened.expect("the log opens");
                let reader = Box::new(opened.wal.reader());
                (Consensus::new(config, opened.recovered, Some(reader)), Some(opened.wal))
            }
        };
        let mut replica = Self {
            consensus: consensus.expect("consensus starts"),
            wal,
            disk,
            executed: Vec::new(),
            alive: true,
            stopped: false,
            busy: false,
            incarnation,
            waited: 0,
            voters,
            slow_disk: false,
            pending: VecDeque::new(),
            refused: Vec::new(),
            images,
        };
        replica.hold_images();
        replica.refill();
        replica
    }

    /// A fresh state machine executes the log, behind the newest image, if there is one.
    pub fn refill(&mut self) {
        let image = self.consensus.newest_image().map(|index| (index, &self.images[&index.0]));
        self.executed = image.map(|(_, executed)| executed.clone()).unwrap_or_default();
        let mut next = image.map_or(self.consensus.first_index(), |(index, _)| index.next());
        loop {
            let chunk = self.consensus.entries(next, 100).expect("the log can be read");
            if chunk.next == next {
                return;
            }
            next = chunk.next;
            for entry in chunk.entries {
                let payload = String::from_utf8_lossy(&entry.payload).into_owned();
                self.executed.push((entry.index, entry.term, payload));
            }
        }
    }

    /// Takes an image of what is executed, durably.
    pub fn take_image(&mut self) -> LogIndex {
        let index = self.consensus.applied();
        self.images.insert(index.0, self.executed.clone());
        self.hold_images();
        index
    }

    /// Tells consensus which images there are.
    pub fn hold_images(&mut self) {
        self.consensus.hold_images(self.images.keys().copied().map(LogIndex));
    }

    fn write_pending(&mut self, steps_left: &mut Option<u64>) {
        let Some(wal) = &mut self.wal else { return };
        let Some(ticket) = self.pending.back().map(|persist| persist.ticket) else { return };
        for persist in self.pending.drain(..) {
            wal.append(&persist).expect("the log takes it");
        }
        if !step(steps_left) {
            // It hangs with what is written and not synced.
            return;
        }
        wal.sync().expect("the disk works");
        wal.prepare().expect("the disk works");
        self.consensus.persisted(ticket);
    }
}

impl Cluster {
    pub fn new(count: u64, durability: Durability) -> Self {
        Self::with(count, durability, |_| {})
    }

    pub fn with(count: u64, durability: Durability, config: fn(&mut Config)) -> Self {
        Self::make(count, durability, config, None)
    }

    /// Logs on disk, all of which begin after `base`.
    pub fn after(base: Base, count: u64, config: fn(&mut Config)) -> Self {
        Self::make(count, Durability::Fsync, config, Some(base))
    }

    fn make(
        count: u64,
        durability: Durability,
        config: fn(&mut Config),
        base: Option<Base>,
    ) -> Self {
        let start = |id| {
            let (disk, images) = (SimDisk::new(), BTreeMap::new());
            let voters = (1..=count).collect();
            Replica::start(id, voters, durability, 0, disk, config, base.as_ref(), images)
        };
        let replicas = (1..=count).map(|id| (id, start(id))).collect();
        let network = VecDeque::new();
        Self {
            replicas,
            network,
            cut: BTreeSet::new(),
            events: Vec::new(),
            trace: false,
            durability,
            config,
            count,
            base,
            brings_images: false,
            steps_left: None,
            loses: None,
            slow: None,
            late: VecDeque::new(),
        }
    }

    pub fn at(&mut self, id: u64) -> &mut Replica {
        self.replicas.get_mut(&id).expect("a replica")
    }

    fn handle(&mut self, id: u64, batch: Batch) {
        if let Some(role) = batch.role {
            let leader = role.leader.map_or("nobody".to_owned(), |leader| leader.to_string());
            let (role, term) = (role.role, role.term);
            self.events.push(format!("{id}: {role} in term {term}, leader {leader}"));
        }
        self.network.extend(batch.messages.into_iter().map(|message| (id, message)));
        if let Some(base) = &batch.reset {
            self.events.push(format!("{id}: continues from the image at {}", base.index));
        }
        let replica = self.at(id);
        if let Some(base) = batch.reset {
            let image = replica.images.get(&base.index.0).cloned();
            // A witness executes nothing, and needs none.
            let needs_none = replica.consensus.kind_of(ReplicaId(id)) == Kind::Witness;
            let none = needs_none.then(Vec::new);
            replica.executed = image.or(none).expect("an image that this replica holds");
        }
        replica.pending.extend(batch.persist);
        for entry in batch.committed {
            let payload = String::from_utf8_lossy(&entry.payload).into_owned();
            replica.executed.push((entry.index, entry.term, payload));
        }
    }

    /// Does all duties of replica `id`.
    pub fn run(&mut self, id: u64) {
        loop {
            let replica = self.at(id);
            if !replica.alive || replica.stopped || replica.busy {
                return;
            }
            if let Some(batch) = replica.consensus.take_ready() {
                self.handle(id, batch);
            } else {
                let writes = !replica.slow_disk && !replica.pending.is_empty();
                if !writes || !step(&mut self.steps_left) {
                    return;
                }
                let mut left = self.steps_left;
                self.at(id).write_pending(&mut left);
                self.steps_left = left;
            }
        }
    }

    /// Delivers messages until none is left.
    pub fn settle(&mut self) {
        let ids: Vec<u64> = self.replicas.keys().copied().collect();
        ids.iter().for_each(|id| self.run(*id));
        let mut waiting = VecDeque::new();
        for (from, message) in self.come_late() {
            self.deliver(from, message, &mut waiting);
        }
        while let Some((from, message)) = self.network.pop_front() {
            if let Some((_, calls)) = self.slow.filter(|(slow, _)| *slow == from) {
                self.late.push_back((calls, from, message));
            } else {
                self.deliver(from, message, &mut waiting);
            }
        }
        self.network = waiting;
    }

    /// What a slow replica has sent, and arrives now; all if it is slow no more.
    fn come_late(&mut self) -> Vec<(u64, Outgoing)> {
        self.late.iter_mut().for_each(|(left, ..)| *left -= 1);
        let is_due = |(left, ..): &&(usize, u64, Outgoing)| *left == 0 || self.slow.is_none();
        let come = self.late.iter().take_while(is_due).count();
        self.late.drain(..come).map(|(_, from, message)| (from, message)).collect()
    }

    fn deliver(&mut self, from: u64, message: Outgoing, waiting: &mut VecDeque<(u64, Outgoing)>) {
        let to = message.to.0;
        if self.trace {
            let lost = self.cut.contains(&(from, to)) || !self.at(to).alive;
            let what = wire::describe(&message.bytes).expect("replicas send messages");
            let end = if lost { " (lost)" } else { "" };
            self.events.push(format!("  {from} -> {to}: {what}{end}"));
        }
        if self.loses.as_mut().is_some_and(|rng| rng.chance(10)) {
            return;
        }
        if self.at(to).stopped {
            waiting.push_back((from, message));
        } else if self.at(to).alive && !self.cut.contains(&(from, to)) {
            if let Err(error) = self.at(to).consensus.step(ReplicaId(from), &message.bytes) {
                self.at(to).refused.push(error);
            }
            self.run(to);
        }
    }

    /// The shortest tick everywhere, and all its effects.
    pub fn tick(&mut self) {
        for replica in
            self.replicas.values_mut().filter(|replica| replica.alive && !replica.stopped)
        {
            replica.waited += 1;
            if replica.waited >= replica.consensus.pace() {
                replica.waited = 0;
                replica.consensus.tick();
            }
        }
        self.settle();
        if self.brings_images {
            self.bring_images();
        }
    }

    /// Leaders bring their newest images to members who need one.
    fn bring_images(&mut self) {
        for from in 1..=self.count {
            if !self.at(from).alive {
                continue;
            }
            let newest = self.at(from).consensus.newest_image();
            for (to, incarnation) in self.at(from).consensus.take_below_base() {
                let (to, cut) = (to.0, self.cut.contains(&(from, to.0)));
                let it = self.at(to).incarnation == incarnation && self.at(to).alive;
                let image = newest.filter(|_| it && !cut);
                image.into_iter().for_each(|index| self.bring_image(from, to, index.0));
            }
        }
    }

    /// Copies an image from one replica's disk to another's.
    pub fn bring_image(&mut self, from: u64, to: u64, index: u64) {
        let image = self.at(from).images.get(&index).cloned().expect("an image");
        self.at(to).images.insert(index, image);
        self.at(to).hold_images();
    }

    /// Ticks until `done`; panics if that takes more than a thousand.
    pub fn tick_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> usize {
        for ticks in 0..1000 {
            if done(self) {
                return ticks;
            }
            self.tick();
        }
        panic!("not within 1000 ticks: {what}");
    }

    /// The leader of the newest term among those that run.
    pub fn leader(&self) -> Option<u64> {
        let leads = |(id, replica): (&u64, &Replica)| {
            let leads =
                replica.alive && !replica.stopped && replica.consensus.role() == Role::Leader;
            leads.then(|| (replica.consensus.term(), *id))
        };
        self.replicas.iter().filter_map(leads).max().map(|(_, id)| id)
    }

    pub fn elect(&mut self) -> u64 {
        self.tick_until("a leader that executes", |cluster| {
            cluster.leader().is_some_and(|leader| {
                let consensus = &cluster.replicas[&leader].consensus;
                let status = consensus.status();
                status.applied == status.last_index
            })
        });
        self.leader().expect("just elected")
    }

    pub fn propose(&mut self, id: u64, payload: &str) {
        self.at(id).consensus.propose(payload.as_bytes().to_vec()).expect("it leads");
        self.settle();
    }

    pub fn isolate(&mut self, id: u64) {
        for other in 1..=self.count {
            if other != id {
                self.cut.insert((id, other));
                self.cut.insert((other, id));
            }
        }
    }

    /// The process dies; others see its connections close if `noticed`.
    pub fn kill(&mut self, id: u64, noticed: bool) {
        let replica = self.at(id);
        replica.alive = false;
        replica.wal = None;
        replica.pending.clear();
        replica.disk.kill_process();
        if noticed {
            let survivors: Vec<u64> = (1..=self.count).filter(|other| *other != id).collect();
            for other in survivors {
                if self.at(other).alive {
                    self.at(other).consensus.peer_lost(ReplicaId(id));
                }
            }
            self.settle();
        }
    }

    pub fn crash(&mut self, id: u64, seed: u64) {
        self.kill(id, false);
        self.at(id).disk.crash(&mut SimRng::new(seed));
    }

    pub fn restart(&mut self, id: u64) {
        let (durability, config) = (self.durability, self.config);
        let base = self.base.clone();
        let alone = self.count == 1;
        let replica = self.at(id);
        let incarnation = match durability {
            Durability::Fsync => replica.incarnation,
            // As `Identity` counts.
            Durability::Memory if alone => 0,
            Durability::Memory => replica.incarnation + 1,
        };
        let (disk, images) = (replica.disk.clone(), std::mem::take(&mut replica.images));
        let (base, voters) = (base.as_ref(), replica.voters.clone());
        *replica = Replica::start(id, voters, durability, incarnation, disk, config, base, images);
    }

    /// A replica that the others do not know yet, with the next number. Its peers are not the founders.
    pub fn join(&mut self) -> u64 {
        self.count += 1;
        let (id, durability, config) = (self.count, self.durability, self.config);
        let (voters, disk) = ((1..=id).collect(), SimDisk::new());
        let images = BTreeMap::new();
        let new = Replica::start(id, voters, durability, 1, disk, config, None, images);
        self.replicas.insert(id, new);
        id
    }

    /// The disk is replaced by an empty one; the process has died before.
    pub fn replace_disk(&mut self, id: u64) {
        self.at(id).disk = SimDisk::new();
        self.at(id).images.clear();
        self.at(id).incarnation += 1;
    }

    /// All running replicas have executed the same entries, with these payloads.
    pub fn assert_executed(&self, payloads: &[&str]) {
        for (id, replica) in self.replicas.iter().filter(|(_, replica)| replica.alive) {
            let executed: Vec<&str> =
                replica.executed.iter().map(|(_, _, payload)| payload.as_str()).collect();
            assert_eq!(executed, payloads, "replica {id}");
        }
    }
}
