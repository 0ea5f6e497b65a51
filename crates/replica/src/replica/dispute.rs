//! Two replicas that differ while the others do not answer.
//!
//! No majority decides. At first the leader counts, because clients have seen its answers: the other one's server is rebuilt from the log. If
//! that repeats its digest, the log leads to it, and the leader's server is the one that went wrong: the rebuilt replica says so (`STANDS`), and the leader hands
//! over to it and rebuilds its own. If both repeat theirs, their machines differ, and an operator must judge: no server is rebuilt any more.
//!
//! Each server's actions are kept in the data directories when the difference is found (`undecided-ENTRY.txt`).

use super::Replica;
use crate::environment::{Environment, Kept};
use crate::verdicts::rounds::Answer;
use skein_log::frame::KIND_APP;
use skein_model::{LogIndex, ReplicaId};
use std::collections::VecDeque;

/// "My server was rebuilt, and its digest at this entry is the same again": index u64, digest u64.
pub(super) const STANDS: u8 = KIND_APP + 8;

/// The number of remembered rounds.
const MAX_ROUNDS: usize = 256;

/// The state of rounds that no majority decided.
#[derive(Debug, Default)]
pub(super) struct Dispute {
    /// Rounds that this server answered, in its present life.
    answered: VecDeque<LogIndex>,
    /// This server's digest in rounds without a majority.
    own: VecDeque<(LogIndex, u64)>,
    /// The digest that this replica stands by; whether the others were told, and how they differ.
    stands: Option<(LogIndex, u64)>,
    told: bool,
    /// The other replica stands by another digest: that was reported.
    stuck: bool,
}

fn keep<T>(rounds: &mut VecDeque<T>, one: T) {
    if rounds.len() == MAX_ROUNDS {
        rounds.pop_front();
    }
    rounds.push_back(one);
}

impl Dispute {
    /// The server's digest for a round.
    pub(super) fn answers(&mut self, index: LogIndex) {
        keep(&mut self.answered, index);
    }

    /// Whether it is another life of the server that answered this round.
    pub(super) fn is_again(&self, index: LogIndex) -> bool {
        !self.answered.contains(&index)
    }

    /// The server begins anew.
    pub(super) fn rebuilt(&mut self) {
        self.answered.clear();
        self.own.clear();
    }

    /// A majority has answered, or all are equal: the dispute is over.
    pub(super) fn is_over(&mut self) {
        (self.stands, self.told, self.stuck) = (None, false, false);
    }

    /// A peer joined that may not know it.
    pub(super) fn tell_again(&mut self) {
        self.told = false;
    }

    /// Whether this replica was rebuilt and repeated its digest.
    pub(super) fn stands(&self) -> bool {
        self.stands.is_some()
    }
}

impl<E: Environment> Replica<E> {
    /// No majority has answered.
    pub(super) fn undecided(&mut self, index: LogIndex, own: u64, answers: &[Answer]) {
        keep(&mut self.compare.dispute.own, (index, own));
        if self.compare.dispute.stands() {
            return;
        }
        let (own, words) = (self.own, self.last_words());
        let text = || {
            let digests =
                answers.iter().map(|a| format!("replica {}: {:016x}\n", a.replica, a.digest));
            let words = words.iter().map(|line| format!("{line}\n"));
            let title = [format!("digests at entry {index}:\n")];
            let last = [format!("the last actions of the server of replica {own}:\n")];
            title.into_iter().chain(digests).chain(last).chain(words).collect()
        };
        let kept = match self.env.keep(&format!("undecided-{index}.txt"), text) {
            Kept::Before => return,
            Kept::At(file) => format!("see {}", file.display()),
            Kept::Failed(file, error) => format!("{} cannot be written: {error}", file.display()),
        };
        tracing::error!(event = "undecided", index = index.0, kept);
        self.note(format!(
            "the replicas' outputs differ at entry {index} and no majority says which is right: the leader's counts, as clients have seen it, \
             and the other's server is rebuilt; if that does the same again, the leader's is. Restore the third replica; {kept}"
        ));
    }

    /// This replica's server was rebuilt, or did not answer then, and is sure of its digest.
    pub(super) fn stand_by(&mut self, index: LogIndex, digest: u64) {
        if self.compare.dispute.stands.is_none() {
            let digest_text = format!("{digest:016x}");
            tracing::error!(event = "stands", index = index.0, digest = digest_text);
            self.compare.dispute.stands = Some((index, digest));
            self.compare.dispute.told = false;
        }
    }

    /// Tells the others, once this replica could take over.
    pub(super) fn tell_stand(&mut self) {
        let Some((index, digest)) = self.compare.dispute.stands else { return };
        if self.compare.dispute.told || !self.slot.is_in_step() || self.consensus.leader().is_none()
        {
            return;
        }
        self.compare.dispute.told = true;
        self.tell_all(STANDS, &[index.0.to_le_bytes(), digest.to_le_bytes()].concat());
    }

    /// Another replica's server was rebuilt, and repeated its digest.
    pub(super) fn peer_stands(&mut self, peer: ReplicaId, index: LogIndex, digest: u64) {
        let dispute = &mut self.compare.dispute;
        let own = dispute.own.iter().rev().find(|(at, _)| *at == index).map(|(_, own)| *own);
        if own == Some(digest) {
            // It was rebuilt, and agrees.
            return dispute.is_over();
        }
        let Some(own) = own else { return };
        if !dispute.stands() {
            return self.diverged(index, own, digest, Some(peer));
        }
        if !std::mem::replace(&mut dispute.stuck, true) {
            tracing::error!(event = "undecidable", index = index.0, replica = peer.0);
            self.note(format!(
                "the servers of replicas {} and {peer} each repeat their output at entry {index} when they are rebuilt: their machines differ. \
                 Nobody is rebuilt any more; restore the third replica, or stop the one that is wrong",
                self.own
            ));
        }
    }
}
