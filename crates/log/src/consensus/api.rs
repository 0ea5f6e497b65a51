//! Configuration, results and errors of [`super::Consensus`].

use crate::{
    base::Base,
    level::{Level, TooNew},
    places::{MAX_REPLICAS, Place},
    types::{Durability, LogEntry, Persist, Role},
    wire::{self, WireError},
};
use skein_model::{LogIndex, ReplicaId, Term};
use std::collections::BTreeMap;

/// The largest replica id: the upper bits of a member id are the incarnation.
const MAX_REPLICA_ID: u64 = 0xffff;

/// A replica's part in consensus.
#[derive(Clone, Debug)]
pub struct Config {
    /// This replica, from 1 to 65,535.
    pub id: ReplicaId,
    /// The replicas that founded the cluster, the same list everywhere; what the log says counts more. A replica that joins may have any list.
    pub voters: Vec<ReplicaId>,
    /// Their places, until the log has those of the members.
    pub places: BTreeMap<ReplicaId, Place>,
    /// The incarnation of this replica's log: 0 until it lost its log, then larger each time.
    pub incarnation: u64,
    /// Whether an acknowledged entry is on disk or only in memory.
    pub durability: Durability,
    /// The newest level that this program knows: another one than [`Level::NEWEST`] in tests only.
    pub level: Level,
    /// Ticks without a message from a leader before a follower campaigns; the actual number is up to twice as many.
    pub election_ticks: u32,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: u32,
    /// How many times as long a tick is while nobody waits for anything ([`crate::Consensus::pace`]).
    pub slow_pace: u32,
    /// Ticks between the campaigns of two followers that saw their leader's connection close.
    pub stagger_ticks: u32,
    /// The seed of election timeouts.
    pub seed: u64,
    /// The longest payload.
    pub max_entry_bytes: usize,
    /// Whether bytes are a payload: all others are kept out of the log.
    pub is_payload: fn(&[u8]) -> bool,
    /// A message carries about this many bytes of entries, or one entry.
    pub max_message_bytes: usize,
    /// The most messages with entries on their way to one follower.
    pub max_inflight_messages: usize,
    /// The most bytes of proposed entries that are not committed yet; more are refused as [`ProposeError::Busy`].
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
            places: BTreeMap::new(),
            incarnation: 0,
            durability: Durability::Fsync,
            level: Level::NEWEST,
            election_ticks: 15,
            heartbeat_ticks: 3,
            slow_pace: 10,
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
        if self.voters.len() > MAX_REPLICAS {
            return refuse("a cluster has at most 9 replicas");
        }
        if self.incarnation >= 1 << 48 {
            return refuse("an incarnation must be less than 2^48");
        }
        if self.heartbeat_ticks == 0 || self.election_ticks <= self.heartbeat_ticks {
            return refuse("the election timeout must be longer than a heartbeat");
        }
        if self.slow_pace == 0 {
            return refuse("a slow rhythm is no shorter than a quick one");
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

/// The reason why consensus cannot start or continue.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConsensusError {
    /// Numbers that do not fit together.
    #[error("{0}")]
    Config(String),
    /// The recovered data are not a log.
    #[error("the recovered log is inconsistent: {0}")]
    Recovered(String),
    /// The log is of a newer program.
    #[error(transparent)]
    TooNew(#[from] TooNew),
}

/// The reason why a proposal was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another replica leads, or no leader is known.
    #[error("this replica does not lead")]
    NotLeader {
        /// The leader, as far as it is known.
        leader: Option<ReplicaId>,
    },
    /// Too many bytes wait to be committed, or leadership is being transferred. Try again later.
    #[error("the log is busy")]
    Busy,
    /// Empty payloads have another meaning.
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

/// The reason why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The bytes are no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The message names another sender than the connection.
    #[error("a message from replica {0} that claims to be from replica {1}")]
    Sender(ReplicaId, ReplicaId),
    /// According to the leader, this replica had entries that it does not have: its log was lost without its knowledge.
    #[error(
        "the leader knows that this replica acknowledged entry {acknowledged}, but its log ends at {last}: \
         its data directory was replaced or removed"
    )]
    LogLost {
        /// The last entry according to the leader.
        acknowledged: LogIndex,
        /// The last entry here.
        last: LogIndex,
    },
    /// The leader's log begins behind the end of this replica's, so that entries cannot fill it, and this replica holds no image of the server that could: see
    /// [`crate::Consensus::hold_images`].
    #[error(
        "the log of replica {from}, which leads, begins at entry {first}, but this replica has only the entries up to {last}: \
         those between are in an image only, which it needs"
    )]
    BelowBase {
        /// The leader.
        from: ReplicaId,
        /// Its first entry.
        first: LogIndex,
        /// The last entry that is known to be committed here.
        last: LogIndex,
    },
    /// The leader takes this replica to hold an image of the server that it does not hold, or no longer.
    #[error(
        "replica {from} relies on an image at entry {index}, which this replica does not hold: it will ask again"
    )]
    NoImage {
        /// The leader.
        from: ReplicaId,
        /// The image's entry.
        index: LogIndex,
    },
    /// An entry of another program than this cluster's.
    #[error("replica {from} sent entry {index}, which has no known format")]
    Entry {
        /// The sender.
        from: ReplicaId,
        /// The entry.
        index: LogIndex,
    },
    /// A record that this program does not know.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// A follower acknowledges an entry that was never sent.
    #[error("replica {from} acknowledges entry {index}, which does not exist")]
    NeverSent {
        /// The follower.
        from: ReplicaId,
        /// The acknowledged entry.
        index: LogIndex,
    },
}

