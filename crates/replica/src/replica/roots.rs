//! Compares all memory and files of the followers' servers at their images, without a command.
//!
//! ```text
//! log:        ... | digests | ...           the first ones in a stretch of the log: each follower's server stands at the same entry, in a long stretch the leader's, too
//! follower:   takes an image there; tells   ROOT   one hash of all that it holds: the image has the hash of each page already
//! leader:     puts all roots of an entry into the log
//! all judge:  equal                   images up to there can be trusted
//!             a majority is equal     the others rebuild their servers from images of before they differed
//!             no majority             once more at the next digests, and the leader's server stands, too; then the leader counts
//! ```
//!
//! A stretch is as long as the interval between images ([`crate::images`]): so many entries, or so much virtual time; a long one is several times as much time. Where it begins
//! follows from the log alone, so no replica waits for another one; clients wait where the leader's server stands, and only for the copy. Digests are entries that no server gets: whoever passes one has given its server the same entries.
//!
//! A server that differs again after it was rebuilt is left as it is: then its machine differs, or something that no digest shows, and an operator must look.

use super::{Environment, Replica};
use crate::images::schedule::Begins;
use crate::verdicts::rounds::{Answer, is_undecided, right};
use skein_log::frame::KIND_APP;
use skein_model::{EntryBuilder, EntryRef, LogIndex, Record, ReplicaId, WallNs};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// "The root of my server after this entry": index u64, root u64.
pub(super) const ROOT: u8 = KIND_APP + 20;

/// The number of this server's roots that are remembered.
const REMEMBERED: usize = 8;
/// A leader waits for the roots of all for this long.
const LASTS: Duration = Duration::from_secs(60);
/// How often in a row all servers are looked at because no majority was equal.
const MAX_TRIES: u32 = 3;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Roots {
    /// The last entry of digests, and its time.
    last: Option<(LogIndex, WallNs)>,
    /// This server's roots.
    own: VecDeque<(LogIndex, u64)>,
    /// On a leader: the roots at one entry, and since when they come.
    open: Option<(LogIndex, Duration, Vec<Answer>)>,
    /// On a leader: the next record for the log.
    to_propose: Option<Vec<Answer>>,
    /// All servers stand at the next digests, the leader's, too.
    all: bool,
    /// How often that was so since they were equal.
    tries: u32,
    /// This server was rebuilt because it differed, and was not found equal since.
    rebuilt: bool,
}

impl Roots {
    /// The server begins anew.
    pub(super) fn forget(&mut self) {
        self.own.clear();
    }

    fn own_at(&self, index: LogIndex) -> Option<u64> {
        self.own.iter().find(|(at, _)| *at == index).map(|(_, root)| *root)
    }

    fn answer(&mut self, answer: Answer, now: Duration) {
        match &mut self.open {
            Some((index, _, answers)) if *index == answer.index => {
                if answers.iter().all(|other| other.replica != answer.replica) {
                    answers.push(answer);
                }
            }
            Some((index, ..)) if *index > answer.index => {}
            _ => self.open = Some((answer.index, now, vec![answer])),
        }
    }
}

/// The roots in an entry, all after the same one.
fn roots(entry: &EntryRef<'_>) -> Vec<Answer> {
    let root = |record| match record {
        Record::Root { replica, index, root } => Some(Answer { replica, index, digest: root }),
        _ => None,
    };
    let mut all: Vec<Answer> = entry.records().filter_map(root).collect();
    if let Some(first) = all.first().copied() {
        all.retain(|root| root.index == first.index);
    }
    all
}

/// The number of servers: of the active replicas, and of a passive one that leads.
fn with_servers(actives: &BTreeSet<ReplicaId>, answers: &[Answer]) -> usize {
    let others = answers.iter().filter(|answer| !actives.contains(&answer.replica));
    actives.len() + others.count()
}

impl<E: Environment> Replica<E> {
    /// Whether followers take images at the same entries: there are several of them.
    pub(super) fn compares_roots(&self) -> bool {
        self.replicas > 2 && self.are_compared()
    }

    /// Roots are compared where that is wanted, and every replica has a server.
    fn are_compared(&self) -> bool {
        let wanted = self.config.checkpoint.leader_intervals > 0;
        wanted && self.members.actives().len() == self.replicas
    }

    /// The server has got all before this entry of digests: it stands for an image here if a stretch begins.
    pub(super) fn pass_digests(&mut self, index: LogIndex, entry: &EntryRef<'_>) {
        if !entry.records().any(|record| matches!(record, Record::Digest { .. })) {
            return;
        }
        let wall = entry.wall();
        let begins = match self.roots.last.replace((index, wall)) {
            Some(before) => self.images.begins(before, (index, wall)),
            None => Begins::Nothing,
        };
        let all = std::mem::take(&mut self.roots.all) || begins == Begins::LongStretch;
        let some = begins == Begins::Stretch && self.lead.is_none() && self.compares_roots();
        if all && self.replicas > 1 && self.are_compared() || some {
            // One that cannot begin now has no root there.
            let _ = self.begin_image();
        }
    }

