//! Members come and go at an operator's request.
//!
//! A request is repeated until it is done, on whichever replica leads: [`Consensus::change`] does the next step and says how far it is. What must not be forgotten
//! is in the log: the learner, the replica that it replaces, all places. Only the leader's knowledge of a replica that has not said hello yet is
//! not, and ends when the request is no longer repeated.
//!
//! ```text
//! add, replace: the leader reaches the replica (candidate), it becomes a learner, catches up, and gets a vote; the one it replaces loses its own in the same joint change
//! remove:       refused if the rest would have no majority; a leader does not remove itself
//! ```

use super::{
    Consensus, ProposeError, UnfitKinds,
    members::{adds_learner, all, change, has, has_replica, of_replica, removes},
    unfit_kinds,
};
use crate::{
    base::Members,
    places::{Context, Kind, MAX_ADDRESS_BYTES, MAX_REPLICAS, Place, Places, is_address},
    types::{LogEntry, Role, incarnation_of, majority, member_id, replica_of},
};
use protobuf::Message as _;
use raft::{
    StateRole,
    eraftpb::{ConfChangeV2, EntryType},
};
use skein_model::{LogIndex, ReplicaId};
use std::collections::BTreeSet;

/// A candidate is forgotten when nobody has asked for it for so many election timeouts.
const CANDIDATE_TIMEOUTS: u32 = 40;

/// A replica that is to be taken in, and is not a member yet.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub replica: ReplicaId,
    pub place: Place,
    /// Ticks until it is forgotten.
    left: u32,
}

/// A change of the members that an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A replica more, whose node is at this address, of this kind.
    Add(ReplicaId, String, Kind),
    /// A replica less.
    Remove(ReplicaId),
    /// The second in place of the first, at this address; of this kind, or that of the first.
    Replace(ReplicaId, ReplicaId, String, Option<Kind>),
    /// A replica that is being taken in is not, unless it has its vote by now.
    Withdraw(ReplicaId),
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another change, or an election, must end first.
    Waits,
    /// The replica has not said hello to the leader.
    Unreached,
    /// It has the log up to the first entry, of the second.
    Fills(LogIndex, LogIndex),
    /// The change is in the log, and not yet committed.
    Agreeing,
    /// It is done, and so many replicas know it that one that went may be switched off.
    Done,
}

/// The reason why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another replica leads, or no leader is known.
    #[error("this replica does not lead")]
    NotLeader(Option<ReplicaId>),
    /// The leader is to go: it must hand leadership on before.
    #[error("this replica leads and is to go: another one must lead first")]
    Leads,
    /// An id that no replica can have.
    #[error("a replica's id is from 1 to 65535")]
    Id,
    /// An address that cannot be kept.
    #[error("an address must be printable, and have 1 to {MAX_ADDRESS_BYTES} bytes")]
    Address,
    /// A member has this id.
    #[error("replica {0} is a member already: choose another id")]
    IdInUse(ReplicaId),
    /// A member has this address.
    #[error("replica {0} is at this address already: choose another one")]
    AddressInUse(ReplicaId),
    /// No member has this id.
    #[error("replica {0} is not a member: 'skein members' lists them")]
    Unknown(ReplicaId),
    /// It has a vote by now.
    #[error("replica {0} is a member with a vote by now")]
    Votes(ReplicaId),
    /// Another change must end first.
    #[error(
        "another change is under way: replica {0} is being taken in; wait, or end it by 'skein members remove {0}'"
    )]
    UnderWay(ReplicaId),
    /// More replicas than a cluster can have.
    #[error("a cluster has at most {MAX_REPLICAS} replicas")]
    TooMany,
    /// The log begins with a change of a program that did not say who founded the cluster.
    #[error(
        "the log still has a change of the members by an earlier version of Skein, from which a new replica could not tell who founded the cluster: \
         ask again when images have taken the log's place ('skein checkpoint create' on each replica, twice)"
    )]
    OldChange,
    /// Nobody else could lead when it goes.
    #[error("replica {0} is the only one with a vote: add the new one, then remove it")]
    Only(ReplicaId),
    /// The members that would be left cannot form a cluster.
    #[error("with this change {0}")]
    Kinds(UnfitKinds),
    /// The last one.
    #[error("replica {0} is the last one: 'skein stop' ends the cluster")]
    Last(ReplicaId),
    /// The remaining replicas would not be a majority.
    #[error(
        "without replica {gone} only {connected} of {replicas} replicas would be connected, and {needed} are needed: bring others back first"
    )]
    Quorum {
        /// The one to go.
        gone: ReplicaId,
        /// Those that are connected, without it.
        connected: usize,
        /// Those that have a vote, without it.
        replicas: usize,
        /// How many of these must be there.
        needed: usize,
    },
    /// The log takes no entry now.
    #[error("the log is busy: try again")]
    Busy,
}

