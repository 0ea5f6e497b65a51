//! Frames of the arena's two rings.
//!
//! Input ring, node to server: one frame an entry, `len u32 | 0 u32 | index u64 | entry bytes | padding to 8`.
//!
//! Output ring, server to node: `kind u8 | 0 u8 | 0 u16 | len u32 | conn u64 | payload | padding to 8`. The same server
//! executing the same entries writes the same frames, however full the ring is: a write of the server is always cut into
//! pieces of [`MAX_SEND_BYTES`]. So a hash over frames in order is a digest of the server's output. Frames of kinds
//! [`OutFrame::Consumed`], [`OutFrame::Notice`] and [`OutFrame::Refused`] are advice to the node and in no digest; nor are those about
//! files of the host and [`OutFrame::Fatal`].
//!
//! The node treats the output ring as hostile: [`OutFrame::parse`] checks everything.

use crate::limits::{MAX_DATAGRAM_BYTES, SEND_WINDOW_BYTES};
use crate::padding::pad8;
use crate::{Clock, ConnId, LogIndex, SockAddr};

/// Bytes of a frame's header, in both rings.
pub const FRAME_HEADER_BYTES: usize = 16;
/// The largest piece of one write of the server: 64 KiB.
pub const MAX_SEND_BYTES: usize = 64 << 10;
/// Bytes in front of a datagram's bytes: its source and its destination.
const DATAGRAM_PREFIX_BYTES: usize = 2 * SockAddr::WIRE_BYTES;
/// Size of the buffer that [`OutFrame::encode`] needs.
pub const FRAME_SCRATCH_BYTES: usize = FRAME_HEADER_BYTES + DATAGRAM_PREFIX_BYTES;
/// The largest payload of a frame.
const MAX_PAYLOAD_BYTES: usize = MAX_SEND_BYTES + DATAGRAM_PREFIX_BYTES;

/// The start of a [`OutFrame::Notice`] that an operator must see: the server may not write somewhere.
pub const NOT_WRITABLE: &str = "not writable: ";

const _: () = assert!(MAX_DATAGRAM_BYTES <= MAX_SEND_BYTES);
const _: () = assert!(SEND_WINDOW_BYTES.is_multiple_of(MAX_SEND_BYTES));

/// The length of an entry's frame in the input ring.
#[must_use]
pub const fn entry_frame_bytes(entry: &[u8]) -> usize {
    pad8(FRAME_HEADER_BYTES + entry.len())
}

/// Writes the frame of an entry, for the input ring.
pub fn put_entry_frame(space: &mut [u8], index: LogIndex, entry: &[u8]) {
    let (header, rest) = space.split_at_mut(FRAME_HEADER_BYTES);
    header.fill(0);
    header[..4].copy_from_slice(&(entry.len() as u32).to_le_bytes());
    header[8..].copy_from_slice(&index.0.to_le_bytes());
    rest[..entry.len()].copy_from_slice(entry);
    rest[entry.len()..].fill(0);
}

/// An action of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutFrame<'a> {
    /// An entry was admitted at this logical time. All later frames, up to the next such mark, follow from it.
    Admitted {
        /// The entry.
        index: LogIndex,
        /// Turns taken before it.
        clock: Clock,
        /// Operations done before it.
        ops: u64,
    },
    /// Bytes to a client.
    Send {
        /// The connection.
        conn: ConnId,
        /// The bytes, at most [`MAX_SEND_BYTES`].
        bytes: &'a [u8],
    },
    /// The server shut its sending side of a connection down.
    Fin {
        /// The connection.
        conn: ConnId,
    },
    /// The server closed a connection in order: sent bytes are delivered, then both directions end.
    Close {
        /// The connection.
        conn: ConnId,
    },
    /// The server reset a connection (or no socket listens there).
    Abort {
        /// The connection.
        conn: ConnId,
    },
    /// The server read bytes from a connection's receive buffer: credit for the gateway. Not part of the digest.
    Consumed {
        /// The connection.
        conn: ConnId,
        /// The number of bytes since the last such frame.
        bytes: u64,
    },
    /// The server listens.
    Listen {
        /// The address, its port not 0.
        addr: SockAddr,
    },
    /// The server no longer listens.
    Unlisten {
        /// The address.
        addr: SockAddr,
    },
    /// The server begins a connection to the outside.
    Connect {
        /// The connection, one of [`ConnId::outgoing`]; each is begun once.
        conn: ConnId,
        /// Its destination.
        addr: SockAddr,
    },
    /// The server receives datagrams at a port of its choice.
    ListenDatagram {
        /// The address, its port not 0.
        addr: SockAddr,
    },
    /// A datagram socket that the node knows, by [`Self::ListenDatagram`] or [`Self::Datagram`], is closed.
    UnlistenDatagram {
        /// The address.
        addr: SockAddr,
    },
    /// A datagram to the outside.
    Datagram {
        /// The server's socket.
        local: SockAddr,
        /// The destination.
        peer: SockAddr,
        /// The bytes, at most [`MAX_DATAGRAM_BYTES`], possibly none.
        bytes: &'a [u8],
    },
    /// The server ended with this status, as `waitpid` reports it.
    Exit {
        /// The status.
        status: i32,
    },
    /// A call that Skein does not support was answered with an error; the server goes on.
    Refused {
        /// The call's name and arguments; then, behind a zero byte, the calling place ([`split_refused`]).
        call: &'a [u8],
    },
    /// A line for the node's log.
    Notice {
        /// The line, UTF-8.
        text: &'a [u8],
    },
    /// The server has looked at files of its host that were not agreed on yet. Later frames are valid only after the record with this number
    /// ([`crate::Record::Files`]) has agreed on them.
    Asked {
        /// The number of the question, from 1.
        ask: u64,
    },
    /// A file of the host differs from the log, or changed since the server first used it: the server stops.
    Differs {
        /// The file and the difference, UTF-8.
        text: &'a [u8],
    },
    /// The runtime stops: it cannot make an action of the server deterministic, or an invariant is broken.
    Fatal {
        /// The reason, UTF-8.
        text: &'a [u8],
    },
}

