//! Comparing digests: which server differs from most servers?
//!
//! The leader asks all replicas for their digest at one entry (a round), and puts the answers into the log together. So
//! every replica judges by the same answers: a majority's digest is right; when no majority agrees, the leader's is, until a server that was
//! rebuilt from the log repeats its own, or another one that nobody answered twice ([`judge`]).

use skein_log::majority;
use skein_model::{LogIndex, ReplicaId};
use std::time::Duration;

/// The number of entries between two rounds in a busy cluster.
const ROUND_ENTRIES: u64 = 256;
/// A round begins at the latest this long after the last output.
const ROUND_AFTER: Duration = Duration::from_millis(500);
/// A round ends at the latest after this long, with the answers it has,
const ROUND_LASTS: Duration = Duration::from_secs(1);
/// and without any after this long: all followers' servers may be behind.
const ROUND_WAITS: Duration = Duration::from_secs(10);

/// A replica's answer: its digest at the round's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The replica.
    pub replica: ReplicaId,
    /// The entry.
    pub index: LogIndex,
    /// Its digest there.
    pub digest: u64,
}

/// The right digest, by the answers of one round; all about the same entry, the leader's first. `None` without answers.
#[must_use]
pub fn right(answers: &[Answer], replicas: usize) -> Option<u64> {
    let votes = |digest: u64| answers.iter().filter(|a| a.digest == digest).count();
    answers
        .iter()
        .find(|a| votes(a.digest) >= majority(replicas))
        .or(answers.first())
        .map(|a| a.digest)
}

/// Whether the answers differ and no majority agrees: then the leader's counts without proof.
#[must_use]
pub fn is_undecided(answers: &[Answer], replicas: usize) -> bool {
    let votes = |digest: u64| answers.iter().filter(|a| a.digest == digest).count();
    answers.iter().all(|a| votes(a.digest) < majority(replicas))
        && answers.iter().any(|a| a.digest != answers[0].digest)
}

/// The result of a round for one replica's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is right.
    Right,
    /// It differs from this digest, which counts: it is to be rebuilt.
    Wrong(u64),
    /// No majority answered, and it has executed the log anew: it has reached the same digest from the log twice.
    Stands,
}

/// How a server has come to a round's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It answered then.
    Before,
    /// It has executed the entry since the round, from the log: it was rebuilt, or its node started again.
    Anew,
    /// So had the server before it, with the same digest.
    AnewTwice,
}

/// Judges the server of the replica `own`, whose digest is `digest`.
#[must_use]
pub fn judge(
    answers: &[Answer],
    replicas: usize,
    own: ReplicaId,
    digest: u64,
    came: Came,
) -> Judgement {
    let Some(right) = right(answers, replicas) else { return Judgement::Right };
    if came != Came::Before && is_undecided(answers, replicas) {
        let mine = answers.iter().find(|a| a.replica == own);
        let of_another = answers.iter().any(|a| a.replica != own && a.digest == digest);
        match mine {
            Some(mine) if mine.digest == digest => return Judgement::Stands,
            // It was the one that differed, and no longer does.
            Some(_) if of_another => return Judgement::Right,
            // A third replica, which was missing.
            None if of_another && digest != right => return Judgement::Stands,
            // The servers that answered are gone, and the log does not lead to what they answered.
            _ if came == Came::AnewTwice && !of_another => return Judgement::Stands,
            _ => {}
        }
    }
    if digest == right { Judgement::Right } else { Judgement::Wrong(right) }
}

/// The leader's side of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    open: Option<(LogIndex, Duration, Vec<Answer>)>,
    /// When the others were asked last.
    asked: Duration,
    last: LogIndex,
    last_output: Duration,
}

impl Rounds {
    /// There was output at this time.
    pub const fn output(&mut self, now: Duration) {
        self.last_output = now;
    }

    /// Begins a round when it is due: `latest` is the newest entry whose digest the leader knows. The answer is the entry
    /// to ask the others about.
    pub fn begin(
        &mut self,
        own: ReplicaId,
        latest: Option<(LogIndex, u64)>,
        now: Duration,
    ) -> Option<LogIndex> {
        let (index, digest) = latest?;
        if self.open.is_some() || index <= self.last {
            return None;
        }
        let many = index.0 - self.last.0 >= ROUND_ENTRIES;
        if !many && now.saturating_sub(self.last_output) < ROUND_AFTER {
            return None;
        }
        (self.last, self.asked) = (index, now);
        self.open = Some((index, now, vec![Answer { replica: own, index, digest }]));
        Some(index)
    }

