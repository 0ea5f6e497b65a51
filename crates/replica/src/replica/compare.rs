//! Digests between nodes, and other messages outside of consensus; see [`crate::verdicts::rounds`].

use super::dispute::{Dispute, STANDS, stands};
use super::health::{ANSWER, STATE};
use super::pulse::PULSE;
use super::roots::ROOT;
use super::unhurried::SYNC;
use super::{Replica, elsewhere, members};
use crate::environment::{Environment, Places};
use crate::error::ReplicaError;
use crate::modes::Recorded;
use crate::verdicts::rounds::{Answer, Judgement, is_undecided, judge, right};
use skein_log::frame::KIND_APP;
use skein_log::{PeerStatus, Role, Status};
use skein_model::{EntryBuilder, EntryRef, LogIndex, Record, ReplicaId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

/// "What is your digest at this entry?": index u64.
const ASK_DIGEST: u8 = KIND_APP;
/// The answer: index u64, digest u64.
const DIGEST: u8 = KIND_APP + 1;
/// "What were your server's last actions?": nothing.
const ASK_EVENTS: u8 = KIND_APP + 2;
/// The answer: text, one line an event.
const EVENTS: u8 = KIND_APP + 3;
/// "My server ended": index u64, status i32.
const EXITED: u8 = KIND_APP + 4;
/// "I lead, and clients reach me here": JSON, a list of server port and address.
const PLACES: u8 = KIND_APP + 5;

/// "I lead, you have your vote, and entries are committed up to here": index u64.
const TARGET: u8 = KIND_APP + 6;
/// "My server has executed this entry and lives": index u64.
const SURVIVED: u8 = KIND_APP + 9;
/// Lines of either side in a report of a divergence.
const MAX_LINES: usize = 128;
/// Rounds whose verdict waits for this replica's server.
const MAX_PENDING: usize = 64;

/// Answers from the log, and how many replicas with a vote had a server there.
#[derive(Debug)]
struct Vote {
    answers: Vec<Answer>,
    replicas: usize,
}

/// The state of comparisons.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Entries that others asked about and this server has not executed yet.
    asked: VecDeque<(ReplicaId, LogIndex)>,
    /// Answers from the log that this server has not reached yet.
    pending: VecDeque<Vote>,
    /// The next record for the log.
    to_propose: Option<Vec<Answer>>,
    /// On a leader: entries given to the server, whose outputs have not left yet, with their times.
    pub held: VecDeque<(LogIndex, Duration)>,
    /// The time of the last line of each warning.
    pub warned: BTreeMap<String, Duration>,
    /// The incarnation of each peer.
    pub lives: BTreeMap<ReplicaId, u64>,
    /// On a leader: peers that have not heard yet how far they must catch up.
    pub untold: BTreeSet<ReplicaId>,
    /// The last peer that said that it leads, and its committed index.
    pub target: (ReplicaId, LogIndex),
    /// The last peer that said that it leads, and its clients' addresses.
    pub places: Places,
    /// There was a leader before.
    pub saw_leader: bool,
    /// The last entry at which this replica's server was found to be like the others'.
    pub agreed: LogIndex,
    /// The last entry at which all of the replicas' memory and files was found to be equal.
    pub verified: LogIndex,
    /// The last entry compared, and whether all were equal.
    pub last: Option<(LogIndex, bool)>,
    /// The last actions of this replica's server when it differed, until another replica has reported its own.
    diverged: Vec<String>,
    /// Rounds without a majority.
    pub(super) dispute: Dispute,
}

