//! Membership: turns the return of a replica that forgot its log into membership changes.
//!
//! Pure decisions over the current configuration; [`super::Consensus`] proposes them.

use crate::types::{incarnation_of, member_id, replica_of};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};
use skein_model::ReplicaId;
use std::collections::BTreeMap;

/// The next change that the members need, if any. `caught_up` says whether a learner has all committed entries.
pub(super) fn next_change(
    members: &ConfState,
    wanted: &BTreeMap<ReplicaId, u64>,
    caught_up: impl Fn(u64) -> bool,
) -> Option<ConfChangeV2> {
    if !members.voters_outgoing.is_empty() {
        // A leader died between the two halves of a change: the empty change ends it.
        return Some(ConfChangeV2::default());
    }
    promotion(members, caught_up).or_else(|| admission(members, wanted))
}

/// A learner that caught up takes the vote of its former self, in one joint step: there are never fewer voters.
fn promotion(members: &ConfState, caught_up: impl Fn(u64) -> bool) -> Option<ConfChangeV2> {
    let learner = *members.learners.iter().find(|learner| caught_up(**learner))?;
    let mut changes = vec![single(ConfChangeType::AddNode, learner)];
    changes.extend(former_selves(&members.voters, learner));
    Some(change(changes))
}

/// A replica that reports a lost log becomes a learner, in place of its earlier learners.
fn admission(members: &ConfState, wanted: &BTreeMap<ReplicaId, u64>) -> Option<ConfChangeV2> {
    wanted.iter().find_map(|(replica, incarnation)| {
        let member = member_id(*replica, *incarnation);
        let is_newer = |known: &u64| *known < member && replica_of(*known) == *replica;
        let known = members.voters.contains(&member) || members.learners.contains(&member);
        if known || !members.voters.iter().any(is_newer) {
            return None;
        }
        let mut changes = vec![single(ConfChangeType::AddLearnerNode, member)];
        changes.extend(former_selves(&members.learners, member));
        Some(change(changes))
    })
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

fn change(changes: Vec<ConfChangeSingle>) -> ConfChangeV2 {
    let mut change = ConfChangeV2::default();
    change.set_transition(ConfChangeTransition::Auto);
    change.set_changes(changes.into());
    change
}
