//! Logs that forget, and members who get an image of the server instead of the entries. See "Where the log begins" in the [module](super).
//!
//! ```text
//! leader                                            member
//!   needs entries from before the base
//!   -- BelowBase base, applied -------------------->  holds no such image: StepError::BelowBase, the caller gets one
//!   <--------------------------- HoldsImage index --  holds one
//!   -- Snapshot index, term, members -------------->  still holds it: Batch::reset
//!                                                     no longer: StepError::NoImage
//!   <--------------------------- HoldsImage 0 ------
//!   <--------------------------- AppendResponse ----  the new base is durable
//!   -- Append ... --------------------------------->
//! ```
//!
//! A [witness](Kind::Witness) executes nothing, so it needs no image: it takes any base for one that it holds, and forgets what others hold images of
//! ([`Consensus::compact`]).
//!
//! Each step is repeated until it has an effect: the leader asks again at each answer to a heartbeat, and sends a snapshot again that had no effect
//! for some election timeouts. No step depends on an earlier leader.

use super::{Batch, Consensus, Outgoing, StepError, change::known_places};
use crate::{
    base::{Base, Members, NewBase},
    places::Kind,
    types::{Durability, Persist, Ticket, incarnation_of, replica_of},
    wire,
};
use raft::{
    ProgressState, SnapshotStatus, StateRole, Storage as _,
    eraftpb::{Message, MessageType, Snapshot},
};
use skein_model::{LogIndex, ReplicaId, Term};
use std::collections::BTreeSet;

/// A snapshot had no effect for so many election timeouts: it is sent again.
const PATIENCE_TIMEOUTS: u32 = 2;

impl Consensus {
    /// Forgets the entries up to `image`, an image of the server that is durable here, but for the last `keep` of them; answers the new base, if it is another one.
    ///
    /// Nothing is forgotten while the log on disk does not reach the image, which a leader's may not do: try again later. So a replica that starts again finds
    /// an image between its [`base`](crate::Recovered::base) and [`applied`](Self::applied), if images are kept that are not before the base of the log
    /// on disk. That log gets the new base by the next [`Batch::persist`], and its files shrink some time after that is durable.
    pub fn compact(&mut self, image: LogIndex, keep: u64) -> Option<Base> {
        let log = &self.node.raft.raft_log;
        // The library may be told later of what is applied than the caller.
        if image > self.applied || image.0 > log.applied.min(log.persisted) {
            return None;
        }
        let base = self.base_at(LogIndex(image.0.saturating_sub(keep)))?;
        if base.index < self.first_index() {
            return None;
        }
        self.node.mut_store().forget(&base);
        if self.config.durability == Durability::Fsync {
            self.forgot = Some(base.clone());
        }
        Some(base)
    }

    /// The base of a log that begins after the entry at `index`, which an image of the server at that entry needs; `None` if the entry is not applied, or
    /// from before the present base.
    #[must_use]
    pub fn base_at(&self, index: LogIndex) -> Option<Base> {
        (index <= self.applied).then(|| self.node.store().base_at(index)).flatten()
    }

    /// The images of the server that this replica holds durably, by the entries that they contain; replaces what was said before. To be called at the start and
    /// at each change, on every replica: it is filled from one of them if it needs entries that the leader no longer has. An image that
    /// a [`Batch::reset`] named must be kept until a newer one is durable.
    pub fn hold_images(&mut self, images: impl IntoIterator<Item = LogIndex>) {
        self.images = images.into_iter().collect();
    }

    /// The newest held image that the log continues, and that is of applied entries: one to begin with after a start, and one for members who need one. There may be newer
    /// ones, as a replica that starts again may know of fewer commits than before.
    #[must_use]
    pub fn newest_image(&self) -> Option<LogIndex> {
        let base = LogIndex(self.first_index().0 - 1);
        (base <= self.applied).then(|| self.images.range(base..=self.applied).last().copied())?
    }

