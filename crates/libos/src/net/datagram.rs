//! UDP: ports of their own, connections that only filter, messages that are dropped when there is no room.
//!
//! Between sockets of the server a datagram arrives at once, by the virtual loopback interface. A datagram for none of them goes to
//! [`outside`]; arriving ones are given to [`deliver`]. Groups are in [`multicast`].

use super::bind::{ELSEWHERE, Ends};
use super::bytes::array;
use super::exchange::{Incoming, Outgoing};
use super::interface::{GIVEN_INDEX, LOOPBACK_INDEX};
use super::message::{self, QUEUE_BYTES};
use super::{SHUT_SEND, Socket, State, address, bind, multicast, outside};
use crate::abi::{self, AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::file::{self, Hold, ready};
use crate::host::Host;
use crate::time::NS_PER_S;
use skein_arena::pool::Handle;
use skein_model::SockAddr;

/// The longest datagram: 65,535 less the headers of IPv4 and UDP, or of UDP.
const MAX_V4_BYTES: usize = 65_507;
const MAX_V6_BYTES: usize = 65_527;

/// Gives a socket without a port one.
fn bind_automatically<H: Host>(k: &H, socket: Handle<Socket>) -> Result<()> {
    if k.net.sockets.get(socket).local.get().port == 0 {
        bind::bind_automatically(k, socket)?;
    }
    Ok(())
}

/// How well a socket fits a datagram; 0 when not at all.
pub fn rank(s: &Socket, to: SockAddr, from: SockAddr) -> u32 {
    let at = s.local.get();
    if at.port != to.port {
        return 0;
    }
    let mut rank = 1;
    if at.ip == to.ip {
        rank += 2;
    } else if !at.is_unspecified() {
        return 0;
    } else if to.ipv4().is_some() {
        // A wildcard of IPv6 takes IPv4, too, unless told not to; one of IPv4 goes before it.
        if at.ipv4().is_some() {
            rank += 1;
        } else if s.options.only_v6() {
            return 0;
        }
    } else if at.ipv4().is_some() {
        return 0;
    }
    if s.state.get() == State::Connected {
        let remote = s.remote.get();
        if remote.ip != from.ip || remote.port != from.port {
            return 0;
        }
        rank += 4;
    }
    rank
}

/// The socket that a datagram is for: the best fit. Of several equal ones those that share a port take turns by the
/// sender; otherwise the newest has it.
pub fn find<H: Host>(k: &H, to: SockAddr, from: SockAddr) -> Option<Handle<Socket>> {
    let (mut best, mut found, mut count) = (0, None, 0u64);
    for (socket, s) in k.net.datagram_ports.iter(&k.net.sockets) {
        let rank = rank(s, to, from);
        if rank > 0 && rank >= best {
            count = if rank > best { 1 } else { count + 1 };
            (best, found) = (rank, Some(socket));
        }
    }
    let last = found?;
    if count < 2 || !k.net.sockets.get(last).options.reuse_port() {
        return Some(last);
    }
    let hash = from
        .ip
        .iter()
        .fold(u64::from(from.port), |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    let ports = k.net.datagram_ports.iter(&k.net.sockets);
    let mut equal = ports.filter(|(_, s)| rank(s, to, from) == best);
    equal.nth(((hash >> 16) % count) as usize).map(|(socket, _)| socket)
}

/// The socket for what came from the outside, and both ends as it sees them.
pub fn find_for<H: Host>(k: &H, came: Ends) -> Option<(Handle<Socket>, Ends)> {
    if let Some(socket) = find(k, came.local, came.peer) {
        return Some((socket, came));
    }
    ELSEWHERE.iter().find_map(|(near, translates)| {
        k.net.datagram_ports.iter(&k.net.sockets).find_map(|(_, s)| {
            let local = bind::local_elsewhere(s.local.get(), came.local, *near, *translates)?;
            // The server's answer must find its way back.
            let peer = if *translates { came.peer.translated()? } else { came.peer };
            Some((find(k, local, peer)?, Ends { local, peer }))
        })
    })
}

/// A datagram has come for `socket`, which as in Linux may be shut; dropped when it has no room.
pub fn deliver<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    from: SockAddr,
    to: SockAddr,
    bytes: &mut Buffers<'_>,
) {
    let s = k.net.sockets.get(socket);
    if s.charged.get() > QUEUE_BYTES {
        return;
    }
    // Without memory it is lost as well.
    let Ok(message) = message::make(k, bytes) else { return };
    let m = k.net.messages.get(message);
    m.from.set(from);
    m.to.set(to);
    message::push(k, s, message);
    file::notify(k, s.file.get(), ready::CAME);
}

/// An error came back for a datagram of a connected socket.
pub fn came_back<H: Host>(k: &H, socket: Handle<Socket>, errno: i32) {
    let s = k.net.sockets.get(socket);
    if s.state.get() == State::Connected {
        s.error.set(errno);
        file::notify(k, s.file.get(), ready::ALL);
    }
}

/// The destination of a send: the caller's, or that of the connection.
fn receiver(s: &Socket, outgoing: &Outgoing<'_>) -> Result<SockAddr> {
    let connected = s.state.get() == State::Connected;
    if outgoing.has_destination() {
        let six = s.family.get() == AF_INET6;
        match address::family(outgoing.to)? {
            // As in Linux this is IPv4, or no name for IPv6.
            abi::AF_UNSPEC if !six && outgoing.to.len() >= address::IN_BYTES => {
                let mut addr: [u8; address::IN_BYTES] = array(outgoing.to, 0);
                addr[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
                return destination(s, &addr);
            }
            abi::AF_UNSPEC if six => {}
            AF_INET | AF_INET6 => return destination(s, outgoing.to),
            _ if six => return fail(abi::EINVAL),
            _ => return destination(s, outgoing.to),
        }
    }
    if connected { Ok(s.remote.get()) } else { fail(abi::EDESTADDRREQ) }
}

/// An address to send to, as a socket of this kind may use it.
fn destination(s: &Socket, addr: &[u8]) -> Result<SockAddr> {
    let mut family = s.family.get();
    if family == AF_INET6 && address::family(addr)? == AF_INET {
        family = AF_INET;
    }
    let to = address::read(addr, family, abi::EAFNOSUPPORT)?;
    if s.family.get() == AF_INET6 && to.ipv4().is_some() && s.options.only_v6() {
        return fail(abi::ENETUNREACH);
    }
    Ok(SockAddr { v6: s.family.get() == AF_INET6, ..address::or_loopback(to) })
}

/// `connect`: from now on the socket sends to `addr` and receives from it only.
///
/// # Errors
/// Those of `connect`.
pub fn connect<H: Host>(k: &H, socket: Handle<Socket>, addr: &[u8]) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if address::family(addr)? == abi::AF_UNSPEC {
        disconnect(k, socket);
        return Ok(0);
    }
    bind_automatically(k, socket)?;
    let to = destination(s, addr)?;
    let group = multicast::way(k, s, to, "connect")?;
    if s.asked.get().is_unspecified() {
        let from =
            group.map_or_else(|| address::source(k, to, false), |at| multicast::source(k, to, at));
        s.local.set(SockAddr { port: s.local.get().port, ..from });
    }
    s.remote.set(to);
    s.state.set(State::Connected);
    Ok(0)
}

fn disconnect<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    s.state.set(State::Fresh);
    s.remote.set(SockAddr::NOWHERE);
    if s.asked.get().port == 0 {
        bind::disown(k, socket);
    }
    s.local.set(s.asked.get());
}

