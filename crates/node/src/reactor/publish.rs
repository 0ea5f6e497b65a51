//! The listening sockets at which clients reach the server.
//!
//! Only the leader serves. With a list of addresses ([`Publisher::Bind`]), which are this node's own, a follower accepts, too,
//! and passes its clients on to the leader. Without a list (every port at 127.0.0.1) a socket exists only while this node
//! leads: the nodes may be on one machine. A socket inherited from the parent is shared by all nodes of the machine. Clients
//! that connect while there is no leader wait in the backlog for the next one.

use crate::config::{Publish, Publisher};
use crate::error::NodeError;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use skein_model::SockAddr;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The parent answers at once or not at all.
const PARENT_TIMEOUT: Duration = Duration::from_secs(5);

/// One published port.
#[derive(Debug)]
struct Port {
    server: SockAddr,
    address: SocketAddr,
    listener: TcpListener,
    token: Token,
    registered: bool,
    acceptable: bool,
}

/// All published ports of a node.
#[derive(Debug)]
pub struct Ports {
    how: Publisher,
    open: Vec<Port>,
    refused: BTreeSet<u16>,
    next_token: usize,
}

impl Ports {
    /// No ports; tokens count from `first_token`.
    #[must_use]
    pub const fn new(how: Publisher, first_token: usize) -> Self {
        Self { how, open: Vec::new(), refused: BTreeSet::new(), next_token: first_token }
    }

    /// Where clients connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.open.iter().map(|p| p.address.to_string()).collect()
    }

    /// Whether a follower passes clients on.
    #[must_use]
    pub const fn forwards(&self) -> bool {
        matches!(&self.how, Publisher::Bind { publish } if !publish.is_empty())
    }

    /// Which server port is published where.
    #[must_use]
    pub fn places(&self) -> Vec<(u16, SocketAddr)> {
        self.open.iter().map(|p| (p.server.port, p.address)).collect()
    }

    /// Makes the open ports those where the server listens. `leads`: clients are accepted.
    ///
    /// # Errors
    /// An address cannot be had.
    pub fn follow(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        leads: bool,
        registry: &Registry,
    ) -> Result<(), NodeError> {
        let kept = matches!(self.how, Publisher::Inherited { .. }) || self.forwards();
        let watched = leads || self.forwards();
        self.open.retain(|p| (kept || leads) && listening.iter().any(|a| a.port == p.server.port));
        if leads || kept {
            for server in listening {
                if self.open.iter().any(|p| p.server.port == server.port)
                    || self.refused.contains(&server.port)
                {
                    continue;
                }
                for (address, listener) in self.listen(*server)? {
                    let token = Token(self.next_token);
                    self.next_token += 1;
                    tracing::info!(event = "published", %address, server_port = server.port);
                    self.open.push(Port {
                        server: *server,
                        address,
                        listener: TcpListener::from_std(listener),
                        token,
                        registered: false,
                        acceptable: false,
                    });
                }
            }
        }
        for port in &mut self.open {
            if watched && !port.registered {
                registry
                    .register(&mut port.listener, port.token, Interest::READABLE)
                    .map_err(NodeError::system("watch a listening socket"))?;
                port.acceptable = true;
            } else if !watched && port.registered {
                // A socket that is not watched costs nothing; a failure would mean that it was not.
                let _ = registry.deregister(&mut port.listener);
                port.acceptable = false;
            }
            port.registered = watched;
        }
        Ok(())
    }

    /// Somebody connects.
    pub fn ready(&mut self, token: Token) {
        if let Some(port) = self.open.iter_mut().find(|p| p.token == token) {
            port.acceptable = true;
        }
    }

    /// Whether [`accept`](Self::accept) may find a client.
    #[must_use]
    pub fn may_accept(&self) -> bool {
        self.open.iter().any(|p| p.acceptable && p.registered)
    }

    /// The next client, with its own address and the one that it connected to, with the server's port.
    pub fn accept(&mut self) -> Option<(TcpStream, SocketAddr, SockAddr)> {
        for port in self.open.iter_mut().filter(|p| p.acceptable && p.registered) {
            loop {
                match port.listener.accept() {
                    Ok((stream, peer)) => {
                        // Clients may connect to another address than the server listens on: --publish.
                        let mut local = match stream.local_addr() {
                            Ok(at) if port.server.is_unspecified() => super::clients::sock_addr(at),
                            _ => port.server,
                        };
                        local.port = port.server.port;
                        return Some((stream, peer, local));
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        port.acceptable = false;
                        break;
                    }
                    // The client is gone again, or a signal came.
                    Err(e)
                        if matches!(
                            e.kind(),
                            ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                        ) => {}
                    Err(error) => {
                        // No descriptors: others must close before there are. Tried again with the next client's event.
                        tracing::warn!(event = "accept_failed", %error, address = %port.address);
                        port.acceptable = false;
                        break;
                    }
                }
            }
        }
        None
    }

    fn listen(
        &mut self,
        server: SockAddr,
    ) -> Result<Vec<(SocketAddr, std::net::TcpListener)>, NodeError> {
        match &self.how {
            Publisher::Bind { publish } => {
                let wanted = wanted(publish, server.port, false);
                if wanted.is_empty() {
                    self.refused.insert(server.port);
                    tracing::info!(
                        event = "not_published",
                        server_port = server.port,
                        why = "not in the list of ports to publish"
                    );
                }
                wanted.into_iter().map(|at| bind(at).map(|l| (at, l))).collect()
            }
            Publisher::Anywhere => {
                let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
                let at = listener.local_addr().map_err(NodeError::system("find a port"))?;
                Ok(vec![(at, listener)])
            }
            Publisher::Inherited { socket } => {
                let shown = printable_address(&server);
                let answer = ask_parent(socket, &shown, server.port, false).map_err(|e| {
                    NodeError::Publish {
                        address: format!("{shown}:{}", server.port),
                        why: format!("the parent does not hand over a socket: {e}"),
                    }
                })?;
                match answer {
                    Answer::Socket(address, fd) => {
                        let listener = std::net::TcpListener::from(fd);
                        listener
                            .set_nonblocking(true)
                            .map_err(NodeError::system("take a listening socket"))?;
                        Ok(vec![(address, listener)])
                    }
                    Answer::NotPublished => {
                        self.refused.insert(server.port);
                        Ok(Vec::new())
                    }
                    Answer::Error(why) => {
                        Err(NodeError::Publish { address: format!("{shown}:{}", server.port), why })
                    }
                }
            }
        }
    }
}

