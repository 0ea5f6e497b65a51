//! From the clients' sockets into an entry.

use super::conn::{MAX_READ_BYTES, MIN_READ_BYTES};
use super::{DISCARD_BYTES, Gateway, Phase, SMALL_RECORD_BYTES, Socket};
use skein_model::{ConnId, EntryBuilder, Record};
use std::io::ErrorKind;
use std::time::Duration;

/// The most bytes of one connection in one entry, so that a client with much to send does not delay the others.
const FAIR_SHARE_BYTES: usize = MAX_READ_BYTES;

enum Next {
    /// Nothing more to read now.
    Blocked,
    /// More may be read, in a later turn.
    More,
    /// The client shut its sending side.
    Ended,
    /// The client is gone.
    Gone,
}

impl<S: Socket> Gateway<S> {
    /// Puts the clients' events into `entry`: resets, drained buffers, then available bytes, each connection
    /// once and up to its fair share. Events that do not fit wait for the next entry.
    pub fn collect(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        self.crowd.proposed();
        self.collect_answers(entry);
        while entry.room() >= SMALL_RECORD_BYTES {
            let Some(id) = self.resets.pop_front() else { break };
            entry.push(Record::Reset { conn: id });
        }
        while entry.room() >= SMALL_RECORD_BYTES {
            let Some(id) = self.drained.pop_front() else { break };
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.drained_listed = false;
                if conn.phase == Phase::Live {
                    entry.push(Record::Drained { conn: id, bytes: conn.taken });
                    conn.taken = 0;
                }
            }
        }
        for _ in 0..self.ready.len() {
            if entry.room() < 2 * MIN_READ_BYTES {
                break;
            }
            let Some(id) = self.ready.pop_front() else { break };
            self.read_one(id, entry);
        }
    }

    fn read_one(&mut self, id: ConnId, entry: &mut EntryBuilder<Vec<u8>>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.enlisted = false;
        if !conn.may_read() {
            return;
        }
        let held_before = conn.held_in();
        let mut share = FAIR_SHARE_BYTES;
        let next = loop {
            let room = entry.room().saturating_sub(SMALL_RECORD_BYTES);
            let max = conn.read_hint.min(conn.credit()).min(room).min(share);
            if max == 0 {
                break Next::More;
            }
            match entry.push_data_with(id, max, |buffer| conn.socket.read(buffer)) {
                Ok(0) => break Next::Ended,
                Ok(n) => {
                    conn.spend_credit(n);
                    self.bytes_in += n as u64;
                    share -= n;
                    if n < max {
                        let next = (n + 1).next_power_of_two().min(MAX_READ_BYTES);
                        conn.read_hint = next.max(conn.read_hint / 2).max(MIN_READ_BYTES);
                        // A short read empties a stream. Later bytes cause a new event; bytes behind an urgent byte, or an end, do not.
                        if !conn.read_on {
                            break Next::Blocked;
                        }
                    } else {
                        conn.read_hint = (conn.read_hint * 2).min(MAX_READ_BYTES);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break Next::Blocked,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break Next::Gone,
            }
        };
        self.held_bytes += conn.held_in() - held_before;
        match next {
            Next::Blocked => conn.readable = false,
            Next::More => {
                if conn.held_in() > 0 && self.held_bytes > self.limits.memory_bytes {
                    self.cut_client(id);
                } else if conn.may_read() {
                    Self::enlist(&mut self.ready, id, conn);
                }
            }
            Next::Ended => {
                conn.input_ended = true;
                conn.readable = false;
                entry.push(Record::Fin { conn: id });
            }
            Next::Gone => {
                entry.push(Record::Reset { conn: id });
                if let Some(mut conn) = self.remove(id) {
                    conn.socket.reset();
                }
            }
        }
    }

    /// Reads and drops bytes that a client sends after the server has closed the connection.
    pub(super) fn discard(&mut self, id: ConnId, now: Duration) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut scratch = [0; 16 << 10];
        loop {
            match conn.socket.read(&mut scratch) {
                Ok(0) => {
                    conn.input_ended = true;
                    break;
                }
                Ok(n) => {
                    conn.discarded += n;
                    if conn.discarded > DISCARD_BYTES {
                        self.cut_at(id, now);
                        return;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.remove(id);
                    return;
                }
            }
        }
        if conn.input_ended && conn.phase == Phase::Discarding {
            self.remove(id);
        }
    }
}