impl From<ProposeError> for ChangeError {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NotLeader { leader } => Self::NotLeader(leader),
            ProposeError::Busy | ProposeError::Empty | ProposeError::TooLong { .. } => Self::Busy,
        }
    }
}

/// A member, as every replica knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The replica.
    pub id: ReplicaId,
    /// Where it is reached; empty if the log does not know.
    pub place: Place,
    /// Whether it has a vote, in some incarnation.
    pub votes: bool,
    /// Whether one of its incarnations is being taken in.
    pub learns: bool,
}

/// The members before the first membership change in a log.
pub(super) fn first_members(
    config: &super::Config,
    base: &Members,
    changes: &[LogEntry],
) -> Members {
    if !base.is_founders() {
        let members = base.clone();
        return Members { places: known_places(config, base), ..members };
    }
    let first = changes.first().and_then(|entry| {
        let mut change = ConfChangeV2::default();
        change.merge_from_bytes(&entry.payload).ok()?;
        Context::decode(&change.context)
    });
    let founders = match first.map(|context| context.founders) {
        Some(founders) if !founders.is_empty() => founders,
        // A log that is not the replica's first: it joins, or joins again, and learns from the log who founded the cluster.
        _ if config.incarnation > 0 => Vec::new(),
        _ => config.voters.clone(),
    };
    let places = config_places(config, |id| founders.contains(&id));
    let voters = founders.iter().map(|id| member_id(*id, 0)).collect();
    Members { voters, places, ..base.clone() }
}

/// The places of a base's members.
pub(super) fn known_places(config: &super::Config, members: &Members) -> Places {
    if !members.places.is_empty() {
        return members.places.clone();
    }
    // Of a program that did not keep them, or of members who have agreed on a level alone.
    let ids: Vec<_> = members.lists().into_iter().flatten().map(|m| replica_of(*m)).collect();
    config_places(config, |id| ids.contains(&id)).with_level(members.places.level)
}

fn config_places(config: &super::Config, known: impl Fn(ReplicaId) -> bool) -> Places {
    let places = config.places.iter();
    let places = places.filter(|(id, place)| known(**id) && is_address(&place.address));
    places.map(|(id, place)| (*id, place.clone())).collect()
}

impl Consensus {
    /// Does the next step of a change, on the leader. To be repeated until it is done, with `first` only the first time: then it is refused if it is done
    /// already. `connected` says which other replicas are there.
    pub fn change(
        &mut self,
        wanted: &Change,
        first: bool,
        connected: impl Fn(ReplicaId) -> bool,
    ) -> Result<Progress, ChangeError> {
        if self.node.raft.state != StateRole::Leader {
            return Err(ChangeError::NotLeader(self.leader()));
        }
        match wanted {
            Change::Add(id, address, kind) => {
                self.take_in(*id, Place::of(address.clone(), *kind), first)
            }
            Change::Replace(old, id, address, kind) => {
                // Once the new one is taken in, the old one may be gone; its kind is that of the new one, then.
                let known = if has_replica(&self.members, *id) { *id } else { *old };
                let kind = kind.unwrap_or_else(|| self.places.kind_of(known));
                let place = Place { replaces: Some(*old), ..Place::of(address.clone(), kind) };
                self.take_in(*id, place, first)
            }
            Change::Remove(id) => self.remove(*id, first, connected),
            Change::Withdraw(id) => self.withdraw(*id),
        }
    }

