//! bind and listen: the owners of names.

use super::super::{Socket, State};
use super::name::{self, Address, Given, Inode, NO_INODE};
use super::rights::Cred;
use crate::fatal;
use crate::kernel::Kernel;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};

/// Linux's `somaxconn`.
const MAX_BACKLOG: u32 = 4096;
/// Names that `autobind` hands out, as in Linux: five digits.
const AUTOMATIC: u32 = 1 << 20;

/// `bind`.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn bind(
    k: &Kernel,
    socket: Handle<Socket>,
    addr: *const sockaddr,
    len: socklen_t,
) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    // SAFETY: the caller's contract.
    match unsafe { name::read(addr, len) }? {
        Address::Empty => {
            auto(k, socket)?;
            Ok(0)
        }
        _ if s.name.get().is_some() => fail(libc::EINVAL),
        Address::Name(given) if given.is_abstract() => {
            if find(k, &given, NO_INODE).is_some() {
                return fail(libc::EADDRINUSE);
            }
            own(k, socket, &given, NO_INODE)?;
            Ok(0)
        }
        Address::Name(given) => {
            let inode = name::make_inode(&given, 0o777 & !s.refused_mode.get())?;
            // A socket may still be bound to a file that had this inode and is gone.
            for (_, other) in k.io.named.iter(&k.io.sockets) {
                if let Some(name) = other.name.get() {
                    name::forget_inode(k, name, inode);
                }
            }
            own(k, socket, &given, inode).inspect_err(|_| name::remove_inode(&given))?;
            Ok(0)
        }
    }
}

/// The permissions of the path that the socket will be bound to.
pub fn set_mode(k: &Kernel, socket: Handle<Socket>, mode: u32) {
    k.io.sockets.get(socket).refused_mode.set(!mode & 0o777);
}

/// Gives a socket without a name a free abstract one.
pub fn auto(k: &Kernel, socket: Handle<Socket>) -> Result<()> {
    if k.io.sockets.get(socket).name.get().is_some() {
        return Ok(());
    }
    for _ in 0..AUTOMATIC {
        let n = k.io.automatic_name.get();
        k.io.automatic_name.set((n + 1) % AUTOMATIC);
        let mut bytes = [0u8; 6];
        for (at, digit) in bytes[1..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(n >> (16 - 4 * at) & 15) as usize];
        }
        let given = Given::new(&bytes);
        if find(k, &given, NO_INODE).is_none() {
            return own(k, socket, &given, NO_INODE);
        }
    }
    fail(libc::ENOSPC)
}

fn own(k: &Kernel, socket: Handle<Socket>, given: &Given, inode: Inode) -> Result<()> {
    let name = name::make(k, given, inode)?;
    let s = k.io.sockets.get(socket);
    s.name.set(Some(name));
    s.is_bound.set(true);
    k.io.named.push_back(&k.io.sockets, socket);
    Ok(())
}

/// The socket is no longer found by its name.
pub fn disown(k: &Kernel, socket: Handle<Socket>) {
    if k.io.sockets.get(socket).is_bound.replace(false) {
        k.io.named.remove(&k.io.sockets, socket);
    }
}

fn find(k: &Kernel, given: &Given, inode: Inode) -> Option<Handle<Socket>> {
    let has = |s: &Socket| s.name.get().is_some_and(|name| name::is(k, name, given, inode));
    k.io.named.iter(&k.io.sockets).find(|(_, s)| has(s)).map(|(socket, _)| socket)
}

/// The socket that is bound to a name: `ENOENT` and other errors of the path, `ECONNREFUSED` when it has no owner.
pub fn look_up(k: &Kernel, given: &Given) -> Result<Handle<Socket>> {
    let inode = if given.is_abstract() { NO_INODE } else { name::find_inode(given)? };
    if let Some(socket) = find(k, given, inode) {
        return Ok(socket);
    }
    if !given.is_abstract() {
        // The socket of a process outside, or one that its owner has closed.
        fatal::refused(given.describe("connect to UNIX socket").bytes());
    }
    fail(libc::ECONNREFUSED)
}

/// `listen`.
pub fn listen(k: &Kernel, socket: Handle<Socket>, backlog: i32) -> Result<usize> {
    let s = k.io.sockets.get(socket);
    if s.is_datagram() {
        return fail(libc::EOPNOTSUPP);
    }
    if s.name.get().is_none() || !matches!(s.state.get(), State::Fresh | State::Listening) {
        return fail(libc::EINVAL);
    }
    s.backlog.set((backlog as u32).min(MAX_BACKLOG));
    s.state.set(State::Listening);
    s.cred.set(Cred::effective());
    super::connect::promote(k, socket);
    Ok(0)
}
