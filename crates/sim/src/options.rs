//! The parameters of a simulation; most of them follow from the seed.

use skein_log::disk::sim::SimRng;
use skein_log::{Durability, Level, unfit_kinds};
use skein_replica::config::{CheckpointConfig, DurabilityMode, Kind, Tuning};

/// 365 days.
pub(crate) const YEAR_US: i64 = 365 * 24 * 3600 * 1_000_000;

/// How long clients continue after the last fault.
const CALM_US: u64 = 2_000_000;

/// A rule around the replica to break on purpose, to show that the checks notice. Rules of the replica itself are broken by patches (`xtask/planted`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The log is reported durable before it is synced.
    AckBeforeSync,
    /// The disk reports syncs that it does not make.
    LyingDisk,
    /// A replica that lost a memory-only log comes back as if it had not.
    ForgetIncarnation,
    /// One replica's server answers one read wrongly.
    WrongServer,
    /// A server's process ends without any notice.
    SilentEnd,
    /// Output leaves before the entries that caused it are committed.
    EarlyOutput,
}

/// The simulation to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rule to break.
    pub broken: Option<Break>,
    /// Print the events.
    pub trace: bool,
    /// The faults.
    pub scenario: Scenario,
}

/// The faults of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scenario {
    /// As the seed decides.
    #[default]
    Random,
    /// One replica, the leader or another one, breaks in this way for ever; the others are well.
    Broken(Brokenness, Whose),
    /// One replica's machine dies, and its disk is damaged when it comes back.
    Damaged(Damage),
    /// All servers but the leader's are slower than clients ask.
    SlowFollowers,
    /// Without faults: in the end nobody asks for twenty seconds, and the server has this timer, or none.
    Idle(Option<Timer>),
    /// So it is with a server whose timer says nothing, and meanwhile a follower's node is started again.
    Returns,
    /// Without faults: images are due often.
    Turns,
    /// From one entry on most servers answer otherwise than the log leads to, and all alike. When another one was found to differ from them, their nodes are started again: nothing is
    /// left of what made them differ.
    Refuted,
    /// An active replica leads, others are passive or witnesses, and an operator asks for this.
    Asks(Asks),
    /// All nodes are killed and started again, and have no images. The server of the first one that leads executes the log slowly, but while it follows.
    Behind,
}

/// A request of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// That the passive replica leads.
    PassiveToLead,
    /// That another passive one leads, when the active one is lost; but that is filled, as it has lost its disk.
    ForgetfulToLead,
    /// That another active replica takes the leader's place.
    LeaderReplaced,
    /// The same, where only a witness leads meanwhile;
    ReplacedByWitness,
    /// or where nobody but the leader reaches that replica.
    ReplacedOutOfReach,
}

/// A timer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// It is due so long after its last entry, in ms,
    pub every_ms: u64,
    /// and says something this many expirations after the last time; 0: never.
    pub speaks: u64,
}

impl Timer {
    /// Due ten times a second, it says nothing.
    pub const TENTH: Self = Self { every_ms: 100, speaks: 0 };
}

/// A replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The leader.
    Leader,
    /// Another one.
    Follower,
}

impl Whose {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Leader, Self::Follower];
}

/// The way in which a replica is broken for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brokenness {
    /// Its process died.
    Dead,
    /// Its machine is gone: nothing closes its connections.
    Gone,
    /// Its process is stopped.
    Stopped,
    /// It reaches no replica, and none reaches it.
    CutOff,
    /// It does not hear the others.
    Deaf,
    /// The others do not hear it.
    Mute,
    /// A write of its log does not end.
    DiskHangs,
    /// Each sync takes 50 ms more.
    DiskSlow,
    /// Its disk is full.
    DiskFull,
    /// Its server does nothing, nor does any later one.
    ServerHangs,
    /// Its server ends, and so does each later one.
    ServerEnds,
    /// Its server damages its arena, and so does each later one.
    ServerRaves,
    /// Its clock is a year ahead.
    ClockAhead,
}

