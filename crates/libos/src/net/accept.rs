//! accept.

use super::{SHUT_RECEIVE, Socket, State, connect, give_descriptor, of};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::wait::wait;
use crate::file::{Hold, ready};
use crate::host::Host;
use skein_arena::pool::Handle;

/// `accept4`.
/// Answers the new descriptor, and the connection behind it.
///
/// # Errors
/// Those of `accept4`.
pub fn accept<H: Host>(k: &H, hold: &Hold<'_, H>, flags: i32) -> Result<(i32, Handle<Socket>)> {
    if flags & !(abi::SOCK_NONBLOCK | abi::SOCK_CLOEXEC) != 0 {
        return fail(abi::EINVAL);
    }
    let listener = of(k, hold)?;
    let accepted = next(k, hold, listener)?;
    let s = k.net.sockets.get(accepted);
    let fd = give_descriptor(k, accepted, flags)?;
    // Only now: without a descriptor the connection stays in the queue.
    let l = k.net.sockets.get(listener);
    l.queue.remove(&k.net.sockets, accepted);
    s.listener.set(None);
    connect::promote(k, listener);
    Ok((fd, accepted))
}

/// The oldest connection in the listener's queue; it stays there.
fn next<H: Host>(k: &H, hold: &Hold<'_, H>, listener: Handle<Socket>) -> Result<Handle<Socket>> {
    let l = k.net.sockets.get(listener);
    let deadline = l.options.receive_deadline(k);
    loop {
        if l.is_datagram() || l.family.get() == abi::AF_NETLINK {
            return fail(abi::EOPNOTSUPP);
        }
        if l.state.get() != State::Listening {
            return fail(abi::EINVAL);
        }
        if let Some(first) = l.queue.front() {
            return Ok(first);
        }
        // As in Linux a shut socket of the UNIX family tells only those that would wait.
        if hold.file(k).nonblocking() {
            return fail(abi::EAGAIN);
        }
        if l.shut.get() & SHUT_RECEIVE != 0 {
            return fail(abi::EINVAL);
        }
        wait(k, hold.0, ready::IN, true, deadline)?;
    }
}
