//! A leader's term, from the election until it serves, and its entries in flight.
//!
//! ```text
//! elected --> (all older entries committed, when the log may still be without a Start) --> TermStart proposed
//!         --> TermStart executed by its own server --> serves: accepts clients and reads from them
//! ```

use skein_model::{LogIndex, Term};
use std::collections::VecDeque;
use std::time::Duration;

/// A leader's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It must see all older entries committed to know whether the log has a `Start` already.
    Learning { until: LogIndex },
    /// `TermStart` must be proposed.
    Announce,
    /// `TermStart` is proposed.
    Announced { at: LogIndex },
    /// Its server has executed `TermStart`.
    Serving,
}

/// One term as a leader.
#[derive(Clone, Debug)]
pub struct Lead {
    term: Term,
    stage: Stage,
    in_flight: VecDeque<(LogIndex, usize, Duration)>,
    in_flight_bytes: usize,
    last: LogIndex,
}

impl Lead {
    /// Elected in `term`; `last` is the last entry of its log, including the term's own empty entry. `started` says whether
    /// a `Start` is known to be committed.
    #[must_use]
    pub const fn new(term: Term, last: LogIndex, started: bool) -> Self {
        let stage = if started { Stage::Announce } else { Stage::Learning { until: last } };
        Self { term, stage, in_flight: VecDeque::new(), in_flight_bytes: 0, last: LogIndex(0) }
    }

    /// The term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Everything up to `index` is committed. Answers when the oldest of the newly committed proposals was made.
    pub fn committed(&mut self, index: LogIndex) -> Option<Duration> {
        if let Stage::Learning { until } = self.stage
            && index >= until
        {
            self.stage = Stage::Announce;
        }
        let mut first = None;
        while let Some(&(at, bytes, when)) = self.in_flight.front() {
            if at > index {
                break;
            }
            self.in_flight.pop_front();
            self.in_flight_bytes -= bytes;
            first = first.or(Some(when));
        }
        first
    }

    /// Whether `TermStart` is to be proposed now.
    #[must_use]
    pub fn must_announce(&self) -> bool {
        self.stage == Stage::Announce
    }

    /// `TermStart` was proposed as `index`.
    pub fn announced(&mut self, index: LogIndex) {
        self.stage = Stage::Announced { at: index };
    }

    /// Whether `TermStart` was proposed.
    #[must_use]
    pub const fn has_announced(&self) -> bool {
        matches!(self.stage, Stage::Announced { .. } | Stage::Serving)
    }

    /// The server executed up to `index`. True when the leader begins to serve with it.
    #[must_use]
    pub fn applied(&mut self, index: LogIndex) -> bool {
        match self.stage {
            Stage::Announced { at } if index >= at => {
                self.stage = Stage::Serving;
                true
            }
            _ => false,
        }
    }

    /// Whether clients are served.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// An entry of `bytes` was proposed as `index`.
    pub fn proposed(&mut self, index: LogIndex, bytes: usize, now: Duration) {
        self.in_flight.push_back((index, bytes, now));
        self.in_flight_bytes += bytes;
        self.last = index;
    }

    /// When the oldest entry that is not committed was proposed.
    #[must_use]
    pub fn oldest_in_flight(&self) -> Option<Duration> {
        self.in_flight.front().map(|(_, _, when)| *when)
    }

    /// Bytes proposed and not yet committed.
    #[must_use]
    pub const fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Entries proposed and not yet committed.
    #[must_use]
    pub fn in_flight_entries(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether every proposal is committed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// The newest entry that this leader proposed; 0 for none.
    #[must_use]
    pub const fn last_proposed(&self) -> LogIndex {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_leader_learns_then_announces_then_serves() {
        let mut lead = Lead::new(Term(1), LogIndex(1), false);
        assert!(!lead.must_announce());
        lead.committed(LogIndex(1));
        assert!(lead.must_announce());
        lead.announced(LogIndex(2));
        lead.proposed(LogIndex(2), 100, Duration::ZERO);
        assert!(!lead.must_announce() && !lead.serves() && !lead.applied(LogIndex(1)));
        assert!(lead.applied(LogIndex(2)) && lead.serves() && !lead.applied(LogIndex(3)));
    }

    #[test]
    fn what_is_in_flight_shrinks_by_commits() {
        let mut lead = Lead::new(Term(2), LogIndex(7), true);
        assert!(lead.must_announce());
        for i in 8..12 {
            lead.proposed(LogIndex(i), 10, Duration::from_secs(i));
        }
        assert_eq!(lead.in_flight_bytes(), 40);
        assert_eq!(lead.oldest_in_flight(), Some(Duration::from_secs(8)));
        assert_eq!(lead.committed(LogIndex(9)), Some(Duration::from_secs(8)));
        assert_eq!((lead.in_flight_bytes(), lead.is_settled()), (20, false));
        assert_eq!(lead.committed(LogIndex(9)), None);
        lead.committed(LogIndex(20));
        assert!(lead.is_settled() && lead.oldest_in_flight().is_none());
    }
}
