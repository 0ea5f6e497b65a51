//! What a replica is told when it is started: plain values, every default documented where it stands.

pub use crate::outgoing::{OutgoingConfig, Rule};
use serde::{Deserialize, Serialize};
use skein_log::{Config as ConsensusConfig, Durability, Place};
pub use skein_log::{Kind, NoKind, unfit_kinds};
use skein_model::{EntryRef, LogIndex, ReplicaId};
use std::path::PathBuf;
use std::time::Duration;

/// The most that `idle_slack_ms` may be.
const MAX_SLACK_MS: u64 = 1_000;
/// While a cluster is idle, heartbeats and timeouts are up to so many times as long,
const SLOWEST: u64 = 10;
/// and the election timeout no longer than this.
const SLOW_TIMEOUT_MS: u64 = 3_000;

/// Consensus counts time in ticks of 10 ms, or of several times that while the cluster is idle.
pub const TICK: Duration = Duration::from_millis(10);

/// One replica.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The cluster's name.
    pub name: String,
    /// The cluster's mode, for its status.
    pub mode: &'static str,
    /// This replica; one of [`members`](Self::members).
    pub id: ReplicaId,
    /// The founders of the cluster, this replica included; of a replica that joins, itself and those where it knocks. What the log says counts more.
    pub members: Vec<Member>,
    /// What a former life has noted of the members.
    pub noted: Noted,
    /// Whether the members stay as they are.
    pub fixed_members: bool,
    /// Where the others find this replica, for its status.
    pub address: String,
    /// The process that the replica is in, for its status.
    pub process: u32,
    /// What the host's processor can do for programs, for images.
    pub processor: Vec<String>,
    /// What an acknowledged write survives.
    pub durability: DurabilityMode,
    /// What the server may reach beyond itself.
    pub outgoing: OutgoingConfig,
    /// What happens when the server ends on a majority.
    pub on_exit: OnExit,
    /// Where the log is, for messages.
    pub data_dir: PathBuf,
    /// Where what the server prints is found, for messages.
    pub output: PathBuf,
    /// Images of the server.
    pub checkpoint: CheckpointConfig,
    /// Numbers that seldom need a change.
    pub tuning: Tuning,
}

/// A replica of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub id: ReplicaId,
    /// Its node's address for the others.
    pub address: String,
    /// What it does.
    pub kind: Kind,
}

/// The members as they were when a replica last noted them, for a next life that has lost its log: where to ask for it. Never whose votes count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// This replica was a member after this change of the members.
    pub member_at: Option<LogIndex>,
    /// The others, each with its node's address.
    pub others: Vec<(ReplicaId, String)>,
}

impl ReplicaConfig {
    /// What consensus is told.
    #[must_use]
    pub fn consensus(&self, incarnation: u64, seed: u64) -> ConsensusConfig {
        let ticks = |ms: u64| (ms / TICK.as_millis() as u64).max(1) as u32;
        let voters = self.members.iter().map(|member| member.id).collect();
        ConsensusConfig {
            incarnation,
            durability: self.durability.into(),
            election_ticks: ticks(self.tuning.election_timeout_ms),
            heartbeat_ticks: ticks(self.tuning.heartbeat_ms),
            slow_pace: self.tuning.slow_pace(),
            seed,
            places: self.members.iter().map(|m| (m.id, Place::of(&*m.address, m.kind))).collect(),
            is_payload: |bytes| EntryRef::parse(bytes).is_ok(),
            ..ConsensusConfig::new(self.id, voters)
        }
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMode {
    /// The loss of power everywhere: a replica acknowledges after `fdatasync`.
    #[default]
    Fsync,
    /// The loss of a minority of nodes.
    Memory,
}

impl From<DurabilityMode> for Durability {
    fn from(mode: DurabilityMode) -> Self {
        match mode {
            DurabilityMode::Fsync => Self::Fsync,
            DurabilityMode::Memory => Self::Memory,
        }
    }
}

/// The effect of the server's end on a majority of the replicas at the same index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExit {
    /// The nodes end too, with the server's status.
    #[default]
    Stop,
    /// The server is restarted and rebuilt from the log; when it ends at the same index again, the nodes end.
    Restart,
}

/// Images of the server: when a replica takes one by itself, and how many it keeps. Only what follows the oldest is kept of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Whether images are taken without a request: yes.
    pub enabled: bool,
    /// The longest time between two images of a server that executes anything: 600 s.
    pub interval_s: u64,
    /// An image is taken earlier when the log has grown by so many bytes since the one before: 64 MiB; or by a fifth of these, 2 s and more after the one before (5 s where clients wait).
    pub log_bytes: u64,
    /// Or by so many entries, which a replica would execute again when it starts: 50,000; or by a fifth of these, as with bytes.
    pub log_entries: u64,
    /// Whether servers are compared at their images without a command, for which those of all followers stand at the same time: 0, never. Otherwise in each so many
    /// intervals the leader's server, too, for which clients wait while an image of it is copied.
    pub leader_intervals: u64,
    /// The images that are kept, the newest ones: 2. When one is damaged, the one before it counts.
    pub keep: usize,
    /// The time after which all images are read and compared with their digests again: a day; 0: only at a start. A damaged one is set aside. Nodes read pinned files as often.
    pub scrub_s: u64,
    /// Bytes a second at which an image is fetched from another replica at most: 32 MiB, a quarter of a gigabit network.
    pub fetch_bytes_per_s: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            interval_s: 600,
            log_bytes: 64 << 20,
            log_entries: 50_000,
            leader_intervals: 0,
            keep: 2,
            scrub_s: 24 * 60 * 60,
            fetch_bytes_per_s: 32 << 20,
        }
    }
}

