//! A connection with a client, or with a host outside, as the node's socket.

use skein_model::ConnId;
use skein_replica::gateway::Socket;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

/// Both directions.
#[derive(Debug, Default)]
pub struct Wire {
    /// Whether a connection that the node began is established, or why not; `None` while it is being made. A client's always is.
    pub made: Option<Result<(), i32>>,
    /// From the client, not yet read.
    pub inbound: VecDeque<u8>,
    /// The client shut its sending side.
    pub ended: bool,
    /// To the client, not yet under way.
    pub outbound: Vec<u8>,
    /// The node ended its sending side in order,
    pub finished: bool,
    /// or in any way,
    pub shut: bool,
    /// and the client is told.
    pub told: bool,
    /// The node has closed it.
    pub gone: bool,
    /// Either side reset it.
    pub reset: bool,
    /// The number of bytes that the next writes take before they would block.
    pub room: usize,
    /// The number of other open connections of the node when it was accepted.
    pub others: usize,
    /// The client reads slowly.
    pub slow: bool,
    /// Known once the node watches it.
    pub conn: Option<ConnId>,
}

/// The node's end. Dropping it closes the connection.
#[derive(Debug)]
pub struct WireEnd(pub Rc<RefCell<Wire>>);

impl Socket for WireEnd {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        if wire.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if wire.inbound.is_empty() && !wire.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = buffer.len().min(wire.inbound.len());
        for (to, from) in buffer.iter_mut().zip(wire.inbound.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        if wire.reset {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut count = 0;
        for byte in slices.iter().flat_map(|slice| slice.iter()).take(wire.room) {
            wire.outbound.push(*byte);
            count += 1;
        }
        wire.room -= count;
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        let made = self.0.borrow().made?;
        Some(made.map_err(io::Error::from_raw_os_error))
    }

    fn shutdown_write(&mut self) {
        let mut wire = self.0.borrow_mut();
        (wire.shut, wire.finished) = (true, true);
    }

    fn reset(&mut self) {
        self.0.borrow_mut().reset = true;
    }
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        let mut wire = self.0.borrow_mut();
        (wire.shut, wire.gone) = (true, true);
    }
}