    /// Members who recently turned out to need an image of the server, because their logs end before this leader's begins, with their incarnations:
    /// [`newest_image`](Self::newest_image), or any other between the base and what is applied here. They are named again until they have one.
    pub fn take_below_base(&mut self) -> Vec<(ReplicaId, u64)> {
        let below = std::mem::take(&mut self.below_base);
        below.into_iter().map(|member| (replica_of(member), incarnation_of(member))).collect()
    }

    /// Tells members who need entries from before this log's first one; true if there are any.
    pub(super) fn tell_of_base(&mut self, messages: &mut Vec<Outgoing>) -> bool {
        if !self.node.store().has_below_base() {
            return false;
        }
        let before = messages.len();
        for to in self.node.mut_store().take_below_base() {
            let raft = &self.node.raft;
            let base = LogIndex(self.first_index().0 - 1);
            let term = self.node.store().term(base.0).map(Term).unwrap_or_default();
            let way = (self.member, to, raft.term);
            let kind = self.places.get(replica_of(to)).map(|place| place.kind);
            let bytes = wire::below_base(way, (base, term), self.applied, kind);
            messages.push(Outgoing { to: replica_of(to), bytes, may_wait: false });
            self.below_base.insert(to);
        }
        messages.len() > before
    }

    /// The log on disk is to forget what this has forgotten, and to know the newest members; true if there is something.
    pub(super) fn persist_base(&mut self, batch: &mut Batch) -> bool {
        if self.forgot.is_none() && !self.changed {
            return false;
        }
        let changed =
            std::mem::take(&mut self.changed) && self.config.durability == Durability::Fsync;
        let base = self.forgot.take().map(|base| NewBase::Forget(Box::new(base)));
        if base.is_none() && !changed {
            return false;
        }
        // A replica that starts again must know that the image is committed, and the newest members.
        self.hard_state.commit = self.hard_state.commit.max(self.applied);
        let hard_state = Some(self.hard_state);
        match &mut batch.persist {
            Some(persist @ Persist { base: Some(_), .. }) => persist.hard_state = hard_state,
            Some(persist) => (persist.hard_state, persist.base) = (hard_state, base),
            None => {
                let ticket = self.next_ticket();
                batch.persist = Some(Persist { ticket, hard_state, base, entries: Vec::new() });
            }
        }
        true
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.issued.0 += 1;
        self.issued
    }

    /// A leader says that its log begins behind what this replica has of it.
    pub(super) fn hear_of_base(
        &mut self,
        from: ReplicaId,
        message: &Message,
    ) -> Result<(), StepError> {
        let log = &self.node.raft.raft_log;
        let (base, last) = (LogIndex(message.index), LogIndex(log.committed));
        if message.term < self.node.raft.term {
            return Ok(());
        }
        // Entries that are not committed may be others than the leader's.
        if base <= last || log.match_term(message.index, message.log_term) {
            // What this replica has acknowledged may be lost. An append of nothing behind the base is answered by where it is.
            let mut append = message.clone();
            append.set_msg_type(MessageType::MsgAppend);
            append.commit = 0;
            // An error is a message of an unknown member, as in `step`.
            let _ = self.node.step(append);
            return Ok(());
        }
        self.hear_of_kind(message);
        if self.is_witness() {
            self.say_image(message, base);
            return Ok(());
        }
        // One of an entry that the leader has not applied is of no use to it: it may not know yet who took part then.
        let usable = self.images.range(base..).take_while(|image| image.0 <= message.commit);
        let Some(image) = usable.last() else {
            return Err(StepError::BelowBase { from, first: base.next(), last });
        };
        self.say_image(message, *image);
        Ok(())
    }

    /// What the log says of a member counts, whatever that is configured as: one that took itself for a witness would do without an image, and be counted on later.
    fn hear_of_kind(&mut self, message: &Message) {
        let before = self.kind_of(self.config.id);
        self.told_kind = wire::told_kind(message).or(self.told_kind);
        self.version += u64::from(self.kind_of(self.config.id) != before);
    }