    fn take_in(
        &mut self,
        id: ReplicaId,
        place: Place,
        first: bool,
    ) -> Result<Progress, ChangeError> {
        if !(1..=u64::from(u16::MAX)).contains(&id.0) {
            return Err(ChangeError::Id);
        }
        if !is_address(&place.address) {
            return Err(ChangeError::Address);
        }
        let old = place.replaces;
        if has_replica(&self.members, id) {
            return self.progress_of(id, &place, first);
        }
        if let Some(old) = old.filter(|old| !self.votes(*old)) {
            return Err(ChangeError::Unknown(old));
        }
        let taken = |(_, at): &(ReplicaId, &Place)| at.address == place.address;
        if let Some((other, _)) = self.places.iter().find(taken) {
            return Err(ChangeError::AddressInUse(other));
        }
        if self.names_no_founders && self.first_index() == LogIndex(1) {
            return Err(ChangeError::OldChange);
        }
        if let Some(only) = old.filter(|_| self.voters().len() == 1) {
            return Err(ChangeError::Only(only));
        }
        self.check_kinds(old, Some(place.kind))?;
        if old.is_none() && self.replicas().len() >= MAX_REPLICAS {
            return Err(ChangeError::TooMany);
        }
        if let Some(other) = self.taken_in().find(|other| *other != id && Some(*other) != old) {
            return Err(ChangeError::UnderWay(other));
        }
        let left = CANDIDATE_TIMEOUTS * self.config.election_ticks;
        let known = self.candidate.as_ref().is_some_and(|c| c.replica == id && c.place == place);
        if !known {
            // An earlier hello was of an earlier life.
            self.wanted.remove(&id);
            self.version += 1;
        }
        self.candidate = Some(Candidate { replica: id, place, left });
        Ok(Progress::Unreached)
    }

    /// Of a replica that is a member.
    fn progress_of(
        &self,
        id: ReplicaId,
        place: &Place,
        first: bool,
    ) -> Result<Progress, ChangeError> {
        let known = self.places.get(id).cloned().unwrap_or_default();
        if known.address != place.address || known.kind != place.kind {
            return Err(ChangeError::IdInUse(id));
        }
        let is = |member: &&u64| replica_of(**member) == id;
        if let Some(learner) = self.members.learners.iter().find(is) {
            if known.replaces != place.replaces || self.votes(id) {
                return Err(ChangeError::UnderWay(id));
            }
            let matched = self.node.raft.prs().get(*learner).map_or(0, |peer| peer.matched);
            return Ok(Progress::Fills(LogIndex(matched), self.last_index()));
        }
        if first {
            return Err(ChangeError::IdInUse(id));
        }
        let gone = place.replaces.is_none_or(|old| !has_replica(&self.members, old));
        Ok(if gone && self.members.voters_outgoing.is_empty() && self.is_known() {
            Progress::Done
        } else {
            Progress::Agreeing
        })
    }

    fn remove(
        &mut self,
        id: ReplicaId,
        first: bool,
        connected: impl Fn(ReplicaId) -> bool,
    ) -> Result<Progress, ChangeError> {
        if !has_replica(&self.members, id) {
            if !first && !self.is_known() {
                return Ok(Progress::Agreeing);
            }
            let candidate = self.candidate.take_if(|candidate| candidate.replica == id);
            self.version += u64::from(candidate.is_some());
            self.forget_hellos();
            return match candidate.is_some() || !first {
                true => Ok(Progress::Done),
                false => Err(ChangeError::Unknown(id)),
            };
        }
        if let Some(other) = self.taken_in().find(|other| *other != id) {
            return Err(ChangeError::UnderWay(other));
        }
        if self.node.raft.has_pending_conf() || !self.members.voters_outgoing.is_empty() {
            return Ok(Progress::Waits);
        }
        if self.votes(id) {
            let mut rest = self.voters();
            rest.remove(&id);
            if rest.is_empty() {
                return Err(ChangeError::Last(id));
            }
            self.check_kinds(Some(id), None)?;
            let there = |other: &&ReplicaId| **other == self.config.id || connected(**other);
            let (connected, needed) = (rest.iter().filter(there).count(), majority(rest.len()));
            if connected < needed {
                let replicas = rest.len();
                return Err(ChangeError::Quorum { gone: id, connected, replicas, needed });
            }
            if id == self.config.id {
                return Err(ChangeError::Leads);
            }
        }
        self.propose_change(change(of_replica(&self.members, id).collect()))?;
        Ok(Progress::Agreeing)
    }

    fn withdraw(&mut self, id: ReplicaId) -> Result<Progress, ChangeError> {
        match self.votes(id) {
            true => Err(ChangeError::Votes(id)),
            false => self.remove(id, false, |_| true),
        }
    }

