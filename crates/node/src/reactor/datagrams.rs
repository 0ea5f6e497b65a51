//! Datagrams between the server and the outside (UDP).
//!
//! A port that the server asked for is published, like one that it listens on. For a port that it was given, to send by it, the
//! leader opens a socket when the server first sends to the outside; answers to that come in by the same way. What comes in
//! becomes records, what the server sends leaves by the leader that serves: a follower, and a leader whose server still
//! executes what was before its time, sends nothing. Whatever finds no room is lost, as datagrams are.
//!
//! Invariants: only a leader that serves reads, so that what comes while there is no leader waits in the kernel's queue of a
//! published socket; one record a datagram, in the order in which a socket's came.

use super::clients::{sock_addr, socket_addr};
use super::publish::{Answer, ask_parent, printable_address, wanted};
use crate::config::Publisher;
use crate::error::NodeError;
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use skein_model::limits::MAX_DATAGRAM_BYTES;
use skein_model::{EntryBuilder, Record, SockAddr};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// Sockets for ports that the server was given: the oldest goes when there are more.
const MAX_OWN: usize = 256;
/// What one socket may add to one entry.
const FAIR_SHARE: usize = 64;
/// What all sockets may add to one entry, so that connections have room as well: half of it.
const SHARE_BYTES: usize = skein_model::entry::MAX_ENTRY_BYTES / 2;
/// Failures that wait to be told: more are forgotten.
const MAX_FAILURES: usize = 256;
/// What an entry must have left for a datagram that may be the largest.
const RECORD_BYTES: usize = MAX_DATAGRAM_BYTES + 64;

#[derive(Debug)]
struct Port {
    /// The server's socket.
    server: SockAddr,
    /// Where it is published; `None` for one that the leader opened to send by.
    published: Option<SocketAddr>,
    v6: bool,
    socket: UdpSocket,
    token: Token,
    registered: bool,
    readable: bool,
}

/// All sockets for datagrams of a node.
#[derive(Debug)]
pub struct Datagrams {
    how: Publisher,
    open: Vec<Port>,
    refused: BTreeSet<u16>,
    next_token: usize,
    failures: VecDeque<(SockAddr, SockAddr, u16)>,
    buffer: Vec<u8>,
}

impl Datagrams {
    /// No sockets; tokens count from `first_token`.
    #[must_use]
    pub fn new(how: Publisher, first_token: usize) -> Self {
        Self {
            how,
            open: Vec::new(),
            refused: BTreeSet::new(),
            next_token: first_token,
            failures: VecDeque::new(),
            buffer: vec![0; MAX_DATAGRAM_BYTES + 1],
        }
    }

    /// Makes the published ports those where the server waits for datagrams. `leads`: they are read from.
    ///
    /// # Errors
    /// An address cannot be had.
    pub fn follow(
        &mut self,
        listening: &BTreeSet<SockAddr>,
        leads: bool,
        registry: &Registry,
    ) -> Result<(), NodeError> {
        let kept = leads || matches!(self.how, Publisher::Inherited { .. });
        self.open.retain(|p| match p.published {
            Some(_) => kept && listening.iter().any(|a| a.port == p.server.port),
            None => leads,
        });
        if !leads {
            self.failures.clear();
        }
        for server in listening.iter().filter(|_| kept) {
            let known =
                self.open.iter().any(|p| p.published.is_some() && p.server.port == server.port);
            if known || self.refused.contains(&server.port) {
                continue;
            }
            for (address, socket) in self.publish(*server)? {
                tracing::info!(event = "published", %address, server_port = server.port, udp = true);
                self.add(*server, Some(address), socket);
            }
        }
        for port in self.open.iter_mut().filter(|p| p.published.is_some()) {
            if leads && !port.registered {
                registry
                    .register(&mut port.socket, port.token, Interest::READABLE)
                    .map_err(NodeError::system("watch a socket for datagrams"))?;
                port.readable = true;
            } else if !leads && port.registered {
                // A socket that is not watched costs nothing; a failure would mean that it was not.
                let _ = registry.deregister(&mut port.socket);
                port.readable = false;
            }
            port.registered = leads;
        }
        Ok(())
    }

