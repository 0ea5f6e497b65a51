//! getsockname and getpeername.

use super::{Socket, State, address, of};
use crate::io::{Answer, fail, file};
use crate::kernel::Kernel;
use crate::sys::Result;
use libc::{sockaddr, socklen_t};
use skein_model::SockAddr;

/// `getsockname`.
///
/// # Safety
/// `len` is valid and `out` has room for `*len` bytes.
pub unsafe fn local(fd: i32, out: *mut sockaddr, len: *mut socklen_t) -> Answer {
    // SAFETY: the caller's contract.
    unsafe { answer(fd, out, len, |_, s| Ok(s.local.get())) }
}

/// `getpeername`.
///
/// # Safety
/// As for [`local`].
pub unsafe fn remote(fd: i32, out: *mut sockaddr, len: *mut socklen_t) -> Answer {
    // SAFETY: the caller's contract.
    unsafe {
        answer(fd, out, len, |_, s| match s.state.get() {
            State::Connected => Ok(s.remote.get()),
            _ => fail(libc::ENOTCONN),
        })
    }
}

unsafe fn answer(
    fd: i32,
    out: *mut sockaddr,
    len: *mut socklen_t,
    pick: impl FnOnce(&Kernel, &Socket) -> Result<SockAddr>,
) -> Answer {
    file::with(fd, |k, hold| {
        let socket = of(k, hold)?;
        let s = k.io.sockets.get(socket);
        let addr = pick(k, s)?;
        // SAFETY: the caller's contract.
        unsafe { address::write(out, len, s.family.get(), addr) }?;
        Ok(0)
    })
}
