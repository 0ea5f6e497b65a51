//! A node's status: the reply to `GET /status` at its admin socket.

use crate::editions::Outcome;
use crate::health::Fault;
use crate::members::MemberReport;
use serde::{Deserialize, Serialize};
use skein_arena::places::{Seen, Verdict};
use skein_arena::trapped::{CPUID, INT80, OTHER, RDTSC};
use skein_log::Kind;
use std::collections::BTreeMap;

/// One replica and its view of the cluster. `skein status` joins the rows of all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The cluster's name.
    pub name: String,
    /// `order`, or `standby`: its rules, with a passive replica and a witness.
    pub mode: String,
    /// `serial`.
    pub schedule: String,
    /// The clients' current address, `HOST:PORT`; empty before the server listens.
    pub service: Vec<String>,
    /// The leader's id, if this replica knows one.
    pub leader: Option<u64>,
    /// This replica's term.
    pub term: u64,
    /// Whether the leader serves clients: its term's first entry is executed and the server listens. Only on the leader.
    pub serving: bool,
    /// Whether every replica has its vote: false while a replica that lost its log in memory is taken in again. Only on the
    /// leader.
    pub voters_complete: bool,
    /// Whether nobody has waited for anything for a while, so that heartbeats are slow.
    #[serde(default)]
    pub idle: bool,
    /// Whether its node tells of its server's memory by a tree of hashes (`skein verify`).
    #[serde(default)]
    pub has_trees: bool,
    /// This replica.
    pub replica: ReplicaStatus,
    /// The members as this replica's log has them.
    #[serde(default)]
    pub members: Vec<MemberReport>,
    /// What keeps the members from agreeing on a newer [`skein_log::Level`]. Only on the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<LevelStatus>,
    /// Recent warnings for an operator, oldest first.
    pub notes: Vec<String>,
}

/// The level that the members agree on, while the leader knows a newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelStatus {
    /// The agreed level.
    pub agreed: u16,
    /// The newest one that the leader knows.
    pub newest: u16,
    /// The members that have not said that they know it: they are older, or not connected.
    pub waits_for: Vec<u64>,
}

/// One replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its id.
    pub id: u64,
    /// `leader`, `follower`, `candidate`, `learner`.
    pub role: String,
    /// Its activity.
    pub state: ReplicaState,
    /// What it does as a member.
    #[serde(default)]
    pub kind: Kind,
    /// The version of Skein that its node is.
    #[serde(default)]
    pub skein: String,
    /// Whether its server runs with the runtime of another Skein than its host has: an upgrade takes that over.
    #[serde(default)]
    pub other_runtime: bool,
    /// Its current faults.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Its node's address for other nodes.
    pub address: String,
    /// Its node's process.
    pub node_pid: u32,
    /// Its server's process; 0 when there is none.
    pub server_pid: u32,
    /// Its term.
    pub term: u64,
    /// The last entry that it knows to be committed.
    pub commit_index: u64,
    /// The last entry that its server has executed.
    pub applied_index: u64,
    /// The number of entries that its server is behind.
    pub lag_entries: u64,
    /// The error of this host's wall clock against a majority's, ms, positive when it is ahead; 0 while it agrees. A clock that
    /// does not agree is not used.
    #[serde(default)]
    pub clock_offset_ms: i64,
    /// The error of virtual time against a majority's clocks, ms, negative when it is ahead: it is slewed towards them. Only on the leader, and
    /// while a majority's clocks agree.
    #[serde(default)]
    pub time_behind_ms: Option<i64>,
    /// Its lag behind the leader's server in time, ms, without the time in which the leader waited: about the time that it needs to catch up
    /// before it could serve.
    #[serde(default)]
    pub lag_ms: u64,
    /// The last entry that `digest` covers.
    pub digest_index: u64,
    /// The rolling digest of all its server's output, 16 hexadecimal digits.
    pub digest: String,
    /// The entry at which the replicas' digests were compared last, as far as its server has come; 0: at none.
    #[serde(default)]
    pub compared_index: u64,
    /// Whether they were equal there.
    #[serde(default)]
    pub compared_same: bool,
    /// Calls and instructions of its server that came through the safety net, by name, since the server was started. Each costs a signal.
    #[serde(default)]
    pub trapped_calls: BTreeMap<String, u64>,
    /// Those from places in its text that the runtime has replaced, because they came through the net often: they cost no signal.
    #[serde(default)]
    pub patched_calls: BTreeMap<String, u64>,
    /// Where calls and instructions came through the safety net, most often first.
    #[serde(default)]
    pub trapped_places: Vec<TrappedPlace>,
    /// The first entry that its log still has.
    #[serde(default)]
    pub first_entry: u64,
    /// What the servers are started as.
    #[serde(default)]
    pub edition: EditionStatus,
    /// Its images of the server.
    #[serde(default)]
    pub images: ImagesStatus,
    /// Counters of its node since its start.
    #[serde(default)]
    pub counts: Counts,
}

/// What the servers are started as, since upgrades.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditionStatus {
    /// The number of the edition; a cluster begins with 1.
    pub number: u64,
    /// The entry with which it began; 0 for the first.
    pub since: u64,
    /// What it is, in its node's form; empty: as configured.
    pub about: String,
    /// The upgrades that the log still has: the number of the edition that was to follow, and the result.
    pub upgrades: Vec<(u64, Outcome)>,
}

impl Default for EditionStatus {
    fn default() -> Self {
        Self { number: 1, since: 0, about: String::new(), upgrades: Vec::new() }
    }
}

