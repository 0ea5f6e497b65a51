//! When a learner has caught up: rounds, as in section 4.2.1 of Ongaro's thesis on Raft.
//!
//! A round's goal is what was committed when it began. A learner that has it, and gets entries as they come, has caught up. What is committed at the moment of its
//! answer would be no goal: while clients ask, an entry that was sent after the one that it acknowledges may be committed already, at each of its answers, where others
//! answer faster.
//!
//! Safety does not rest on it. A learner is another member than its former self ([`super::members`]) or the replica that it replaces, has acknowledged nothing for them,
//! and the joint change needs a majority of those before and of those after. A voter that is behind acknowledges nothing that it does not have, and cannot be elected
//! by those who have more. What a round bounds is the time in which the new majority may have to wait for it.

use super::Consensus;
use raft::{ProgressState, StateRole};

/// The length of a round in election timeouts. An election takes up to two: commits may wait for a new voter as long as for a new leader.
const ROUND_TIMEOUTS: u32 = 2;

/// A round, on a leader.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The leader's term, and what was committed when it began.
    goal: Option<(u64, u64)>,
    /// Ticks that are left of it.
    left: u32,
}

impl Consensus {
    /// Begins the next round when this one is over.
    pub(super) fn tick_round(&mut self) {
        let raft = &self.node.raft;
        // Before it has committed something it may know of less than there is.
        if raft.state != StateRole::Leader || !raft.commit_to_current_term() {
            self.round = Round::default();
            return;
        }
        self.round.left = self.round.left.saturating_sub(1);
        if self.round.left == 0 || self.round.goal.is_none_or(|(term, _)| term != raft.term) {
            self.round.goal = Some((raft.term, raft.raft_log.committed));
            self.round.left = ROUND_TIMEOUTS * self.config.election_ticks;
        }
    }

    /// Whether a learner has what it needs for a vote.
    pub(super) fn has_caught_up(&self, learner: u64) -> bool {
        let raft = &self.node.raft;
        let Some(progress) = raft.prs().get(learner) else { return false };
        let goal = self.round.goal.filter(|(term, _)| *term == raft.term);
        let goal = goal.filter(|_| progress.state == ProgressState::Replicate);
        progress.matched >= goal.map_or(raft.raft_log.committed, |(_, goal)| goal)
    }
}
