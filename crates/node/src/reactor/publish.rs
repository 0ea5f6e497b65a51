//! Sockets of the node for the server's ports: listening ones ([`super::ports`]) and those for datagrams
//! ([`super::datagrams`]), opened, watched and closed by one rule.
//!
//! The [`Publisher`] decides the source of a socket: bound here, or handed over by the parent, which shares it among all nodes of the
//! machine. A port that is not to be published is requested once.

use crate::config::{Publish, Publisher};
use crate::error::NodeError;
use mio::event::Source;
use mio::net::{TcpListener, UdpSocket};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use skein_model::SockAddr;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The parent answers at once or not at all.
const PARENT_TIMEOUT: Duration = Duration::from_secs(5);

/// A kind of socket that can be published.
pub(super) trait Kind: Source + Sized {
    /// Whether it is for datagrams.
    const UDP: bool;

    /// Binds one; a listening one listens.
    fn bind(at: SocketAddr) -> io::Result<Self>;

    /// One that the parent has bound.
    fn adopt(fd: OwnedFd) -> io::Result<Self>;

    /// Where it is bound.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

impl Kind for TcpListener {
    const UDP: bool = false;

    fn bind(at: SocketAddr) -> io::Result<Self> {
        Self::bind(at)
    }

    fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let listener = std::net::TcpListener::from(fd);
        listener.set_nonblocking(true)?;
        Ok(Self::from_std(listener))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

impl Kind for UdpSocket {
    const UDP: bool = true;

    fn bind(at: SocketAddr) -> io::Result<Self> {
        Self::bind(at)
    }

    fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let socket = std::net::UdpSocket::from(fd);
        socket.set_nonblocking(true)?;
        Ok(Self::from_std(socket))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// A socket that stands for one of the server's.
#[derive(Debug)]
pub(super) struct Port<S> {
    /// The server's socket.
    pub server: SockAddr,
    /// Where `socket` is bound.
    pub address: SocketAddr,
    /// Whether the outside knows that address; otherwise it was opened to send by.
    pub published: bool,
    pub socket: S,
    pub token: Token,
    watched: bool,
    /// Input may have arrived, as far as is known.
    pub has_input: bool,
}

impl<S: Source> Port<S> {
    /// Makes `registry` watch the socket, or not.
    ///
    /// # Errors
    /// The kernel watches no more.
    pub(super) fn watch(&mut self, wanted: bool, registry: &Registry) -> io::Result<()> {
        if wanted && !self.watched {
            registry.register(&mut self.socket, self.token, Interest::READABLE)?;
            self.has_input = true;
        } else if !wanted && self.watched {
            // A socket that is not watched costs nothing; a failure would mean that it was not.
            let _ = registry.deregister(&mut self.socket);
            self.has_input = false;
        }
        self.watched = wanted;
        Ok(())
    }
}

/// A node's sockets of one kind, including those only for sending.
#[derive(Debug)]
pub(super) struct Published<S> {
    pub how: Publisher,
    pub open: Vec<Port<S>>,
    /// The server's ports that are not to be published.
    refused: BTreeSet<u16>,
    next_token: usize,
}

impl<S> Published<S> {
    /// None; tokens count from `first_token`.
    pub(super) const fn new(how: Publisher, first_token: usize) -> Self {
        Self { how, open: Vec::new(), refused: BTreeSet::new(), next_token: first_token }
    }

    /// Whether the parent keeps them open, so that nothing is lost while there is no leader.
    pub(super) const fn are_inherited(&self) -> bool {
        matches!(self.how, Publisher::Inherited { .. })
    }

    /// An event arrived.
    pub(super) fn ready(&mut self, token: Token) {
        if let Some(port) = self.open.iter_mut().find(|p| p.token == token) {
            port.has_input = true;
        }
    }

    /// Whether [`with_input`](Self::with_input) has one.
    pub(super) fn have_input(&self) -> bool {
        self.open.iter().any(|p| p.has_input && p.watched)
    }

    /// Those at which input may have arrived.
    pub(super) fn with_input(&mut self) -> impl Iterator<Item = &mut Port<S>> {
        self.open.iter_mut().filter(|p| p.has_input && p.watched)
    }
}

impl<S: Kind> Published<S> {
    /// Makes the published sockets those for `server`, or none unless `open`. `watched`: input is taken.
    ///
    /// # Errors
    /// An address cannot be had.
    pub(super) fn follow(
        &mut self,
        server: &BTreeSet<SockAddr>,
        open: bool,
        watched: bool,
        registry: &Registry,
    ) -> Result<(), NodeError> {
        self.open.retain_mut(|p| {
            let stays =
                !p.published || open && server.iter().any(|wanted| wanted.port == p.server.port);
            if !stays {
                // Closing it is not enough: the parent has it open, too, and the kernel would go on watching it.
                let _ = p.watch(false, registry);
            }
            stays
        });
        for server in server.iter().filter(|_| open) {
            let known = self.open.iter().any(|p| p.published && p.server.port == server.port);
            if known || self.refused.contains(&server.port) {
                continue;
            }
            for (address, socket) in self.publish(*server)? {
                let udp = S::UDP.then_some(true);
                tracing::info!(event = "published", %address, server_port = server.port, udp);
                let port = self.port(*server, address, socket);
                self.open.push(Port { published: true, ..port });
            }
        }
        for port in self.open.iter_mut().filter(|p| p.published) {
            port.watch(watched, registry).map_err(NodeError::system("watch a published socket"))?;
        }
        Ok(())
    }

