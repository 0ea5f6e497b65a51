//! Log entries: the values that consensus agrees on and every replica's server executes.
//!
//! An entry is a header and a list of records, all little endian, every record padded to 8 bytes:
//!
//! ```text
//! entry   = version u8 | 0 u8 | 0 u16 | records u32 | wall_ns u64 | term u64        (24 bytes)
//!           record*
//! record  = kind u8 | 0 u8 | 0 u16 | len u32 | conn u64                             (16 bytes)
//!           payload[len] | zero padding to 8
//! ```
//!
//! The stamp of an entry, virtual time, becomes the server's time when the entry is admitted. An entry without records is
//! a clock entry: it only advances time.
//!
//! [`EntryRef::parse`] checks the whole entry, once in each process that it comes to; afterwards iterating its records cannot fail.

use crate::fact::{self, MAX_FACTS_BYTES, are_facts};
use crate::limits::MAX_DATAGRAM_BYTES;
use crate::padding::pad8;
use crate::{ConnId, LogIndex, ReplicaId, SockAddr, Term, WallNs};

/// Bytes of an entry's header.
pub const ENTRY_HEADER_BYTES: usize = 24;
/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 16;
/// The largest entry: 1 MiB, a quarter of the input ring.
pub const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Also raised when the same bytes would make the server act differently: replaying an old log would then diverge.
const VERSION: u8 = 3;

/// Events, in the order in which the server sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The first record of the first entry: the start state of a fresh server.
    Start(Start),
    /// A new term begins: every connection that an earlier term accepted is reset.
    TermStart,
    /// A client connected.
    Open {
        /// The new connection.
        conn: ConnId,
        /// The client's address.
        peer: SockAddr,
        /// The address that the client connected to; its port is the server's listening port.
        local: SockAddr,
    },
    /// Bytes from a client.
    Data {
        /// The connection.
        conn: ConnId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A client shut its sending side down (half close).
    Fin {
        /// The connection.
        conn: ConnId,
    },
    /// A client disappeared: the connection is reset.
    Reset {
        /// The connection.
        conn: ConnId,
    },
    /// A client took bytes that the server had sent: room in the virtual send buffer.
    Drained {
        /// The connection.
        conn: ConnId,
        /// The number of bytes.
        bytes: u64,
    },
    /// An outgoing connection of the server is established.
    Connected {
        /// The connection, one of [`ConnId::outgoing`].
        conn: ConnId,
    },
    /// An outgoing connection of the server failed.
    ConnectFailed {
        /// The connection.
        conn: ConnId,
        /// The errno that `connect` answers: `ECONNREFUSED`, `ETIMEDOUT`, ...
        errno: u16,
    },
    /// A datagram arrived.
    Datagram {
        /// Its destination: an address of the server, with the port of one of its sockets.
        local: SockAddr,
        /// Its source.
        peer: SockAddr,
        /// The bytes, possibly none.
        bytes: &'a [u8],
    },
    /// A host reported (ICMP) that a datagram of the server did not arrive.
    DatagramFailed {
        /// The datagram's source.
        local: SockAddr,
        /// The datagram's destination.
        peer: SockAddr,
        /// The errno.
        errno: u16,
    },
    /// A time bubble (CRANE section 4): no input arrived; the server may take `turns` turns before the next admission slot.
    Bubble {
        /// The number of turns.
        turns: u32,
    },
    /// A replica's digest after an entry; compared by the nodes, ignored by the runtime.
    Digest {
        /// The replica.
        replica: ReplicaId,
        /// The last entry that the digest covers.
        index: LogIndex,
        /// The digest.
        digest: u64,
    },
    /// A hash of all memory and files of a replica's server after an entry; compared by the nodes, ignored by the runtime.
    Root {
        /// The replica.
        replica: ReplicaId,
        /// The last entry that the server had executed.
        index: LogIndex,
        /// The hash.
        root: u64,
    },
    /// An operator sends the server a signal (`skein signal`).
    Signal {
        /// Its number, from 1 to 64.
        number: u8,
    },
    /// The server's findings about its host's files, at the point where it sent [`OutFrame::Asked`](crate::OutFrame::Asked).
    Files {
        /// The number of the server's question, from 1.
        ask: u64,
        /// The findings ([`crate::fact`]).
        facts: &'a [u8],
    },
    /// A step of an upgrade of the server (`skein upgrade`), the first record of its entry; read by the nodes, ignored by the runtime.
    Upgrade {
        /// The number of the edition that it is about; the cluster begins with edition 1.
        edition: u64,
        /// The step.
        step: Upgrade,
        /// The edition, in a form that only nodes know.
        plan: &'a [u8],
    },
}

