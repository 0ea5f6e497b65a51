//! The level that all members know, agreed on in the log. See [`Level`].
//!
//! Each replica says the newest level that it knows, and is believed for as long as its connection lasts: behind another one there may be an older program. When all
//! members have said that they know a level, learners too, the leader proposes it: a membership change that changes nobody, whose context says the level and nobody's place. Later
//! changes and bases repeat it.
//!
//! The record is itself a form of level 2. From its proposal on, committed or not, this replica *needs* its level of others: one that has not said it gets no message of
//! consensus, and is not taken in. So no older program ever sees the record, and one that comes back with its former data does no harm.

use super::{
    Consensus, Outgoing, StepError,
    members::{add_voter, all},
};
use crate::{
    level::{HeldBack, Level, TooNew},
    places::{Context, Places},
    types::replica_of,
    wire::{level_of_entry, level_of_message},
};
use raft::{
    StateRole,
    eraftpb::{Entry, Message},
};
use skein_model::{LogIndex, ReplicaId};
use std::collections::BTreeSet;

impl Consensus {
    /// The level that all members know: its forms may be sent and written. It never falls.
    #[must_use]
    pub const fn agreed_level(&self) -> Level {
        self.places.level
    }

    /// The level that a replica must know to take part: the agreed one, or that of a record in this log of which is not known yet whether it is committed.
    #[must_use]
    pub fn needed_level(&self) -> Level {
        let ahead = self.levels_ahead.iter().map(|(_, level)| *level).max();
        ahead.unwrap_or_default().max(self.places.level)
    }

    /// The newest level that this program knows.
    #[must_use]
    pub const fn known_level(&self) -> Level {
        self.config.level
    }

    /// A peer says the newest level that it knows. To be repeated on each connection; [`peer_lost`](Self::peer_lost) ends it.
    pub fn hear_level(&mut self, peer: ReplicaId, level: Level) {
        self.levels.insert(peer, level);
    }

    /// What a connected peer has said.
    #[must_use]
    pub fn level_of(&self, peer: ReplicaId) -> Option<Level> {
        self.levels.get(&peer).copied()
    }

    /// Whether a peer has said that it knows what this log needs.
    #[must_use]
    pub fn is_new_enough(&self, peer: ReplicaId) -> bool {
        self.level_of(peer).unwrap_or_default() >= self.needed_level()
    }

    /// On a leader: proposes the newest level that all members know, if that is a higher one. To be called now and then.
    pub fn raise_level(&mut self) {
        let raft = &self.node.raft;
        if self.places.level >= self.config.level || raft.state != StateRole::Leader {
            return;
        }
        let known = all(&self.members).map(|member| self.known_by(replica_of(member))).min();
        let level = known.unwrap_or_default();
        let changes = raft.has_pending_conf() || !self.members.voters_outgoing.is_empty();
        if level <= self.places.level || changes {
            return;
        }
        let nobody = add_voter(self.member);
        let founders = self.context(&nobody).founders;
        let context = Context { founders, places: Places::default().with_level(level) };
        // Refused while busy: tried again.
        let _ = self.propose_with(nobody, Some(&context));
    }

    fn known_by(&self, replica: ReplicaId) -> Level {
        match replica == self.config.id {
            true => self.config.level,
            false => self.level_of(replica).unwrap_or_default(),
        }
    }

    /// On a leader: what keeps the members from agreeing on the newest level that it knows.
    #[must_use]
    pub fn held_back(&self) -> Option<HeldBack> {
        let (agreed, known) = (self.places.level, self.config.level);
        if agreed >= known || self.node.raft.state != StateRole::Leader {
            return None;
        }
        let members: BTreeSet<_> = all(&self.members).map(replica_of).collect();
        let by = members.into_iter().filter(|replica| self.known_by(*replica) < known).collect();
        Some(HeldBack { agreed, known, by })
    }

    /// Entries were appended, perhaps in place of others.
    pub(super) fn note_levels(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let before = self.needed_level();
        self.levels_ahead.retain(|(index, _)| index.0 < first.index);
        let levels = entries.iter().map(|entry| (LogIndex(entry.index), level_of_entry(entry)));
        self.levels_ahead.extend(levels.filter(|(_, level)| *level > Level::FIRST));
        self.version += u64::from(self.needed_level() != before);
    }

    /// Messages to replicas that would not understand the log are not sent.
    pub(super) fn drop_messages_to_older(&mut self, messages: &mut Vec<Outgoing>) {
        if self.needed_level() == Level::FIRST {
            return;
        }
        let older = messages.extract_if(.., |message| !self.is_new_enough(message.to));
        let older: BTreeSet<ReplicaId> = older.map(|message| message.to).collect();
        for peer in older {
            self.report_unreachable(peer);
        }
    }

    /// No peer sends what this program does not know, after what it has said; if one did, this would apply what it cannot read.
    pub(super) fn check_level(&self, message: &Message) -> Result<(), StepError> {
        let (needed, known) = (level_of_message(message), self.config.level);
        if needed > known { Err(StepError::TooNew(TooNew { needed, known })) } else { Ok(()) }
    }
}
