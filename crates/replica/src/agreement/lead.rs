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
    /// `TermStart` is proposed, and since when.
    Announced { at: LogIndex, since: Duration },
    /// Its server has executed `TermStart`.
    Serving,
}

/// An entry that is proposed and not committed.
#[derive(Clone, Copy, Debug)]
struct Proposal {
    index: LogIndex,
    bytes: usize,
    proposed: Duration,
    /// Nobody waited for it when it was proposed.
    unhurried: bool,
    /// The time since when somebody waits for it.
    awaited: Option<Duration>,
}

/// One term as a leader.
#[derive(Clone, Debug)]
pub struct Lead {
    term: Term,
    stage: Stage,
    in_flight: VecDeque<Proposal>,
    in_flight_bytes: usize,
    /// Those of them that are not of the kind for which nobody waits.
    hurried: usize,
    last: LogIndex,
    /// Everybody was asked to make it durable up to here, though nobody waits for the commit.
    asked: LogIndex,
}

impl Lead {
    /// Elected in `term`; `last` is the last entry of its log, including the term's own empty entry. `started` says whether
    /// a `Start` is known to be committed.
    #[must_use]
    pub const fn new(term: Term, last: LogIndex, started: bool) -> Self {
        let stage = if started { Stage::Announce } else { Stage::Learning { until: last } };
        Self {
            term,
            stage,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            hurried: 0,
            last: LogIndex(0),
            asked: LogIndex(0),
        }
    }

    /// The term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Everything up to `index` is committed. Answers since when the oldest of the newly committed proposals was waited for.
    pub fn committed(&mut self, index: LogIndex) -> Option<Duration> {
        if let Stage::Learning { until } = self.stage
            && index >= until
        {
            self.stage = Stage::Announce;
        }
        let mut first = None;
        while let Some(done) = self.in_flight.pop_front_if(|proposal| proposal.index <= index) {
            self.in_flight_bytes -= done.bytes;
            self.hurried -= usize::from(!done.unhurried);
            first = first.or(done.awaited);
        }
        first
    }

    /// Whether `TermStart` is to be proposed now.
    #[must_use]
    pub fn must_announce(&self) -> bool {
        self.stage == Stage::Announce
    }

    /// `TermStart` was proposed as `index`.
    pub fn announced(&mut self, index: LogIndex, now: Duration) {
        self.stage = Stage::Announced { at: index, since: now };
    }