/// `shutdown`.
pub fn shutdown<H: Host>(k: &H, socket: Handle<Socket>, shut: u32) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let connected = s.state.get() == State::Connected;
    s.shut.set(s.shut.get() | shut);
    file::notify(k, s.file.get(), ready::ALL);
    if connected { Ok(0) } else { fail(abi::ENOTCONN) }
}

/// Sends a datagram.
pub fn send<H: Host>(
    k: &H,
    _hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    outgoing: &Outgoing<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if outgoing.flags & abi::MSG_MORE != 0 {
        k.refused(format_args!("send with MSG_MORE on a datagram socket"));
        return fail(abi::EOPNOTSUPP);
    }
    let n = buffers.left();
    bind_automatically(k, socket)?;
    let to = receiver(s, outgoing)?;
    if to.port == 0 {
        return fail(abi::EINVAL);
    }
    if n > if to.ipv4().is_some() { MAX_V4_BYTES } else { MAX_V6_BYTES } {
        return fail(abi::EMSGSIZE);
    }
    let group = multicast::way(k, s, to, "sendto")?;
    let source = wanted_source(k, outgoing)?;
    if s.error.get() != 0 {
        return fail(s.take_error());
    }
    if s.shut.get() & SHUT_SEND != 0 {
        return fail(abi::EPIPE);
    }
    // As in Linux its room comes back at once, which is an edge.
    file::notify(k, s.file.get(), ready::ROOM);
    if let Some(at) = group {
        multicast::send(k, s, at, to, buffers);
        return Ok(n);
    }
    let from = outside::source(k, s.local.get(), source, to);
    match find(k, to, from) {
        Some(receiver) if address::is_own(k, to) => {
            deliver(k, receiver, from, to, buffers);
            Ok(n)
        }
        _ => outside::external_datagram(k, socket, from, to, buffers),
    }
}

