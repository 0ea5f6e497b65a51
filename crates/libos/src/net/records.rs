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
    pub(in crate::net) sockets: Pool<Socket>,
    /// Messages on their way.
    pub(in crate::net) messages: Pool<Message>,
    /// Descriptors on their way.
    pub(in crate::net) rights: Pool<Right>,
    /// Memberships of sockets in groups.
    pub(in crate::net) memberships: Pool<Membership>,
    /// All of them.
    pub(in crate::net) joined: List<Membership, Joined>,
    /// Whether the node was told that groups do not reach the outside.
    pub(in crate::net) told_of_groups: Cell<bool>,
    /// Names of UNIX sockets.
    pub(in crate::net) names: Pool<Name>,
    /// Descriptors that were on their way and are being closed.
    pub(in crate::net) dropped: Rights,
    /// Whether a process is closing them.
    pub(in crate::net) dropping: Cell<bool>,
    /// UNIX sockets that have a name.
    pub(in crate::net) named: List<Socket, Bound>,
    /// The number of automatic names of UNIX sockets so far.
    pub(in crate::net) automatic_name: Cell<u32>,
    /// Datagram sockets that own a port.
    pub(in crate::net) datagram_ports: List<Socket, Bound>,
    /// Netlink sockets that have a port id.
    pub(in crate::net) netlink_ports: List<Socket, Bound>,
    /// TCP sockets that own a port.
    pub(in crate::net) bound: List<Socket, Bound>,
    /// Connections of clients that the node knows.
    pub(in crate::net) external: Connections,
    /// Connections that the server began.
    pub(in crate::net) outbound: Numbers,
    /// The number of automatic ports so far.
    pub(in crate::net) ephemeral: Cell<u32>,
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
    pub(in crate::net) bound_node: Node<Socket>,
    pub(in crate::net) pending_node: Node<Socket>,
    pub(in crate::net) external_node: Node<Socket>,
    /// The next connection in the same bucket.
    pub(in crate::net) bucket_next: Link<Socket>,
    /// Its file; none until it is accepted.
    pub(in crate::net) file: Link<File>,
    /// `AF_INET`, `AF_INET6`, `AF_UNIX` or `AF_NETLINK`.
    pub(in crate::net) family: Cell<i32>,
    /// `SOCK_STREAM`, `SOCK_DGRAM`, `SOCK_SEQPACKET` or, of netlink, `SOCK_RAW`.
    pub(in crate::net) kind: Cell<i32>,
    /// Its state.
    pub(in crate::net) state: Cell<State>,
    /// The kind of its other end.
    pub(in crate::net) transport: Cell<Transport>,
    /// [`SHUT_RECEIVE`] and [`SHUT_SEND`].
    pub(in crate::net) shut: Cell<u32>,
    /// The pending error.
    pub(in crate::net) error: Cell<i32>,
    /// The peer has sent its last byte, which is in the queue.
    pub(in crate::net) ended: Cell<bool>,
    /// Whether it is in the list of those that own a port.
    pub(in crate::net) is_bound: Cell<bool>,
    /// A `connect` was answered with `EINPROGRESS` and not repeated.
    pub(in crate::net) connect_pending: Cell<bool>,
    /// Its own address; of netlink, its port id and groups.
    pub(in crate::net) local: Cell<SockAddr>,
    /// Its peer's address.
    pub(in crate::net) remote: Cell<SockAddr>,
    /// Received bytes.
    pub(in crate::net) received: ByteQueue,
    /// The socket at the other end.
    pub(in crate::net) peer: Link<Socket>,
    /// The listener whose queue it is in.
    pub(in crate::net) listener: Link<Socket>,
    /// Listener: how many connections may wait.
    pub(in crate::net) backlog: Cell<u32>,
    /// Listener: connections to be accepted.
    pub(in crate::net) queue: List<Socket, Pending>,
    /// Listener: sockets of this server that wait for room in the queue.
    pub(in crate::net) connecting: List<Socket, Pending>,
    /// The client's connection.
    pub(in crate::net) conn: Cell<ConnId>,
    /// Whether the node knows this connection.
    pub(in crate::net) live: Cell<bool>,
    /// Sent bytes that no client has taken yet.
    pub(in crate::net) undrained: Cell<u64>,
    /// Bytes that the server took since the last credit; of a UNIX stream, ever.
    pub(in crate::net) taken: Cell<u64>,
    /// Received messages, or the data beside a UNIX stream's bytes.
    pub(in crate::net) messages: List<Message, InQueue>,
    /// The cost of the received messages.
    pub(in crate::net) charged: Cell<u64>,
    /// UDP: the node knows its port.
    pub(in crate::net) known: Cell<bool>,
    /// The address and port that `bind` asked for: a UDP socket goes back to them.
    pub(in crate::net) asked: Cell<SockAddr>,
    /// UNIX: its name.
    pub(in crate::net) name: Link<Name>,
    /// UNIX: the umask of its future path.
    pub(in crate::net) refused_mode: Cell<u32>,
    /// UNIX: the name of a peer that has closed.
    pub(in crate::net) peer_name: Link<Name>,
    /// UNIX: the peer's credentials when it connected; for a listener, its own.
    pub(in crate::net) cred: Cell<Cred>,
    /// Options.
    pub(in crate::net) options: Options,
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
    pub(in crate::net) changed: [Cell<i32>; OPTIONS],
    pub(in crate::net) linger_on: Cell<i32>,
    pub(in crate::net) linger_s: Cell<i32>,
    pub(in crate::net) _pad: Cell<i32>,
    pub(in crate::net) receive_timeout_us: Cell<u64>,
    pub(in crate::net) send_timeout_us: Cell<u64>,
}

