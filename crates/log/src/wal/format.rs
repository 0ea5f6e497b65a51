//! The bytes of a segment file.
//!
//! A segment is a header of [`HEADER_BYTES`] and then records, each padded to 8 bytes. Numbers are little-endian.
//!
//! ```text
//! header: magic[8] version:u32 crc:u32 cluster:u128 program[32] segment:u64 first_seq:u64 incarnation:u64 salt:u64
//! record: tag:u32 crc:u32 len:u32 kind:u8 zero[3] seq:u64 synced_seq:u64 payload[len] zero[..7]
//! ```
//!
//! A record's checksum covers its position (segment number and offset) as well as its bytes, so a sector that was
//! written to the wrong place or kept from an earlier file is not taken for a record. Nor are a client's bytes: tag and
//! checksum depend on the segment's salt, which is random and secret. `seq` counts records over all
//! segments without a gap. `synced_seq` is the newest record known to be durable when this one was written: a bad record
//! that a later one vouches for is damage; a bad record without such a witness is the torn end of a crashed append.
//!
//! The version is that of a segment:
//!
//! | version | of | first record |
//! |---|---|---|
//! | 2 | a log that holds all entries | any |
//! | 3 | a log that begins later, as programs before version 4 wrote it: read, no longer written | in segment 1 its base |
//! | 4 | the same, as programs before version 5 wrote it: read, no longer written | its [`Start`]: no earlier segment is needed for more than entries |
//! | 5 | the same, as programs before version 6 wrote it: read, no longer written | its [`Start`], whose members have places |
//! | 6 | a log that begins later | its [`Start`], whose members have places, and kinds if one is not active |
//! | 7 | the same, of members who have agreed on a [level](crate::Level) | its [`Start`], which says that level, too |
//!
//! Nothing else is different. A log of version 2 gets its first segment of version 6 when it forgets entries, one of version 3, 4 or 5 also when a
//! segment is full; no older version follows a version 6. Programs before version 7 refuse a log that has such a segment.

use crate::{
    base::Base,
    cursor::Cursor,
    types::{ClusterId, EntryKind, HardState, LogEntry, ProgramHash},
};
use skein_model::{LogIndex, Term};

/// The version of this format, for a log that holds all entries.
pub const VERSION: u32 = 2;
/// The version for a log that begins with its base in the first segment.
pub const VERSION_WITH_BASE: u32 = 3;
/// The version of a segment that begins with a [`Start`] in which members have no places.
pub const VERSION_WITH_START: u32 = 4;
/// The version of a segment that begins with a [`Start`] in which members have no kinds.
pub const VERSION_WITH_PLACES: u32 = 5;
/// The version of a segment that begins with a [`Start`] of members who have agreed on no level.
pub const VERSION_WITH_KINDS: u32 = 6;
/// The version of a segment that begins with any other [`Start`], and the newest one.
pub const VERSION_WITH_LEVEL: u32 = 7;
/// The length of a segment's header.
pub const HEADER_BYTES: usize = 96;
/// The length of a record's header.
pub const RECORD_HEADER_BYTES: usize = 32;
/// The longest payload of a record: far longer than a node's proposals, far shorter than memory.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

const SEGMENT_MAGIC: [u8; 8] = *b"SKEINWAL";
/// The most that a disk loses at once: the largest sector there is. A vote and its copy lie in different ones.
pub const SECTOR_BYTES: u64 = 4096;
/// index, term
const ENTRY_HEAD_BYTES: usize = 8 + 8;
/// Longer than any record of a [`Start`]: two numbers, a hard state, four full lists of members, and their places.
pub(crate) const MAX_START_BYTES: usize = 16 << 10;

const KIND_ENTRY: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;
const KIND_HARD_STATE: u8 = 3;
const KIND_TRUNCATE: u8 = 4;
const KIND_SEAL: u8 = 5;
const KIND_PAD: u8 = 6;
const KIND_BASE: u8 = 7;
const KIND_START: u8 = 8;

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The cluster.
    pub cluster: ClusterId,
    /// The program.
    pub program: ProgramHash,
    /// The segment's number, from 1.
    pub segment: u64,
    /// The `seq` of its first record.
    pub first_seq: u64,
    /// The incarnation of the log; the same in all segments.
    pub incarnation: u64,
    /// The secret salt.
    pub salt: u64,
    /// What the records begin with.
    pub layout: Layout,
}

