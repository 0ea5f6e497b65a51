//! send and recv in all their forms.

use crate::io::Answer;
use crate::io::call;
use crate::io::call::Hold;
use crate::io::socket::given;
use crate::kernel::Kernel;
use libc::{c_uint, c_void, mmsghdr, msghdr, sockaddr, socklen_t};
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::{Buffers, single};
use skein_libos::net::exchange::{self, Incoming, Outgoing};
use skein_libos::net::of;
use skein_libos::time::Timeout;
use skein_sched::op::Kind;

/// Room that the server gives for what a call brings; none when there is no pointer.
///
/// # Safety
/// `at` is null, or has room for `len` bytes that nothing else uses during the call.
unsafe fn bytes_mut<'a>(at: *mut u8, len: usize) -> &'a mut [u8] {
    if at.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's contract.
    unsafe { core::slice::from_raw_parts_mut(at, len.min(isize::MAX as usize)) }
}

/// `recvfrom`.
///
/// # Safety
/// `addr` and `addr_len` are null or valid, with room for `*addr_len` bytes.
pub unsafe fn recvfrom(
    fd: i32,
    to: *mut c_void,
    len: usize,
    flags: i32,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Answer {
    call::with_cancel(fd, Kind::Read, |k, hold| {
        let socket = of(k, hold)?;
        let wanted = !addr.is_null() && !addr_len.is_null();
        // SAFETY: the caller's contract.
        let name = unsafe {
            let room = if wanted { *addr_len } else { 0 };
            bytes_mut(addr.cast(), room as usize)
        };
        let mut incoming = Incoming::new(flags, name, &mut []);
        let part = [single(to, len)];
        let mut buffers = Buffers::new(&part)?;
        let n = exchange::receive(k, hold, socket, &mut buffers, &mut incoming)?;
        if wanted {
            // SAFETY: the caller's contract.
            unsafe { *addr_len = incoming.name_len as socklen_t };
        }
        Ok(n)
    })
}

/// `sendto`.
///
/// # Safety
/// `addr` is null or `addr_len` readable bytes.
pub unsafe fn sendto(
    fd: i32,
    from: *const c_void,
    len: usize,
    flags: i32,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> Answer {
    call::with_cancel(fd, Kind::Write, |k, hold| {
        let socket = of(k, hold)?;
        // SAFETY: the caller's contract.
        let outgoing = Outgoing { flags, to: unsafe { given(addr, addr_len) }, control: &[] };
        let part = [single(from.cast_mut(), len)];
        let mut buffers = Buffers::new(&part)?;
        exchange::send(k, hold, socket, &mut buffers, &outgoing)
    })
}

/// `recvmsg`.
///
/// # Safety
/// `msg` is valid.
pub unsafe fn recvmsg(fd: i32, msg: *mut msghdr, flags: i32) -> Answer {
    // SAFETY: the caller's contract.
    call::with_cancel(fd, Kind::Read, |k, hold| unsafe { receive_one(k, hold, &mut *msg, flags) })
}

/// `sendmsg`.
///
/// # Safety
/// `msg` is valid.
pub unsafe fn sendmsg(fd: i32, msg: *const msghdr, flags: i32) -> Answer {
    // SAFETY: the caller's contract.
    call::with_cancel(fd, Kind::Write, |k, hold| unsafe { send_one(k, hold, &*msg, flags) })
}

unsafe fn receive_one(k: &Kernel, hold: &Hold, msg: &mut msghdr, flags: i32) -> Result<usize> {
    let socket = of(k, hold)?;
    // SAFETY: the caller's contract.
    let mut buffers =
        unsafe { Buffers::from_raw(msg.msg_iov.cast(), msg.msg_iovlen, libc::EMSGSIZE) }?;
    // SAFETY: the caller's contract.
    let (name, control) = unsafe {
        let name = bytes_mut(msg.msg_name.cast(), msg.msg_namelen as usize);
        (name, bytes_mut(msg.msg_control.cast(), msg.msg_controllen))
    };
    let mut incoming = Incoming::new(flags, name, control);
    let n = exchange::receive(k, hold, socket, &mut buffers, &mut incoming)?;
    msg.msg_namelen = incoming.name_len as socklen_t;
    msg.msg_controllen = incoming.control_used as _;
    msg.msg_flags = incoming.out_flags | flags & libc::MSG_CMSG_CLOEXEC;
    Ok(n)
}

unsafe fn send_one(k: &Kernel, hold: &Hold, msg: &msghdr, flags: i32) -> Result<usize> {
    let socket = of(k, hold)?;
    // SAFETY: the caller's contract.
    let mut buffers =
        unsafe { Buffers::from_raw(msg.msg_iov.cast(), msg.msg_iovlen, libc::EMSGSIZE) }?;
    let control = match msg.msg_controllen {
        0 => &[][..],
        len if len > i32::MAX as usize => return fail(libc::ENOBUFS),
        _ if msg.msg_control.is_null() => return fail(libc::EFAULT),
        // SAFETY: the caller's contract.
        len => unsafe { core::slice::from_raw_parts(msg.msg_control.cast::<u8>(), len) },
    };
    // SAFETY: the caller's contract.
    let to = unsafe { given(msg.msg_name.cast_const().cast(), msg.msg_namelen) };
    let outgoing = Outgoing { flags, to, control };
    exchange::send(k, hold, socket, &mut buffers, &outgoing)
}

/// The first error counts only when nothing was done before it.
///
/// # Safety
/// `messages` is `count` valid elements.
unsafe fn each(
    messages: *mut mmsghdr,
    count: u32,
    mut one: impl FnMut(&mut msghdr, usize) -> Result<usize>,
) -> Result<usize> {
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: the caller's contract.
    let messages = unsafe { core::slice::from_raw_parts_mut(messages, count.min(1024) as usize) };
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
    call::with_cancel(fd, Kind::Write, |k, hold| {
        // SAFETY: the caller's contract, twice.
        unsafe { each(messages, count, |msg, _| send_one(k, hold, msg, flags)) }
    })
}

/// `recvmmsg`. As in Linux the timeout is checked only after a message.
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
    call::with_cancel(fd, Kind::Read, |k, hold| {
        let deadline = match timeout {
            Timeout::Poll => Some(0),
            timeout => timeout.deadline_ns(k),
        };
        let one = |msg: &mut msghdr, at| {
            if at > 0 && deadline.is_some_and(|at| k.now_ns.get() >= at) {
                return fail(libc::EAGAIN);
            }
            let more = if wait_for_one && at > 0 { libc::MSG_DONTWAIT } else { 0 };
            // SAFETY: the caller's contract.
            unsafe { receive_one(k, hold, msg, flags | more) }
        };
        // SAFETY: the caller's contract.
        unsafe { each(messages, count, one) }
    })
}