/// The number of options that are numbers.
pub(in crate::net) const OPTIONS: usize = 61;

pub(in crate::net) const BUCKETS: usize = 4096;

/// A connection's place in the list of all that the node knows, oldest first.
pub struct OnNode;

/// The connections that the node knows, by id. All-zero bytes are none.
#[repr(C)]
pub struct Connections {
    pub(in crate::net) buckets: [Link<Socket>; BUCKETS],
    pub(in crate::net) all: List<Socket, OnNode>,
    pub(in crate::net) _pad: core::cell::Cell<u32>,
}

/// The numbers of the current term. All-zero bytes are before the first term.
#[repr(C)]
pub struct Numbers {
    /// The low half of the term.
    pub(in crate::net) term: Cell<u64>,
    /// Connections begun in it.
    pub(in crate::net) begun: Cell<u32>,
    pub(in crate::net) _pad: Cell<u32>,
}

/// A message's place in the queue of the socket that receives it.
pub struct InQueue;

/// A message.
#[repr(C)]
pub struct Message {
    pub(in crate::net) node: Node<Message>,
    /// The name of the UNIX socket that sent it.
    pub(in crate::net) name: Link<Name>,
    /// Its bytes; those of a stream are in the socket's own queue.
    pub(in crate::net) bytes: ByteQueue,
    /// UDP: its sender.
    pub(in crate::net) from: Cell<SockAddr>,
    /// UDP: its destination.
    pub(in crate::net) to: Cell<SockAddr>,
    /// When it came, ns since the epoch.
    pub(in crate::net) at_ns: Cell<u64>,
    /// UNIX: the sender's credentials, if it sent them.
    pub(in crate::net) cred: Cell<Cred>,
    /// Descriptors.
    pub(in crate::net) rights: Rights,
    /// Streams: the positions of its first byte and behind its last.
    pub(in crate::net) span: Cell<(u64, u64)>,
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
    pub(in crate::net) node: Node<Membership>,
    pub(in crate::net) socket: Link<Socket>,
    pub(in crate::net) group: Cell<[u8; 16]>,
    pub(in crate::net) interface: Cell<u32>,
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
    pub(in crate::net) refs: Cell<u32>,
    pub(in crate::net) len: Cell<u32>,
    pub(in crate::net) path: Cell<[u8; MAX_PATH]>,
    pub(in crate::net) inode: Cell<Inode>,
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
    pub(in crate::net) node: Node<Right>,
    /// A virtual file.
    pub(in crate::net) file: Link<File>,
    /// A parked file of the kernel.
    pub(in crate::net) ticket: Cell<u64>,
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
