//! bind and listen: ports.

use super::{
    Bound, Socket, State, Transport, address, external, multicast, netlink, of, outside, unix,
};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::Hold;
use crate::host::Host;
use skein_arena::list::List;
use skein_arena::pool::Handle;
use skein_model::{OutFrame, SockAddr};

/// Automatic ports, Linux's range.
const FIRST_EPHEMERAL: u32 = 32768;
const EPHEMERAL: u32 = 61000 - FIRST_EPHEMERAL;
/// Linux's `somaxconn`.
const MAX_BACKLOG: u32 = 4096;

/// `bind`.
///
/// # Errors
/// Those of `bind`.
pub fn bind<H: Host>(k: &H, hold: &Hold<'_, H>, addr: &[u8]) -> Result<usize> {
    let socket = of(k, hold)?;
    let s = k.net.sockets.get(socket);
    if s.family.get() == abi::AF_UNIX {
        return unix::bind::bind(k, socket, addr);
    }
    if s.family.get() == abi::AF_NETLINK {
        return netlink::bind(k, socket, addr);
    }
    let wanted = address::read(addr, s.family.get(), abi::EAFNOSUPPORT)?;
    let group = s.is_datagram() && multicast::is_group(wanted);
    if !address::is_local(k, wanted) && !group && !s.options.free_bind() {
        return fail(abi::EADDRNOTAVAIL);
    }
    // A connection that has ended has released an automatic port.
    if !s.is_closed() || s.is_bound.get() {
        return fail(abi::EINVAL);
    }
    let port = match wanted.port {
        0 => free_port(k, s)?,
        _ if conflict(k, s, wanted) => return fail(abi::EADDRINUSE),
        port => port,
    };
    s.asked.set(wanted);
    own(k, socket, SockAddr { port, ..wanted });
    Ok(0)
}

/// Gives an automatic port to a socket.
pub fn bind_automatically<H: Host>(k: &H, socket: Handle<Socket>) -> Result<()> {
    let s = k.net.sockets.get(socket);
    let port = free_port(k, s)?;
    // As in Linux a datagram socket that had been bound, and has lost its port with its connection, keeps its address.
    if !s.is_datagram() || s.asked.get().is_unspecified() {
        s.asked.set(address::unspecified(s.family.get(), 0));
    }
    own(k, socket, SockAddr { port, ..s.asked.get() });
    Ok(())
}

/// The sockets of the same protocol as `s` that own a port.
fn owners<'a, H: Host>(k: &'a H, s: &Socket) -> &'a List<Socket, Bound> {
    if s.is_datagram() { &k.net.datagram_ports } else { &k.net.bound }
}

fn own<H: Host>(k: &H, socket: Handle<Socket>, addr: SockAddr) {
    let s = k.net.sockets.get(socket);
    s.local.set(addr);
    s.is_bound.set(true);
    owners(k, s).push_back(&k.net.sockets, socket);
    if s.is_datagram() {
        outside::port_taken(k, socket);
    }
}

/// The socket owns its port no longer.
pub fn disown<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    if s.is_bound.replace(false) {
        owners(k, s).remove(&k.net.sockets, socket);
        if s.is_datagram() {
            outside::port_left(k, socket);
        }
    }
}

/// A free port for `s`.
pub fn free_port<H: Host>(k: &H, s: &Socket) -> Result<u16> {
    let taken = |port| owners(k, s).iter(&k.net.sockets).any(|(_, o)| o.local.get().port == port);
    for _ in 0..EPHEMERAL {
        let n = k.net.ephemeral.get();
        k.net.ephemeral.set((n + 1) % EPHEMERAL);
        let port = (FIRST_EPHEMERAL + n) as u16;
        if !taken(port) {
            return Ok(port);
        }
    }
    fail(abi::EADDRINUSE)
}

