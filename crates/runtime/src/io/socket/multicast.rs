//! Groups (multicast): addresses that reach every socket that has joined.
//!
//! A group's members are the server's own sockets. A packet from one of them to a group reaches the others, by the loopback interface or by
//! the configured one, as in Linux; it does not leave the server, and nothing comes from outside: the node is told so
//! once. Without a configured interface only the loopback one, by its address or number, can be used; the rest is refused by name,
//! and so is broadcast.
//!
//! Invariant: every membership is in the list `joined` and its socket is alive: a socket that is released leaves all its groups.

use super::datagram;
use super::{Socket, address};
use crate::fatal;
use crate::kernel::Kernel;
use core::cell::Cell;
use libc::{AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6, in_addr, in6_addr};
use skein_arena::list::{In, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::Buffers;
use skein_libos::net::interface::{GIVEN_INDEX, LOOPBACK_INDEX};
use skein_model::SockAddr;

/// Linux's `igmp_max_memberships`.
const MOST_OF_A_SOCKET: usize = 20;

/// A membership's place in the list of all.
pub struct Joined;

/// A socket has joined a group.
#[repr(C)]
pub struct Membership {
    node: Node<Membership>,
    socket: Link<Socket>,
    group: Cell<[u8; 16]>,
    interface: Cell<u32>,
}

// SAFETY: cells and links; all-zero is a membership of no socket.
unsafe impl ArenaObject for Membership {}
impl In<Joined> for Membership {
    fn node(&self) -> &Node<Membership> {
        &self.node
    }
}

/// Whether an address is a group's.
pub fn is_group(addr: SockAddr) -> bool {
    match addr.ipv4() {
        Some([first, ..]) => first & 0xf0 == 0xe0,
        None => addr.ip[0] == 0xff,
    }
}

/// Whether an option is one of those here.
pub fn is_about(level: i32, name: i32) -> bool {
    let own = if level == IPPROTO_IP {
        [libc::IP_ADD_MEMBERSHIP, libc::IP_DROP_MEMBERSHIP, libc::IP_MULTICAST_IF]
    } else {
        [libc::IPV6_ADD_MEMBERSHIP, libc::IPV6_DROP_MEMBERSHIP, libc::IPV6_MULTICAST_IF]
    };
    own.contains(&name) || matches!(name, libc::MCAST_JOIN_GROUP | libc::MCAST_LEAVE_GROUP)
}

/// `setsockopt` with an option that [`is_about`] this.
///
/// # Safety
/// `value` is `len` readable bytes.
pub unsafe fn set(
    k: &Kernel,
    socket: Handle<Socket>,
    level: i32,
    name: i32,
    value: *const u8,
    len: usize,
) -> Result<usize> {
    use Asked::{Join, Leave};
    let s = k.io.sockets.get(socket);
    // SAFETY: the caller's contract.
    unsafe {
        match (level, name) {
            (_, libc::MCAST_JOIN_GROUP) => change_by_number(k, socket, level, Join, value, len),
            (_, libc::MCAST_LEAVE_GROUP) => change_by_number(k, socket, level, Leave, value, len),
            (IPPROTO_IP, libc::IP_ADD_MEMBERSHIP) | (IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP) => {
                change(k, socket, level, Join, value, len)
            }
            (IPPROTO_IP, libc::IP_DROP_MEMBERSHIP) | (IPPROTO_IPV6, libc::IPV6_DROP_MEMBERSHIP) => {
                change(k, socket, level, Leave, value, len)
            }
            _ if s.is_stream() => fail(libc::EINVAL),
            (IPPROTO_IP, _) => {
                s.options.set_group_address(chosen_by_address(k, value, len)?);
                Ok(0)
            }
            _ if len < 4 => fail(libc::EINVAL),
            _ => {
                let number = value.cast::<u32>().read_unaligned();
                if number != 0 && interface(k, SockAddr::v4([0; 4], 0), number).is_none() {
                    return fail(libc::ENODEV);
                }
                s.options.set_group_interface(number);
                Ok(0)
            }
        }
    }
}

/// An operation of `setsockopt`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// To join.
    Join,
    /// To leave.
    Leave,
}

/// A group and an interface, by its address or its number, as in `ip_mreqn`.
struct Request {
    group: SockAddr,
    by: SockAddr,
    number: u32,
}

