//! Scripted clients of a server guest, and its outside: pure; they react to the server's output with records for the log.

use crate::input::Input;
use crate::outside::Outside;
use skein_model::limits::{DRAINED_STEP_BYTES, RECV_WINDOW_BYTES};
use skein_model::{ConnId, OutFrame, SockAddr, Term};
use std::collections::VecDeque;

/// The term of every client's connection.
pub const TERM: Term = Term(1);

/// The next step of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connects. The first step; may come after a [`Step::Await`] for another client.
    Open,
    /// Sends bytes.
    Send(Vec<u8>),
    /// Waits until it has received this many bytes in all.
    Receive(usize),
    /// Shuts its sending side.
    Fin,
    /// Resets the connection.
    Reset,
    /// Sends the server a signal; really an operator's.
    Signal(u8),
    /// Waits until the server has closed the connection in order.
    Closed,
    /// Waits until the client with this number has finished.
    Await(usize),
}

/// One client.
#[derive(Clone, Debug)]
struct Client {
    steps: VecDeque<Step>,
    /// The number of bytes of the first step that are sent already.
    sent: usize,
    received: usize,
    undrained: usize,
    /// Bytes on the way that the server has not taken.
    in_window: usize,
    closed: bool,
}

/// All clients of a run.
#[derive(Clone, Debug, Default)]
pub struct Script {
    clients: Vec<Client>,
    outside: Outside,
    listening: Option<SockAddr>,
}

/// At most this much of a client's bytes in one entry: 64 KiB.
const PIECE_BYTES: usize = 64 << 10;

impl Script {
    /// Clients with their steps; each begins with [`Step::Open`] or waits.
    #[must_use]
    pub fn new(clients: Vec<Vec<Step>>) -> Self {
        let client = |steps: Vec<Step>| Client {
            steps: steps.into(),
            sent: 0,
            received: 0,
            undrained: 0,
            in_window: 0,
            closed: false,
        };
        let clients = clients.into_iter().map(client).collect();
        Self { clients, ..Self::default() }
    }

    /// Whether all clients have finished.
    #[must_use]
    pub fn done(&self) -> bool {
        self.clients.iter().all(|client| client.steps.is_empty())
    }

    /// The remaining steps of the clients, for a report.
    #[must_use]
    pub fn rest(&self) -> String {
        let mut text = String::new();
        for (n, client) in self.clients.iter().enumerate() {
            if let Some(step) = client.steps.front() {
                let step = format!("{step:?}");
                text += &format!("client {n} got {} bytes, next {:.60}; ", client.received, step);
            }
        }
        text
    }

    fn client_of(&mut self, conn: ConnId) -> Option<&mut Client> {
        if conn.is_outgoing() {
            return None;
        }
        let n = (conn.0 & u64::from(u32::MAX)).checked_sub(1)?;
        self.clients.get_mut(usize::try_from(n).ok()?)
    }

    /// Handles an output of the server.
    pub fn output(&mut self, frame: &OutFrame<'_>) {
        self.outside.output(frame);
        match frame {
            OutFrame::Listen { addr } if self.listening.is_none() => self.listening = Some(*addr),
            OutFrame::Send { conn, bytes } => {
                if let Some(client) = self.client_of(*conn) {
                    client.received += bytes.len();
                    client.undrained += bytes.len();
                }
            }
            OutFrame::Consumed { conn, bytes } => {
                if let Some(client) = self.client_of(*conn) {
                    client.in_window = client.in_window.saturating_sub(*bytes as usize);
                }
            }
            OutFrame::Fin { conn } | OutFrame::Close { conn } | OutFrame::Abort { conn } => {
                if let Some(client) = self.client_of(*conn) {
                    client.closed = true;
                }
            }
            _ => {}
        }
    }

    /// One turn of the gateway's loop: the clients' next records.
    pub fn inputs(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        self.outside.inputs(&mut inputs);
        let Some(local) = self.listening else { return inputs };
        for n in 0..self.clients.len() {
            let conn = ConnId::new(TERM, n as u32 + 1);
            let undrained = &mut self.clients[n].undrained;
            if *undrained >= DRAINED_STEP_BYTES {
                inputs.push(Input::Drained(conn, std::mem::take(undrained) as u64));
            }
            while let Some(input) = self.next_of(n, conn, local) {
                let again = !matches!(input, Input::Data(..));
                inputs.push(input);
                if !again {
                    break;
                }
            }
        }
        inputs
    }

