//! The rolling digest of a server's output.
//!
//! `d' = xxh3(frame, seed d)` over every output frame in order (frames of advice are left out), per server and per
//! connection. The digest *at* an entry is its value when all consequences of that entry are included: when the next entry is
//! admitted, or when the server is quiescent and its ring empty.

use crate::gateway::ConnMap;
use skein_model::{ConnId, LogIndex, OutFrame};
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of entries whose digests are remembered: 4096.
const REMEMBERED: usize = 4096;
/// Of so many more that were told others: an answer may come to be judged when many entries have followed.
const TOLD: usize = 64;

/// The most connections with a digest: 65,536. One more resets all, on all replicas at the same point.
const MAX_CONNECTIONS: usize = 1 << 16;

/// A server's output so far.
#[derive(Debug, Default)]
pub struct OutputDigest {
    value: u64,
    /// The entry whose consequences are being hashed.
    open: Option<LogIndex>,
    history: VecDeque<(LogIndex, u64)>,
    /// Those that were told others.
    told: VecDeque<(LogIndex, u64)>,
    conns: ConnMap<u64>,
    corrupt_at: Option<LogIndex>,
}

/// A digest at an entry, from which another one continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestState {
    /// Of all output.
    pub value: u64,
    /// Of the output of each open connection, in order of their ids.
    pub connections: Vec<(ConnId, u64)>,
}

impl OutputDigest {
    /// Empty. With `corrupt_at` the digest is wrong from that entry on: for tests of a divergence.
    #[must_use]
    pub fn new(corrupt_at: Option<LogIndex>) -> Self {
        Self { corrupt_at, ..Self::default() }
    }

    /// At the newest entry, all of whose consequences are included.
    #[must_use]
    pub fn state(&self) -> DigestState {
        DigestState { value: self.value, connections: self.connections() }
    }

    /// Continues from a state at this entry.
    pub fn continue_from(&mut self, index: LogIndex, state: &DigestState) {
        self.value = state.value;
        self.open = Some(index);
        self.history = [(index, state.value)].into();
        self.conns = state.connections.iter().copied().collect();
    }