/// What the records of a segment begin with: its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// Version 2: any record; the log holds all entries.
    Whole,
    /// Version 3: the log's base, in the first segment.
    Based,
    /// Version 6, and 4 and 5: a [`Start`].
    Started,
    /// Version 7: a [`Start`] with an agreed level.
    Levelled,
}

impl Layout {
    /// Of a segment with this start.
    pub(crate) fn with(start: Option<&Start>) -> Self {
        match start {
            None => Self::Whole,
            Some(start) if start.base.members.places.have_level() => Self::Levelled,
            Some(_) => Self::Started,
        }
    }

    /// Whether that is a [`Start`].
    pub(crate) const fn has_start(self) -> bool {
        matches!(self, Self::Started | Self::Levelled)
    }

    const fn version(self) -> u32 {
        match self {
            Self::Whole => VERSION,
            Self::Based => VERSION_WITH_BASE,
            Self::Started => VERSION_WITH_KINDS,
            Self::Levelled => VERSION_WITH_LEVEL,
        }
    }

    fn of(version: u32) -> Option<Self> {
        match version {
            VERSION => Some(Self::Whole),
            VERSION_WITH_BASE => Some(Self::Based),
            VERSION_WITH_START | VERSION_WITH_PLACES | VERSION_WITH_KINDS => Some(Self::Started),
            VERSION_WITH_LEVEL => Some(Self::Levelled),
            _ => None,
        }
    }
}

/// The state of a log where a segment begins. The segment's file, with it, is durable before the seal of the one before: the two make the change from
/// one base to another at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Where the log begins now.
    pub base: Base,
    /// The last entry of the segments before, or the base.
    pub last: (LogIndex, Term),
    /// The promises.
    pub hard_state: HardState,
}

impl Start {
    /// Whether the segments before hold no entry of the log.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.last == (self.base.index, self.base.term)
    }
}

/// The reason why a segment's header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Too short, no magic, or a wrong checksum.
    Damaged,
    /// Intact, but of an unknown version.
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&self.layout.version().to_le_bytes());
        out[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        out[32..64].copy_from_slice(&self.program.0);
        out[64..72].copy_from_slice(&self.segment.to_le_bytes());
        out[72..80].copy_from_slice(&self.first_seq.to_le_bytes());
        out[80..88].copy_from_slice(&self.incarnation.to_le_bytes());
        out[88..96].copy_from_slice(&self.salt.to_le_bytes());
        let crc = Self::checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Damaged)?;
        Self::fields(header).ok_or(HeaderError::Damaged)?
    }

    fn fields(header: &[u8; HEADER_BYTES]) -> Option<Result<Self, HeaderError>> {
        let mut cursor = Cursor::new(header);
        if cursor.array::<8>()? != SEGMENT_MAGIC {
            return None;
        }
        let version = cursor.u32()?;
        if cursor.u32()? != Self::checksum(header) {
            return None;
        }
        let Some(layout) = Layout::of(version) else {
            return Some(Err(HeaderError::Version(version)));
        };
        Some(Ok(Self {
            cluster: ClusterId(cursor.u128()?),
            program: ProgramHash(cursor.array()?),
            segment: cursor.u64()?,
            first_seq: cursor.u64()?,
            incarnation: cursor.u64()?,
            salt: cursor.u64()?,
            layout,
        }))
    }

    fn checksum(header: &[u8; HEADER_BYTES]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[..12]);
        hasher.update(&header[16..]);
        hasher.finalize()
    }
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The log's next entry.
    Entry(LogEntry),
    /// The newest hard state.
    HardState(HardState),
    /// The entries from this index on are void: a new leader overwrites them.
    Truncate(LogIndex),
    /// The last record of a segment that is followed by another.
    Seal,
    /// Padding of this many bytes, so that the next record lies in another sector.
    Pad(usize),
    /// Where the log begins, in version 3.
    Base(Base),
    /// The state where a segment begins.
    Start(Start),
}

