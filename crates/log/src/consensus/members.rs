//! Membership: turns the return of a replica that forgot its log, and a replica that is to be taken in, into membership changes.
//!
//! Pure decisions over the current configuration; [`super::Consensus`] proposes them.

use super::change::Candidate;
use crate::{
    places::Places,
    types::{incarnation_of, member_id, replica_of},
};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};
use skein_model::ReplicaId;
use std::collections::BTreeMap;

/// All that the next change depends on.
pub(super) struct Next<'a> {
    pub members: &'a ConfState,
    /// Replicas that said hello with the incarnation of a log that is not their first.
    pub wanted: &'a BTreeMap<ReplicaId, u64>,
    /// A replica that is to be taken in.
    pub candidate: Option<&'a Candidate>,
    /// Says which replica a learner replaces.
    pub places: &'a Places,
}

impl Next<'_> {
    /// The next change that the members need, if any. `caught_up` says whether a learner may have a vote ([`super::rounds`]).
    pub(super) fn change(&self, caught_up: impl Fn(u64) -> bool) -> Option<ConfChangeV2> {
        if !self.members.voters_outgoing.is_empty() {
            // A leader died between the two halves of a change: the empty change ends it.
            return Some(ConfChangeV2::default());
        }
        self.promotion(caught_up).or_else(|| self.admission())
    }

    /// A learner that caught up takes the vote of its former self, or of the replica that it replaces, in one joint step: there are never fewer voters.
    fn promotion(&self, caught_up: impl Fn(u64) -> bool) -> Option<ConfChangeV2> {
        let members = self.members;
        let learner = *members.learners.iter().find(|learner| caught_up(**learner))?;
        let mut changes = vec![single(ConfChangeType::AddNode, learner)];
        changes.extend(former_selves(&members.voters, learner));
        let replaced = self.places.get(replica_of(learner)).and_then(|place| place.replaces);
        if let Some(replaced) = replaced.filter(|id| *id != replica_of(learner)) {
            changes.extend(of_replica(members, replaced).filter(|c| c.node_id != learner));
        }
        Some(change(changes))
    }

    /// A replica that reports a lost log becomes a learner, in place of its earlier learners; so does one that is to be taken in.
    fn admission(&self) -> Option<ConfChangeV2> {
        let members = self.members;
        self.wanted.iter().find_map(|(replica, incarnation)| {
            let member = member_id(*replica, *incarnation);
            let is_newer = |known: &u64| *known < member && replica_of(*known) == *replica;
            let known = members.voters.iter().chain(&members.learners).any(is_newer);
            let is_candidate = self.candidate.is_some_and(|c| c.replica == *replica)
                && !has_replica(members, *replica);
            if has(members, member) || !known && !is_candidate {
                return None;
            }
            let mut changes = vec![single(ConfChangeType::AddLearnerNode, member)];
            changes.extend(former_selves(&members.learners, member));
            Some(change(changes))
        })
    }
}

/// Whether this member takes part, with or without a vote.
pub(super) fn has(members: &ConfState, member: u64) -> bool {
    all(members).any(|known| known == member)
}

/// Whether a replica takes part, in any incarnation.
pub(super) fn has_replica(members: &ConfState, replica: ReplicaId) -> bool {
    all(members).any(|known| replica_of(known) == replica)
}

/// Each member once or twice.
pub(super) fn all(members: &ConfState) -> impl Iterator<Item = u64> + '_ {
    let lists = [&members.voters, &members.voters_outgoing, &members.learners];
    lists.into_iter().flatten().chain(&members.learners_next).copied()
}

/// The removal of all incarnations of a replica.
pub(super) fn of_replica(
    members: &ConfState,
    replica: ReplicaId,
) -> impl Iterator<Item = ConfChangeSingle> + '_ {
    let known = members.voters.iter().chain(&members.learners).copied();
    let its = known.filter(move |known| replica_of(*known) == replica);
    its.map(|known| single(ConfChangeType::RemoveNode, known))
}

/// Whether a change takes a member's vote away.
pub(super) fn removes(change: &ConfChangeV2, member: u64) -> bool {
    let removal = ConfChangeType::RemoveNode;
    change.changes.iter().any(|c| c.node_id == member && c.get_change_type() == removal)
}

/// Whether a change takes a replica in without a vote.
pub(super) fn adds_learner(change: &ConfChangeV2, replica: ReplicaId) -> bool {
    let admission = ConfChangeType::AddLearnerNode;
    let adds = |c: &ConfChangeSingle| c.get_change_type() == admission;
    change.changes.iter().any(|c| adds(c) && replica_of(c.node_id) == replica)
}

fn former_selves(members: &[u64], member: u64) -> impl Iterator<Item = ConfChangeSingle> + '_ {
    let is_former = move |known: &&u64| {
        replica_of(**known) == replica_of(member)
            && incarnation_of(**known) < incarnation_of(member)
    };
    members.iter().filter(is_former).map(|known| single(ConfChangeType::RemoveNode, *known))
}

fn single(kind: ConfChangeType, member: u64) -> ConfChangeSingle {
    let mut single = ConfChangeSingle::default();
    single.set_change_type(kind);
    single.node_id = member;
    single
}

/// One voter more.
pub(super) fn add_voter(member: u64) -> ConfChangeV2 {
    change(vec![single(ConfChangeType::AddNode, member)])
}

pub(super) fn change(changes: Vec<ConfChangeSingle>) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    change.set_transition(ConfChangeTransition::Auto);
    change.set_changes(changes.into());
    change
}