    pub(super) fn tick_candidate(&mut self) {
        let leads = self.node.raft.state == StateRole::Leader;
        let Some(candidate) = &mut self.candidate else { return };
        candidate.left = candidate.left.saturating_sub(1);
        if candidate.left == 0 || !leads {
            self.candidate = None;
            self.version += 1;
            self.forget_hellos();
        }
    }

    /// A hello counts until the incarnation that said it is a member, with or without a vote, or a later one is; or until nobody wants the replica any more. In
    /// another life it may come back with any incarnation.
    pub(super) fn forget_hellos(&mut self) {
        let Self { wanted, members, candidate, .. } = self;
        wanted.retain(|id, incarnation| {
            let mut known = all(members).filter(|member| replica_of(*member) == *id).peekable();
            let is_candidate = candidate.as_ref().is_some_and(|c| c.replica == *id);
            (is_candidate || known.peek().is_some())
                && known.all(|member| incarnation_of(member) < *incarnation)
        });
    }

    /// Proposes a change with the places of all members.
    pub(super) fn propose_change(&mut self, change: ConfChangeV2) -> Result<(), ProposeError> {
        if removes(&change, self.member) {
            // A leader that goes could not say that it went.
            self.leave_to_another();
            return Err(ProposeError::Busy);
        }
        if !change.changes.is_empty() {
            let context = self.context(&change);
            return self.propose_with(change, Some(&context));
        }
        self.propose_with(change, None)
    }

    pub(super) fn propose_with(
        &mut self,
        mut change: ConfChangeV2,
        context: Option<&Context>,
    ) -> Result<(), ProposeError> {
        if let Some(context) = context {
            change.context = context.encode().into();
        }
        let payload = change.write_to_bytes().expect("a message without required fields");
        self.propose_entry(EntryType::EntryConfChangeV2, payload.into())
    }

    pub(super) fn context(&self, change: &ConfChangeV2) -> Context {
        let mut places = self.places.clone();
        for replica in all(&self.members).map(replica_of) {
            // Unknown to a log of a program that did not keep them.
            if places.get(replica).is_none()
                && let Some(place) = self.config.places.get(&replica)
                && is_address(&place.address)
            {
                places.edit().insert(replica, place.clone());
            }
        }
        for single in &change.changes {
            let replica = replica_of(single.node_id);
            if adds_learner(change, replica) && self.members.learners.contains(&single.node_id) {
                // It lost its log once more: it still replaces what it was to replace.
                continue;
            }
            if let Some(candidate) = self.candidate.as_ref().filter(|c| c.replica == replica) {
                places.edit().insert(replica, candidate.place.clone());
            } else if self.members.learners.contains(&single.node_id)
                && let Some(place) = places.edit().get_mut(&replica)
            {
                // It has its vote then, or is gone.
                place.replaces = None;
            }
        }
        // Read in a log's first change only; in later ones they do no harm.
        let founded = self.members.voters.iter().all(|member| *member == replica_of(*member).0);
        let founders = self.members.voters.iter().map(|member| replica_of(*member));
        Context { founders: if founded { founders.collect() } else { Vec::new() }, places }
    }

    /// The caller's choice of who leads when this leader is to go, by what it knows of servers and disks: it knows best.
    pub const fn leave_to(&mut self, heir: Option<ReplicaId>) {
        self.heir = heir;
    }

    /// To the caller's choice, else to one whose log is complete and that can serve.
    fn leave_to_another(&mut self) {
        let raft = &self.node.raft;
        let other = |(member, peer): &(&u64, &raft::Progress)| {
            **member != self.member && peer.recent_active && self.members.voters.contains(member)
        };
        let worth = |(member, peer): &(&u64, &raft::Progress)| {
            let id = replica_of(**member);
            let complete = peer.matched >= raft.raft_log.committed;
            (self.heir == Some(id), complete, self.kind_of(id).can_serve(), peer.matched)
        };
        let best = raft.prs().iter().filter(other).max_by_key(worth);
        if let Some(best) = best.map(|(member, _)| *member) {
            self.node.transfer_leader(best);
        }
    }

    /// Whether a majority knows that the newest change is committed. Others may still need the votes of the replicas that it removed.
    fn is_known(&self) -> bool {
        let knows = |member: &&u64| {
            let peer = self.node.raft.prs().get(**member);
            **member == self.member || peer.is_some_and(|p| p.committed_index >= self.membership.0)
        };
        self.members.voters.iter().filter(knows).count() >= majority(self.members.voters.len())
    }