impl Brokenness {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Dead,
        Self::Gone,
        Self::Stopped,
        Self::CutOff,
        Self::Deaf,
        Self::Mute,
        Self::DiskHangs,
        Self::DiskSlow,
        Self::DiskFull,
        Self::ServerHangs,
        Self::ServerEnds,
        Self::ServerRaves,
        Self::ClockAhead,
    ];
}

/// Damage to one region of one file: a sector, or the file as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The disk's file, in order of names.
    pub file: usize,
    /// Its written sector; the whole file for damage to files.
    pub sector: usize,
    /// The damage.
    pub kind: DamageKind,
}

/// A change of bytes on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// A bit of the sector's first byte,
    FlipFirst,
    /// of one in its middle,
    FlipMiddle,
    /// or of its last byte is another.
    FlipLast,
    /// The sector is zero: never written, or unmapped.
    Zeroed,
    /// It holds other bytes.
    Garbage,
    /// It cannot be read.
    Unreadable,
    /// It holds the content of the sector before it: a misdirected write.
    Misdirected,
    /// The file ends where it begins.
    Cut,
    /// The file is missing.
    Missing,
    /// The file holds another one's content.
    Swapped,
}

impl DamageKind {
    /// Damage to single sectors.
    pub const OF_SECTORS: [Self; 8] = [
        Self::FlipFirst,
        Self::FlipMiddle,
        Self::FlipLast,
        Self::Zeroed,
        Self::Garbage,
        Self::Unreadable,
        Self::Misdirected,
        Self::Cut,
    ];
    /// Damage to whole files.
    pub const OF_FILES: [Self; 2] = [Self::Missing, Self::Swapped];
}

/// The seed's decisions about the cluster and its surroundings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of replicas.
    pub replicas: u64,
    /// The durability of the log.
    pub durability: Durability,
    /// The share of messages that find no room, in percent.
    pub loss: u64,
    /// The longest delay of a message; the shortest is 100 us.
    pub delay_us: u64,
    /// The longest sync.
    pub sync_us: u64,
    /// The longest time of a server for a few entries.
    pub execute_us: u64,
    /// Servers have executed what their nodes gave them before these rest.
    pub quick_servers: bool,
    /// The mean time between faults: 0 for a cluster without faults.
    pub fault_every_us: u64,
    /// When faults end.
    pub faults_until_us: u64,
    /// The number of clients.
    pub clients: u64,
    /// They also ask for work that takes turns.
    pub works: bool,
    /// The factor of their thinking time.
    pub quiet: u64,
    /// The number of registers.
    pub keys: u64,
    /// Followers hear of commits at once.
    pub eager_commit: bool,
    /// The interval of the server's timer; 0: it has none.
    pub timer_ns: u64,
    /// The timer says something at each expiration that this divides; 0: at none.
    pub timer_speaks: u64,
    /// The error of one replica's clock from the start.
    pub bad_clock_us: i64,
    /// The most uncommitted bytes.
    pub uncommitted_bytes: usize,
    /// A minority breaks for good on the way.
    pub loses_some: bool,
    /// The kinds of faults that may happen: a bit each.
    pub faults: u64,
    /// So many of a hundred servers that continue from an image cannot, for want of memory, as long as there are faults.
    pub not_restored: u64,
    /// The first leader dies so long after its election, in us; 0: not for that.
    pub first_leader_dies_us: u64,
    /// How long clients continue after the last fault, in us.
    pub calm_us: u64,
    /// Their mean thinking time, in us; 0: so long that the operations last until faults end.
    pub think_us: u64,
    /// Sometimes they ask for long lines and take them slowly,
    pub slow_readers: bool,
    /// have the server close connections, and close their own side late,
    pub dawdlers: bool,
    /// have the server speak to hosts outside,
    pub calls: bool,
    /// and send datagrams at this interval, in us; 0: never.
    pub datagrams_us: u64,
    /// The additional time of each entry on servers of followers, in us.
    pub slow_followers_us: u64,
    /// The final end of the server, on all replicas.
    pub finale: Finale,
    /// What the founders do, by their ids from 1.
    pub kinds: Vec<Kind>,
    /// An operator changes the members.
    pub operator: bool,
    /// The versions of Skein that the nodes are of.
    pub levels: Levels,
    /// The replicas' numbers.
    pub tuning: Tuning,
    /// Images of servers.
    pub checkpoint: CheckpointConfig,
}