/// The position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The segment's number.
    pub segment: u64,
    /// The segment's salt.
    pub salt: u64,
    /// The record's first byte in the segment.
    pub offset: u64,
}

/// A record's position, number and witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The position.
    pub spot: Spot,
    /// The record's number.
    pub seq: u64,
    /// The newest record known to be durable when this one was written.
    pub synced_seq: u64,
}

/// The content of a record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The log's next entry: its payload is left where it is.
    Entry {
        /// Its index.
        index: LogIndex,
        /// Its term.
        term: Term,
        /// What it is.
        kind: EntryKind,
        /// Its payload.
        payload: &'a [u8],
    },
    /// Any other.
    Other(Record),
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Its content.
    pub found: Found<'a>,
    /// Its number.
    pub seq: u64,
    /// The record that it vouches for.
    pub synced_seq: u64,
    /// Its length with header and padding.
    pub len: usize,
}

/// The length of a record with this payload.
pub(crate) fn record_bytes(payload: usize) -> usize {
    (RECORD_HEADER_BYTES + payload).next_multiple_of(8)
}

pub(crate) fn entry_record_bytes(entry: &LogEntry) -> usize {
    record_bytes(ENTRY_HEAD_BYTES + entry.payload.len())
}

/// The padding that makes a record at `from` end where the next sector begins.
pub(crate) fn pad_to_sector(from: u64) -> Record {
    let end = (from + RECORD_HEADER_BYTES as u64).next_multiple_of(SECTOR_BYTES);
    // Lossless: less than a sector.
    Record::Pad((end - from) as usize - RECORD_HEADER_BYTES)
}

/// A salt from random bits; never the one whose tag is zero.
pub(crate) fn salt(random: u64) -> u64 {
    random | 1 << 32
}

/// The first bytes of each record of a segment.
fn tag(salt: u64) -> [u8; 4] {
    ((salt >> 32) as u32).to_le_bytes()
}

/// Appends a record to `out`.
pub(crate) fn encode(out: &mut Vec<u8>, place: Place, record: &Record) {
    frame(out, place, |out| match record {
        Record::Entry(entry) => put_entry(out, entry),
        Record::HardState(state) => {
            encode_hard_state(out, state);
            KIND_HARD_STATE
        }
        Record::Truncate(from) => {
            out.extend_from_slice(&from.0.to_le_bytes());
            KIND_TRUNCATE
        }
        Record::Seal => KIND_SEAL,
        Record::Pad(bytes) => {
            out.resize(out.len() + bytes, 0);
            KIND_PAD
        }
        Record::Base(base) => {
            base.encode(out);
            KIND_BASE
        }
        Record::Start(start) => {
            out.extend_from_slice(&start.last.0.0.to_le_bytes());
            out.extend_from_slice(&start.last.1.0.to_le_bytes());
            encode_hard_state(out, &start.hard_state);
            start.base.encode(out);
            KIND_START
        }
    });
}

/// Appends the record of an entry to `out`, as [`encode`] does.
pub(crate) fn encode_entry(out: &mut Vec<u8>, place: Place, entry: &LogEntry) {
    out.reserve(entry_record_bytes(entry));
    frame(out, place, |out| put_entry(out, entry));
}

fn put_entry(out: &mut Vec<u8>, entry: &LogEntry) -> u8 {
    out.extend_from_slice(&entry.index.0.to_le_bytes());
    out.extend_from_slice(&entry.term.0.to_le_bytes());
    out.extend_from_slice(&entry.payload);
    match entry.kind {
        EntryKind::Normal => KIND_ENTRY,
        EntryKind::Membership => KIND_MEMBERSHIP,
    }
}