    /// Nobody has answered for a while: the entry to ask about once more, as a question may have been lost.
    pub fn ask_again(&mut self, now: Duration) -> Option<LogIndex> {
        let (index, _, answers) = self.open.as_ref()?;
        if answers.len() > 1 || now < self.asked + ROUND_LASTS {
            return None;
        }
        self.asked = now;
        Some(*index)
    }

    /// A replica answered.
    pub fn answer(&mut self, answer: Answer) {
        if let Some((index, _, answers)) = &mut self.open
            && *index == answer.index
            && answers.iter().all(|a| a.replica != answer.replica)
        {
            answers.push(answer);
        }
    }

    /// Ends the round when all have answered, or after enough time with at least one answer: the record for the log.
    pub fn end(&mut self, replicas: usize, now: Duration) -> Option<Vec<Answer>> {
        let (_, since, answers) = self.open.as_ref()?;
        let late = now >= ends_at(*since, answers);
        if answers.len() < replicas && !late {
            return None;
        }
        let (_, _, answers) = self.open.take()?;
        (answers.len() > 1).then_some(answers)
    }

    /// When to call again, if ever: nothing is due in an idle cluster.
    #[must_use]
    pub fn wake(&self, latest: Option<LogIndex>) -> Option<Duration> {
        match &self.open {
            Some((_, since, answers)) => {
                let ends = ends_at(*since, answers);
                Some(if answers.len() > 1 { ends } else { ends.min(self.asked + ROUND_LASTS) })
            }
            None => latest.filter(|i| *i > self.last).map(|_| self.last_output + ROUND_AFTER),
        }
    }
}

