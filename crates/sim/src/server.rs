//! The replicated program: registers over connections, a line a request, with timers, datagrams and connections of its own.
//!
//! - `S key value` sets a register, prints a line about it and answers `OK`; `G key` answers `V value`;
//! - `B turns` makes the server busy for a number of turns: it waits at slots, time bubbles let it continue, and then it answers `OK`;
//! - `L bytes` answers a line of that length;
//! - `E` answers `OK` and closes the connection, `Q bytes` does so after a line of that length;
//! - `C host` begins a connection to a host outside ([`crate::outside`]) and answers `OK`;
//! - signal 15 ends it in order; its registers are in files, and the server of the next edition has them;
//! - `X status` ends it, `K signal` kills it, and `D` makes it write impossible data into its arena.
//!
//! A datagram is answered by one. The timer is due at an interval of virtual time, counts its expirations, and sends a datagram, too,
//! at some of them.
//!
//! It stands in for a real server and its runtime: entries go in, frames of the output ring come out, the same ones for the same entries.
//! All its actions beyond its connections with clients name their cause, so that a check can see that it is a committed entry.

use skein_model::frame::FRAME_SCRATCH_BYTES;
use skein_model::{Clock, ConnId, EntryRef, LogIndex, OutFrame, Record, SockAddr, Term};
use std::collections::{BTreeMap, BTreeSet};

/// The signal by which it ends; others mean nothing to it.
pub const ENDS: u8 = 15;
/// An edition whose server ends at once,
pub const BROKEN: &str = "broken";
/// and one whose server never listens.
pub const SILENT: &str = "silent";
/// And one whose program the loader refuses: its server ends before it gets an entry.
pub const REFUSED: &str = "refused";

/// Its port for connections and datagrams.
pub const PORT: u16 = 7000;
/// The destination of its timer's datagrams.
pub const COLLECTOR: SockAddr = SockAddr::v6([0xfd; 16], 514);
/// The network of outgoing connections: the rest of the address names their cause, the port the kind of host.
const OUTSIDE: [u8; 2] = [0xfd, 0x01];

/// The cause of an effect: an entry's index and a hash of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The entry.
    pub index: LogIndex,
    /// Of its payload.
    pub hash: u64,
}

impl Cause {
    /// The execution of this entry.
    #[must_use]
    pub fn of(index: LogIndex, payload: &[u8]) -> Self {
        // FNV-1a, by words: any hash that separates different entries.
        let word = |hash: u64, bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
        };
        Self { index, hash: payload.chunks(8).fold(0xcbf2_9ce4_8422_2325, word) }
    }

    /// The bytes of one of its effects; `n` tells them apart.
    #[must_use]
    pub fn encode(self, n: u8) -> [u8; 17] {
        let mut bytes = [n; 17];
        bytes[..8].copy_from_slice(&self.index.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    /// The cause that [`encode`](Self::encode) put into bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, u8)> {
        let bytes = <[u8; 17]>::try_from(bytes.get(..17)?).ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Some((Self { index: LogIndex(number(0)), hash: number(8) }, bytes[16]))
    }

    /// The address of a host outside for a connection with this cause.
    #[must_use]
    pub fn address(self, host: u16) -> SockAddr {
        let mut ip = [0; 16];
        ip[..2].copy_from_slice(&OUTSIDE);
        // Runs are short: every index fits.
        ip[2..8].copy_from_slice(&self.index.0.to_be_bytes()[2..]);
        ip[8..].copy_from_slice(&self.hash.to_be_bytes());
        SockAddr::v6(ip, host)
    }

    /// The cause that an address names.
    #[must_use]
    pub fn of_address(address: SockAddr) -> Option<Self> {
        let ip = address.ip;
        let mut index = [0; 8];
        index[2..].copy_from_slice(&ip[2..8]);
        let hash = u64::from_be_bytes(ip[8..].try_into().expect("8 bytes"));
        (ip[..2] == OUTSIDE).then_some(Self { index: LogIndex(u64::from_be_bytes(index)), hash })
    }
}

