//! The certainly durable data of a replica's disk, tracked independently of the replica: compared with its messages, and with its log
//! after a restart.

use skein_log::wire::Promise;
use skein_log::{HardState, Persist, Recovered};
use skein_model::LogIndex;

/// The newest that is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    state: HardState,
    last: LogIndex,
}

impl Kept {
    /// The content of a log.
    pub fn of(recovered: &Recovered) -> Self {
        Self { state: recovered.hard_state, last: recovered.last_index() }
    }

    /// A replica sends this promise, while its disk has the `kept` data.
    ///
    /// # Errors
    /// It may forget what it says.
    pub fn covers(&self, promise: Promise) -> Result<(), String> {
        let HardState { term: known, vote, .. } = self.state;
        let covered = match promise {
            Promise::Vote { term, to, .. } => known > term || (known == term && vote == to),
            Promise::Stored { term, index } => known > term || self.last >= index,
        };
        if covered {
            return Ok(());
        }
        Err(format!("says {promise:?}, but its disk has {self:?}"))
    }

    /// A replica recovers this log. `in_flight`: a write was, which may have overwritten entries.
    ///
    /// # Errors
    /// Durable data are gone.
    pub fn is_in(&self, found: &Self, in_flight: bool) -> Result<(), String> {
        let (was, is) = (self.state, found.state);
        let votes =
            is.term > was.term || (is.term == was.term && (was.vote == 0 || is.vote == was.vote));
        if votes && (in_flight || found.last >= self.last) {
            return Ok(());
        }
        Err(format!("finds {found:?} on its disk, which had {self:?}"))
    }
}

/// Written data that are not synced yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsynced {
    state: Option<HardState>,
    last: Option<LogIndex>,
}

impl Unsynced {
    /// This is written, too.
    pub fn add(&mut self, persist: &Persist) {
        self.state = persist.hard_state.or(self.state);
        self.last = persist.last_index().or(self.last);
    }

    /// It is synced.
    pub fn done(&mut self, kept: &mut Kept) {
        let Self { state, last } = std::mem::take(self);
        kept.state = state.unwrap_or(kept.state);
        kept.last = last.unwrap_or(kept.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::Term;

    #[test]
    fn votes_and_entries_that_are_not_durable_are_noticed() {
        let state = HardState { term: Term(3), vote: 2, commit: LogIndex(0) };
        let kept = Kept { state, last: LogIndex(7) };
        let vote = |term, to| Promise::Vote { term: Term(term), from: 1, to };
        let stored = |term, index| Promise::Stored { term: Term(term), index: LogIndex(index) };
        assert!(
            [vote(3, 2), vote(2, 9), stored(3, 7), stored(2, 9)]
                .map(|p| kept.covers(p))
                .iter()
                .all(Result::is_ok)
        );
        assert!(
            [vote(3, 1), vote(4, 2), stored(3, 8)]
                .map(|p| kept.covers(p))
                .iter()
                .all(Result::is_err)
        );
        let found = |term, vote, last| Kept {
            state: HardState { term: Term(term), vote, ..state },
            last: LogIndex(last),
        };
        assert_eq!(kept.is_in(&found(3, 2, 7), false), Ok(()));
        assert_eq!(kept.is_in(&found(4, 0, 9), false), Ok(()));
        assert_eq!(kept.is_in(&found(3, 2, 5), true), Ok(()));
        for lost in [found(3, 0, 7), found(3, 1, 7), found(2, 2, 7), found(3, 2, 6)] {
            assert!(kept.is_in(&lost, false).is_err(), "{lost:?}");
        }
    }
}
