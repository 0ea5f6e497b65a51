//! Frames between nodes over a byte stream, and the hello with which each side begins.
//!
//! ```text
//! frame: magic:u32 version:u16 kind:u8 zero:u8 cluster:u128 len:u32 crc:u32 payload[len]
//! ```
//!
//! The version is 2; that of a hello with [`Levels`] is 3, so that nodes from before levels, which cannot go on, refuse it by a line of theirs.
//! Numbers are little-endian; the checksum covers everything but itself. The [`Decoder`] takes bytes in any pieces and gives
//! frames; an error ends the connection, as later bytes cannot be trusted. It never holds more than one frame of
//! [`MAX_FRAME_BYTES`] plus one read.

use crate::{
    cursor::Cursor,
    level::Level,
    types::{ClusterId, Durability, ProgramHash},
};
use skein_model::{LogIndex, ReplicaId};

/// The version of the protocol between nodes: two versions do not talk.
pub const VERSION: u16 = 2;
/// The version of a hello of a cluster that has agreed on a [level](crate::Level).
pub const VERSION_WITH_LEVELS: u16 = 3;
/// The length of a frame's header.
pub const HEADER_BYTES: usize = 32;
/// The longest frame with its header.
pub const MAX_FRAME_BYTES: usize = 8 << 20;
/// The longest payload of a frame.
pub const MAX_PAYLOAD_BYTES: usize = MAX_FRAME_BYTES - HEADER_BYTES;

const MAGIC: [u8; 4] = *b"SKNP";
const CRC_OFFSET: usize = HEADER_BYTES - 4;

/// The payload is a [`Hello`].
pub const KIND_HELLO: u8 = 1;
/// The payload is a consensus message, see [`crate::wire`].
pub const KIND_RAFT: u8 = 2;
/// Kinds from here on are the node's own.
pub const KIND_APP: u8 = 16;

/// The reason why a peer's bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not a Skein node.
    #[error("the peer does not speak Skein's protocol; check the address")]
    Garbage,
    /// A node of another version.
    #[error(
        "the peer speaks protocol version {0}, this node {VERSION_WITH_LEVELS}; run the same version of Skein"
    )]
    Version(u16),
    /// A node of another cluster.
    #[error("the peer belongs to cluster {0}; check the address")]
    OtherCluster(ClusterId),
    /// A length that no node sends.
    #[error("the peer announces a frame of {0} bytes, at most {MAX_PAYLOAD_BYTES} are allowed")]
    TooLong(u32),
    /// Bytes changed in transit.
    #[error("a frame's checksum is wrong")]
    Checksum,
    /// The first frame is not a hello, or not a valid one.
    #[error("the peer's hello is malformed")]
    Hello,
}

/// Appends a frame to `out`. The payload must not exceed [`MAX_PAYLOAD_BYTES`].
pub fn encode(out: &mut Vec<u8>, cluster: ClusterId, kind: u8, payload: &[u8]) {
    encode_as(VERSION, out, cluster, kind, payload);
}

/// Appends a hello as a frame.
pub fn encode_hello(out: &mut Vec<u8>, cluster: ClusterId, hello: &Hello) {
    let version = if hello.levels.is_some() { VERSION_WITH_LEVELS } else { VERSION };
    encode_as(version, out, cluster, KIND_HELLO, &hello.encode());
}

fn encode_as(version: u16, out: &mut Vec<u8>, cluster: ClusterId, kind: u8, payload: &[u8]) {
    assert!(payload.len() <= MAX_PAYLOAD_BYTES, "a frame of {} bytes", payload.len());
    let start = out.len();
    out.reserve(HEADER_BYTES + payload.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&cluster.0.to_le_bytes());
    // Lossless: checked above.
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = checksum(&out[start..start + CRC_OFFSET], payload);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload);
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

/// A frame in a [`Decoder`]'s buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// One of the `KIND_` constants, or the node's own.
    pub kind: u8,
    /// The payload.
    pub payload: &'a [u8],
}

/// Cuts a byte stream into frames.
pub struct Decoder {
    cluster: ClusterId,
    buffer: Vec<u8>,
    /// Bytes at the buffer's start that were handed out.
    used: usize,
}