impl<E: Environment> Replica<E> {
    /// A message outside of consensus.
    pub(super) fn peer_says(&mut self, peer: ReplicaId, kind: u8, bytes: &[u8]) {
        let u64_at = |at: usize| {
            bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")))
        };
        match (kind, u64_at(0), u64_at(8)) {
            (ASK_DIGEST, Some(index), None) => {
                let question = (peer, LogIndex(index));
                let asked = &mut self.compare.asked;
                if asked.len() < MAX_PENDING && !asked.contains(&question) {
                    asked.push_back(question);
                }
            }
            (DIGEST, Some(index), Some(digest)) => {
                // One without a vote is compared by itself.
                if self.members.voters.contains(&peer) {
                    self.rounds.answer(Answer { replica: peer, index: LogIndex(index), digest });
                }
            }
            (ASK_EVENTS, ..) => {
                let text = self.last_words().join("\n");
                self.env.send(peer, EVENTS, text.as_bytes());
            }
            (EVENTS, ..) => {
                let text = String::from_utf8_lossy(bytes);
                let theirs: Vec<&str> = text.lines().take(MAX_LINES).collect();
                for line in &theirs {
                    tracing::error!(event = "diverged_theirs", replica = peer.0, line);
                }
                let ours = std::mem::take(&mut self.compare.diverged);
                if let Some((ours, theirs)) = first_difference(&ours, &theirs) {
                    self.note(format!(
                        "where its server's output first differed: {ours}; on replica {peer}: {theirs}"
                    ));
                }
            }
            (EXITED, Some(index), _) if bytes.len() == 12 => {
                let status = i32::from_le_bytes(bytes[8..12].try_into().expect("4 bytes"));
                self.peer_exit(peer, LogIndex(index), status);
            }
            (STATE, ..) => self.peer_is(peer, bytes),
            (ANSWER, Some(stamp), None) => self.peer_answered(peer, stamp),
            (STANDS, Some(index), Some(digest)) => self.peer_stands(peer, LogIndex(index), digest),
            (SYNC, Some(index), None) => self.sync_was_asked(LogIndex(index)),
            (SURVIVED, Some(index), None) => self.peer_survived(LogIndex(index)),
            (PULSE, ..) => self.pulse_heard(peer, bytes),
            (TARGET, Some(index), None) => self.compare.target = (peer, LogIndex(index)),
            (PLACES, ..) => {
                let places: Vec<(u16, SocketAddr)> =
                    serde_json::from_slice(bytes).unwrap_or_default();
                let host = self.env.host(peer);
                let reachable = |at: SocketAddr| match host {
                    Some(host) if at.ip().is_unspecified() => SocketAddr::new(host, at.port()),
                    _ => at,
                };
                let places = places.into_iter().map(|(p, at)| (p, reachable(at))).collect();
                self.leader_is_at((peer, places));
            }
            (members::GONE, Some(index), Some(voters)) => {
                self.hear_of_removal(peer, index, voters);
            }
            (members::TWIN, ..) => self.hear_of_twin(peer),
            (members::ASK, ..) => self.peer_requests(peer, bytes),
            (members::ANSWER, ..) => self.request_answered(peer, bytes),
            (elsewhere::ASK, ..) => self.peer_asks(peer, bytes),
            (elsewhere::ANSWER, ..) => self.peer_answers(peer, bytes),
            (ROOT, Some(index), Some(root)) => self.peer_root(peer, LogIndex(index), root),
            _ if self.peer_says_of_images(peer, kind, bytes) => {}
            _ => self.distrust(peer, &format!("a malformed message ({kind})")),
        }
    }

    /// The server's last actions, and the digests of its newest connections: to be compared with another replica's.
    pub(super) fn last_words(&self) -> Vec<String> {
        let Some(server) = self.server() else { return Vec::new() };
        let mut lines = server.events.lines();
        let conns = server.digest.connections();
        let newest = conns.iter().rev().take(MAX_LINES - lines.len());
        lines.extend(
            newest.map(|(conn, digest)| format!("conn {:#x} digest {digest:016x}", conn.0)),
        );
        lines
    }

