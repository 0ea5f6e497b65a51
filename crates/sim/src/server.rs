//! The replicated program: registers over connections, a line a request.
//!
//! `S key value` answers `OK`, `G key` answers `V value`. It stands where a real server and its runtime would: entries
//! go in, frames of the output ring come out, the same ones for the same entries.

use skein_model::frame::FRAME_SCRATCH_BYTES;
use skein_model::{Clock, ConnId, EntryRef, LogIndex, OutFrame, Record, Term};
use std::collections::{BTreeMap, BTreeSet};

/// The server of one replica.
#[derive(Clone, Debug, Default)]
pub struct RegisterServer {
    registers: BTreeMap<u64, u64>,
    /// Bytes of requests that are not complete.
    connections: BTreeMap<ConnId, Vec<u8>>,
    /// Values that were written: each must be written once.
    written: BTreeSet<u64>,
    /// A value that was written twice.
    pub twice: Option<u64>,
    clock: u64,
    /// Answer the next read wrongly.
    pub lies: bool,
}

impl RegisterServer {
    /// Executes an entry and appends what it does to the ring.
    pub fn execute(&mut self, index: LogIndex, entry: &EntryRef<'_>, ring: &mut Vec<u8>) {
        self.clock += 1;
        put(ring, &OutFrame::Admitted { index, clock: Clock(self.clock), ops: 0 });
        for record in entry.records() {
            match record {
                Record::TermStart => self.forget_older_terms(entry.term()),
                Record::Open { conn, .. } => {
                    self.connections.insert(conn, Vec::new());
                }
                Record::Data { conn, bytes } => self.data(conn, bytes, ring),
                Record::Fin { conn } => self.end(conn, ring),
                Record::Reset { conn } => {
                    self.connections.remove(&conn);
                }
                _ => {}
            }
        }
    }

    /// How many connections are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn end(&mut self, conn: ConnId, ring: &mut Vec<u8>) {
        if self.connections.remove(&conn).is_some() {
            put(ring, &OutFrame::Close { conn });
        }
    }

    fn forget_older_terms(&mut self, term: Term) {
        self.connections.retain(|conn, _| conn.term().0 >= term.0 & 0xffff_ffff);
    }

    fn data(&mut self, conn: ConnId, bytes: &[u8], ring: &mut Vec<u8>) {
        // Of a connection that was reset before this was committed.
        let Some(buffer) = self.connections.get_mut(&conn) else { return };
        buffer.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim().to_owned());
        }
        put(ring, &OutFrame::Consumed { conn, bytes: bytes.len() as u64 });
        for line in lines {
            let answer = self.request(&line);
            put(ring, &OutFrame::Send { conn, bytes: answer.as_bytes() });
        }
    }

    fn request(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok());
        match (words.first(), number(1), number(2)) {
            (Some(&"S"), Some(key), Some(value)) => {
                if !self.written.insert(value) {
                    self.twice = Some(value);
                }
                self.registers.insert(key, value);
                "OK\n".to_owned()
            }
            (Some(&"G"), Some(key), None) => {
                let mut value = self.registers.get(&key).copied().unwrap_or_default();
                if std::mem::take(&mut self.lies) {
                    value += 1_000_000;
                }
                format!("V {value}\n")
            }
            _ => "what?\n".to_owned(),
        }
    }
}

/// Appends a frame to a ring.
pub fn put(ring: &mut Vec<u8>, frame: &OutFrame<'_>) {
    let mut scratch = [0; FRAME_SCRATCH_BYTES];
    let (header, payload) = frame.encode(&mut scratch);
    ring.extend_from_slice(header);
    ring.extend_from_slice(payload);
    ring.resize(ring.len().next_multiple_of(8), 0);
}