/// When a round ends with these answers, the leader's among them.
fn ends_at(since: Duration, answers: &[Answer]) -> Duration {
    since + if answers.len() > 1 { ROUND_LASTS } else { ROUND_WAITS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(digests: &[u64]) -> Vec<Answer> {
        (1..)
            .zip(digests)
            .map(|(id, d)| Answer { replica: ReplicaId(id), index: LogIndex(9), digest: *d })
            .collect()
    }

    #[test]
    fn the_majority_is_right_else_the_leader() {
        assert_eq!(right(&answers(&[5, 5, 5]), 3), Some(5));
        assert_eq!(right(&answers(&[5, 5, 6]), 3), Some(5));
        assert_eq!(right(&answers(&[6, 5, 5]), 3), Some(5), "also when the leader differs");
        assert_eq!(right(&answers(&[6, 5]), 3), Some(6), "no majority: the leader counts");
        assert_eq!(right(&answers(&[4, 5, 6]), 3), Some(4));
        assert_eq!(right(&[], 3), None);
        for (digests, undecided) in [
            (&[5, 5, 6][..], false),
            (&[6, 5, 5], false),
            (&[5, 5], false),
            (&[6, 5], true),
            (&[4, 5, 6], true),
            (&[5], false),
        ] {
            assert_eq!(is_undecided(&answers(digests), 3), undecided, "{digests:?}");
        }
    }

    #[test]
    fn who_was_rebuilt_and_does_the_same_again_stands_by_it() {
        use Judgement::{Right, Stands, Wrong};
        let judge = |digests: &[u64], own, digest, again| {
            let came = if again { Came::Anew } else { Came::Before };
            judge(&answers(digests), 3, ReplicaId(own), digest, came)
        };
        // The leader answered first; one is missing.
        assert_eq!(judge(&[6, 5], 1, 6, false), Right);
        assert_eq!(judge(&[6, 5], 2, 5, false), Wrong(6), "the leader counts, at first");
        assert_eq!(judge(&[6, 5], 2, 5, true), Stands);
        assert_eq!(judge(&[6, 5], 2, 7, true), Wrong(6));
        assert_eq!(judge(&[6, 5], 2, 6, true), Right);
        assert_eq!(judge(&[6, 5], 1, 5, true), Right, "the leader, rebuilt");
        assert_eq!(judge(&[6, 5], 1, 6, true), Stands);
        assert_eq!(judge(&[6, 5], 3, 5, true), Stands, "the third one, when it is back");
        assert_eq!(judge(&[6, 5], 3, 6, true), Right);
        assert_eq!(judge(&[6, 5], 3, 7, true), Wrong(6));
        // A majority is beyond dispute.
        assert_eq!(judge(&[6, 5, 5], 1, 6, true), Wrong(5));
        assert_eq!(judge(&[6, 6, 5], 3, 5, true), Wrong(6));
    }

    #[test]
    fn what_the_log_leads_to_twice_counts_when_nobody_answered_it() {
        use Judgement::{Right, Stands, Wrong};
        let judge = |digests: &[u64], own, digest, came| {
            judge(&answers(digests), 3, ReplicaId(own), digest, came)
        };
        // All servers are new; those that answered had something wrong in them.
        for own in 1..=3 {
            assert_eq!(judge(&[6, 5], own, 7, Came::Anew), Wrong(6));
            assert_eq!(judge(&[6, 5], own, 7, Came::AnewTwice), Stands);
        }
        assert_eq!(judge(&[6, 5], 2, 6, Came::AnewTwice), Right);
        assert_eq!(judge(&[6, 5], 3, 6, Came::AnewTwice), Right);
        assert_eq!(judge(&[4, 5, 6], 2, 6, Came::AnewTwice), Right, "as another one answered");
        assert_eq!(judge(&[6, 6, 5], 3, 7, Came::AnewTwice), Wrong(6), "a majority is right");
    }

    #[test]
    fn rounds_come_every_so_often_and_never_when_idle() {
        let ms = Duration::from_millis;
        let mut rounds = Rounds::default();
        let at = |i| Some((LogIndex(i), 1));
        rounds.output(ms(10));
        assert_eq!(rounds.begin(ReplicaId(1), at(5), ms(20)), None);
        assert_eq!(rounds.wake(Some(LogIndex(5))), Some(ms(510)));
        assert_eq!(rounds.begin(ReplicaId(1), at(5), ms(510)), Some(LogIndex(5)));
        assert_eq!(rounds.end(3, ms(520)), None);
        rounds.answer(Answer { replica: ReplicaId(2), index: LogIndex(5), digest: 1 });
        rounds.answer(Answer { replica: ReplicaId(2), index: LogIndex(5), digest: 1 });
        assert_eq!(rounds.end(3, ms(530)), None);
        rounds.answer(Answer { replica: ReplicaId(3), index: LogIndex(5), digest: 1 });
        assert_eq!(rounds.end(3, ms(540)).map(|a| a.len()), Some(3));
        assert_eq!(rounds.wake(Some(LogIndex(5))), None);
        assert_eq!(rounds.begin(ReplicaId(1), at(5), ms(9999)), None);
        assert_eq!(
            rounds.begin(ReplicaId(1), at(261), ms(550)),
            Some(LogIndex(261)),
            "busy: no waiting"
        );
        assert_eq!(rounds.wake(Some(LogIndex(261))), Some(ms(1550)));
        assert_eq!(rounds.end(3, ms(1550)), None);
        assert_eq!(rounds.ask_again(ms(1549)), None);
        assert_eq!(rounds.ask_again(ms(1550)), Some(LogIndex(261)));
        assert_eq!(rounds.wake(Some(LogIndex(261))), Some(ms(2550)));
        assert_eq!(rounds.end(3, ms(10_550)), None, "nobody answered: nothing to compare");
        assert_eq!(rounds.wake(Some(LogIndex(261))), None);
    }

    #[test]
    fn a_round_waits_for_servers_that_are_all_behind() {
        let s = Duration::from_secs;
        let mut rounds = Rounds::default();
        assert_eq!(rounds.begin(ReplicaId(1), Some((LogIndex(9), 1)), s(1)), Some(LogIndex(9)));
        assert_eq!(rounds.end(3, s(4)), None);
        rounds.answer(Answer { replica: ReplicaId(3), index: LogIndex(9), digest: 1 });
        assert_eq!(rounds.ask_again(s(4)), None);
        assert_eq!(rounds.end(3, s(4)).map(|answers| answers.len()), Some(2));
    }
}