/// A step of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// The servers are asked to end, for the edition to follow.
    Asked,
    /// All servers have ended, and those of the edition begin with this entry.
    Begun {
        /// The last entry that the servers before it had executed,
        after: LogIndex,
        /// and their wait status.
        status: i32,
    },
    /// The edition stays.
    Kept,
    /// The servers did not end: they go on, and the edition does not begin.
    GivenUp,
}

impl Record<'_> {
    /// Whether only nodes read the record: an entry of nothing else is given to no server.
    #[must_use]
    pub const fn is_for_nodes(&self) -> bool {
        matches!(self, Self::Digest { .. } | Self::Root { .. } | Self::Upgrade { .. })
    }

    /// Whether the record is an event from outside, and not an agreement among the replicas.
    #[must_use]
    pub const fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::Start(_)
                | Self::TermStart
                | Self::Bubble { .. }
                | Self::Digest { .. }
                | Self::Root { .. }
                | Self::Files { .. }
                | Self::Upgrade { .. }
        )
    }
}

/// step u32 | status i32 | after u64
const UPGRADE_HEAD_BYTES: usize = 16;

impl Upgrade {
    fn encode(self) -> [u8; UPGRADE_HEAD_BYTES] {
        let (step, after, status) = match self {
            Self::Asked => (1u32, LogIndex(0), 0),
            Self::Begun { after, status } => (2, after, status),
            Self::Kept => (3, LogIndex(0), 0),
            Self::GivenUp => (4, LogIndex(0), 0),
        };
        let mut bytes = [0; UPGRADE_HEAD_BYTES];
        bytes[..4].copy_from_slice(&step.to_le_bytes());
        bytes[4..8].copy_from_slice(&status.to_le_bytes());
        bytes[8..].copy_from_slice(&after.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; UPGRADE_HEAD_BYTES]) -> Option<Self> {
        let (status, after) = (u32_at(bytes, 4).cast_signed(), LogIndex(u64_at(bytes, 8)));
        Some(match u32_at(bytes, 0) {
            1 => Self::Asked,
            2 => Self::Begun { after, status },
            3 => Self::Kept,
            4 => Self::GivenUp,
            _ => return None,
        })
    }
}

/// The parameters of a server's start that must be equal on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Seed of the server's randomness.
    pub seed: [u8; 32],
    /// The most operations of a thread in one turn.
    pub quantum: u32,
    /// The number of turns between two admission slots.
    pub nclock: u32,
}

const KIND_START: u8 = 1;
const KIND_TERM_START: u8 = 2;
const KIND_OPEN: u8 = 3;
const KIND_DATA: u8 = 4;
const KIND_FIN: u8 = 5;
const KIND_RESET: u8 = 6;
const KIND_DRAINED: u8 = 7;
const KIND_BUBBLE: u8 = 8;
const KIND_DIGEST: u8 = 9;
const KIND_CONNECTED: u8 = 10;
const KIND_CONNECT_FAILED: u8 = 11;
const KIND_DATAGRAM: u8 = 12;
const KIND_DATAGRAM_FAILED: u8 = 13;
const KIND_SIGNAL: u8 = 14;
const KIND_FILES: u8 = 15;
const KIND_ROOT: u8 = 16;
const KIND_UPGRADE: u8 = 17;

/// The reason why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// Shorter than its header or its records say, or longer than [`MAX_ENTRY_BYTES`].
    Length,
    /// Written by another version of Skein.
    Version(u8),
    /// A record of an unknown kind or with an impossible payload.
    Record(u8),
}

impl core::fmt::Display for EntryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length => write!(f, "log entry has a wrong length"),
            Self::Version(v) => {
                write!(f, "log entry has format version {v}, this Skein reads version {VERSION}")
            }
            Self::Record(kind) => write!(f, "log entry has a malformed record of kind {kind}"),
        }
    }
}

impl core::error::Error for EntryError {}

/// Writes an entry into a buffer that the caller lends; the buffer is cleared first and can be reused.
///
/// `B` is any growable byte buffer; `Vec<u8>` in the node.
#[derive(Debug)]
pub struct EntryBuilder<B> {
    out: B,
    records: u32,
}

/// A growable byte buffer.
pub trait Buffer {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
    /// The number of bytes.
    fn len(&self) -> usize;
    /// Whether the buffer is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes, to be patched.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Removes all bytes and keeps the memory.
    fn clear(&mut self);
}

impl<B: Buffer> EntryBuilder<B> {
    /// Starts an empty entry in `out`.
    pub fn new(mut out: B) -> Self {
        out.clear();
        out.put(&[0; ENTRY_HEADER_BYTES]);
        Self { out, records: 0 }
    }

