//! Opening a log: reading all segments, cutting off a torn end, refusing damage.

use super::{
    Opened, Wal, WalError, WalOptions, create_segment,
    format::{self, Decoded, HEADER_BYTES, HeaderError, Record, SegmentHeader},
    index::{Index, SharedIndex},
};
use crate::{
    consensus::Recovered,
    disk::{Disk, File, read_range},
    identity,
};
use std::sync::{Arc, PoisonError, RwLock};

/// The torn end of an append that a crash interrupted, now cut off. Nothing in it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The segment's file.
    pub file: String,
    /// Where it was cut.
    pub offset: u64,
    /// How many bytes were dropped.
    pub dropped_bytes: u64,
}

/// What reading one segment's records found.
struct Scanned {
    /// After the last good record.
    end: u64,
    sealed: bool,
    /// The segment is torn from `end` on.
    torn_bytes: u64,
}

/// The segment that is written on, its number, and where.
type OpenEnd = (Arc<dyn File>, u64, u64);

struct Recovery {
    disk: Arc<dyn Disk>,
    options: WalOptions,
    index: SharedIndex,
    recovered: Recovered,
    next_seq: u64,
    repair: Option<Repair>,
}

pub(super) fn open(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Opened, WalError> {
    let dir = disk.location();
    let lock = disk
        .lock()
        .map_err(WalError::io(&dir, "lock"))?
        .ok_or_else(|| WalError::InUse { dir: dir.clone() })?;
    let names = disk.list().map_err(WalError::io(&dir, "list"))?;
    if names.iter().any(|name| name == identity::FILE) {
        return Err(WalError::OtherDurability { dir, made_for: "memory" });
    }
    let mut segments: Vec<u64> =
        names.iter().filter_map(|name| format::parse_segment_name(name)).collect();
    segments.sort_unstable();
    let mut recovery = Recovery {
        disk,
        options,
        index: Arc::new(RwLock::new(Index::default())),
        recovered: Recovered::default(),
        next_seq: 1,
        repair: None,
    };
    let (file, segment, offset) = recovery.read_segments(&segments)?;
    recovery.finish(lock, file, segment, offset)
}

impl Recovery {
    fn path(&self, segment: u64) -> String {
        format!("{}/{}", self.disk.location(), format::segment_name(segment))
    }

    fn read_segments(&mut self, segments: &[u64]) -> Result<OpenEnd, WalError> {
        let mut open_end = None;
        for (n, &segment) in segments.iter().enumerate() {
            let expected = n as u64 + 1;
            if segment != expected {
                return Err(WalError::damaged(self.path(expected), 0, "the file is missing"));
            }
            let is_last = n + 1 == segments.len();
            open_end = self.read_segment(segment, is_last)?;
        }
        match open_end {
            Some(open_end) => Ok(open_end),
            // Nothing yet, or a crash between the end of one segment and the next.
            None => self.create(segments.len() as u64 + 1),
        }
    }

    fn create(&mut self, segment: u64) -> Result<OpenEnd, WalError> {
        let file = create_segment(&*self.disk, self.options, segment, self.next_seq)?;
        self.add_file(segment, file.clone());
        Ok((file, segment, HEADER_BYTES as u64))
    }

    fn add_file(&self, segment: u64, file: Arc<dyn File>) {
        self.index.write().unwrap_or_else(PoisonError::into_inner).add_file(segment, file);
    }

    /// Returns where to go on if this segment is the open one.
    fn read_segment(&mut self, segment: u64, is_last: bool) -> Result<Option<OpenEnd>, WalError> {
        let path = self.path(segment);
        let file = self
            .disk
            .open(&format::segment_name(segment), false)
            .map_err(WalError::io(&path, "open"))?;
        let file: Arc<dyn File> = Arc::from(file);
        let len = file.len().map_err(WalError::io(&path, "read"))?;
        let len = usize::try_from(len).expect("segments fit into memory");
        let bytes = read_range(&*file, 0, len).map_err(WalError::io(&path, "read"))?;
        if !self.check_header(segment, &bytes, is_last)? {
            self.disk
                .remove(&format::segment_name(segment))
                .map_err(WalError::io(&path, "remove"))?;
            return self.create(segment).map(Some);
        }
        self.add_file(segment, file.clone());
        let scanned = self.scan(segment, &bytes, is_last)?;
        if scanned.torn_bytes > 0 {
            file.set_len(scanned.end).map_err(WalError::io(&path, "cut"))?;
            file.sync().map_err(WalError::io(&path, "sync"))?;
            self.repair =
                Some(Repair { file: path, offset: scanned.end, dropped_bytes: scanned.torn_bytes });
        }
        Ok((!scanned.sealed).then_some((file, segment, scanned.end)))
    }

    /// False if the segment was being created when the node crashed: it holds nothing.
    fn check_header(
        &mut self,
        segment: u64,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<bool, WalError> {
        let file = self.path(segment);
        let dir = self.disk.location();
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(HeaderError::Version(found)) => {
                return Err(WalError::Version { file, found, expected: format::VERSION });
            }
            Err(HeaderError::Damaged) => {
                // The header is durable before the first record is written.
                let empty = bytes.iter().skip(HEADER_BYTES).all(|byte| *byte == 0);
                if is_last && empty {
                    return Ok(false);
                }
                return Err(WalError::damaged(file, 0, "the header's checksum is wrong"));
            }
        };
        if header.cluster != self.options.cluster {
            let expected = self.options.cluster;
            return Err(WalError::OtherCluster { dir, found: header.cluster, expected });
        }
        if header.program != self.options.program {
            let expected = self.options.program;
            return Err(WalError::OtherProgram { dir, found: header.program, expected });
        }
        if segment == 1 {
            self.options.incarnation = header.incarnation;
        } else if header.incarnation != self.options.incarnation {
            return Err(WalError::damaged(file, 0, "it is of another life of this replica"));
        }
        if header.segment != segment || header.first_seq != self.next_seq {
            let why = format!(
                "it begins segment {} at record {}, expected segment {segment} at record {}",
                header.segment, header.first_seq, self.next_seq
            );
            return Err(WalError::damaged(file, 0, why));
        }
        Ok(true)
    }

    fn scan(&mut self, segment: u64, bytes: &[u8], is_last: bool) -> Result<Scanned, WalError> {
        let mut position = HEADER_BYTES;
        while position < bytes.len() {
            let offset = position as u64;
            let decoded = format::decode(&bytes[position..], segment, offset)
                .filter(|decoded| decoded.seq == self.next_seq);
            let Some(decoded) = decoded else {
                return self.judge_bad_record(segment, bytes, position, is_last);
            };
            position += decoded.len;
            self.next_seq += 1;
            if decoded.record == Record::Seal {
                return self.after_seal(segment, bytes, position);
            }
            self.replay(segment, offset, decoded)?;
        }
        if !is_last {
            return Err(WalError::damaged(
                self.path(segment),
                position as u64,
                "the end is missing",
            ));
        }
        Ok(Scanned { end: position as u64, sealed: false, torn_bytes: 0 })
    }

    fn after_seal(&self, segment: u64, bytes: &[u8], end: usize) -> Result<Scanned, WalError> {
        if bytes[end..].iter().any(|byte| *byte != 0) {
            let why = "bytes after the segment's last record";
            return Err(WalError::damaged(self.path(segment), end as u64, why));
        }
        Ok(Scanned { end: end as u64, sealed: true, torn_bytes: 0 })
    }

    /// The record at `bad` is not the expected one: the end of the log, a torn append, or damage?
    fn judge_bad_record(
        &self,
        segment: u64,
        bytes: &[u8],
        bad: usize,
        is_last: bool,
    ) -> Result<Scanned, WalError> {
        if !is_last {
            return Err(WalError::damaged(
                self.path(segment),
                bad as u64,
                "not the expected record",
            ));
        }
        let later = (bad.next_multiple_of(8)..bytes.len())
            .step_by(8)
            .filter_map(|position| format::decode(&bytes[position..], segment, position as u64));
        for later in later {
            if later.synced_seq >= self.next_seq {
                let why = format!(
                    "record {} is unreadable, but record {} says that it was durable",
                    self.next_seq, later.seq
                );
                return Err(WalError::damaged(self.path(segment), bad as u64, why));
            }
        }
        let dirty = bytes[bad..].iter().any(|byte| *byte != 0);
        let torn_bytes = if dirty { (bytes.len() - bad) as u64 } else { 0 };
        Ok(Scanned { end: bad as u64, sealed: false, torn_bytes })
    }

    fn replay(&mut self, segment: u64, offset: u64, decoded: Decoded) -> Result<(), WalError> {
        let damaged = |why: String| Err(WalError::damaged(self.path(segment), offset, why));
        let last = self.recovered.last_index();
        match decoded.record {
            Record::HardState(state) => {
                if state.term < self.recovered.hard_state.term {
                    return damaged(format!("term {} goes back", state.term));
                }
                self.recovered.hard_state = state;
            }
            Record::Truncate(from) => {
                if from.0 == 0 || from > last {
                    return damaged(format!(
                        "entry {from} is overwritten, but the last one is {last}"
                    ));
                }
                self.recovered.truncate(from);
                self.index.write().unwrap_or_else(PoisonError::into_inner).truncate(from);
            }
            Record::Entry(entry) => {
                if entry.index != last.next() || entry.term > self.recovered.hard_state.term {
                    return damaged(format!(
                        "entry {} of term {} follows entry {last} in term {}",
                        entry.index, entry.term, self.recovered.hard_state.term
                    ));
                }
                let end = offset + decoded.len as u64;
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                index.add_entry(entry.index, segment, offset, end);
                drop(index);
                self.recovered.push(entry, self.options.tail_bytes);
            }
            Record::Seal => unreachable!("handled by the caller"),
        }
        Ok(())
    }

    fn finish(
        mut self,
        lock: Box<dyn std::any::Any + Send + Sync>,
        file: Arc<dyn File>,
        segment: u64,
        offset: u64,
    ) -> Result<Opened, WalError> {
        let last_index = self.recovered.last_index();
        let state = &mut self.recovered.hard_state;
        // The commit index is only a hint, and may have become durable before its entries.
        state.commit = state.commit.min(last_index);
        // A crashed process leaves records that its kernel will write, but that are not durable yet: what is handed to
        // consensus must be.
        file.sync().map_err(WalError::io(&self.path(segment), "sync"))?;
        self.disk.sync_dir().map_err(WalError::io(&self.disk.location(), "sync"))?;
        let incarnation = self.options.incarnation;
        let wal = Wal {
            disk: self.disk,
            _lock: lock,
            options: self.options,
            index: self.index,
            file,
            segment,
            offset,
            zeroed: offset,
            next_seq: self.next_seq,
            synced_seq: self.next_seq - 1,
            last_index,
            failed: None,
            buffer: Vec::new(),
        };
        Ok(Opened { wal, recovered: self.recovered, incarnation, repair: self.repair })
    }
}
