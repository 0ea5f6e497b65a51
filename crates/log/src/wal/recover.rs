//! Opening a log: reads all segments, cuts off a torn end, refuses damage, and rewrites records that may be in the page cache only.

use super::{
    Opened, Stored, Wal, WalError, WalOptions, WalReader,
    format::{
        self, Decoded, Found, HEADER_BYTES, HeaderError, Layout, Record, SegmentHeader, Spot, Start,
    },
    index::{Index, SharedIndex},
    segment::Segment,
    segments::{self, Made, Segments},
    tail::{self, Tail},
    witness::{self, Owner, Witness},
};
use crate::{
    base::Base,
    disk::{Disk, File, read_range},
    recovered::Recovered,
    types::{EntryKind, HardState, LogEntry, Persist, Ticket},
};
use bytes::Bytes;
use skein_model::{LogIndex, Term};
use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, PoisonError, RwLock},
};

/// The torn end of an append that a crash interrupted: [`Wal::open`] has cut it off, [`Wal::look`] leaves it. Nothing in it was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The segment's file.
    pub file: String,
    /// The offset of the cut.
    pub offset: u64,
    /// The number of dropped bytes.
    pub dropped_bytes: u64,
}

/// Keeps a directory for this process until it is dropped.
pub(crate) type Lock = Box<dyn Any + Send + Sync>;

/// Where a segment's records end.
struct End {
    offset: u64,
    sealed: bool,
    tail: Tail,
}

/// The result of reading all segments.
struct Read {
    witness: Witness,
    /// The last ones, the open one at the end.
    segments: Vec<Segment>,
    salt: u64,
    end: End,
    /// A segment without records behind the open one.
    fresh: Option<Segment>,
}

struct Recovery {
    disk: Arc<dyn Disk>,
    options: WalOptions,
    index: SharedIndex,
    recovered: Recovered,
    segments: Segments,
    /// Entries that are missing, unless a later base makes them unnecessary: the first segment begins after them.
    missing: Option<LogIndex>,
    /// The first record of the first segment.
    first_seq: u64,
    next_seq: u64,
    /// The last record that the witness or a later record vouches for.
    witnessed: u64,
    vouched: u64,
    /// Records without a witness: number, segment, offset.
    unproven: VecDeque<(u64, u64, u64)>,
    repair: Option<Repair>,
}

/// Takes a directory for any kind of log: its lock, and the names of its files.
pub(crate) fn occupy(disk: &dyn Disk) -> Result<(Lock, Vec<String>), WalError> {
    let dir = disk.location();
    let lock = disk
        .lock()
        .map_err(WalError::io(&dir, "lock"))?
        .ok_or_else(|| WalError::InUse { dir: dir.clone() })?;
    let names = disk.list().map_err(WalError::io(&dir, "list"))?;
    Ok((lock, names))
}

fn take(disk: &dyn Disk) -> Result<(Lock, Vec<String>), WalError> {
    let (lock, names) = occupy(disk)?;
    if names.iter().any(|name| name == super::IDENTITY_FILE) {
        return Err(WalError::OtherDurability { dir: disk.location(), made_for: "memory" });
    }
    Ok((lock, names))
}

/// Begins a log; remains of another one are removed.
pub(super) fn create(
    disk: Arc<dyn Disk>,
    options: WalOptions,
    base: Base,
) -> Result<Opened, WalError> {
    let (lock, names) = take(&*disk)?;
    let old = |name: &&String| {
        format::parse_segment_name(name).is_some() || name.as_str() == witness::FILE
    };
    for name in names.iter().filter(old) {
        let path = format!("{}/{name}", disk.location());
        disk.remove(name).map_err(WalError::io(&path, "remove"))?;
    }
    let mut recovery = Recovery::new(disk, options);
    let witness = Witness::create(&*recovery.disk, recovery.owner())?;
    let first = segments::make_first(&*recovery.disk, options, base);
    // Nothing has begun: the operator is told the space that is needed.
    let Made { file, salt, .. } = first.map_err(|error| match error {
        WalError::DiskFull { file } => WalError::NoRoom { file, mib: options.segment_bytes >> 20 },
        other => other,
    })?;
    let bytes = file_bytes(&recovery.path(1), &*file, Vec::new())?;
    recovery.add_file(1, file.clone(), salt);
    let segment = Segment { number: 1, file, bytes };
    let end = recovery.scan(&segment, salt, true, true)?;
    recovery.finish(lock, witness, vec![segment], salt, end)
}