    /// The number of records.
    #[must_use]
    pub const fn records(&self) -> u32 {
        self.records
    }

    /// The length of the entry in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether no record was added.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The most payload bytes of one more record.
    #[must_use]
    pub fn room(&self) -> usize {
        MAX_ENTRY_BYTES.saturating_sub(self.out.len() + RECORD_HEADER_BYTES + 8)
    }

    /// Adds a record.
    ///
    /// # Panics
    /// When the entry would exceed [`MAX_ENTRY_BYTES`]: ask [`room`](Self::room) first.
    pub fn push(&mut self, record: Record<'_>) {
        let mut small = [0u8; 44];
        let mut tail: &[u8] = &[];
        let (kind, conn, payload): (u8, u64, &[u8]) = match record {
            Record::Start(s) => {
                small[..32].copy_from_slice(&s.seed);
                small[32..36].copy_from_slice(&s.quantum.to_le_bytes());
                small[36..40].copy_from_slice(&s.nclock.to_le_bytes());
                (KIND_START, 0, &small[..40])
            }
            Record::TermStart => (KIND_TERM_START, 0, &[]),
            Record::Open { conn, peer, local } => {
                small[..20].copy_from_slice(&peer.encode());
                small[20..40].copy_from_slice(&local.encode());
                (KIND_OPEN, conn.0, &small[..40])
            }
            Record::Data { conn, bytes } => (KIND_DATA, conn.0, bytes),
            Record::Fin { conn } => (KIND_FIN, conn.0, &[]),
            Record::Reset { conn } => (KIND_RESET, conn.0, &[]),
            Record::Drained { conn, bytes } => {
                small[..8].copy_from_slice(&bytes.to_le_bytes());
                (KIND_DRAINED, conn.0, &small[..8])
            }
            Record::Connected { conn } => (KIND_CONNECTED, conn.0, &[]),
            Record::ConnectFailed { conn, errno } => {
                small[..2].copy_from_slice(&errno.to_le_bytes());
                (KIND_CONNECT_FAILED, conn.0, &small[..2])
            }
            Record::Datagram { local, peer, bytes } => {
                small[..40].copy_from_slice(&SockAddr::encode_pair(local, peer));
                tail = bytes;
                (KIND_DATAGRAM, 0, &small[..40])
            }
            Record::DatagramFailed { local, peer, errno } => {
                small[..40].copy_from_slice(&SockAddr::encode_pair(local, peer));
                (KIND_DATAGRAM_FAILED, u64::from(errno), &small[..40])
            }
            Record::Bubble { turns } => {
                small[..4].copy_from_slice(&turns.to_le_bytes());
                (KIND_BUBBLE, 0, &small[..4])
            }
            Record::Digest { replica, index, digest } => {
                small[..8].copy_from_slice(&index.0.to_le_bytes());
                small[8..16].copy_from_slice(&digest.to_le_bytes());
                (KIND_DIGEST, replica.0, &small[..16])
            }
            Record::Root { replica, index, root } => {
                small[..8].copy_from_slice(&index.0.to_le_bytes());
                small[8..16].copy_from_slice(&root.to_le_bytes());
                (KIND_ROOT, replica.0, &small[..16])
            }
            Record::Signal { number } => {
                small[0] = number;
                (KIND_SIGNAL, 0, &small[..1])
            }
            Record::Files { ask, facts } => (KIND_FILES, ask, facts),
            Record::Upgrade { edition, step, plan } => {
                small[..UPGRADE_HEAD_BYTES].copy_from_slice(&step.encode());
                tail = plan;
                (KIND_UPGRADE, edition, &small[..UPGRADE_HEAD_BYTES])
            }
        };
        let len = payload.len() + tail.len();
        assert!(len <= self.room(), "record does not fit into the entry");
        let mut header = [0u8; RECORD_HEADER_BYTES];
        header[0] = kind;
        header[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        header[8..16].copy_from_slice(&conn.to_le_bytes());
        self.out.put(&header);
        self.out.put(payload);
        self.out.put(tail);
        self.out.put(&[0; 8][..pad8(len) - len]);
        self.records += 1;
    }

    /// Adds a `Data` record whose payload `fill` writes in place: it gets a buffer of `max` bytes and answers how many it
    /// wrote; with 0 no record is added. This is how the gateway reads from a socket without a copy.
    ///
    /// # Errors
    /// The error that `fill` returned; the entry is unchanged.
    pub fn push_data_with<E>(
        &mut self,
        conn: ConnId,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E>
    where
        B: Truncate,
    {
        let max = max.min(self.room());
        let at = self.out.len();
        let mut header = [0u8; RECORD_HEADER_BYTES];
        header[0] = KIND_DATA;
        header[8..16].copy_from_slice(&conn.0.to_le_bytes());
        self.out.put(&header);
        let start = at + RECORD_HEADER_BYTES;
        self.out.grow_zeroed(start + max);
        let result = fill(&mut self.out.bytes_mut()[start..start + max]);
        match result {
            Ok(n) if n > 0 => {
                assert!(n <= max, "more bytes read than there was room for");
                self.out.truncate(start + n);
                self.out.bytes_mut()[at + 4..at + 8].copy_from_slice(&(n as u32).to_le_bytes());
                self.out.put(&[0; 8][..pad8(n) - n]);
                self.records += 1;
                Ok(n)
            }
            other => {
                self.out.truncate(at);
                other
            }
        }
    }

    /// Stamps the entry and hands its bytes over.
    pub fn finish(mut self, wall: WallNs, term: Term) -> B {
        let records = self.records;
        let bytes = self.out.bytes_mut();
        bytes[0] = VERSION;
        bytes[4..8].copy_from_slice(&records.to_le_bytes());
        bytes[8..16].copy_from_slice(&wall.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&term.0.to_le_bytes());
        self.out
    }
}

/// A buffer that can be cut and grown.
pub trait Truncate {
    /// Cuts the buffer to `len` bytes.
    fn truncate(&mut self, len: usize);
    /// Grows the buffer to `len` bytes with zeros.
    fn grow_zeroed(&mut self, len: usize);
}

/// A checked entry.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef<'a> {
    bytes: &'a [u8],
}

/// The number of the question that an entry of nothing but facts answers ([`Record::Files`]); found without reading all of it.
#[must_use]
pub fn answers(entry: &[u8]) -> Option<u64> {
    let head = entry.get(ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + RECORD_HEADER_BYTES)?;
    (head[0] == KIND_FILES).then(|| u64_at(head, 8))
}

/// Whether an entry is the first one for a server: it begins with what that begins with. Found without reading all of it.
#[must_use]
pub fn starts(entry: &[u8]) -> bool {
    begins_with(entry, KIND_START)
}

/// Whether an entry begins with a step of an upgrade, as all do that have one; found without reading all of it.
#[must_use]
pub fn upgrades(entry: &[u8]) -> bool {
    begins_with(entry, KIND_UPGRADE)
}

/// Consensus has entries of its own in a log: none of these begins with a version.
fn begins_with(entry: &[u8], kind: u8) -> bool {
    entry.first() == Some(&VERSION) && entry.get(ENTRY_HEADER_BYTES) == Some(&kind)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The paths of files of the host that an entry has facts about ([`fact::paths`]).
pub fn host_files(entry: &[u8]) -> impl Iterator<Item = &[u8]> {
    let records = EntryRef::parse(entry).ok().into_iter().flat_map(|entry| entry.records());
    records.flat_map(|record| match record {
        Record::Files { facts, .. } => fact::paths(facts),
        _ => fact::paths(b""),
    })
}

impl<'a> EntryRef<'a> {
    /// Checks that all of `bytes` is one entry.
    ///
    /// # Errors
    /// The defect of the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, EntryError> {
        if bytes.len() < ENTRY_HEADER_BYTES || bytes.len() > MAX_ENTRY_BYTES {
            return Err(EntryError::Length);
        }
        if bytes[0] != VERSION {
            return Err(EntryError::Version(bytes[0]));
        }
        let mut at = ENTRY_HEADER_BYTES;
        for _ in 0..u32_at(bytes, 4) {
            at = decode_record(bytes, at)?.1;
        }
        if at != bytes.len() {
            return Err(EntryError::Length);
        }
        Ok(Self { bytes })
    }

    /// An entry that this process has parsed before, or built.
    #[must_use]
    pub fn parsed(bytes: &'a [u8]) -> Self {
        debug_assert!(Self::parse(bytes).is_ok(), "no entry");
        Self { bytes }
    }

    /// Virtual time when the leader made the entry.
    #[must_use]
    pub fn wall(&self) -> WallNs {
        WallNs(u64_at(self.bytes, 8))
    }

    /// The term of the leader that made the entry.
    #[must_use]
    pub fn term(&self) -> Term {
        Term(u64_at(self.bytes, 16))
    }

    /// The records in order.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let bytes = self.bytes;
        let mut at = ENTRY_HEADER_BYTES;
        core::iter::from_fn(move || {
            if at >= bytes.len() {
                return None;
            }
            let (record, next) = decode_record(bytes, at).ok()?;
            at = next;
            Some(record)
        })
    }
}

