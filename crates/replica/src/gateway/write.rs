//! From the output ring to the clients' sockets.

use super::conn::Conn;
use super::{DISCARD_FOR, Gateway, LINGER_IDLE, Phase, Socket, WindowExceeded};
use skein_model::ConnId;
use skein_model::limits::{DRAINED_STEP_BYTES, SEND_WINDOW_BYTES};
use std::io::{ErrorKind, IoSlice};
use std::time::Duration;

/// Slices in one write.
const MAX_SLICES: usize = 64;
/// A queue never holds more than this: the server's virtual send buffer is smaller, cut pieces included.
const MAX_QUEUE_BYTES: usize = 2 * SEND_WINDOW_BYTES;

impl<S: Socket> Gateway<S> {
    /// Writes the frames noted by [`frame`](Self::frame) since the last call; `ring` is the slice that the frames were parsed from.
    /// Afterwards the ring's bytes are no longer needed.
    ///
    /// # Errors
    /// The server sent more to a connection than its virtual send buffer holds.
    pub fn flush(&mut self, ring: &[u8], now: Duration) -> Result<(), WindowExceeded> {
        let mut result = Ok(());
        let mut dirty = std::mem::take(&mut self.dirty);
        for id in dirty.drain(..) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.dirty = false;
            }
            self.write(id, ring, now);
            if self.conns.get(&id).is_some_and(|c| c.queued() > MAX_QUEUE_BYTES) {
                result = Err(WindowExceeded(id));
            }
        }
        self.dirty = dirty;
        while self.held_bytes > self.limits.memory_bytes {
            // The client that takes the least of its output.
            let queued = |(id, conn): (&ConnId, &Conn<S>)| (conn.queued(), *id);
            let slowest = self.conns.iter().map(queued).max().filter(|(queued, _)| *queued > 0);
            let Some((_, id)) = slowest else { break };
            self.cut_client(id);
        }
        result
    }

    /// Cuts a client off because too many bytes are held.
    pub(super) fn cut_client(&mut self, id: ConnId) {
        self.cut += 1;
        self.cut_clients.extend(self.conns.get(&id).and_then(|conn| conn.peer));
        self.cut_off(id);
    }

    pub(super) fn write(&mut self, id: ConnId, ring: &[u8], now: Duration) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let queued_before = conn.queued();
        let mut next_piece = 0;
        let mut piece_start = 0;
        let mut written = 0;
        let mut broken = false;
        while conn.writable {
            let result = match (&conn.pieces[next_piece..], conn.queued()) {
                ([], 0) => break,
                // The usual case.
                (&[(at, len)], 0) => {
                    conn.socket.write(&[IoSlice::new(&ring[at + piece_start..at + len])])
                }
                (pieces, _) => {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    slices[0] = IoSlice::new(&conn.queue[conn.queue_start..]);
                    let mut used = 1;
                    let mut skip = piece_start;
                    for &(at, len) in pieces.iter().take(MAX_SLICES - 1) {
                        slices[used] =
                            IoSlice::new(&ring[at + std::mem::take(&mut skip)..at + len]);
                        used += 1;
                    }
                    conn.socket.write(&slices[..used])
                }
            };
            match result {
                Ok(0) => broken = true,
                Ok(mut n) => {
                    written += n;
                    let from_queue = n.min(conn.queue.len() - conn.queue_start);
                    conn.queue_start += from_queue;
                    n -= from_queue;
                    while n > 0 {
                        let left = conn.pieces[next_piece].1 - piece_start;
                        let here = n.min(left);
                        n -= here;
                        piece_start += here;
                        if here == left {
                            next_piece += 1;
                            piece_start = 0;
                        }
                    }
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => conn.writable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => broken = true,
            }
            break;
        }
        self.bytes_out += written as u64;
        if broken {
            self.cut_off(id);
            return;
        }
        if conn.queue_start > 0 && (conn.queued() == 0 || conn.queue_start > conn.queue.len() / 2) {
            conn.queue.drain(..conn.queue_start);
            conn.queue_start = 0;
        }
        for &(at, len) in &conn.pieces[next_piece..] {
            conn.queue.extend_from_slice(&ring[at + std::mem::take(&mut piece_start)..at + len]);
        }
        conn.pieces.clear();
        if conn.queue.is_empty() && conn.queue.capacity() > SEND_WINDOW_BYTES {
            conn.queue = Vec::new();
        }
        conn.taken += written as u64;
        let live = conn.phase == Phase::Live;
        if live && written > 0 && !conn.enlisted {
            self.crowd.answered(&mut conn.turn);
        }
        if live && conn.taken >= DRAINED_STEP_BYTES as u64 && !conn.drained_listed {
            conn.drained_listed = true;
            self.drained.push_back(id);
        }
        self.held_bytes = self.held_bytes.saturating_sub(queued_before) + conn.queued();
        if conn.fin_queued && !conn.fin_sent && conn.queued() == 0 {
            conn.socket.shutdown_write();
            conn.fin_sent = true;
        }
        if conn.phase == Phase::Delivering {
            if !conn.fin_sent {
                return self.cut_at(id, now + LINGER_IDLE);
            }
            conn.phase = Phase::Discarding;
            if conn.input_ended {
                self.remove(id);
            } else {
                self.cut_at(id, now + DISCARD_FOR);
                self.discard(id, now);
            }
        }
    }
}
