//! Two replicas that differ while the others do not answer.
//!
//! No majority decides. At first the leader counts, because clients have seen its answers: the other one's server is rebuilt from the log. If
//! that repeats its digest, the log leads to it, and the leader's server is the one that went wrong: the rebuilt replica says so (`STANDS`), and the leader hands
//! over to it and rebuilds its own. If both repeat theirs, their machines differ, and an operator must judge: no server is rebuilt any more.
//!
//! The log may lead to no digest that counts, when what was wrong with the servers that answered went with these: with images that differed, say, or with a version of Skein.
//! All would be rebuilt for ever. So a server that comes from the log to the same digest twice stands by that, too. Against a majority's answers it tells the others, and
//! counts when a majority's rebuilt servers have come to the same, and no server that is in step says otherwise.
//!
//! Each server's actions are kept in the data directories when the difference is found (`undecided-ENTRY.txt`).

use super::Replica;
use crate::environment::{Environment, Kept};
use crate::verdicts::rounds::{Answer, Came};
use skein_log::frame::KIND_APP;
use skein_log::majority;
use skein_model::{LogIndex, ReplicaId};
use std::collections::{BTreeMap, VecDeque};

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
    /// The digest with which this replica's last rebuilt server was found to be wrong, and in which round,
    rebuilt_to: Option<(LogIndex, u64)>,
    /// the same when two in a row were,
    repeats: Option<(LogIndex, u64)>,
    /// and what others have said of theirs.
    others: BTreeMap<ReplicaId, (LogIndex, u64)>,
    /// From this round on, in which this digest counts, up to this entry answers are of servers that are gone.
    refuted: Option<(LogIndex, u64, LogIndex)>,
    /// The digest that this replica stands by; whether the others were told, and how they differ.
    stands: Option<(LogIndex, u64)>,
    told: bool,
    /// The other replica stands by another digest: that was reported.
    stuck: bool,
}

/// The message that says so.
pub(super) fn stands((index, digest): (LogIndex, u64)) -> Vec<u8> {
    [index.0.to_le_bytes(), digest.to_le_bytes()].concat()
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

    /// How the server, which has this digest there, has come to the entry of a round.
    pub(super) fn came(&self, index: LogIndex, digest: u64) -> Came {
        match self.answered.contains(&index) {
            true => Came::Before,
            false if self.rebuilt_to == Some((index, digest)) => Came::AnewTwice,
            false => Came::Anew,
        }
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
    pub(super) fn tell_again(&mut self, peer: ReplicaId) {
        self.told = false;
        self.others.remove(&peer);
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
        self.tell_all(STANDS, &stands((index, digest)));
    }

    /// Whether this server's digest, which the answers in the log say is wrong, is what the log leads to: a majority's servers were rebuilt and have come to it. Digests are of
    /// all output, so later answers of those that are refuted say nothing new, and a server that differs in something else is found by the next round.
    pub(super) fn log_leads_there(
        &mut self,
        index: LogIndex,
        own: u64,
        servers: usize,
        came: Came,
    ) -> bool {
        let it = (index, own);
        // One whose server is in step and says otherwise may be right: clients have its answers.
        let says_so = |id| self.compare.dispute.others.get(&id) == Some(&it);
        let is_opposed = self.others_with_servers().any(|id| !says_so(id));
        let votes = self.members.voters.iter().filter(|id| says_so(**id)).count();
        let dispute = &mut self.compare.dispute;
        if let Some((from, digest, to)) = dispute.refuted.filter(|_| came != Came::Before)
            && (from..=to).contains(&index)
            && (index > from || own == digest)
        {
            return true;
        }
        if came != Came::Before {
            dispute.rebuilt_to = Some(it);
        }
        if came != Came::AnewTwice {
            return false;
        }
        let known = dispute.repeats.replace(it) == Some(it);
        let same = 1 + votes;
        let counts = same >= majority(servers) && !is_opposed;
        if !counts || !known {
            self.tell_all(STANDS, &stands(it));
        }
        if counts {
            self.compare.dispute.refuted = Some((index, own, self.handed));
            tracing::error!(event = "answers_refuted", index = index.0, servers = same);
            self.note(format!(
                "what most servers answered at entry {index} does not follow from the log: {same} that were rebuilt agree on something else, which counts"
            ));
        }
        counts
    }

    /// Another replica's server was rebuilt, and repeated its digest.
    pub(super) fn peer_stands(&mut self, peer: ReplicaId, index: LogIndex, digest: u64) {
        let (dispute, it) = (&mut self.compare.dispute, (index, digest));
        let is_news = dispute.others.insert(peer, it) != Some(it);
        // It may have been told when it did not run.
        if is_news && dispute.repeats == Some(it) && !self.env.send(peer, STANDS, &stands(it)) {
            self.compare.dispute.others.remove(&peer);
        }
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
