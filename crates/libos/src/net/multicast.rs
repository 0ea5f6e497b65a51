//! Groups (multicast): addresses that reach every socket that has joined.
//!
//! A group's members are the server's own sockets. A packet from one of them to a group reaches the others, by the loopback interface or by
//! the configured one, as in Linux; it does not leave the server, and nothing comes from outside: the node is told so
//! once. Without a configured interface only the loopback one, by its address or number, can be used; the rest is refused by name,
//! and so is broadcast.
//!
//! Invariant: every membership is in the list `joined` and its socket is alive: a socket that is released leaves all its groups.

use super::address::{self, Shown};
use super::bytes::{array, word};
use super::interface::{GIVEN_INDEX, LOOPBACK_INDEX};
use super::{Socket, datagram};
use crate::abi::{self, AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6};
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::host::Host;
pub use crate::state::net::Membership;
use skein_arena::pool::Handle;
use skein_model::SockAddr;

/// Linux's `igmp_max_memberships`.
const MOST_OF_A_SOCKET: usize = 20;

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
        [abi::IP_ADD_MEMBERSHIP, abi::IP_DROP_MEMBERSHIP, abi::IP_MULTICAST_IF]
    } else {
        [abi::IPV6_ADD_MEMBERSHIP, abi::IPV6_DROP_MEMBERSHIP, abi::IPV6_MULTICAST_IF]
    };
    own.contains(&name) || matches!(name, abi::MCAST_JOIN_GROUP | abi::MCAST_LEAVE_GROUP)
}

/// `setsockopt` with an option that [`is_about`] this.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<usize> {
    use Asked::{Join, Leave};
    let s = k.net.sockets.get(socket);
    match (level, name) {
        (_, abi::MCAST_JOIN_GROUP) => change_by_number(k, socket, level, Join, value),
        (_, abi::MCAST_LEAVE_GROUP) => change_by_number(k, socket, level, Leave, value),
        (IPPROTO_IP, abi::IP_ADD_MEMBERSHIP) | (IPPROTO_IPV6, abi::IPV6_ADD_MEMBERSHIP) => {
            change(k, socket, level, Join, value)
        }
        (IPPROTO_IP, abi::IP_DROP_MEMBERSHIP) | (IPPROTO_IPV6, abi::IPV6_DROP_MEMBERSHIP) => {
            change(k, socket, level, Leave, value)
        }
        _ if s.is_stream() => fail(abi::EINVAL),
        (IPPROTO_IP, _) => {
            s.options.set_group_address(chosen_by_address(k, value)?);
            Ok(0)
        }
        _ if value.len() < 4 => fail(abi::EINVAL),
        _ => {
            let number = word(value, 0);
            if number != 0 && interface(k, SockAddr::v4([0; 4], 0), number).is_none() {
                return fail(abi::ENODEV);
            }
            s.options.set_group_interface(number);
            Ok(0)
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

/// `IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP` and their opposites: an `ip_mreq`, an `ip_mreqn` or an `ipv6_mreq`.
fn change<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    level: i32,
    asked: Asked,
    value: &[u8],
) -> Result<usize> {
    let request = match (level, value.len()) {
        (IPPROTO_IP, 8..) => {
            let number = if value.len() < 12 { 0 } else { word(value, 8) };
            Request { group: v4(value, 0), by: v4(value, 4), number }
        }
        (IPPROTO_IPV6, 20..) => {
            let group = SockAddr::v6(array(value, 0), 0);
            Request { group, by: SockAddr::v4([0; 4], 0), number: word(value, 16) }
        }
        _ => return fail(abi::EINVAL),
    };
    carry_out(k, socket, asked, &request)
}

/// `MCAST_JOIN_GROUP` and `MCAST_LEAVE_GROUP`: an interface's number and an address (`group_req`).
fn change_by_number<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    level: i32,
    asked: Asked,
    value: &[u8],
) -> Result<usize> {
    const ADDRESS_AT: usize = 8;
    /// Bytes of a `sockaddr_storage`.
    const STORAGE_BYTES: usize = 128;
    if value.len() < ADDRESS_AT + STORAGE_BYTES {
        return fail(abi::EINVAL);
    }
    let family = if level == IPPROTO_IP { AF_INET } else { AF_INET6 };
    let group = address::read(&value[ADDRESS_AT..], family, abi::EADDRNOTAVAIL)?;
    let by = SockAddr::v4([0; 4], 0);
    carry_out(k, socket, asked, &Request { group, by, number: word(value, 0) })
}

/// The IPv4 address at a place of an option's value.
fn v4(value: &[u8], at: usize) -> SockAddr {
    SockAddr::v4(array(value, at), 0)
}

fn carry_out<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    asked: Asked,
    request: &Request,
) -> Result<usize> {
    if k.net.sockets.get(socket).is_stream() {
        return fail(abi::EPROTO);
    }
    if !is_group(request.group) {
        return fail(abi::EINVAL);
    }
    if asked == Asked::Leave {
        return leave(k, socket, request);
    }
    let Some(interface) = interface(k, request.by, request.number) else {
        let group = Shown(request.group);
        k.refused(format_args!("setsockopt: to join a group to {group}"));
        return fail(abi::ENODEV);
    };
    join(k, socket, request.group.ip, interface)
}

/// The interface with an address, or a number; without either the configured one.
fn interface<H: Host>(k: &H, by: SockAddr, number: u32) -> Option<u32> {
    let given = (!k.net.interface.get().is_none()).then_some(GIVEN_INDEX);
    match number {
        LOOPBACK_INDEX => Some(LOOPBACK_INDEX),
        GIVEN_INDEX => given,
        0 if by.is_unspecified() => given,
        0 if address::is_loopback(by) => Some(LOOPBACK_INDEX),
        0 if address::is_given(k, by) => given,
        _ => None,
    }
}

