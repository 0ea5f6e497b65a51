//! The write-ahead log: puts a replica's promises on disk before it makes them.
//!
//! Owns the segment files of one data directory, and the directory itself by a lock. One thread writes ([`Wal::append`],
//! then [`Wal::sync`] for everything appended); [`WalReader`]s read from any thread.
//!
//! Invariants: records are numbered without a gap; a segment has its seal, durable, before the next one has a record, and the next
//! one's file is durable before the seal; after [`Wal::sync`] returned `Ok`, [`Wal::open`] recovers everything that was appended before,
//! whatever happens to the machine. After the first failure nothing is accepted any more: the kernel may have dropped the pages, so a
//! later sync that succeeds would prove nothing. For the same reason `open` rewrites records without a witness.
//!
//! A crash leaves a prefix of the appended records that contains all synced ones, followed by torn bytes, which `open`
//! cuts off. Durable bytes that changed are refused with the file and the offset: a replica that starts
//! from a part of its promises would break them. Later records and the [`witness`] name the durable records. In the moment before the witness
//! is written, the last group of entries may be damaged unnoticed; a vote may not: it is written twice.

mod error;
pub mod format;
mod index;
mod recover;
mod room;
mod segment;
mod segments;
mod tail;
pub mod thread;
mod witness;

pub use error::WalError;
pub use index::WalReader;
pub use recover::Repair;
pub(crate) use recover::{Lock, occupy};

use crate::{
    base::Base,
    disk::{Disk, File},
    recovered::{Recovered, TermRuns},
    types::{ClusterId, HardState, LogEntry, Persist, ProgramHash},
};
use format::{Place, Record, Spot};
use index::SharedIndex;
use room::Room;
use segments::Segments;
use skein_model::LogIndex;
use std::{
    any::Any,
    sync::{Arc, PoisonError},
};
use witness::{Synced, Witness};

/// The identity of a log, and the size of its files.
#[derive(Clone, Copy, Debug)]
pub struct WalOptions {
    /// The cluster: a directory of another one is refused.
    pub cluster: ClusterId,
    /// The program: a log of another one is refused.
    pub program: ProgramHash,
    /// The incarnation of a log that is created; an existing one has its own. 0 for a founding member's first
    /// log; a larger number than ever before after a loss (seconds since 1970 will do), so that the others
    /// take the replica in as a learner and do not count on its forgotten promises.
    pub incarnation: u64,
    /// The size of a segment at which the next one is begun.
    pub segment_bytes: u64,
    /// How many bytes of the newest entries `open` hands back in memory.
    pub tail_bytes: usize,
    /// The payloads of entries that `open` hands back wherever they are in the log.
    pub marks: fn(&[u8]) -> bool,
}

impl WalOptions {
    /// Segments of 32 MiB; 8 MiB of entries kept at start.
    #[must_use]
    pub fn new(cluster: ClusterId, program: ProgramHash) -> Self {
        let (segment_bytes, tail_bytes, marks) = (32 << 20, 8 << 20, |_: &[u8]| false);
        Self { cluster, program, incarnation: 0, segment_bytes, tail_bytes, marks }
    }
}

/// The file by which a directory of a replica with a memory-only log is known ([`crate::identity`]).
pub const IDENTITY_FILE: &str = "identity";

/// How far ahead of the last record [`Wal::prepare`] fills a file: 1 MiB.
const AHEAD_BYTES: u64 = 1 << 20;

/// The result of [`Wal::open`].
pub struct Opened {
    /// The log, ready to append.
    pub wal: Wal,
    /// The start state of consensus.
    pub recovered: Recovered,
    /// The log's incarnation: for [`crate::Config::incarnation`] and the hello.
    pub incarnation: u64,
    /// The torn end that was cut off, if there was one.
    pub repair: Option<Repair>,
}

/// The result of [`Wal::look`].
pub struct Stored {
    /// Reads its entries.
    pub reader: WalReader,
    /// The first entry that it can hold: 1 unless it has a base.
    pub first: LogIndex,
    /// The last whole entry; 0 for none.
    pub last: LogIndex,
    /// The last entry known to be committed. Later ones may be committed as well: a log learns of a commit with the next entry.
    pub commit: LogIndex,
    /// The torn end behind it, if there is one.
    pub torn: Option<Repair>,
}

