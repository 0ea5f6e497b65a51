//! Records of sockets, their names, messages and groups ([`crate::net`]).

use crate::room::Room;
use crate::state::file::{File, MAX_FILES, MAX_SMALL, MAX_WATCHES};
use core::cell::Cell;
use core::mem::offset_of;
use skein_arena::bytes::ByteQueue;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Link, Pool};
use skein_model::{ConnId, Interface, SockAddr};

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
    pub external: Connections,
    /// Connections that the server began.
    pub outbound: Numbers,
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
    pub(crate) bound_node: Node<Socket>,
    pub(crate) pending_node: Node<Socket>,
    pub(crate) external_node: Node<Socket>,
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

impl In<OnNode> for Socket {
    fn node(&self) -> &Node<Socket> {
        &self.external_node
    }
}

/// A socket's options. All-zero bytes are the defaults: numbers are kept as the difference from theirs.
#[repr(C)]
pub struct Options {
    pub(crate) changed: [Cell<i32>; OPTIONS],
    pub(crate) linger_on: Cell<i32>,
    pub(crate) linger_s: Cell<i32>,
    pub(crate) _pad: Cell<i32>,
    pub(crate) receive_timeout_us: Cell<u64>,
    pub(crate) send_timeout_us: Cell<u64>,
}

/// The number of options that are numbers.
pub(crate) const OPTIONS: usize = 61;

pub(crate) const BUCKETS: usize = 4096;

/// A connection's place in the list of all that the node knows, oldest first.
pub struct OnNode;

/// The connections that the node knows, by id. All-zero bytes are none.
#[repr(C)]
pub struct Connections {
    pub(crate) buckets: [Link<Socket>; BUCKETS],
    pub(crate) all: List<Socket, OnNode>,
    pub(crate) _pad: core::cell::Cell<u32>,
}

/// The numbers of the current term. All-zero bytes are before the first term.
#[repr(C)]
pub struct Numbers {
    /// The low half of the term.
    pub(crate) term: Cell<u64>,
    /// Connections begun in it.
    pub(crate) begun: Cell<u32>,
    pub(crate) _pad: Cell<u32>,
}

/// A message's place in the queue of the socket that receives it.
pub struct InQueue;

/// A message.
#[repr(C)]
pub struct Message {
    pub(crate) node: Node<Message>,
    /// The name of the UNIX socket that sent it.
    pub name: Link<Name>,
    /// Its bytes; those of a stream are in the socket's own queue.
    pub bytes: ByteQueue,
    /// UDP: its sender.
    pub from: Cell<SockAddr>,
    /// UDP: its destination.
    pub to: Cell<SockAddr>,
    /// When it came, ns since the epoch.
    pub at_ns: Cell<u64>,
    /// UNIX: the sender's credentials, if it sent them.
    pub cred: Cell<Cred>,
    /// Descriptors.
    pub rights: Rights,
    /// Streams: the positions of its first byte and behind its last.
    pub span: Cell<(u64, u64)>,
}

// SAFETY: cells, links and queues; all-zero is an empty message.
unsafe impl ArenaObject for Message {}

impl In<InQueue> for Message {
    fn node(&self) -> &Node<Message> {
        &self.node
    }
}

/// A membership's place in the list of all.
pub struct Joined;

/// A socket has joined a group.
#[repr(C)]
pub struct Membership {
    pub(crate) node: Node<Membership>,
    pub(crate) socket: Link<Socket>,
    pub(crate) group: Cell<[u8; 16]>,
    pub(crate) interface: Cell<u32>,
}

// SAFETY: cells and links; all-zero is a membership of no socket.
unsafe impl ArenaObject for Membership {}

impl In<Joined> for Membership {
    fn node(&self) -> &Node<Membership> {
        &self.node
    }
}

/// Bytes of `sun_path`.
pub const MAX_PATH: usize = 108;

/// A name.
#[repr(C)]
pub struct Name {
    pub(crate) refs: Cell<u32>,
    pub(crate) len: Cell<u32>,
    pub(crate) path: Cell<[u8; MAX_PATH]>,
    pub(crate) inode: Cell<Inode>,
}

impl Name {
    /// The part of names that belongs to one replica: the kernel's numbers.
    pub fn note_own(room: &Room, names: *const u8, count: u32) {
        room.own::<Self>(names, count, offset_of!(Self, inode), size_of::<Inode>());
    }
}

// SAFETY: cells; all-zero is a name of no bytes that nobody has.
unsafe impl ArenaObject for Name {}

/// A file, for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Inode {
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub number: u64,
}

/// The inode of an abstract name, and of a removed file.
pub const NO_INODE: Inode = Inode { device: 0, number: 0 };

/// A descriptor's place in its message.
pub struct InMessage;

/// The descriptors of a message.
pub type Rights = List<Right, InMessage>;

/// A descriptor on its way.
#[repr(C)]
pub struct Right {
    pub(crate) node: Node<Right>,
    /// A virtual file.
    pub(crate) file: Link<File>,
    /// A parked file of the kernel.
    pub(crate) ticket: Cell<u64>,
}

// SAFETY: links and cells; all-zero is a right to nothing.
unsafe impl ArenaObject for Right {}

impl In<InMessage> for Right {
    fn node(&self) -> &Node<Right> {
        &self.node
    }
}

/// A process's credentials, as a receiver sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cred {
    /// The process; 0 when nobody is meant.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}
