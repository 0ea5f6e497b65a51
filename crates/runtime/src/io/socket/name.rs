//! getsockname and getpeername.

use super::unix::name::{self, MAX_ADDRESS, Name};
use super::{Socket, State, address, netlink, of};
use crate::io::Answer;
use crate::io::call;
use crate::kernel::Kernel;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_model::SockAddr;
use skein_sched::op::Kind;

/// `getsockname`.
///
/// # Safety
/// `len` is valid and `out` has room for `*len` bytes.
pub unsafe fn local(fd: i32, out: *mut sockaddr, len: *mut socklen_t) -> Answer {
    call::with(fd, Kind::Ask, |k, hold| {
        let s = k.io.sockets.get(of(k, hold)?);
        // SAFETY: the caller's contract.
        unsafe {
            match s.family.get() {
                libc::AF_UNIX => write_name(k, s.name.get(), out, len),
                libc::AF_NETLINK => address::write_bytes(out, len, &netlink::encode(s.local.get())),
                family => address::write(out, len, family, s.local.get()),
            }
        }?;
        Ok(0)
    })
}

/// `getpeername`.
///
/// # Safety
/// As for [`local`].
pub unsafe fn remote(fd: i32, out: *mut sockaddr, len: *mut socklen_t) -> Answer {
    call::with(fd, Kind::Ask, |k, hold| {
        let s = k.io.sockets.get(of(k, hold)?);
        if s.family.get() == libc::AF_NETLINK {
            // The kernel is always there.
            // SAFETY: the caller's contract.
            unsafe { address::write_bytes(out, len, &netlink::encode(SockAddr::NOWHERE)) }?;
            return Ok(0);
        }
        if s.state.get() != State::Connected {
            return fail(libc::ENOTCONN);
        }
        // SAFETY: the caller's contract.
        unsafe { write_remote(k, s, out, len) }?;
        Ok(0)
    })
}

/// Writes the peer's address.
///
/// # Safety
/// As for [`local`].
pub unsafe fn write_remote(
    k: &Kernel,
    s: &Socket,
    out: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe {
        if s.family.get() != libc::AF_UNIX {
            return address::write(out, len, s.family.get(), s.remote.get());
        }
        // One that has closed left its name behind.
        let name = s.peer.get().map_or(s.peer_name.get(), |peer| k.io.sockets.get(peer).name.get());
        write_name(k, name, out, len)
    }
}

unsafe fn write_name(
    k: &Kernel,
    name: Option<Handle<Name>>,
    out: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<()> {
    let mut bytes = [0; MAX_ADDRESS];
    let whole = name::encode(k, name, &mut bytes);
    // SAFETY: the caller's contract.
    unsafe { address::write_bytes(out, len, &bytes[..whole]) }
}
