//! One connection to a peer: what waits to be sent, sealed and as frames, and the events that it waits for.

use crate::transport::channel::Sealer;
use crate::transport::{Stream, Watch};
use mio::{Registry, Token};
use skein_log::frame::Decoder;
use skein_model::{LogIndex, ReplicaId};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::time::Duration;

/// The side that connected.
#[derive(Debug, PartialEq, Eq)]
pub enum Side {
    /// We connected to this replica.
    Dialed(ReplicaId),
    /// The other one.
    Accepted,
}

/// A connection.
pub struct Link {
    pub stream: Box<dyn Stream>,
    pub side: Side,
    /// The remote host, if it was accepted over TCP.
    pub from: Option<IpAddr>,
    pub peer: Option<ReplicaId>,
    /// The newest change of the members that the other side knows.
    pub membership: LogIndex,
    pub sealer: Sealer,
    /// Sealed, or sent before sealing is possible.
    pub wire: Vec<u8>,
    pub wire_start: usize,
    pub decoder: Decoder,
    pub out: Vec<u8>,
    pub out_start: usize,
    pub writable: bool,
    /// The events that are waited for.
    pub watch: Watch,
    /// Something in `out` must leave with the next flush.
    pub due: bool,
    /// The other side accepted the connection.
    pub established: bool,
    pub since: Duration,
    /// When the last bytes came.
    pub heard: Duration,
}

impl Link {
    /// One that has just been made.
    pub fn new(
        stream: Box<dyn Stream>,
        side: Side,
        from: Option<IpAddr>,
        sealer: Sealer,
        decoder: Decoder,
        now: Duration,
    ) -> Self {
        Self {
            stream,
            side,
            from,
            peer: None,
            membership: LogIndex(0),
            sealer,
            wire: Vec::new(),
            wire_start: 0,
            decoder,
            out: Vec::new(),
            out_start: 0,
            writable: false,
            watch: Watch::All,
            due: false,
            established: false,
            since: now,
            heard: now,
        }
    }

    /// Waits for the events that matter: for room only where there is none. False when the connection is broken.
    pub fn watch(&mut self, deaf: bool, registry: &Registry, serial: usize) -> bool {
        let watch = match self.peer {
            Some(_) if self.writable && deaf => Watch::Ends,
            Some(_) if self.writable => Watch::Reads,
            _ => Watch::All,
        };
        if watch == self.watch {
            return true;
        }
        self.watch = watch;
        self.stream.watch(registry, Token(serial), watch).is_ok()
    }

    /// Adds what it sends to `sent`. False when the connection is broken.
    pub fn flush(&mut self, sent: &mut u64) -> bool {
        while self.writable {
            if self.wire_start == self.wire.len() {
                self.wire.clear();
                self.wire_start = 0;
                if self.sealer.seals() {
                    self.out_start += self.sealer.seal(&self.out[self.out_start..], &mut self.wire);
                }
            }
            let sealed = !self.wire.is_empty() || self.sealer.seals();
            let next =
                if sealed { &self.wire[self.wire_start..] } else { &self.out[self.out_start..] };
            if next.is_empty() {
                break;
            }
            match self.stream.write(next) {
                Ok(0) => return false,
                Ok(n) => {
                    *if sealed { &mut self.wire_start } else { &mut self.out_start } += n;
                    *sent += n as u64;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.writable = false
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if self.out_start == self.out.len() {
            self.out.clear();
            self.out_start = 0;
            self.out.shrink_to(1 << 20);
        } else if self.out_start > self.out.len() / 2 {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
        self.due &= !self.out.is_empty() || self.wire_start < self.wire.len();
        true
    }
}
