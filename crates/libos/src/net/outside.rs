//! Datagrams to and from the outside.
//!
//! [`super::datagram`] calls in here when a socket takes or leaves a port, and for packets to an address where none of the server's own
//! sockets is. A `Datagram` frame tells every replica's node, and the leader's alone sends it. Arriving datagrams are in the log.
//!
//! A port that the server asked for is published, an automatic one is not: the leader opens a socket for it when it is used.

use super::bind::Ends;
use super::{Socket, address, datagram, multicast};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::buffers::{Buffers, single};
use crate::host::Host;
use skein_arena::pool::Handle;
use skein_model::limits::MAX_DATAGRAM_BYTES;
use skein_model::{OutFrame, SockAddr};

/// A datagram to a receiver outside this server.
pub fn external_datagram<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    from: SockAddr,
    to: SockAddr,
    buffers: &mut Buffers<'_>,
) -> Result<usize> {
    let n = buffers.left();
    if n > MAX_DATAGRAM_BYTES {
        return fail(abi::EMSGSIZE);
    }
    let s = k.net.sockets.get(socket);
    s.known.set(true);
    // With a specific address, so that the answer finds its way back whatever the socket is bound to by then.
    let from = SockAddr { port: s.local.get().port, ..from };
    k.emit_datagram(from, to, n, |space| {
        // SAFETY: the server's buffers; one thread runs at a time.
        unsafe { buffers.gather(space) };
    });
    Ok(n)
}

/// A socket's address for the node: its port, with the address that was asked for.
fn place(s: &Socket) -> SockAddr {
    let (asked, local) = (s.asked.get(), s.local.get());
    if asked.port == 0 { local } else { asked }
}

/// Whether the node knows the same place by another socket (`SO_REUSEPORT`).
fn known_by_another<H: Host>(k: &H, socket: Handle<Socket>, at: SockAddr) -> bool {
    let mut ports = k.net.datagram_ports.iter(&k.net.sockets);
    ports.any(|(other, o)| other != socket && o.known.get() && place(o) == at)
}

/// A socket has taken a port.
pub fn port_taken<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    s.known.set(false);
    // A socket bound to a group receives from the server itself only.
    if s.asked.get().port == 0 || multicast::is_group(s.asked.get()) {
        return;
    }
    let addr = place(s);
    if !known_by_another(k, socket, addr) {
        k.emit(OutFrame::ListenDatagram { addr });
    }
    s.known.set(true);
}

/// A socket has given its port back.
pub fn port_left<H: Host>(k: &H, socket: Handle<Socket>) {
    let s = k.net.sockets.get(socket);
    let addr = place(s);
    if s.known.replace(false) && !known_by_another(k, socket, addr) {
        k.emit(OutFrame::UnlistenDatagram { addr });
    }
}

/// A datagram came from the outside; lost without a receiver.
pub fn arrived<H: Host>(k: &H, local: SockAddr, peer: SockAddr, bytes: &[u8]) {
    let Some((socket, ends)) = datagram::find_for(k, Ends { local, peer }) else { return };
    let part = [single(bytes.as_ptr().cast_mut().cast(), bytes.len())];
    match Buffers::new(&part) {
        Ok(mut buffers) => datagram::deliver(k, socket, ends.peer, ends.local, &mut buffers),
        Err(_) => k.notice(format_args!("a datagram of an entry cannot be read")),
    }
}

/// A sent datagram did not arrive: a connected socket is told, as in Linux.
pub fn failed<H: Host>(k: &H, local: SockAddr, peer: SockAddr, errno: u16) {
    let Some((socket, _)) = datagram::find_for(k, Ends { local, peer }) else { return };
    datagram::came_back(k, socket, i32::from(errno));
}

/// The source address of a datagram to `to`, from a socket that is bound to `local` and was asked for `wanted`.
pub fn source<H: Host>(k: &H, local: SockAddr, wanted: Option<[u8; 16]>, to: SockAddr) -> SockAddr {
    match wanted {
        Some(ip) => SockAddr { ip, ..local },
        None if local.is_unspecified() => {
            SockAddr { port: local.port, ..address::source(k, to, false) }
        }
        None => local,
    }
}
