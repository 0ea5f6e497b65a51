//! `sockaddr` and back.

use crate::fatal;
use crate::kernel::kernel;
use core::mem::offset_of;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use skein_libos::errno::{Result, fail};
use skein_model::SockAddr;

/// The oldest and shortest `sockaddr_in6`, without a scope.
const SHORTEST_IN6: usize = offset_of!(sockaddr_in6, sin6_scope_id);
/// The longest address.
pub const MAX_BYTES: usize = size_of::<sockaddr_in6>();

/// The family field of an address.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn family(addr: *const sockaddr, len: socklen_t) -> Result<i32> {
    if (len as usize) < size_of::<libc::sa_family_t>() {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's contract.
    Ok(i32::from(unsafe { (&raw const (*addr).sa_family).read_unaligned() }))
}

/// Reads an address for a socket of family `family`; a wrong family is `wrong`.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn read(
    addr: *const sockaddr,
    len: socklen_t,
    family: i32,
    wrong: i32,
) -> Result<SockAddr> {
    let len = len as usize;
    if family == libc::AF_INET {
        if len < size_of::<sockaddr_in>() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's contract and the length.
        let a = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
        let any = i32::from(a.sin_family) == libc::AF_UNSPEC && a.sin_addr.s_addr == 0;
        if i32::from(a.sin_family) != libc::AF_INET && !any {
            return fail(wrong);
        }
        return Ok(SockAddr::v4(a.sin_addr.s_addr.to_ne_bytes(), u16::from_be(a.sin_port)));
    }
    if len < SHORTEST_IN6 {
        return fail(libc::EINVAL);
    }
    // SAFETY: as above; the fields read lie within the shortest form.
    let (sin6_family, port, ip) = unsafe {
        let a = addr.cast::<sockaddr_in6>();
        (
            (&raw const (*a).sin6_family).read_unaligned(),
            (&raw const (*a).sin6_port).read_unaligned(),
            (&raw const (*a).sin6_addr).read_unaligned(),
        )
    };
    if i32::from(sin6_family) != libc::AF_INET6 {
        return fail(wrong);
    }
    Ok(SockAddr::v6(ip.s6_addr, u16::from_be(port)))
}

/// Writes an address for a socket of family `family`, cut to the available room, as accept and getsockname do.
///
/// # Safety
/// `len` is valid, `out` has room for `*len` bytes.
pub unsafe fn write(
    out: *mut sockaddr,
    len: *mut socklen_t,
    family: i32,
    addr: SockAddr,
) -> Result<()> {
    let mut bytes = [0u8; MAX_BYTES];
    let whole = encode(family, addr, &mut bytes);
    // SAFETY: the caller's contract.
    unsafe { write_bytes(out, len, &bytes[..whole]) }
}

/// Writes an encoded address, cut to the room there is.
///
/// # Safety
/// As for [`write`].
pub unsafe fn write_bytes(out: *mut sockaddr, len: *mut socklen_t, bytes: &[u8]) -> Result<()> {
    // SAFETY: the caller's contract.
    let room = unsafe { *len };
    if room as i32 <= -1 {
        return fail(libc::EINVAL);
    }
    let n = bytes.len().min(room as usize);
    // SAFETY: the caller's contract.
    unsafe {
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), n);
        *len = bytes.len() as socklen_t;
    }
    Ok(())
}

/// Writes an address into `out`; answers its length.
pub fn encode(family: i32, addr: SockAddr, out: &mut [u8; MAX_BYTES]) -> usize {
    out[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&addr.port.to_be_bytes());
    if family == libc::AF_INET {
        out[4..8].copy_from_slice(&addr.ip[12..]);
        size_of::<sockaddr_in>()
    } else {
        out[8..24].copy_from_slice(&addr.ip);
        size_of::<sockaddr_in6>()
    }
}

/// The wildcard address of a family.
pub fn unspecified(family: i32, port: u16) -> SockAddr {
    if family == libc::AF_INET6 { SockAddr::v6([0; 16], port) } else { SockAddr::v4([0; 4], port) }
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
pub fn is_given(addr: SockAddr) -> bool {
    let given = kernel().interface.get();
    !given.is_none() && addr.ipv4() == Some(given.address)
}

/// Whether an address is one of the server's interfaces.
pub fn is_own(addr: SockAddr) -> bool {
    is_loopback(addr) || is_given(addr)
}

/// Whether the machine has an address, as far as the server may know: the wildcard and its interfaces', the same on every replica.
pub fn is_local(addr: SockAddr) -> bool {
    addr.is_unspecified() || is_own(addr)
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
pub fn source(to: SockAddr, inside: bool) -> SockAddr {
    match to.ipv4() {
        Some(_) if is_given(to) => SockAddr { port: 0, ..to },
        Some([first, ..]) if first == 127 || !inside => {
            SockAddr { v6: to.v6, ..SockAddr::v4([127, 0, 0, 1], 0) }
        }
        None if !inside => SockAddr::loopback_v6(0),
        _ => SockAddr { port: 0, ..to },
    }
}

/// A call to an address, for the node's log.
pub fn describe(call: &str, to: SockAddr) -> fatal::Line {
    match to.ipv4() {
        Some([a, b, c, d]) => fatal::line!("{call} to {a}.{b}.{c}.{d} port {}", to.port),
        None => fatal::line!("{call} to {} port {}", core::net::Ipv6Addr::from(to.ip), to.port),
    }
}
