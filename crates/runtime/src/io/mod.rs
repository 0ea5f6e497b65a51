//! Descriptors and all objects behind them.
//!
//! A virtual descriptor ([`skein_libos::file::table`]) points to an open file description ([`skein_libos::file`]), which points to one object: a socket, an end of
//! a pipe, an epoll set, an eventfd, a timerfd. The library has the table, the descriptions, how they are waited for and watched, and most kinds of objects; sockets
//! and a few more are in here ([`ops`]). The kernel's side of the table is [`mod@table`]; the other modules begin a call's operation and hand it to the library.
//!
//! Descriptors that are not in the table are the kernel's own (regular files): the functions in here answer `None` for them, and
//! the call passes through.

pub mod call;
pub mod descriptor;
pub mod inbound;
pub mod msg;
pub mod ops;
pub mod outbound;
pub mod readiness;
pub mod signalfd;
pub mod socket;
pub mod table;
pub mod transfer;

use core::cell::Cell;
use skein_arena::list::List;
use skein_arena::pool::Pool;
use skein_libos::errno::Result;
use skein_libos::file::{MAX_FILES, MAX_SMALL, MAX_WATCHES};
use skein_libos::room::Room;
use socket::Socket;

/// A call's answer: `None` when it is not on a virtual descriptor and passes through.
pub type Answer = Option<Result<usize>>;

/// Sockets, and files that the library does not have. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct IoState {
    /// Sockets.
    pub sockets: Pool<Socket>,
    /// Messages on their way.
    pub messages: Pool<socket::message::Message>,
    /// Descriptors on their way.
    pub rights: Pool<socket::unix::rights::Right>,
    /// Memberships of sockets in groups.
    pub memberships: Pool<socket::multicast::Membership>,
    /// All of them.
    pub joined: List<socket::multicast::Membership, socket::multicast::Joined>,
    /// Whether the node was told that groups do not reach the outside.
    pub told_of_groups: Cell<bool>,
    /// Names of UNIX sockets.
    pub names: Pool<socket::unix::name::Name>,
    /// Files of the kernel on their way.
    pub park: socket::unix::park::Park,
    /// Descriptors that were on their way and are being closed.
    pub dropped: socket::unix::rights::Rights,
    /// Whether a process is closing them.
    pub dropping: Cell<bool>,
    /// UNIX sockets that have a name.
    pub named: List<Socket, socket::Bound>,
    /// The number of automatic names of UNIX sockets so far.
    pub automatic_name: Cell<u32>,
    /// Datagram sockets that own a port.
    pub datagram_ports: List<Socket, socket::Bound>,
    /// Netlink sockets that have a port id.
    pub netlink_ports: List<Socket, socket::Bound>,
    /// Signalfds.
    pub signalfds: Pool<signalfd::SignalFd>,
    /// TCP sockets that own a port.
    pub bound: List<Socket, socket::Bound>,
    /// Connections of clients that the node knows.
    pub external: socket::external::Connections,
    /// Connections that the server began.
    pub outbound: outbound::Numbers,
    /// The number of automatic ports so far.
    pub ephemeral: Cell<u32>,
}

impl IoState {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.sockets, MAX_FILES);
        room.pool(&self.messages, MAX_WATCHES);
        room.pool(&self.rights, MAX_SMALL);
        room.pool(&self.memberships, MAX_SMALL);
        let names = room.pool(&self.names, MAX_FILES);
        socket::unix::name::Name::note_own(room, names, MAX_FILES);
        room.pool(&self.signalfds, MAX_SMALL);
    }
}

/// Takes over the descriptors that the process was started with: they are all regular files and stay the kernel's.
pub fn adopt_descriptors() {
    table::begin();
    crate::files::begin();
}

/// Gives two descriptors back.
///
/// # Safety
/// `out` is an array of two.
pub unsafe fn put_pair(out: *mut i32, ends: [i32; 2]) -> usize {
    // SAFETY: the caller's array.
    unsafe { out.cast::<[i32; 2]>().write_unaligned(ends) };
    0
}