/// The [levels](Level) of a cluster's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// They are from before levels.
    Before,
    /// They have this program's.
    Newest,
    /// They begin with this one, and get newer ones on the way.
    Grow(Level),
}

/// An end of the server that its input causes: on all replicas at one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finale {
    /// It does not end.
    None,
    /// It exits with this status.
    Exits(u8),
    /// This signal ends it.
    Dies(u8),
    /// It damages its arena.
    Raves,
}

impl Finale {
    /// The client's request.
    pub(crate) fn request(self) -> String {
        match self {
            Self::None => unreachable!("nobody asks for it"),
            Self::Exits(status) => format!("X {status}\n"),
            Self::Dies(signal) => format!("K {signal}\n"),
            Self::Raves => "D\n".to_owned(),
        }
    }

    /// The exit status that nodes must have by it.
    pub(crate) fn status(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Exits(status) => i32::from(status) << 8,
            Self::Dies(signal) => signal.into(),
            // As the runtime ends a server.
            Self::Raves => 125 << 8,
        }
    }
}

fn one_of<T: Copy>(rng: &mut SimRng, choices: &[T]) -> T {
    choices[usize::try_from(rng.below(choices.len() as u64)).expect("few choices")]
}

impl Plan {
    /// Nobody asks for long times, in which the server takes the entries of its timer by itself.
    fn often_idle(&mut self) {
        self.timer_ns = 50_000_000;
        self.timer_speaks *= 10;
        (self.tuning.idle_after_ms, self.tuning.idle_slack_ms) = (20, 45);
        self.tuning.execute_ahead = true;
        (self.clients, self.keys, self.quiet) = (2, 1, 20);
        (self.fault_every_us, self.faults_until_us) = (1_000_000, 12_000_000);
        (self.works, self.calls, self.datagrams_us) = (false, false, 0);
    }