    /// Tells new peers how far they must catch up: a replica that is taken in again is not done before it has its vote.
    pub(super) fn tell_target(&mut self) {
        if self.compare.untold.is_empty() || !self.serves() {
            return;
        }
        let status = self.consensus.status();
        let has_vote = |id: &ReplicaId| status.peers.iter().any(|p| p.id == *id && self.votes(p));
        let (voters, others): (Vec<_>, Vec<_>) =
            self.compare.untold.iter().copied().partition(has_vote);
        self.compare.untold = others.into_iter().collect();
        for peer in voters {
            self.env.send(peer, TARGET, &self.handed.0.to_le_bytes());
        }
    }

    /// Whether every replica has its vote, in its present incarnation; only a leader knows.
    pub(super) fn voters_complete(&self, consensus: &Status) -> bool {
        consensus.peers.len() == self.replicas && consensus.peers.iter().all(|p| self.votes(p))
    }

    /// A leader says where clients reach it.
    fn leader_is_at(&mut self, places: Places) {
        let news = self.compare.places != places;
        self.compare.places = places;
        if news && self.slot.rests() && self.consensus.role() != Role::Leader {
            self.follow_ports_or_note();
        }
    }

    /// Whether a replica has its vote, in its present incarnation.
    pub(super) fn votes(&self, peer: &PeerStatus) -> bool {
        let life = self.compare.lives.get(&peer.id);
        peer.voter && life.is_none_or(|life| *life == peer.incarnation)
    }

    /// The same of a replica, on a leader.
    pub(super) fn has_its_vote(&self, id: ReplicaId) -> bool {
        self.consensus.status().peers.iter().any(|peer| peer.id == id && self.votes(peer))
    }

    /// Tells all the clients' addresses of this leader.
    pub(super) fn tell_places(&mut self) {
        if !self.serves() {
            return;
        }
        // Numbers and addresses always have a JSON form.
        let places = serde_json::to_vec(&self.env.places()).unwrap_or_default();
        let peers: Vec<_> = self.env.connected().collect();
        for peer in peers {
            self.env.send(peer, PLACES, &places);
        }
    }

