//! Unix sockets, between nodes of one machine. One whose other end is another user's is refused.

use super::{Accepted, Listener, Stream, Watch};
use mio::event::Source;
use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Begins to listen. An old socket is replaced: its directory is this node's.
///
/// # Errors
/// Those of the system calls.
pub fn listen(path: &Path) -> io::Result<Box<dyn Listener>> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(Box::new(UnixListener::bind(path)?))
}

/// Begins to connect.
///
/// # Errors
/// Those of the system calls; the listener is another user's.
pub fn connect(path: &Path) -> io::Result<Box<dyn Stream>> {
    let stream = UnixStream::connect(path)?;
    if is_own(stream.as_fd()) {
        Ok(Box::new(stream))
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// Whether the other side is this process's user's, or root's.
fn is_own(socket: BorrowedFd<'_>) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    getsockopt(&socket, PeerCredentials).is_ok_and(|who| [0, own].contains(&who.uid()))
}

impl Listener for UnixListener {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        Source::register(self, registry, token, Interest::READABLE)
    }

    fn accept_one(&self) -> io::Result<Option<Accepted>> {
        let (stream, _) = self.accept()?;
        if is_own(stream.as_fd()) {
            return Ok(Some((Box::new(stream), None)));
        }
        tracing::warn!(event = "peer_refused", why = "another user's process");
        Ok(None)
    }
}

impl Stream for UnixStream {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        Source::register(self, registry, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn watch(&mut self, registry: &Registry, token: Token, watch: Watch) -> io::Result<()> {
        super::watch(self, registry, token, watch)
    }

    /// The kernel itself carries the bytes: there is nothing to wait for.
    fn give_up_after(&self, _: Duration) {}
}
