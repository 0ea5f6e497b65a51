//! Datagrams between the server and the outside (UDP).
//!
//! A port that the server asked for is published, like one that it listens on. For an automatic port, used to send, the
//! leader opens a socket when the server first sends to the outside; answers come in by the same socket. Incoming datagrams
//! become records, the server's leave by the leader that serves: a follower, and a leader whose server still
//! executes entries of earlier leaders, sends nothing. Datagrams that find no room are lost, as in any network.
//!
//! Invariants: only a leader that serves reads, so that datagrams wait in the kernel's queue of a
//! published socket while there is no leader; one record a datagram, in the order of each socket.

use super::publish::{Port, Published, shown};
use crate::config::Publisher;
use crate::error::NodeError;
use mio::net::UdpSocket;
use mio::{Registry, Token};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use skein_model::limits::MAX_DATAGRAM_BYTES;
use skein_model::{EntryBuilder, Record, SockAddr};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// Sockets for automatic ports of the server: the oldest goes when there are more.
const MAX_OWN: usize = 256;
/// The most bytes of one socket in one entry.
const FAIR_SHARE: usize = 64;
/// The most bytes of all sockets in one entry, so that connections have room as well: half of it.
const SHARE_BYTES: usize = skein_model::entry::MAX_ENTRY_BYTES / 2;
/// The most failures that wait to be reported: more are dropped.
const MAX_FAILURES: usize = 256;
/// The room that an entry must have left for the largest datagram.
const RECORD_BYTES: usize = MAX_DATAGRAM_BYTES + 64;

/// All sockets for datagrams of a node.
#[derive(Debug)]
pub struct Datagrams {
    sockets: Published<UdpSocket>,
    failures: VecDeque<(SockAddr, SockAddr, u16)>,
    buffer: Vec<u8>,
}

impl Datagrams {
    /// No sockets; tokens count from `first_token`.
    #[must_use]
    pub fn new(how: Publisher, first_token: usize) -> Self {
        Self {
            sockets: Published::new(how, first_token),
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
        receiving: &BTreeSet<SockAddr>,
        leads: bool,
        registry: &Registry,
    ) -> Result<(), NodeError> {
        if !leads {
            self.sockets.open.retain(|p| p.published);
            self.failures.clear();
        }
        let open = leads || self.sockets.are_inherited();
        self.sockets.follow(receiving, open, leads, registry)
    }

    /// Whether a socket of the server is a published one, which may answer any sender.
    #[must_use]
    pub fn heard_from(&self, local: SockAddr) -> bool {
        self.sockets.open.iter().any(|p| p.published && p.server.port == local.port)
    }

    /// The published addresses of datagram ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let published = self.sockets.open.iter().filter(|p| p.published);
        published.map(|p| shown::<UdpSocket>(p.address)).collect()
    }

    /// A datagram arrived.
    pub fn ready(&mut self, token: Token) {
        self.sockets.ready(token);
    }

    /// Whether [`collect`](Self::collect) has something to try.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.failures.is_empty() || self.sockets.have_input()
    }

    /// Puts arrived datagrams into `entry`, each socket's fair share.
    pub fn collect(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        while entry.room() >= RECORD_BYTES {
            let Some((local, peer, errno)) = self.failures.pop_front() else { break };
            entry.push(Record::DatagramFailed { local, peer, errno });
        }
        let least = entry.room().saturating_sub(SHARE_BYTES).max(RECORD_BYTES);
        let Self { sockets, buffer, failures } = self;
        // The next turn begins with another one.
        if !sockets.open.is_empty() {
            sockets.open.rotate_left(1);
        }
        for port in sockets.with_input() {
            for _ in 0..FAIR_SHARE {
                if entry.room() < least {
                    return;
                }
                match port.socket.recv_from(buffer) {
                    // Longer than an IPv4 datagram.
                    Ok((n, _)) if n > MAX_DATAGRAM_BYTES => {}
                    Ok((n, peer)) => {
                        let (local, bytes) = (port.seen_by_server(), &buffer[..n]);
                        entry.push(Record::Datagram { local, peer: SockAddr::from(peer), bytes });
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        port.has_input = false;
                        break;
                    }
                    // A sent datagram did not arrive; or a signal came.
                    Err(_) => port.read_failures(failures),
                }
            }
        }
    }

    /// Sends for the server.
    ///
    /// # Errors
    /// It cannot be sent, for a reason that a sender would see.
    pub fn send(
        &mut self,
        local: SockAddr,
        peer: SockAddr,
        bytes: &[u8],
        registry: &Registry,
    ) -> io::Result<()> {
        let (at, to) = match self.way(local, peer) {
            Some(way) => way,
            None => {
                let to = SocketAddr::from(peer);
                (self.open_own(local, to.is_ipv6(), registry)?, to)
            }
        };
        let Self { sockets, failures, .. } = self;
        let port = &sockets.open[at];
        // The error of an earlier datagram is reported first.
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

    /// The socket by which the server's socket sends there, and the destination. A client that the server sees translated is answered by its own IP version.
    fn way(&self, local: SockAddr, peer: SockAddr) -> Option<(usize, SocketAddr)> {
        let by = |to: SocketAddr, published: bool| {
            let at = self.sockets.open.iter().position(|p| {
                p.server.port == local.port
                    && (p.published || !published)
                    && p.address.is_ipv6() == to.is_ipv6()
                    // A loopback source address cannot reach other hosts.
                    && (!p.address.ip().is_loopback() || to.ip().is_loopback())
            })?;
            Some((at, to))
        };
        by(SocketAddr::from(peer), false).or_else(|| by(SocketAddr::from(peer.translated()?), true))
    }

    fn open_own(&mut self, local: SockAddr, v6: bool, registry: &Registry) -> io::Result<usize> {
        let sockets = &mut self.sockets;
        let own = |p: &Port<_>| !p.published;
        if sockets.open.iter().filter(|p| own(p)).count() >= MAX_OWN
            && let Some(oldest) = sockets.open.iter().filter(|p| own(p)).map(|p| p.token).min()
        {
            sockets.open.retain(|p| p.token != oldest);
        }
        let any =
            if v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0).into())?;
        if v6 {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        }
        let mut port = sockets.port(local, socket.local_addr()?, socket);
        port.watch(true, registry)?;
        // No datagram was sent yet that a host could have answered.
        port.has_input = false;
        sockets.open.push(port);
        Ok(sockets.open.len() - 1)
    }

    /// Tells the server that one of its datagrams cannot arrive.
    pub fn fail(&mut self, local: SockAddr, peer: SockAddr, error: &io::Error) {
        let errno = error.raw_os_error().and_then(|e| u16::try_from(e).ok());
        remember(&mut self.failures, local, peer, errno.unwrap_or(libc::ENETUNREACH as u16));
    }

    /// The server closed a socket.
    pub fn close(&mut self, local: SockAddr) {
        self.sockets.open.retain(|p| p.published || p.server.port != local.port);
    }
}

impl Port<UdpSocket> {
    /// The destination address of an arrived datagram; the runtime finds the server's socket for it.
    fn seen_by_server(&self) -> SockAddr {
        if !self.published {
            return self.server;
        }
        let port = self.server.port;
        match self.address.ip() {
            ip if !ip.is_unspecified() => SocketAddr::new(ip, port).into(),
            IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, port)).into(),
            IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into(),
        }
    }

    /// Takes the kernel's errors about datagrams that did not arrive.
    fn read_failures(&self, failures: &mut VecDeque<(SockAddr, SockAddr, u16)>) {
        // Bounded: a host that answers with errors must not occupy this thread.
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
