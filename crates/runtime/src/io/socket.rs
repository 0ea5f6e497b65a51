//! Calls on sockets: an operation each, with the addresses and values that the server gives and takes. The library has their meaning
//! ([`skein_libos::net`]).

use crate::io::{Answer, call};
use crate::turn;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_libos::file::table;
use skein_libos::net::{Socket, accept, bind, close, connect, create, name, of, options};
use skein_sched::op::{Kind, Object};

/// No address is longer (`sockaddr_storage`).
const LONGEST_ADDRESS: usize = 128;

/// The address that a call names; one that is too long is cut, and then still too long.
///
/// # Safety
/// `addr` is null or `len` readable bytes, which do not change during the call.
pub unsafe fn given<'a>(addr: *const sockaddr, len: socklen_t) -> &'a [u8] {
    if addr.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { core::slice::from_raw_parts(addr.cast(), (len as usize).min(LONGEST_ADDRESS)) }
}

/// Gives an address to the server, cut to the room for it.
///
/// # Safety
/// `len` is valid and `out` has room for `*len` bytes.
unsafe fn put(bytes: &[u8], out: *mut sockaddr, len: *mut socklen_t) -> Result<()> {
    // SAFETY: the caller's contract.
    let room = unsafe { *len };
    if (room as i32) < 0 {
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

/// `socket`.
pub fn create(family: i32, kind: i32, protocol: i32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Kind::Create);
    create::create(&*turn, family, kind, protocol)
}

/// `socketpair`.
pub fn pair(family: i32, kind: i32, protocol: i32) -> Result<[i32; 2]> {
    let turn = turn::enter(Object::Descriptors, Kind::Create);
    create::pair(&*turn, family, kind, protocol)
}

/// `bind`.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn bind(fd: i32, addr: *const sockaddr, len: socklen_t) -> Answer {
    // SAFETY: the caller's contract.
    call::with(fd, Kind::Bind, |k, hold| bind::bind(k, hold, unsafe { given(addr, len) }))
}

/// `listen`.
pub fn listen(fd: i32, backlog: i32) -> Answer {
    call::with(fd, Kind::Bind, |k, hold| bind::listen(k, hold, backlog))
}

/// `accept4`.
///
/// # Safety
/// `addr` is null, or `len` is valid and `addr` has room for `*len` bytes.
pub unsafe fn accept(fd: i32, addr: *mut sockaddr, len: *mut socklen_t, flags: i32) -> Answer {
    call::with_cancel(fd, Kind::Accept, |k, hold| {
        let (fd, accepted) = accept::accept(k, hold, flags)?;
        if !addr.is_null() {
            let mut bytes = [0; name::MAX_BYTES];
            let whole = name::of_peer(k, accepted, &mut bytes);
            // SAFETY: the caller's contract.
            unsafe { put(&bytes[..whole], addr, len) }.inspect_err(|_| {
                let _ = table::close(k, fd);
            })?;
        }
        Ok(fd as usize)
    })
}

/// `connect`.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn connect(fd: i32, addr: *const sockaddr, len: socklen_t) -> Answer {
    call::with_cancel(fd, Kind::Connect, |k, hold| {
        // SAFETY: the caller's contract.
        connect::connect(k, hold, unsafe { given(addr, len) })
    })
}

/// `shutdown`.
pub fn shutdown(fd: i32, how: i32) -> Answer {
    call::with(fd, Kind::Shutdown, |k, hold| close::shutdown(k, hold, how))
}

/// `getsockname`.
///
/// # Safety
/// `len` is valid and `out` has room for `*len` bytes.
pub unsafe fn local_name(fd: i32, out: *mut sockaddr, len: *mut socklen_t) -> Answer {
    call::with(fd, Kind::Ask, |k, hold| {
        let mut bytes = [0; name::MAX_BYTES];
        let whole = name::local(k, hold, &mut bytes)?;
        // SAFETY: the caller's contract.
        unsafe { put(&bytes[..whole], out, len) }.map(|()| 0)
    })
}

/// `getpeername`.
///
/// # Safety
/// As for [`local_name`].
pub unsafe fn remote_name(fd: i32, out: *mut sockaddr, len: *mut socklen_t) -> Answer {
    call::with(fd, Kind::Ask, |k, hold| {
        let mut bytes = [0; name::MAX_BYTES];
        let whole = name::remote(k, hold, &mut bytes)?;
        // SAFETY: the caller's contract.
        unsafe { put(&bytes[..whole], out, len) }.map(|()| 0)
    })
}

/// `setsockopt`.
///
/// # Safety
/// `value` is `len` readable bytes.
pub unsafe fn set(fd: i32, level: i32, name: i32, value: *const u8, len: socklen_t) -> Answer {
    call::with(fd, Kind::Set, |k, hold| {
        let socket = of(k, hold)?;
        let value = match len as i32 {
            ..0 => return fail(libc::EINVAL),
            0 => &[],
            _ if value.is_null() => return fail(libc::EFAULT),
            // SAFETY: the caller's contract.
            _ => unsafe { core::slice::from_raw_parts(value, len as usize) },
        };
        options::set(k, socket, level, name, value)
    })
}

/// `getsockopt`.
///
/// # Safety
/// `len` is valid and `out` has room for `*len` bytes.
pub unsafe fn get(fd: i32, level: i32, name: i32, out: *mut u8, len: *mut socklen_t) -> Answer {
    call::with(fd, Kind::Ask, |k, hold| {
        let socket: Handle<Socket> = of(k, hold)?;
        // SAFETY: the caller's contract.
        let room = unsafe { *len } as i32;
        if room < 0 {
            return fail(libc::EINVAL);
        }
        let mut value = [0u8; options::MAX_BYTES];
        let whole = options::get(k, socket, level, name, &mut value)?;
        let n = whole.min(room as usize);
        // SAFETY: the caller's contract.
        unsafe {
            core::ptr::copy_nonoverlapping(value.as_ptr(), out, n);
            *len = n as socklen_t;
        }
        Ok(0)
    })
}
