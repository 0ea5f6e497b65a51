//! Listening and connected sockets between nodes, of either kind. A unix socket whose other end is another user's is refused.

use super::address::Address;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::sockopt::{PeerCredentials, TcpUserTimeout};
use nix::sys::socket::{getsockopt, setsockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// On this machine.
    Unix(UnixListener),
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// On this machine.
    Unix(UnixStream),
}

impl Listener {
    /// Begins to listen. An old unix socket is replaced: its directory is this node's.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(*address).map(Self::Tcp),
            Address::Unix(path) => {
                match std::fs::remove_file(path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                UnixListener::bind(path).map(Self::Unix)
            }
        }
    }

    /// Registers it with a poll.
    ///
    /// # Errors
    /// The poll does not take it.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let source: &mut dyn Source = match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket) => socket,
        };
        source.register(registry, token, Interest::READABLE)
    }

    /// The next connection and its host; `None` when there is none now.
    ///
    /// # Errors
    /// Those of the machine; a connection that is already gone, or is another user's, is passed over.
    pub fn accept(&self) -> io::Result<Option<(Stream, Option<IpAddr>)>> {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => {
                    listener.accept().map(|(s, from)| (Stream::Tcp(s), Some(from.ip())))
                }
                Self::Unix(listener) => listener.accept().map(|(s, _)| (Stream::Unix(s), None)),
            };
            match accepted {
                Ok((stream, from)) if stream.is_own() => return Ok(Some((stream, from))),
                Ok(_) => tracing::warn!(event = "peer_refused", why = "another user's process"),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                // The other side is gone again, or a signal came.
                Err(e) => match e.kind() {
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return Err(e),
                },
            }
        }
    }
}

impl Stream {
    /// Begins to connect.
    ///
    /// # Errors
    /// Those of the system calls; the listener of a unix socket is another user's.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let stream = match address {
            Address::Tcp(address) => Self::Tcp(TcpStream::connect(*address)?),
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
        };
        if stream.is_own() { Ok(stream) } else { Err(ErrorKind::PermissionDenied.into()) }
    }

    /// Whether the other side may be one's own user: of TCP nothing is known.
    fn is_own(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Unix(socket) => is_same_user(socket.as_fd()),
        }
    }

    /// Makes the kernel end it when its bytes are not acknowledged for this long.
    pub fn give_up_after(&self, limit: Duration) {
        if let Self::Tcp(socket) = self {
            // Fails when the connection is gone already; the first read tells.
            let _ = setsockopt(socket, TcpUserTimeout, &(limit.as_millis() as u32));
        }
    }

    /// Registers it with a poll, and has it send at once.
    ///
    /// # Errors
    /// The poll does not take it.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let wanted = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(socket) => {
                // Fails when the connection is gone already; the first read tells.
                let _ = socket.set_nodelay(true);
                socket.register(registry, token, wanted)
            }
            Self::Unix(socket) => socket.register(registry, token, wanted),
        }
    }
}

fn is_same_user(socket: BorrowedFd<'_>) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    getsockopt(&socket, PeerCredentials).is_ok_and(|who| [0, own].contains(&who.uid()))
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(to),
            Self::Unix(socket) => socket.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            Self::Unix(socket) => socket.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
