//! The types that consensus, the write-ahead log and their callers exchange.

use crate::base::NewBase;
use bytes::Bytes;
use skein_model::{LogIndex, ReplicaId, Term};
use std::fmt;

/// The size of a majority of this many replicas: any two majorities have a replica in common. No other code computes it.
#[must_use]
pub const fn majority(replicas: usize) -> usize {
    replicas / 2 + 1
}

/// The cluster of a log, a data directory or a frame: 128 random bits, drawn when the cluster is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The hash of the replicated program and its libraries: replicas with another hash are refused.
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
    /// Loss of a minority of node processes: entries are in memory only, and a replica that lost them rejoins as a learner.
    Memory,
}

/// The purpose of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A proposed payload; empty in a new leader's first entry.
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
    /// Its purpose.
    pub kind: EntryKind,
    /// Opaque here.
    pub payload: Bytes,
}

impl LogEntry {
    /// True if the state machine executes it: not a term's first, empty entry, nor a membership change.
    #[must_use]
    pub fn is_payload(&self) -> bool {
        self.kind == EntryKind::Normal && !self.payload.is_empty()
    }
}

/// A replica's durable state (Raft figure 2, "persistent state"), besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest known term.
    pub term: Term,
    /// Its vote in that term, as a consensus member id; 0 for none.
    pub vote: u64,
    /// A lower bound of the commit index. Forgetting it is safe.
    pub commit: LogIndex,
}

/// A replica's current role.
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

/// Names one [`Persist`] to consensus when it is durable. Tickets grow; a ticket stands for all earlier ones too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Data to be made durable, in ticket order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persist {
    /// To be handed back to [`crate::Consensus::persisted`].
    pub ticket: Ticket,
    /// The newest hard state, if it changed.
    pub hard_state: Option<HardState>,
    /// A new beginning of the log, which comes before the entries.
    pub base: Option<NewBase>,
    /// Entries with consecutive indexes. The first one may overwrite: all entries from its index on are void.
    pub entries: Vec<LogEntry>,
}

impl Persist {
    /// The log's last entry when this is durable, if this changes it.
    #[must_use]
    pub fn last_index(&self) -> Option<LogIndex> {
        let reset = match &self.base {
            Some(NewBase::Reset(base)) => Some(base.index),
            _ => None,
        };
        self.entries.last().map(|entry| entry.index).or(reset)
    }

    /// Whether `next` may be merged into this.
    #[must_use]
    pub fn is_continued_by(&self, next: &Self) -> bool {
        let continues = self.entries.last().zip(next.entries.first());
        continues.is_none_or(|(last, first)| last.index.next() == first.index)
            && !matches!(next.base, Some(NewBase::Reset(_)))
    }

    /// Merges both. `next` must not overwrite entries of this, and what a leader writes never does.
    pub fn join(&mut self, next: Self) {
        assert!(self.is_continued_by(&next), "a gap, or another log");
        self.ticket = next.ticket;
        self.hard_state = next.hard_state.or(self.hard_state);
        self.base = next.base.or(self.base.take());
        self.entries.extend(next.entries);
    }
}

/// A member id on the wire and in votes: a replica and its incarnation.
///
/// `incarnation * 2^16 + replica`: a replica that forgot its promises must not be taken for its former self.
pub(crate) fn member_id(replica: ReplicaId, incarnation: u64) -> u64 {
    incarnation << 16 | replica.0
}

pub(crate) fn replica_of(member: u64) -> ReplicaId {
    ReplicaId(member & 0xffff)
}

pub(crate) fn incarnation_of(member: u64) -> u64 {
    member >> 16
}