    /// Whether this replica executes nothing.
    fn is_witness(&self) -> bool {
        self.kind_of(self.config.id) == Kind::Witness
    }

    fn say_image(&mut self, to: &Message, image: LogIndex) {
        let bytes = wire::holds_image(self.member, to.from, to.term, image);
        self.released.push(Outgoing { to: replica_of(to.from), bytes, may_wait: false });
    }

    /// A member says which image it holds.
    pub(super) fn hear_of_image(&mut self, message: &Message) {
        let raft = &self.node.raft;
        let member = message.from;
        let Some(progress) = raft.prs().get(member) else { return };
        if raft.state != StateRole::Leader || message.term != raft.term {
            return;
        }
        let state = progress.state;
        if message.index == 0 {
            self.node.mut_store().holds_image(member, None);
            self.give_up_snapshot(member);
        } else if state != ProgressState::Snapshot
            && self.base_at(LogIndex(message.index)).is_some()
        {
            self.node.mut_store().holds_image(member, Some(LogIndex(message.index)));
            let raft = &mut self.node.raft;
            if let Some(progress) = raft.mut_prs().get_mut(member) {
                progress.resume();
            }
            raft.send_append(member);
        }
    }

    /// A leader sends a snapshot: an error if this replica does not hold the image that it stands for.
    pub(super) fn check_snapshot(
        &mut self,
        from: ReplicaId,
        message: &Message,
    ) -> Result<(), StepError> {
        let raft = &self.node.raft;
        let meta = message.get_snapshot().get_metadata();
        let index = LogIndex(meta.index);
        // One that is late, or of a base that the log has anyhow, changes no more than the commit index.
        let is_late = message.term < raft.term || index.0 <= raft.raft_log.committed;
        if is_late
            || raft.raft_log.match_term(meta.index, meta.term)
            || self.is_witness()
            || self.images.contains(&index)
        {
            return Ok(());
        }
        self.say_image(message, LogIndex(0));
        Err(StepError::NoImage { from, index })
    }

    /// The log is replaced by a base that the leader sent.
    pub(super) fn reset(&mut self, snapshot: &Snapshot, batch: &mut Batch) {
        let meta = snapshot.get_metadata();
        if meta.index == 0 {
            return;
        }
        let members = Members::of(meta.get_conf_state(), wire::places_of(snapshot));
        let base = Base { index: LogIndex(meta.index), term: Term(meta.term), members };
        self.node.mut_store().reset(&base);
        self.node.raft.raft_log.applied = meta.index;
        self.applied = base.index;
        // It may be an earlier one; the members know this entry at the latest.
        self.membership = base.index;
        self.places = known_places(&self.config, &base.members);
        self.places_unsaid = base.members.says_level_only();
        self.levels_ahead.clear();
        self.take_members(base.members.to_state());
        // The disk learns of the later base only.
        self.forgot = None;
        batch.reset = Some(Box::new(base));
    }

    /// A snapshot, or the answer to it, may be lost: it is small, and sent again.
    pub(super) fn tick_snapshots(&mut self) {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            self.snapshots.clear();
            return;
        }
        let sent =
            |(_, progress): &(&u64, &raft::Progress)| progress.state == ProgressState::Snapshot;
        let sent: BTreeSet<u64> = raft.prs().iter().filter(sent).map(|(id, _)| *id).collect();
        self.snapshots.retain(|member, _| sent.contains(member));
        for member in sent {
            let ticks = self.snapshots.entry(member).or_default();
            *ticks += 1;
            if *ticks > PATIENCE_TIMEOUTS * self.config.election_ticks {
                self.give_up_snapshot(member);
            }
        }
    }

    pub(super) fn give_up_snapshot(&mut self, member: u64) {
        self.snapshots.remove(&member);
        self.node.report_snapshot(member, SnapshotStatus::Failure);
    }
}
