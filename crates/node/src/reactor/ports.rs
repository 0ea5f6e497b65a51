//! The listening sockets at which clients reach the server.
//!
//! Only the leader serves. With a list of addresses ([`Publisher::Bind`]), which are this node's own, a follower accepts, too,
//! and forwards its clients to the leader. Without a list (every port at 127.0.0.1) a socket exists only while this node
//! leads: the nodes may be on one machine. A socket inherited from the parent is shared by all nodes of the machine. Clients
//! that connect while there is no leader wait in the backlog for the next one.

use super::publish::Published;
use crate::config::Publisher;
use crate::error::NodeError;
use mio::net::{TcpListener, TcpStream};
use mio::{Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use skein_model::SockAddr;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// All published ports of a node.
#[derive(Debug)]
pub struct Ports {
    listeners: Published<TcpListener>,
}

impl Ports {
    /// No ports; tokens count from `first_token`.
    #[must_use]
    pub const fn new(how: Publisher, first_token: usize) -> Self {
        Self { listeners: Published::new(how, first_token) }
    }

    /// The clients' addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.listeners.open.iter().map(|p| p.address.to_string()).collect()
    }

    /// Whether a follower forwards clients.
    #[must_use]
    pub const fn forwards(&self) -> bool {
        matches!(&self.listeners.how, Publisher::Bind { publish } if !publish.is_empty())
    }

    /// The published address of each server port.
    #[must_use]
    pub fn places(&self) -> Vec<(u16, SocketAddr)> {
        self.listeners.open.iter().map(|p| (p.server.port, p.address)).collect()
    }

    /// Opens ports for all listening addresses of the server and closes others. `leads`: clients are accepted.
    ///
    /// # Errors
    /// An address cannot be had.
    pub fn follow(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        leads: bool,
        registry: &Registry,
    ) -> Result<(), NodeError> {
        let accepts = leads || self.forwards();
        let open = accepts || self.listeners.are_inherited();
        self.listeners.follow(listening, open, accepts, registry)
    }

    /// A client connects.
    pub fn ready(&mut self, token: Token) {
        self.listeners.ready(token);
    }

    /// Whether [`accept`](Self::accept) may find a client.
    #[must_use]
    pub fn may_accept(&self) -> bool {
        self.listeners.have_input()
    }

    /// Whether a client waits to be accepted.
    pub fn client_waits(&mut self) -> bool {
        for port in self.listeners.with_input() {
            let mut polled = [PollFd::new(port.socket.as_fd(), PollFlags::POLLIN)];
            // A failure here shows at the accept, too.
            if poll(&mut polled, PollTimeout::ZERO).map_or(true, |ready| ready > 0) {
                return true;
            }
            port.has_input = false;
        }
        false
    }

    /// The next client, with its own address and the one that it connected to, with the server's port.
    pub fn accept(&mut self) -> Option<(TcpStream, SocketAddr, SockAddr)> {
        for port in self.listeners.with_input() {
            match accept(&port.socket) {
                Ok(Some((stream, peer))) => {
                    // Clients may connect to another address than the server listens on: --publish.
                    // The runtime finds the socket that is meant.
                    let mut local = stream.local_addr().map_or(port.server, SockAddr::from);
                    local.port = port.server.port;
                    return Some((stream, peer, local));
                }
                Ok(None) => {}
                // No descriptors: connections must close first. Tried again with the next client's event.
                Err(error) => {
                    tracing::warn!(event = "accept_failed", %error, address = %port.address);
                }
            }
            port.has_input = false;
        }
        None
    }
}

/// The next connection at `listener`; `None` when there is none now.
///
/// # Errors
/// Those of the machine; a connection that is already gone is passed over.
pub(super) fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            // The client is gone again, or a signal came.
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
            }
            Err(error) => return Err(error),
        }
    }
}