impl Decoder {
    /// A decoder for frames of one cluster.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self { cluster, buffer: Vec::new(), used: 0 }
    }

    /// Adds received bytes. Take all frames out before adding more, or the buffer grows.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if it is complete.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let rest = &self.buffer[self.used..];
        let Some((kind, len, crc)) = parse_header(rest, self.cluster)? else {
            return Ok(None);
        };
        let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + len) else {
            return Ok(None);
        };
        if crc != checksum(&rest[..CRC_OFFSET], payload) {
            return Err(FrameError::Checksum);
        }
        let start = self.used + HEADER_BYTES;
        self.used = start + len;
        Ok(Some(Frame { kind, payload: &self.buffer[start..start + len] }))
    }

    /// Bytes that wait for the rest of their frame.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.used
    }
}

/// Judges a header as soon as its bytes allow, so that a peer with another protocol is refused at once.
fn parse_header(bytes: &[u8], cluster: ClusterId) -> Result<Option<(u8, usize, u32)>, FrameError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(FrameError::Garbage);
    }
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let fields = |header: &[u8]| -> Option<(u16, u8, u8, u128, u32, u32)> {
        let mut cursor = Cursor::new(&header[MAGIC.len()..]);
        Some((
            cursor.u16()?,
            cursor.u8()?,
            cursor.u8()?,
            cursor.u128()?,
            cursor.u32()?,
            cursor.u32()?,
        ))
    };
    let (version, kind, zero, found, len, crc) = fields(header).ok_or(FrameError::Garbage)?;
    let hello = version == VERSION_WITH_LEVELS && kind == KIND_HELLO;
    if version != VERSION && !hello {
        return Err(FrameError::Version(version));
    }
    if ClusterId(found) != cluster {
        return Err(FrameError::OtherCluster(ClusterId(found)));
    }
    if zero != 0 {
        return Err(FrameError::Garbage);
    }
    if len as usize > MAX_PAYLOAD_BYTES {
        return Err(FrameError::TooLong(len));
    }
    Ok(Some((kind, len as usize, crc)))
}

/// The sender's identity: the first frame in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The replica.
    pub replica: ReplicaId,
    /// The incarnation of the replica's log; 0 until it lost one. See [`crate::Consensus::request_rejoin`].
    pub incarnation: u64,
    /// The durability of its log: equal on all replicas of a cluster.
    pub durability: Durability,
    /// Its program: equal on all replicas of a cluster.
    pub program: ProgramHash,
    /// The newest change of the members that it knows. See [`crate::Consensus::membership`].
    pub membership: LogIndex,
    /// Said once its cluster has agreed on a level.
    pub levels: Option<Levels>,
}

/// What a node says of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The newest that it knows.
    pub known: Level,
    /// The one that its members must know: see [`crate::Consensus::needed_level`].
    pub needed: Level,
}

impl Hello {
    /// The payload of a [`KIND_HELLO`] frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + 8 + 1 + 32 + 8 + 2 + 2);
        out.extend_from_slice(&self.replica.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.push(match self.durability {
            Durability::Fsync => 0,
            Durability::Memory => 1,
        });
        out.extend_from_slice(&self.program.0);
        out.extend_from_slice(&self.membership.0.to_le_bytes());
        if let Some(Levels { known, needed }) = self.levels {
            out.extend_from_slice(&known.0.to_le_bytes());
            out.extend_from_slice(&needed.0.to_le_bytes());
        }
        out
    }

    /// Reads the payload of a [`KIND_HELLO`] frame. What follows levels is of a later level: who does not know it must still read which one that is.
    pub fn decode(payload: &[u8]) -> Result<Self, FrameError> {
        let fields = || {
            let mut cursor = Cursor::new(payload);
            let replica = ReplicaId(cursor.u64()?);
            let incarnation = cursor.u64()?;
            let durability = match cursor.u8()? {
                0 => Durability::Fsync,
                1 => Durability::Memory,
                _ => return None,
            };
            let program = ProgramHash(cursor.array()?);
            let membership = LogIndex(cursor.u64()?);
            let levels = if cursor.left() == 0 {
                None
            } else {
                Some(Levels { known: Level(cursor.u16()?), needed: Level(cursor.u16()?) })
            };
            Some(Self { replica, incarnation, durability, program, membership, levels })
        };
        fields().ok_or(FrameError::Hello)
    }
}