/// A message for a peer, as bytes of [`crate::wire`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The peer.
    pub to: ReplicaId,
    /// The bytes, at most [`crate::frame::MAX_PAYLOAD_BYTES`].
    pub bytes: Vec<u8>,
    /// It need not be sent before the next one to this peer, which follows with the next heartbeat at the latest: nobody waits for the entry in it
    /// ([`Consensus::unhurried_up_to`](super::Consensus::unhurried_up_to)).
    pub may_wait: bool,
}

/// This replica's role, leader or term changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleChange {
    /// The new role.
    pub role: Role,
    /// The leader, as far as it is known.
    pub leader: Option<ReplicaId>,
    /// The term.
    pub term: Term,
}

/// The caller's next duties; the [module](super) lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Set if role, leader or term changed.
    pub role: Option<RoleChange>,
    /// To be sent now.
    pub messages: Vec<Outgoing>,
    /// The log was replaced by this base: the state machine continues from the image of the server at its index, which this replica holds.
    pub reset: Option<Box<Base>>,
    /// To be made durable. A leader's entries do not wait for it while a majority of the others answers.
    pub persist: Option<Persist>,
    /// Messages that somebody waits for are held until all that was to be made durable is: votes, refusals. Acknowledgements of entries are held silently.
    pub awaited: bool,
    /// To be executed.
    pub committed: Vec<LogEntry>,
    /// The newest index that is committed, durable here and handed out.
    pub applied: LogIndex,
}

/// The leader's knowledge of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The replica.
    pub id: ReplicaId,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its log equals the leader's up to this entry.
    pub matched: LogIndex,
    /// It knows that the log is committed up to this entry.
    pub commit: LogIndex,
    /// It sent a message recently.
    pub active: bool,
    /// It has a vote.
    pub voter: bool,
}

/// A replica's state, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The replica.
    pub id: ReplicaId,
    /// Its role.
    pub role: Role,
    /// The leader, as far as it is known.
    pub leader: Option<ReplicaId>,
    /// Its term.
    pub term: Term,
    /// The newest entry known to be committed.
    pub commit: LogIndex,
    /// The newest entry handed out.
    pub applied: LogIndex,
    /// The newest entry.
    pub last_index: LogIndex,
    /// The first entry that the log can hold.
    pub first_index: LogIndex,
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
    /// Seen from a leader: every replica has its vote, in its newest incarnation, and knows it. Losing the logs of a minority is
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
    /// Entries with a payload.
    pub entries: Vec<LogEntry>,
    /// The index of the next read. If it equals the requested one, there is nothing more.
    pub next: LogIndex,
}
