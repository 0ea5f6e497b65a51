//! Did the servers end because of their input?
//!
//! An input that ends one server ends all of them after the same entry and with the same status. A server that lives on after that
//! entry proves for good that the input is not the cause, wherever it runs and whenever it was started: an end at that entry, or before it, had
//! another cause. So two servers that died one after the other, each repaired in between, never add up to an end.

use skein_log::majority;
use skein_model::{LogIndex, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};

/// The last entry that a server executed, and its wait status.
pub type End = (LogIndex, i32);

/// The end of a majority's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// The entry and the status.
    pub end: End,
    /// The number of replicas.
    pub count: usize,
}

/// The ends of the replicas' servers that are not explained yet.
#[derive(Clone, Debug, Default)]
pub struct Exits {
    ends: BTreeMap<ReplicaId, End>,
    /// A living server has executed this entry.
    survived: LogIndex,
}

impl Exits {
    /// The server of `replica` ended.
    pub fn ended(&mut self, replica: ReplicaId, end: End) {
        if end.0 > self.survived {
            self.ends.insert(replica, end);
        }
    }

    /// The server of `replica` was started again.
    pub fn started(&mut self, replica: ReplicaId) {
        self.ends.remove(&replica);
    }

    /// The end of `replica`'s server, if it is not explained yet.
    #[must_use]
    pub fn of(&self, replica: ReplicaId) -> Option<End> {
        self.ends.get(&replica).copied()
    }

    /// Forgets all ends.
    pub fn clear(&mut self) {
        self.ends.clear();
    }

    /// The newest end that a server which lives beyond it would explain.
    #[must_use]
    pub fn newest(&self) -> Option<LogIndex> {
        self.ends.values().map(|end| end.0).max()
    }

    /// A living server has executed `index`.
    pub fn survived(&mut self, index: LogIndex) {
        self.survived = self.survived.max(index);
        self.ends.retain(|_, end| end.0 > self.survived);
    }

    /// The end that a majority of those share who can tell; `voices` answers which ones these are for an end, and the least number of them.
    #[must_use]
    pub fn common(&self, voices: impl Fn(End) -> (BTreeSet<ReplicaId>, usize)) -> Option<Common> {
        self.ends.values().find_map(|end| {
            let (voices, least) = voices(*end);
            let same = |id: &&ReplicaId| self.ends.get(id) == Some(end);
            let count = voices.iter().filter(same).count();
            (count >= majority(voices.len()).max(least)).then_some(Common { end: *end, count })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: i32 = 9;

    /// The first so many replicas can tell.
    fn of(replicas: u64) -> impl Fn(End) -> (BTreeSet<ReplicaId>, usize) {
        move |_| ((1..=replicas).map(ReplicaId).collect(), 1)
    }

    #[test]
    fn a_majority_that_ends_in_the_same_way_was_ended_by_its_input() {
        let mut exits = Exits::default();
        let end = (LogIndex(7), KILLED);
        exits.ended(ReplicaId(1), end);
        assert_eq!(exits.common(of(3)), None);
        exits.ended(ReplicaId(2), (LogIndex(8), KILLED));
        assert_eq!(exits.common(of(3)), None, "another entry");
        exits.ended(ReplicaId(2), (LogIndex(7), 0));
        assert_eq!(exits.common(of(3)), None, "another status");
        exits.ended(ReplicaId(3), end);
        assert_eq!(exits.common(of(3)), Some(Common { end, count: 2 }));
        exits.started(ReplicaId(3));
        assert_eq!(exits.common(of(3)), None);
        assert_eq!(
            exits.common(of(1)),
            Some(Common { end, count: 1 }),
            "who has no server counts not"
        );
        assert_eq!(exits.common(|_| ([ReplicaId(1)].into(), 2)), None, "one alone is too few");
    }

    #[test]
    fn a_server_that_lives_on_explains_the_ends_before_and_later_ones_there() {
        let mut exits = Exits::default();
        exits.ended(ReplicaId(1), (LogIndex(7), KILLED));
        assert_eq!(exits.newest(), Some(LogIndex(7)));
        exits.survived(LogIndex(7));
        exits.survived(LogIndex(3));
        exits.ended(ReplicaId(2), (LogIndex(7), KILLED));
        exits.ended(ReplicaId(1), (LogIndex(6), KILLED));
        assert_eq!((exits.newest(), exits.common(of(1))), (None, None));
        exits.ended(ReplicaId(2), (LogIndex(8), KILLED));
        assert_eq!(exits.of(ReplicaId(2)), Some((LogIndex(8), KILLED)));
    }
}
