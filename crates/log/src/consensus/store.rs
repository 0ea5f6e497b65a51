//! The log for the consensus library: newest entries in memory, older ones through an [`EntryReader`].

use super::history::History;
use crate::{
    base::{Base, Members},
    recovered::{Recovered, TermRuns},
    types::{EntryKind, LogEntry},
    wal::{WalError, WalReader},
};
use raft::{
    Error, GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{Entry, EntryType, HardState, Snapshot},
};
use skein_model::{LogIndex, Term};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem::take,
};

/// Reads entries back that consensus handed out to be made durable and does not keep in memory.
pub trait EntryReader {
    /// The entries `from..=to`, or the first of them that fit into `max_bytes` of payload, but one at least.
    fn read(
        &self,
        from: LogIndex,
        to: LogIndex,
        max_bytes: usize,
    ) -> Result<Vec<LogEntry>, WalError>;
}

impl EntryReader for WalReader {
    fn read(
        &self,
        from: LogIndex,
        to: LogIndex,
        max_bytes: usize,
    ) -> Result<Vec<LogEntry>, WalError> {
        WalReader::read(self, from, to, max_bytes)
    }
}

/// How often a follower may request the same entries while they are read.
const MAX_ASKED: usize = 16;

/// Old entries that a follower needs, to be read by a thread that may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldEntries {
    /// The first one.
    pub from: LogIndex,
    /// The last one.
    pub to: LogIndex,
    /// The approximate number of bytes, or one entry.
    pub max_bytes: usize,
}

/// Old entries on their way from the disk.
#[derive(Default)]
struct Aside {
    wanted: Vec<OldEntries>,
    /// The followers that wait for the entries from an index on.
    asked: Vec<(u64, GetEntriesContext)>,
    /// The entries that arrived last, and their first index.
    come: Option<(u64, Vec<Entry>)>,
}

pub(super) fn to_log_entry(entry: &Entry) -> LogEntry {
    LogEntry {
        index: LogIndex(entry.index),
        term: Term(entry.term),
        kind: match entry.get_entry_type() {
            EntryType::EntryNormal => EntryKind::Normal,
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Membership,
        },
        payload: entry.data.clone(),
    }
}

fn from_log_entry(entry: LogEntry) -> Entry {
    let mut out = Entry::default();
    out.set_entry_type(match entry.kind {
        EntryKind::Normal => EntryType::EntryNormal,
        EntryKind::Membership => EntryType::EntryConfChangeV2,
    });
    (out.index, out.term, out.data) = (entry.index.0, entry.term.0, entry.payload);
    out
}

/// The entries in `recent` are the last ones of the log; all older ones are durable and can be read.
pub(super) struct LogStore {
    initial: RaftState,
    terms: TermRuns,
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    reader: Option<Box<dyn EntryReader + Send>>,
    /// The reason why older entries could not be read, until it is taken.
    read_error: RefCell<Option<WalError>>,
    /// Requests for followers' old entries, if they are not read at once.
    aside: Option<RefCell<Aside>>,
    /// Members who need entries from before the first one.
    below_base: RefCell<BTreeSet<u64>>,
    /// The images that members hold, by their entries.
    images: BTreeMap<u64, LogIndex>,
    history: History,
}

impl LogStore {
    pub(super) fn new(
        recovered: Recovered,
        members: &Members,
        reader: Option<Box<dyn EntryReader + Send>>,
    ) -> Self {
        let mut hard_state = HardState::default();
        hard_state.term = recovered.hard_state.term.0;
        hard_state.vote = recovered.hard_state.vote;
        hard_state.commit = recovered.hard_state.commit.0;
        let recent_bytes = recovered.tail.iter().map(|entry| entry.payload.len()).sum();
        let history = History::since(recovered.base().index, members.clone());
        Self {
            initial: RaftState::new(hard_state, members.to_state()),
            terms: recovered.terms,
            recent: recovered.tail.into_iter().map(from_log_entry).collect(),
            recent_bytes,
            reader,
            read_error: RefCell::default(),
            aside: None,
            below_base: RefCell::default(),
            images: BTreeMap::new(),
            history,
        }
    }

