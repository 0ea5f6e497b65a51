//! The network as the server sees it: its sockets and its interfaces.
//!
//! A stream socket's received bytes are in its own queue; its transport sends into it: another socket of this server ([`Transport::Local`],
//! [`Transport::Pair`]) or a client behind the node ([`Transport::External`]). States and errors are those of Linux's TCP, without the
//! network: a segment's effect at the other end happens at once.

pub mod accept;
pub mod address;
pub mod bind;
mod bytes;
pub mod close;
pub mod connect;
pub mod create;
pub mod datagram;
pub mod exchange;
pub mod external;
pub mod inbound;
pub mod interface;
mod ioctl;
pub mod message;
pub mod multicast;
pub mod name;
pub mod netlink;
pub mod ops;
pub mod options;
pub mod outbound;
pub mod outside;
pub mod records;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod unix;

use crate::abi;
use crate::errno::{Result, fail};
use crate::file::{self, Hold, Kind};
use crate::host::Host;
pub use crate::state::net::{Bound, Net, Pending, Socket, State, Transport};
use skein_arena::pool::Handle;
use skein_model::limits::SEND_WINDOW_BYTES;

/// The capacity of a TCP connection between two sockets of the server in each direction: 1 MiB, about the size that Linux's buffers reach.
const LOCAL_CAPACITY_BYTES: usize = 1 << 20;
/// The capacity of a socket pair in each direction: Linux's default.
const PAIR_CAPACITY_BYTES: usize = 208 << 10;

/// Nothing more is received (as Linux's `RCV_SHUTDOWN`).
pub const SHUT_RECEIVE: u32 = 1;
/// Nothing more is sent (`SEND_SHUTDOWN`).
pub const SHUT_SEND: u32 = 2;
/// Both.
pub const SHUT_BOTH: u32 = 3;

impl Socket {
    /// Whether it carries bytes without message boundaries.
    pub fn is_stream(&self) -> bool {
        self.kind.get() == abi::SOCK_STREAM
    }

    /// Whether it carries messages without a connection.
    pub fn is_datagram(&self) -> bool {
        self.kind.get() == abi::SOCK_DGRAM
    }

    /// Linux's `TCP_CLOSE`.
    pub fn is_closed(&self) -> bool {
        matches!(self.state.get(), State::Fresh | State::Dead)
    }

    /// The number of bytes that can be sent now.
    pub fn room<H: Host>(&self, k: &H) -> usize {
        let (capacity, used) = match self.transport.get() {
            Transport::External => (SEND_WINDOW_BYTES, self.undrained.get() as usize),
            Transport::Pair => (PAIR_CAPACITY_BYTES, self.in_peer(k)),
            Transport::Local | Transport::None => (LOCAL_CAPACITY_BYTES, self.in_peer(k)),
        };
        capacity.saturating_sub(used)
    }

    fn in_peer<H: Host>(&self, k: &H) -> usize {
        self.peer.get().map_or(0, |peer| k.net.sockets.get(peer).received.len())
    }

    /// Whether a writer is told that there is room: a third must be free, as in Linux.
    pub fn writable<H: Host>(&self, k: &H) -> bool {
        let least = match self.transport.get() {
            Transport::External => SEND_WINDOW_BYTES / 3,
            Transport::Pair => PAIR_CAPACITY_BYTES / 3,
            Transport::Local | Transport::None => LOCAL_CAPACITY_BYTES / 3,
        };
        self.room(k) >= least
    }

    /// The pending error, which is then no longer pending.
    pub fn take_error(&self) -> i32 {
        self.error.replace(0)
    }
}

/// The socket behind a descriptor.
pub fn of<H: Host>(k: &H, hold: &Hold<'_, H>) -> Result<Handle<Socket>> {
    hold.file(k).as_kind(Kind::Socket).map_or(fail(abi::ENOTSOCK), Ok)
}

/// A socket without a file.
pub fn make<H: Host>(k: &H, family: i32) -> Result<Handle<Socket>> {
    let Some(socket) = k.net.sockets.alloc() else { return fail(abi::ENFILE) };
    let s = k.net.sockets.get(socket);
    s.family.set(family);
    s.kind.set(abi::SOCK_STREAM);
    Ok(socket)
}

/// Gives a socket a file and a descriptor; it stays as it is when there is none.
pub fn give_descriptor<H: Host>(k: &H, socket: Handle<Socket>, flags: i32) -> Result<i32> {
    let status = abi::O_RDWR | flags & abi::O_NONBLOCK;
    let cloexec = flags & abi::SOCK_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::Socket, socket.raw(), status, cloexec)?;
    k.net.sockets.get(socket).file.set(Some(file));
    Ok(fd)
}
