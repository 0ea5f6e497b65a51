//! Inputs of a server guest: records for its log that own their bytes.

use skein_model::entry::Record;
use skein_model::{ConnId, SockAddr};

/// A record that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// See [`Record::Open`].
    Open(ConnId, SockAddr, SockAddr),
    /// See [`Record::Data`].
    Data(ConnId, Vec<u8>),
    /// See [`Record::Fin`].
    Fin(ConnId),
    /// See [`Record::Reset`].
    Reset(ConnId),
    /// See [`Record::Drained`].
    Drained(ConnId, u64),
    /// See [`Record::Connected`].
    Connected(ConnId),
    /// See [`Record::ConnectFailed`].
    ConnectFailed(ConnId, u16),
    /// See [`Record::Signal`].
    Signal(u8),
    /// See [`Record::Datagram`]: local and peer.
    Datagram(SockAddr, SockAddr, Vec<u8>),
    /// See [`Record::DatagramFailed`].
    DatagramFailed(SockAddr, SockAddr, u16),
    /// See [`Record::TermStart`]; the entry is the first of the next term.
    TermStart,
}

impl Input {
    /// As a record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        match self {
            Self::Open(conn, peer, local) => {
                Record::Open { conn: *conn, peer: *peer, local: *local }
            }
            Self::Data(conn, bytes) => Record::Data { conn: *conn, bytes },
            Self::Fin(conn) => Record::Fin { conn: *conn },
            Self::Reset(conn) => Record::Reset { conn: *conn },
            Self::Drained(conn, bytes) => Record::Drained { conn: *conn, bytes: *bytes },
            Self::Connected(conn) => Record::Connected { conn: *conn },
            Self::ConnectFailed(conn, errno) => {
                Record::ConnectFailed { conn: *conn, errno: *errno }
            }
            Self::Signal(number) => Record::Signal { number: *number },
            Self::Datagram(local, peer, bytes) => {
                Record::Datagram { local: *local, peer: *peer, bytes }
            }
            Self::DatagramFailed(local, peer, errno) => {
                Record::DatagramFailed { local: *local, peer: *peer, errno: *errno }
            }
            Self::TermStart => Record::TermStart,
        }
    }
}
