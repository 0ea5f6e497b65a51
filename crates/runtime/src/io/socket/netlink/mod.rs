//! Netlink sockets of the protocol `NETLINK_ROUTE`: requests about interfaces, addresses and routes are answered from the interfaces that
//! the server sees ([`interface`](super::interface)), the same on every replica.
//!
//! There is no kernel at the other end: [`skein_libos::net::netlink`] makes the answers while the server sends its request, and they lie in the socket's queue when the
//! call returns. Messages change nothing (`EPERM`), and groups never get any.
//!
//! Invariant: a socket with a port id is in the list `netlink_ports`, and no other there has the same.

use super::exchange::{Incoming, Outgoing};
use super::message::{self, QUEUE_BYTES};
use super::{Socket, State, address, unix::rights::Cred};
use crate::fatal;
use crate::io::call::Hold;
use crate::kernel::Kernel;
use crate::process;
use crate::uses::{self, Use};
use libc::{AF_NETLINK, SOL_NETLINK, SOL_SOCKET, sockaddr, sockaddr_nl, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::{Buffers, single};
use skein_libos::file::{self, ready};
use skein_libos::net::interface::Interfaces;
use skein_libos::net::netlink::{self, Rules};
use skein_model::SockAddr;

/// The longest accepted message: Linux accepts more, but a request has some dozen bytes.
const MAX_REQUEST_BYTES: usize = 4096;
/// Bytes of an address.
pub const ADDRESS_BYTES: usize = size_of::<sockaddr_nl>();
/// Automatic port ids, when their process's id is taken: from here on downwards, as in Linux.
const LAST_FREE_ID: u32 = -4097i32 as u32;
/// Linux's `RTNLGRP_MAX`, and some to come.
const GROUPS: u32 = 64;

/// A port id and groups. Sockets keep theirs in the bytes of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    id: u32,
    groups: u32,
}

impl Place {
    fn of(addr: SockAddr) -> Self {
        let word = |at: usize| u32::from_ne_bytes(addr.ip[at..at + 4].try_into().expect("4 bytes"));
        Self { id: word(0), groups: word(4) }
    }

    fn kept(self) -> SockAddr {
        let mut ip = [0; 16];
        ip[..4].copy_from_slice(&self.id.to_ne_bytes());
        ip[4..8].copy_from_slice(&self.groups.to_ne_bytes());
        SockAddr { ip, ..SockAddr::NOWHERE }
    }

    /// # Safety
    /// `addr` is `len` readable bytes.
    unsafe fn read(addr: *const sockaddr, len: socklen_t) -> Result<Self> {
        if (len as usize) < ADDRESS_BYTES {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's contract and the length.
        let a = unsafe { addr.cast::<sockaddr_nl>().read_unaligned() };
        if i32::from(a.nl_family) != AF_NETLINK {
            return fail(libc::EINVAL);
        }
        Ok(Self { id: a.nl_pid, groups: a.nl_groups })
    }
}

/// Whether there are sockets of this type and protocol.
pub fn check(kind: i32, protocol: i32) -> Result<i32> {
    if !matches!(kind, libc::SOCK_RAW | libc::SOCK_DGRAM) {
        return fail(libc::ESOCKTNOSUPPORT);
    }
    if protocol != libc::NETLINK_ROUTE {
        fatal::refused(fatal::line!("netlink socket of protocol {protocol}").bytes());
        return fail(libc::EPROTONOSUPPORT);
    }
    Ok(kind)
}

/// An address in the form of `getsockname` and `getpeername`.
pub fn encode(addr: SockAddr) -> [u8; ADDRESS_BYTES] {
    let Place { id, groups } = Place::of(addr);
    let mut out = [0; ADDRESS_BYTES];
    out[..2].copy_from_slice(&(AF_NETLINK as u16).to_ne_bytes());
    out[4..8].copy_from_slice(&id.to_ne_bytes());
    out[8..12].copy_from_slice(&groups.to_ne_bytes());
    out
}

/// `bind`. Groups are taken.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn bind(
    k: &Kernel,
    socket: Handle<Socket>,
    addr: *const sockaddr,
    len: socklen_t,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    let wanted = unsafe { Place::read(addr, len) }?;
    let s = k.io.sockets.get(socket);
    if !s.is_bound.get() {
        if wanted.id == 0 {
            bind_automatically(k, socket);
        } else if is_taken(k, wanted.id) {
            return fail(libc::EADDRINUSE);
        } else {
            own(k, socket, wanted.id);
        }
    } else if wanted.id != Place::of(s.local.get()).id {
        return fail(libc::EINVAL);
    }
    let id = Place::of(s.local.get()).id;
    s.local.set(Place { id, ..wanted }.kept());
    Ok(0)
}

fn is_taken(k: &Kernel, id: u32) -> bool {
    k.io.netlink_ports.iter(&k.io.sockets).any(|(_, s)| Place::of(s.local.get()).id == id)
}