    /// `TermStart`, if it was proposed so long ago and the server has not executed it.
    #[must_use]
    pub fn overdue(&self, wait: Duration, now: Duration) -> Option<LogIndex> {
        match self.stage {
            Stage::Announced { at, since } if now.saturating_sub(since) >= wait => Some(at),
            _ => None,
        }
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
            Stage::Announced { at, .. } if index >= at => {
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

    /// An entry of `bytes` was proposed as `index`. Unless it is `unhurried`, somebody waits for it and for all before it.
    pub fn proposed(&mut self, index: LogIndex, bytes: usize, unhurried: bool, now: Duration) {
        let proposal = Proposal { index, bytes, proposed: now, unhurried, awaited: None };
        self.in_flight.push_back(proposal);
        self.in_flight_bytes += bytes;
        self.last = index;
        if !unhurried {
            self.hurried += 1;
            self.hurry(now);
        }
    }

    /// Somebody waits for all proposals from now on.
    pub fn hurry(&mut self, now: Duration) {
        let unawaited = self.in_flight.iter_mut().rev().take_while(|p| p.awaited.is_none());
        unawaited.for_each(|proposal| proposal.awaited = Some(now));
    }

    /// Since when the oldest entry that is not committed has been waited for, if anybody waits.
    #[must_use]
    pub fn oldest_awaited(&self) -> Option<Duration> {
        self.in_flight.front().and_then(|proposal| proposal.awaited)
    }

    /// The number of newest entries for which nobody waits, and the first of them, with the time of its proposal.
    #[must_use]
    pub fn unawaited(&self) -> Option<(usize, LogIndex, Duration)> {
        self.unawaited_after(LogIndex(0))
    }

    /// As [`unawaited`](Self::unawaited), those of them that nobody was asked to make durable yet.
    #[must_use]
    pub fn unasked(&self) -> Option<(usize, LogIndex, Duration)> {
        self.unawaited_after(self.asked)
    }

    fn unawaited_after(&self, after: LogIndex) -> Option<(usize, LogIndex, Duration)> {
        let is_one = |p: &&Proposal| p.awaited.is_none() && p.index > after;
        let those = self.in_flight.iter().rev().take_while(is_one);
        those.enumerate().last().map(|(before, p)| (before + 1, p.index, p.proposed))
    }

    /// Whether everybody was asked to make this entry durable.
    #[must_use]
    pub fn is_asked(&self, index: LogIndex) -> bool {
        index <= self.asked
    }

    /// Everybody is asked to make all proposals durable.
    pub const fn asked(&mut self) {
        self.asked = self.last;
    }

    /// Bytes proposed and not yet committed.
    #[must_use]
    pub const fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Entries proposed and not yet committed, without the unhurried ones.
    #[must_use]
    pub const fn in_flight_entries(&self) -> usize {
        self.hurried
    }

    /// Whether nobody waits for the commit of any proposal.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.oldest_awaited().is_none()
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
        lead.announced(LogIndex(2), Duration::from_secs(1));
        lead.proposed(LogIndex(2), 100, false, Duration::ZERO);
        assert!(!lead.must_announce() && !lead.serves() && !lead.applied(LogIndex(1)));
        let overdue = |lead: &Lead, s| lead.overdue(Duration::from_secs(2), Duration::from_secs(s));
        assert_eq!((overdue(&lead, 2), overdue(&lead, 3)), (None, Some(LogIndex(2))));
        assert!(lead.applied(LogIndex(2)) && lead.serves() && !lead.applied(LogIndex(3)));
    }

    #[test]
    fn what_is_in_flight_shrinks_by_commits() {
        let mut lead = Lead::new(Term(2), LogIndex(7), true);
        assert!(lead.must_announce());
        for i in 8..12 {
            lead.proposed(LogIndex(i), 10, false, Duration::from_secs(i));
        }
        assert_eq!(lead.in_flight_bytes(), 40);
        assert_eq!(lead.oldest_awaited(), Some(Duration::from_secs(8)));
        assert_eq!(lead.committed(LogIndex(9)), Some(Duration::from_secs(8)));
        assert_eq!((lead.in_flight_bytes(), lead.is_settled()), (20, false));
        assert_eq!(lead.committed(LogIndex(9)), None);
        lead.committed(LogIndex(20));
        assert!(lead.is_settled() && lead.in_flight_entries() == 0);
    }

    #[test]
    fn somebody_waits_for_what_precedes_an_entry_that_is_waited_for() {
        let at = Duration::from_secs;
        let mut lead = Lead::new(Term(2), LogIndex(7), true);
        for i in 8..11 {
            lead.proposed(LogIndex(i), 10, true, at(i));
        }
        assert_eq!(lead.unawaited(), Some((3, LogIndex(8), at(8))));
        assert!(lead.is_settled() && lead.oldest_awaited().is_none());
        assert_eq!((lead.in_flight_entries(), lead.in_flight_bytes()), (0, 30));
        lead.proposed(LogIndex(11), 10, false, at(11));
        lead.proposed(LogIndex(12), 10, true, at(12));
        assert_eq!(lead.unawaited(), Some((1, LogIndex(12), at(12))));
        assert_eq!((lead.oldest_awaited(), lead.in_flight_entries()), (Some(at(11)), 1));
        assert_eq!(lead.committed(LogIndex(11)), Some(at(11)), "not since their proposals");
        assert!(lead.is_settled());
        lead.proposed(LogIndex(13), 10, true, at(13));
        lead.asked();
        lead.proposed(LogIndex(14), 10, true, at(14));
        assert_eq!(lead.unawaited(), Some((3, LogIndex(12), at(12))), "nobody waits by that");
        assert_eq!(lead.unasked(), Some((1, LogIndex(14), at(14))));
        lead.hurry(at(20));
        assert_eq!(lead.unasked(), None);
        assert_eq!((lead.unawaited(), lead.oldest_awaited()), (None, Some(at(20))));
        assert_eq!((lead.committed(LogIndex(14)), lead.in_flight_entries()), (Some(at(20)), 0));
    }
}