impl CheckpointConfig {
    /// Checks what types cannot express.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, why: &str| Err(ConfigError { key, why: why.into() });
        if self.interval_s == 0 {
            return bad("checkpoint.interval_s", "must be at least 1");
        }
        if self.log_bytes < 1 << 20 {
            return bad("checkpoint.log_bytes", "must be at least 1 MiB: 1048576");
        }
        if self.log_entries == 0 {
            return bad("checkpoint.log_entries", "must be at least 1");
        }
        if !(1..=100).contains(&self.keep) {
            return bad("checkpoint.keep", "must be from 1 to 100");
        }
        if self.fetch_bytes_per_s < 1 << 20 {
            return bad("checkpoint.fetch_bytes_per_s", "must be at least 1 MiB: 1048576");
        }
        Ok(())
    }
}

/// Numbers that rarely need a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// A follower that hears nothing for this long, and up to twice as long, asks for an election: 150 ms.
    pub election_timeout_ms: u64,
    /// The interval between a leader's heartbeats: 30 ms.
    pub heartbeat_ms: u64,
    /// A leader for which nobody has waited for so long goes over to a slow rhythm: heartbeats, the election timeout and the time after which a silent connection ends are
    /// up to ten times as long, and the election timeout no longer than 3 s: 1,000 ms. 0: never.
    pub idle_after_ms: u64,
    /// How much later a leader's server's regular timers may fire while nobody waits, and by no more than nine tenths of their time: 45 ms. 0: not.
    pub idle_slack_ms: u64,
    /// How long a busy server waits at a slot for an input before the leader proposes a time bubble: 100 us.
    pub wtimeout_us: u64,
    /// The most operations of a thread in one turn: 256. Fixed when the cluster is made.
    pub quantum: u32,
    /// The number of turns between two admission slots: 16. Fixed when the cluster is made.
    pub nclock: u32,
    /// Client connections at a time: 10,000. More are reset.
    pub max_connections: usize,
    /// The most bytes that are on their way between clients and the server, over all connections:
    /// 512 MiB. New connections are reset while it is more.
    pub max_memory_bytes: usize,
    /// The most bytes that are proposed and not committed before the gateway stops reading: 8 MiB.
    pub max_in_flight_bytes: usize,
    /// Entries that may be proposed and not yet committed: 4. While so many are on their way, clients' requests gather
    /// for the next one: few, large entries cost less than many small ones.
    pub max_in_flight_entries: usize,
    /// The longest time that followers' servers may be behind the leader's: 1,000 ms. When too few are within it, clients' requests wait
    /// ([`crate::health::lag`]). 0: without a bound.
    pub max_lag_ms: u64,
    /// Whether a leader's server executes proposals while they are being agreed on: yes. Its replies wait for the commit.
    /// A leader that was cut off from the others rebuilds its server from the log if it has executed entries that they never got.
    pub execute_ahead: bool,
    /// Whether a leader and its server share a core while the server is busy only briefly: yes.
    pub share_core: bool,
    /// The arena's input ring: 4 MiB.
    pub input_ring_bytes: usize,
    /// The arena's output ring: 4 MiB.
    pub output_ring_bytes: usize,
    /// The arena's heap, only reserved, used as the server needs it: 1 GiB.
    pub arena_heap_bytes: usize,
    /// The largest limit of descriptors that the server may set (it starts with 1,024): 16,384, the same on all replicas. Not more
    /// than the host allows the node.
    pub max_open_files: u64,
    /// A leader hands leadership over when a write of its log has taken this long, or an election timeout:
    /// 1,000 ms.
    pub disk_patience_ms: u64,
    /// And when its server has executed nothing for this long, although another replica's did: 1,000 ms, at least an election
    /// timeout. A server that is stuck thirty times as long is
    /// rebuilt from the log, on any replica.
    pub server_patience_ms: u64,
    /// How often a server that keeps ending on this replica alone is rebuilt before the node gives up: 5 times in a row.
    pub max_rebuilds: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            election_timeout_ms: 150,
            heartbeat_ms: 30,
            idle_after_ms: 1_000,
            idle_slack_ms: 45,
            wtimeout_us: 100,
            quantum: 256,
            nclock: 16,
            max_connections: 10_000,
            max_memory_bytes: 512 << 20,
            max_in_flight_bytes: 8 << 20,
            max_in_flight_entries: 4,
            max_lag_ms: 1_000,
            execute_ahead: true,
            share_core: true,
            input_ring_bytes: 4 << 20,
            output_ring_bytes: 4 << 20,
            arena_heap_bytes: 1 << 30,
            max_open_files: 16_384,
            disk_patience_ms: 1000,
            server_patience_ms: 1000,
            max_rebuilds: 5,
        }
    }
}

