//! bind and listen: ports.

use super::{Socket, State, Transport, address, datagram, external, of, unix};
use crate::io::{Answer, fail, file};
use crate::kernel::Kernel;
use crate::output;
use crate::sys::Result;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_model::{OutFrame, SockAddr};

/// Ports for sockets that ask for none, Linux's range.
const FIRST_EPHEMERAL: u32 = 32768;
const EPHEMERAL: u32 = 61000 - FIRST_EPHEMERAL;
/// Linux's `somaxconn`.
const MAX_BACKLOG: u32 = 4096;

/// `bind`.
///
/// # Safety
/// `addr` is `len` readable bytes.
pub unsafe fn bind(fd: i32, addr: *const sockaddr, len: socklen_t) -> Answer {
    file::with(fd, |k, hold| {
        let socket = of(k, hold)?;
        let s = k.io.sockets.get(socket);
        if s.family.get() == libc::AF_UNIX {
            // SAFETY: the caller's contract.
            return unsafe { unix::bind::bind(k, socket, addr, len) };
        }
        // SAFETY: the caller's contract.
        let mut wanted = unsafe { address::read(addr, len, s.family.get(), libc::EAFNOSUPPORT) }?;
        if s.is_datagram() {
            return datagram::bind(k, socket, wanted);
        }
        if !address::is_local(wanted) && !s.options.free_bind() {
            return fail(libc::EADDRNOTAVAIL);
        }
        if s.state.get() != State::Fresh || s.local.get().port != 0 {
            return fail(libc::EINVAL);
        }
        if wanted.port == 0 {
            wanted.port = free_port(k)?;
        } else if conflict(k, s, wanted) {
            return fail(libc::EADDRINUSE);
        }
        own(k, socket, wanted);
        Ok(0)
    })
}

fn own(k: &Kernel, socket: Handle<Socket>, addr: SockAddr) {
    let s = k.io.sockets.get(socket);
    s.local.set(addr);
    s.is_bound.set(true);
    k.io.bound.push_back(&k.io.sockets, socket);
}

/// The socket owns its port no longer.
pub fn disown(k: &Kernel, socket: Handle<Socket>) {
    if k.io.sockets.get(socket).is_bound.replace(false) {
        k.io.bound.remove(&k.io.sockets, socket);
    }
}

fn each_bound(k: &Kernel, mut f: impl FnMut(Handle<Socket>, &Socket)) {
    let mut at = k.io.bound.front();
    while let Some(socket) = at {
        f(socket, k.io.sockets.get(socket));
        at = k.io.bound.next(&k.io.sockets, socket);
    }
}

/// A port that nobody owns.
pub fn free_port(k: &Kernel) -> Result<u16> {
    pick_port(k, |port| {
        let mut taken = false;
        each_bound(k, |_, other| taken |= other.local.get().port == port);
        taken
    })
}

/// The next port for one who did not ask for any that is not `taken`.
pub fn pick_port(k: &Kernel, taken: impl Fn(u16) -> bool) -> Result<u16> {
    for _ in 0..EPHEMERAL {
        let n = k.io.ephemeral.get();
        k.io.ephemeral.set((n + 1) % EPHEMERAL);
        let port = (FIRST_EPHEMERAL + n) as u16;
        if !taken(port) {
            return Ok(port);
        }
    }
    fail(libc::EADDRINUSE)
}

/// Whether some destination belongs to both addresses.
pub fn overlap(a: SockAddr, a_only6: bool, b: SockAddr, b_only6: bool) -> bool {
    let takes_all = |x: SockAddr, only6: bool, y: SockAddr| {
        if !x.is_unspecified() {
            return false;
        }
        // A wildcard of IPv6 takes IPv4, too, unless told not to.
        if x.v6 && x.ipv4().is_none() {
            !only6 || (y.v6 && y.ipv4().is_none())
        } else {
            y.ipv4().is_some()
        }
    };
    a.ip == b.ip || takes_all(a, a_only6, b) || takes_all(b, b_only6, a)
}

fn conflict(k: &Kernel, s: &Socket, wanted: SockAddr) -> bool {
    let mut found = false;
    each_bound(k, |_, other| {
        if other.local.get().port != wanted.port {
            return;
        }
        let shared_port = s.options.reuse_port() && other.options.reuse_port();
        let reused = s.options.reuse_address()
            && other.options.reuse_address()
            && other.state.get() != State::Listening;
        if !shared_port
            && !reused
            && overlap(wanted, s.options.only_v6(), other.local.get(), other.options.only_v6())
        {
            found = true;
        }
    });
    found
}