/// The source address that control messages ask for (`IP_PKTINFO`, `IPV6_PKTINFO`): one of this machine.
fn wanted_source<H: Host>(k: &H, outgoing: &Outgoing<'_>) -> Result<Option<[u8; 16]>> {
    let mut wanted = None;
    super::exchange::each_control(outgoing.control, |control| {
        let ip = match (control.level, control.kind) {
            (IPPROTO_IP, abi::IP_PKTINFO) if control.data.len() == 12 => {
                let ip: [u8; 4] = control.data[4..8].try_into().expect("four bytes");
                SockAddr::v4(ip, 0).ip
            }
            (IPPROTO_IPV6, abi::IPV6_PKTINFO) if control.data.len() == 20 => {
                control.data[..16].try_into().expect("sixteen bytes")
            }
            // Options about its lifetime and marks have no effect here.
            (IPPROTO_IP, abi::IP_TTL | abi::IP_TOS)
            | (IPPROTO_IPV6, abi::IPV6_HOPLIMIT | abi::IPV6_TCLASS) => return Ok(()),
            (SOL_SOCKET, _) => return fail(abi::EINVAL),
            (level, kind) => {
                k.refused(format_args!(
                    "sendmsg with a control message of level {level} type {kind}"
                ));
                return fail(abi::EINVAL);
            }
        };
        let addr = SockAddr { ip, ..SockAddr::NOWHERE };
        if addr.is_unspecified() {
            return Ok(());
        }
        if !address::is_own(k, addr) {
            return fail(abi::EINVAL);
        }
        wanted = Some(ip);
        Ok(())
    })?;
    Ok(wanted)
}

/// Receives a datagram.
pub fn receive<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let Some(first) = message::await_first(k, hold, s, incoming.flags)? else { return Ok(0) };
    let m = k.net.messages.get(first);
    let answer = message::copy_out(k, m, buffers, incoming);
    let mut name = [0; address::MAX_BYTES];
    let from = m.from.get();
    let len = address::encode(s.family.get(), from, &mut name);
    incoming.put_name(&name[..len]);
    put_controls(s, m, incoming);
    if incoming.flags & abi::MSG_PEEK == 0 {
        message::pop(k, s);
        message::free(k, first);
    }
    Ok(answer)
}

/// The time of its arrival, and its destination.
fn put_controls(s: &Socket, m: &message::Message, incoming: &mut Incoming<'_>) {
    let at = m.at_ns.get();
    if let Some(unit_ns) = s.options.time_stamp_ns() {
        let mut stamp = [0; 16];
        stamp[..8].copy_from_slice(&(at / NS_PER_S).to_ne_bytes());
        stamp[8..].copy_from_slice(&(at % NS_PER_S / unit_ns).to_ne_bytes());
        let kind = if unit_ns == 1 { abi::SCM_TIMESTAMPNS } else { abi::SCM_TIMESTAMP };
        incoming.put_control(SOL_SOCKET, kind, &stamp);
    }
    let to = m.to.get();
    // One for a group comes from the server itself, by the interface whose address it is from.
    let at = if multicast::is_group(to) { m.from.get() } else { to };
    let index = if address::is_loopback(at) { LOOPBACK_INDEX } else { GIVEN_INDEX };
    if let Some(ip) = to.ipv4()
        && s.options.packet_info_v4()
    {
        // in_pktinfo: the interface, the address to answer from, the address that was sent to.
        let mut info = [0; 12];
        info[..4].copy_from_slice(&index.to_ne_bytes());
        info[4..8].copy_from_slice(&at.ipv4().unwrap_or(ip));
        info[8..].copy_from_slice(&ip);
        incoming.put_control(IPPROTO_IP, abi::IP_PKTINFO, &info);
    }
    if s.family.get() == AF_INET6 && s.options.packet_info_v6() {
        let mut info = [0; 20];
        info[..16].copy_from_slice(&to.ip);
        info[16..].copy_from_slice(&index.to_ne_bytes());
        incoming.put_control(IPPROTO_IPV6, abi::IPV6_PKTINFO, &info);
    }
}
