//! From what the consensus library wants done to a [`Batch`]: what waits for the disk, what does not, and what is applied.

use super::{
    Batch, Consensus, Held,
    members::{add_voter, has, has_replica},
    messages::{encode_all, encode_unhurried},
    store,
};
use crate::{
    base::{Members, NewBase},
    places::{Context, Places},
    types::{EntryKind, HardState, LogEntry, Persist, member_id},
};
use protobuf::Message as _;
use raft::{
    INVALID_ID, Ready, StateRole,
    eraftpb::{ConfChangeV2, ConfState, Entry, EntryType, Message, MessageType},
};
use skein_model::{LogIndex, ReplicaId, Term};

/// The longest membership entry: larger than a change of all members with the longest places. The parser nests no deeper than half of it.
const MAX_MEMBERSHIP_BYTES: usize = 2048;

impl Consensus {
    pub(super) fn process_async(&mut self, batch: &mut Batch) {
        let mut ready = self.node.ready();
        let number = ready.number();
        // A follower's sign of life promises nothing: a slow disk must not look like a dead follower, or the leader gives up.
        let alive = |m: &Message| m.get_msg_type() == MessageType::MsgHeartbeatResponse;
        let (alive, held): (Vec<_>, Vec<_>) =
            ready.take_persisted_messages().into_iter().partition(alive);
        let mut messages = ready.take_messages();
        self.mark_heartbeats(&mut messages);
        let committed = ready.take_committed_entries();
        let must_sync = ready.must_sync();
        self.note_hard_state(&ready);
        if ready.snapshot().has_metadata() {
            self.reset(ready.snapshot(), batch);
        }
        self.node.mut_store().append(ready.entries());
        self.note_levels(ready.entries());
        if must_sync {
            batch.persist = Some(Persist {
                ticket: self.next_ticket(),
                hard_state: Some(self.hard_state),
                base: batch.reset.clone().map(NewBase::Reset),
                entries: ready.entries().iter().map(store::to_log_entry).collect(),
            });
        }
        self.node.advance_append_async(ready);
        batch.messages.extend(encode_unhurried(messages, self.unhurried));
        batch.messages.extend(encode_all(alive));
        if must_sync || self.issued > self.durable {
            let silent =
                |m: &Message| m.get_msg_type() == MessageType::MsgAppendResponse && !m.reject;
            batch.awaited = !held.iter().all(silent);
            let messages = encode_all(held).collect();
            self.held.push_back(Held { after: self.issued, number, messages });
        } else {
            self.node.on_persist_ready(number);
            batch.messages.extend(encode_all(held));
        }
        self.apply(&committed, batch);
        self.apply_ahead(batch);
    }

    /// A leader need not wait for its own disk when a majority of others has the entries: the library would wait, since a follower could
    /// not answer for it. A membership change waits, as the library applies it.
    fn apply_ahead(&mut self, batch: &mut Batch) {
        let raft = &self.node.raft;
        let log = &raft.raft_log;
        let next = self.applied.0 + 1;
        // Up to `persisted` the library counts.
        if raft.state != StateRole::Leader || next <= log.persisted || next > log.committed {
            return;
        }
        let ahead = self.node.store().read(next, log.committed + 1, u64::MAX);
        let mut ahead = ahead.expect("what is not durable yet is in memory");
        let membership = |entry: &Entry| entry.get_entry_type() != EntryType::EntryNormal;
        ahead.truncate(ahead.iter().position(membership).unwrap_or(ahead.len()));
        self.apply(&ahead, batch);
    }

    pub(super) fn process_in_memory(&mut self, batch: &mut Batch) {
        let mut ready = self.node.ready();
        let mut messages = ready.take_messages();
        self.mark_heartbeats(&mut messages);
        batch.messages.extend(encode_all(messages));
        let held = ready.take_persisted_messages();
        let committed = ready.take_committed_entries();
        self.note_hard_state(&ready);
        if ready.snapshot().has_metadata() {
            self.reset(ready.snapshot(), batch);
        }
        self.node.mut_store().append(ready.entries());
        self.note_levels(ready.entries());
        let mut light = self.node.advance_append(ready);
        batch.messages.extend(encode_all(held));
        batch.messages.extend(encode_all(light.take_messages()));
        self.apply(&committed, batch);
        self.apply(light.committed_entries(), batch);
    }

