//! The outside of a server guest: one host with a service at each port. Pure, like the clients.
//!
//! All other addresses, and all other ports of that host, refuse. Datagrams to [`ECHO`] come back, those to [`SILENT`] get no answer, all
//! others fail. A socket that waits for datagrams at a port of its choice gets [`CALLS`] numbered ones from the host, the next one with each answer.

use crate::input::Input;
use skein_model::limits::{DRAINED_STEP_BYTES, RECV_WINDOW_BYTES};
use skein_model::{ConnId, OutFrame, SockAddr};
use std::collections::{BTreeMap, VecDeque};

/// The host.
const HOST: [u8; 4] = [10, 0, 0, 9];
/// Echoes; ends when the server does.
const ECHO: u16 = 7;
/// Sends [`GREETING`] and ends.
const GREETER: u16 = 13;
/// Sends [`SOURCE_BYTES`] and ends.
const SOURCE: u16 = 19;
/// Resets when it receives something.
const RESETS: u16 = 104;
/// Lets the connection time out.
const SILENT: u16 = 110;
/// Never answers.
const HANGS: u16 = 111;
/// The leader dies when this receives something.
const FAILOVER: u16 = 200;
/// The leader dies while it connects.
const FAILOVER_EARLY: u16 = 201;

const GREETING: &[u8] = b"hello from outside\n";
/// More than the receive window.
const SOURCE_BYTES: usize = 3 << 20;
/// Datagrams that the host sends unasked, and the first of their source ports.
const CALLS: u32 = 20;
const CALLER: u16 = 4000;
/// At most this much of a connection's bytes in one entry: 64 KiB.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, Default)]
struct Far {
    port: u16,
    to_server: VecDeque<u8>,
    /// Nothing more comes after the queued bytes.
    ends: bool,
    ended: bool,
    in_window: usize,
    undrained: usize,
}

/// The outside.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    far: BTreeMap<ConnId, Far>,
    answers: VecDeque<Input>,
    calls: u32,
}

impl Outside {
    /// Handles an output of the server.
    pub fn output(&mut self, frame: &OutFrame<'_>) {
        match *frame {
            OutFrame::Connect { conn, addr } => self.connect(conn, addr),
            OutFrame::Send { conn, bytes } => self.received(conn, bytes),
            OutFrame::ListenDatagram { addr } => {
                for _ in 0..2 {
                    self.call(addr);
                }
            }
            OutFrame::Datagram { local, peer, bytes } => self.datagram(local, peer, bytes),
            OutFrame::Consumed { conn, bytes } => {
                if let Some(far) = self.far.get_mut(&conn) {
                    far.in_window = far.in_window.saturating_sub(bytes as usize);
                }
            }
            OutFrame::Fin { conn } => {
                if let Some(far) = self.far.get_mut(&conn) {
                    far.ends = true;
                }
            }
            OutFrame::Close { conn } | OutFrame::Abort { conn } => {
                self.far.remove(&conn);
            }
            _ => {}
        }
    }

    fn connect(&mut self, conn: ConnId, addr: SockAddr) {
        let port = if addr.ipv4() == Some(HOST) { addr.port } else { 0 };
        let errno = match port {
            ECHO | GREETER | SOURCE | RESETS | FAILOVER => 0,
            SILENT => libc::ETIMEDOUT,
            HANGS => return,
            FAILOVER_EARLY => return self.answers.push_back(Input::TermStart),
            _ => libc::ECONNREFUSED,
        };
        if errno != 0 {
            return self.answers.push_back(Input::ConnectFailed(conn, errno as u16));
        }
        let to_server = match port {
            GREETER => GREETING.iter().copied().collect(),
            SOURCE => (0..SOURCE_BYTES).map(|n| (n % 251) as u8).collect(),
            _ => VecDeque::new(),
        };
        let ends = matches!(port, GREETER | SOURCE);
        self.far.insert(conn, Far { port, to_server, ends, ..Far::default() });
        self.answers.push_back(Input::Connected(conn));
    }

    /// The next unasked datagram of the host.
    fn call(&mut self, local: SockAddr) {
        if self.calls < CALLS {
            let peer = SockAddr::v4(HOST, CALLER + (self.calls % 3) as u16);
            let text = format!("call {}", self.calls).into_bytes();
            self.calls += 1;
            self.answers.push_back(Input::Datagram(local, peer, text));
        }
    }

    fn datagram(&mut self, local: SockAddr, peer: SockAddr, bytes: &[u8]) {
        let port = if peer.ipv4() == Some(HOST) { peer.port } else { 0 };
        match port {
            ECHO => self.answers.push_back(Input::Datagram(local, peer, bytes.to_vec())),
            SILENT => {}
            CALLER..=4002 => self.call(local),
            _ => {
                let errno = libc::ECONNREFUSED as u16;
                self.answers.push_back(Input::DatagramFailed(local, peer, errno));
            }
        }
    }

    fn received(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(far) = self.far.get_mut(&conn) else { return };
        far.undrained += bytes.len();
        match far.port {
            ECHO => far.to_server.extend(bytes),
            RESETS => {
                self.far.remove(&conn);
                self.answers.push_back(Input::Reset(conn));
            }
            FAILOVER => {
                self.far.clear();
                self.answers.push_back(Input::TermStart);
            }
            _ => {}
        }
    }

    /// One turn of the gateway's loop: the outside's next records.
    pub fn inputs(&mut self, inputs: &mut Vec<Input>) {
        inputs.extend(self.answers.drain(..));
        for (&conn, far) in &mut self.far {
            if far.undrained >= DRAINED_STEP_BYTES {
                let bytes = std::mem::take(&mut far.undrained);
                inputs.push(Input::Drained(conn, bytes as u64));
            }
            let room = (RECV_WINDOW_BYTES - far.in_window).min(PIECE_BYTES);
            let piece: Vec<u8> = far.to_server.drain(..room.min(far.to_server.len())).collect();
            if !piece.is_empty() {
                far.in_window += piece.len();
                inputs.push(Input::Data(conn, piece));
            }
            if far.ends && far.to_server.is_empty() && !far.ended {
                far.ended = true;
                inputs.push(Input::Fin(conn));
            }
        }
    }
}
