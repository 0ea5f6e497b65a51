//! Addresses in the form of `sockaddr`, and back; the machine's own ones.

use super::bytes::{array, half};
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use core::fmt::{self, Display, Formatter};
use skein_model::SockAddr;

/// Bytes of a `sockaddr_in`.
pub const IN_BYTES: usize = 16;
/// The oldest and shortest `sockaddr_in6`, without a scope.
const SHORTEST_IN6: usize = 24;
/// The longest address: a `sockaddr_in6`.
pub const MAX_BYTES: usize = 28;

/// The family field of an address.
///
/// # Errors
/// `EINVAL` when it has none.
pub fn family(addr: &[u8]) -> Result<i32> {
    if addr.len() < 2 { fail(abi::EINVAL) } else { Ok(i32::from(half(addr, 0))) }
}

/// Reads an address for a socket of family `family`; a wrong family is `wrong`.
///
/// # Errors
/// `EINVAL` when it is too short; `wrong`.
pub fn read(addr: &[u8], family: i32, wrong: i32) -> Result<SockAddr> {
    if family == abi::AF_INET {
        if addr.len() < IN_BYTES {
            return fail(abi::EINVAL);
        }
        let ip: [u8; 4] = array(addr, 4);
        let any = i32::from(half(addr, 0)) == abi::AF_UNSPEC && ip == [0; 4];
        if i32::from(half(addr, 0)) != abi::AF_INET && !any {
            return fail(wrong);
        }
        return Ok(SockAddr::v4(ip, u16::from_be(half(addr, 2))));
    }
    if addr.len() < SHORTEST_IN6 {
        return fail(abi::EINVAL);
    }
    if i32::from(half(addr, 0)) != abi::AF_INET6 {
        return fail(wrong);
    }
    Ok(SockAddr::v6(array(addr, 8), u16::from_be(half(addr, 2))))
}

/// Writes an address into `out`, which has room for any; answers its length.
pub fn encode(family: i32, addr: SockAddr, out: &mut [u8]) -> usize {
    out[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&addr.port.to_be_bytes());
    if family == abi::AF_INET {
        out[4..8].copy_from_slice(&addr.ip[12..]);
        IN_BYTES
    } else {
        out[8..24].copy_from_slice(&addr.ip);
        MAX_BYTES
    }
}

/// The wildcard address of a family.
pub fn unspecified(family: i32, port: u16) -> SockAddr {
    if family == abi::AF_INET6 { SockAddr::v6([0; 16], port) } else { SockAddr::v4([0; 4], port) }
}

/// Whether an address is one of the loopback interface.
pub fn is_loopback(addr: SockAddr) -> bool {
    addr.is_loopback()
}

/// The address of a client as a connection's socket of the other IP version sees it: by [`SockAddr::translated`]. Other IPv6 addresses are shown
/// as one of `240.0.0.0/4`, an unused network, made from all of its bits.
pub fn translated(client: SockAddr) -> SockAddr {
    client.translated().unwrap_or_else(|| {
        let mix = |h: u32, byte: &u8| (h ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = client.ip.iter().fold(0x811c_9dc5, mix);
        SockAddr::v4((hash | 0xf000_0000).to_be_bytes(), client.port)
    })
}

/// Whether an address is that of the configured interface.
pub fn is_given<H: Host>(k: &H, addr: SockAddr) -> bool {
    let given = k.net.interface.get();
    !given.is_none() && addr.ipv4() == Some(given.address)
}

/// Whether an address is one of the server's interfaces.
pub fn is_own<H: Host>(k: &H, addr: SockAddr) -> bool {
    is_loopback(addr) || is_given(k, addr)
}

/// Whether the machine has an address, as far as the server may know: the wildcard and its interfaces', the same on every replica.
pub fn is_local<H: Host>(k: &H, addr: SockAddr) -> bool {
    addr.is_unspecified() || is_own(k, addr)
}

/// Linux takes the wildcard for the loopback address as a destination.
pub fn or_loopback(to: SockAddr) -> SockAddr {
    if !to.is_unspecified() {
        return to;
    }
    if to.ipv4().is_some() {
        return SockAddr { v6: to.v6, ..SockAddr::v4([127, 0, 0, 1], to.port) };
    }
    SockAddr::loopback_v6(to.port)
}

/// The source address of a packet to `to`: the machine's own address if it stays `inside`, else the loopback interface's, which is
/// the only one that a server knows. The leader's own differs from replica to replica.
pub fn source<H: Host>(k: &H, to: SockAddr, inside: bool) -> SockAddr {
    match to.ipv4() {
        Some(_) if is_given(k, to) => SockAddr { port: 0, ..to },
        Some([first, ..]) if first == 127 || !inside => {
            SockAddr { v6: to.v6, ..SockAddr::v4([127, 0, 0, 1], 0) }
        }
        None if !inside => SockAddr::loopback_v6(0),
        _ => SockAddr { port: 0, ..to },
    }
}

/// An address, for the node's log.
pub struct Shown(pub SockAddr);

impl Display for Shown {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(to) = self;
        match to.ipv4() {
            Some([a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d} port {}", to.port),
            None => write!(f, "{} port {}", core::net::Ipv6Addr::from(to.ip), to.port),
        }
    }
}