    /// This server's root after an entry is known, and how many pages were copied for its image.
    pub(super) fn image_read(&mut self, index: LogIndex, root: u64, pages: u64) {
        if !self.images.is_taking(index, self.generation()) {
            return;
        }
        if let Some(taking) = &mut self.images.taking {
            taking.pages = pages;
        }
        let roots = &mut self.roots;
        if roots.own.len() == REMEMBERED {
            roots.own.pop_front();
        }
        roots.own.push_back((index, root));
        let own = Answer { replica: self.own, index, digest: root };
        match self.lead {
            Some(_) => roots.answer(own, self.now),
            None => self.tell_all(ROOT, &[index.0.to_le_bytes(), root.to_le_bytes()].concat()),
        }
    }

    /// Another replica tells its root.
    pub(super) fn peer_root(&mut self, replica: ReplicaId, index: LogIndex, root: u64) {
        if self.lead.is_some() && self.members.voters.contains(&replica) {
            self.roots.answer(Answer { replica, index, digest: root }, self.now);
        }
    }

    /// On a leader: puts the roots into the log when all that are awaited have come.
    pub(super) fn tend_roots(&mut self) {
        if !self.serves() {
            (self.roots.open, self.roots.to_propose) = (None, None);
            return;
        }
        if let Some((index, since, answers)) = &self.roots.open {
            let has = |id: &ReplicaId| answers.iter().any(|answer| answer.replica == *id);
            let actives = self.members.actives();
            let mut others = self.env.connected().filter(|id| actives.contains(id));
            let whole = others.all(|id| has(&id))
                && (has(&self.own) || !self.images.is_taking(*index, self.generation()));
            let late = self.now >= *since + LASTS;
            if (whole || late)
                && let Some((_, _, mut answers)) = self.roots.open.take()
                && answers.len() > 1
            {
                // The leader's first, as for digests.
                answers.sort_by_key(|answer| (answer.replica != self.own, answer.replica));
                self.roots.to_propose = Some(answers);
            }
        }
        if self.unsent.is_none()
            && let Some(answers) = self.roots.to_propose.take()
        {
            let mut entry = EntryBuilder::new(std::mem::take(&mut self.spare));
            for Answer { replica, index, digest } in &answers {
                entry.push(Record::Root { replica: *replica, index: *index, root: *digest });
            }
            // Its server may be past the next digests before this is committed.
            self.look_at_all(&answers, with_servers(&self.members.actives(), &answers));
            self.propose(entry);
        }
    }

    /// No majority of the servers is equal and somebody has not said: all say at the next digests. Answers whether that is so.
    fn look_at_all(&mut self, answers: &[Answer], servers: usize) -> bool {
        let more = is_undecided(answers, servers) && answers.len() < servers;
        if more && self.roots.tries < MAX_TRIES {
            (self.roots.all, self.roots.tries) = (true, self.roots.tries + 1);
        }
        more
    }

    /// An entry with roots is committed, and the server has got all before it.
    pub(super) fn roots_committed(&mut self, entry: LogIndex, parsed: &EntryRef<'_>) {
        let mut answers = roots(parsed);
        let known = self.consensus.voters_at(entry).filter(|voters| !voters.is_empty());
        let voters = known.unwrap_or_else(|| self.members.voters.clone());
        answers.retain(|answer| voters.contains(&answer.replica));
        let known = self.consensus.actives_at(entry).filter(|actives| !actives.is_empty());
        let actives = known.unwrap_or_else(|| self.members.actives());
        let servers = with_servers(&actives, &answers);
        let (Some(right), Some(first)) = (right(&answers, servers), answers.first()) else {
            return;
        };
        let (index, own) = (first.index, self.roots.own_at(first.index));
        let equal = answers.iter().all(|answer| answer.digest == right);
        tracing::info!(event = "roots", index = index.0, replicas = answers.len(), equal);
        if equal {
            self.roots.tries = 0;
            if own == Some(right) {
                self.roots.rebuilt = false;
                self.found_equal(index);
            }
            return;
        }
        let waits = is_undecided(&answers, servers) && answers.len() < servers;
        if waits {
            // A leader knew that when it proposed them.
            if self.lead.is_none() {
                self.look_at_all(&answers, servers);
            }
            return;
        }
        self.roots.tries = 0;
        self.renew_images(index.next());
        match own {
            None => {}
            Some(own) if own == right => self.found_equal(index),
            Some(_) if self.roots.rebuilt => {
                tracing::error!(event = "differs_again", index = index.0);
                self.note(format!(
                    "the server's memory or files differ from the others' at entry {index} again, after it was rebuilt: it goes on; 'skein verify' names what differs"
                ));
            }
            Some(_) => {
                let why = format!("its memory or files, after entry {index}");
                if self.rebuild_differing(&why).is_ok() {
                    self.roots.rebuilt = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_collects_the_roots_of_the_newest_entry() {
        let mut roots = Roots::default();
        let now = Duration::ZERO;
        let answer = |replica, index, digest| Answer {
            replica: ReplicaId(replica),
            index: LogIndex(index),
            digest,
        };
        for one in [answer(2, 5, 1), answer(3, 5, 2), answer(3, 5, 9), answer(2, 4, 7)] {
            roots.answer(one, now);
        }
        let open = roots.open.clone().unwrap();
        assert_eq!(open.2, [answer(2, 5, 1), answer(3, 5, 2)]);
        roots.answer(answer(3, 8, 1), now);
        assert_eq!(roots.open.unwrap().2, [answer(3, 8, 1)]);
    }
}