/// The server of one replica.
#[derive(Clone, Debug, Default)]
pub struct RegisterServer {
    registers: BTreeMap<u64, u64>,
    /// Bytes of requests that are not complete.
    connections: BTreeMap<ConnId, Vec<u8>>,
    /// Connections that it began and that have not ended.
    outgoing: BTreeSet<ConnId>,
    term: Term,
    /// The number of those that it began in this term.
    begun: u32,
    /// Written values: each must be written once.
    written: BTreeSet<u64>,
    /// A value that was written twice.
    pub twice: Option<u64>,
    /// How often the log told it to start.
    pub starts: u32,
    /// The lines printed since the last call that took them: each with its cause.
    pub printed: Vec<Cause>,
    clock: u64,
    /// Its time of day.
    now_ns: u64,
    /// The interval of its timer, in ns; 0: it has none.
    timer_ns: u64,
    /// It says something at each expiration that this divides; 0: at none.
    timer_speaks: u64,
    expirations: u64,
    due_ns: u64,
    /// Turns for which it is busy before it waits for clients,
    busy: u64,
    /// and the client that waits for them.
    waiting: Vec<ConnId>,
    /// The entry that it executes, and the number of its effects so far.
    cause: Cause,
    effects: u8,
    /// Its exit status, when it has ended.
    pub ended: Option<i32>,
    /// It writes garbage after its output.
    pub raves: bool,
    /// Answer the next read wrongly.
    pub lies: bool,
    /// Its answers have other bytes than those of others, and the same meaning.
    pub differs: bool,
    /// So it will be from this entry on.
    pub differs_from: Option<LogIndex>,
    /// What it was started as,
    edition: String,
    /// and the registers and written values in its files, which it saves when it ends in order.
    saved: (BTreeMap<u64, u64>, BTreeSet<u64>),
    /// It has given one.
    pub differed: bool,
    /// Its memory has what others' have not, and no answer shows it.
    pub flipped: bool,
}

impl RegisterServer {
    /// A server whose timer is due every `timer_ns`, 0 for none, and says something at each expiration that `timer_speaks` divides.
    #[must_use]
    pub fn new(timer_ns: u64, timer_speaks: u64) -> Self {
        Self { timer_ns, timer_speaks, ..Self::default() }
    }

    /// The files that it leaves when it ends: nothing else does a server of the next edition have.
    #[must_use]
    pub fn left(&self) -> Self {
        let (registers, written) = self.saved.clone();
        let timer = Self::new(self.timer_ns, self.timer_speaks);
        Self { registers, written, saved: self.saved.clone(), twice: self.twice, ..timer }
    }

    /// The same as an edition.
    #[must_use]
    pub fn of_edition(self, about: &str) -> Self {
        Self { edition: about.to_owned(), ..self }
    }

    /// As it is in an image: what is wrong with it is not.
    #[must_use]
    pub fn image(&self) -> Self {
        let (lies, differs, differed, raves) = (false, false, false, false);
        let printed = Vec::new();
        Self { printed, lies, differs, differs_from: None, differed, raves, ..self.clone() }
    }

    /// The status by which the loader ends it, before it executes anything, if it does.
    #[must_use]
    pub fn is_refused(&self) -> Option<i32> {
        (self.edition == REFUSED).then_some(127 << 8)
    }

