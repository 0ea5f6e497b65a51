//! getsockname and getpeername.

use super::unix::name::{self, Name};
use super::{Socket, State, address, netlink, of};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::Hold;
use crate::host::Host;
use skein_arena::pool::Handle;
use skein_model::SockAddr;

/// Room for any address.
pub const MAX_BYTES: usize = name::MAX_ADDRESS;

/// `getsockname`: writes the address, and answers its length.
///
/// # Errors
/// Those of `getsockname`.
pub fn local<H: Host>(k: &H, hold: &Hold<'_, H>, out: &mut [u8; MAX_BYTES]) -> Result<usize> {
    let s = k.net.sockets.get(of(k, hold)?);
    Ok(match s.family.get() {
        abi::AF_UNIX => name::encode(k, s.name.get(), out),
        abi::AF_NETLINK => netlink::encode(s.local.get(), out),
        family => address::encode(family, s.local.get(), out),
    })
}

/// `getpeername`: as [`local`].
///
/// # Errors
/// Those of `getpeername`.
pub fn remote<H: Host>(k: &H, hold: &Hold<'_, H>, out: &mut [u8; MAX_BYTES]) -> Result<usize> {
    let socket = of(k, hold)?;
    let s = k.net.sockets.get(socket);
    if s.family.get() == abi::AF_NETLINK {
        // The kernel is always there.
        return Ok(netlink::encode(SockAddr::NOWHERE, out));
    }
    if s.state.get() != State::Connected {
        return fail(abi::ENOTCONN);
    }
    Ok(of_peer(k, socket, out))
}

/// Writes the peer's address, and answers its length.
pub fn of_peer<H: Host>(k: &H, socket: Handle<Socket>, out: &mut [u8; MAX_BYTES]) -> usize {
    let s = k.net.sockets.get(socket);
    if s.family.get() != abi::AF_UNIX {
        return address::encode(s.family.get(), s.remote.get(), out);
    }
    // One that has closed left its name behind.
    let name: Option<Handle<Name>> =
        s.peer.get().map_or(s.peer_name.get(), |peer| k.net.sockets.get(peer).name.get());
    name::encode(k, name, out)
}