    /// The next record of a client, after its completed steps.
    fn next_of(&mut self, n: usize, conn: ConnId, local: SockAddr) -> Option<Input> {
        loop {
            let met = match self.clients[n].steps.front()? {
                Step::Receive(bytes) => self.clients[n].received >= *bytes,
                Step::Closed => self.clients[n].closed,
                Step::Await(other) => self.clients[*other].steps.is_empty(),
                _ => break,
            };
            if !met {
                return None;
            }
            self.clients[n].steps.pop_front();
        }
        let client = &mut self.clients[n];
        let input = match client.steps.front()? {
            Step::Open => {
                let peer = SockAddr::v4([10, 0, (n >> 8) as u8, n as u8], 40_000 + n as u16);
                Input::Open(conn, peer, local)
            }
            Step::Fin => Input::Fin(conn),
            Step::Reset => Input::Reset(conn),
            Step::Signal(number) => Input::Signal(*number),
            Step::Send(bytes) => {
                let room = (RECV_WINDOW_BYTES - client.in_window).min(PIECE_BYTES);
                let piece = bytes[client.sent..].iter().copied().take(room).collect::<Vec<u8>>();
                if piece.is_empty() {
                    return None;
                }
                client.in_window += piece.len();
                client.sent += piece.len();
                if client.sent < bytes.len() {
                    return Some(Input::Data(conn, piece));
                }
                client.sent = 0;
                Input::Data(conn, piece)
            }
            Step::Receive(_) | Step::Closed | Step::Await(_) => return None,
        };
        client.steps.pop_front();
        Some(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(clients: Vec<Vec<Step>>) -> Script {
        let mut script = Script::new(clients);
        assert!(script.inputs().is_empty(), "nobody can connect before the server listens");
        script.output(&OutFrame::Listen { addr: SockAddr::v4([127, 0, 0, 1], 7000) });
        script
    }

    #[test]
    fn a_client_waits_for_what_it_is_sent() {
        let conn = ConnId::new(TERM, 1);
        let mut script = listening(vec![vec![
            Step::Open,
            Step::Send(b"ask".to_vec()),
            Step::Receive(4),
            Step::Fin,
            Step::Closed,
        ]]);
        assert!(matches!(script.inputs()[..], [Input::Open(..), Input::Data(..)]));
        assert_eq!(script.inputs(), []);
        script.output(&OutFrame::Send { conn, bytes: b"abc" });
        assert_eq!(script.inputs(), []);
        script.output(&OutFrame::Send { conn, bytes: b"d" });
        assert_eq!(script.inputs(), [Input::Fin(conn)]);
        assert!(!script.done());
        script.output(&OutFrame::Close { conn });
        assert_eq!(script.inputs(), []);
        assert!(script.done());
    }

    #[test]
    fn no_more_is_sent_than_the_window_takes() {
        let conn = ConnId::new(TERM, 1);
        let total = RECV_WINDOW_BYTES + 10;
        let mut script = listening(vec![vec![Step::Open, Step::Send(vec![7; total])]]);
        let mut sent = 0;
        loop {
            let inputs = script.inputs();
            if inputs.is_empty() {
                break;
            }
            for input in inputs {
                if let Input::Data(_, bytes) = input {
                    sent += bytes.len();
                }
            }
        }
        assert_eq!(sent, RECV_WINDOW_BYTES);
        script.output(&OutFrame::Consumed { conn, bytes: 100 });
        assert_eq!(script.inputs(), [Input::Data(conn, vec![7; 10])]);
        assert!(script.done());
    }

    #[test]
    fn a_client_may_wait_for_another() {
        let mut script = listening(vec![
            vec![Step::Open, Step::Receive(1)],
            vec![Step::Await(0), Step::Open, Step::Reset],
        ]);
        assert_eq!(script.inputs().len(), 1);
        script.output(&OutFrame::Send { conn: ConnId::new(TERM, 1), bytes: b"x" });
        let inputs = script.inputs();
        assert!(matches!(inputs[..], [Input::Open(..), Input::Reset(..)]), "{inputs:?}");
        assert!(script.done());
    }
}
