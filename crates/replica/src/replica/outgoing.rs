//! Connections that the server begins: this node makes them while it leads.

use super::serve::not_allowed;
use super::{Environment, Replica};
use skein_model::{ConnId, SockAddr};
use std::io;
use std::net::SocketAddr;

impl<E: Environment> Replica<E> {
    /// Begins the connections that the server requested since the last call.
    pub(super) fn begin_connections(&mut self) {
        for (id, to) in self.gateway.take_wanted() {
            match self.connect(id, to) {
                Ok(socket) => {
                    self.metrics.outgoing_total.inc();
                    self.gateway.begin(id, socket, self.now);
                }
                Err(error) => {
                    self.note_rarely(
                        "connect_failed",
                        &format!("{}: {error}", SocketAddr::from(to)),
                    );
                    self.gateway.fail(id, error.raw_os_error().unwrap_or_default());
                }
            }
        }
    }

    fn connect(&mut self, id: ConnId, to: SockAddr) -> io::Result<E::Socket> {
        let address = SocketAddr::from(to);
        if !self.config.outgoing.allows(address) {
            self.note_rarely("connect_not_allowed", &not_allowed(address));
            return Err(io::Error::from_raw_os_error(libc::ENETUNREACH));
        }
        self.env.note_answered()?;
        self.env.connect(id, to)
    }
}
