//! Delivers the server's output.

use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::config::OutgoingConfig;
use crate::error::ReplicaError;
use crate::gateway::Gateway;
use crate::server::Broken;
use crate::server::link::printable;
use skein_log::Kind;
use skein_model::frame::NOT_WRITABLE;
use skein_model::{OutFrame, SockAddr};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// What the runtime says of a private layer on disk that is full, or fails, begins so.
const LAYER_FAILS: &str = "the disk of the server's private layer";

/// Effects of frames besides the digest, while the server's link is borrowed.
struct Pass<'a, E: Environment> {
    gateway: &'a mut Gateway<E::Socket>,
    env: &'a mut E,
    outgoing: &'a OutgoingConfig,
    /// Datagrams may leave.
    serves: bool,
    now: Duration,
    sockets_changed: bool,
    said: Vec<(&'static str, String)>,
}

impl<E: Environment> Pass<'_, E> {
    fn datagram(&mut self, local: SockAddr, peer: SockAddr, bytes: &[u8]) {
        let to = SocketAddr::from(peer);
        let sent = if self.env.hears_anybody(local) || self.outgoing.allows(to) {
            self.env.note_answered().and_then(|()| self.env.send_datagram(local, peer, bytes))
        } else {
            self.said.push(("datagram_not_allowed", not_allowed(to)));
            Err(io::Error::from_raw_os_error(libc::ENETUNREACH))
        };
        if let Err(error) = sent {
            self.env.datagram_failed(local, peer, &error);
        }
    }
}

/// The line in the node's log about an address that the configuration does not allow.
pub(super) fn not_allowed(to: SocketAddr) -> String {
    format!("{to} is not allowed by outgoing.allow: the server was told that it is unreachable")
}

impl<E: Environment> Replica<E> {
    /// Takes the frames of released entries out of the output ring: replies go to the clients at once.
    pub(super) fn fetch_output(&mut self) -> Result<(), ReplicaError> {
        let released = self.released();
        let Some(server) = self.slot.link_mut() else { return Ok(()) };
        let mut pass = Pass {
            gateway: &mut self.gateway,
            env: &mut self.env,
            outgoing: &self.config.outgoing,
            serves: self.lead.as_ref().is_some_and(Lead::serves),
            now: self.now,
            sockets_changed: false,
            said: Vec::new(),
        };
        let drained = server.drain(
            released,
            &mut pass,
            |pass, frame, at| {
                match frame {
                    OutFrame::Send { .. }
                    | OutFrame::Fin { .. }
                    | OutFrame::Close { .. }
                    | OutFrame::Abort { .. }
                    | OutFrame::Connect { .. }
                    | OutFrame::Consumed { .. } => {
                        return pass.gateway.frame(frame, at).map_err(|e| {
                            Broken(format!("the server broke the rules of connection {:#x}", e.0.0))
                        });
                    }
                    OutFrame::Listen { .. } | OutFrame::Unlisten { .. } => {
                        pass.sockets_changed = true
                    }
                    OutFrame::Refused { call } => pass.said.push(("call_refused", printable(call))),
                    OutFrame::Notice { text } => pass.said.push(("runtime", printable(text))),
                    OutFrame::Fatal { text } => {
                        pass.said.push(("runtime_refuses", printable(text)))
                    }
                    OutFrame::ListenDatagram { .. } => pass.sockets_changed = true,
                    OutFrame::UnlistenDatagram { addr } => {
                        pass.env.close_datagrams(*addr);
                        pass.sockets_changed = true;
                    }
                    OutFrame::Datagram { local, peer, bytes } if pass.serves => {
                        pass.datagram(*local, *peer, bytes);
                    }
                    OutFrame::Differs { text } => {
                        pass.said.push(("file_differs", printable(text)));
                    }
                    OutFrame::Datagram { .. }
                    | OutFrame::Admitted { .. }
                    | OutFrame::Asked { .. }
                    | OutFrame::Exit { .. } => {}
                }
                Ok(())
            },
            |pass, ring| {
                pass.gateway.flush(ring, pass.now).map_err(|e| {
                    Broken(format!(
                        "the server sent more than the send buffer of connection {:#x} holds",
                        e.0.0
                    ))
                })
            },
        );
        let Pass { sockets_changed, said, .. } = pass;
        for client in self.gateway.take_cut() {
            let text = format!(
                "{}: more than tuning.max_memory_bytes wait, and it reads most slowly, or sends most",
                SocketAddr::from(client)
            );
            self.note_rarely("client_cut", &text);
        }
        self.begin_connections();
        for (event, text) in said {
            self.server_said(event, &text);
        }
        Self::check_files(self.slot.link_mut().and_then(|server| server.differs.take()))?;
        match drained {
            Ok(0) => {}
            Ok(_) => self.rounds.output(self.now),
            Err(broken) => {
                self.server_broke(&broken);
                return Ok(());
            }
        }
        let Some(server) = self.slot.link_mut() else { return Ok(()) };
        let quiet = server.settle();
        let admitted = server.admitted;
        while let Some(&(index, since)) = self.compare.held.front() {
            if index > admitted || (index == admitted && !quiet) {
                break;
            }
            self.compare.held.pop_front();
            self.metrics.output_hold_seconds.observe(self.now.saturating_sub(since).as_secs_f64());
        }
        let executed = if quiet { admitted.next() } else { admitted };
        self.gather.executed(executed, self.now);
        let begins = self.lead.as_mut().is_some_and(|l| l.applied(admitted));
        if begins {
            tracing::info!(event = "serving", term = self.consensus.term().0, index = admitted.0);
        }
        if begins || sockets_changed {
            self.follow_ports()?;
        }
        Ok(())
    }