/// The listener for connections to `local`: the most specific one; of several that share a port, the `n`th in turn.
pub fn find_listener(k: &Kernel, local: SockAddr, n: u64) -> Option<Handle<Socket>> {
    let rank = |s: &Socket| {
        let at = s.local.get();
        if s.state.get() != State::Listening || at.port != local.port {
            return 0;
        }
        if at.ip == local.ip {
            3
        } else if !at.is_unspecified() {
            0
        } else if local.ipv4().is_some() {
            // A wildcard of IPv4 goes before one of IPv6 that takes IPv4, too.
            if at.ipv4().is_some() { 2 } else { u32::from(!s.options.only_v6()) }
        } else {
            u32::from(at.ipv4().is_none())
        }
    };
    let (mut best, mut count) = (0, 0u64);
    each_bound(k, |_, s| match rank(s) {
        0 => {}
        r if r > best => (best, count) = (r, 1),
        r => count += u64::from(r == best),
    });
    let mut skip = n % count.max(1);
    let mut found = None;
    each_bound(k, |socket, s| {
        if best > 0 && rank(s) == best && found.is_none() {
            if skip == 0 {
                found = Some(socket);
            }
            skip = skip.wrapping_sub(1);
        }
    });
    found
}

/// Whether another listener has this very address.
fn listens_too(k: &Kernel, socket: Handle<Socket>, addr: SockAddr) -> bool {
    let mut found = false;
    each_bound(k, |other, o| {
        found |= other != socket && o.state.get() == State::Listening && o.local.get() == addr;
    });
    found
}

/// `listen`.
pub fn listen(fd: i32, backlog: i32) -> Answer {
    file::with(fd, |k, hold| {
        let socket = of(k, hold)?;
        let s = k.io.sockets.get(socket);
        if s.family.get() == libc::AF_UNIX {
            return unix::bind::listen(k, socket, backlog);
        }
        if s.is_datagram() {
            return fail(libc::EOPNOTSUPP);
        }
        if !matches!(s.state.get(), State::Fresh | State::Listening) {
            return fail(libc::EINVAL);
        }
        let backlog = (backlog as u32).min(MAX_BACKLOG);
        if s.state.get() == State::Fresh {
            if !s.is_bound.get() {
                let port = free_port(k)?;
                own(k, socket, address::unspecified(s.family.get(), port));
            } else if listens_elsewhere(k, socket, s) {
                return fail(libc::EADDRINUSE);
            }
            s.shut.set(0);
            s.transport.set(Transport::None);
            s.state.set(State::Listening);
            if !listens_too(k, socket, s.local.get()) {
                output::emit(OutFrame::Listen { addr: s.local.get() });
            }
        }
        s.backlog.set(backlog);
        Ok(0)
    })
}

/// Whether another listener has the port already: two may be bound with `SO_REUSEADDR`, but only one listens.
fn listens_elsewhere(k: &Kernel, socket: Handle<Socket>, s: &Socket) -> bool {
    let mut found = false;
    each_bound(k, |other, o| {
        found |= other != socket
            && o.state.get() == State::Listening
            && o.local.get().port == s.local.get().port
            && !(s.options.reuse_port() && o.options.reuse_port())
            && overlap(s.local.get(), s.options.only_v6(), o.local.get(), o.options.only_v6());
    });
    found
}

/// A listener listens no longer: connections that were not accepted are reset, those that wait are refused.
pub fn stop_listening(k: &Kernel, socket: Handle<Socket>) {
    let s = k.io.sockets.get(socket);
    if s.family.get() == libc::AF_UNIX {
        return unix::connect::stop_listening(k, socket);
    }
    s.state.set(State::Fresh);
    if !listens_too(k, socket, s.local.get()) {
        output::emit(OutFrame::Unlisten { addr: s.local.get() });
    }
    while let Some(pending) = s.queue.pop_front(&k.io.sockets) {
        let p = k.io.sockets.get(pending);
        p.listener.set(None);
        if p.live.get() {
            external::abort(k, pending);
        }
        if let Some(peer) = p.peer.take() {
            super::close::reset(k, peer);
        }
        super::close::free(k, pending);
    }
    while let Some(waiting) = s.connecting.pop_front(&k.io.sockets) {
        let w = k.io.sockets.get(waiting);
        w.listener.set(None);
        super::connect::refuse(k, waiting, libc::ECONNREFUSED);
    }
}