    pub(crate) fn new(seed: u64, rng: &mut SimRng, options: &Options) -> Self {
        let mut plan = Self::random(rng, options);
        plan.draw_few_founders(seed, options);
        if options.broken.is_none() && options.scenario == Scenario::Random {
            // A wrong answer is found by a majority of servers. Drawn aside, so that the rest of a seed's plan stays.
            plan.kinds = Self::kinds(plan.replicas, &mut SimRng::new(!seed));
        }
        if plan.loses_some && !plan.all_are_active() {
            // Too few servers may be left for a majority that ends in the same way.
            plan.finale = Finale::None;
        }
        plan.levels = plan.levels_of(seed, options);
        plan.timer_speaks = one_of(&mut SimRng::new(seed.rotate_left(32)), &[1, 1, 10, 0]);
        let idle_after = [0, 20, 200, 1000];
        plan.tuning.idle_after_ms = one_of(&mut SimRng::new(seed.rotate_left(48)), &idle_after);
        let slack = one_of(&mut SimRng::new(seed.rotate_left(24)), &[0, 45, 45, 500]);
        plan.tuning.idle_slack_ms = slack;
        if options.scenario == Scenario::Random
            && options.broken.is_none()
            && SimRng::new(seed.rotate_left(40)).chance(12)
        {
            plan.often_idle();
        }
        if options.scenario == Scenario::Random {
            // As users have it, followers take their images in turn. Clients wait for one of the leader's: where it is looked at how long they wait for something else, there is none.
            plan.checkpoint.leader_intervals =
                one_of(&mut SimRng::new(seed.rotate_left(56)), &[0, 0, 3]);
            plan.quick_servers = SimRng::new(seed.rotate_left(8)).chance(50);
            plan.draw_first_leaders_end(seed);
            plan.not_restored = one_of(&mut SimRng::new(seed.rotate_left(20)), &[0, 0, 50]);
            let possible = !plan.loses_some;
            let wanted = options.broken.is_none();
            let drawn = SimRng::new(seed.rotate_left(16)).chance(80);
            plan.operator = possible && wanted && plan.fault_every_us > 0 && drawn;
            if plan.operator && !plan.all_are_active() {
                // As where some are lost: the members that are left may have too few servers.
                plan.finale = Finale::None;
            }
            return plan;
        }
        // One fault, while clients ask without a pause.
        plan = Self {
            loss: 0,
            fault_every_us: 0,
            faults_until_us: 1_000_000,
            quiet: 1,
            keys: 12,
            clients: 4,
            bad_clock_us: 0,
            loses_some: false,
            calm_us: 5_000_000,
            think_us: 20_000,
            slow_readers: false,
            dawdlers: false,
            finale: Finale::None,
            ..plan
        };
        plan.tuning.max_connections = 10_000;
        match options.scenario {
            Scenario::Damaged(_) => {
                plan.durability = Durability::Fsync;
                plan.calm_us = CALM_US;
                plan.think_us = 10_000;
            }
            Scenario::SlowFollowers => {
                // An entry each 2 ms or so, and 6 ms for it. Work would make one each 100 us: followers that are so much slower are left out.
                plan.datagrams_us = 2_000;
                plan.works = false;
                plan.slow_followers_us = 6_000;
                plan.delay_us = 300;
                plan.sync_us = 100;
                plan.execute_us = 100;
                plan.tuning.max_lag_ms = 100;
                plan.tuning.max_in_flight_entries = 64;
            }
            Scenario::Behind => {
                plan.durability = Durability::Fsync;
                plan.checkpoint.enabled = false;
                (plan.works, plan.timer_ns, plan.datagrams_us) = (false, 0, 2_000);
                (plan.delay_us, plan.sync_us, plan.execute_us) = (1_000, 1_000, 100);
                plan.slow_followers_us = 20_000;
            }
            Scenario::Idle(_) | Scenario::Returns => {
                let timer = match options.scenario {
                    Scenario::Idle(timer) => timer,
                    _ => Some(Timer::TENTH),
                };
                plan.durability = Durability::Fsync;
                plan.tuning.execute_ahead = true;
                plan.timer_ns = timer.map_or(0, |timer| timer.every_ms * 1_000_000);
                plan.timer_speaks = timer.map_or(0, |timer| timer.speaks);
                (plan.delay_us, plan.sync_us, plan.execute_us) = (1000, 1000, 100);
                plan.quick_servers = seed % 2 == 1;
                (plan.works, plan.calls, plan.datagrams_us) = (false, false, 0);
                (plan.tuning.idle_after_ms, plan.tuning.idle_slack_ms) = (1000, 45);
                // As users have it: images at short intervals cost syncs.
                plan.checkpoint = CheckpointConfig::default();
                plan.calm_us = 500_000;
            }
            Scenario::Asks(asks) => {
                plan.kinds = vec![Kind::Active, Kind::Passive, Kind::Witness];
                match asks {
                    Asks::ForgetfulToLead => plan.kinds.extend([Kind::Passive, Kind::Witness]),
                    Asks::ReplacedByWitness => plan.kinds = vec![Kind::Active, Kind::Witness],
                    _ => {}
                }
                plan.replicas = plan.kinds.len() as u64;
                plan.durability = Durability::Fsync;
                plan.tuning.election_timeout_ms = 300;
                (plan.delay_us, plan.sync_us, plan.execute_us) = (1000, 1000, 100);
                plan.calm_us = 3_000_000;
            }
            Scenario::Turns => {
                plan.checkpoint = CheckpointConfig {
                    log_entries: 20,
                    leader_intervals: 0,
                    ..CheckpointConfig::default()
                };
            }
            Scenario::Refuted => {
                plan.durability = Durability::Fsync;
                plan.quick_servers = seed % 2 == 1;
                plan.checkpoint.enabled = false;
                plan.works = false;
            }
            Scenario::Broken(
                Brokenness::DiskHangs | Brokenness::DiskSlow | Brokenness::DiskFull,
                _,
            ) => plan.durability = Durability::Fsync,
            _ => {}
        }
        plan
    }

