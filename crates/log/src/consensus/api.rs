//! What callers of [`super::Consensus`] configure, get and are told.

use crate::{
    types::{Durability, LogEntry, Persist, Role},
    wire::{self, WireError},
};
use skein_model::{LogIndex, ReplicaId, Term};

/// The largest replica id: the upper bits of a member id are the incarnation.
const MAX_REPLICA_ID: u64 = 0xffff;

/// How a replica takes part in consensus.
#[derive(Clone, Debug)]
pub struct Config {
    /// This replica, from 1 to 65,535.
    pub id: ReplicaId,
    /// The replicas that founded the cluster, the same list everywhere.
    pub voters: Vec<ReplicaId>,
    /// Which life of this replica its log is of: 0 until it lost its log, then larger each time.
    pub incarnation: u64,
    /// Whether an acknowledged entry is on disk or in memory.
    pub durability: Durability,
    /// Ticks without word from a leader before a follower campaigns; the actual number is up to twice as many.
    pub election_ticks: u32,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: u32,
    /// Ticks between the campaigns of two followers that saw their leader's connection close.
    pub stagger_ticks: u32,
    /// Where election timeouts come from.
    pub seed: u64,
    /// The longest payload.
    pub max_entry_bytes: usize,
    /// Whether bytes are a payload: what is none does not come into the log.
    pub is_payload: fn(&[u8]) -> bool,
    /// A message carries about this many bytes of entries, or one entry.
    pub max_message_bytes: usize,
    /// Messages with entries on their way to one follower.
    pub max_inflight_messages: usize,
    /// Proposed entries that are not committed yet; more are refused as [`ProposeError::Busy`].
    pub max_uncommitted_bytes: usize,
    /// A batch has about this many bytes of committed entries, or one entry.
    pub max_committed_bytes: usize,
    /// Durable entries kept in memory, for followers and for [`Consensus::entries`].
    pub recent_bytes: usize,
    /// Tell followers of a new commit index at once, by a message of its own, and not with the next entry or heartbeat:
    /// idle followers execute sooner, for two more messages an entry and follower.
    pub eager_commit: bool,
}

impl Config {
    /// Reasonable numbers for ticks of about 10 ms.
    #[must_use]
    pub fn new(id: ReplicaId, voters: Vec<ReplicaId>) -> Self {
        Self {
            id,
            voters,
            incarnation: 0,
            durability: Durability::Fsync,
            election_ticks: 15,
            heartbeat_ticks: 3,
            stagger_ticks: 2,
            seed: id.0,
            max_entry_bytes: 4 << 20,
            is_payload: |_| true,
            max_message_bytes: 512 << 10,
            max_inflight_messages: 64,
            max_uncommitted_bytes: 64 << 20,
            max_committed_bytes: 4 << 20,
            recent_bytes: 32 << 20,
            eager_commit: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConsensusError> {
        let refuse = |why: &str| Err(ConsensusError::Config(why.to_owned()));
        let is_id = |id: &ReplicaId| (1..=MAX_REPLICA_ID).contains(&id.0);
        if !is_id(&self.id) || !self.voters.iter().all(is_id) {
            return refuse("replica ids must be from 1 to 65535");
        }
        if !self.voters.contains(&self.id) {
            return refuse("this replica is not one of the cluster's replicas");
        }
        let mut sorted = self.voters.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != self.voters.len() {
            return refuse("a replica is listed twice");
        }
        if self.incarnation >= 1 << 48 {
            return refuse("an incarnation must be less than 2^48");
        }
        if self.heartbeat_ticks == 0 || self.election_ticks <= self.heartbeat_ticks {
            return refuse("the election timeout must be longer than a heartbeat");
        }
        let entry = self.max_entry_bytes + wire::ENTRY_HEAD_BYTES + wire::OVERHEAD_BYTES;
        if entry > crate::frame::MAX_PAYLOAD_BYTES || self.max_message_bytes > self.max_entry_bytes
        {
            return refuse(
                "the longest entry must fit into a frame, and messages into the longest entry",
            );
        }
        Ok(())
    }
}

/// Why consensus cannot start or go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsensusError {
    /// Numbers that do not fit together.
    #[error("{0}")]
    Config(String),
    /// What was recovered is not a log.
    #[error("the recovered log is inconsistent: {0}")]
    Recovered(String),
}

/// Why a proposal was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another replica leads, or none that is known.
    #[error("this replica does not lead")]
    NotLeader {
        /// Who leads, as far as is known.
        leader: Option<ReplicaId>,
    },
    /// Too much waits to be committed, or leadership is being transferred. Try again later.
    #[error("the log is busy")]
    Busy,
    /// Empty payloads mean something else.
    #[error("an empty entry")]
    Empty,
    /// Longer than [`Config::max_entry_bytes`].
    #[error("an entry of {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The bytes are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The message names another sender than the connection.
    #[error("a message from replica {0} that claims to be from replica {1}")]
    Sender(ReplicaId, ReplicaId),
    /// The leader knows that this replica had entries that it does not have: its log was lost behind its back.
    #[error(
        "the leader knows that this replica acknowledged entry {acknowledged}, but its log ends at {last}: \
         its data directory was replaced or removed"
    )]
    LogLost {
        /// What the leader knows.
        acknowledged: LogIndex,
        /// The last entry here.
        last: LogIndex,
    },
    /// An entry that is none of this cluster's program.
    #[error("replica {from} sent entry {index}, which has no known format")]
    Entry {
        /// The sender.
        from: ReplicaId,
        /// The entry.
        index: LogIndex,
    },
    /// A follower acknowledges what was never sent.
    #[error("replica {from} acknowledges entry {index}, which does not exist")]
    NeverSent {
        /// The follower.
        from: ReplicaId,
        /// What it acknowledges.
        index: LogIndex,
    },
}

