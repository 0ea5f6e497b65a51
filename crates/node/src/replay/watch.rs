//! Compares the digests of a run with those in its log.

use super::stored::Round;
use skein_arena::layout::Header;
use skein_model::{LogIndex, OutFrame};
use skein_replica::server::tap::Tap;
use skein_replica::server::{Files, ServerState};
use skein_replica::verdicts::digest::OutputDigest;
use skein_replica::verdicts::rounds::Answer;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A digest that differs from the log's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The log's digests.
    pub round: Round,
    /// This run's.
    pub own: u64,
}

#[derive(Debug)]
struct State {
    digest: OutputDigest,
    /// Not reached yet.
    rounds: VecDeque<Round>,
    equal: usize,
    mismatch: Option<Mismatch>,
    replicas: usize,
}

impl State {
    /// The consequences of an entry are complete: compares it.
    fn look(&mut self) {
        let Some((index, own)) = self.digest.latest() else { return };
        while let Some(round) = self.rounds.pop_front_if(|round| round.index <= index) {
            if round.index < index {
                // The server never took that entry: it cannot be compared.
                continue;
            }
            if round.allows(own, self.replicas) {
                self.equal += 1;
            } else {
                self.mismatch.get_or_insert(Mismatch { round, own });
            }
        }
    }
}

/// Compares while a run goes on.
#[derive(Clone, Debug)]
pub struct Watch(Arc<Mutex<State>>);

impl Watch {
    pub(super) fn new(
        rounds: VecDeque<Round>,
        replicas: usize,
        corrupt_at: Option<LogIndex>,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            digest: OutputDigest::new(corrupt_at),
            rounds,
            equal: 0,
            mismatch: None,
            replicas,
        })))
    }

    /// The server continues from an image.
    pub(super) fn continue_from(&self, state: &ServerState) {
        self.lock().digest.continue_from(state.index, &state.digest);
    }

    pub(super) fn tap(&self) -> Box<dyn Tap> {
        Box::new(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is ever half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn equal(&self) -> usize {
        self.lock().equal
    }

    pub(super) fn mismatch(&self) -> Option<Mismatch> {
        self.lock().mismatch.clone()
    }

    pub(super) fn next_round(&self) -> Option<Round> {
        self.lock().rounds.front().cloned()
    }
}

impl Tap for Watch {
    fn launched(&mut self, _: Option<&Files>) {}

    fn entry(&mut self, _: LogIndex, _: &[u8]) {}

    fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>) {
        let mut state = self.lock();
        state.digest.frame(raw, frame);
        if matches!(frame, OutFrame::Admitted { .. }) {
            state.look();
        }
    }

    fn drained(&mut self, _: &Header, rests: bool) {
        if rests {
            let mut state = self.lock();
            state.digest.settle();
            state.look();
        }
    }
}

impl Round {
    /// Whether a digest is the log's: the majority's, or, where no majority agreed, any replica's.
    fn allows(&self, digest: u64, replicas: usize) -> bool {
        use skein_replica::verdicts::rounds::{is_undecided, right};
        if is_undecided(&self.answers, replicas) {
            return self.answers.iter().any(|answer: &Answer| answer.digest == digest);
        }
        right(&self.answers, replicas) == Some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::frame::FRAME_SCRATCH_BYTES;
    use skein_model::pad8;
    use skein_model::{Clock, ConnId, ReplicaId};

    fn put(watch: &mut Watch, frame: OutFrame<'_>) {
        let mut scratch = [0; FRAME_SCRATCH_BYTES];
        let (header, payload) = frame.encode(&mut scratch);
        let mut raw = header.to_vec();
        raw.extend_from_slice(payload);
        raw.resize(pad8(raw.len()), 0);
        watch.frame(&raw, &frame);
    }

    /// Entries 1 to 4, an answer to each.
    fn run(watch: &mut Watch) {
        for n in 1..=4 {
            put(watch, OutFrame::Admitted { index: LogIndex(n), clock: Clock(n), ops: n });
            put(watch, OutFrame::Send { conn: ConnId(7), bytes: b"yes" });
        }
    }

    fn round(index: u64, digests: &[u64]) -> Round {
        let answer = |(n, digest): (usize, &u64)| Answer {
            replica: ReplicaId(n as u64 + 1),
            index: LogIndex(index),
            digest: *digest,
        };
        Round { index: LogIndex(index), answers: digests.iter().enumerate().map(answer).collect() }
    }

    #[test]
    fn each_digest_is_compared_when_it_is_known() {
        let mut plain = Watch::new([].into(), 3, None);
        run(&mut plain);
        let known = |n| plain.lock().digest.at(LogIndex(n)).unwrap();
        let (two, three) = (known(2), known(3));
        let rounds = [round(2, &[two; 3]), round(3, &[three, three, 9]), round(4, &[1, 1, 1])];
        let mut watch = Watch::new(rounds.clone().into(), 3, None);
        run(&mut watch);
        assert_eq!((watch.equal(), watch.mismatch()), (2, None), "the last one is not settled");
        assert_eq!(watch.next_round(), Some(rounds[2].clone()));
        watch.lock().digest.settle();
        watch.lock().look();
        assert_eq!(watch.mismatch().unwrap().round, rounds[2]);
        // Two replicas that disagree, and no third one.
        let mut watch = Watch::new([round(2, &[1, two]), round(3, &[1, 2])].into(), 3, None);
        run(&mut watch);
        assert_eq!((watch.equal(), watch.mismatch().unwrap().own), (1, three));
        // A digest that a test has spoilt.
        let mut watch = Watch::new(rounds.clone().into(), 3, Some(LogIndex(3)));
        run(&mut watch);
        assert_eq!((watch.equal(), watch.mismatch().unwrap().round), (1, rounds[1].clone()));
    }
}