/// An unusable value, with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct ConfigError {
    /// The key, with dots.
    pub key: &'static str,
    /// The error, and an example of a valid value.
    pub why: String,
}

impl Tuning {
    /// Checks what types cannot express.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |key, why: String| Err(ConfigError { key, why });
        if self.heartbeat_ms == 0 || self.election_timeout_ms < 3 * self.heartbeat_ms {
            let why = format!(
                "is {} ms with an election timeout of {} ms; the timeout must be at least three heartbeats",
                self.heartbeat_ms, self.election_timeout_ms
            );
            return bad("tuning.heartbeat_ms", why);
        }
        if self.idle_slack_ms > MAX_SLACK_MS {
            return bad("tuning.idle_slack_ms", format!("must be at most {MAX_SLACK_MS}"));
        }
        if self.quantum == 0 || self.nclock == 0 {
            return bad("tuning.quantum", "quantum and nclock must be at least 1".into());
        }
        if self.max_open_files < 1024 {
            return bad("tuning.max_open_files", "must be at least 1024".into());
        }
        if self.max_connections == 0 {
            return bad("tuning.max_connections", "must be at least 1".into());
        }
        if self.max_in_flight_bytes < skein_model::entry::MAX_ENTRY_BYTES {
            return bad("tuning.max_in_flight_bytes", "must hold at least one entry, 1 MiB".into());
        }
        if self.max_in_flight_entries == 0 {
            return bad("tuning.max_in_flight_entries", "must be at least 1".into());
        }
        let sizes = self.sizes();
        if !sizes.valid() {
            return bad("tuning.arena_heap_bytes", skein_arena::MapError::Sizes(sizes).to_string());
        }
        Ok(())
    }

    /// How many times as long heartbeats and timeouts are while the cluster is idle.
    #[must_use]
    pub fn slow_pace(&self) -> u32 {
        // Lossless: a small number.
        (SLOW_TIMEOUT_MS / self.election_timeout_ms.max(1)).clamp(1, SLOWEST) as u32
    }

    /// The arena's sizes.
    #[must_use]
    pub const fn sizes(&self) -> skein_arena::Sizes {
        skein_arena::Sizes {
            input: self.input_ring_bytes,
            output: self.output_ring_bytes,
            heap: self.arena_heap_bytes,
        }
    }
}
