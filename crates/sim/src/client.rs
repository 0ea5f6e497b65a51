//! A client: one request at a time, over one connection; it remembers the answers.

use crate::history::{Action, Operation};
use crate::wire::Wire;
use std::cell::RefCell;
use std::rc::Rc;

/// What a client sees of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has not ended.
    None,
    /// It was reset, or its other end is gone.
    Reset,
    /// The server has closed it, and all its bytes have come.
    InOrder,
}

/// See the [module](self).
#[derive(Default)]
pub struct Client {
    /// The replica that it talks to, or tries next.
    pub target: u64,
    /// Grows with each connection.
    pub epoch: u64,
    pub wire: Option<Rc<RefCell<Wire>>>,
    /// The operation of the history that waits for its answer.
    pub waiting: Option<usize>,
    /// Its current request is no operation on a register, and waits for an answer of this length.
    pub working: Option<usize>,
    /// Bytes of an incomplete answer.
    buffer: Vec<u8>,
    /// When the last bytes to and from the node arrive: a connection keeps their order.
    pub to_node_us: u64,
    pub from_node_us: u64,
}

impl Client {
    /// Forgets the connection; the waiting operation stays without an answer.
    pub fn disconnect(&mut self) -> Option<Rc<RefCell<Wire>>> {
        self.epoch += 1;
        self.waiting = None;
        self.working = None;
        self.buffer.clear();
        self.wire.take()
    }

    /// Whether an answer has begun and is not complete.
    pub const fn has_half_an_answer(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Bytes arrived. True if an operation ended by them.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now_us: u64,
        history: &mut [Operation],
    ) -> Result<bool, String> {
        self.buffer.extend_from_slice(bytes);
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            return Ok(false);
        };
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if let Some(wanted) = self.working.take() {
            let is_it = line == "OK" || line.bytes().all(|byte| byte == b'L');
            return match line.len() {
                bytes if bytes == wanted && is_it => Ok(true),
                bytes => Err(format!("a client got {bytes} bytes for an answer of {wanted}")),
            };
        }
        let Some(waiting) = self.waiting.take() else {
            return Err(format!("a client got {line:?} and had asked nothing"));
        };
        let operation = &mut history[waiting];
        operation.action = match (operation.action, line.split_once(' ')) {
            (Action::Write(value), None) if line == "OK" => Action::Write(value),
            (Action::Read(_), Some(("V", value))) => {
                Action::Read(Some(value.parse().map_err(|_| format!("a client got {line:?}"))?))
            }
            (action, _) => return Err(format!("a client got {line:?} for {action:?}")),
        };
        operation.returned_us = Some(now_us);
        Ok(true)
    }
}

/// The bytes of a request.
pub fn request(operation: &Operation) -> Vec<u8> {
    match operation.action {
        Action::Write(value) => format!("S {} {value}\n", operation.key).into_bytes(),
        Action::Read(_) => format!("G {}\n", operation.key).into_bytes(),
    }
}