    /// Tells all that this replica's server ended.
    pub(super) fn tell_exit(&mut self, index: LogIndex, status: i32) {
        let mut bytes = index.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&status.to_le_bytes());
        self.tell_all(EXITED, &bytes);
    }

    /// Tells all that this replica's server has executed this entry and lives.
    pub(super) fn tell_survived(&mut self, index: LogIndex) {
        self.tell_all(SURVIVED, &index.0.to_le_bytes());
    }

    pub(super) fn tell_all(&mut self, kind: u8, bytes: &[u8]) {
        let peers: Vec<_> = self.env.connected().collect();
        for peer in peers {
            self.env.send(peer, kind, bytes);
        }
    }

    /// This server ends, and none follows it for now.
    pub(super) fn no_server(&mut self) {
        self.compare.held.clear();
        self.compare.pending.clear();
        self.compare.dispute.rebuilt();
        self.compare.dispute.is_over();
    }

    /// Answers questions, leads the rounds, judges digests from the log.
    pub(super) fn compare_digests(&mut self) -> Result<(), ReplicaError> {
        if self.servers() == 1 || self.mode.recorded() == Recorded::Nothing {
            self.compare.asked.clear();
            return Ok(());
        }
        let Some(server) = self.slot.link_mut() else {
            // Nothing is known here that others may ask about.
            self.compare.asked.clear();
            return Ok(());
        };
        let latest = server.digest.latest();
        for _ in 0..self.compare.asked.len() {
            let Some((peer, index)) = self.compare.asked.pop_front() else { break };
            if let Some(digest) = server.digest.tell(index) {
                self.compare.dispute.answers(index);
                let bytes = [index.0.to_le_bytes(), digest.to_le_bytes()].concat();
                self.env.send(peer, DIGEST, &bytes);
            } else if latest.is_none_or(|(latest, _)| index > latest) {
                self.compare.asked.push_back((peer, index));
            }
        }
        if self.serves() {
            if let Some(index) = self.rounds.begin(self.own, latest, self.now) {
                if let Some(server) = self.slot.link_mut() {
                    server.digest.tell(index);
                }
                self.compare.dispute.answers(index);
                self.tell_all(ASK_DIGEST, &index.0.to_le_bytes());
            } else if let Some(index) = self.rounds.ask_again(self.now) {
                self.tell_all(ASK_DIGEST, &index.0.to_le_bytes());
            }
            if let Some(answers) = self.rounds.end(self.servers(), self.now) {
                self.compare.to_propose = Some(answers);
            }
            if self.unsent.is_none()
                && let Some(answers) = self.compare.to_propose.take()
            {
                let mut entry = EntryBuilder::new(std::mem::take(&mut self.spare));
                for Answer { replica, index, digest } in answers {
                    entry.push(Record::Digest { replica, index, digest });
                }
                self.propose(entry);
            }
        }
        self.tend_roots();
        self.judge_pending();
        self.tell_stand();
        Ok(())
    }

    /// When the comparison has something to do, if ever.
    pub(super) fn compare_wake(&self) -> Option<Duration> {
        if self.servers() == 1 || self.mode.recorded() == Recorded::Nothing || !self.serves() {
            return None;
        }
        let latest = self.server().and_then(|server| server.digest.latest());
        self.rounds.wake(latest.map(|(index, _)| index))
    }

    /// The server's position passed an entry of digests. All replicas count the same votes: those of the members at this entry.
    pub(super) fn digests_committed(&mut self, index: LogIndex, entry: &EntryRef<'_>) {
        let mut answers: Vec<_> = entry
            .records()
            .filter_map(|r| match r {
                Record::Digest { replica, index, digest } => {
                    Some(Answer { replica, index, digest })
                }
                _ => None,
            })
            .collect();
        if answers.is_empty() {
            return self.roots_committed(index, entry);
        }
        let known = self.consensus.voters_at(index).filter(|voters| !voters.is_empty());
        let voters = known.unwrap_or_else(|| self.members.voters.clone());
        answers.retain(|answer| voters.contains(&answer.replica));
        if answers.is_empty() {
            return;
        }
        if self.compare.pending.len() == MAX_PENDING {
            self.compare.pending.pop_front();
        }
        // An active replica that did not answer has a server, too; of others only those that answered had one.
        let actives = self.consensus.actives_at(index).unwrap_or_else(|| self.members.actives());
        let others = answers.iter().filter(|answer| !actives.contains(&answer.replica)).count();
        let replicas = actives.len() + others;
        self.compare.pending.push_back(Vote { answers, replicas });
    }

    fn judge_pending(&mut self) {
        while let Some(vote) = self.compare.pending.front() {
            let index = vote.answers[0].index;
            let Some(server) = self.slot.link() else { return };
            let known = server.digest.at(index);
            if known.is_none() && server.digest.latest().is_none_or(|(i, _)| i < index) {
                return;
            }
            let Some(Vote { answers, replicas }) = self.compare.pending.pop_front() else { return };
            let Some(right) = right(&answers, replicas) else { continue };
            let undecided = is_undecided(&answers, replicas);
            for answer in answers.iter().filter(|a| a.digest != right && a.replica != self.own) {
                tracing::error!(event = "diverged", replica = answer.replica.0, index = index.0);
            }
            self.compare.last = Some((index, answers.iter().all(|a| a.digest == right)));
            let Some(own) = known else { continue };
            if undecided {
                self.undecided(index, own, &answers);
            } else {
                self.compare.dispute.is_over();
            }
            let came = self.compare.dispute.came(index, own);
            match judge(&answers, replicas, self.own, own, came) {
                Judgement::Right if undecided => {
                    // Its server was rebuilt and comes to the other's digest: that one need not stand by it any more.
                    if answers.iter().any(|a| a.replica == self.own && a.digest != own) {
                        self.tell_all(STANDS, &stands((index, own)));
                    }
                }
                Judgement::Right => {
                    self.compare.agreed = self.compare.agreed.max(index);
                    self.confirm_image();
                }
                Judgement::Stands => self.stand_by(index, own),
                // It stands by its digest, with the consequences.
                Judgement::Wrong(_) if undecided && self.compare.dispute.stands() => {}
                Judgement::Wrong(_) if self.log_leads_there(index, own, replicas, came) => {
                    self.compare.agreed = self.compare.agreed.max(index);
                }
                Judgement::Wrong(right) => {
                    self.diverged(index, own, right, None);
                    return;
                }
            }
        }
    }

    /// This replica's server differs from the others' (or from `by`): reported, ended, and rebuilt.
    pub(super) fn diverged(
        &mut self,
        index: LogIndex,
        own: u64,
        right: u64,
        by: Option<ReplicaId>,
    ) {
        self.metrics.divergences.inc();
        let (own, right) = (format!("{own:016x}"), format!("{right:016x}"));
        tracing::error!(event = "diverged", replica = self.own.0, index = index.0, own, right);
        self.compare.diverged = self.last_words();
        for line in &self.compare.diverged {
            tracing::error!(event = "diverged_ours", line);
        }
        let others = by.map_or("the others'".into(), |by| {
            format!("that of replica {by}, which repeated its output when it was rebuilt,")
        });
        self.note(format!(
            "the server's output differed from {others} at entry {index}; it is rebuilt from the log"
        ));
        if let Some(whom) = self.give_up_server(self.compare.agreed, by) {
            self.env.send(whom, ASK_EVENTS, &[]);
        }
    }

    /// Ends a server that differs from the others', and gives up its images since the last entry at which they were equal. A leader hands over first, to `by` if it can.
    /// Answers another replica, if there is one.
    pub(super) fn give_up_server(
        &mut self,
        equal: LogIndex,
        by: Option<ReplicaId>,
    ) -> Option<ReplicaId> {
        let heir = by.or_else(|| self.heir()).or_else(|| self.any_heir());
        let whom = self.consensus.leader().filter(|l| *l != self.own).or(heir);
        if let Some(whom) = whom.filter(|_| self.lead.is_some()) {
            self.hand_leadership_to(whom);
        }
        self.compare.pending.clear();
        let again = self.slot.rebuilds_in_a_row() > 0;
        self.distrust_images(equal, again);
        self.kill_server();
        self.slot.note_divergence();
        whom
    }
}

