//! Shared by the tests of the write-ahead log: entries, and a model of a log's content.

// Each test file uses its own part of this.
#![allow(dead_code)]

use bytes::Bytes;
use skein_log::{
    ClusterId, EntryKind, HardState, LogEntry, Persist, ProgramHash, Ticket,
    disk::{Disk, sim::SimDisk},
    wal::{Opened, Wal, WalError, WalOptions},
};
use skein_model::{LogIndex, Term};
use std::sync::Arc;

pub const CLUSTER: ClusterId = ClusterId(7);
pub const PROGRAM: ProgramHash = ProgramHash([9; 32]);

pub fn options() -> WalOptions {
    let all = WalOptions::new(CLUSTER, PROGRAM);
    WalOptions { segment_bytes: 1024, tail_bytes: 100, marks: is_marked, ..all }
}

/// Some payloads.
fn is_marked(payload: &[u8]) -> bool {
    payload.first().is_some_and(|first| first % 3 == 0)
}

/// Opens the log, or begins it on an empty disk.
pub fn open(disk: &SimDisk) -> Result<Opened, WalError> {
    if disk.list().unwrap().is_empty() { begin(disk) } else { reopen(disk) }
}

pub fn begin(disk: &SimDisk) -> Result<Opened, WalError> {
    Wal::create(Arc::new(disk.clone()), options())
}

pub fn reopen(disk: &SimDisk) -> Result<Opened, WalError> {
    Wal::open(Arc::new(disk.clone()), options())
}

/// The newest segment's file.
pub fn last_segment(disk: &SimDisk) -> String {
    let names = disk.list().unwrap();
    names.into_iter().filter(|name| name.ends_with(".wal")).max().expect("a log has a segment")
}

pub fn entry(index: u64, term: u64, len: usize) -> LogEntry {
    LogEntry {
        index: LogIndex(index),
        term: Term(term),
        kind: if index % 7 == 3 { EntryKind::Membership } else { EntryKind::Normal },
        payload: Bytes::from(vec![(index * 31 + term) as u8; len]),
    }
}

pub fn persist(hard_state: Option<(u64, u64)>, entries: Vec<LogEntry>) -> Persist {
    let hard_state = hard_state.map(|(term, commit)| HardState {
        term: Term(term),
        vote: term % 3,
        commit: LogIndex(commit),
    });
    Persist { ticket: Ticket::default(), hard_state, base: None, entries }
}

/// A log's content: compared before and after a crash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub hard_state: HardState,
    pub entries: Vec<LogEntry>,
}

impl State {
    pub fn of(opened: &Opened) -> Self {
        let last = opened.recovered.last_index();
        let reader = opened.wal.reader();
        let entries = match last.0 {
            0 => Vec::new(),
            _ => reader.read(LogIndex(1), last, usize::MAX).expect("a recovered log can be read"),
        };
        for entry in &entries {
            assert_eq!(opened.recovered.term(entry.index), Some(entry.term));
        }
        let marked = entries.iter().filter(|entry| is_marked(&entry.payload));
        assert!(marked.eq(&opened.recovered.marked), "all marked entries are handed back");
        Self { hard_state: opened.recovered.hard_state, entries }
    }

    pub fn push(&mut self, entry: LogEntry) {
        self.entries.push(entry);
    }
}

/// All states that a log goes through, record by record.
#[derive(Default)]
pub struct Model {
    pub states: Vec<State>,
}

impl Model {
    pub fn new() -> Self {
        Self { states: vec![State::default()] }
    }

    pub fn append(&mut self, persist: &Persist) {
        let mut state = self.states.last().expect("never empty").clone();
        if let Some(hard_state) = persist.hard_state {
            state.hard_state = hard_state;
            self.states.push(state.clone());
        }
        if let Some(first) = persist.entries.first()
            && first.index.0 <= state.entries.len() as u64
        {
            state.entries.truncate(first.index.0 as usize - 1);
            self.states.push(state.clone());
        }
        for entry in &persist.entries {
            state.push(entry.clone());
            self.states.push(state.clone());
        }
    }

    /// The state is one that the log had, and no older than `synced`.
    pub fn check(&self, found: &State, synced: usize, context: &str) {
        let vote = |state: HardState| (state.term, state.vote);
        let matches = |n: usize| {
            let state = &self.states[n];
            // The commit index is a hint: it is lowered to the last entry.
            let commit = state.hard_state.commit.min(LogIndex(state.entries.len() as u64));
            // A vote behind a torn entry is remembered: it may have been cast.
            let known = self.states[n..]
                .iter()
                .any(|later| vote(later.hard_state) == vote(found.hard_state));
            found.entries == state.entries && found.hard_state.commit == commit && known
        };
        assert!(
            (synced..self.states.len()).any(matches),
            "{context}: recovered {} entries and {:?}, but {} states from record {synced} on are others",
            found.entries.len(),
            found.hard_state,
            self.states.len() - synced,
        );
    }
}