/// Where a port of the server is published.
pub(super) fn wanted(publish: &[Publish], port: u16, udp: bool) -> Vec<SocketAddr> {
    if publish.is_empty() {
        return vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    }
    publish
        .iter()
        .filter(|p| p.udp == udp && p.server_port.unwrap_or(p.address.port()) == port)
        .map(|p| p.address)
        .collect()
}

fn bind(at: SocketAddr) -> Result<std::net::TcpListener, NodeError> {
    let failed =
        |error: io::Error| NodeError::Publish { address: at.to_string(), why: error.to_string() };
    let listener = std::net::TcpListener::bind(at).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// An address without its port.
pub(super) fn printable_address(addr: &SockAddr) -> String {
    match addr.ipv4() {
        Some(ip) => Ipv4Addr::from(ip).to_string(),
        None => std::net::Ipv6Addr::from(addr.ip).to_string(),
    }
}

/// What the parent says.
pub(super) enum Answer {
    /// This socket, published there.
    Socket(SocketAddr, OwnedFd),
    /// The port is not to be published.
    NotPublished,
    /// It cannot be.
    Error(String),
}

/// `{"publish":{"addr":"0.0.0.0","port":6379,"udp":false}}` to the parent; it answers `{"ok":true,"address":"127.0.0.1:6379"}` with the
/// socket, `{"ok":false}` when the port is not to be published, or `{"error":"..."}`.
pub(super) fn ask_parent(path: &Path, addr: &str, port: u16, udp: bool) -> io::Result<Answer> {
    #[derive(serde::Deserialize)]
    struct Reply {
        #[serde(default)]
        ok: bool,
        address: Option<SocketAddr>,
        error: Option<String>,
        /// The port is not to be published: no failure.
        #[serde(default)]
        hidden: bool,
    }
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PARENT_TIMEOUT))?;
    stream.set_write_timeout(Some(PARENT_TIMEOUT))?;
    let question = serde_json::json!({ "publish": { "addr": addr, "port": port, "udp": udp } });
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut line = Vec::new();
    let mut socket: Option<OwnedFd> = None;
    while !line.contains(&b'\n') {
        let mut buffer = [0; 4096];
        let mut control = nix::cmsg_space!(std::os::fd::RawFd);
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let message = recvmsg::<()>(
            stream.as_raw_fd(),
            &mut slices,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                for fd in fds {
                    // SAFETY: the kernel has just installed this descriptor for this message; nothing else owns it.
                    socket = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        let n = message.bytes;
        if n == 0 || line.len() > 64 << 10 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(&buffer[..n]);
    }
    let end = line.iter().position(|b| *b == b'\n').unwrap_or(line.len());
    let reply: Reply = serde_json::from_slice(&line[..end])?;
    if reply.hidden {
        return Ok(Answer::NotPublished);
    }
    match (reply.error, reply.ok, reply.address, socket) {
        (Some(error), ..) => Ok(Answer::Error(error)),
        (None, true, Some(address), Some(fd)) => Ok(Answer::Socket(address, fd)),
        (None, false, ..) => Ok(Answer::NotPublished),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "an answer without a socket")),
    }
}
