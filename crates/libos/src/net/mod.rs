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
pub mod stream;
#[cfg(test)]
mod tests;
pub mod unix;

use crate::abi;
use crate::errno::{Result, fail};
use crate::file::{self, File, Hold, Kind, MAX_FILES, MAX_SMALL, MAX_WATCHES};
use crate::host::Host;
use crate::room::Room;
use core::cell::Cell;
use message::{InQueue, Message};
use multicast::{Joined, Membership};
use options::Options;
use skein_arena::bytes::ByteQueue;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link, Pool};
use skein_model::limits::SEND_WINDOW_BYTES;
use skein_model::{ConnId, Interface, SockAddr};
use unix::name::Name;
use unix::rights::{Cred, Right, Rights};

/// Sockets, and the network around them. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Net {
    /// Sockets.
    pub sockets: Pool<Socket>,
    /// Messages on their way.
    pub messages: Pool<Message>,
    /// Descriptors on their way.
    pub rights: Pool<Right>,
    /// Memberships of sockets in groups.
    pub memberships: Pool<Membership>,
    /// All of them.
    pub joined: List<Membership, Joined>,
    /// Whether the node was told that groups do not reach the outside.
    pub told_of_groups: Cell<bool>,
    /// Names of UNIX sockets.
    pub names: Pool<Name>,
    /// Descriptors that were on their way and are being closed.
    pub dropped: Rights,
    /// Whether a process is closing them.
    pub dropping: Cell<bool>,
    /// UNIX sockets that have a name.
    pub named: List<Socket, Bound>,
    /// The number of automatic names of UNIX sockets so far.
    pub automatic_name: Cell<u32>,
    /// Datagram sockets that own a port.
    pub datagram_ports: List<Socket, Bound>,
    /// Netlink sockets that have a port id.
    pub netlink_ports: List<Socket, Bound>,
    /// TCP sockets that own a port.
    pub bound: List<Socket, Bound>,
    /// Connections of clients that the node knows.
    pub external: external::Connections,
    /// Connections that the server began.
    pub outbound: outbound::Numbers,
    /// The number of automatic ports so far.
    pub ephemeral: Cell<u32>,
    /// The configured interface beside the loopback one.
    pub interface: Cell<Interface>,
}

impl Net {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.sockets, MAX_FILES);
        room.pool(&self.messages, MAX_WATCHES);
        room.pool(&self.rights, MAX_SMALL);
        room.pool(&self.memberships, MAX_SMALL);
        let names = room.pool(&self.names, MAX_FILES);
        Name::note_own(room, names, MAX_FILES);
    }
}

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

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Not connected yet.
    Fresh = 0,
    /// Listening.
    Listening,
    /// Waits for room in a listener's queue.
    Connecting,
    /// Connected.
    Connected,
    /// Was connected, or failed to.
    Dead,
}

/// The kind of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Transport {
    /// None.
    None = 0,
    /// A TCP socket of this server.
    Local,
    /// The other socket of a pair.
    Pair,
    /// A client behind the node.
    External,
}

/// A socket's place in the list of those that own a port.
pub struct Bound;
/// A socket's place in its listener's queue: to be accepted, or waiting to get there.
pub struct Pending;

/// A socket.
#[repr(C)]
pub struct Socket {
    bound_node: Node<Socket>,
    pending_node: Node<Socket>,
    external_node: Node<Socket>,
    /// The next connection in the same bucket.
    pub bucket_next: Link<Socket>,
    /// Its file; none until it is accepted.
    pub file: Link<File>,
    /// `AF_INET`, `AF_INET6`, `AF_UNIX` or `AF_NETLINK`.
    pub family: Cell<i32>,
    /// `SOCK_STREAM`, `SOCK_DGRAM`, `SOCK_SEQPACKET` or, of netlink, `SOCK_RAW`.
    pub kind: Cell<i32>,
    /// Its state.
    pub state: Cell<State>,
    /// The kind of its other end.
    pub transport: Cell<Transport>,
    /// [`SHUT_RECEIVE`] and [`SHUT_SEND`].
    pub shut: Cell<u32>,
    /// The pending error.
    pub error: Cell<i32>,
    /// The peer has sent its last byte, which is in the queue.
    pub ended: Cell<bool>,
    /// Whether it is in the list of those that own a port.
    pub is_bound: Cell<bool>,
    /// A `connect` was answered with `EINPROGRESS` and not repeated.
    pub connect_pending: Cell<bool>,
    /// Its own address; of netlink, its port id and groups.
    pub local: Cell<SockAddr>,
    /// Its peer's address.
    pub remote: Cell<SockAddr>,
    /// Received bytes.
    pub received: ByteQueue,
    /// The socket at the other end.
    pub peer: Link<Socket>,
    /// The listener whose queue it is in.
    pub listener: Link<Socket>,
    /// Listener: how many connections may wait.
    pub backlog: Cell<u32>,
    /// Listener: connections to be accepted.
    pub queue: List<Socket, Pending>,
    /// Listener: sockets of this server that wait for room in the queue.
    pub connecting: List<Socket, Pending>,
    /// The client's connection.
    pub conn: Cell<ConnId>,
    /// Whether the node knows this connection.
    pub live: Cell<bool>,
    /// Sent bytes that no client has taken yet.
    pub undrained: Cell<u64>,
    /// Bytes that the server took since the last credit; of a UNIX stream, ever.
    pub taken: Cell<u64>,
    /// Received messages, or the data beside a UNIX stream's bytes.
    pub messages: List<Message, InQueue>,
    /// The cost of the received messages.
    pub charged: Cell<u64>,
    /// UDP: the node knows its port.
    pub known: Cell<bool>,
    /// The address and port that `bind` asked for: a UDP socket goes back to them.
    pub asked: Cell<SockAddr>,
    /// UNIX: its name.
    pub name: Link<Name>,
    /// UNIX: the umask of its future path.
    pub refused_mode: Cell<u32>,
    /// UNIX: the name of a peer that has closed.
    pub peer_name: Link<Name>,
    /// UNIX: the peer's credentials when it connected; for a listener, its own.
    pub cred: Cell<Cred>,
    /// Options.
    pub options: Options,
}

// SAFETY: cells, links and lists of handles; all-zero is a fresh socket.
unsafe impl ArenaObject for Socket {}
impl In<Bound> for Socket {
    fn node(&self) -> &Node<Socket> {
        &self.bound_node
    }
}
impl In<Pending> for Socket {
    fn node(&self) -> &Node<Socket> {
        &self.pending_node
    }
}
impl In<external::OnNode> for Socket {
    fn node(&self) -> &Node<Socket> {
        &self.external_node
    }
}

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