    /// A socket, with a token, that is neither published nor watched yet.
    pub(super) const fn port(
        &mut self,
        server: SockAddr,
        address: SocketAddr,
        socket: S,
    ) -> Port<S> {
        let token = Token(self.next_token);
        self.next_token += 1;
        Port { server, address, published: false, socket, token, watched: false, has_input: false }
    }

    fn publish(&mut self, server: SockAddr) -> Result<Vec<(SocketAddr, S)>, NodeError> {
        match &self.how {
            Publisher::Bind { publish } => {
                let wanted = wanted(publish, server.port, S::UDP);
                if wanted.is_empty() {
                    self.refused.insert(server.port);
                    tracing::info!(
                        event = "not_published",
                        server_port = server.port,
                        udp = S::UDP.then_some(true),
                        why = "not in the list of ports to publish"
                    );
                }
                wanted.into_iter().map(bind).collect()
            }
            Publisher::Anywhere => Ok(vec![bind((Ipv4Addr::LOCALHOST, 0).into())?]),
            Publisher::Inherited { socket } => {
                let shown = printable_address(&server);
                let failed = |why| failed::<S>(format!("{shown}:{}", server.port), why);
                let answer = ask_parent(socket, &shown, server.port, S::UDP)
                    .map_err(|e| failed(format!("the parent does not hand over a socket: {e}")))?;
                match answer {
                    Answer::Socket(address, fd) => {
                        let socket = S::adopt(fd).map_err(|e| failed(e.to_string()))?;
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
}

fn bind<S: Kind>(at: SocketAddr) -> Result<(SocketAddr, S), NodeError> {
    let bound = || {
        let socket = S::bind(at)?;
        Ok((socket.local_addr()?, socket))
    };
    bound().map_err(|error: io::Error| failed::<S>(at, error.to_string()))
}

fn failed<S: Kind>(at: impl Display, why: String) -> NodeError {
    NodeError::Publish { address: shown::<S>(at), why }
}

/// An address in the users' form.
pub(super) fn shown<S: Kind>(at: impl Display) -> String {
    format!("{at}{}", if S::UDP { "/udp" } else { "" })
}

/// The published address of a port of the server.
fn wanted(publish: &[Publish], port: u16, udp: bool) -> Vec<SocketAddr> {
    if publish.is_empty() {
        return vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    }
    publish
        .iter()
        .filter(|p| p.udp == udp && p.server_port.unwrap_or(p.address.port()) == port)
        .map(|p| p.address)
        .collect()
}

/// An address without its port.
fn printable_address(addr: &SockAddr) -> String {
    match addr.ipv4() {
        Some(ip) => Ipv4Addr::from(ip).to_string(),
        None => std::net::Ipv6Addr::from(addr.ip).to_string(),
    }
}

/// The parent's answer.
enum Answer {
    /// This socket, published there.
    Socket(SocketAddr, OwnedFd),
    /// The port is not to be published.
    NotPublished,
    /// It cannot be.
    Error(String),
}

/// `{"publish":{"addr":"0.0.0.0","port":6379,"udp":false}}` to the parent; it answers `{"ok":true,"address":"127.0.0.1:6379"}` with the
/// socket, `{"ok":false}` when the port is not to be published, or `{"error":"..."}`.
fn ask_parent(path: &Path, addr: &str, port: u16, udp: bool) -> io::Result<Answer> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use nix::sys::socket::{ControlMessage, sendmsg};
    use std::io::{BufRead, BufReader, IoSlice};
    use std::os::unix::net::UnixListener;

    /// Answers `times` questions with the same socket.
    fn parent(listener: &UnixListener, shared: &std::net::TcpListener, times: usize) {
        let address = shared.local_addr().unwrap();
        for _ in 0..times {
            let (stream, _) = listener.accept().unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            let answer = format!("{{\"ok\":true,\"address\":\"{address}\"}}\n");
            let fds = [shared.as_raw_fd()];
            let control = [ControlMessage::ScmRights(&fds)];
            let slices = [IoSlice::new(answer.as_bytes())];
            sendmsg::<()>(stream.as_raw_fd(), &slices, &control, MsgFlags::empty(), None).unwrap();
        }
    }

    #[test]
    fn a_socket_that_the_parent_keeps_is_watched_no_more_and_then_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("parent");
        let listener = UnixListener::bind(&path).unwrap();
        let shared = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut poll = Poll::new().unwrap();
        let mut events = Events::with_capacity(8);
        let registry = poll.registry().try_clone().unwrap();
        let mut happened = |patience: Duration| {
            poll.poll(&mut events, Some(patience)).unwrap();
            events.iter().map(|event| event.token().0).collect::<Vec<usize>>()
        };
        let server = BTreeSet::from([SockAddr::v4([0; 4], 80)]);
        std::thread::scope(|scope| {
            scope.spawn(|| parent(&listener, &shared, 2));
            let how = Publisher::Inherited { socket: path.clone() };
            let mut ports = Published::<TcpListener>::new(how, 100);
            ports.follow(&server, true, true, &registry).unwrap();
            // The server is gone, and another one starts; a client was faster.
            ports.follow(&BTreeSet::new(), true, true, &registry).unwrap();
            let _client = std::net::TcpStream::connect(shared.local_addr().unwrap()).unwrap();
            let between = happened(Duration::ZERO);
            // Asks the parent in any case, which waits for that.
            let again = ports.follow(&server, true, true, &registry);
            assert!(between.is_empty(), "what is closed is watched: {between:?}");
            again.unwrap();
            assert_eq!(happened(Duration::from_secs(10)), [101]);
        });
    }
}