    /// A small share of the clusters begins with one or two replicas, of which none may be lost. The operator adds others. Drawn aside, as kinds are.
    fn draw_few_founders(&mut self, seed: u64, options: &Options) {
        let rng = &mut SimRng::new(seed.rotate_left(4));
        let random = options.broken.is_none() && options.scenario == Scenario::Random;
        if random && rng.chance(8) {
            self.replicas = one_of(rng, &[1, 1, 2]);
            self.loses_some = false;
            // No majority of clocks is right.
            self.bad_clock_us = 0;
        }
    }

    /// A small share of the first leaders dies while their first entry is on its way, which faults from time to time hardly ever meet.
    fn draw_first_leaders_end(&mut self, seed: u64) {
        let rng = &mut SimRng::new(seed.rotate_left(12));
        if self.fault_every_us > 0 && rng.chance(10) {
            self.first_leader_dies_us = 1 + rng.below(2 * self.sync_us + 4 * self.delay_us);
        }
    }

    /// In half of the clusters all are active; others have any that can form one.
    fn kinds(replicas: u64, rng: &mut SimRng) -> Vec<Kind> {
        let mut kinds = vec![Kind::Active; replicas as usize];
        if rng.chance(50) {
            loop {
                for kind in &mut kinds {
                    *kind = one_of(rng, &[Kind::Active, Kind::Passive, Kind::Witness]);
                }
                if unfit_kinds(&kinds).is_none() {
                    break;
                }
            }
        }
        kinds
    }

    /// Half of the clusters are as they were before levels.
    fn levels_of(&self, seed: u64, options: &Options) -> Levels {
        let rng = &mut SimRng::new(seed.rotate_left(48));
        let ways = [Levels::Before, Levels::Before, Levels::Newest, Levels::Newest]
            .map(|levels| (levels, rng.chance(50)));
        let (levels, grows) = ways[rng.below(4) as usize];
        // One or two with logs in memory survive no start of a node.
        let may_start_again = self.durability == Durability::Fsync || self.replicas > 2;
        let may_grow = options.scenario == Scenario::Random
            && may_start_again
            && options.broken.is_none()
            && self.fault_every_us > 0
            && !self.loses_some;
        match levels {
            Levels::Newest if may_grow && grows => Levels::Grow(Level(1 + rng.below(2) as u16)),
            levels => levels,
        }
    }

    /// Whether all founders are active.
    pub(crate) fn all_are_active(&self) -> bool {
        self.kinds.iter().all(|kind| *kind == Kind::Active)
    }