/// The first event that differs between two servers, among those that both still remember.
fn first_difference<'a>(ours: &'a [String], theirs: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let event = |line: &&str| line.starts_with("entry ");
    let ours: Vec<&str> = ours.iter().map(String::as_str).filter(event).collect();
    let theirs: Vec<&str> = theirs.iter().copied().filter(event).collect();
    let both = ours.iter().find_map(|line| {
        Some((ours.iter().position(|o| o == line)?, theirs.iter().position(|t| t == line)?))
    });
    let (from, their_from) = both?;
    let rest = ours[from..].iter().zip(&theirs[their_from..]);
    rest.map(|(ours, theirs)| (*ours, *theirs)).find(|(ours, theirs)| ours != theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_that_differs_is_found() {
        let line = |words: &str| words.to_string();
        let ours = ["entry 1 a", "entry 2 b", "entry 3 c", "entry 4 d", "conn 1"].map(line);
        let theirs = ["entry 2 b", "entry 3 x", "entry 4 y", "conn 2"];
        assert_eq!(first_difference(&ours, &theirs), Some(("entry 3 c", "entry 3 x")));
        assert_eq!(first_difference(&ours, &["entry 2 b", "entry 3 c"]), None);
        assert_eq!(first_difference(&ours, &["entry 9 z"]), None, "nothing is remembered by both");
    }
}
