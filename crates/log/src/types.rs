//! The values that consensus, the write-ahead log and their callers exchange.

use bytes::Bytes;
use skein_model::{LogIndex, ReplicaId, Term};
use std::fmt;

/// How many of so many replicas are a majority: any two of them have a replica in common. Nobody else computes it.
#[must_use]
pub const fn majority(replicas: usize) -> usize {
    replicas / 2 + 1
}

/// Which cluster a log, a data directory or a frame belongs to: 128 random bits, drawn when the cluster is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The hash of the replicated program and all that makes it run the same: replicas with another one are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProgramHash(pub [u8; 32]);

impl fmt::Display for ProgramHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What an acknowledged entry survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power on all machines: a replica acknowledges an entry after `fdatasync`.
    #[default]
    Fsync,
    /// Loss of a minority of node processes: entries are in memory only, and who lost them rejoins as a learner.
    Memory,
}

/// What a log entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A payload that was proposed; empty in the entry that a new leader begins its term with.
    Normal,
    /// A change of the cluster's membership, made and understood by [`crate::consensus`] alone.
    Membership,
}

/// One entry of the replicated log. Cloning shares the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its position.
    pub index: LogIndex,
    /// The term of the leader that proposed it.
    pub term: Term,
    /// What it is for.
    pub kind: EntryKind,
    /// Opaque here.
    pub payload: Bytes,
}

impl LogEntry {
    /// True for what the state machine executes: not a term's first, empty entry, not a membership change.
    #[must_use]
    pub fn is_payload(&self) -> bool {
        self.kind == EntryKind::Normal && !self.payload.is_empty()
    }
}

/// What a replica must never forget (Raft figure 2, "persistent state"), besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term that it knows.
    pub term: Term,
    /// Whom it voted for in that term, as a consensus member id; 0 for nobody.
    pub vote: u64,
    /// A lower bound of the commit index. Forgetting it is safe.
    pub commit: LogIndex,
}

/// What this replica is to its cluster now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Takes entries from a leader, may vote.
    #[default]
    Follower,
    /// Asks whether it would win an election (pre-vote).
    PreCandidate,
    /// Asks for votes.
    Candidate,
    /// Proposes entries.
    Leader,
    /// Takes entries, has no vote: a replica that lost its log and is catching up.
    Learner,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Follower => "follower",
            Self::PreCandidate => "pre_candidate",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
            Self::Learner => "learner",
        })
    }
}

/// Names one [`Persist`] to consensus when it is durable. Tickets grow; a ticket stands for all before it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What must be made durable, in ticket order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// To be handed back to [`crate::Consensus::persisted`].
    pub ticket: Ticket,
    /// The newest hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// Entries with consecutive indexes. The first one may overwrite: all entries from its index on are void.
    pub entries: Vec<LogEntry>,
}

impl Persist {
    /// Both in one. `next` must overwrite nothing of this, as nothing does that a leader appends.
    pub fn join(&mut self, next: Self) {
        let continues = self.entries.last().zip(next.entries.first());
        assert!(continues.is_none_or(|(last, first)| last.index.next() == first.index), "a gap");
        self.ticket = next.ticket;
        self.hard_state = next.hard_state.or(self.hard_state);
        self.entries.extend(next.entries);
    }
}

/// A member id on the wire and in votes is a replica and which life of it.
///
/// `incarnation * 2^16 + replica`: a replica that forgot what it promised must not be taken for the one that promised.
pub(crate) fn member_id(replica: ReplicaId, incarnation: u64) -> u64 {
    incarnation << 16 | replica.0
}

pub(crate) fn replica_of(member: u64) -> ReplicaId {
    ReplicaId(member & 0xffff)
}

pub(crate) fn incarnation_of(member: u64) -> u64 {
    member >> 16
}
