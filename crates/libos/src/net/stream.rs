//! Sending and receiving bytes.

use super::exchange::{Incoming, Outgoing, Patience};
use super::unix::stream::{Beside, Progress, Stretch};
use super::{SHUT_BOTH, SHUT_RECEIVE, SHUT_SEND, Socket, State, Transport, close, external, unix};
use crate::abi::{self, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::file::{self, Hold, ready};
use crate::host::Host;
use skein_arena::pool::Handle;

/// Receives; the flags are those of `recv`.
pub fn receive<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let local = s.family.get() == abi::AF_UNIX;
    if local && s.state.get() != State::Connected {
        return fail(abi::EINVAL);
    }
    if s.state.get() == State::Listening {
        return fail(abi::ENOTCONN);
    }
    let mut progress = Progress::default();
    let result = take_in(k, hold, s, buffers, incoming, &mut progress);
    if local {
        progress.finish(k, s, incoming);
        if incoming.named && matches!(result, Ok(1..)) {
            unix::stream::put_sender(k, s, incoming);
        }
    }
    result
}

fn take_in<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    s: &Socket,
    buffers: &mut Buffers<'_>,
    incoming: &mut Incoming<'_>,
    progress: &mut Progress,
) -> Result<usize> {
    let flags = incoming.flags;
    let len = buffers.left();
    let least =
        if flags & MSG_WAITALL != 0 { len } else { s.options.receive_least().min(len) }.max(1);
    let patience = Patience::to_receive(k, hold, s, flags);
    let mut done = 0;
    loop {
        done += take(k, s, buffers, done, incoming, progress);
        if done > 0 && progress.stopped() {
            break;
        }
        if done >= least || (done == len && len > 0) {
            break;
        }
        if len == 0 && !s.received.is_empty() {
            break;
        }
        if done == 0 {
            if s.ended.get() {
                return Ok(0);
            }
            if s.error.get() != 0 {
                return fail(s.take_error());
            }
            if s.shut.get() & SHUT_RECEIVE != 0 {
                return Ok(0);
            }
            if s.is_closed() {
                return fail(abi::ENOTCONN);
            }
        } else if s.error.get() != 0 || s.shut.get() & SHUT_RECEIVE != 0 || s.is_closed() {
            // Available bytes are answered before the end or an error, which a UNIX socket forgets as in Linux.
            if s.family.get() == abi::AF_UNIX && flags & MSG_PEEK == 0 {
                s.error.set(0);
            }
            break;
        }
        if let Err(e) = patience.wait(k, hold, ready::IN) {
            return if done > 0 { Ok(done) } else { Err(e) };
        }
    }
    Ok(done)
}

/// Moves received bytes out, or copies them from position `done` on when peeking.
fn take<H: Host>(
    k: &H,
    s: &Socket,
    buffers: &mut Buffers<'_>,
    done: usize,
    incoming: &mut Incoming<'_>,
    progress: &mut Progress,
) -> usize {
    let flags = incoming.flags;
    let local = s.family.get() == abi::AF_UNIX;
    let peek = flags & MSG_PEEK != 0;
    let drop = flags & MSG_TRUNC != 0 && s.transport.get() != Transport::Pair;
    let was_writable = s.peer.get().is_some_and(|peer| k.net.sockets.get(peer).writable(k));
    let mut n = 0;
    loop {
        let at = if peek { done + n } else { 0 };
        let mut most = usize::MAX;
        if local && s.received.len() > at && buffers.left() > 0 {
            match progress.at(k, s, s.taken.get() + at as u64, incoming) {
                Stretch::Open => {}
                Stretch::Until(bytes) => most = bytes,
                Stretch::Stop => break,
            }
        }
        let here = if drop {
            // Dropped bytes need no buffer: it may be null.
            let (_, room) = buffers.piece(most);
            let here = room.min(s.received.len().saturating_sub(at));
            if !peek {
                s.received.discard(&k.chunks, here);
            }
            here
        } else {
            // SAFETY: the server's buffers; one thread runs at a time.
            let piece = unsafe { buffers.piece_mut(most) };
            if peek {
                s.received.peek(&k.chunks, at, piece)
            } else {
                s.received.pop(&k.chunks, piece)
            }
        };
        buffers.advance(here);
        n += here;
        if local && !peek {
            unix::stream::took(k, s, here);
        }
        if here == 0 {
            break;
        }
    }
    if n > 0 && !peek {
        if s.live.get() {
            external::took(k, s, n);
        } else if let Some(peer) = s.peer.get() {
            let p = k.net.sockets.get(peer);
            if !was_writable && p.writable(k) {
                file::notify(k, p.file.get(), ready::ROOM);
            }
        }
    }
    n
}

