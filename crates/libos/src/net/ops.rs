//! The functions of a socket's file.

use super::exchange::{self, Incoming, Outgoing};
use super::{
    SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, Socket, State, Transport, close, ioctl, message, unix,
};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::file::ops::{self, FileOps, Queue};
use crate::file::{File, Hold, handle, ready};
use crate::host::Host;
use skein_arena::pool::Handle;

/// A socket.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    fn mask(&self, k: &H, file: &File) -> u32 {
        mask(k, handle(file.object.get()))
    }

    fn release(&self, k: &H, file: Handle<File>) {
        close::release(k, handle(k.fds.files.get(file).object.get()));
    }

    fn read(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        // As in Linux a read of nothing does not look at the socket.
        if buffers.left() == 0 {
            return Ok(0);
        }
        let socket = handle(hold.file(k).object.get());
        exchange::receive(k, hold, socket, buffers, &mut Incoming::plain(0))
    }

    fn write(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        let socket = handle(hold.file(k).object.get());
        exchange::send(k, hold, socket, buffers, &Outgoing::plain(0))
    }

    fn read_at_once(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        let socket = handle(hold.file(k).object.get());
        exchange::receive(k, hold, socket, buffers, &mut Incoming::plain(abi::MSG_DONTWAIT))
    }

    fn write_at_once(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        let socket = handle(hold.file(k).object.get());
        exchange::send(k, hold, socket, buffers, &Outgoing::plain(abi::MSG_DONTWAIT))
    }

    fn queued(&self, k: &H, file: &File, queue: Queue) -> Result<usize> {
        queued(k, handle(file.object.get()), queue == Queue::Sent)
    }

    unsafe fn ioctl(&self, k: &H, _: &File, request: usize, arg: usize) -> Result<usize> {
        if request >> 8 != 0x89 {
            return fail(abi::ENOTTY);
        }
        // SAFETY: the caller's contract.
        unsafe { ioctl::ioctl(k, request, arg) }
    }

    fn stat(&self, _: &H, file: Handle<File>) -> abi::stat {
        ops::anonymous(abi::S_IFSOCK | 0o777, ops::numbered(file))
    }

    fn change_mode(&self, k: &H, file: &File, mode: u32) {
        unix::bind::set_mode(k, handle(file.object.get()), mode);
    }
}

/// Readiness.
pub fn mask<H: Host>(k: &H, socket: Handle<Socket>) -> u32 {
    let s = k.net.sockets.get(socket);
    if s.state.get() == State::Listening {
        let ended = if s.shut.get() & SHUT_RECEIVE != 0 { ready::IN | ready::RDHUP } else { 0 };
        let gone = if s.shut.get() == SHUT_BOTH { ready::HUP } else { 0 };
        return ended | gone | if s.queue.is_empty() { 0 } else { ready::IN };
    }
    if !s.is_stream() {
        return if s.family.get() == abi::AF_UNIX {
            unix::packet::mask(k, socket)
        } else {
            message::mask(s, true)
        };
    }
    let shut = s.shut.get();
    let mut mask = 0;
    if shut == SHUT_BOTH || s.is_closed() {
        mask |= ready::HUP;
    }
    if shut & SHUT_RECEIVE != 0 {
        mask |= ready::IN | ready::RDHUP;
    }
    if s.state.get() != State::Connecting {
        if s.received.len() >= s.options.receive_least() {
            mask |= ready::IN;
        }
        if shut & SHUT_SEND != 0 || s.writable(k) {
            mask |= ready::OUT;
        }
    }
    if s.error.get() != 0 {
        mask |= ready::ERR;
    }
    mask
}

/// `FIONREAD` and `TIOCOUTQ`.
pub fn queued<H: Host>(k: &H, socket: Handle<Socket>, sent: bool) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    match s.state.get() {
        State::Listening => fail(abi::EINVAL),
        _ if !s.is_stream() => Ok(match (sent, s.peer.get()) {
            (true, Some(peer)) => message::unread(k, k.net.sockets.get(peer)).1,
            (true, None) => 0,
            // Of datagrams the next one counts.
            (false, _) if s.is_datagram() => message::unread(k, s).0,
            (false, _) => message::unread(k, s).1,
        }),
        _ if !sent => Ok(s.received.len()),
        _ if s.transport.get() == Transport::External => Ok(s.undrained.get() as usize),
        // Bytes sent to a socket of this server have arrived; a pair counts unread ones.
        _ if s.transport.get() == Transport::Pair => Ok(s.in_peer(k)),
        _ => Ok(0),
    }
}