/// The log of one replica.
pub struct Wal {
    disk: Arc<dyn Disk>,
    _lock: Box<dyn Any + Send + Sync>,
    options: WalOptions,
    index: SharedIndex,
    file: Arc<dyn File>,
    segment: u64,
    salt: u64,
    /// The length of the segment's header, and its start.
    head_bytes: u64,
    /// The position of the next record.
    offset: u64,
    /// The file is filled with zeros, or records, up to here.
    zeroed: u64,
    next_seq: u64,
    synced_seq: u64,
    /// Wakes the writer of the witness.
    synced: Arc<Synced>,
    /// Until a thread has it.
    witness: Option<Witness>,
    base: Base,
    segments: Segments,
    /// The terms of all entries.
    terms: TermRuns,
    hard_state: HardState,
    failed: Option<String>,
    /// Whether writes that find the disk full wait; without it they fail.
    room: Option<Arc<Room>>,
    /// Records on their way to the file.
    buffer: Vec<u8>,
}

impl Wal {
    /// Begins a log in a directory; another log there is removed. Only for a replica that has promised nothing to anybody
    /// as this incarnation.
    pub fn create(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Opened, WalError> {
        recover::create(disk, options, Base::default())
    }

    /// As [`create`](Self::create), for a log that holds no entries up to `base`: what they led to must be durable elsewhere.
    pub fn create_after(
        disk: Arc<dyn Disk>,
        options: WalOptions,
        base: Base,
    ) -> Result<Opened, WalError> {
        recover::create(disk, options, base)
    }

    /// Opens the log of a directory; repairs a torn end.
    pub fn open(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Opened, WalError> {
        recover::open(disk, options)
    }

    /// Reads the log of a directory that no node uses, and changes nothing in it.
    pub fn look(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Stored, WalError> {
        recover::look(disk, options)
    }

    /// Writes the hard state and the entries of one [`Persist`]. Durable only after the next [`Wal::sync`].
    pub fn append(&mut self, persist: &Persist) -> Result<(), WalError> {
        self.check()?;
        let result = self.append_records(persist);
        self.note(result)
    }

    /// Makes all appended records durable.
    pub fn sync(&mut self) -> Result<(), WalError> {
        self.check()?;
        if self.synced_seq + 1 == self.next_seq {
            return Ok(());
        }
        let result = self.file.sync().map_err(|error| self.failure("sync", error));
        self.note(result)?;
        self.is_synced();
        Ok(())
    }

    fn is_synced(&mut self) {
        self.synced_seq = self.next_seq - 1;
        self.synced.note(self.synced_seq);
    }

    /// Makes the witness name all durable records, if it does not: a [`thread::WalThread`] does it by itself.
    pub fn witness(&mut self) -> Result<(), WalError> {
        self.check()?;
        let synced_seq = self.synced_seq;
        let result = match &mut self.witness {
            Some(witness) if witness.seq() < synced_seq => witness.say(synced_seq),
            _ => Ok(()),
        };
        self.note(result)
    }

    /// Work that is due and that no append should wait for: removes segments from before the base, and
    /// fills some of the file ahead with zeros, durably, if there is little left, so that syncs of small appends need not write the file's
    /// metadata, nor those zeros, as well. Nothing depends on the zeros: the append that does not fit finds a full disk.
    pub fn prepare(&mut self) -> Result<(), WalError> {
        self.check()?;
        let removed = self.remove_obsolete();
        self.note(removed)?;
        if !self.is_to_be_filled() {
            return Ok(());
        }
        let from = self.zeroed.max(self.offset);
        let to = (self.offset + AHEAD_BYTES).min(self.options.segment_bytes);
        if from < to {
            self.zeroed = to;
            match self.file.zero(from, to).and_then(|()| self.file.sync()) {
                Err(error) if error.kind() != std::io::ErrorKind::StorageFull => {
                    let failed = Err(self.failure("write", error));
                    return self.note(failed);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether [`prepare`](Self::prepare) would have an effect.
    #[must_use]
    pub fn is_to_be_prepared(&self) -> bool {
        self.is_to_be_filled() || self.segments.has_obsolete(self.base.index)
    }

    fn is_to_be_filled(&self) -> bool {
        self.zeroed < self.offset + AHEAD_BYTES / 2 && self.zeroed < self.options.segment_bytes
    }

    /// A handle that reads entries back.
    #[must_use]
    pub fn reader(&self) -> WalReader {
        WalReader::new(self.index.clone(), self.disk.location())
    }

    /// The first entry that the log can hold.
    #[must_use]
    pub fn first_index(&self) -> LogIndex {
        self.base.first_index()
    }

    /// Where the log begins.
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// The newest entry.
    #[must_use]
    pub fn last_index(&self) -> LogIndex {
        self.terms.last()
    }

    /// The size of the log on disk, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.bytes() + self.offset
    }

    fn check(&self) -> Result<(), WalError> {
        match &self.failed {
            None => Ok(()),
            Some(cause) => Err(WalError::Stopped { cause: cause.clone() }),
        }
    }

    fn note<T>(&mut self, result: Result<T, WalError>) -> Result<T, WalError> {
        if let Err(error) = &result {
            self.failed = Some(error.to_string());
        }
        result
    }

    fn failure(&self, what: &'static str, error: std::io::Error) -> WalError {
        WalError::io(&self.path(self.segment), what)(error)
    }

    fn path(&self, segment: u64) -> String {
        format!("{}/{}", self.disk.location(), format::segment_name(segment))
    }

    fn append_records(&mut self, persist: &Persist) -> Result<(), WalError> {
        // First the hard state: entries of a term without that term would be a state that never existed.
        let state = persist.hard_state;
        match &persist.base {
            Some(new) => self.rebase(new, state.unwrap_or(self.hard_state))?,
            None => state.into_iter().for_each(|state| self.push_hard_state(state)),
        }
        if let Some(first) = persist.entries.first()
            && first.index <= self.terms.last()
        {
            assert!(first.index > self.base.index, "an entry from before the log's first one");
            self.push(&Record::Truncate(first.index));
            self.terms.truncate(first.index);
            self.index.write().unwrap_or_else(PoisonError::into_inner).truncate(first.index);
        }
        for entry in &persist.entries {
            self.push_entry(entry)?;
        }
        self.flush()
    }

    /// A term and a vote are written twice, to different sectors: they are often the last records of a log.
    fn push_hard_state(&mut self, state: HardState) {
        let before = self.hard_state;
        self.push(&Record::HardState(state));
        if (state.term, state.vote) != (before.term, before.vote) {
            self.push(&format::pad_to_sector(self.end()));
            self.push(&Record::HardState(state));
        }
        self.hard_state = state;
    }

    fn push_entry(&mut self, entry: &LogEntry) -> Result<(), WalError> {
        let end = self.end() + format::entry_record_bytes(entry) as u64;
        // One with nothing but its start takes an entry of any length.
        if end > self.options.segment_bytes && self.end() > self.head_bytes {
            self.roll()?;
        }
        let start = self.end();
        let place = self.place();
        format::encode_entry(&mut self.buffer, place, entry);
        self.next_seq += 1;
        self.terms.push(entry.index, entry.term);
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.add_entry(entry.index, self.segment, start, self.end());
        Ok(())
    }

    fn end(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }

    fn push(&mut self, record: &Record) {
        let place = self.place();
        format::encode(&mut self.buffer, place, record);
        self.next_seq += 1;
    }

    /// The place of the next record.
    fn place(&self) -> Place {
        Place {
            spot: Spot { segment: self.segment, salt: self.salt, offset: self.end() },
            seq: self.next_seq,
            synced_seq: self.synced_seq,
        }
    }

    fn flush(&mut self) -> Result<(), WalError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.when_there_is_room(|| {
            let written = self.file.write_at(&self.buffer, self.offset);
            written.map_err(|error| self.failure("write", error))
        })?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        // One huge batch must not keep its buffer's size for ever.
        self.buffer.shrink_to(1 << 20);
        Ok(())
    }

    /// Writes, and retries while the disk is full, if this log waits for room.
    fn when_there_is_room<T>(
        &self,
        write: impl Fn() -> Result<T, WalError>,
    ) -> Result<T, WalError> {
        loop {
            let result = write();
            let Some(room) = &self.room else { return result };
            if !matches!(result, Err(WalError::DiskFull { .. })) {
                room.found();
                return result;
            }
            if !room.wait() {
                return result;
            }
        }
    }
}