/// Sends; the flags are those of `send`.
pub fn send<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    flags: i32,
) -> Result<usize> {
    send_with(k, hold, socket, buffers, flags, &mut Beside::nothing())
}

/// As [`send`], with the data beside a UNIX stream's bytes.
pub fn send_with<H: Host>(
    k: &H,
    hold: &Hold<'_, H>,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    flags: i32,
    beside: &mut Beside,
) -> Result<usize> {
    let s = k.net.sockets.get(socket);
    let patience = Patience::to_send(k, hold, s, flags);
    let mut done = 0;
    loop {
        if s.state.get() == State::Connecting {
            patience.wait(k, hold, ready::OUT)?;
            continue;
        }
        if s.error.get() != 0 || s.shut.get() & SHUT_SEND != 0 || s.state.get() != State::Connected
        {
            return if done > 0 { Ok(done) } else { broken(k, s, flags) };
        }
        if buffers.left() == 0 {
            return Ok(done);
        }
        let room = s.room(k);
        if room > 0 {
            let sent = transmit(k, socket, buffers, room, beside);
            done += sent;
            if buffers.left() == 0 {
                return Ok(done);
            }
            if sent == 0 {
                // No chunk is left in the arena.
                return if done > 0 { Ok(done) } else { fail(abi::ENOBUFS) };
            }
            if room > sent {
                continue;
            }
        }
        if let Err(e) = patience.wait(k, hold, ready::OUT) {
            return if done > 0 { Ok(done) } else { Err(e) };
        }
    }
}

/// Whether a send is possible. Streams are connected: TCP ignores a destination.
pub fn check<H: Host>(k: &H, socket: Handle<Socket>, outgoing: &Outgoing<'_>) -> Result<()> {
    if !outgoing.control.is_empty() {
        k.refused(format_args!("sendmsg with control data on a TCP socket"));
        return fail(abi::EINVAL);
    }
    let connected = k.net.sockets.get(socket).state.get() == State::Connected;
    if outgoing.flags & abi::MSG_FASTOPEN != 0 && !connected {
        k.refused(format_args!("sendto with MSG_FASTOPEN"));
        return fail(abi::EOPNOTSUPP);
    }
    Ok(())
}

/// A send to a closed connection.
pub fn broken_pipe<H: Host, T>(k: &H, flags: i32) -> Result<T> {
    if flags & MSG_NOSIGNAL == 0 {
        k.raise_sigpipe();
    }
    fail(abi::EPIPE)
}

/// The error of an impossible send: the pending error, or a broken pipe with its signal.
fn broken<H: Host>(k: &H, s: &Socket, flags: i32) -> Result<usize> {
    let error = match s.take_error() {
        0 => abi::EPIPE,
        error => error,
    };
    if error == abi::EPIPE { broken_pipe(k, flags) } else { fail(error) }
}

/// Sends up to `room` bytes; answers how many.
fn transmit<H: Host>(
    k: &H,
    socket: Handle<Socket>,
    buffers: &mut Buffers<'_>,
    room: usize,
    beside: &mut Beside,
) -> usize {
    let s = k.net.sockets.get(socket);
    let n = room.min(buffers.left());
    if s.live.get() {
        external::send(k, s, buffers, n);
        return n;
    }
    let Some(peer) = s.peer.get() else {
        // The peer has closed: these bytes are lost, and a reset answers them.
        buffers.skip(n);
        close::reset(k, socket);
        return n;
    };
    let p = k.net.sockets.get(peer);
    if p.shut.get() == SHUT_BOTH && s.ended.get() && p.family.get() != abi::AF_UNIX {
        // Bytes for a socket that takes none and has sent its last end the connection at both ends (RFC 1122, 4.2.2.13). One that was shut
        // before it was connected has sent no end, and keeps them.
        buffers.skip(n);
        close::reset(k, peer);
        close::reset(k, socket);
        return n;
    }
    let mut done = 0;
    while done < n {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_ref(n - done) };
        let pushed = p.received.push(&k.chunks, piece);
        buffers.advance(pushed);
        done += pushed;
        if pushed < piece.len() {
            break;
        }
    }
    if done > 0 {
        beside.attach(k, p, done);
        file::notify(k, p.file.get(), ready::CAME);
    }
    done
}