    fn server_said(&mut self, event: &'static str, text: &str) {
        match event {
            "call_refused" => {
                let name = text.split([' ', '(', ':']).next().unwrap_or("unknown");
                self.metrics.unsupported_call(name);
                self.note_rarely(event, text);
            }
            "datagram_not_allowed" => self.note_rarely(event, text),
            "file_differs" => tracing::error!(event, text, index = self.applied().0),
            "runtime_refuses" => {
                tracing::error!(event, text, index = self.applied().0);
                self.note(format!("the runtime stops the server: {text}"));
                if text.starts_with(LAYER_FAILS) {
                    self.health.layer = Some(text.to_owned());
                }
            }
            _ if text.starts_with(NOT_WRITABLE) => self.note_rarely("server", text),
            _ => tracing::info!(event, text),
        }
    }

    /// Publishes the server's listening ports; only a leader that serves accepts clients.
    pub(super) fn follow_ports(&mut self) -> Result<(), ReplicaError> {
        let serves = self.lead.as_ref().is_some_and(Lead::serves);
        let to_come = self.ports_to_come();
        let server = self.slot.link();
        let receiving = server.map(|server| server.receiving.clone()).unwrap_or_default();
        let mut all = server.map(|server| server.listening.clone()).unwrap_or_default();
        let mut also = |port: u16| {
            if all.iter().all(|has| has.port != port) {
                all.insert(SockAddr::v4([0; 4], port));
            }
        };
        // Clients wait until the new edition's server listens.
        to_come.iter().flat_map(|plan| &plan.ports).copied().for_each(&mut also);
        // A replica that has no server, or had none a moment ago, opens what its leader has open: clients are forwarded, or wait.
        if self.members.kind != Kind::Active && !serves {
            self.compare.places.1.iter().map(|(port, _)| *port).for_each(&mut also);
        }
        self.env.publish(&all, &receiving, serves && to_come.is_none())?;
        self.tell_places();
        Ok(())
    }

    /// As [`follow_ports`](Self::follow_ports) where ports are only closed.
    pub(super) fn follow_ports_or_note(&mut self) {
        if let Err(error) = self.follow_ports() {
            tracing::error!(event = "publish_failed", %error);
        }
    }

    /// Remembers a line for `skein status` and logs it.
    pub(super) fn note(&mut self, text: String) {
        if self.notes.len() == 20 {
            self.notes.pop_front();
        }
        self.notes.push_back(text);
    }

    /// Logs a warning that may occur a thousand times a second, once a second.
    pub(super) fn note_rarely(&mut self, event: &'static str, text: &str) {
        let key = format!("{event} {text}");
        let last = self.compare.warned.get(&key);
        if last.is_none_or(|at| self.now.saturating_sub(*at) >= Duration::from_secs(1)) {
            tracing::warn!(event, text);
            if last.is_none() {
                self.note(format!("{event}: {text}"));
            }
            if self.compare.warned.len() > 256 {
                self.compare.warned.clear();
            }
            self.compare.warned.insert(key, self.now);
        }
    }
}
