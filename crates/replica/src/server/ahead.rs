//! Entries that a leader's server executes while they are being agreed on.
//!
//! The leader's server gets an entry when it is proposed: it executes while the entry travels to the others and onto their disks. Its
//! output stays in the output ring, behind the entry's mark, until the entry is committed: no client sees any of it before.
//!
//! A leader's proposals are committed in the order in which it made them, for as long as it leads. A leader that steps down may find another leader's
//! entry in the place of one of its own. Then its server has executed an entry that never existed: the server is ended, and rebuilt from the log.
//!
//! Invariant: an entry is known by its index and its leader's term; with both equal, so is the entry (raft's log matching).

use skein_model::{LogIndex, Term};
use std::collections::VecDeque;

/// Another entry was committed in the place of this one, which the server has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost(pub LogIndex);

/// Entries that a server got before they were committed; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    entries: VecDeque<(LogIndex, Term)>,
    /// The last entry that the server got before the first of these.
    behind: LogIndex,
}

impl Ahead {
    /// The server has got the entry at `index`, proposed in `term`, or has no use for it; before it, it got the one at `behind`.
    pub fn went(&mut self, index: LogIndex, term: Term, behind: LogIndex) {
        if self.entries.is_empty() {
            self.behind = behind;
        }
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < index));
        self.entries.push_back((index, term));
    }

    /// The entry at `index` was committed, and was proposed in `term`. True when the server is past it.
    ///
    /// # Errors
    /// The server has executed another one in its place, or in that of an entry before it.
    pub fn committed(&mut self, index: LogIndex, term: Term) -> Result<bool, Lost> {
        match self.entries.front() {
            Some(&(first, of)) if first < index || first == index && of != term => Err(Lost(first)),
            Some(&(first, _)) if first == index => {
                self.entries.pop_front();
                self.behind = index;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// All up to `index` is committed, including entries without a payload.
    ///
    /// # Errors
    /// The server has executed an entry that was never committed.
    pub fn all_committed(&self, index: LogIndex) -> Result<(), Lost> {
        match self.entries.front() {
            Some(&(first, _)) if first <= index => Err(Lost(first)),
            _ => Ok(()),
        }
    }

    /// Whether all entries that the server got are committed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The last committed entry that the server got, while it has others.
    #[must_use]
    pub fn behind(&self) -> Option<LogIndex> {
        (!self.is_empty()).then_some(self.behind)
    }

    /// The server begins anew.
    pub fn forget(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Term = Term(4);
    const NEW: Term = Term(5);

    fn ahead(indices: &[u64]) -> Ahead {
        let mut ahead = Ahead::default();
        indices.iter().for_each(|i| ahead.went(LogIndex(*i), OLD, LogIndex(i - 1)));
        ahead
    }

    #[test]
    fn what_is_committed_as_it_was_proposed_is_not_given_again() {
        let mut ahead = ahead(&[7, 8, 10]);
        assert_eq!(ahead.behind(), Some(LogIndex(6)));
        for (index, past) in [(5, false), (7, true), (8, true), (10, true), (11, false)] {
            assert_eq!(ahead.committed(LogIndex(index), OLD), Ok(past), "{index}");
            assert_eq!(ahead.all_committed(LogIndex(index)), Ok(()));
        }
        assert!(ahead.is_empty() && ahead.behind().is_none());
        ahead.went(LogIndex(12), NEW, LogIndex(10));
        assert_eq!(ahead.behind(), Some(LogIndex(10)));
    }

    #[test]
    fn an_entry_of_another_term_in_its_place_is_noticed() {
        let mut ahead = ahead(&[7, 8]);
        assert_eq!(ahead.committed(LogIndex(7), OLD), Ok(true));
        assert_eq!(ahead.behind(), Some(LogIndex(7)));
        assert_eq!(ahead.committed(LogIndex(8), NEW), Err(Lost(LogIndex(8))));
        ahead.forget();
        assert_eq!(ahead.committed(LogIndex(9), NEW), Ok(false));
    }

    #[test]
    fn so_is_an_entry_without_a_payload_in_its_place() {
        let mut ahead = ahead(&[7, 8]);
        assert_eq!(ahead.all_committed(LogIndex(6)), Ok(()));
        assert_eq!(ahead.all_committed(LogIndex(7)), Err(Lost(LogIndex(7))));
        assert_eq!(ahead.committed(LogIndex(8), OLD), Err(Lost(LogIndex(7))), "the first counts");
    }
}