/// `IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP` and their opposites.
///
/// # Safety
/// `value` is `len` readable bytes.
unsafe fn change(
    k: &Kernel,
    socket: Handle<Socket>,
    level: i32,
    asked: Asked,
    value: *const u8,
    len: usize,
) -> Result<usize> {
    let nowhere = SockAddr::v4([0; 4], 0);
    // SAFETY: the lengths are checked; the caller's contract.
    let request = unsafe {
        if level == IPPROTO_IP {
            match len {
                ..8 => return fail(libc::EINVAL),
                8..12 => {
                    let r = value.cast::<libc::ip_mreq>().read_unaligned();
                    Request { group: of_v4(r.imr_multiaddr), by: of_v4(r.imr_interface), number: 0 }
                }
                _ => {
                    let r = value.cast::<libc::ip_mreqn>().read_unaligned();
                    let number = r.imr_ifindex as u32;
                    Request { group: of_v4(r.imr_multiaddr), by: of_v4(r.imr_address), number }
                }
            }
        } else if len < size_of::<libc::ipv6_mreq>() {
            return fail(libc::EINVAL);
        } else {
            let r = value.cast::<libc::ipv6_mreq>().read_unaligned();
            let group = of_v6(r.ipv6mr_multiaddr);
            Request { group, by: nowhere, number: r.ipv6mr_interface }
        }
    };
    carry_out(k, socket, asked, &request)
}

/// `MCAST_JOIN_GROUP` and `MCAST_LEAVE_GROUP`: an interface's number and an address (`group_req`).
///
/// # Safety
/// `value` is `len` readable bytes.
unsafe fn change_by_number(
    k: &Kernel,
    socket: Handle<Socket>,
    level: i32,
    asked: Asked,
    value: *const u8,
    len: usize,
) -> Result<usize> {
    const ADDRESS_AT: usize = 8;
    if len < ADDRESS_AT + size_of::<libc::sockaddr_storage>() {
        return fail(libc::EINVAL);
    }
    let family = if level == IPPROTO_IP { AF_INET } else { AF_INET6 };
    // SAFETY: the length was checked; the caller's contract.
    let (number, group) = unsafe {
        let at = value.add(ADDRESS_AT).cast();
        let room = size_of::<libc::sockaddr_storage>() as u32;
        let group = address::read(at, room, family, libc::EADDRNOTAVAIL)?;
        (value.cast::<u32>().read_unaligned(), group)
    };
    let by = SockAddr::v4([0; 4], 0);
    carry_out(k, socket, asked, &Request { group, by, number })
}

const fn raw_v4(of: in_addr) -> [u8; 4] {
    of.s_addr.to_ne_bytes()
}

fn of_v4(of: in_addr) -> SockAddr {
    SockAddr::v4(raw_v4(of), 0)
}

const fn of_v6(of: in6_addr) -> SockAddr {
    SockAddr::v6(of.s6_addr, 0)
}

fn carry_out(k: &Kernel, socket: Handle<Socket>, asked: Asked, request: &Request) -> Result<usize> {
    if k.io.sockets.get(socket).is_stream() {
        return fail(libc::EPROTO);
    }
    if !is_group(request.group) {
        return fail(libc::EINVAL);
    }
    if asked == Asked::Leave {
        return leave(k, socket, request);
    }
    let Some(interface) = interface(k, request.by, request.number) else {
        fatal::refused(address::describe("setsockopt: to join a group", request.group).bytes());
        return fail(libc::ENODEV);
    };
    join(k, socket, request.group.ip, interface)
}

/// The interface with an address, or a number; without either the configured one.
fn interface(k: &Kernel, by: SockAddr, number: u32) -> Option<u32> {
    let given = (!k.interface.get().is_none()).then_some(GIVEN_INDEX);
    match number {
        LOOPBACK_INDEX => Some(LOOPBACK_INDEX),
        GIVEN_INDEX => given,
        0 if by.is_unspecified() => given,
        0 if address::is_loopback(by) => Some(LOOPBACK_INDEX),
        0 if address::is_given(by) => given,
        _ => None,
    }
}

fn all(k: &Kernel) -> impl Iterator<Item = (Handle<Membership>, &Membership)> {
    k.io.joined.iter(&k.io.memberships)
}

fn join(k: &Kernel, socket: Handle<Socket>, group: [u8; 16], interface: u32) -> Result<usize> {
    let own = || all(k).filter(|(_, m)| m.socket.get() == Some(socket));
    if own().any(|(_, m)| m.group.get() == group && m.interface.get() == interface) {
        return fail(libc::EADDRINUSE);
    }
    if own().count() >= MOST_OF_A_SOCKET {
        return fail(libc::ENOBUFS);
    }
    let Some(membership) = k.io.memberships.alloc() else { return fail(libc::ENOBUFS) };
    let m = k.io.memberships.get(membership);
    m.socket.set(Some(socket));
    m.group.set(group);
    m.interface.set(interface);
    k.io.joined.push_back(&k.io.memberships, membership);
    Ok(0)
}

/// Leaves a group on the interface that is named, or on the first one.
fn leave(k: &Kernel, socket: Handle<Socket>, request: &Request) -> Result<usize> {
    let any = request.number == 0 && request.by.is_unspecified();
    let on = interface(k, request.by, request.number);
    let found = all(k).find(|(_, m)| {
        m.socket.get() == Some(socket)
            && m.group.get() == request.group.ip
            && (any || on == Some(m.interface.get()))
    });
    let Some((membership, _)) = found else { return fail(libc::EADDRNOTAVAIL) };
    forget(k, membership);
    Ok(0)
}

