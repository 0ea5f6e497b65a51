//! accept.

use super::{SHUT_RECEIVE, Socket, State, connect, give_descriptor, name, of};
use crate::io::Answer;
use crate::io::call;
use crate::io::call::Hold;
use crate::kernel::Kernel;
use libc::{sockaddr, socklen_t};
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_libos::file::ready;
use skein_libos::file::wait::wait;
use skein_sched::op::Kind;

/// `accept4`.
///
/// # Safety
/// `addr` is null, or `len` is valid and `addr` has room for `*len` bytes.
pub unsafe fn accept(fd: i32, addr: *mut sockaddr, len: *mut socklen_t, flags: i32) -> Answer {
    call::with_cancel(fd, Kind::Accept, |k, hold| {
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return fail(libc::EINVAL);
        }
        let listener = of(k, hold)?;
        let accepted = next(k, hold, listener)?;
        let s = k.io.sockets.get(accepted);
        let fd = give_descriptor(k, accepted, flags)?;
        // Only now: without a descriptor the connection stays in the queue.
        let l = k.io.sockets.get(listener);
        l.queue.remove(&k.io.sockets, accepted);
        s.listener.set(None);
        connect::promote(k, listener);
        if !addr.is_null() {
            // SAFETY: the caller's contract.
            let written = unsafe { name::write_remote(k, s, addr, len) };
            if let Err(e) = written {
                let _ = skein_libos::file::table::close(k, fd);
                return Err(e);
            }
        }
        Ok(fd as usize)
    })
}

/// The oldest connection in the listener's queue; it stays there.
fn next(k: &Kernel, hold: &Hold, listener: Handle<Socket>) -> Result<Handle<Socket>> {
    let l = k.io.sockets.get(listener);
    let deadline = l.options.receive_deadline();
    loop {
        if l.is_datagram() || l.family.get() == libc::AF_NETLINK {
            return fail(libc::EOPNOTSUPP);
        }
        if l.state.get() != State::Listening {
            return fail(libc::EINVAL);
        }
        if let Some(first) = l.queue.front() {
            return Ok(first);
        }
        if l.shut.get() & SHUT_RECEIVE != 0 {
            return fail(libc::EINVAL);
        }
        if hold.file(k).nonblocking() {
            return fail(libc::EAGAIN);
        }
        wait(k, hold.0, ready::IN, true, deadline)?;
    }
}