/// Appends a record whose payload `put` writes; `put` answers its kind.
fn frame(out: &mut Vec<u8>, place: Place, put: impl FnOnce(&mut Vec<u8>) -> u8) {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    let kind = put(out);
    let len = out.len() - start - RECORD_HEADER_BYTES;
    assert!(len <= MAX_PAYLOAD_BYTES, "a record of {len} bytes");
    let header = &mut out[start..start + RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&tag(place.spot.salt));
    // Lossless: at most MAX_PAYLOAD_BYTES.
    header[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    header[12] = kind;
    header[16..24].copy_from_slice(&place.seq.to_le_bytes());
    header[24..32].copy_from_slice(&place.synced_seq.to_le_bytes());
    let crc = checksum(place.spot, &out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(start + record_bytes(len), 0);
}

fn encode_hard_state(out: &mut Vec<u8>, state: &HardState) {
    out.extend_from_slice(&state.term.0.to_le_bytes());
    out.extend_from_slice(&state.vote.to_le_bytes());
    out.extend_from_slice(&state.commit.0.to_le_bytes());
}

/// Reads the record that begins at `bytes[0]`; `None` if no valid record of this position is there.
pub(crate) fn decode(bytes: &[u8], spot: Spot) -> Option<Decoded<'_>> {
    if bytes.first_chunk::<4>()? != &tag(spot.salt) {
        return None;
    }
    let mut cursor = Cursor::new(&bytes[4..]);
    let crc = cursor.u32()?;
    let len = cursor.u32()? as usize;
    let kind = cursor.u8()?;
    cursor.take(3)?;
    let (seq, synced_seq) = (cursor.u64()?, cursor.u64()?);
    if len > MAX_PAYLOAD_BYTES {
        return None;
    }
    let payload = cursor.take(len)?;
    let padding = cursor.take(record_bytes(len) - RECORD_HEADER_BYTES - len)?;
    if crc != checksum(spot, &bytes[8..RECORD_HEADER_BYTES + len])
        || padding.iter().any(|byte| *byte != 0)
    {
        return None;
    }
    Some(Decoded { found: decode_payload(kind, payload)?, seq, synced_seq, len: record_bytes(len) })
}

fn decode_payload(kind: u8, payload: &[u8]) -> Option<Found<'_>> {
    let mut cursor = Cursor::new(payload);
    let record = match kind {
        KIND_ENTRY | KIND_MEMBERSHIP => {
            let (index, term) = (LogIndex(cursor.u64()?), Term(cursor.u64()?));
            let kind = if kind == KIND_ENTRY { EntryKind::Normal } else { EntryKind::Membership };
            return Some(Found::Entry { index, term, kind, payload: cursor.take(cursor.left())? });
        }
        KIND_HARD_STATE => Record::HardState(decode_hard_state(&mut cursor)?),
        KIND_TRUNCATE => Record::Truncate(LogIndex(cursor.u64()?)),
        KIND_SEAL => Record::Seal,
        KIND_PAD => Record::Pad(cursor.take(cursor.left())?.len()),
        KIND_BASE => Record::Base(Base::decode(&mut cursor)?),
        KIND_START => Record::Start(Start {
            last: (LogIndex(cursor.u64()?), Term(cursor.u64()?)),
            hard_state: decode_hard_state(&mut cursor)?,
            base: Base::decode(&mut cursor)?,
        }),
        _ => return None,
    };
    (cursor.left() == 0).then_some(Found::Other(record))
}

fn decode_hard_state(cursor: &mut Cursor<'_>) -> Option<HardState> {
    let (term, vote) = (Term(cursor.u64()?), cursor.u64()?);
    Some(HardState { term, vote, commit: LogIndex(cursor.u64()?) })
}

fn checksum(spot: Spot, bytes: &[u8]) -> u32 {
    // In one piece, which is hashed faster than three.
    let mut place = [0; 24];
    place[..8].copy_from_slice(&spot.salt.to_le_bytes());
    place[8..16].copy_from_slice(&spot.segment.to_le_bytes());
    place[16..].copy_from_slice(&spot.offset.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place);
    hasher.update(bytes);
    hasher.finalize()
}

/// The name of a segment's file.
pub(crate) fn segment_name(segment: u64) -> String {
    format!("{segment:016x}.wal")
}

pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}