fn decode_record(bytes: &[u8], at: usize) -> Result<(Record<'_>, usize), EntryError> {
    let header = bytes.get(at..at + RECORD_HEADER_BYTES).ok_or(EntryError::Length)?;
    let (kind, len, conn) = (header[0], u32_at(header, 4) as usize, ConnId(u64_at(header, 8)));
    let start = at + RECORD_HEADER_BYTES;
    if len > bytes.len() {
        return Err(EntryError::Length);
    }
    let padded = bytes.get(start..start + pad8(len)).ok_or(EntryError::Length)?;
    let payload = &padded[..len];
    let bad = EntryError::Record(kind);
    let want = |n: usize| if len == n { Ok(()) } else { Err(bad) };
    let record = match kind {
        KIND_START => {
            want(40)?;
            let mut seed = [0; 32];
            seed.copy_from_slice(&payload[..32]);
            let (quantum, nclock) = (u32_at(payload, 32), u32_at(payload, 36));
            if quantum == 0 || nclock == 0 {
                return Err(bad);
            }
            Record::Start(Start { seed, quantum, nclock })
        }
        KIND_TERM_START => {
            want(0)?;
            Record::TermStart
        }
        KIND_OPEN => {
            want(40)?;
            Record::Open {
                conn,
                peer: SockAddr::decode(&payload[..20]).ok_or(bad)?,
                local: SockAddr::decode(&payload[20..]).ok_or(bad)?,
            }
        }
        KIND_DATA if len > 0 => Record::Data { conn, bytes: payload },
        KIND_FIN => {
            want(0)?;
            Record::Fin { conn }
        }
        KIND_RESET => {
            want(0)?;
            Record::Reset { conn }
        }
        KIND_DRAINED => {
            want(8)?;
            Record::Drained { conn, bytes: u64_at(payload, 0) }
        }
        KIND_CONNECTED => {
            want(0)?;
            Record::Connected { conn }
        }
        KIND_CONNECT_FAILED => {
            want(2)?;
            Record::ConnectFailed { conn, errno: u16::from_le_bytes([payload[0], payload[1]]) }
        }
        KIND_DATAGRAM => {
            let (local, peer, bytes) = SockAddr::split_pair(payload).ok_or(bad)?;
            if bytes.len() > MAX_DATAGRAM_BYTES {
                return Err(bad);
            }
            Record::Datagram { local, peer, bytes }
        }
        KIND_DATAGRAM_FAILED => {
            want(40)?;
            let (local, peer, _) = SockAddr::split_pair(payload).ok_or(bad)?;
            let errno = u16::try_from(conn.0).map_err(|_| bad)?;
            Record::DatagramFailed { local, peer, errno }
        }
        KIND_BUBBLE => {
            want(4)?;
            Record::Bubble { turns: u32_at(payload, 0) }
        }
        KIND_DIGEST => {
            want(16)?;
            Record::Digest {
                replica: ReplicaId(conn.0),
                index: LogIndex(u64_at(payload, 0)),
                digest: u64_at(payload, 8),
            }
        }
        KIND_ROOT => {
            want(16)?;
            Record::Root {
                replica: ReplicaId(conn.0),
                index: LogIndex(u64_at(payload, 0)),
                root: u64_at(payload, 8),
            }
        }
        KIND_SIGNAL => {
            want(1)?;
            if !(1..=64).contains(&payload[0]) {
                return Err(bad);
            }
            Record::Signal { number: payload[0] }
        }
        KIND_FILES if len <= MAX_FACTS_BYTES && are_facts(payload) => {
            Record::Files { ask: conn.0, facts: payload }
        }
        KIND_UPGRADE => {
            let (head, plan) = payload.split_first_chunk().ok_or(bad)?;
            Record::Upgrade { edition: conn.0, step: Upgrade::decode(head).ok_or(bad)?, plan }
        }
        _ => return Err(bad),
    };
    Ok((record, start + pad8(len)))
}

#[cfg(feature = "alloc")]
mod vec {
    extern crate alloc;
    use super::{Buffer, Truncate};
    use alloc::vec::Vec;

    impl Buffer for Vec<u8> {
        fn put(&mut self, bytes: &[u8]) {
            self.extend_from_slice(bytes);
        }
        fn len(&self) -> usize {
            self.len()
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            self
        }
        fn clear(&mut self) {
            self.clear();
        }
    }

    impl Truncate for Vec<u8> {
        fn truncate(&mut self, len: usize) {
            self.truncate(len);
        }
        fn grow_zeroed(&mut self, len: usize) {
            self.resize(len, 0);
        }
    }
}
