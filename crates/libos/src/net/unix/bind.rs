//! bind and listen: the owners of names.

use super::super::{Socket, State};
use super::name::{self, Address, Given, Inode, NO_INODE};
use super::rights::Cred;
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use skein_arena::pool::Handle;

/// Linux's `somaxconn`.
const MAX_BACKLOG: u32 = 4096;
/// Names that `autobind` hands out, as in Linux: five digits.
const AUTOMATIC: u32 = 1 << 20;

/// `bind`.
///
/// # Errors
/// Those of `bind`.
pub fn bind<H: Host>(k: &H, socket: Handle<Socket>, addr: &[u8]) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    match name::read(addr)? {
        Address::Empty => {
            auto(k, socket)?;
            Ok(0)
        }
        Address::Name(given) if s.name.get().is_some() => {
            if !given.is_abstract() {
                // As in Linux the path's own errors come first.
                name::make_inode(k, &given, 0o777)?;
                k.remove_socket_file(given.path());
            }
            fail(abi::EINVAL)
        }
        Address::Name(given) if given.is_abstract() => {
            if find(k, &given, NO_INODE, s.kind.get()).is_some() {
                return fail(abi::EADDRINUSE);
            }
            own(k, socket, &given, NO_INODE)?;
            Ok(0)
        }
        Address::Name(given) => {
            let inode = name::make_inode(k, &given, 0o777 & !s.refused_mode.get())?;
            // A socket may still be bound to a file that had this inode and is gone.
            for (_, other) in k.net.named.iter(&k.net.sockets) {
                if let Some(name) = other.name.get() {
                    name::forget_inode(k, name, inode);
                }
            }
            own(k, socket, &given, inode).inspect_err(|_| k.remove_socket_file(given.path()))?;
            Ok(0)
        }
    }
}

/// The permissions of the path that the socket will be bound to.
pub fn set_mode<H: Host>(k: &H, socket: Handle<Socket>, mode: u32) {
    k.net.sockets.get(socket).refused_mode.set(!mode & 0o777);
}

/// Gives a socket without a name a free abstract one.
pub fn auto<H: Host>(k: &H, socket: Handle<Socket>) -> Result<()> {
    let s = k.net.sockets.get(socket);
    if s.name.get().is_some() {
        return Ok(());
    }
    for _ in 0..AUTOMATIC {
        let n = k.net.automatic_name.get();
        k.net.automatic_name.set((n + 1) % AUTOMATIC);
        let mut bytes = [0u8; 6];
        for (at, digit) in bytes[1..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(n >> (16 - 4 * at) & 15) as usize];
        }
        let given = Given::new(&bytes);
        if find(k, &given, NO_INODE, s.kind.get()).is_none() {
            return own(k, socket, &given, NO_INODE);
        }
    }
    fail(abi::ENOSPC)
}

fn own<H: Host>(k: &H, socket: Handle<Socket>, given: &Given, inode: Inode) -> Result<()> {
    let name = name::make(k, given, inode)?;
    let s = k.net.sockets.get(socket);
    s.name.set(Some(name));
    s.is_bound.set(true);
    k.net.named.push_back(&k.net.sockets, socket);
    Ok(())
}

/// The socket is no longer found by its name.
pub fn disown<H: Host>(k: &H, socket: Handle<Socket>) {
    if k.net.sockets.get(socket).is_bound.replace(false) {
        k.net.named.remove(&k.net.sockets, socket);
    }
}

/// As in Linux sockets of one kind have abstract names of their own.
fn find<H: Host>(k: &H, given: &Given, inode: Inode, kind: i32) -> Option<Handle<Socket>> {
    let has = |s: &Socket| {
        (!given.is_abstract() || s.kind.get() == kind)
            && s.name.get().is_some_and(|name| name::is(k, name, given, inode))
    };
    k.net.named.iter(&k.net.sockets).find(|(_, s)| has(s)).map(|(socket, _)| socket)
}

/// The socket that is bound to a name, for one of a kind: `ENOENT` and other errors of the path, `ECONNREFUSED` when it has no owner.
pub fn look_up<H: Host>(k: &H, given: &Given, kind: i32) -> Result<Handle<Socket>> {
    let inode = if given.is_abstract() { NO_INODE } else { k.find_socket_file(given.path())? };
    if let Some(socket) = find(k, given, inode, kind) {
        return Ok(socket);
    }
    if !given.is_abstract() {
        // The socket of a process outside, or one that its owner has closed.
        k.refused(format_args!("connect to UNIX socket {given}"));
    }
    fail(abi::ECONNREFUSED)
}

/// `listen`.
pub fn listen<H: Host>(k: &H, socket: Handle<Socket>, backlog: i32) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    if s.is_datagram() {
        return fail(abi::EOPNOTSUPP);
    }
    if s.name.get().is_none() || !matches!(s.state.get(), State::Fresh | State::Listening) {
        return fail(abi::EINVAL);
    }
    s.backlog.set((backlog as u32).min(MAX_BACKLOG));
    s.state.set(State::Listening);
    s.cred.set(Cred::effective(k));
    super::connect::promote(k, socket);
    Ok(0)
}
