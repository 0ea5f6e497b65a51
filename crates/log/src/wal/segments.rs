//! The segment files of a log: making the next one, giving the log another base with it, and removing those that it no longer needs.
//!
//! A log that begins behind entry 1 has a [`Start`] at the head of each new segment. A new base is therefore one more segment: its file, with the
//! new base in its `Start`, becomes durable, then the seal of the one before. The seal is the moment of the change: a crash before it leaves a
//! segment without a predecessor's seal, which is dropped, and the log as it was. Only then may files be removed, in any order: those
//! before the newest segment whose `Start` says that all earlier entries are before the base. A crash leaves some of them, which the next
//! [`Wal::open`] removes.

use super::{
    Wal, WalError, WalOptions,
    format::{self, HEADER_BYTES, Layout, Place, Record, SegmentHeader, Spot, Start},
};
use crate::{
    base::{Base, NewBase},
    disk::{Disk, File},
    recovered::TermRuns,
    types::HardState,
};
use skein_model::LogIndex;
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

/// The files before the open segment.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// The length of each sealed one.
    sealed: BTreeMap<u64, u64>,
    /// For each one that begins with a [`Start`], the open one too, the last entry before.
    starts: BTreeMap<u64, LogIndex>,
    /// Remains of an interrupted removal.
    remains: Vec<u64>,
}

impl Segments {
    pub(super) fn begins(&mut self, segment: u64, after: LogIndex) {
        self.starts.insert(segment, after);
    }

    pub(super) fn sealed(&mut self, segment: u64, bytes: u64) {
        self.sealed.insert(segment, bytes);
    }

    pub(super) fn remain(&mut self, remains: Vec<u64>) {
        self.remains = remains;
    }

    /// The bytes of all sealed segments.
    pub(super) fn bytes(&self) -> u64 {
        self.sealed.values().sum()
    }

    /// The first segment that a log with this base needs; `None` if that is its very first one.
    fn first_needed(&self, base: LogIndex) -> Option<u64> {
        self.starts.iter().rev().find(|(_, after)| **after <= base).map(|(segment, _)| *segment)
    }

    /// Whether [`take_obsolete`](Self::take_obsolete) would answer any.
    pub(super) fn has_obsolete(&self, base: LogIndex) -> bool {
        let oldest = self.sealed.first_key_value().map(|(segment, _)| *segment);
        let needed = self.first_needed(base);
        !self.remains.is_empty() || oldest.zip(needed).is_some_and(|(oldest, first)| oldest < first)
    }

    /// The segments that a log with this base does not need, oldest first; forgets them.
    pub(super) fn take_obsolete(&mut self, base: LogIndex) -> Vec<u64> {
        let mut obsolete = std::mem::take(&mut self.remains);
        if let Some(first) = self.first_needed(base) {
            let needed = self.sealed.split_off(&first);
            obsolete.extend(std::mem::replace(&mut self.sealed, needed).into_keys());
            self.starts = self.starts.split_off(&first);
        }
        obsolete
    }
}

impl Wal {
    /// Gives the log another base, and these promises, at once and durably.
    pub(super) fn rebase(&mut self, new: &NewBase, state: HardState) -> Result<(), WalError> {
        let (base, last) = match new {
            NewBase::Forget(base) => {
                let last = self.terms.last();
                assert!(base.index > self.base.index && base.index <= last, "not in the log");
                let term = self.terms.term(last).expect("the last entry has a term");
                (base, (last, term))
            }
            NewBase::Reset(base) => (base, (base.index, base.term)),
        };
        let start = Start { base: Base::clone(base), last, hard_state: state };
        self.begin_segment(Some(start))?;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        match new {
            NewBase::Forget(base) => {
                self.terms.forget(base);
                index.forget(base.index);
            }
            NewBase::Reset(base) => {
                self.terms = TermRuns::after(base);
                index.begin_after(base.index);
            }
        }
        (self.base, self.hard_state) = (Base::clone(base), state);
        Ok(())
    }

    /// Ends the segment, which is full, and begins the next one, durably.
    pub(super) fn roll(&mut self) -> Result<(), WalError> {
        let last = self.terms.last();
        let start = (!self.base.is_start()).then(|| Start {
            base: self.base.clone(),
            last: (last, self.terms.term(last).expect("the last entry, or the base, has a term")),
            hard_state: self.hard_state,
        });
        self.begin_segment(start)
    }