fn all<H: Host>(k: &H) -> impl Iterator<Item = (Handle<Membership>, &Membership)> {
    k.net.joined.iter(&k.net.memberships)
}

fn join<H: Host>(k: &H, socket: Handle<Socket>, group: [u8; 16], interface: u32) -> Result<usize> {
    let own = || all(k).filter(|(_, m)| m.socket.get() == Some(socket));
    if own().any(|(_, m)| m.group.get() == group && m.interface.get() == interface) {
        return fail(abi::EADDRINUSE);
    }
    if own().count() >= MOST_OF_A_SOCKET {
        return fail(abi::ENOBUFS);
    }
    let Some(membership) = k.net.memberships.alloc() else { return fail(abi::ENOBUFS) };
    let m = k.net.memberships.get(membership);
    m.socket.set(Some(socket));
    m.group.set(group);
    m.interface.set(interface);
    k.net.joined.push_back(&k.net.memberships, membership);
    Ok(0)
}

/// Leaves a group on the interface that is named, or on the first one.
fn leave<H: Host>(k: &H, socket: Handle<Socket>, request: &Request) -> Result<usize> {
    let any = request.number == 0 && request.by.is_unspecified();
    let on = interface(k, request.by, request.number);
    let found = all(k).find(|(_, m)| {
        m.socket.get() == Some(socket)
            && m.group.get() == request.group.ip
            && (any || on == Some(m.interface.get()))
    });
    let Some((membership, _)) = found else { return fail(abi::EADDRNOTAVAIL) };
    forget(k, membership);
    Ok(0)
}

fn forget<H: Host>(k: &H, membership: Handle<Membership>) {
    k.net.joined.remove(&k.net.memberships, membership);
    k.net.memberships.free(membership);
}

/// A socket that is released has joined nothing any more.
pub fn leave_all<H: Host>(k: &H, socket: Handle<Socket>) {
    for (membership, _) in all(k).filter(|(_, m)| m.socket.get() == Some(socket)) {
        forget(k, membership);
    }
}

/// `IP_MULTICAST_IF`: the address to remember; none is the default interface.
fn chosen_by_address<H: Host>(k: &H, value: &[u8]) -> Result<[u8; 4]> {
    let (by, number) = match value.len() {
        ..4 => return fail(abi::EINVAL),
        4..8 => (v4(value, 0), 0),
        // An `ip_mreq` or `ip_mreqn`.
        8..12 => (v4(value, 4), 0),
        _ => (v4(value, 4), word(value, 8)),
    };
    if number == 0 && by.is_unspecified() {
        return Ok([0; 4]);
    }
    match interface(k, by, number) {
        Some(LOOPBACK_INDEX) => Ok([127, 0, 0, 1]),
        Some(_) => Ok(k.net.interface.get().address),
        None => fail(abi::EADDRNOTAVAIL),
    }
}

/// The interface by which a socket sends to a group; `None` when `to` is no group. Impossible sends are refused.
pub fn way<H: Host>(k: &H, s: &Socket, to: SockAddr, call: &str) -> Result<Option<u32>> {
    let (broadcast, chosen) = match to.ipv4() {
        Some([255, 255, 255, 255]) if !s.options.broadcast() => return fail(abi::EACCES),
        Some(ip) => {
            let given = k.net.interface.get();
            let broadcast = ip[0] >= 240 || !given.is_none() && ip == given.broadcast();
            let local = s.local.get();
            // As in Linux a socket's bound address selects the interface.
            let bound = if address::is_own(k, local) { local } else { SockAddr::v4([0; 4], 0) };
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
            k.refused(format_args!("{call} to {}", Shown(to)));
            fail(abi::ENETUNREACH)
        }
    }
}

/// The source address of a packet to a group.
pub fn source<H: Host>(k: &H, to: SockAddr, interface: u32) -> SockAddr {
    match (to.ipv4(), interface) {
        (Some(_), LOOPBACK_INDEX) => SockAddr { v6: to.v6, ..SockAddr::v4([127, 0, 0, 1], 0) },
        (Some(_), _) => SockAddr { v6: to.v6, ..SockAddr::v4(k.net.interface.get().address, 0) },
        // The loopback interface's: the other one has none.
        (None, _) => address::or_loopback(SockAddr::v6([0; 16], 0)),
    }
}

/// Sends to a group: all member sockets of the server get a copy.
pub fn send<H: Host>(k: &H, s: &Socket, interface: u32, to: SockAddr, buffers: &Buffers<'_>) {
    if interface != LOOPBACK_INDEX && !k.net.told_of_groups.replace(true) {
        k.notice(format_args!(
            "the server's packets to groups (multicast) reach its own sockets only"
        ));
    }
    let local = s.local.get();
    let from = match address::is_own(k, local) {
        true => local,
        false => SockAddr { port: local.port, ..source(k, to, interface) },
    };
    let here = |m: &Membership| m.group.get() == to.ip && m.interface.get() == interface;
    // The loopback interface brings back everything.
    let comes_back = interface == LOOPBACK_INDEX || s.options.group_loop(to.ipv4().is_some());
    if !comes_back || !all(k).any(|(_, m)| here(m)) {
        return;
    }
    for (socket, other) in k.net.datagram_ports.iter(&k.net.sockets) {
        let hears = other.options.hears_all_groups(to.ipv4().is_some())
            || all(k).any(|(_, m)| here(m) && m.socket.get() == Some(socket));
        if hears && datagram::rank(other, to, from) > 0 {
            datagram::deliver(k, socket, from, to, &mut buffers.again());
        }
    }
}
