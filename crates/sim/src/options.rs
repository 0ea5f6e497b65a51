//! What a simulation is made of; most of it follows from the seed.

use skein_log::Durability;
use skein_log::disk::sim::SimRng;
use skein_node::config::{DurabilityMode, Tuning};

/// 365 days.
pub(crate) const YEAR_US: i64 = 365 * 24 * 3600 * 1_000_000;

/// A rule around the replica to break on purpose, to see that the checks notice. Rules of the replica itself are broken by patches (`planted/`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The log is reported durable before it is synced.
    AckBeforeSync,
    /// The disk reports syncs that it does not do.
    LyingDisk,
    /// Who lost a memory-only log comes back as if it had not.
    ForgetIncarnation,
    /// One replica's server answers one read wrongly.
    WrongServer,
    /// A server's process ends and nobody is told.
    SilentEnd,
}

/// What to simulate.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rule to break.
    pub broken: Option<Break>,
    /// Print what happens.
    pub trace: bool,
}

/// What the seed decides about the cluster and its surroundings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many.
    pub replicas: u64,
    /// What the log survives.
    pub durability: Durability,
    /// Messages that find no room, in percent.
    pub loss: u64,
    /// A message takes 100 us and up to this.
    pub delay_us: u64,
    /// A sync takes up to this.
    pub sync_us: u64,
    /// A server takes up to this for a few entries.
    pub execute_us: u64,
    /// Something happens every so often: 0 for a cluster without faults.
    pub fault_every_us: u64,
    /// When faults end.
    pub faults_until_us: u64,
    /// How many clients.
    pub clients: u64,
    /// They ask for work that takes turns, too.
    pub works: bool,
    /// They think for so many times as long.
    pub quiet: u64,
    /// How many registers.
    pub keys: u64,
    /// Followers hear of commits at once.
    pub eager_commit: bool,
    /// How often the server's timer is due; 0: it has none.
    pub timer_ns: u64,
    /// One replica's clock is off by so much from the start.
    pub bad_clock_us: i64,
    /// What may be proposed and not committed.
    pub uncommitted_bytes: usize,
    /// A minority breaks for good on the way.
    pub loses_some: bool,
    /// The replicas' numbers.
    pub tuning: Tuning,
}

fn one_of<T: Copy>(rng: &mut SimRng, choices: &[T]) -> T {
    choices[usize::try_from(rng.below(choices.len() as u64)).expect("few choices")]
}

impl Plan {
    pub(crate) fn new(rng: &mut SimRng, options: &Options) -> Self {
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
            // A server that is left hanging is rebuilt after thirty times that.
            server_patience_ms: one_of(rng, &[150, 1000]),
            arena_heap_bytes: skein_arena::Sizes::MIN_HEAP,
            max_rebuilds: 100,
            ..Tuning::default()
        };
        let replicas = one_of(rng, &[3, 3, 3, 5]);
        Self {
            replicas,
            durability,
            loss: one_of(rng, &[0, 0, 1, 5, 20]),
            delay_us: one_of(rng, &[300, 1_000, 10_000, 40_000]),
            sync_us: one_of(rng, &[100, 4_000, 30_000]),
            execute_us: one_of(rng, &[10, 100, 3_000]),
            fault_every_us: one_of(rng, &[0, 100_000, 300_000, 600_000]),
            faults_until_us: one_of(rng, &[3_000_000, 3_000_000, 3_000_000, 12_000_000]),
            // One more than may connect, at most.
            clients: one_of(rng, &[2, 4, 6]).min(tuning.max_connections as u64 + 1),
            works: rng.chance(30),
            quiet: one_of(rng, &[1, 1, 1, 8]),
            keys: one_of(rng, &[1, 2, 3]),
            eager_commit: rng.chance(50),
            timer_ns: one_of(rng, &[0, 0, 7_000_000, 100_000_000]),
            bad_clock_us: one_of(rng, &[0, 0, 0, YEAR_US, -YEAR_US, 60_000_000]),
            uncommitted_bytes: one_of(rng, &[64 << 20, 64 << 20, 2_000]),
            loses_some: rng.chance(15),
            tuning,
        }
    }

    /// The same as a node is told.
    pub const fn durability_mode(&self) -> DurabilityMode {
        match self.durability {
            Durability::Fsync => DurabilityMode::Fsync,
            Durability::Memory => DurabilityMode::Memory,
        }
    }
}
