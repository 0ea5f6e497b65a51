//! Connections that the server begins: this node makes them while it leads.

use super::clients::{ClientSocket, socket_addr};
use super::serve::not_allowed;
use super::{CLIENTS, Reactor};
use mio::net::TcpStream;
use mio::{Interest, Token};
use skein_model::{ConnId, SockAddr};
use std::io;

impl Reactor {
    /// Begins what the server asked for since the last time.
    pub(super) fn begin_connections(&mut self) {
        for (id, to) in self.gateway.take_wanted() {
            match self.connect(id, to) {
                Ok(socket) => {
                    self.metrics.outgoing_total.inc();
                    self.gateway.begin(id, socket, self.now);
                }
                Err(error) => {
                    self.note_rarely("connect_failed", &format!("{}: {error}", socket_addr(to)));
                    self.gateway.fail(id, error.raw_os_error().unwrap_or_default());
                }
            }
        }
    }

    fn connect(&mut self, id: ConnId, to: SockAddr) -> io::Result<ClientSocket> {
        let address = socket_addr(to);
        if !self.config.outgoing.allows(address) {
            self.note_rarely("connect_not_allowed", &not_allowed(address));
            return Err(io::Error::from_raw_os_error(libc::ENETUNREACH));
        }
        self.answered.note()?;
        let mut socket = ClientSocket::new(TcpStream::connect(address)?);
        let token = Token(CLIENTS + (id.0 as u32) as usize);
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        self.sources.crowd().register(&mut socket.0, token, interest)?;
        Ok(socket)
    }
}