const ADMITTED: u8 = 1;
const SEND: u8 = 2;
const FIN: u8 = 3;
const CLOSE: u8 = 4;
const ABORT: u8 = 5;
const CONSUMED: u8 = 6;
const LISTEN: u8 = 7;
const UNLISTEN: u8 = 8;
const EXIT: u8 = 9;
const REFUSED: u8 = 10;
const NOTICE: u8 = 11;
const FATAL: u8 = 12;
const CONNECT: u8 = 13;
const LISTEN_DATAGRAM: u8 = 14;
const UNLISTEN_DATAGRAM: u8 = 15;
const DATAGRAM: u8 = 16;
const ASKED: u8 = 17;
const DIFFERS: u8 = 18;

fn put_addr(scratch: &mut [u8], addr: SockAddr) -> usize {
    scratch[..SockAddr::WIRE_BYTES].copy_from_slice(&addr.encode());
    SockAddr::WIRE_BYTES
}

/// The reason why bytes in the output ring are not a frame: the server has damaged the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutFrameError {
    /// The kind byte found.
    pub kind: u8,
    /// The length found.
    pub len: u32,
}

impl core::fmt::Display for OutFrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "output ring holds no frame (kind {}, length {})", self.kind, self.len)
    }
}

impl core::error::Error for OutFrameError {}

/// The text of an [`OutFrame::Refused`]: the call, and its calling place (`libfoo.so+0x12ab`; empty when that is not known).
#[must_use]
pub fn split_refused(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == 0) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