    fn note_hard_state(&mut self, ready: &Ready) {
        if let Some(state) = ready.hs() {
            self.hard_state = HardState {
                term: Term(state.term),
                vote: state.vote,
                commit: LogIndex(state.commit),
            };
        }
    }

    fn apply(&mut self, committed: &[Entry], batch: &mut Batch) {
        for entry in committed {
            if entry.index <= self.applied.0 {
                // Handed out ahead.
                continue;
            }
            assert_eq!(entry.index, self.applied.0 + 1, "a committed entry was skipped");
            self.applied = LogIndex(entry.index);
            let entry = store::to_log_entry(entry);
            if entry.kind == EntryKind::Membership {
                self.apply_membership(&entry);
            } else if entry.is_payload() {
                batch.committed.push(entry);
            }
        }
        self.uncommitted.committed(self.applied);
        let log = &self.node.raft.raft_log;
        let told = self.applied.0.min(log.persisted);
        if told > log.applied {
            self.node.advance_apply_to(told);
        }
    }

    /// All replicas apply the same changes in the same order; an impossible change has no effect on any of them.
    pub(super) fn apply_membership(&mut self, entry: &LogEntry) {
        let is_first = self.membership == LogIndex(0);
        self.membership = entry.index;
        self.levels_ahead.retain(|(index, _)| *index > entry.index);
        let payload = &entry.payload;
        let mut change = ConfChangeV2::default();
        if payload.len() > MAX_MEMBERSHIP_BYTES || change.merge_from_bytes(payload).is_err() {
            return;
        }
        let context = Context::decode(&change.context);
        if is_first {
            self.names_no_founders = context.as_ref().is_none_or(|c| c.founders.is_empty());
        }
        if self.members.voters.is_empty() {
            self.found(context.as_ref().map(|context| context.founders.as_slice()));
        }
        if let Ok(members) = self.node.apply_conf_change(&change) {
            let level_only = context.as_ref().is_some_and(Context::says_level_only);
            self.places_unsaid = level_only && (is_first || self.places_unsaid);
            if let Some(context) = context {
                let level = self.places.level.max(context.places.level);
                let places = if level_only { self.places.clone() } else { context.places };
                self.places = places.with_level(level);
            }
            self.places.edit().retain(|replica, _| has_replica(&members, *replica));
            let said = match self.places_unsaid {
                true => Places::default().with_level(self.places.level),
                false => self.places.clone(),
            };
            let known = Members::of(&members, said);
            self.node.mut_store().members_changed(entry.index, known);
            self.take_members(members);
            self.step_down_if_gone();
        }
    }

    /// A leader may have found the proposal of its own removal in its log: the library would go on to count it among the members.
    fn step_down_if_gone(&mut self) {
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && raft.prs().get(self.member).is_none() {
            let term = raft.term;
            raft.become_follower(term, INVALID_ID);
        }
    }

    /// This replica has joined, and comes to the cluster's first change: before it there were the founders. Its configuration has other peers.
    fn found(&mut self, founders: Option<&[ReplicaId]>) {
        let known = founders.filter(|founders| !founders.is_empty());
        for founder in known.unwrap_or(&self.config.voters).to_vec() {
            // Cannot fail: a voter more, in no joint configuration.
            let voter = add_voter(member_id(founder, 0));
            self.members = self.node.apply_conf_change(&voter).unwrap_or_default();
        }
        let members = Members::of(&self.members, Places::default());
        self.node.mut_store().founded_by(members);
    }

    pub(super) fn take_members(&mut self, members: ConfState) {
        // Who comes has agreed to nothing.
        self.set_calm(false);
        self.version += 1;
        self.changed = true;
        let was_member = self.is_removed || has(&self.members, self.member);
        self.is_removed = was_member && !has(&members, self.member);
        self.candidate.take_if(|candidate| has_replica(&members, candidate.replica));
        self.members = members;
        self.forget_hellos();
        if self.takes_part() {
            for (peer, incarnation) in std::mem::take(&mut self.unknown) {
                self.want(peer, incarnation);
            }
        }
    }
}