    fn add(
        &mut self,
        server: SockAddr,
        published: Option<SocketAddr>,
        socket: std::net::UdpSocket,
    ) {
        let token = Token(self.next_token);
        self.next_token += 1;
        let v6 = published.map_or(server.ipv4().is_none(), |at| at.is_ipv6());
        self.open.push(Port {
            server,
            published,
            v6,
            socket: UdpSocket::from_std(socket),
            token,
            registered: false,
            readable: false,
        });
    }

    fn publish(
        &mut self,
        server: SockAddr,
    ) -> Result<Vec<(SocketAddr, std::net::UdpSocket)>, NodeError> {
        let bound = |at: SocketAddr| {
            let failed = |error: io::Error| NodeError::Publish {
                address: format!("{at}/udp"),
                why: error.to_string(),
            };
            let socket = std::net::UdpSocket::bind(at).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            let at = socket.local_addr().map_err(failed)?;
            Ok((at, socket))
        };
        match &self.how {
            Publisher::Bind { publish } => {
                let wanted = wanted(publish, server.port, true);
                if wanted.is_empty() {
                    self.refused.insert(server.port);
                }
                wanted.into_iter().map(bound).collect()
            }
            Publisher::Anywhere => Ok(vec![bound((Ipv4Addr::LOCALHOST, 0).into())?]),
            Publisher::Inherited { socket } => {
                let shown = printable_address(&server);
                let failed = |why: String| NodeError::Publish {
                    address: format!("{shown}:{}/udp", server.port),
                    why,
                };
                let answer = ask_parent(socket, &shown, server.port, true)
                    .map_err(|e| failed(format!("the parent does not hand over a socket: {e}")))?;
                match answer {
                    Answer::Socket(address, fd) => {
                        let socket = std::net::UdpSocket::from(fd);
                        socket.set_nonblocking(true).map_err(|e| failed(e.to_string()))?;
                        Ok(vec![(address, socket)])
                    }
                    Answer::NotPublished => {
                        self.refused.insert(server.port);
                        Ok(Vec::new())
                    }
                    Answer::Error(why) => Err(failed(why)),
                }
            }
        }
    }

    /// Whether a socket of the server is a published one: it answers whoever speaks to it.
    #[must_use]
    pub fn heard_from(&self, local: SockAddr) -> bool {
        self.open.iter().any(|p| p.published.is_some() && p.server.port == local.port)
    }

