//! An operator's requests that only a leader can carry out, made at another replica: it passes them on, and the answer back.
//!
//! A request is passed on once: one that is made twice may do its work twice. If the leader is lost meanwhile no answer comes, and the requester gives up.

use super::upgrade::{self, Wanted};
use super::{Environment, Replica};
use serde::{Deserialize, Serialize};
use skein_log::frame::KIND_APP;
use skein_model::ReplicaId;
use std::collections::BTreeMap;
use std::time::Duration;

/// "Do this, as you lead": number u64, an [`Asked`] in JSON.
pub(super) const ASK: u8 = KIND_APP + 21;
/// The answer: number u64, an [`Answer`] in JSON.
pub(super) const ANSWER: u8 = KIND_APP + 22;

/// Requests that wait for the leader's answer.
const MAX_WAITING: usize = 64;

/// The answer to a signal: its entry.
pub type SignalReply = oneshot::Sender<Result<u64, String>>;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Asked {
    /// The server gets this signal.
    Signal(u8),
    /// The server is upgraded.
    Upgrade {
        /// As [`Wanted::about`].
        about: String,
        /// As [`Wanted::wait`].
        wait_ms: u64,
        /// As [`Wanted::signal`].
        signal: u8,
        /// As [`Wanted::from`].
        from: u64,
    },
}

/// The entry, and an edition's number or 0; or why not.
type Answer = Result<(u64, u64), String>;

/// Who waits for the answer.
#[derive(Debug)]
pub(super) enum Asker<T> {
    /// A requester of this node.
    Here(oneshot::Sender<Result<T, String>>),
    /// A replica, with its number of the request.
    There(ReplicaId, u64),
}

/// Who asked for an upgrade: the answer is its entry, and the number of the edition.
pub(super) type Upgrader = Asker<(u64, u64)>;

/// Those whose request was passed on.
#[derive(Debug)]
enum Waiting {
    Signal(SignalReply),
    Upgrade(upgrade::Reply),
}

impl Waiting {
    fn answer(self, answer: Answer) {
        // The requester may be gone.
        match self {
            Self::Signal(reply) => drop(reply.send(answer.map(|(index, _)| index))),
            Self::Upgrade(reply) => drop(reply.send(answer)),
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    waiting: BTreeMap<u64, Waiting>,
    asked: u64,
}

impl<E: Environment> Replica<E> {
    /// An operator's signal: sent here, or by the leader.
    pub(super) fn ask_for_signal(&mut self, number: u8, reply: SignalReply) {
        match self.other_leader() {
            Some(leader) => {
                self.pass_on(leader, &Asked::Signal(number), Waiting::Signal(reply));
            }
            None => self.send_signal(number, Asker::Here(reply)),
        }
    }

    /// An operator's upgrade: begun here, or by the leader.
    pub(super) fn ask_for_upgrade(&mut self, wanted: Wanted, reply: upgrade::Reply) {
        match self.other_leader() {
            Some(leader) => {
                let Wanted { about, wait, signal, from } = wanted;
                let asked =
                    Asked::Upgrade { about, wait_ms: wait.as_millis() as u64, signal, from };
                self.pass_on(leader, &asked, Waiting::Upgrade(reply));
            }
            None => self.begin_upgrade(wanted, Asker::Here(reply)),
        }
    }

    fn other_leader(&self) -> Option<ReplicaId> {
        self.consensus.leader().filter(|leader| *leader != self.own)
    }

    fn pass_on(&mut self, leader: ReplicaId, asked: &Asked, waiting: Waiting) {
        self.elsewhere.asked += 1;
        let number = self.elsewhere.asked;
        let json = serde_json::to_vec(asked).expect("numbers and texts have a JSON form");
        let bytes = [&number.to_le_bytes()[..], &json].concat();
        if !self.env.send(leader, ASK, &bytes) {
            return waiting.answer(Err(format!("replica {leader} leads, and is not connected")));
        }
        let all = &mut self.elsewhere.waiting;
        // The oldest has given up long ago.
        if all.len() == MAX_WAITING
            && let Some((_, oldest)) = all.pop_first()
        {
            oldest.answer(Err("the leader does not answer".into()));
        }
        all.insert(number, waiting);
    }

    /// Another replica passes a request on.
    pub(super) fn peer_asks(&mut self, peer: ReplicaId, bytes: &[u8]) {
        let parsed = bytes.split_first_chunk::<8>().and_then(|(number, json)| {
            Some((u64::from_le_bytes(*number), serde_json::from_slice::<Asked>(json).ok()?))
        });
        match parsed {
            Some((number, Asked::Signal(signal))) => {
                self.send_signal(signal, Asker::There(peer, number));
            }
            Some((number, Asked::Upgrade { about, wait_ms, signal, from })) => {
                let wait = Duration::from_millis(wait_ms);
                let wanted = Wanted { about, wait, signal, from };
                self.begin_upgrade(wanted, Asker::There(peer, number));
            }
            None => self.distrust(peer, &format!("a malformed message ({ASK})")),
        }
    }

    /// The leader answers.
    pub(super) fn peer_answers(&mut self, peer: ReplicaId, bytes: &[u8]) {
        let parsed = bytes.split_first_chunk::<8>().and_then(|(number, json)| {
            Some((u64::from_le_bytes(*number), serde_json::from_slice::<Answer>(json).ok()?))
        });
        match parsed {
            Some((number, answer)) => {
                if let Some(waiting) = self.elsewhere.waiting.remove(&number) {
                    waiting.answer(answer);
                }
            }
            None => self.distrust(peer, &format!("a malformed message ({ANSWER})")),
        }
    }

    fn answer(&mut self, to: ReplicaId, number: u64, answer: &Answer) {
        let json = serde_json::to_vec(answer).expect("numbers and texts have a JSON form");
        // One that is gone has given up.
        self.env.send(to, ANSWER, &[&number.to_le_bytes()[..], &json].concat());
    }

    /// Answers the requester of a signal.
    pub(super) fn answer_signal(&mut self, asker: Asker<u64>, answer: Result<u64, String>) {
        match asker {
            // The requester may be gone.
            Asker::Here(reply) => drop(reply.send(answer)),
            Asker::There(peer, number) => {
                self.answer(peer, number, &answer.map(|index| (index, 0)));
            }
        }
    }

    /// Answers the requester of an upgrade.
    pub(super) fn answer_upgrade(&mut self, asker: Upgrader, answer: Answer) {
        match asker {
            // The requester may be gone.
            Asker::Here(reply) => drop(reply.send(answer)),
            Asker::There(peer, number) => self.answer(peer, number, &answer),
        }
    }

    fn send_signal(&mut self, number: u8, asker: Asker<u64>) {
        match self.propose_signal(number) {
            // It may be committed already.
            Ok(index) if index > self.handed => self.signals.push((index, asker)),
            Ok(index) => self.answer_signal(asker, Ok(index.0)),
            Err(why) => self.answer_signal(asker, Err(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let upgrade = Asked::Upgrade { about: "x".into(), wait_ms: 5, signal: 15, from: 2 };
        for asked in [Asked::Signal(10), upgrade] {
            let json = serde_json::to_vec(&asked).unwrap();
            assert_eq!(serde_json::from_slice::<Asked>(&json).unwrap(), asked);
        }
        for answer in [Ok((7, 2)), Err("it is busy".to_owned())] {
            let json = serde_json::to_vec::<Answer>(&answer).unwrap();
            assert_eq!(serde_json::from_slice::<Answer>(&json).unwrap(), answer);
        }
    }
}