    /// Replicas that are being taken in.
    fn taken_in(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        let learners = self.members.learners.iter().map(|member| replica_of(*member));
        // One that said hello without its vote is as good as away until it is a learner.
        let back = self.wanted.keys().copied().filter(|id| has_replica(&self.members, *id));
        let learners = learners.chain(back);
        learners.chain(self.candidate.iter().map(|candidate| candidate.replica))
    }

    /// The replicas with a vote; in the middle of a change those after it.
    #[must_use]
    pub fn voters(&self) -> BTreeSet<ReplicaId> {
        self.members.voters.iter().map(|member| replica_of(*member)).collect()
    }

    /// The kind of a replica; one that nothing is known of counts as active.
    #[must_use]
    pub fn kind_of(&self, id: ReplicaId) -> Kind {
        if self.places.get(id).is_some() {
            return self.places.kind_of(id);
        }
        if let Some(kind) = self.told_kind.filter(|_| id == self.config.id) {
            return kind;
        }
        self.config.places.get(&id).map_or(Kind::Active, |place| place.kind)
    }

    /// Whether those with a vote could form a cluster without `old`, and with one of kind `new`.
    fn check_kinds(&self, old: Option<ReplicaId>, new: Option<Kind>) -> Result<(), ChangeError> {
        let stays = self.voters().into_iter().filter(|id| Some(*id) != old);
        let kinds: Vec<_> = stays.map(|id| self.kind_of(id)).chain(new).collect();
        unfit_kinds(&kinds).map_or(Ok(()), |why| Err(ChangeError::Kinds(why)))
    }

    fn votes(&self, id: ReplicaId) -> bool {
        self.members.voters.iter().any(|member| replica_of(*member) == id)
    }

    fn replicas(&self) -> BTreeSet<ReplicaId> {
        all(&self.members).map(replica_of).collect()
    }

    /// The replicas that had a vote when the entry at `index` was applied; `None` if it is not, or from before the log's first.
    #[must_use]
    pub fn voters_at(&self, index: LogIndex) -> Option<BTreeSet<ReplicaId>> {
        let members = self.node.store().members_at(index).filter(|_| index <= self.applied)?;
        Some(members.voters.iter().map(|member| replica_of(*member)).collect())
    }

    /// Those of them that were active.
    #[must_use]
    pub fn actives_at(&self, index: LogIndex) -> Option<BTreeSet<ReplicaId>> {
        let members = self.node.store().members_at(index).filter(|_| index <= self.applied)?;
        // Founders have theirs from the configuration until the first change.
        let is_active = |id: &ReplicaId| match members.places.get(*id) {
            Some(place) => place.kind == Kind::Active,
            None => self.kind_of(*id) == Kind::Active,
        };
        let voters = members.voters.iter().map(|member| replica_of(*member));
        Some(voters.filter(is_active).collect())
    }

    /// All members, by their ids. Empty on a replica that has joined and does not know them yet.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        let learns = |id| self.members.learners.iter().any(|member| replica_of(*member) == id);
        let status = |id: ReplicaId| MemberStatus {
            id,
            place: self.place_of(id),
            votes: self.votes(id),
            learns: learns(id),
        };
        self.replicas().into_iter().map(status).collect()
    }

    fn place_of(&self, id: ReplicaId) -> Place {
        self.places.get(id).cloned().unwrap_or_else(|| Place::of("", self.kind_of(id)))
    }

    /// A replica that is to be taken in, and its address, on the leader that an operator asked.
    #[must_use]
    pub fn candidate(&self) -> Option<(ReplicaId, &str)> {
        self.candidate.as_ref().map(|c| (c.replica, c.place.address.as_str()))
    }

    /// Grows when [`members`](Self::members), [`candidate`](Self::candidate) or [`takes_part`](Self::takes_part) say something new.
    #[must_use]
    pub const fn members_version(&self) -> u64 {
        self.version
    }

    /// The newest membership change that is applied; 0 for none.
    #[must_use]
    pub const fn membership(&self) -> LogIndex {
        self.membership
    }

    /// Whether this replica is a member, in its present incarnation.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        has(&self.members, self.member)
    }

    /// Whether this replica was a member, and has been removed.
    #[must_use]
    pub const fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Whether nobody else takes part, or is to: there is nothing to wait for.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.candidate.is_none()
            && self.role() != Role::Learner
            && all(&self.members).all(|member| member == self.member)
    }
}