    /// Seals the segment behind the next one's file: a seal promises that it exists.
    fn begin_segment(&mut self, start: Option<Start>) -> Result<(), WalError> {
        let next = self.segment + 1;
        let place = (next, self.next_seq + 1, self.synced_seq);
        let made = self.when_there_is_room(|| {
            let made = make(&*self.disk, self.options, place, start.as_ref());
            if matches!(made, Err(WalError::DiskFull { .. })) {
                // An incomplete file would be in the way. Nothing refers to it.
                let _ = self.disk.remove(&format::segment_name(next));
            }
            made
        })?;
        self.push(&Record::Seal);
        self.flush()?;
        let path = self.path(self.segment);
        self.file.set_len(self.offset).map_err(WalError::io(&path, "cut"))?;
        self.file.sync().map_err(WalError::io(&path, "sync"))?;
        self.segments.sealed(self.segment, self.offset);
        if let Some(start) = start {
            self.segments.begins(next, start.last.0);
            self.next_seq += 1;
        }
        self.is_synced();
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.add_file(next, made.file.clone(), made.salt);
        drop(index);
        (self.file, self.segment, self.salt) = (made.file, next, made.salt);
        (self.head_bytes, self.offset, self.zeroed) = (made.bytes, made.bytes, made.bytes);
        Ok(())
    }

    /// Removes the files of segments that the log does not need any more.
    pub(super) fn remove_obsolete(&mut self) -> Result<(), WalError> {
        let obsolete = self.segments.take_obsolete(self.base.index);
        if obsolete.is_empty() {
            return Ok(());
        }
        for segment in obsolete {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.remove_file(segment);
            drop(index);
            let removed = self.disk.remove(&format::segment_name(segment));
            removed.map_err(WalError::io(&self.path(segment), "remove"))?;
        }
        self.disk.sync_dir().map_err(WalError::io(&self.disk.location(), "sync"))
    }
}

/// A new segment.
pub(super) struct Made {
    pub(super) file: Arc<dyn File>,
    pub(super) salt: u64,
    /// Its length.
    bytes: u64,
}

/// Creates the first segment of a log, durably.
pub(super) fn make_first(
    disk: &dyn Disk,
    options: WalOptions,
    base: Base,
) -> Result<Made, WalError> {
    let start = (!base.is_start()).then_some(Start {
        last: (base.index, base.term),
        hard_state: HardState { term: base.term, vote: 0, commit: base.index },
        base,
    });
    make(disk, options, (1, 1, 0), start.as_ref())
}

/// Creates a segment durably, with its header and its [`Start`], if it has one. `place` is its number, that of its first record, and the newest
/// durable record.
fn make(
    disk: &dyn Disk,
    options: WalOptions,
    place: (u64, u64, u64),
    start: Option<&Start>,
) -> Result<Made, WalError> {
    let (segment, first_seq, synced_seq) = place;
    let name = format::segment_name(segment);
    let path = format!("{}/{name}", disk.location());
    let file = disk.open(&name, true).map_err(WalError::io(&path, "create"))?;
    let salt = format::salt(disk.random().map_err(WalError::io(&path, "draw a salt for"))?);
    let header = SegmentHeader {
        cluster: options.cluster,
        program: options.program,
        segment,
        first_seq,
        incarnation: options.incarnation,
        salt,
        layout: Layout::with(start),
    };
    let mut bytes = header.encode().to_vec();
    if let Some(start) = start {
        let spot = Spot { segment, salt, offset: HEADER_BYTES as u64 };
        let place = Place { spot, seq: first_seq, synced_seq };
        format::encode(&mut bytes, place, &Record::Start(start.clone()));
        assert!(bytes.len() <= HEADER_BYTES + format::MAX_START_BYTES, "too many members");
    }
    file.write_at(&bytes, 0).map_err(WalError::io(&path, "write"))?;
    file.reserve(options.segment_bytes).map_err(WalError::io(&path, "reserve space"))?;
    file.sync().map_err(WalError::io(&path, "sync"))?;
    disk.sync_dir().map_err(WalError::io(&disk.location(), "sync"))?;
    Ok(Made { file: Arc::from(file), salt, bytes: bytes.len() as u64 })
}