    /// Where datagrams reach the server.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.open.iter().filter_map(|p| p.published).map(|at| format!("{at}/udp")).collect()
    }

    /// Something came.
    pub fn ready(&mut self, token: Token) {
        if let Some(port) = self.open.iter_mut().find(|p| p.token == token) {
            port.readable = true;
        }
    }

    /// Whether [`collect`](Self::collect) would have something to try.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.failures.is_empty() || self.open.iter().any(|p| p.readable && p.registered)
    }

    /// Puts what came into `entry`, each socket's fair share.
    pub fn collect(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        while entry.room() >= RECORD_BYTES {
            let Some((local, peer, errno)) = self.failures.pop_front() else { break };
            entry.push(Record::DatagramFailed { local, peer, errno });
        }
        let least = entry.room().saturating_sub(SHARE_BYTES).max(RECORD_BYTES);
        let Self { open, buffer, failures, .. } = self;
        // The next turn begins with another one.
        if !open.is_empty() {
            open.rotate_left(1);
        }
        for port in open.iter_mut().filter(|p| p.readable && p.registered) {
            for _ in 0..FAIR_SHARE {
                if entry.room() < least {
                    return;
                }
                match port.socket.recv_from(buffer) {
                    // Longer than IPv4 has them.
                    Ok((n, _)) if n > MAX_DATAGRAM_BYTES => {}
                    Ok((n, peer)) => {
                        let (local, bytes) = (port.seen_by_server(), &buffer[..n]);
                        entry.push(Record::Datagram { local, peer: sock_addr(peer), bytes });
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        port.readable = false;
                        break;
                    }
                    // One that was sent did not arrive; or a signal came.
                    Err(_) => port.read_failures(failures),
                }
            }
        }
    }

    /// Sends for the server.
    ///
    /// # Errors
    /// It cannot be sent, for a reason that a sender would be told.
    pub fn send(
        &mut self,
        local: SockAddr,
        peer: SockAddr,
        bytes: &[u8],
        registry: &Registry,
    ) -> io::Result<()> {
        let to = socket_addr(peer);
        let at = match self.way(local, to) {
            Some(at) => at,
            None => self.open_own(local, to.is_ipv6(), registry)?,
        };
        let Self { open, failures, .. } = self;
        let port = &mut open[at];
        // What is told first is that an earlier one did not arrive.
        for _ in 0..4 {
            match port.socket.send_to(bytes, to) {
                Ok(_) => return Ok(()),
                // The kernel's queue is full: lost.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    let before = failures.len();
                    port.read_failures(failures);
                    if failures.len() == before {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// The socket by which the server's socket sends there.
    fn way(&self, local: SockAddr, to: SocketAddr) -> Option<usize> {
        self.open.iter().position(|p| {
            p.server.port == local.port
                && p.v6 == to.is_ipv6()
                // From a loopback address the rest of the world cannot be reached.
                && p.published.is_none_or(|at| !at.ip().is_loopback() || to.ip().is_loopback())
        })
    }

    fn open_own(&mut self, local: SockAddr, v6: bool, registry: &Registry) -> io::Result<usize> {
        let own = |p: &Port| p.published.is_none();
        if self.open.iter().filter(|p| own(p)).count() >= MAX_OWN
            && let Some(oldest) = self.open.iter().filter(|p| own(p)).map(|p| p.token).min()
        {
            self.open.retain(|p| p.token != oldest);
        }
        let any =
            if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        if v6 {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        }
        self.add(local, None, socket);
        let at = self.open.len() - 1;
        let port = &mut self.open[at];
        port.v6 = v6;
        registry.register(&mut port.socket, port.token, Interest::READABLE)?;
        port.registered = true;
        Ok(at)
    }

    /// Tells the server that one that it sent cannot arrive.
    pub fn fail(&mut self, local: SockAddr, peer: SockAddr, error: &io::Error) {
        let errno = error.raw_os_error().and_then(|e| u16::try_from(e).ok());
        remember(&mut self.failures, local, peer, errno.unwrap_or(libc::ENETUNREACH as u16));
    }

    /// The server closed a socket.
    pub fn close(&mut self, local: SockAddr) {
        self.open.retain(|p| p.published.is_some() || p.server.port != local.port);
    }
}

impl Port {
    /// Where the server's socket finds what came here.
    fn seen_by_server(&self) -> SockAddr {
        if !self.server.is_unspecified() {
            return self.server;
        }
        match self.published {
            Some(at) if !at.ip().is_unspecified() => {
                SockAddr { port: self.server.port, ..sock_addr(at) }
            }
            _ if self.v6 => sock_addr((Ipv6Addr::LOCALHOST, self.server.port).into()),
            _ => sock_addr((Ipv4Addr::LOCALHOST, self.server.port).into()),
        }
    }

    /// Takes what the kernel was told about datagrams that did not arrive.
    fn read_failures(&self, failures: &mut VecDeque<(SockAddr, SockAddr, u16)>) {
        // Bounded: whoever answers with errors must not keep this thread.
        for _ in 0..FAIR_SHARE {
            let mut bytes = [0; 16];
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let fd = self.socket.as_raw_fd();
            let Ok(message) =
                recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut control), flags)
            else {
                return;
            };
            let Some(peer) = message.address.and_then(internet) else { continue };
            let Ok(controls) = message.cmsgs() else { continue };
            for control in controls {
                if let ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _) = control
                {
                    let errno = u16::try_from(error.ee_errno).unwrap_or(libc::ENETUNREACH as u16);
                    remember(failures, self.seen_by_server(), peer, errno);
                }
            }
        }
    }
}

fn internet(address: SockaddrStorage) -> Option<SockAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SockAddr::v4(v4.ip().octets(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SockAddr::v6(v6.ip().octets(), v6.port()))
}

fn remember(
    failures: &mut VecDeque<(SockAddr, SockAddr, u16)>,
    local: SockAddr,
    peer: SockAddr,
    errno: u16,
) {
    if failures.len() < MAX_FAILURES {
        failures.push_back((local, peer, errno));
    }
}
