//! The rhythm of heartbeats and timeouts: quick, or slow while nobody waits for anything.
//!
//! A slow rhythm makes ticks longer ([`Consensus::pace`]), and so heartbeats, election timeouts, leases, and the time in which a leader must hear a majority:
//! all by the same factor. Safety rests on none of them.
//!
//! ```text
//! leader:   heartbeat (context: round)     --> follower: long ticks from now on
//!           <-- answer (context: agreed, round)
//!           when all members have agreed: long ticks here, too
//!           ...
//!           heartbeat without, at once     --> follower: short ticks
//! ```
//!
//! So followers wait longer before their leader is silent for longer. A leader counts answers of the current round only: an earlier one may be of a follower that goes
//! quickly again. A follower keeps to what it was told for as long as it follows this leader in this term, and its connection lasts ([`Consensus::peer_lost`]).
//!
//! Nodes from before rhythms answer with the context as it came, which is no agreement: their leader stays quick.

use super::Consensus;
use bytes::Bytes;
use raft::{
    ProgressState, StateRole,
    eraftpb::{Message, MessageType},
};
use skein_model::ReplicaId;
use std::collections::BTreeSet;

/// The context of a leader's heartbeat that asks for a slow rhythm: this and the round, u64.
const ASKS: u8 = 1;
/// And of the answer of a follower that keeps to it.
const AGREES: u8 = 2;

/// What this replica knows of the rhythm.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// It is slow in this term, with this leader.
    slow: Option<(u64, u64)>,
    /// On a leader: it asks for a slow one in this term.
    asks: Option<u64>,
    /// The number of the last time that it asked.
    round: u64,
    /// Members that have agreed in this round.
    agreed: BTreeSet<u64>,
}

impl Consensus {
    /// How many times as long a tick is now as the shortest: to be looked at after each call.
    #[must_use]
    pub fn pace(&self) -> u32 {
        let raft = &self.node.raft;
        let follows = matches!(raft.state, StateRole::Follower | StateRole::Leader);
        let slow = self.rhythm.slow == Some((raft.term, raft.leader_id));
        if slow && follows { self.config.slow_pace } else { 1 }
    }

    /// On a leader: from now on nobody waits for anything, and the rhythm may be slow; or somebody does, and it is quick at once. To be repeated.
    pub fn set_calm(&mut self, calm: bool) {
        let raft = &mut self.node.raft;
        let (term, rhythm) = (raft.term, &mut self.rhythm);
        let asks = rhythm.asks == Some(term);
        if raft.state != StateRole::Leader || calm == asks {
            return;
        }
        if calm {
            rhythm.round += 1;
            rhythm.agreed.clear();
            rhythm.asks = (self.config.slow_pace > 1).then_some(term);
        } else {
            (rhythm.asks, rhythm.slow) = (None, None);
            raft.ping();
        }
    }

    /// On a leader: whether all members have a vote, and get entries as they come, as far as it knows.
    #[must_use]
    pub fn all_keep_up(&self) -> bool {
        let raft = &self.node.raft;
        let members = &self.members;
        let others = || raft.prs().iter().filter(|(member, _)| **member != self.member);
        members.learners.is_empty()
            && members.voters_outgoing.is_empty()
            && !raft.has_pending_conf()
            && raft.lead_transferee.is_none()
            && self.candidate.is_none()
            && self.wanted.is_empty()
            && others().all(|(_, progress)| progress.state == ProgressState::Replicate)
    }

    /// The connection with a peer ended: what was agreed with it counts no more.
    pub(super) fn forget_rhythm_with(&mut self, peer: ReplicaId) {
        self.set_calm(false);
        if self.leader() == Some(peer) {
            self.rhythm.slow = None;
        }
    }

    /// Makes this leader's heartbeats say its rhythm.
    pub(super) fn mark_heartbeats(&self, messages: &mut [Message]) {
        if self.rhythm.asks != Some(self.node.raft.term) {
            return;
        }
        for message in messages {
            if message.get_msg_type() == MessageType::MsgHeartbeat {
                message.context = context(ASKS, self.rhythm.round);
            }
        }
    }

    /// Before the library sees a heartbeat, of which it answers the context: whether it asks for a slow rhythm.
    pub(super) fn read_heartbeat(message: &mut Message) -> bool {
        let round = read(ASKS, &message.context);
        if let Some(round) = round {
            message.context = context(AGREES, round);
        }
        round.is_some()
    }

    /// Afterwards: the leader's rhythm is this one's.
    pub(super) fn follow_rhythm(&mut self, from: u64, term: u64, slow: bool) {
        let raft = &self.node.raft;
        if raft.state == StateRole::Follower && (raft.term, raft.leader_id) == (term, from) {
            self.rhythm.slow = slow.then_some((term, from));
        }
    }

    /// A member has answered a heartbeat with this context.
    pub(super) fn hear_rhythm(&mut self, from: u64, term: u64, answer: &[u8]) {
        let raft = &self.node.raft;
        let rhythm = &mut self.rhythm;
        let current = raft.state == StateRole::Leader && raft.term == term;
        let asks = rhythm.asks == Some(raft.term);
        if !current || !asks || read(AGREES, answer) != Some(rhythm.round) {
            return;
        }
        rhythm.agreed.insert(from);
        let agrees = |member: &u64| *member == self.member || rhythm.agreed.contains(member);
        if raft.prs().iter().all(|(member, _)| agrees(member)) {
            rhythm.slow = Some((raft.term, self.member));
        }
    }
}

fn context(kind: u8, round: u64) -> Bytes {
    [&[kind][..], &round.to_le_bytes()].concat().into()
}

fn read(kind: u8, context: &[u8]) -> Option<u64> {
    let round = context.strip_prefix(&[kind])?;
    Some(u64::from_le_bytes(round.try_into().ok()?))
}
