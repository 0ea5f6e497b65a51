//! Netlink sockets of the protocol `NETLINK_ROUTE`: requests about interfaces, addresses and routes are answered from the interfaces that
//! the server sees ([`interface`](super::interface)), the same on every replica.
//!
//! There is no kernel at the other end: [`answer`] makes the answers while the server sends its request, and they lie in the socket's queue when the
//! call returns. Messages change nothing (`EPERM`), and groups never get any.
//!
//! Invariant: a socket with a port id is in the list `netlink_ports`, and no other there has the same.

pub mod answer;

use super::bytes::{half, word};
use super::exchange::{Incoming, Outgoing};
use super::interface::Interfaces;
use super::message::{self, QUEUE_BYTES};
use super::{Socket, State, address, unix::rights::Cred};
use crate::abi::{self, AF_NETLINK, SOL_NETLINK, SOL_SOCKET};
use crate::errno::{Result, fail};
use crate::file::buffers::{Buffers, single};
use crate::file::{self, Hold, ready};
use crate::host::Host;
use answer::Rules;
use skein_arena::pool::Handle;
use skein_arena::uses::Use;
use skein_model::SockAddr;

/// The longest accepted message: Linux accepts more, but a request has some dozen bytes.
const MAX_REQUEST_BYTES: usize = 4096;
/// Bytes of an address (`sockaddr_nl`).
const ADDRESS_BYTES: usize = 12;
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
        Self { id: word(&addr.ip, 0), groups: word(&addr.ip, 4) }
    }

    fn kept(self) -> SockAddr {
        let mut ip = [0; 16];
        ip[..4].copy_from_slice(&self.id.to_ne_bytes());
        ip[4..8].copy_from_slice(&self.groups.to_ne_bytes());
        SockAddr { ip, ..SockAddr::NOWHERE }
    }

    fn read(addr: &[u8]) -> Result<Self> {
        if addr.len() < ADDRESS_BYTES || i32::from(half(addr, 0)) != AF_NETLINK {
            return fail(abi::EINVAL);
        }
        Ok(Self { id: word(addr, 4), groups: word(addr, 8) })
    }
}

/// Whether there are sockets of this type and protocol.
pub fn check<H: Host>(k: &H, kind: i32, protocol: i32) -> Result<i32> {
    if !matches!(kind, abi::SOCK_RAW | abi::SOCK_DGRAM) {
        return fail(abi::ESOCKTNOSUPPORT);
    }
    if protocol != abi::NETLINK_ROUTE {
        k.refused(format_args!("netlink socket of protocol {protocol}"));
        return fail(abi::EPROTONOSUPPORT);
    }
    Ok(kind)
}

/// Writes an address into `out`, which has room for any, in the form of `getsockname` and `getpeername`; answers its length.
pub fn encode(addr: SockAddr, out: &mut [u8]) -> usize {
    let Place { id, groups } = Place::of(addr);
    out[..2].copy_from_slice(&(AF_NETLINK as u16).to_ne_bytes());
    out[4..8].copy_from_slice(&id.to_ne_bytes());
    out[8..12].copy_from_slice(&groups.to_ne_bytes());
    ADDRESS_BYTES
}

/// `bind`. Groups are taken.
///
/// # Errors
/// Those of `bind`.
pub fn bind<H: Host>(k: &H, socket: Handle<Socket>, addr: &[u8]) -> Result<usize> {
    let wanted = Place::read(addr)?;
    let s = k.net.sockets.get(socket);
    if !s.is_bound.get() {
        if wanted.id == 0 {
            bind_automatically(k, socket);
        } else if is_taken(k, wanted.id) {
            return fail(abi::EADDRINUSE);
        } else {
            own(k, socket, wanted.id);
        }
    } else if wanted.id != Place::of(s.local.get()).id {
        return fail(abi::EINVAL);
    }
    let id = Place::of(s.local.get()).id;
    s.local.set(Place { id, ..wanted }.kept());
    Ok(0)
}

fn is_taken<H: Host>(k: &H, id: u32) -> bool {
    k.net.netlink_ports.iter(&k.net.sockets).any(|(_, s)| Place::of(s.local.get()).id == id)
}

fn own<H: Host>(k: &H, socket: Handle<Socket>, id: u32) {
    let s = k.net.sockets.get(socket);
    s.local.set(Place { id, groups: 0 }.kept());
    s.is_bound.set(true);
    k.net.netlink_ports.push_back(&k.net.sockets, socket);
}