    /// Adds a frame; `raw` are its bytes with header and padding.
    pub fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>) {
        if !frame.is_output() {
            return;
        }
        match *frame {
            OutFrame::Admitted { index, .. } => {
                self.settle();
                self.open = Some(index);
                if self.corrupt_at.is_some_and(|at| index >= at) {
                    self.corrupt_at = None;
                    self.value ^= 1;
                }
            }
            OutFrame::Send { conn, .. } | OutFrame::Fin { conn } => {
                if self.conns.len() >= MAX_CONNECTIONS && !self.conns.contains_key(&conn) {
                    self.conns.clear();
                }
                let value = self.conns.entry(conn).or_default();
                *value = xxh3_64_with_seed(raw, *value);
            }
            OutFrame::Close { conn } | OutFrame::Abort { conn } => {
                self.conns.remove(&conn);
            }
            _ => {}
        }
        self.value = xxh3_64_with_seed(raw, self.value);
    }

    /// All consequences of the newest admitted entry are included.
    pub fn settle(&mut self) {
        let Some(index) = self.open else { return };
        match self.history.back_mut() {
            Some((last, value)) if *last == index => *value = self.value,
            _ => {
                if self.history.len() == REMEMBERED {
                    self.history.pop_front();
                }
                self.history.push_back((index, self.value));
            }
        }
    }

    /// The digest at an entry, if it is known and not forgotten.
    #[must_use]
    pub fn at(&self, index: LogIndex) -> Option<u64> {
        if let Ok(found) = self.history.binary_search_by_key(&index, |(i, _)| *i) {
            return Some(self.history[found].1);
        }
        self.told.iter().find(|(told, _)| *told == index).map(|(_, value)| *value)
    }

    /// The digest at an entry is told others: it is not forgotten before they are all compared.
    pub fn tell(&mut self, index: LogIndex) -> Option<u64> {
        let value = self.at(index)?;
        if self.told.iter().all(|(told, _)| *told != index) {
            if self.told.len() == TOLD {
                self.told.pop_front();
            }
            self.told.push_back((index, value));
        }
        Some(value)
    }

    /// The newest entry whose digest is known, with it.
    #[must_use]
    pub fn latest(&self) -> Option<(LogIndex, u64)> {
        self.history.back().copied()
    }

    /// The digests of the server's open connections, in order of their ids.
    #[must_use]
    pub fn connections(&self) -> Vec<(ConnId, u64)> {
        let mut all: Vec<_> = self.conns.iter().map(|(c, d)| (*c, *d)).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::Clock;
    use skein_model::frame::FRAME_SCRATCH_BYTES;
    use skein_model::pad8;

    fn add(digest: &mut OutputDigest, frame: OutFrame<'_>) {
        let mut scratch = [0; FRAME_SCRATCH_BYTES];
        let (header, payload) = frame.encode(&mut scratch);
        let mut raw = header.to_vec();
        raw.extend_from_slice(payload);
        raw.resize(pad8(raw.len()), 0);
        digest.frame(&raw, &frame);
    }

    fn mark(index: u64) -> OutFrame<'static> {
        OutFrame::Admitted { index: LogIndex(index), clock: Clock(index * 10), ops: 1 }
    }

    #[test]
    fn a_digest_is_known_at_the_next_mark_or_when_settled() {
        let mut d = OutputDigest::default();
        add(&mut d, mark(2));
        add(&mut d, OutFrame::Send { conn: ConnId(1), bytes: b"pong" });
        assert_eq!(d.latest(), None);
        d.settle();
        let at2 = d.at(LogIndex(2)).unwrap();
        add(&mut d, mark(5));
        assert_eq!((d.latest(), d.at(LogIndex(5))), (Some((LogIndex(2), at2)), None));
    }

    #[test]
    fn what_others_were_told_is_known_when_it_is_judged() {
        let mut d = OutputDigest::default();
        let pass = |d: &mut OutputDigest, from: u64, to: u64| {
            (from..to).for_each(|index| add(d, mark(index)));
        };
        pass(&mut d, 1, 10);
        let five = d.tell(LogIndex(5));
        assert!(five.is_some() && d.tell(LogIndex(5)) == five && d.tell(LogIndex(10)).is_none());
        let others = REMEMBERED as u64 + 20;
        pass(&mut d, 10, others);
        assert_eq!((d.at(LogIndex(5)), d.at(LogIndex(6))), (five, None));
        for index in others - 2 - TOLD as u64..others - 2 {
            assert!(d.tell(LogIndex(index)).is_some());
        }
        assert_eq!(d.at(LogIndex(5)), None, "not for ever");
    }

    #[test]
    fn what_differs_shows_and_advice_does_not() {
        let run = |reply: &'static [u8], advice: bool| {
            let mut d = OutputDigest::default();
            add(&mut d, mark(2));
            if advice {
                add(&mut d, OutFrame::Consumed { conn: ConnId(1), bytes: 9 });
                add(&mut d, OutFrame::Notice { text: b"x" });
            }
            add(&mut d, OutFrame::Send { conn: ConnId(1), bytes: reply });
            d.settle();
            (d.latest(), d.connections())
        };
        assert_eq!(run(b"a", false), run(b"a", true));
        assert_ne!(run(b"a", false).0, run(b"b", false).0);
        assert_ne!(run(b"a", false).1, run(b"b", false).1);
    }

    #[test]
    fn another_one_continues_from_a_state() {
        let mut whole = OutputDigest::default();
        add(&mut whole, mark(2));
        add(&mut whole, OutFrame::Send { conn: ConnId(1), bytes: b"pong" });
        whole.settle();
        let mut rest = OutputDigest::default();
        rest.continue_from(LogIndex(2), &whole.state());
        assert_eq!((rest.latest(), rest.connections()), (whole.latest(), whole.connections()));
        for digest in [&mut whole, &mut rest] {
            add(digest, mark(3));
            add(digest, OutFrame::Send { conn: ConnId(1), bytes: b"again" });
            digest.settle();
        }
        assert_eq!((rest.latest(), rest.connections()), (whole.latest(), whole.connections()));
    }

    #[test]
    fn a_test_can_spoil_a_digest() {
        let run = |at| {
            let mut d = OutputDigest::new(at);
            for i in 2..6 {
                add(&mut d, mark(i));
            }
            d.settle();
            (2..6).map(|i| d.at(LogIndex(i)).unwrap()).collect::<Vec<_>>()
        };
        let (good, bad) = (run(None), run(Some(LogIndex(4))));
        assert_eq!(good[..2], bad[..2]);
        assert!(good[2] != bad[2] && good[3] != bad[3]);
    }
}