/// A message for a peer, as bytes of [`crate::wire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The peer.
    pub to: ReplicaId,
    /// What to send, at most [`crate::frame::MAX_PAYLOAD_BYTES`].
    pub bytes: Vec<u8>,
}

/// This replica's role, leader or term changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleChange {
    /// What it is now.
    pub role: Role,
    /// Who leads, as far as is known.
    pub leader: Option<ReplicaId>,
    /// In which term.
    pub term: Term,
}

/// What a caller has to do next; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Set if anything of it changed.
    pub role: Option<RoleChange>,
    /// To be sent now.
    pub messages: Vec<Outgoing>,
    /// To be made durable. On a leader nobody waits for it while a majority of the others answer.
    pub persist: Option<Persist>,
    /// To be executed.
    pub committed: Vec<LogEntry>,
    /// The newest index that is committed, durable here and handed out.
    pub applied: LogIndex,
}

/// What the leader knows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The replica.
    pub id: ReplicaId,
    /// Which of its lives.
    pub incarnation: u64,
    /// Its log is the same as the leader's up to here.
    pub matched: LogIndex,
    /// It knows that the log is committed up to here.
    pub commit: LogIndex,
    /// It was heard of lately.
    pub active: bool,
    /// It has a vote.
    pub voter: bool,
}

/// A snapshot of what a replica knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The replica.
    pub id: ReplicaId,
    /// Its role.
    pub role: Role,
    /// Who leads, as far as is known.
    pub leader: Option<ReplicaId>,
    /// Its term.
    pub term: Term,
    /// The newest entry known to be committed.
    pub commit: LogIndex,
    /// The newest entry handed out.
    pub applied: LogIndex,
    /// The newest entry.
    pub last_index: LogIndex,
    /// The newest entry that is durable here.
    pub persisted: LogIndex,
    /// Payload bytes in memory.
    pub recent_bytes: usize,
    /// The newest membership change; 0 for none.
    pub membership: LogIndex,
    /// All members, this one too; empty unless this one leads.
    pub peers: Vec<PeerStatus>,
}

impl Status {
    /// Seen from a leader: every replica has its vote, in its newest life, and knows it. Losing the logs of a minority is
    /// harmless exactly when the members are whole again after the last such loss.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let knows = |peer: &PeerStatus| peer.voter && peer.commit >= self.membership;
        let once =
            |peer: &PeerStatus| self.peers.iter().filter(|other| other.id == peer.id).count() == 1;
        !self.peers.is_empty() && self.peers.iter().all(|peer| knows(peer) && once(peer))
    }
}

/// Committed entries, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Those that carry a payload.
    pub entries: Vec<LogEntry>,
    /// Where to go on reading. If it is what was asked for, there is nothing more.
    pub next: LogIndex,
}
