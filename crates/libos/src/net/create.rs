//! socket and socketpair.

use super::unix::{self, rights::Cred};
use super::{State, Transport, close, give_descriptor, make, netlink};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file;
use crate::host::Host;
use skein_arena::uses::Use;

const TYPE_FLAGS: i32 = abi::SOCK_NONBLOCK | abi::SOCK_CLOEXEC;

/// `socket`.
pub fn create<H: Host>(k: &H, family: i32, kind: i32, protocol: i32) -> Result<usize> {
    let (flags, kind) = (kind & TYPE_FLAGS, kind & !TYPE_FLAGS);
    // Linux's SOCK_MAX.
    if !(1..11).contains(&kind) {
        return fail(abi::EINVAL);
    }
    let kind = match family {
        abi::AF_UNIX => unix_kind(kind, protocol)?,
        abi::AF_INET | abi::AF_INET6 => internet_kind(k, kind, protocol)?,
        abi::AF_NETLINK => netlink::check(k, kind, protocol)?,
        _ => {
            k.refused(format_args!("socket of family {family}"));
            return fail(abi::EAFNOSUPPORT);
        }
    };
    let socket = make(k, family)?;
    k.net.sockets.get(socket).kind.set(kind);
    let fd = give_descriptor(k, socket, flags);
    if fd.is_err() {
        k.net.sockets.free(socket);
    }
    match (family, kind) {
        // What is asked by it counts.
        (abi::AF_NETLINK, _) => {}
        (abi::AF_UNIX, _) => k.note(Use::UnixSockets),
        (_, abi::SOCK_DGRAM) => k.note(Use::UdpSockets),
        _ => k.note(Use::TcpSockets),
    }
    fd.map(|fd| fd as usize)
}

fn unix_kind(kind: i32, protocol: i32) -> Result<i32> {
    match kind {
        _ if !matches!(protocol, 0 | abi::AF_UNIX) => fail(abi::EPROTONOSUPPORT),
        abi::SOCK_STREAM | abi::SOCK_SEQPACKET | abi::SOCK_DGRAM => Ok(kind),
        // As Linux has it.
        abi::SOCK_RAW => Ok(abi::SOCK_DGRAM),
        _ => fail(abi::ESOCKTNOSUPPORT),
    }
}

fn internet_kind<H: Host>(k: &H, kind: i32, protocol: i32) -> Result<i32> {
    match (kind, protocol) {
        (abi::SOCK_STREAM, 0 | abi::IPPROTO_TCP) | (abi::SOCK_DGRAM, 0 | abi::IPPROTO_UDP) => {
            Ok(kind)
        }
        (abi::SOCK_STREAM | abi::SOCK_DGRAM, _) => {
            k.refused(format_args!("socket of type {kind} protocol {protocol}"));
            fail(abi::EPROTONOSUPPORT)
        }
        _ => {
            k.refused(format_args!("socket of type {kind}"));
            fail(abi::ESOCKTNOSUPPORT)
        }
    }
}

/// `socketpair`.
pub fn pair<H: Host>(k: &H, family: i32, kind: i32, protocol: i32) -> Result<[i32; 2]> {
    let (flags, kind) = (kind & TYPE_FLAGS, kind & !TYPE_FLAGS);
    if family != abi::AF_UNIX {
        return fail(if matches!(family, abi::AF_INET | abi::AF_INET6 | abi::AF_NETLINK) {
            abi::EOPNOTSUPP
        } else {
            abi::EAFNOSUPPORT
        });
    }
    // Linux's SOCK_MAX.
    if !(1..11).contains(&kind) {
        return fail(abi::EINVAL);
    }
    let kind = unix_kind(kind, protocol)?;
    let a = make(k, family)?;
    let b = make(k, family).inspect_err(|_| k.net.sockets.free(a))?;
    k.note(Use::UnixSockets);
    for (one, other) in [(a, b), (b, a)] {
        let s = k.net.sockets.get(one);
        s.kind.set(kind);
        s.cred.set(Cred::effective(k));
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
            k.net.sockets.free(b);
            k.net.sockets.free(a);
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