/// Opens an existing log.
pub(super) fn open(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Opened, WalError> {
    let (lock, names) = take(&*disk)?;
    let mut recovery = Recovery::new(disk, options);
    let Read { witness, segments, salt, mut end, fresh } = recovery.read(&names)?;
    if let Some(fresh) = fresh {
        let path = recovery.path(fresh.number);
        let name = format::segment_name(fresh.number);
        recovery.disk.remove(&name).map_err(WalError::io(&path, "remove"))?;
        // A vote in it counts as one in a torn record.
        let vote = fresh.start().map(|(start, _)| start.hard_state);
        let known = end.tail.vote.unwrap_or_default();
        end.tail.vote = vote.filter(|vote| tail::says_more(*vote, known)).or(end.tail.vote);
    }
    recovery.finish(lock, witness, segments, salt, end)
}

/// Reads an existing log and writes nothing: a torn end stays where it is. `disk` may be read-only.
pub(super) fn look(disk: Arc<dyn Disk>, options: WalOptions) -> Result<Stored, WalError> {
    let (lock, names) = take(&*disk)?;
    drop(lock);
    let mut recovery = Recovery::new(disk, options);
    let read = recovery.read(&names);
    // A node that has begun meanwhile may have changed the files.
    drop(take(&*recovery.disk)?);
    let Read { segments, end, .. } = read?;
    let open = segments.last().expect("a log has a segment");
    let torn = recovery.torn(open, &end);
    let Recovery { recovered, index, disk, .. } = recovery;
    let commit = recovered.hard_state.commit.min(recovered.last_index());
    let reader = WalReader::new(index, disk.location());
    Ok(Stored {
        reader,
        first: recovered.base().first_index(),
        last: recovered.last_index(),
        commit,
        torn,
    })
}

/// All bytes of a file, in this memory.
fn file_bytes(path: &str, file: &dyn File, into: Vec<u8>) -> Result<Vec<u8>, WalError> {
    let len = file.len().map_err(WalError::io(path, "read"))?;
    let len = usize::try_from(len).expect("segments fit into memory");
    tail::read(|buf, at| file.read_at(buf, at), len, into).map_err(|(offset, error)| {
        WalError::damaged(path.to_owned(), offset, format!("it cannot be read ({error})"))
    })
}

impl Recovery {
    fn new(disk: Arc<dyn Disk>, options: WalOptions) -> Self {
        Self {
            disk,
            options,
            index: Arc::new(RwLock::new(Index::default())),
            recovered: Recovered::default(),
            segments: Segments::default(),
            missing: None,
            first_seq: 1,
            next_seq: 1,
            witnessed: 0,
            vouched: 0,
            unproven: VecDeque::new(),
            repair: None,
        }
    }

    fn owner(&self) -> Owner {
        Owner { cluster: self.options.cluster, incarnation: self.options.incarnation }
    }

    fn path(&self, segment: u64) -> String {
        format!("{}/{}", self.disk.location(), format::segment_name(segment))
    }

    fn add_file(&self, segment: u64, file: Arc<dyn File>, salt: u64) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.add_file(segment, file, salt);
    }

    fn load(&self, number: u64, into: Vec<u8>) -> Result<Segment, WalError> {
        let path = self.path(number);
        let name = format::segment_name(number);
        let file = self.disk.open(&name, false).map_err(WalError::io(&path, "open"))?;
        let bytes = file_bytes(&path, &*file, into)?;
        Ok(Segment { number, file: Arc::from(file), bytes })
    }

    /// Reads all segments.
    fn read(&mut self, names: &[String]) -> Result<Read, WalError> {
        let mut numbers: Vec<u64> =
            names.iter().filter_map(|name| format::parse_segment_name(name)).collect();
        numbers.sort_unstable();
        let Some(&newest) = numbers.last() else {
            return Err(WalError::NoLog { dir: self.disk.location() });
        };
        let begin = self.beginning(&numbers)?;
        let remains = numbers.iter().copied().take_while(|number| *number < begin).collect();
        self.segments.remain(remains);
        let last = self.load(newest, Vec::new())?;
        let mut first = (newest != begin).then(|| self.load(begin, Vec::new())).transpose()?;
        let header = self.header(first.as_ref().unwrap_or(&last))?;
        self.options.incarnation = header.incarnation;
        self.first_seq = if begin == 1 { 1 } else { header.first_seq };
        self.next_seq = self.first_seq;
        self.check_header(first.as_ref().unwrap_or(&last), begin)?;
        let witness = self.open_witness(names.iter().any(|name| name == witness::FILE))?;
        self.witnessed = witness.seq();
        let mut before: Option<Segment> = None;
        // Memory that was used is quicker than new memory.
        let mut spare = Vec::new();
        for number in begin..newest {
            let segment = match first.take() {
                Some(first) => first,
                None => self.load(number, std::mem::take(&mut spare))?,
            };
            let salt = self.check_header(&segment, begin)?;
            self.add_file(number, segment.file.clone(), salt);
            // The newest segment may have been made, and this one not sealed any more.
            let may_end = number + 1 == newest && last.is_fresh();
            let end = self.scan(&segment, salt, may_end, number + 1 == newest)?;
            if !end.sealed {
                self.check_base(&header, begin)?;
                let segments = vec![segment];
                return Ok(Read { witness, segments, salt, end, fresh: Some(last) });
            }
            self.segments.sealed(number, end.offset);
            spare = before.replace(segment).map(|before| before.bytes).unwrap_or_default();
        }
        let salt = self.check_header(&last, begin)?;
        self.add_file(newest, last.file.clone(), salt);
        let end = self.scan(&last, salt, true, true)?;
        if end.sealed {
            return Err(WalError::damaged(self.path(newest + 1), 0, "the file is missing"));
        }
        self.check_base(&header, begin)?;
        let segments = before.into_iter().chain([last]).collect();
        Ok(Read { witness, segments, salt, end, fresh: None })
    }

    /// The segment that the log begins with. Earlier ones, if there are any, remained when it was shortened.
    fn beginning(&self, numbers: &[u64]) -> Result<u64, WalError> {
        let follows = |pair: &[u64]| pair[0] + 1 == pair[1];
        let gap = numbers.windows(2).rposition(|pair| !follows(pair));
        let whole = &numbers[gap.map_or(0, |gap| gap + 1)..];
        if whole[0] == 1 {
            return Ok(1);
        }
        for number in whole {
            let path = self.path(*number);
            let file = self.disk.open(&format::segment_name(*number), false);
            let file = file.map_err(WalError::io(&path, "open"))?;
            let head = read_range(&*file, 0, HEADER_BYTES).map_err(WalError::io(&path, "read"))?;
            let layout = SegmentHeader::decode(&head).map(|header| header.layout);
            if layout.is_ok_and(Layout::has_start) {
                return Ok(*number);
            }
        }
        Err(WalError::damaged(self.path(whole[0] - 1), 0, "the file is missing"))
    }

    /// The torn end of the open segment, if it has one.
    fn torn(&self, open: &Segment, end: &End) -> Option<Repair> {
        let (file, dropped_bytes) = (self.path(open.number), end.tail.torn_bytes);
        (dropped_bytes > 0).then_some(Repair { file, offset: end.offset, dropped_bytes })
    }

    fn open_witness(&self, there: bool) -> Result<Witness, WalError> {
        let damaged = |why| WalError::damaged(witness::path(&*self.disk), 0, why);
        if !there {
            return Err(damaged("the file is missing"));
        }
        let witness = Witness::open(&*self.disk, self.owner())?;
        witness.ok_or_else(|| damaged("no slot of it is whole"))
    }

    fn header(&self, segment: &Segment) -> Result<SegmentHeader, WalError> {
        let file = self.path(segment.number);
        SegmentHeader::decode(&segment.bytes).map_err(|error| match error {
            HeaderError::Version(found) => {
                WalError::Version { file, found, expected: format::VERSION_WITH_LEVEL }
            }
            HeaderError::Damaged => WalError::damaged(file, 0, "the header's checksum is wrong"),
        })
    }

    /// Answers the segment's salt.
    fn check_header(&self, segment: &Segment, begin: u64) -> Result<u64, WalError> {
        let file = self.path(segment.number);
        let dir = self.disk.location();
        let header = self.header(segment)?;
        if header.cluster != self.options.cluster {
            let expected = self.options.cluster;
            return Err(WalError::OtherCluster { dir, found: header.cluster, expected });
        }
        if header.program != self.options.program {
            let expected = self.options.program;
            return Err(WalError::OtherProgram { dir, found: header.program, expected });
        }
        if header.incarnation != self.options.incarnation {
            return Err(WalError::damaged(file, 0, "it is of another life of this replica"));
        }
        if header.segment != segment.number || header.first_seq != self.next_seq {
            let why = format!(
                "it begins segment {} at record {}, expected segment {} at record {}",
                header.segment, header.first_seq, segment.number, self.next_seq
            );
            return Err(WalError::damaged(file, 0, why));
        }
        let fits = match header.layout {
            Layout::Started | Layout::Levelled => true,
            Layout::Based => !self.recovered.base().is_start(),
            Layout::Whole => self.recovered.base().is_start(),
        };
        if segment.number > begin && !fits {
            let why = "it is of a log with another beginning";
            return Err(WalError::damaged(file, 0, why));
        }
        Ok(header.salt)
    }

    /// A log whose first segment says that it has a base must have it: else it is not known what it begins with.
    fn check_base(&self, first: &SegmentHeader, begin: u64) -> Result<(), WalError> {
        if first.layout != Layout::Whole && self.recovered.base().is_start() {
            return Err(self.no_start(begin));
        }
        match self.missing {
            Some(_) => Err(WalError::damaged(self.path(begin - 1), 0, "the file is missing")),
            None => Ok(()),
        }
    }

    fn no_start(&self, segment: u64) -> WalError {
        let why = "the record that says where the log begins is unreadable";
        WalError::damaged(self.path(segment), HEADER_BYTES as u64, why)
    }

    /// Replays a segment's records. The log may end in it only if `may_end`; `is_kept`: the newest of its entries stay in memory.
    fn scan(
        &mut self,
        segment: &Segment,
        salt: u64,
        may_end: bool,
        is_kept: bool,
    ) -> Result<End, WalError> {
        let Segment { number, ref bytes, .. } = *segment;
        let spot = |position: usize| Spot { segment: number, salt, offset: position as u64 };
        let mut position = HEADER_BYTES;
        // A start was durable before the seal of the segment before it.
        if self.header(segment)?.layout.has_start() && segment.start().is_none() {
            return Err(self.no_start(number));
        }
        loop {
            let rest = bytes.get(position..).unwrap_or_default();
            let decoded =
                format::decode(rest, spot(position)).filter(|decoded| decoded.seq == self.next_seq);
            let Some(decoded) = decoded else {
                let tail = tail::look(bytes, position.min(bytes.len()), spot(0), self.next_seq);
                self.judge(number, position, &tail, may_end)?;
                return Ok(End { offset: position as u64, sealed: false, tail });
            };
            self.vouched = self.vouched.max(decoded.synced_seq);
            self.unproven.push_back((decoded.seq, number, position as u64));
            while self.unproven.pop_front_if(|(seq, ..)| *seq <= self.vouched).is_some() {}
            let offset = position as u64;
            position += decoded.len;
            self.next_seq += 1;
            if decoded.found == Found::Other(Record::Seal) {
                if bytes[position..].iter().any(|byte| *byte != 0) {
                    let why = "bytes after the segment's last record";
                    return Err(WalError::damaged(self.path(number), position as u64, why));
                }
                let (offset, tail) = (position as u64, Tail::default());
                return Ok(End { offset, sealed: true, tail });
            }
            self.replay(number, offset, decoded, is_kept)?;
        }
    }

    /// The record at `bad` is not the expected one: the end of the log, a torn append, or damage?
    fn judge(&self, segment: u64, bad: usize, tail: &Tail, may_end: bool) -> Result<(), WalError> {
        let missing = self.next_seq;
        let why = match tail.vouched {
            _ if !may_end => "not the expected record".to_owned(),
            Some((later, synced)) if synced >= missing => {
                format!(
                    "record {missing} is unreadable, but record {later} says that it was durable"
                )
            }
            _ if self.witnessed >= missing => {
                let witnessed = self.witnessed;
                format!(
                    "record {missing} is unreadable, but the witness says that record {witnessed} was durable"
                )
            }
            _ => return Ok(()),
        };
        Err(WalError::damaged(self.path(segment), bad as u64, why))
    }

    fn replay(
        &mut self,
        segment: u64,
        offset: u64,
        decoded: Decoded<'_>,
        is_kept: bool,
    ) -> Result<(), WalError> {
        let damaged = |why: String| Err(WalError::damaged(self.path(segment), offset, why));
        let last = self.recovered.last_index();
        let record = match decoded.found {
            Found::Other(record) => record,
            Found::Entry { index, term, kind, payload } => {
                if index != last.next() || term > self.recovered.hard_state.term {
                    return damaged(format!(
                        "entry {index} of term {term} follows entry {last} in term {}",
                        self.recovered.hard_state.term
                    ));
                }
                let end = offset + decoded.len as u64;
                let mut entries = self.index.write().unwrap_or_else(PoisonError::into_inner);
                entries.add_entry(index, segment, offset, end);
                drop(entries);
                let entry = || {
                    let payload = Bytes::copy_from_slice(payload);
                    LogEntry { index, term, kind, payload }
                };
                if (self.options.marks)(payload) {
                    self.recovered.marked.push(entry());
                }
                if is_kept {
                    self.recovered.push(entry(), self.options.tail_bytes);
                } else {
                    let change = (kind == EntryKind::Membership).then(entry);
                    self.recovered.pass(index, term, change);
                }
                return Ok(());
            }
        };
        match record {
            Record::HardState(state) => {
                if state.term < self.recovered.hard_state.term {
                    return damaged(format!("term {} goes back", state.term));
                }
                self.recovered.hard_state = state;
            }
            Record::Truncate(from)
                if self.missing.is_some_and(|last| from <= last && from.0 > 0) =>
            {
                self.begin_behind_missing(LogIndex(from.0 - 1), Term(0));
            }
            Record::Truncate(from) => {
                if from <= self.recovered.base().index || from > last {
                    return damaged(format!(
                        "entry {from} is overwritten, but the last one is {last}"
                    ));
                }
                self.recovered.truncate(from);
                self.index.write().unwrap_or_else(PoisonError::into_inner).truncate(from);
            }
            Record::Start(start) => self.start(segment, offset, start)?,
            Record::Base(base) => {
                // Nothing that was written before could be true of it.
                if decoded.seq != 1 || base.is_start() {
                    return damaged("a base that is not at the log's beginning".to_owned());
                }
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                index.begin_after(base.index);
                drop(index);
                self.recovered = Recovered::after(base);
            }
            Record::Pad(_) => {}
            Record::Seal | Record::Entry(_) => unreachable!("handled before"),
        }
        Ok(())
    }

    /// A segment begins: perhaps the log has another base from here on.
    fn start(&mut self, segment: u64, offset: u64, start: Start) -> Result<(), WalError> {
        let damaged = |why: String| Err(WalError::damaged(self.path(segment), offset, why));
        let is_all = start.is_all();
        // The term of an entry that is gone may be unknown.
        let known = |index| self.recovered.term(index);
        let fits = |index, term| known(index).is_some_and(|known| known == term || known.0 == 0);
        let Start { base, last: (last, term), hard_state } = start;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        if offset != HEADER_BYTES as u64 || hard_state.term < self.recovered.hard_state.term {
            return damaged(format!("a start of term {} does not belong there", hard_state.term));
        }
        let is_first = self.next_seq == self.first_seq + 1;
        if is_all {
            index.begin_after(base.index);
            self.recovered = Recovered::after(base);
            self.missing = None;
        } else if is_first {
            drop(index);
            self.begin_behind_missing(last, term);
            self.recovered.hard_state = hard_state;
            self.segments.begins(segment, last);
            return Ok(());
        } else if self.recovered.last_index() != last || !fits(last, term) {
            return damaged(format!(
                "it continues entry {last} of term {term}, but the last one is {}",
                self.recovered.last_index()
            ));
        } else if base.index >= self.recovered.base().index {
            if !fits(base.index, base.term) {
                return damaged(format!("a base at entry {}, which is another one", base.index));
            }
            index.forget(base.index);
            self.recovered.forget(base);
            self.missing = None;
        } else if self.missing.is_none() {
            return damaged(format!("the base goes back to entry {}", base.index));
        }
        drop(index);
        self.recovered.hard_state = hard_state;
        self.segments.begins(segment, last);
        Ok(())
    }

    /// Entries up to `last`, of this term or an unknown one, 0, are gone. A later start must have a base that is not before them.
    fn begin_behind_missing(&mut self, last: LogIndex, term: Term) {
        self.index.write().unwrap_or_else(PoisonError::into_inner).begin_after(last);
        self.missing = Some(last);
        let hard_state = self.recovered.hard_state;
        let base = Base { index: last, term, ..Base::default() };
        self.recovered = Recovered::after(base);
        self.recovered.hard_state = hard_state;
    }

    /// Makes the read records durable, and continues behind them. `segments` are the last ones, the open one at the end.
    fn finish(
        mut self,
        lock: Lock,
        witness: Witness,
        segments: Vec<Segment>,
        salt: u64,
        end: End,
    ) -> Result<Opened, WalError> {
        self.settle(&segments, &end)?;
        let open = segments.into_iter().next_back().expect("a log has a segment");
        let head_bytes = open.start().map_or(HEADER_BYTES, |(_, end)| end) as u64;
        let last_index = self.recovered.last_index();
        let base = self.recovered.base().clone();
        let state = &mut self.recovered.hard_state;
        // The commit index is only a hint, and may have become durable before its entries.
        state.commit = state.commit.min(last_index).max(base.index);
        let incarnation = self.options.incarnation;
        let mut wal = Wal {
            disk: self.disk,
            _lock: lock,
            options: self.options,
            index: self.index,
            file: open.file,
            segment: open.number,
            salt,
            head_bytes,
            offset: end.offset,
            zeroed: end.offset,
            next_seq: self.next_seq,
            synced_seq: self.next_seq - 1,
            synced: Arc::default(),
            witness: Some(witness),
            base,
            segments: self.segments,
            terms: self.recovered.terms.clone(),
            hard_state: *state,
            failed: None,
            room: None,
            buffer: Vec::new(),
        };
        if let Some(vote) = end.tail.vote.filter(|vote| tail::says_more(*vote, *state)) {
            *state = HardState { commit: state.commit, ..vote };
            let hard_state = Some(*state);
            let (ticket, entries) = (Ticket::default(), Vec::new());
            let again = Persist { ticket, hard_state, base: None, entries };
            wal.append(&again)?;
            wal.sync()?;
        }
        wal.witness()?;
        wal.remove_obsolete()?;
        Ok(Opened { wal, recovered: self.recovered, incarnation, repair: self.repair })
    }

    /// Cuts off a torn end, and makes the rest durable. A crashed process leaves records that its kernel must still write. After a
    /// failed sync the kernel takes its pages for written, although they are not, and would never write them: records without a witness are
    /// therefore written again.
    fn settle(&mut self, segments: &[Segment], end: &End) -> Result<(), WalError> {
        let proven = self.vouched.max(self.witnessed);
        let unproven = self.unproven.iter().find(|(seq, ..)| *seq > proven);
        for segment in segments {
            let path = self.path(segment.number);
            let open = segment.number == segments[segments.len() - 1].number;
            let write = |from: usize, to: usize| {
                let bytes = &segment.bytes[from..to];
                segment.file.write_at(bytes, from as u64).map_err(WalError::io(&path, "write"))
            };
            let to = if open { end.offset as usize } else { segment.bytes.len() };
            let head = segment.start().map_or(HEADER_BYTES, |(_, end)| end);
            match unproven {
                Some((_, number, from)) if *number == segment.number => {
                    let from = *from as usize;
                    // Its header may be only cached, too.
                    write(if from < head { 0 } else { from }, to)?;
                }
                Some((_, number, _)) if *number < segment.number => write(0, to)?,
                _ if segment.is_fresh() => write(0, head)?,
                _ => {}
            }
            if open && end.tail.torn_bytes > 0 {
                segment.file.set_len(end.offset).map_err(WalError::io(&path, "cut"))?;
                self.repair = self.torn(segment, end);
            }
            segment.file.sync().map_err(WalError::io(&path, "sync"))?;
        }
        self.disk.sync_dir().map_err(WalError::io(&self.disk.location(), "sync"))
    }
}
