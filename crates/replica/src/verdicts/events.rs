//! The last actions of a server, in short form: the first thing to read when replicas differ.

use skein_model::{ConnId, LogIndex, OutFrame};
use std::collections::VecDeque;
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// The number of kept events: 64.
const KEPT: usize = 64;

/// One frame of the output ring in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    index: LogIndex,
    clock: u64,
    kind: &'static str,
    conn: ConnId,
    len: usize,
    hash: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, clock, kind, conn, len, hash } = self;
        write!(
            f,
            "entry {index} clock {clock} {kind} conn {:#x} len {len} hash {hash:016x}",
            conn.0
        )
    }
}

/// The last events of a server.
#[derive(Debug, Default)]
pub struct Events {
    last: VecDeque<Event>,
    index: LogIndex,
    clock: u64,
}

impl Events {
    /// Adds a frame; `raw` are its bytes.
    pub fn frame(&mut self, raw: &[u8], frame: &OutFrame<'_>) {
        let (kind, conn, len) = match *frame {
            OutFrame::Admitted { index, clock, .. } => {
                (self.index, self.clock) = (index, clock.0);
                ("admitted", ConnId(0), 0)
            }
            OutFrame::Send { conn, bytes } => ("send", conn, bytes.len()),
            OutFrame::Fin { conn } => ("fin", conn, 0),
            OutFrame::Close { conn } => ("close", conn, 0),
            OutFrame::Abort { conn } => ("abort", conn, 0),
            OutFrame::Listen { addr } => ("listen", ConnId(0), usize::from(addr.port)),
            OutFrame::Unlisten { addr } => ("unlisten", ConnId(0), usize::from(addr.port)),
            OutFrame::Connect { conn, addr } => ("connect", conn, usize::from(addr.port)),
            OutFrame::ListenDatagram { addr } => {
                ("listen datagram", ConnId(0), usize::from(addr.port))
            }
            OutFrame::UnlistenDatagram { addr } => {
                ("unlisten datagram", ConnId(0), usize::from(addr.port))
            }
            OutFrame::Datagram { bytes, .. } => ("datagram", ConnId(0), bytes.len()),
            OutFrame::Exit { .. } => ("exit", ConnId(0), 0),
            OutFrame::Consumed { .. }
            | OutFrame::Refused { .. }
            | OutFrame::Asked { .. }
            | OutFrame::Differs { .. }
            | OutFrame::Notice { .. }
            | OutFrame::Fatal { .. } => return,
        };
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        // Hashing a large reply a second time would cost; its first bytes tell enough.
        let hash = xxh3_64(&raw[..raw.len().min(256)]);
        self.last.push_back(Event { index: self.index, clock: self.clock, kind, conn, len, hash });
    }

    /// The events, oldest first, one line each.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.last.iter().map(Event::to_string).collect()
    }
}
