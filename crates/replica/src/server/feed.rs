//! The next entry for the server, in log order, each once: committed ones, and on a leader its own proposals
//! ([`super::ahead`]).
//!
//! Committed entries are given to the server at once while its ring has room. When it has none, nothing is kept: the
//! position stays, and entries are read again from the log when the server has made room. A fresh server starts at 1, one that continues from an
//! image behind its entry.

use skein_model::{EntryRef, LogIndex};

/// The treatment of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server gets it.
    Give,
    /// The server has no use for it; the position is behind it now.
    Skip,
    /// Not yet, or given already.
    NotNow,
}

/// The position of one server in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feed {
    next: LogIndex,
    given: LogIndex,
}

impl Default for Feed {
    fn default() -> Self {
        Self { next: LogIndex(1), given: LogIndex(0) }
    }
}

/// Whether an entry is for servers: digests and roots are compared by nodes only.
#[must_use]
pub fn is_for_server(entry: &EntryRef<'_>) -> bool {
    let mut any = false;
    for record in entry.records() {
        if !record.is_for_nodes() {
            return true;
        }
        any = true;
    }
    !any
}

impl Feed {
    /// The position of a server that has executed all up to `index`.
    #[must_use]
    pub const fn after(index: LogIndex) -> Self {
        Self { next: index.next(), given: index }
    }

    /// The entry that the server gets next, unless it is skipped.
    #[must_use]
    pub const fn next(&self) -> LogIndex {
        self.next
    }

    /// The newest entry that was given to the server; 0 for none.
    #[must_use]
    pub const fn given(&self) -> LogIndex {
        self.given
    }

    /// Whether the server got all committed entries, and all proposals of its leader.
    #[must_use]
    pub fn has_all(&self, committed: LogIndex, proposed: LogIndex) -> bool {
        self.next > committed.max(proposed)
    }

    /// The treatment of the entry at `index`; `entry` is `None` for an entry that consensus made for itself.
    #[must_use]
    pub fn step(&mut self, index: LogIndex, entry: Option<&EntryRef<'_>>) -> Step {
        if index != self.next {
            return Step::NotNow;
        }
        if entry.is_some_and(is_for_server) {
            return Step::Give;
        }
        self.next = index.next();
        Step::Skip
    }

    /// The entry at `index` is in the ring.
    pub fn gave(&mut self, index: LogIndex) {
        assert_eq!(index, self.next, "entries reach the server in log order");
        self.given = index;
        self.next = index.next();
    }

    /// All entries below `index` are for consensus only.
    pub fn skip_to(&mut self, index: LogIndex) {
        self.next = self.next.max(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_model::{EntryBuilder, Record, ReplicaId, Term, WallNs};

    fn entry(records: &[Record<'_>]) -> Vec<u8> {
        let mut builder = EntryBuilder::new(Vec::new());
        records.iter().for_each(|r| builder.push(*r));
        builder.finish(WallNs(1), Term(1))
    }

    #[test]
    fn entries_are_given_in_order_and_digests_are_not() {
        let digest = Record::Digest { replica: ReplicaId(1), index: LogIndex(1), digest: 7 };
        let [input, clock, digests, both] = [
            entry(&[Record::TermStart]),
            entry(&[]),
            entry(&[digest]),
            entry(&[digest, Record::TermStart]),
        ];
        let mut feed = Feed::default();
        assert_eq!(feed.step(LogIndex(1), None), Step::Skip, "a term's empty entry");
        assert_eq!(feed.step(LogIndex(3), EntryRef::parse(&clock).ok().as_ref()), Step::NotNow);
        for (index, bytes, want) in [
            (2, &input, Step::Give),
            (3, &clock, Step::Give),
            (4, &digests, Step::Skip),
            (5, &both, Step::Give),
        ] {
            let parsed = EntryRef::parse(bytes).unwrap();
            assert_eq!(feed.step(LogIndex(index), Some(&parsed)), want, "entry {index}");
            if want == Step::Give {
                feed.gave(LogIndex(index));
            }
        }
        assert_eq!((feed.next(), feed.given()), (LogIndex(6), LogIndex(5)));
    }
}
