//! Who took part at each entry of the log: an image of an earlier entry needs the members as they were then.

use crate::base::Members;
use skein_model::LogIndex;
use std::collections::VecDeque;

/// The members since the log's base.
pub(super) struct History {
    /// Never empty: those at the base, then each change's entry and result.
    changes: VecDeque<(LogIndex, Members)>,
}

impl History {
    /// These take part since the log's base.
    pub(super) fn since(base: LogIndex, members: Members) -> Self {
        Self { changes: VecDeque::from([(base, members)]) }
    }

    /// The entry at `index` has changed the members.
    pub(super) fn push(&mut self, index: LogIndex, members: Members) {
        self.changes.push_back((index, members));
    }

    /// Nobody was known to take part at the base: these did.
    pub(super) fn founded_by(&mut self, members: Members) {
        if let Some((_, first)) = self.changes.front_mut().filter(|(_, m)| m.is_founders()) {
            *first = members;
        }
    }

    /// The members when the entry at `index` was applied; it must be applied and not before the base.
    pub(super) fn at(&self, index: LogIndex) -> &Members {
        let after = self.changes.partition_point(|(since, _)| *since <= index);
        &self.changes[after.checked_sub(1).expect("an entry from before the base")].1
    }

    /// The log begins after this entry now.
    pub(super) fn forget(&mut self, base: LogIndex) {
        let after = self.changes.partition_point(|(since, _)| *since <= base);
        self.changes.drain(..after.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_of_each_entry_are_known_until_it_is_forgotten() {
        let members = |voter| Members { voters: vec![voter], ..Members::default() };
        let mut history = History::since(LogIndex(10), members(1));
        history.push(LogIndex(15), members(2));
        history.push(LogIndex(20), members(3));
        let at = |history: &History, index| history.at(LogIndex(index)).voters[0];
        assert_eq!([10, 14, 15, 19, 20, 99].map(|n| at(&history, n)), [1, 1, 2, 2, 3, 3]);
        history.forget(LogIndex(15));
        assert_eq!([15, 20].map(|n| at(&history, n)), [2, 3]);
        history.forget(LogIndex(40));
        assert_eq!((history.changes.len(), at(&history, 40)), (1, 3));
    }
}