/// Whether a destination could belong to both addresses.
fn overlap(a: SockAddr, a_only6: bool, b: SockAddr, b_only6: bool) -> bool {
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

fn conflict<H: Host>(k: &H, s: &Socket, wanted: SockAddr) -> bool {
    owners(k, s).iter(&k.net.sockets).any(|(_, other)| {
        let shared_port = s.options.reuse_port() && other.options.reuse_port();
        let reused = s.options.reuse_address()
            && other.options.reuse_address()
            && other.state.get() != State::Listening;
        other.local.get().port == wanted.port
            && !shared_port
            && !reused
            && overlap(wanted, s.options.only_v6(), other.local.get(), other.options.only_v6())
    })
}

/// The listener for connections to `local`: the most specific one; of several that share a port, the `n`th in turn.
pub fn find_listener<H: Host>(k: &H, local: SockAddr, n: u64) -> Option<Handle<Socket>> {
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
    for (_, s) in k.net.bound.iter(&k.net.sockets) {
        match rank(s) {
            0 => {}
            r if r > best => (best, count) = (r, 1),
            r => count += u64::from(r == best),
        }
    }
    if count == 0 {
        return None;
    }
    let mut equal = k.net.bound.iter(&k.net.sockets).filter(|(_, s)| rank(s) == best);
    equal.nth((n % count) as usize).map(|(socket, _)| socket)
}

/// Whether a socket of this server, of the same protocol as `s`, has the port: packets for it without a receiver are refused.
pub fn is_owned<H: Host>(k: &H, s: &Socket, to: SockAddr) -> bool {
    address::is_own(k, to)
        && owners(k, s).iter(&k.net.sockets).any(|(_, s)| {
            let at = s.local.get();
            at.port == to.port && overlap(at, s.options.only_v6(), to, true)
        })
}

/// Whether there is another listener like this.
fn other_listener<H: Host>(k: &H, socket: Handle<Socket>, like: impl Fn(&Socket) -> bool) -> bool {
    k.net
        .bound
        .iter(&k.net.sockets)
        .any(|(other, o)| other != socket && o.state.get() == State::Listening && like(o))
}

/// Both ends of a connection from the outside, as the server sees them.
#[derive(Clone, Copy)]
pub struct Ends {
    /// The server's own.
    pub local: SockAddr,
    /// The client's.
    pub peer: SockAddr,
}

/// The published address is not the server's choice, so a client may come to an address without a listener. `at` has a candidate socket:
/// the client's destination, as that socket sees it. A socket at an address of the same IP version goes before one of the other version
/// (`translates`), and one on the same side of the loopback interface (`near`) before others.
pub fn local_elsewhere(
    at: SockAddr,
    came_to: SockAddr,
    near: bool,
    translates: bool,
) -> Option<SockAddr> {
    let v4 = at.ipv4().is_some();
    if at.port != came_to.port || (v4 != came_to.ipv4().is_some()) != translates {
        return None;
    }
    let local = match (at.is_unspecified(), v4) {
        (false, _) => at,
        // It would have been found by its own version.
        (true, _) if !translates => return None,
        (true, true) => SockAddr::v4([127, 0, 0, 1], at.port),
        (true, false) => SockAddr::loopback_v6(at.port),
    };
    (!near || local.is_loopback() == came_to.is_loopback()).then_some(local)
}

/// The order of [`local_elsewhere`]'s arguments: `near` and `translates`.
pub const ELSEWHERE: [(bool, bool); 4] =
    [(true, false), (false, false), (true, true), (false, true)];

/// The listener for a client from the outside, and both ends as it sees them.
pub fn find_listener_for<H: Host>(k: &H, came: Ends, n: u64) -> Option<(Handle<Socket>, Ends)> {
    if let Some(listener) = find_listener(k, came.local, n) {
        return Some((listener, came));
    }
    ELSEWHERE.iter().find_map(|(near, translates)| {
        let mut listeners =
            k.net.bound.iter(&k.net.sockets).filter(|(_, s)| s.state.get() == State::Listening);
        let local = listeners
            .find_map(|(_, s)| local_elsewhere(s.local.get(), came.local, *near, *translates))?;
        let peer = if *translates { address::translated(came.peer) } else { came.peer };
        Some((find_listener(k, local, n)?, Ends { local, peer }))
    })
}

/// Whether another listener has this very address.
fn listens_too<H: Host>(k: &H, socket: Handle<Socket>, addr: SockAddr) -> bool {
    other_listener(k, socket, |o| o.local.get() == addr)
}

/// `listen`.
///
/// # Errors
/// Those of `listen`.
pub fn listen<H: Host>(k: &H, hold: &Hold<'_, H>, backlog: i32) -> Result<usize> {
    let socket = of(k, hold)?;
    let s = k.net.sockets.get(socket);
    if s.family.get() == abi::AF_UNIX {
        return unix::bind::listen(k, socket, backlog);
    }
    if s.is_datagram() || s.family.get() == abi::AF_NETLINK {
        return fail(abi::EOPNOTSUPP);
    }
    if !matches!(s.state.get(), State::Fresh | State::Listening) {
        return fail(abi::EINVAL);
    }
    let backlog = (backlog as u32).min(MAX_BACKLOG);
    if s.state.get() == State::Fresh {
        if !s.is_bound.get() {
            bind_automatically(k, socket)?;
        } else if listens_elsewhere(k, socket, s) {
            return fail(abi::EADDRINUSE);
        }
        s.shut.set(0);
        s.transport.set(Transport::None);
        s.state.set(State::Listening);
        if !listens_too(k, socket, s.local.get()) {
            k.emit(OutFrame::Listen { addr: s.local.get() });
        }
    }
    s.backlog.set(backlog);
    Ok(0)
}

/// Whether another listener has the port already: two may be bound with `SO_REUSEADDR`, but only one listens.
fn listens_elsewhere<H: Host>(k: &H, socket: Handle<Socket>, s: &Socket) -> bool {
    other_listener(k, socket, |o| {
        o.local.get().port == s.local.get().port
            && !(s.options.reuse_port() && o.options.reuse_port())
            && overlap(s.local.get(), s.options.only_v6(), o.local.get(), o.options.only_v6())
    })
}

/// A listener closes: connections that were not accepted are reset, waiting ones are refused.
pub fn stop_listening<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    if s.family.get() == abi::AF_UNIX {
        return unix::connect::stop_listening(k, socket);
    }
    s.state.set(State::Fresh);
    if !listens_too(k, socket, s.local.get()) {
        k.emit(OutFrame::Unlisten { addr: s.local.get() });
    }
    while let Some(pending) = s.queue.pop_front(&k.net.sockets) {
        let p = k.net.sockets.get(pending);
        p.listener.set(None);
        if p.live.get() {
            external::abort(k, pending);
        }
        if let Some(peer) = p.peer.take() {
            super::close::reset(k, peer);
        }
        super::close::free(k, pending);
    }
    while let Some(waiting) = s.connecting.pop_front(&k.net.sockets) {
        let w = k.net.sockets.get(waiting);
        w.listener.set(None);
        super::connect::refuse(k, waiting, abi::ECONNREFUSED);
    }
}