    pub(super) fn first(&self) -> LogIndex {
        self.terms.first()
    }

    /// The base of a log that begins after the entry at `index`, which must be applied; `None` before the present base.
    pub(super) fn base_at(&self, index: LogIndex) -> Option<Base> {
        let term = self.terms.term(index)?;
        Some(Base { index, term, members: self.history.at(index).clone() })
    }

    /// The entry at `index` has changed the members.
    pub(super) fn members_changed(&mut self, index: LogIndex, members: Members) {
        self.history.push(index, members);
    }

    /// This log's first members turned out to be these.
    pub(super) fn founded_by(&mut self, members: Members) {
        self.history.founded_by(members);
    }

    /// The members when the entry at `index` was applied; `None` from before the base.
    pub(super) fn members_at(&self, index: LogIndex) -> Option<&Members> {
        (index.next() >= self.first()).then(|| self.history.at(index))
    }

    /// Forgets the entries up to a base that is in the log.
    pub(super) fn forget(&mut self, base: &Base) {
        self.terms.forget(base);
        self.history.forget(base.index);
        while let Some(entry) = self.recent.pop_front_if(|entry| entry.index <= base.index.0) {
            self.recent_bytes -= entry.data.len();
        }
    }

    /// Forgets all entries: the log continues behind this base.
    pub(super) fn reset(&mut self, base: &Base) {
        self.terms = TermRuns::after(base);
        self.history = History::since(base.index, base.members.clone());
        self.recent.clear();
        self.recent_bytes = 0;
    }

    /// A member holds an image at this entry, or none.
    pub(super) fn holds_image(&mut self, member: u64, image: Option<LogIndex>) {
        match image {
            Some(image) => self.images.insert(member, image),
            None => self.images.remove(&member),
        };
    }

    /// Whether there are members for [`take_below_base`](Self::take_below_base).
    pub(super) fn has_below_base(&self) -> bool {
        !self.below_base.borrow().is_empty()
    }

    /// Members who need what this log no longer has, since this was asked last.
    pub(super) fn take_below_base(&mut self) -> BTreeSet<u64> {
        take(self.below_base.get_mut())
    }

    /// From now on old entries for followers are only requested.
    pub(super) fn read_aside(&mut self) {
        self.aside = Some(RefCell::default());
    }

    pub(super) fn take_wanted(&mut self) -> Vec<OldEntries> {
        self.aside.as_mut().map_or_else(Vec::new, |aside| take(&mut aside.get_mut().wanted))
    }

    /// Entries from an index on have been read; answers the followers that requested them. [`forget_old`](Self::forget_old) ends it.
    pub(super) fn give_old(
        &mut self,
        from: LogIndex,
        entries: Result<Vec<LogEntry>, WalError>,
    ) -> Vec<GetEntriesContext> {
        let Some(aside) = &mut self.aside else { return Vec::new() };
        let aside = aside.get_mut();
        let asked = aside.asked.extract_if(.., |(low, _)| *low == from.0);
        let asked = asked.map(|(_, context)| context).collect();
        match entries {
            Ok(entries) => {
                aside.come = Some((from.0, entries.into_iter().map(from_log_entry).collect()));
                asked
            }
            // Forgotten meanwhile: the library finds that out when it asks again.
            Err(WalError::BelowBase { .. }) => asked,
            Err(error) => {
                self.read_error.replace(Some(error));
                Vec::new()
            }
        }
    }

    pub(super) fn forget_old(&mut self) {
        if let Some(aside) = &mut self.aside {
            aside.get_mut().come = None;
        }
    }

    /// Old entries from `low` on: the ones that have arrived, or none yet.
    fn old(
        &self,
        aside: &RefCell<Aside>,
        (low, high): (u64, u64),
        max_bytes: u64,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let mut aside = aside.borrow_mut();
        if let Some((_, entries)) = aside.come.as_ref().filter(|(from, _)| *from == low) {
            return Ok(entries.clone());
        }
        let asked = aside.asked.iter().filter(|(from, _)| *from == low).count();
        if asked == 0 {
            aside.wanted.push(OldEntries {
                from: LogIndex(low),
                to: LogIndex(high.min(self.first_recent()) - 1),
                max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
            });
        }
        if asked < MAX_ASKED {
            aside.asked.push((low, context));
        }
        Err(Error::Store(StorageError::LogTemporarilyUnavailable))
    }

