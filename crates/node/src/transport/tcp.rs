//! TCP, between nodes of several machines.

use super::{Accepted, Listener, Stream, Watch};
use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpUserTimeout;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Begins to listen.
///
/// # Errors
/// Those of the system calls.
pub fn listen(address: SocketAddr) -> io::Result<Box<dyn Listener>> {
    Ok(Box::new(TcpListener::bind(address)?))
}

/// Begins to connect.
///
/// # Errors
/// Those of the system calls.
pub fn connect(address: SocketAddr) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(TcpStream::connect(address)?))
}

impl Listener for TcpListener {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        Source::register(self, registry, token, Interest::READABLE)
    }

    fn accept_one(&self) -> io::Result<Option<Accepted>> {
        let (stream, from) = self.accept()?;
        Ok(Some((Box::new(stream), Some(from.ip()))))
    }
}

impl Stream for TcpStream {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        // Fails when the connection is gone already; the first read tells.
        let _ = self.set_nodelay(true);
        Source::register(self, registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn watch(&mut self, registry: &Registry, token: Token, watch: Watch) -> io::Result<()> {
        super::watch(self, registry, token, watch)
    }

    fn give_up_after(&self, limit: Duration) {
        // Fails when the connection is gone already; the first read tells.
        let _ = setsockopt(self, TcpUserTimeout, &(limit.as_millis() as u32));
    }
}