    /// Executes an entry and appends its output to the ring.
    pub fn execute(
        &mut self,
        index: LogIndex,
        payload: &[u8],
        entry: &EntryRef<'_>,
        ring: &mut Vec<u8>,
    ) {
        self.clock += 1;
        self.cause = Cause::of(index, payload);
        self.effects = 0;
        self.differs |= self.differs_from.is_some_and(|from| index >= from);
        let rings = self.tell_time(entry.wall().0);
        self.expirations += u64::from(rings);
        let speaks = self.expirations.checked_rem(self.timer_speaks) == Some(0);
        put(ring, &OutFrame::Admitted { index, clock: Clock(self.clock), ops: self.busy });
        if rings && speaks {
            self.datagram(COLLECTOR, ring);
        }
        for record in entry.records() {
            match record {
                Record::Signal { number } if number == ENDS => {
                    self.saved = (self.registers.clone(), self.written.clone());
                    self.ended = Some(0);
                    put(ring, &OutFrame::Exit { status: 0 });
                }
                Record::Start(_) if self.edition == BROKEN => {
                    self.ended = Some(1 << 8);
                    put(ring, &OutFrame::Exit { status: 1 << 8 });
                }
                Record::Start(_) if self.edition == SILENT => {}
                Record::Start(_) => {
                    self.starts += 1;
                    // Servers of different editions are told apart by what they say.
                    self.clock += 1000 * self.edition.len() as u64;
                    let addr = SockAddr::v4([0, 0, 0, 0], PORT);
                    put(ring, &OutFrame::Listen { addr });
                    put(ring, &OutFrame::ListenDatagram { addr });
                }
                Record::TermStart => self.begin_term(entry.term()),
                Record::Open { conn, .. } => {
                    self.connections.insert(conn, Vec::new());
                }
                Record::Data { conn, bytes } if conn.is_outgoing() => {
                    self.told(conn, bytes.len(), ring);
                }
                Record::Data { conn, bytes } => self.data(conn, bytes, ring),
                Record::Fin { conn } => self.end(conn, ring),
                Record::Reset { conn } => {
                    self.connections.remove(&conn);
                    self.outgoing.remove(&conn);
                }
                Record::Connected { conn } if self.outgoing.contains(&conn) => {
                    let hello = self.cause.encode(self.next_effect());
                    put(ring, &OutFrame::Send { conn, bytes: &hello });
                }
                Record::ConnectFailed { conn, errno } => {
                    self.outgoing.remove(&conn);
                    self.clock += u64::from(errno);
                }
                Record::Datagram { peer, .. } => self.datagram(peer, ring),
                Record::DatagramFailed { errno, .. } => self.clock += u64::from(errno),
                Record::Bubble { turns } => {
                    self.busy = self.busy.saturating_sub(turns.into());
                    if self.busy == 0 {
                        self.answer_waiting(ring);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether it waits at a slot, and not for clients or its timer.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// The deadline of its timer, in virtual time.
    #[must_use]
    pub const fn deadline_ns(&self) -> u64 {
        if self.timer_ns > 0 && self.now_ns > 0 { self.due_ns } else { u64::MAX }
    }

    /// Its time of day.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The connections that it has: clients' and its own.
    pub fn connections(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.connections.keys().chain(&self.outgoing).copied()
    }

    /// Answers whether its timer was due.
    fn tell_time(&mut self, now_ns: u64) -> bool {
        if self.now_ns == 0 {
            self.due_ns = now_ns + self.timer_ns;
        }
        self.now_ns = now_ns;
        let due = self.timer_ns > 0 && self.due_ns <= now_ns;
        if due {
            self.clock += 1;
            self.due_ns = now_ns + self.timer_ns;
        }
        due
    }

    /// The connections of earlier terms are reset: their other ends were an earlier leader's.
    fn begin_term(&mut self, term: Term) {
        let term = Term(term.0 & 0xffff_ffff);
        self.connections.retain(|conn, _| conn.term() >= term);
        self.outgoing.retain(|conn| conn.term() >= term);
        if self.term != term {
            (self.term, self.begun) = (term, 0);
        }
    }

    fn end(&mut self, conn: ConnId, ring: &mut Vec<u8>) {
        let had = self.connections.remove(&conn).is_some() | self.outgoing.remove(&conn);
        if had {
            put(ring, &OutFrame::Close { conn });
        }
    }

    /// A host outside has answered, and will send no more.
    fn told(&mut self, conn: ConnId, bytes: usize, ring: &mut Vec<u8>) {
        if self.outgoing.contains(&conn) {
            put(ring, &OutFrame::Consumed { conn, bytes: bytes as u64 });
            self.end(conn, ring);
        }
    }

    fn next_effect(&mut self) -> u8 {
        self.effects += 1;
        self.effects
    }

    fn datagram(&mut self, peer: SockAddr, ring: &mut Vec<u8>) {
        let bytes = self.cause.encode(self.next_effect());
        let local = SockAddr::v4([10, 0, 0, 9], PORT);
        put(ring, &OutFrame::Datagram { local, peer, bytes: &bytes });
    }

    fn answer_waiting(&mut self, ring: &mut Vec<u8>) {
        for conn in std::mem::take(&mut self.waiting) {
            if self.connections.contains_key(&conn) {
                put(ring, &OutFrame::Send { conn, bytes: b"OK\n" });
            }
        }
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
            if let Some(mut answer) = self.request(conn, &line, ring) {
                if self.differs {
                    answer.insert(answer.len() - 1, ' ');
                    self.differed = true;
                }
                put(ring, &OutFrame::Send { conn, bytes: answer.as_bytes() });
            }
            if line == "E" || line.starts_with("Q ") {
                self.end(conn, ring);
                return;
            }
        }
    }

    fn request(&mut self, conn: ConnId, line: &str, ring: &mut Vec<u8>) -> Option<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok());
        let answer = match (words.first(), number(1), number(2)) {
            (Some(&"S"), Some(key), Some(value)) => {
                if !self.written.insert(value) {
                    self.twice = Some(value);
                }
                self.registers.insert(key, value);
                self.printed.push(self.cause);
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
                self.waiting.push(conn);
                return None;
            }
            (Some(&("L" | "Q")), Some(bytes), None) => "L".repeat(bytes as usize) + "\n",
            (Some(&"C"), Some(host), None) => {
                self.begun += 1;
                let conn = ConnId::outgoing(self.term, self.begun);
                self.outgoing.insert(conn);
                let addr = self.cause.address(host as u16);
                put(ring, &OutFrame::Connect { conn, addr });
                "OK\n".to_owned()
            }
            (Some(&"E"), None, None) => "OK\n".to_owned(),
            (Some(&"D"), None, None) => {
                self.raves = true;
                "OK\n".to_owned()
            }
            (Some(&"X"), Some(status), None) => {
                let status = (status as i32 & 0xff) << 8;
                self.ended = Some(status);
                put(ring, &OutFrame::Exit { status });
                return None;
            }
            (Some(&"K"), Some(signal), None) => {
                self.ended = Some(signal as i32 & 0x7f);
                return None;
            }
            _ => "what?\n".to_owned(),
        };
        Some(answer)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_by_bytes_and_addresses() {
        let cause = Cause::of(LogIndex(70_000), b"an entry");
        assert_ne!(cause, Cause::of(LogIndex(70_000), b"an entrz"));
        assert_eq!(Cause::decode(&cause.encode(3)), Some((cause, 3)));
        assert_eq!(Cause::of_address(cause.address(5)), Some(cause));
        assert_eq!(Cause::of_address(COLLECTOR), None);
    }
}
