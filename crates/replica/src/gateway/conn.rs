//! One client's connection.

use super::crowd::Turn;
use skein_model::SockAddr;
use skein_model::limits::{CONSUMED_STEP_BYTES, RECV_WINDOW_BYTES};
use std::io::{self, IoSlice};
use std::time::Duration;

/// A non-blocking client socket: a call that would block answers `ErrorKind::WouldBlock`.
pub trait Socket {
    /// Reads into `buffer`; 0 is the end.
    ///
    /// # Errors
    /// As `read(2)`.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes from several slices.
    ///
    /// # Errors
    /// As `writev(2)`.
    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Ends the direction towards the client.
    fn shutdown_write(&mut self);
    /// Whether a connection that this node began is established; `None` while it is being made. A client's always is.
    fn connected(&mut self) -> Option<io::Result<()>> {
        Some(Ok(()))
    }
    /// Makes closing it a reset. Called just before it is dropped.
    fn reset(&mut self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The server began it and does not know yet that it is established.
    Connecting,
    /// The server has it.
    Live,
    /// The server closed it; queued bytes are still delivered.
    Delivering,
    /// All is delivered; further bytes of the client are dropped until it closes.
    Discarding,
}

#[derive(Debug)]
pub(super) struct Conn<S> {
    pub socket: S,
    /// The client's socket; none for a connection that the server is beginning.
    pub peer: Option<SockAddr>,
    pub phase: Phase,
    /// The number of bytes that may still be read from the client.
    credit: usize,
    /// A read may succeed.
    pub readable: bool,
    /// The client's end is closed or broken, or an urgent byte came: a short read does not mean that nothing is left.
    pub read_on: bool,
    /// `Fin` was proposed.
    pub input_ended: bool,
    /// In the gateway's list of connections to read from.
    pub enlisted: bool,
    /// Whether a request is expected soon.
    pub turn: Turn,
    /// Buffer size of the next read: grows while reads fill it.
    pub read_hint: usize,

    /// A write may succeed.
    pub writable: bool,
    /// In the gateway's list of connections with new frames.
    pub dirty: bool,
    /// Parts of the output ring to be written in this pass: start and length.
    pub pieces: Vec<(usize, usize)>,
    /// Bytes that the socket refused; the first `queue_start` of them are sent.
    pub queue: Vec<u8>,
    pub queue_start: usize,
    /// After the queue, the direction towards the client ends.
    pub fin_queued: bool,
    pub fin_sent: bool,
    /// Taken by the client's socket and not yet proposed as `Drained`.
    pub taken: u64,
    pub drained_listed: bool,

    /// When to cut it, once the server has closed it.
    pub deadline: Option<Duration>,
    pub discarded: usize,
}

pub(super) const MIN_READ_BYTES: usize = 1 << 10;
pub(super) const MAX_READ_BYTES: usize = 256 << 10;

impl<S: Socket> Conn<S> {
    pub fn new(socket: S, peer: Option<SockAddr>, phase: Phase) -> Self {
        Self {
            socket,
            peer,
            phase,
            credit: RECV_WINDOW_BYTES,
            readable: false,
            read_on: false,
            input_ended: false,
            enlisted: false,
            turn: Turn::default(),
            read_hint: MIN_READ_BYTES,
            writable: phase == Phase::Live,
            dirty: false,
            pieces: Vec::new(),
            queue: Vec::new(),
            queue_start: 0,
            fin_queued: false,
            fin_sent: false,
            taken: 0,
            drained_listed: false,
            deadline: None,
            discarded: 0,
        }
    }

    pub const fn credit(&self) -> usize {
        self.credit
    }

    pub fn spend_credit(&mut self, n: usize) {
        assert!(n <= self.credit, "read more than the server has room for");
        self.credit -= n;
    }

    /// False when the server gives back more than it got.
    #[must_use]
    pub fn give_credit(&mut self, n: u64) -> bool {
        if n > (RECV_WINDOW_BYTES - self.credit) as u64 {
            return false;
        }
        self.credit += n as usize;
        true
    }

    pub fn forget_input(&mut self) {
        self.credit = RECV_WINDOW_BYTES;
    }

    /// The bytes that the server certainly holds: below one step it need not have reported its reads.
    pub const fn held_in(&self) -> usize {
        (RECV_WINDOW_BYTES - self.credit).saturating_sub(CONSUMED_STEP_BYTES)
    }

    pub fn queued(&self) -> usize {
        self.queue.len() - self.queue_start
    }

    pub fn may_read(&self) -> bool {
        self.readable && self.phase == Phase::Live && !self.input_ended && self.credit > 0
    }
}
