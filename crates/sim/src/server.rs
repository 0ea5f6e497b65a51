//! The replicated program: registers over connections, a line a request, with a timer of its own.
//!
//! - `S key value` answers `OK`, `G key` answers `V value`;
//! - `B turns` answers `OK` and makes the server busy for so many turns: it waits at slots, and time bubbles let it go on;
//! - `X status` ends it; `D` makes it write what no server writes.
//!
//! It stands where a real server and its runtime would: entries go in, frames of the output ring come out, the same ones for the same entries. Its
//! timer is due every so often of its own day, and counts the times: that is seen in the logical clock of what it admits.

use skein_model::frame::FRAME_SCRATCH_BYTES;
use skein_model::{Clock, ConnId, EntryRef, LogIndex, OutFrame, Record, SockAddr, Term};
use std::collections::{BTreeMap, BTreeSet};

/// Where it listens.
pub const PORT: u16 = 7000;

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
    /// Its time of day.
    now_ns: u64,
    /// How often its timer is due, in ns; 0: it has none.
    timer_ns: u64,
    due_ns: u64,
    /// Turns that it goes on for before it waits for clients.
    busy: u64,
    /// The status with which it has ended.
    pub ended: Option<i32>,
    /// It writes garbage instead of what it has to say.
    pub raves: bool,
    /// Answer the next read wrongly.
    pub lies: bool,
}

impl RegisterServer {
    /// One whose timer is due every `timer_ns`; 0 for none.
    #[must_use]
    pub fn new(timer_ns: u64) -> Self {
        Self { timer_ns, ..Self::default() }
    }

    /// Executes an entry and appends what it does to the ring.
    pub fn execute(&mut self, index: LogIndex, entry: &EntryRef<'_>, ring: &mut Vec<u8>) {
        self.clock += 1;
        self.tell_time(entry.wall().0);
        put(ring, &OutFrame::Admitted { index, clock: Clock(self.clock), ops: self.busy });
        for record in entry.records() {
            match record {
                Record::Start(_) => {
                    put(ring, &OutFrame::Listen { addr: SockAddr::v4([0, 0, 0, 0], PORT) });
                }
                Record::TermStart => self.forget_older_terms(entry.term()),
                Record::Open { conn, .. } => {
                    self.connections.insert(conn, Vec::new());
                }
                Record::Data { conn, bytes } => self.data(conn, bytes, ring),
                Record::Fin { conn } => self.end(conn, ring),
                Record::Reset { conn } => {
                    self.connections.remove(&conn);
                }
                Record::Bubble { turns } => self.busy = self.busy.saturating_sub(turns.into()),
                _ => {}
            }
        }
    }

    /// Whether it waits at a slot, and not for clients or its timer.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// When its timer is due, in its time of day.
    #[must_use]
    pub const fn deadline_ns(&self) -> u64 {
        if self.timer_ns > 0 && self.now_ns > 0 { self.due_ns } else { u64::MAX }
    }

    /// Its time of day.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn tell_time(&mut self, now_ns: u64) {
        if self.now_ns == 0 {
            self.due_ns = now_ns + self.timer_ns;
        }
        self.now_ns = now_ns;
        if self.timer_ns > 0 && self.due_ns <= now_ns {
            self.clock += 1;
            self.due_ns = now_ns + self.timer_ns;
        }
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
            let answer = self.request(&line, ring);
            put(ring, &OutFrame::Send { conn, bytes: answer.as_bytes() });
        }
    }

    fn request(&mut self, line: &str, ring: &mut Vec<u8>) -> String {
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
            (Some(&"B"), Some(turns), None) => {
                self.busy += turns;
                "OK\n".to_owned()
            }
            (Some(&"D"), None, None) => {
                self.raves = true;
                "OK\n".to_owned()
            }
            (Some(&"X"), Some(status), None) => {
                let status = (status & 0xff) as i32;
                self.ended = Some(status << 8);
                put(ring, &OutFrame::Exit { status: status << 8 });
                "OK\n".to_owned()
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