fn own(k: &Kernel, socket: Handle<Socket>, id: u32) {
    let s = k.io.sockets.get(socket);
    s.local.set(Place { id, groups: 0 }.kept());
    s.is_bound.set(true);
    k.io.netlink_ports.push_back(&k.io.sockets, socket);
}

/// The process's id, or the first that is free.
fn bind_automatically(k: &Kernel, socket: Handle<Socket>) {
    let mut id = process::this().pid.get() as u32;
    let mut next = LAST_FREE_ID;
    while is_taken(k, id) {
        id = next;
        next -= 1;
    }
    own(k, socket, id);
}

/// `connect`: to the kernel, where everything goes anyway.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn connect(
    k: &Kernel,
    socket: Handle<Socket>,
    addr: *const sockaddr,
    len: socklen_t,
) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    // SAFETY: the caller's contract.
    if unsafe { address::family(addr, len) }? == libc::AF_UNSPEC {
        s.state.set(State::Fresh);
        return Ok(0);
    }
    // SAFETY: the caller's contract.
    only_the_kernel(unsafe { Place::read(addr, len) }?)?;
    if !s.is_bound.get() {
        bind_automatically(k, socket);
    }
    s.state.set(State::Connected);
    Ok(0)
}

fn only_the_kernel(to: Place) -> Result<()> {
    if to == (Place { id: 0, groups: 0 }) { Ok(()) } else { fail(libc::EPERM) }
}

/// Sends a request, and has it answered.
pub fn send(
    k: &Kernel,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    if outgoing.has_destination() {
        // SAFETY: the caller's address.
        only_the_kernel(unsafe { Place::read(outgoing.to, outgoing.to_len) }?)?;
    }
    if !s.is_bound.get() {
        bind_automatically(k, socket);
    }
    let whole = buffers.left();
    if whole > MAX_REQUEST_BYTES {
        fatal::refused(fatal::line!("netlink message of {whole} bytes").bytes());
        return fail(libc::EMSGSIZE);
    }
    let mut request = [0; MAX_REQUEST_BYTES];
    let mut used = 0;
    while used < whole {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_ref(usize::MAX) };
        request[used..used + piece.len()].copy_from_slice(piece);
        buffers.advance(piece.len());
        used += piece.len();
    }
    let id = Place::of(s.local.get()).id;
    let rules = Rules {
        strict: s.options.netlink(libc::NETLINK_GET_STRICT_CHK),
        capped: s.options.netlink(libc::NETLINK_CAP_ACK),
    };
    let interfaces = Interfaces::of(k.interface.get());
    if netlink::all(&request[..whole], id, rules, interfaces, |bytes| deliver(k, s, bytes)) {
        uses::note(Use::Interfaces);
    }
    Ok(whole)
}

/// A message for the server. A message without room is lost, and the server is told.
fn deliver(k: &Kernel, s: &Socket, bytes: &[u8]) {
    let part = [single(bytes.as_ptr().cast_mut().cast(), bytes.len())];
    let made = match Buffers::new(&part) {
        Ok(mut buffers) if s.charged.get() <= QUEUE_BYTES => message::make(k, &mut buffers),
        _ => fail(libc::ENOBUFS),
    };
    match made {
        Ok(message) => message::push(k, s, message),
        Err(e) => s.error.set(e.0),
    }
    file::notify(k, s.file.get(), ready::ALL);
}

/// Receives an answer.
pub fn receive(
    k: &Kernel,
    hold: &Hold,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming,
) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    let Some(first) = message::await_first(k, hold, s, incoming.flags)? else { return Ok(0) };
    let n = message::copy_out(k, k.io.messages.get(first), buffers, incoming);
    // From the kernel.
    incoming.put_name(&encode(SockAddr::NOWHERE));
    if s.options.netlink(libc::NETLINK_PKTINFO) {
        // To no group.
        incoming.put_control(SOL_NETLINK, libc::NETLINK_PKTINFO, &[0; 4]);
    }
    if s.options.pass_cred() {
        incoming.put_control(SOL_SOCKET, libc::SCM_CREDENTIALS, &Cred::default().bytes());
    }
    if incoming.flags & libc::MSG_PEEK == 0 {
        message::pop(k, s);
        message::free(k, first);
    }
    Ok(n)
}

/// `setsockopt` with `NETLINK_ADD_MEMBERSHIP` or `NETLINK_DROP_MEMBERSHIP`: groups never get messages.
///
/// # Safety
/// `value` is `len` readable bytes.
pub unsafe fn change_groups(value: *const u8, len: usize) -> Result<usize> {
    if len < 4 {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's contract and the length.
    let group = unsafe { value.cast::<u32>().read_unaligned() };
    if (1..=GROUPS).contains(&group) { Ok(0) } else { fail(libc::EINVAL) }
}

/// The last reference to a socket is gone.
pub fn release(k: &Kernel, socket: Handle<Socket>) {
    let s = k.io.sockets.get(socket);
    if s.is_bound.replace(false) {
        k.io.netlink_ports.remove(&k.io.sockets, socket);
    }
    message::clear(k, s);
}
