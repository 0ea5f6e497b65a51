//! Messages of peers: what is checked before the library sees them, and what it does not say itself.

use super::{Consensus, Outgoing, StepError};
use crate::{types::replica_of, wire};
use raft::{
    StateRole,
    eraftpb::{Entry, EntryType, Message, MessageType},
};
use skein_model::{LogIndex, ReplicaId};

impl Consensus {
    /// A message came from a peer. An error is the peer's fault or the sign of a lost log; the state is unchanged.
    pub fn step(&mut self, from: ReplicaId, bytes: &[u8]) -> Result<(), StepError> {
        let mut message = wire::decode(bytes)?;
        if replica_of(message.from) != from {
            return Err(StepError::Sender(from, replica_of(message.from)));
        }
        if message.to != self.member {
            // For an earlier incarnation of this replica.
            return Ok(());
        }
        self.check_message(from, &message)?;
        self.check_level(&message)?;
        match message.get_msg_type() {
            MessageType::MsgSnapshot if !message.has_snapshot() => {
                return self.hear_of_base(from, &message);
            }
            MessageType::MsgSnapshot => self.check_snapshot(from, &message)?,
            MessageType::MsgSnapStatus => {
                self.hear_of_image(&message);
                return Ok(());
            }
            _ => {}
        }
        let kind = message.get_msg_type();
        let (member, term) = (message.from, message.term);
        let slow = kind == MessageType::MsgHeartbeat && Self::read_heartbeat(&mut message);
        let answer = message.context.clone();
        let before = self.node.raft.msgs.len();
        let asked_to_lead = (kind == MessageType::MsgTimeoutNow).then(|| message.clone());
        // The remaining errors are messages of unknown members, which are ignored as if lost.
        let _ = self.node.step(message);
        if self.is_behind_commit() {
            self.asked_to_lead = asked_to_lead.or(self.asked_to_lead.take());
        }
        match kind {
            MessageType::MsgHeartbeat => self.follow_rhythm(member, term, slow),
            MessageType::MsgHeartbeatResponse => {
                self.drop_reminders(before);
                self.hear_rhythm(member, term, &answer);
            }
            _ => {}
        }
        Ok(())
    }

    /// The library refuses to campaign, and says nothing, while a change of members is committed and not applied, as it is when both come at once: the leader's
    /// request would be lost, and nobody would lead until it gave up. An old one does nothing in a later term.
    pub(super) fn lead_as_asked(&mut self) {
        if !self.is_behind_commit()
            && let Some(asked) = self.asked_to_lead.take()
        {
            let _ = self.node.step(asked);
        }
    }

    /// Whether this follower knows more to be committed than it has applied.
    fn is_behind_commit(&self) -> bool {
        let raft = &self.node.raft;
        raft.state == StateRole::Follower && raft.raft_log.applied < raft.raft_log.committed
    }

    /// After a heartbeat the library sends an empty append to a follower that has not acknowledged everything. One that may take its time would be
    /// woken by that for nothing.
    fn drop_reminders(&mut self, from: usize) {
        let last = self.node.raft.raft_log.last_index();
        if last > self.unhurried.0 {
            return;
        }
        let reminds = |m: &Message| {
            m.get_msg_type() == MessageType::MsgAppend && m.entries.is_empty() && m.index == last
        };
        let messages = &mut self.node.raft.msgs;
        let kept: Vec<_> =
            messages.drain(from.min(messages.len())..).filter(|m| !reminds(m)).collect();
        messages.extend(kept);
    }

    /// Statements of a peer that the library would take for a broken invariant and panic.
    fn check_message(&self, from: ReplicaId, message: &Message) -> Result<(), StepError> {
        // A leader's first entry of a term is empty.
        let odd = |entry: &&Entry| {
            entry.get_entry_type() == EntryType::EntryNormal
                && !entry.data.is_empty()
                && !(self.config.is_payload)(&entry.data)
        };
        if let Some(entry) = message.entries.iter().find(odd) {
            return Err(StepError::Entry { from, index: LogIndex(entry.index) });
        }
        let raft = &self.node.raft;
        let last = LogIndex(raft.raft_log.last_index());
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if message.term >= raft.term && message.commit > last.0 => {
                Err(StepError::LogLost { acknowledged: LogIndex(message.commit), last })
            }
            // Only a leader's own incarnation vouches for its entries: it sends before its disk is done, so a leader that lost power
            // may hear of an entry that it no longer has.
            MessageType::MsgAppendResponse
                if raft.state == StateRole::Leader
                    && message.term == raft.term
                    && !message.reject
                    && message.index > last.0 =>
            {
                Err(StepError::NeverSent { from, index: LogIndex(message.index) })
            }
            _ => Ok(()),
        }
    }
}

/// Messages that are to be sent at once.
pub(super) fn encode_all(messages: Vec<Message>) -> impl Iterator<Item = Outgoing> {
    encode_unhurried(messages, LogIndex(0))
}

/// Messages of which one with the entry `unhurried`, and no other, may wait. Entries before that were sent with others.
pub(super) fn encode_unhurried(
    messages: Vec<Message>,
    unhurried: LogIndex,
) -> impl Iterator<Item = Outgoing> {
    let encode = move |message: Message| {
        let may_wait = message.get_msg_type() == MessageType::MsgAppend
            && matches!(message.entries.as_slice(), [entry] if entry.index == unhurried.0);
        let to = replica_of(message.to);
        wire::encode(&message).map(|bytes| Outgoing { to, bytes, may_wait })
    };
    messages.into_iter().filter_map(encode)
}
