//! Sockets.
//!
//! A stream socket's received bytes are in its own queue; its transport sends into it: another socket of this server ([`Transport::Local`],
//! [`Transport::Pair`]) or a client behind the node ([`Transport::External`]). States and errors are those of Linux's TCP, without the
//! network: a segment's effect at the other end happens at once.

pub mod accept;
pub mod address;
pub mod bind;
pub mod close;
pub mod connect;
pub mod datagram;
pub mod exchange;
pub mod external;
pub mod interface;
pub mod message;
pub mod multicast;
pub mod name;
pub mod netlink;
pub mod options;
pub mod outside;
pub mod stream;
pub mod unix;

use crate::fatal;
use crate::io::call::Hold;
use crate::kernel::Kernel;
use crate::turn;
use core::cell::Cell;
use message::{InQueue, Message};
use options::Options;
use skein_arena::bytes::ByteQueue;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::file::{self, File, Kind, ready};
use skein_model::limits::SEND_WINDOW_BYTES;
use skein_model::{ConnId, SockAddr};
use skein_sched::op::{Kind as Op, Object};
use unix::name::Name;
use unix::rights::Cred;

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
        self.kind.get() == libc::SOCK_STREAM
    }

    /// Whether it carries messages without a connection.
    pub fn is_datagram(&self) -> bool {
        self.kind.get() == libc::SOCK_DGRAM
    }

    /// Linux's `TCP_CLOSE`.
    pub fn is_closed(&self) -> bool {
        matches!(self.state.get(), State::Fresh | State::Dead)
    }

    /// The number of bytes that can be sent now.
    pub fn room(&self, k: &Kernel) -> usize {
        let (capacity, used) = match self.transport.get() {
            Transport::External => (SEND_WINDOW_BYTES, self.undrained.get() as usize),
            Transport::Pair => (PAIR_CAPACITY_BYTES, self.in_peer(k)),
            Transport::Local | Transport::None => (LOCAL_CAPACITY_BYTES, self.in_peer(k)),
        };
        capacity.saturating_sub(used)
    }

    fn in_peer(&self, k: &Kernel) -> usize {
        self.peer.get().map_or(0, |peer| k.io.sockets.get(peer).received.len())
    }

    /// Whether a writer is told that there is room: a third must be free, as in Linux.
    pub fn writable(&self, k: &Kernel) -> bool {
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
pub fn of(k: &Kernel, hold: &Hold) -> Result<Handle<Socket>> {
    hold.file(k).as_kind(Kind::Socket).map_or(fail(libc::ENOTSOCK), Ok)
}

/// A socket without a file.
pub fn make(k: &Kernel, family: i32) -> Result<Handle<Socket>> {
    let Some(socket) = k.io.sockets.alloc() else { return fail(libc::ENFILE) };
    let s = k.io.sockets.get(socket);
    s.family.set(family);
    s.kind.set(libc::SOCK_STREAM);
    Ok(socket)
}

/// Gives a socket a file and a descriptor; it stays as it is when there is none.
pub fn give_descriptor(k: &Kernel, socket: Handle<Socket>, flags: i32) -> Result<i32> {
    let status = libc::O_RDWR | flags & libc::O_NONBLOCK;
    let cloexec = flags & libc::SOCK_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::Socket, socket.raw(), status, cloexec)?;
    k.io.sockets.get(socket).file.set(Some(file));
    Ok(fd)
}

const TYPE_FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// `socket`.
pub fn create(family: i32, kind: i32, protocol: i32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Op::Create);
    let (flags, kind) = (kind & TYPE_FLAGS, kind & !TYPE_FLAGS);
    // Linux's SOCK_MAX.
    if !(1..11).contains(&kind) {
        return fail(libc::EINVAL);
    }
    let kind = match family {
        libc::AF_UNIX => unix_kind(kind, protocol)?,
        libc::AF_INET | libc::AF_INET6 => internet_kind(kind, protocol)?,
        libc::AF_NETLINK => netlink::check(kind, protocol)?,
        _ => {
            fatal::refused(fatal::line!("socket of family {family}").bytes());
            return fail(libc::EAFNOSUPPORT);
        }
    };
    let k = &*turn;
    let socket = make(k, family)?;
    k.io.sockets.get(socket).kind.set(kind);
    let fd = give_descriptor(k, socket, flags);
    if fd.is_err() {
        k.io.sockets.free(socket);
    }
    match (family, kind) {
        // What is asked by it counts.
        (libc::AF_NETLINK, _) => {}
        (libc::AF_UNIX, _) => crate::uses::note(crate::uses::Use::UnixSockets),
        (_, libc::SOCK_DGRAM) => crate::uses::note(crate::uses::Use::UdpSockets),
        _ => crate::uses::note(crate::uses::Use::TcpSockets),
    }
    fd.map(|fd| fd as usize)
}