    fn random(rng: &mut SimRng, options: &Options) -> Self {
        let memory = rng.chance(30);
        let durability = match options.broken {
            Some(Break::ForgetIncarnation) => Durability::Memory,
            Some(Break::AckBeforeSync | Break::LyingDisk) => Durability::Fsync,
            _ if memory => Durability::Memory,
            _ => Durability::Fsync,
        };
        let election_timeout_ms = one_of(rng, &[150, 150, 150, 300]);
        let tuning = Tuning {
            election_timeout_ms,
            heartbeat_ms: one_of(rng, &[30, 30, 50]),
            execute_ahead: rng.chance(75),
            share_core: false,
            max_in_flight_entries: one_of(rng, &[1, 4, 4, 64]),
            max_lag_ms: one_of(rng, &[0, 100, 1000, 1000]),
            max_connections: one_of(rng, &[3, 10, 10_000]),
            max_memory_bytes: one_of(rng, &[512 << 20, 512 << 20, 3000]),
            max_in_flight_bytes: one_of(rng, &[8 << 20, 8 << 20, 500]),
            wtimeout_us: one_of(rng, &[100, 100, 5000]),
            nclock: one_of(rng, &[1, 16, 16]),
            // An election timeout is the least.
            disk_patience_ms: one_of(rng, &[1, 1000]),
            // A server that hangs is rebuilt after thirty times that.
            server_patience_ms: one_of(rng, &[150, 1000]),
            arena_heap_bytes: skein_arena::Sizes::MIN_HEAP,
            max_rebuilds: 100,
            ..Tuning::default()
        };
        let replicas = one_of(rng, &[3, 3, 3, 5]);
        let mut checkpoint = CheckpointConfig {
            enabled: rng.chance(75),
            interval_s: one_of(rng, &[1, 600]),
            log_bytes: one_of(rng, &[500, 64 << 20]),
            log_entries: one_of(rng, &[3, 20, 100]),
            keep: one_of(rng, &[1, 2]),
            leader_intervals: 0,
            scrub_s: 0,
            fetch_bytes_per_s: one_of(rng, &[500, 1 << 20]),
        };
        // With one image there is none to fall back to.
        checkpoint.scrub_s = u64::from(checkpoint.keep > 1);
        Self {
            replicas,
            durability,
            loss: one_of(rng, &[0, 0, 1, 5, 20]),
            delay_us: one_of(rng, &[300, 1_000, 10_000, 40_000]),
            sync_us: one_of(rng, &[100, 4_000, 30_000]),
            execute_us: one_of(rng, &[10, 100, 3_000]),
            quick_servers: false,
            fault_every_us: one_of(rng, &[0, 100_000, 300_000, 600_000]),
            faults_until_us: one_of(rng, &[3_000_000, 3_000_000, 3_000_000, 12_000_000]),
            // One more than may connect, at most.
            clients: one_of(rng, &[2, 4, 6]).min(tuning.max_connections as u64 + 1),
            works: rng.chance(30),
            quiet: one_of(rng, &[1, 1, 1, 8]),
            keys: one_of(rng, &[1, 2, 3]),
            eager_commit: rng.chance(50),
            timer_ns: one_of(rng, &[0, 0, 7_000_000, 100_000_000]),
            timer_speaks: 1,
            bad_clock_us: one_of(rng, &[0, 0, 0, YEAR_US, -YEAR_US, 60_000_000]),
            uncommitted_bytes: one_of(rng, &[64 << 20, 64 << 20, 2_000]),
            loses_some: rng.chance(15),
            // Swarm testing: three of four kinds, different ones in each run.
            faults: rng.next_u64() | rng.next_u64(),
            not_restored: 0,
            first_leader_dies_us: 0,
            calm_us: CALM_US,
            think_us: 0,
            slow_readers: rng.chance(30),
            dawdlers: rng.chance(30),
            calls: rng.chance(50),
            datagrams_us: one_of(rng, &[0, 20_000, 200_000]),
            slow_followers_us: 0,
            finale: one_of(
                rng,
                &[
                    Finale::None,
                    Finale::None,
                    Finale::Exits(0),
                    Finale::Exits(3),
                    Finale::Dies(11),
                    Finale::Raves,
                ],
            ),
            kinds: vec![Kind::Active; replicas as usize],
            operator: false,
            levels: Levels::Before,
            tuning,
            checkpoint,
        }
    }

    /// The same in the form of a node's configuration.
    pub const fn durability_mode(&self) -> DurabilityMode {
        match self.durability {
            Durability::Fsync => DurabilityMode::Fsync,
            Durability::Memory => DurabilityMode::Memory,
        }
    }
}