/// The process's id, or the first that is free.
fn bind_automatically<H: Host>(k: &H, socket: Handle<Socket>) {
    let mut id = k.this_process().pid.get() as u32;
    let mut next = LAST_FREE_ID;
    while is_taken(k, id) {
        id = next;
        next -= 1;
    }
    own(k, socket, id);
}

/// `connect`: to the kernel, where everything goes anyway.
///
/// # Errors
/// Those of `connect`.
pub fn connect<H: Host>(k: &H, socket: Handle<Socket>, addr: &[u8]) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if address::family(addr)? == abi::AF_UNSPEC {
        s.state.set(State::Fresh);
        return Ok(0);
    }
    only_the_kernel(Place::read(addr)?)?;
    if !s.is_bound.get() {
        bind_automatically(k, socket);
    }
    s.state.set(State::Connected);
    Ok(0)
}

fn only_the_kernel(to: Place) -> Result<()> {
    if to == (Place { id: 0, groups: 0 }) { Ok(()) } else { fail(abi::EPERM) }
}

/// Sends a request, and has it answered.
pub fn send<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if outgoing.has_destination() {
        only_the_kernel(Place::read(outgoing.to)?)?;
    }
    if !s.is_bound.get() {
        bind_automatically(k, socket);
    }
    let whole = buffers.left();
    if whole > MAX_REQUEST_BYTES {
        k.refused(format_args!("netlink message of {whole} bytes"));
        return fail(abi::EMSGSIZE);
    }
    let mut request = [0; MAX_REQUEST_BYTES];
    // SAFETY: the server's buffers; one thread runs at a time.
    unsafe { buffers.gather(&mut request[..whole]) };
    let id = Place::of(s.local.get()).id;
    let rules = Rules {
        strict: s.options.netlink(abi::NETLINK_GET_STRICT_CHK),
        capped: s.options.netlink(abi::NETLINK_CAP_ACK),
    };
    let interfaces = Interfaces::of(k.net.interface.get());
    if answer::all(&request[..whole], id, rules, interfaces, |bytes| deliver(k, s, bytes)) {
        k.note(Use::Interfaces);
    }
    Ok(whole)
}

/// A message for the server. A message without room is lost, and the server is told.
fn deliver<H: Host>(k: &H, s: &Socket, bytes: &[u8]) {
    let part = [single(bytes.as_ptr().cast_mut().cast(), bytes.len())];
    let made = match Buffers::new(&part) {
        Ok(mut buffers) if s.charged.get() <= QUEUE_BYTES => message::make(k, &mut buffers),
        _ => fail(abi::ENOBUFS),
    };
    match made {
        Ok(message) => message::push(k, s, message),
        Err(e) => s.error.set(e.0),
    }
    file::notify(k, s.file.get(), ready::ALL);
}

/// Receives an answer.
pub fn receive<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let Some(first) = message::await_first(k, hold, s, incoming.flags)? else { return Ok(0) };
    let n = message::copy_out(k, k.net.messages.get(first), buffers, incoming);
    // From the kernel.
    let mut name = [0; ADDRESS_BYTES];
    encode(SockAddr::NOWHERE, &mut name);
    incoming.put_name(&name);
    if s.options.netlink(abi::NETLINK_PKTINFO) {
        // To no group.
        incoming.put_control(SOL_NETLINK, abi::NETLINK_PKTINFO, &[0; 4]);
    }
    if s.options.pass_cred() {
        incoming.put_control(SOL_SOCKET, abi::SCM_CREDENTIALS, &Cred::default().bytes());
    }
    if incoming.flags & abi::MSG_PEEK == 0 {
        message::pop(k, s);
        message::free(k, first);
    }
    Ok(n)
}

/// `setsockopt` with `NETLINK_ADD_MEMBERSHIP` or `NETLINK_DROP_MEMBERSHIP`: groups never get messages.
///
/// # Errors
/// `EINVAL` for a group that there is not.
pub fn change_groups(value: &[u8]) -> Result<usize> {
    if value.len() < 4 {
        return fail(abi::EINVAL);
    }
    if (1..=GROUPS).contains(&word(value, 0)) { Ok(0) } else { fail(abi::EINVAL) }
}

/// The last reference to a socket is gone.
pub fn release<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    if s.is_bound.replace(false) {
        k.net.netlink_ports.remove(&k.net.sockets, socket);
    }
    message::clear(k, s);
}
