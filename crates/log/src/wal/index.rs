//! The positions of entries, for reading them back.
//!
//! A sparse index: one [`Run`] for each stretch of about [`RUN_BYTES`] of consecutive entries in one segment, so a long
//! log costs a few bytes of memory a thousand entries. The writer extends it, [`WalReader`]s in other threads search it.
//! A run lists entries that are in the file already, durable or not.

use super::{
    error::WalError,
    format::{self, Found, Spot},
};
use crate::{
    disk::{File, read_range},
    types::LogEntry,
};
use bytes::Bytes;
use skein_model::LogIndex;
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The least length of a run before the next one begins: one read finds any entry.
const RUN_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct Run {
    first: LogIndex,
    last: LogIndex,
    segment: u64,
    /// The first record.
    start: u64,
    /// After the last record.
    end: u64,
    /// No entry may be added: another index follows in the file.
    closed: bool,
}

/// The sparse index and the files.
#[derive(Default)]
pub(crate) struct Index {
    /// The last entry that is not in the log.
    base: LogIndex,
    runs: Vec<Run>,
    /// Each segment's file and salt.
    files: BTreeMap<u64, (Arc<dyn File>, u64)>,
}

impl Index {
    /// The log holds what will follow this entry, and nothing else.
    pub(crate) fn begin_after(&mut self, base: LogIndex) {
        self.runs.clear();
        self.base = base;
    }

    /// Forgets the entries up to this one.
    pub(crate) fn forget(&mut self, base: LogIndex) {
        self.base = base;
        // Entries before the base in a run that goes on are read with it, and not handed out.
        self.runs.drain(..self.runs.partition_point(|run| run.last <= base));
    }

    /// The segment's file is to be removed: nothing in it is needed any more.
    pub(crate) fn remove_file(&mut self, segment: u64) {
        assert!(self.runs.first().is_none_or(|run| run.segment > segment), "entries are in use");
        self.files.remove(&segment);
    }

    pub(crate) fn add_file(&mut self, segment: u64, file: Arc<dyn File>, salt: u64) {
        self.files.insert(segment, (file, salt));
    }

    pub(crate) fn add_entry(&mut self, index: LogIndex, segment: u64, start: u64, end: u64) {
        if let Some(run) = self.runs.last_mut() {
            assert_eq!(run.last.next(), index, "the write-ahead log skipped an index");
            if !run.closed && run.segment == segment && run.end - run.start < RUN_BYTES {
                run.last = index;
                run.end = end;
                return;
            }
        }
        assert!(!self.runs.is_empty() || index == self.base.next(), "not the log's first entry");
        self.runs.push(Run { first: index, last: index, segment, start, end, closed: false });
    }

    /// Forgets the entries from `from` on.
    pub(crate) fn truncate(&mut self, from: LogIndex) {
        self.runs.truncate(self.runs.partition_point(|run| run.first < from));
        if let Some(run) = self.runs.last_mut() {
            run.closed = true;
            if run.last >= from {
                run.last = LogIndex(from.0 - 1);
            }
        }
        // The rest of a run that the base is in may be forgotten already.
        self.runs.pop_if(|run| run.last <= self.base);
    }

    fn find(&self, index: LogIndex) -> Option<(Run, Arc<dyn File>, u64)> {
        let run = *self.runs.get(self.runs.partition_point(|run| run.last < index))?;
        (run.first <= index).then_some(())?;
        let (file, salt) = self.files.get(&run.segment)?;
        Some((run, file.clone(), *salt))
    }
}

pub(crate) type SharedIndex = Arc<RwLock<Index>>;

/// Reads entries back, from any thread, while the log grows.
#[derive(Clone)]
pub struct WalReader {
    index: SharedIndex,
    location: String,
}

impl WalReader {
    pub(crate) fn new(index: SharedIndex, location: String) -> Self {
        Self { index, location }
    }

    /// The entries `from..=to`, or as many of the first ones as fit into `max_bytes` of payload, but one at least.
    ///
    /// The log must have them. An entry that a new leader overwrites at the same moment may be read in its old form.
    pub fn read(
        &self,
        from: LogIndex,
        to: LogIndex,
        max_bytes: usize,
    ) -> Result<Vec<LogEntry>, WalError> {
        let mut entries: Vec<LogEntry> = Vec::new();
        let mut bytes = 0;
        let mut next = from;
        while next <= to {
            for entry in self.read_run(next)? {
                let len = entry.payload.len();
                if entry.index > to || (!entries.is_empty() && bytes + len > max_bytes) {
                    return Ok(entries);
                }
                bytes += len;
                next = entry.index.next();
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// The entries from `from` to the end of its run: at least one.
    fn read_run(&self, from: LogIndex) -> Result<Vec<LogEntry>, WalError> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        if from <= index.base {
            return Err(WalError::BelowBase { index: from.0, first: index.base.next().0 });
        }
        let found = index.find(from);
        drop(index);
        let (run, file, salt) = found.ok_or(WalError::Missing { index: from.0 })?;
        let name = || format!("{}/{}", self.location, format::segment_name(run.segment));
        let len = usize::try_from(run.end - run.start).expect("a run is shorter than a segment");
        let bytes = read_range(&*file, run.start, len).map_err(WalError::io(&name(), "read"))?;
        let mut entries = Vec::new();
        let mut position = 0;
        let mut expected = run.first;
        while expected <= run.last {
            let offset = run.start + position as u64;
            let rest = bytes.get(position..).unwrap_or_default();
            let spot = Spot { segment: run.segment, salt, offset };
            let decoded = format::decode(rest, spot).ok_or_else(|| {
                WalError::damaged(name(), offset, "the record's checksum is wrong")
            })?;
            position += decoded.len;
            if let Found::Entry { index, term, kind, payload } = decoded.found {
                if index != expected {
                    let why = format!("entry {index} where {expected} was written");
                    return Err(WalError::damaged(name(), offset, why));
                }
                expected = expected.next();
                if index >= from {
                    let payload = Bytes::copy_from_slice(payload);
                    entries.push(LogEntry { index, term, kind, payload });
                }
            }
        }
        Ok(entries)
    }
}
