//! The recovered log of a replica at its start.

use crate::{
    base::Base,
    types::{EntryKind, HardState, LogEntry},
};
use skein_model::{LogIndex, Term};
use std::collections::VecDeque;

/// The term of each entry: one pair for the first entry of each term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TermRuns {
    /// The entry before the first one, and its term.
    base: (LogIndex, Term),
    runs: Vec<(LogIndex, Term)>,
    last: LogIndex,
}

impl TermRuns {
    pub(crate) fn after(base: &Base) -> Self {
        Self { base: (base.index, base.term), runs: Vec::new(), last: base.index }
    }

    pub(crate) fn first(&self) -> LogIndex {
        self.base.0.next()
    }

    pub(crate) fn last(&self) -> LogIndex {
        self.last
    }

    pub(crate) fn push(&mut self, index: LogIndex, term: Term) {
        assert_eq!(index, self.last.next(), "the log skipped an index");
        self.last = index;
        match self.runs.last().map_or(self.base.1, |run| run.1) {
            last if last == term => {}
            last if last > term => {
                panic!("the log's term goes back from {last} to {term}")
            }
            _ => self.runs.push((index, term)),
        }
    }

    /// Forgets the entries up to the base, which is one of them or the present base.
    pub(crate) fn forget(&mut self, base: &Base) {
        let known = self.term(base.index);
        // Recovery may not know the term of an entry that is gone.
        let is_known = known == Some(base.term) || known == Some(Term(0));
        assert!(is_known, "a base that is not in the log");
        self.base = (base.index, base.term);
        // The base's own run, if it goes on, is known by the base.
        self.runs.drain(..self.runs.partition_point(|(first, _)| *first <= base.index));
    }

    /// Forgets the entries from `from` on.
    pub(crate) fn truncate(&mut self, from: LogIndex) {
        assert!(from > self.base.0, "truncated before the first entry");
        assert!(from <= self.last.next(), "truncated behind the end");
        self.last = LogIndex(from.0 - 1);
        self.runs.truncate(self.runs.partition_point(|(first, _)| *first < from));
    }

    /// 0 for index 0; `None` behind the end, or before the base.
    pub(crate) fn term(&self, index: LogIndex) -> Option<Term> {
        if index < self.base.0 || index > self.last {
            return None;
        }
        let run = self.runs.partition_point(|(first, _)| *first <= index);
        Some(run.checked_sub(1).map_or(self.base.1, |run| self.runs[run].1))
    }
}

/// The start state of a replica; the default is that of a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Its promises.
    pub hard_state: HardState,
    pub(crate) base: Base,
    pub(crate) terms: TermRuns,
    /// The newest entries, in order, up to the last one.
    pub(crate) tail: VecDeque<LogEntry>,
    tail_bytes: usize,
    /// All membership changes since the base.
    pub(crate) membership: Vec<LogEntry>,
    /// All entries since the base that [`marks`](crate::wal::WalOptions::marks) is true of.
    pub marked: Vec<LogEntry>,
}

impl Recovered {
    /// A log that begins after `base` and has no entry yet.
    #[must_use]
    pub fn after(base: Base) -> Self {
        let hard_state = HardState { term: base.term, vote: 0, commit: base.index };
        let terms = TermRuns::after(&base);
        Self { hard_state, terms, base, ..Self::default() }
    }

    /// Where the log begins.
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// The last entry.
    #[must_use]
    pub fn last_index(&self) -> LogIndex {
        self.terms.last()
    }

    /// The term of an entry; `None` behind the end, or before the base.
    #[must_use]
    pub fn term(&self, index: LogIndex) -> Option<Term> {
        self.terms.term(index)
    }

    /// Adds the next entry; keeps about `tail_bytes` of the newest ones.
    pub(crate) fn push(&mut self, entry: LogEntry, tail_bytes: usize) {
        self.terms.push(entry.index, entry.term);
        if entry.kind == EntryKind::Membership {
            self.membership.push(entry.clone());
        }
        self.tail_bytes += entry.payload.len();
        self.tail.push_back(entry);
        while self.tail_bytes > tail_bytes && self.tail.len() > 1 {
            let dropped = self.tail.pop_front().expect("more than one");
            self.tail_bytes -= dropped.payload.len();
        }
    }

    /// Adds the next entry, of which nothing stays in memory unless it is a change of members. None before it has stayed.
    pub(crate) fn pass(&mut self, index: LogIndex, term: Term, change: Option<LogEntry>) {
        self.terms.push(index, term);
        self.membership.extend(change);
    }

    /// The log begins later now: after an entry that it has, or its present base.
    pub(crate) fn forget(&mut self, base: Base) {
        self.terms.forget(&base);
        while let Some(entry) = self.tail.pop_front_if(|entry| entry.index <= base.index) {
            self.tail_bytes -= entry.payload.len();
        }
        self.membership.retain(|entry| entry.index > base.index);
        self.marked.retain(|entry| entry.index > base.index);
        self.base = base;
    }

    pub(crate) fn truncate(&mut self, from: LogIndex) {
        self.terms.truncate(from);
        while let Some(entry) = self.tail.pop_back_if(|entry| entry.index >= from) {
            self.tail_bytes -= entry.payload.len();
        }
        self.membership.retain(|entry| entry.index < from);
        self.marked.retain(|entry| entry.index < from);
    }
}
