//! send and recv in all their forms.

use crate::fatal;
use crate::io::epoll::Timeout;
use crate::io::file::{self, Hold};
use crate::io::iov::{Buffers, single};
use crate::io::socket::{self, State, Transport, stream};
use crate::io::{Answer, fail};
use crate::kernel::{Kernel, kernel};
use crate::sys::Result;
use libc::{c_uint, c_void, mmsghdr, msghdr, sockaddr, socklen_t};

/// `recvfrom`: streams do not say from whom.
///
/// # Safety
/// `addr_len` is null or valid.
pub unsafe fn recvfrom(
    fd: i32,
    to: *mut c_void,
    len: usize,
    flags: i32,
    addr_len: *mut socklen_t,
) -> Answer {
    file::with_cancel(fd, |k, hold| {
        let socket = socket::of(k, hold)?;
        let n = stream::receive(k, hold, socket, &mut Buffers::new(&[single(to, len)])?, flags)?;
        if !addr_len.is_null() {
            // SAFETY: the caller's contract.
            unsafe { *addr_len = 0 };
        }
        Ok(n)
    })
}

/// `sendto`.
pub fn sendto(
    fd: i32,
    from: *const c_void,
    len: usize,
    flags: i32,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Answer {
    file::with_cancel(fd, |k, hold| {
        let socket = socket::of(k, hold)?;
        check_destination(k, hold, !addr.is_null() && addr_len > 0, flags)?;
        stream::send(k, hold, socket, &mut Buffers::new(&[single(from.cast_mut(), len)])?, flags)
    })
}

/// Streams are connected: TCP does not look at a destination, a socket pair refuses it.
fn check_destination(k: &Kernel, hold: &Hold, given: bool, flags: i32) -> Result<()> {
    let s = k.io.sockets.get(socket::of(k, hold)?);
    if given && s.transport.get() == Transport::Pair {
        return fail(libc::EISCONN);
    }
    if flags & libc::MSG_FASTOPEN != 0 && s.state.get() != State::Connected {
        fatal::refused(b"sendto with MSG_FASTOPEN");
        return fail(libc::EOPNOTSUPP);
    }
    Ok(())
}

/// `recvmsg`.
///
/// # Safety
/// `msg` is valid.
pub unsafe fn recvmsg(fd: i32, msg: *mut msghdr, flags: i32) -> Answer {
    // SAFETY: the caller's contract.
    file::with_cancel(fd, |k, hold| unsafe { receive_one(k, hold, &mut *msg, flags) })
}

/// `sendmsg`.
///
/// # Safety
/// `msg` is valid.
pub unsafe fn sendmsg(fd: i32, msg: *const msghdr, flags: i32) -> Answer {
    // SAFETY: the caller's contract.
    file::with_cancel(fd, |k, hold| unsafe { send_one(k, hold, &*msg, flags) })
}

unsafe fn receive_one(k: &Kernel, hold: &Hold, msg: &mut msghdr, flags: i32) -> Result<usize> {
    let socket = socket::of(k, hold)?;
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { Buffers::from_raw(msg.msg_iov, msg.msg_iovlen, libc::EMSGSIZE) }?;
    let n = stream::receive(k, hold, socket, &mut buffers, flags)?;
    msg.msg_namelen = 0;
    msg.msg_controllen = 0;
    msg.msg_flags = 0;
    Ok(n)
}

unsafe fn send_one(k: &Kernel, hold: &Hold, msg: &msghdr, flags: i32) -> Result<usize> {
    let socket = socket::of(k, hold)?;
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { Buffers::from_raw(msg.msg_iov, msg.msg_iovlen, libc::EMSGSIZE) }?;
    if !msg.msg_control.is_null() && msg.msg_controllen > 0 {
        fatal::refused(b"sendmsg with control data");
        return fail(libc::EINVAL);
    }
    check_destination(k, hold, !msg.msg_name.is_null() && msg.msg_namelen > 0, flags)?;
    stream::send(k, hold, socket, &mut buffers, flags)
}

/// The first error counts only when nothing was done before it.
fn each(
    messages: &mut [mmsghdr],
    mut one: impl FnMut(&mut msghdr, usize) -> Result<usize>,
) -> Result<usize> {
    for (at, message) in messages.iter_mut().enumerate() {
        match one(&mut message.msg_hdr, at) {
            Ok(n) => message.msg_len = n as c_uint,
            Err(e) => return if at > 0 { Ok(at) } else { Err(e) },
        }
    }
    Ok(messages.len())
}

/// `sendmmsg`.
///
/// # Safety
/// `messages` is `count` valid elements.
pub unsafe fn sendmmsg(fd: i32, messages: *mut mmsghdr, count: u32, flags: i32) -> Answer {
    file::with_cancel(fd, |k, hold| {
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the caller's contract.
        let messages =
            unsafe { core::slice::from_raw_parts_mut(messages, count.min(1024) as usize) };
        // SAFETY: the caller's contract.
        each(messages, |msg, _| unsafe { send_one(k, hold, msg, flags) })
    })
}

/// `recvmmsg`. As in Linux the timeout is looked at only after a message.
///
/// # Safety
/// `messages` is `count` valid elements.
pub unsafe fn recvmmsg(
    fd: i32,
    messages: *mut mmsghdr,
    count: u32,
    flags: i32,
    timeout: Timeout,
) -> Answer {
    let wait_for_one = flags & libc::MSG_WAITFORONE != 0;
    let flags = flags & !libc::MSG_WAITFORONE;
    file::with_cancel(fd, |k, hold| {
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the caller's contract.
        let messages =
            unsafe { core::slice::from_raw_parts_mut(messages, count.min(1024) as usize) };
        let deadline = timeout.deadline_ns();
        each(messages, |msg, at| {
            if at > 0 && deadline.is_some_and(|at| kernel().now_ns.get() >= at) {
                return fail(libc::EAGAIN);
            }
            let more = if wait_for_one && at > 0 { libc::MSG_DONTWAIT } else { 0 };
            // SAFETY: the caller's contract.
            unsafe { receive_one(k, hold, msg, flags | more) }
        })
    })
}