/// A replica's images of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagesStatus {
    /// The number of them on its disk.
    pub count: u64,
    /// The entry of the newest; 0: there is none.
    pub index: u64,
    /// Bytes of all their files.
    pub bytes: u64,
    /// The part of one that has come from another replica, in percent, while it is fetched.
    pub fetched_percent: Option<u64>,
    /// Why none could be taken the last time.
    pub not_taken: Option<String>,
}

/// A place in the server's programs and libraries from which a call, or an instruction, came through the safety net.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrappedPlace {
    /// The object and the distance from its begin, as in `libc.so.6+0x108b40`.
    pub place: String,
    /// The last call from there.
    pub call: String,
    /// The number of traps.
    pub traps: u64,
    /// `patched`: it is replaced in every process that comes there, and costs no signal then; `stays`: it cannot be; `counted`: it came too seldom.
    pub state: String,
}

/// Counters of a node since its start; the metrics have these and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Bytes sent to other nodes, frames included.
    pub peer_out_bytes: u64,
    /// Bytes received from other nodes.
    pub peer_in_bytes: u64,
    /// Payload handed to the log on disk.
    pub log_bytes: u64,
    /// Writes of the log to disk; each is synced, several at once where they queue.
    #[serde(default)]
    pub log_writes: u64,
    /// Entries proposed, as leader.
    pub proposed_entries: u64,
    /// Of these, time bubbles.
    pub bubbles: u64,
    /// Of these, entries for a timer.
    pub clock_entries: u64,
    /// Of these, entries that the server took by itself while its node slept.
    pub planned_entries: u64,
    /// Of these, entries for what the server used of its host for the first time.
    pub fact_entries: u64,
}

/// Calls through the net, by name; from numbers and counts as [`skein_arena::trapped::Trapped::counts`] gives them.
#[must_use]
pub fn trapped_by_name(counts: impl IntoIterator<Item = (usize, u64)>) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (place, count) in counts {
        let total: &mut u64 = found.entry(call_name(place).to_owned()).or_default();
        // A server may write any number into its arena.
        *total = total.saturating_add(count);
    }
    found
}

/// The name of a number of [`skein_arena::trapped`].
fn call_name(place: usize) -> &'static str {
    match place {
        RDTSC => "rdtsc",
        CPUID => "cpuid",
        INT80 => "int80",
        OTHER => "unknown",
        nr => skein_interpose::name(nr as i64).unwrap_or("unknown"),
    }
}

/// The calling places, the most frequent first.
#[must_use]
pub fn trapped_places(seen: impl IntoIterator<Item = Seen>) -> Vec<TrappedPlace> {
    let described = |place: Seen| {
        // A server may write anything into its arena.
        let printed = place.name.iter().take_while(|byte| **byte != 0);
        let object: String = printed
            .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' })
            .collect();
        let object = if object.is_empty() { "no object".into() } else { object };
        let state = match place.verdict {
            Verdict::Counting => "counted",
            Verdict::Stays => "stays",
            Verdict::Replaced { .. } => "patched",
        };
        TrappedPlace {
            place: format!("{object}+{:#x}", place.offset),
            call: call_name(place.call).to_owned(),
            traps: place.traps,
            state: state.to_owned(),
        }
    };
    let mut found: Vec<TrappedPlace> = seen.into_iter().map(described).collect();
    found.sort_by(|a, b| b.traps.cmp(&a.traps).then_with(|| a.place.cmp(&b.place)));
    found
}

impl ReplicaStatus {
    /// Whether it has no server because none belongs there: it is a witness, or passive and does not lead.
    #[must_use]
    pub fn has_no_server(&self) -> bool {
        match self.state {
            ReplicaState::Passive | ReplicaState::Witness => true,
            ReplicaState::CatchingUp => {
                self.kind != Kind::Active && self.role != "leader" && self.server_pid == 0
            }
            _ => false,
        }
    }
}

/// The activity of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// Its server is being started.
    #[default]
    Starting,
    /// Its server executes entries that the others have executed already. Or it is passive or a witness, and has no vote yet, or no image with which a server could begin.
    CatchingUp,
    /// In step.
    Running,
    /// In step, but its server runs without a call while others wait for it.
    Stuck,
    /// Its server's output differed from the others'; it is rebuilt from the log.
    Diverged,
    /// It is passive, and has no server while another replica leads: it votes, and keeps the log and images.
    Passive,
    /// It is a witness: it votes and keeps the log.
    Witness,
    /// Not there.
    Down,
    /// On another host, and its node cannot be asked from this one.
    Unreachable,
}

impl ReplicaState {
    /// Whether it does all that it is to do.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Running | Self::Passive | Self::Witness)
    }

    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::CatchingUp => "catching_up",
            Self::Running => "running",
            Self::Stuck => "stuck",
            Self::Diverged => "diverged",
            Self::Passive => "passive",
            Self::Witness => "witness",
            Self::Down => "down",
            Self::Unreachable => "unreachable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_filled_has_no_server_by_its_kind_only() {
        let of = |kind, state, role: &str, server_pid| {
            let role = role.into();
            ReplicaStatus { kind, state, role, server_pid, ..ReplicaStatus::default() }
        };
        use ReplicaState::{CatchingUp, Passive, Witness};
        assert!(of(Kind::Passive, Passive, "follower", 0).has_no_server());
        assert!(of(Kind::Witness, Witness, "leader", 0).has_no_server());
        assert!(of(Kind::Passive, CatchingUp, "learner", 0).has_no_server());
        assert!(of(Kind::Witness, CatchingUp, "learner", 0).has_no_server());
        assert!(!of(Kind::Active, CatchingUp, "learner", 0).has_no_server());
        assert!(!of(Kind::Passive, CatchingUp, "leader", 0).has_no_server());
        assert!(!of(Kind::Passive, CatchingUp, "follower", 7).has_no_server());
    }
}
