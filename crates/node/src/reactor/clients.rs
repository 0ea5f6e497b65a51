//! The kernel's sockets of connections with the outside: of clients, and of hosts that the server connects to.

use mio::net::TcpStream;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use skein_replica::gateway::Socket;
use std::io::{self, IoSlice, Write};
use std::net::Shutdown;

/// A client that vanished silently is noticed after 60 s of silence and 3 probes, 10 s apart.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;

/// One connection's socket.
#[derive(Debug)]
pub struct ClientSocket(pub TcpStream);

impl ClientSocket {
    /// Sets the common options; a failure (the client may be gone already) shows at the next read.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        // A byte that a client marks as urgent is a byte of the stream: the log has no place beside it.
        let _ = set_socket_oobinline(&stream, true);
        let _ = setsockopt(&stream, sockopt::KeepAlive, &true);
        let _ = setsockopt(&stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S);
        let _ = setsockopt(&stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S);
        let _ = setsockopt(&stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES);
        let mut socket = Self(stream);
        // Until it ends in order: when this process is killed, the kernel resets it, because half an answer must not look complete.
        socket.reset();
        socket
    }

    fn linger(&self, on: bool) {
        let linger = libc::linger { l_onoff: on.into(), l_linger: 0 };
        let _ = setsockopt(&self.0, sockopt::Linger, &linger);
    }
}

impl Socket for ClientSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Not by libc, where this is a cancellation point, which costs switching cancellation on and off.
        Ok(recv(&self.0, buffer, RecvFlags::empty())?.0)
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match slices {
            [one] => Ok(send(&self.0, one, SendFlags::NOSIGNAL)?),
            many => self.0.write_vectored(many),
        }
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        match self.0.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Some(Err(error)),
        }
        match self.0.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn shutdown_write(&mut self) {
        self.linger(false);
        // Fails only when the client is gone, which the next read tells.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    fn reset(&mut self) {
        self.linger(true);
    }
}