impl<'a> OutFrame<'a> {
    /// The frame's bytes in two parts, one after the other; the caller pads to 8. The first, in `scratch`, is encoded here;
    /// the second is the frame's own `bytes`.
    pub fn encode<'s>(&self, scratch: &'s mut [u8; FRAME_SCRATCH_BYTES]) -> (&'s [u8], &'a [u8]) {
        let (header, scratch_rest) = scratch.split_at_mut(FRAME_HEADER_BYTES);
        let (kind, conn, own, payload) = self.parts(scratch_rest);
        header.fill(0);
        header[0] = kind;
        header[4..8].copy_from_slice(&((own + payload.len()) as u32).to_le_bytes());
        header[8..16].copy_from_slice(&conn.to_le_bytes());
        (&scratch[..FRAME_HEADER_BYTES + own], payload)
    }

    /// Kind, connection, the number of bytes in `scratch`, and the borrowed bytes.
    fn parts(&self, scratch: &mut [u8]) -> (u8, u64, usize, &'a [u8]) {
        match *self {
            OutFrame::Admitted { index, clock, ops } => {
                scratch[..8].copy_from_slice(&clock.0.to_le_bytes());
                scratch[8..16].copy_from_slice(&ops.to_le_bytes());
                (ADMITTED, index.0, 16, &[])
            }
            OutFrame::Send { conn, bytes } => (SEND, conn.0, 0, bytes),
            OutFrame::Fin { conn } => (FIN, conn.0, 0, &[]),
            OutFrame::Close { conn } => (CLOSE, conn.0, 0, &[]),
            OutFrame::Abort { conn } => (ABORT, conn.0, 0, &[]),
            OutFrame::Consumed { conn, bytes } => {
                scratch[..8].copy_from_slice(&bytes.to_le_bytes());
                (CONSUMED, conn.0, 8, &[])
            }
            OutFrame::Listen { addr } => (LISTEN, 0, put_addr(scratch, addr), &[]),
            OutFrame::Unlisten { addr } => (UNLISTEN, 0, put_addr(scratch, addr), &[]),
            OutFrame::Connect { conn, addr } => (CONNECT, conn.0, put_addr(scratch, addr), &[]),
            OutFrame::ListenDatagram { addr } => (LISTEN_DATAGRAM, 0, put_addr(scratch, addr), &[]),
            OutFrame::UnlistenDatagram { addr } => {
                (UNLISTEN_DATAGRAM, 0, put_addr(scratch, addr), &[])
            }
            OutFrame::Datagram { local, peer, bytes } => {
                let pair = SockAddr::encode_pair(local, peer);
                scratch[..DATAGRAM_PREFIX_BYTES].copy_from_slice(&pair);
                (DATAGRAM, 0, DATAGRAM_PREFIX_BYTES, bytes)
            }
            OutFrame::Exit { status } => {
                scratch[..4].copy_from_slice(&status.to_le_bytes());
                (EXIT, 0, 4, &[])
            }
            OutFrame::Refused { call } => (REFUSED, 0, 0, call),
            OutFrame::Notice { text } => (NOTICE, 0, 0, text),
            OutFrame::Fatal { text } => (FATAL, 0, 0, text),
            OutFrame::Asked { ask } => (ASKED, ask, 0, &[]),
            OutFrame::Differs { text } => (DIFFERS, 0, 0, text),
        }
    }

    /// Reads the first frame of `bytes` and answers its length with padding; `None` when it is incomplete.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, OutFrameError> {
        let Some(header) = bytes.get(..FRAME_HEADER_BYTES) else { return Ok(None) };
        let kind = header[0];
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let conn_bytes: [u8; 8] = header[8..16].try_into().expect("8 bytes of a 16 byte header");
        let conn = ConnId(u64::from_le_bytes(conn_bytes));
        let bad = OutFrameError { kind, len };
        let most = if kind == DATAGRAM { MAX_PAYLOAD_BYTES } else { MAX_SEND_BYTES };
        if len as usize > most {
            return Err(bad);
        }
        let end = FRAME_HEADER_BYTES + len as usize;
        let Some(payload) = bytes.get(FRAME_HEADER_BYTES..end) else { return Ok(None) };
        if bytes.len() < pad8(end) {
            return Ok(None);
        }
        let u64_at = |at: usize| {
            payload
                .get(at..at + 8)
                .map(|b| u64::from_le_bytes(b.try_into().expect("a slice of 8 bytes")))
                .ok_or(bad)
        };
        let frame = match (kind, payload.len()) {
            (ADMITTED, 16) => OutFrame::Admitted {
                index: LogIndex(conn.0),
                clock: Clock(u64_at(0)?),
                ops: u64_at(8)?,
            },
            (SEND, 1..) => OutFrame::Send { conn, bytes: payload },
            (FIN, 0) => OutFrame::Fin { conn },
            (CLOSE, 0) => OutFrame::Close { conn },
            (ABORT, 0) => OutFrame::Abort { conn },
            (CONSUMED, 8) => OutFrame::Consumed { conn, bytes: u64_at(0)? },
            (LISTEN, 20) => OutFrame::Listen { addr: SockAddr::decode(payload).ok_or(bad)? },
            (UNLISTEN, 20) => OutFrame::Unlisten { addr: SockAddr::decode(payload).ok_or(bad)? },
            (CONNECT, 20) if conn.is_outgoing() => {
                OutFrame::Connect { conn, addr: SockAddr::decode(payload).ok_or(bad)? }
            }
            (LISTEN_DATAGRAM, 20) => {
                OutFrame::ListenDatagram { addr: SockAddr::decode(payload).ok_or(bad)? }
            }
            (UNLISTEN_DATAGRAM, 20) => {
                OutFrame::UnlistenDatagram { addr: SockAddr::decode(payload).ok_or(bad)? }
            }
            (DATAGRAM, _) => match SockAddr::split_pair(payload) {
                Some((local, peer, bytes)) if bytes.len() <= MAX_DATAGRAM_BYTES => {
                    OutFrame::Datagram { local, peer, bytes }
                }
                _ => return Err(bad),
            },
            (EXIT, 4) => OutFrame::Exit {
                status: i32::from_le_bytes(payload.try_into().expect("4 bytes by the match")),
            },
            (REFUSED, _) => OutFrame::Refused { call: payload },
            (NOTICE, _) => OutFrame::Notice { text: payload },
            (FATAL, _) => OutFrame::Fatal { text: payload },
            (ASKED, 0) => OutFrame::Asked { ask: conn.0 },
            (DIFFERS, _) => OutFrame::Differs { text: payload },
            _ => return Err(bad),
        };
        Ok(Some((frame, pad8(end))))
    }

    /// Whether the frame is a deterministic consequence of the entries, and so part of the digest.
    #[must_use]
    pub const fn is_output(&self) -> bool {
        !matches!(
            self,
            OutFrame::Consumed { .. }
                | OutFrame::Notice { .. }
                | OutFrame::Refused { .. }
                | OutFrame::Fatal { .. }
                | OutFrame::Asked { .. }
                | OutFrame::Differs { .. }
        )
    }
}
