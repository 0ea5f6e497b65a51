//! What a simulation is made of; most of it follows from the seed.

use skein_log::{Durability, disk::sim::SimRng};

/// A rule to break on purpose, to see that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The log is reported durable before it is synced.
    AckBeforeSync,
    /// The disk reports syncs that it does not do.
    LyingDisk,
    /// Writes are answered when they are proposed, not when they are committed.
    ReplyBeforeCommit,
    /// Replies leave when the leader's server has executed what is proposed.
    ReleaseAhead,
    /// A server that executed what was not committed goes on.
    KeepAstray,
    /// Who lost a memory-only log comes back as if it had not.
    ForgetIncarnation,
    /// One replica's server answers one read wrongly.
    WrongServer,
    /// A leader takes its own wall clock for the time that all agree on.
    TrustOwnClock,
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
pub(crate) struct Plan {
    pub replicas: u64,
    pub durability: Durability,
    /// Messages lost, in percent.
    pub loss: u64,
    /// Messages delivered twice, in percent.
    pub repeat: u64,
    /// A message takes 100 us and up to this.
    pub delay_us: u64,
    /// A sync takes up to this.
    pub sync_us: u64,
    /// Something happens every so often: 0 for a cluster without faults.
    pub fault_every_us: u64,
    /// When faults end.
    pub faults_until_us: u64,
    pub clients: u64,
    pub keys: u64,
    pub eager_commit: bool,
    /// Leaders' servers execute what is proposed.
    pub execute_ahead: bool,
}

impl Plan {
    pub(crate) fn new(rng: &mut SimRng, options: &Options) -> Self {
        let one_of = |rng: &mut SimRng, choices: &[u64]| {
            choices[usize::try_from(rng.below(choices.len() as u64)).expect("few choices")]
        };
        let memory = rng.chance(30);
        let durability = match options.broken {
            Some(Break::ForgetIncarnation) => Durability::Memory,
            Some(Break::AckBeforeSync | Break::LyingDisk) => Durability::Fsync,
            _ if memory => Durability::Memory,
            _ => Durability::Fsync,
        };
        Self {
            replicas: one_of(rng, &[3, 3, 3, 5]),
            durability,
            loss: one_of(rng, &[0, 1, 5, 20]),
            repeat: one_of(rng, &[0, 1, 10]),
            delay_us: one_of(rng, &[300, 1_000, 10_000, 40_000]),
            sync_us: one_of(rng, &[100, 4_000, 30_000]),
            fault_every_us: one_of(rng, &[0, 100_000, 300_000, 600_000]),
            faults_until_us: 3_000_000,
            clients: one_of(rng, &[2, 4, 6]),
            keys: one_of(rng, &[1, 2, 3]),
            eager_commit: rng.chance(50),
            execute_ahead: match options.broken {
                Some(Break::ReleaseAhead | Break::KeepAstray) => true,
                Some(Break::ReplyBeforeCommit) => false,
                _ => rng.chance(75),
            },
        }
    }
}