fn unix_kind(kind: i32, protocol: i32) -> Result<i32> {
    match kind {
        _ if !matches!(protocol, 0 | libc::AF_UNIX) => fail(libc::EPROTONOSUPPORT),
        libc::SOCK_STREAM | libc::SOCK_SEQPACKET | libc::SOCK_DGRAM => Ok(kind),
        // As Linux has it.
        libc::SOCK_RAW => Ok(libc::SOCK_DGRAM),
        _ => fail(libc::ESOCKTNOSUPPORT),
    }
}

fn internet_kind(kind: i32, protocol: i32) -> Result<i32> {
    match (kind, protocol) {
        (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) | (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            Ok(kind)
        }
        (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => {
            fatal::refused(fatal::line!("socket of type {kind} protocol {protocol}").bytes());
            fail(libc::EPROTONOSUPPORT)
        }
        _ => {
            fatal::refused(fatal::line!("socket of type {kind}").bytes());
            fail(libc::ESOCKTNOSUPPORT)
        }
    }
}

/// `socketpair`.
pub fn pair(family: i32, kind: i32, protocol: i32) -> Result<[i32; 2]> {
    let turn = turn::enter(Object::Descriptors, Op::Create);
    let (flags, kind) = (kind & TYPE_FLAGS, kind & !TYPE_FLAGS);
    if family != libc::AF_UNIX {
        return fail(if matches!(family, libc::AF_INET | libc::AF_INET6 | libc::AF_NETLINK) {
            libc::EOPNOTSUPP
        } else {
            libc::EAFNOSUPPORT
        });
    }
    // Linux's SOCK_MAX.
    if !(1..11).contains(&kind) {
        return fail(libc::EINVAL);
    }
    let kind = unix_kind(kind, protocol)?;
    let k = &*turn;
    let a = make(k, family)?;
    let b = make(k, family).inspect_err(|_| k.io.sockets.free(a))?;
    crate::uses::note(crate::uses::Use::UnixSockets);
    for (one, other) in [(a, b), (b, a)] {
        let s = k.io.sockets.get(one);
        s.kind.set(kind);
        s.cred.set(Cred::effective());
        if s.is_datagram() {
            unix::packet::join(k, one, other);
            continue;
        }
        s.state.set(State::Connected);
        s.transport.set(Transport::Pair);
        s.peer.set(Some(other));
    }
    let first = match give_descriptor(k, a, flags) {
        Ok(fd) => fd,
        Err(e) => {
            // Both ends are still unseen.
            k.io.sockets.free(b);
            k.io.sockets.free(a);
            return Err(e);
        }
    };
    match give_descriptor(k, b, flags) {
        Ok(second) => Ok([first, second]),
        Err(e) => {
            close::release(k, b);
            let _ = file::table::close(k, first);
            Err(e)
        }
    }
}

/// Readiness.
pub fn mask(k: &Kernel, socket: Handle<Socket>) -> u32 {
    let s = k.io.sockets.get(socket);
    if s.state.get() == State::Listening {
        return if s.queue.is_empty() { 0 } else { ready::IN };
    }
    if !s.is_stream() {
        return if s.family.get() == libc::AF_UNIX {
            unix::packet::mask(k, socket)
        } else {
            message::mask(s, true)
        };
    }
    let shut = s.shut.get();
    let mut mask = 0;
    if shut == SHUT_BOTH || s.is_closed() {
        mask |= ready::HUP;
    }
    if shut & SHUT_RECEIVE != 0 {
        mask |= ready::IN | ready::RDHUP;
    }
    if s.state.get() != State::Connecting {
        if s.received.len() >= s.options.receive_least() {
            mask |= ready::IN;
        }
        if shut & SHUT_SEND != 0 || s.writable(k) {
            mask |= ready::OUT;
        }
    }
    if s.error.get() != 0 {
        mask |= ready::ERR;
    }
    mask
}

/// `FIONREAD` and `TIOCOUTQ`.
pub fn queued(k: &Kernel, socket: Handle<Socket>, sent: bool) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    match s.state.get() {
        State::Listening => fail(libc::EINVAL),
        _ if !s.is_stream() => Ok(match (sent, s.peer.get()) {
            (true, Some(peer)) => message::unread(k, k.io.sockets.get(peer)).1,
            (true, None) => 0,
            // Of datagrams the next one counts.
            (false, _) if s.is_datagram() => message::unread(k, s).0,
            (false, _) => message::unread(k, s).1,
        }),
        _ if !sent => Ok(s.received.len()),
        _ if s.transport.get() == Transport::External => Ok(s.undrained.get() as usize),
        // Bytes sent to a socket of this server have arrived; a pair counts unread ones.
        _ if s.transport.get() == Transport::Pair => Ok(s.in_peer(k)),
        _ => Ok(0),
    }
}

/// The thread wrote to a closed connection: sends it SIGPIPE, as the signal's disposition says.
pub fn raise_sigpipe(k: &Kernel) {
    crate::signal::raise_here(k, libc::SIGPIPE);
}