fn forget(k: &Kernel, membership: Handle<Membership>) {
    k.io.joined.remove(&k.io.memberships, membership);
    k.io.memberships.free(membership);
}

/// A socket that is released has joined nothing any more.
pub fn leave_all(k: &Kernel, socket: Handle<Socket>) {
    for (membership, _) in all(k).filter(|(_, m)| m.socket.get() == Some(socket)) {
        forget(k, membership);
    }
}

/// `IP_MULTICAST_IF`: the address to remember; none is the default interface.
///
/// # Safety
/// `value` is `len` readable bytes.
unsafe fn chosen_by_address(k: &Kernel, value: *const u8, len: usize) -> Result<[u8; 4]> {
    // SAFETY: the lengths are checked; the caller's contract.
    let (by, number) = unsafe {
        match len {
            ..4 => return fail(libc::EINVAL),
            4..8 => (value.cast::<in_addr>().read_unaligned(), 0),
            8..12 => (value.cast::<libc::ip_mreq>().read_unaligned().imr_interface, 0),
            _ => {
                let r = value.cast::<libc::ip_mreqn>().read_unaligned();
                (r.imr_address, r.imr_ifindex as u32)
            }
        }
    };
    let by = of_v4(by);
    if number == 0 && by.is_unspecified() {
        return Ok([0; 4]);
    }
    match interface(k, by, number) {
        Some(LOOPBACK_INDEX) => Ok([127, 0, 0, 1]),
        Some(_) => Ok(k.interface.get().address),
        None => fail(libc::EADDRNOTAVAIL),
    }
}

/// The interface by which a socket sends to a group; `None` when `to` is no group. Impossible sends are refused.
pub fn way(k: &Kernel, s: &Socket, to: SockAddr, call: &str) -> Result<Option<u32>> {
    let (broadcast, chosen) = match to.ipv4() {
        Some([255, 255, 255, 255]) if !s.options.broadcast() => return fail(libc::EACCES),
        Some(ip) => {
            let given = k.interface.get();
            let broadcast = ip[0] >= 240 || !given.is_none() && ip == given.broadcast();
            let local = s.local.get();
            // As in Linux a socket's bound address selects the interface.
            let bound = if address::is_own(local) { local } else { SockAddr::v4([0; 4], 0) };
            let by = match s.options.group_address() {
                [0, 0, 0, 0] => bound,
                chosen => SockAddr::v4(chosen, 0),
            };
            (broadcast, interface(k, by, 0))
        }
        // The configured interface has no IPv6 address.
        None => (false, (s.options.group_interface() == LOOPBACK_INDEX).then_some(LOOPBACK_INDEX)),
    };
    if !broadcast && !is_group(to) {
        return Ok(None);
    }
    match chosen {
        Some(at) if !broadcast => Ok(Some(at)),
        _ => {
            fatal::refused(address::describe(call, to).bytes());
            fail(libc::ENETUNREACH)
        }
    }
}

/// The source address of a packet to a group.
pub fn source(k: &Kernel, to: SockAddr, interface: u32) -> SockAddr {
    match (to.ipv4(), interface) {
        (Some(_), LOOPBACK_INDEX) => SockAddr { v6: to.v6, ..SockAddr::v4([127, 0, 0, 1], 0) },
        (Some(_), _) => SockAddr { v6: to.v6, ..SockAddr::v4(k.interface.get().address, 0) },
        // The loopback interface's: the other one has none.
        (None, _) => address::or_loopback(SockAddr::v6([0; 16], 0)),
    }
}

/// Sends to a group: all member sockets of the server get a copy.
pub fn send(k: &Kernel, s: &Socket, interface: u32, to: SockAddr, buffers: &Buffers<'_>) {
    if interface != LOOPBACK_INDEX && !k.io.told_of_groups.replace(true) {
        fatal::notice(b"the server's packets to groups (multicast) reach its own sockets only");
    }
    let local = s.local.get();
    let from = match address::is_own(local) {
        true => local,
        false => SockAddr { port: local.port, ..source(k, to, interface) },
    };
    let here = |m: &Membership| m.group.get() == to.ip && m.interface.get() == interface;
    // The loopback interface brings back everything.
    let comes_back = interface == LOOPBACK_INDEX || s.options.group_loop(to.ipv4().is_some());
    if !comes_back || !all(k).any(|(_, m)| here(m)) {
        return;
    }
    for (socket, other) in k.io.datagram_ports.iter(&k.io.sockets) {
        let hears = other.options.hears_all_groups(to.ipv4().is_some())
            || all(k).any(|(_, m)| here(m) && m.socket.get() == Some(socket));
        if hears && datagram::rank(other, to, from) > 0 {
            datagram::deliver(k, socket, from, to, &mut buffers.again());
        }
    }
}