    /// Adds entries at the end, or in place of all from the first one's index on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        if LogIndex(first.index) <= self.terms.last() {
            self.terms.truncate(LogIndex(first.index));
            while let Some(entry) = self.recent.pop_back_if(|entry| entry.index >= first.index) {
                self.recent_bytes -= entry.data.len();
            }
        }
        for entry in entries {
            self.terms.push(LogIndex(entry.index), Term(entry.term));
            self.recent_bytes += entry.data.len();
            self.recent.push_back(entry.clone());
        }
    }

    /// Drops the oldest entries in memory, up to `up_to`, until about `max_bytes` are left.
    pub(super) fn trim(&mut self, up_to: u64, max_bytes: usize) {
        if self.reader.is_none() {
            return;
        }
        while self.recent_bytes > max_bytes
            && let Some(entry) = self.recent.pop_front_if(|entry| entry.index <= up_to)
        {
            self.recent_bytes -= entry.data.len();
        }
    }

    pub(super) fn recent_bytes(&self) -> usize {
        self.recent_bytes
    }

    pub(super) fn take_read_error(&self) -> Option<WalError> {
        self.read_error.take()
    }

    fn first_recent(&self) -> u64 {
        self.recent.front().map_or(self.terms.last().0 + 1, |entry| entry.index)
    }

    /// The entries `low..high`, or the first of them that fit into `max_bytes`, but one at least.
    pub(super) fn read(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<Entry>, WalError> {
        assert!(low <= high && high <= self.terms.last().0 + 1, "read behind the log's end");
        let first = self.terms.first().0;
        if low < first {
            return Err(WalError::BelowBase { index: low, first });
        }
        let first_recent = self.first_recent();
        if low < first_recent && low < high {
            let reader = self.reader.as_ref().ok_or(WalError::Missing { index: low })?;
            let to = LogIndex(high.min(first_recent) - 1);
            let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
            let entries = reader.read(LogIndex(low), to, max_bytes)?;
            return Ok(entries.into_iter().map(from_log_entry).collect());
        }
        let from = usize::try_from(low - first_recent).expect("in memory");
        let count = usize::try_from(high - low).expect("in memory");
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            let first = bytes == 0;
            bytes += entry.data.len() as u64 + 16;
            first || bytes <= max_bytes
        };
        Ok(self.recent.iter().skip(from).take(count).take_while(fits).cloned().collect())
    }
}

impl Storage for LogStore {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.terms.first().0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        if let Some(aside) = &self.aside
            && context.can_async()
            && low < high.min(self.first_recent())
        {
            return self.old(aside, (low, high), max_bytes, context);
        }
        self.read(low, high, max_bytes).map_err(|error| {
            // The library leaves the follower alone for now; the caller learns from `take_read_error`.
            self.read_error.replace(Some(error));
            Error::Store(StorageError::LogTemporarilyUnavailable)
        })
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.terms.first().0 {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        };
        let term = self.terms.term(LogIndex(index));
        term.map(|term| term.0).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.terms.first().0)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.terms.last().0)
    }

    /// Asked for a member who needs entries from before the first one.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let base = self.images.get(&to).and_then(|image| self.base_at(*image));
        let Some(base) = base else {
            // The member is told, and says when it holds an image.
            self.below_base.borrow_mut().insert(to);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        let mut snapshot = Snapshot::default();
        let meta = snapshot.mut_metadata();
        (meta.index, meta.term) = (base.index.0, base.term.0);
        // It may have become a learner behind that entry. Being one before does no harm: learners do not count, and becoming one again has no effect.
        meta.set_conf_state(base.members.clone().with(to).to_state());
        snapshot.data = base.members.places.to_bytes().into();
        Ok(snapshot)
    }
}
