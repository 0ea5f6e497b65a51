//! Hooks: sockets.

use super::answer;
use crate::io::call;
use crate::io::{Answer, msg, socket};
use core::ffi::c_void;
use libc::{c_int, c_uint, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use skein_libos::abi::timespec;
use skein_libos::time::Timeout;

/// What is no socket says so.
fn on_socket(fd: c_int, answer: Answer) -> Answer {
    call::only_virtual(answer, fd, libc::ENOTSOCK)
}

answer! {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
        Some(socket::create(family, kind, protocol))
    }
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, out: *mut c_int) -> c_int {
        Some(socket::pair(family, kind, protocol).map(|ends| crate::io::put_pair(out, ends)))
    }
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int { on_socket(fd, socket::bind::bind(fd, addr, len)) }
    fn listen(fd: c_int, backlog: c_int) -> c_int { on_socket(fd, socket::bind::listen(fd, backlog)) }
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        on_socket(fd, socket::accept::accept(fd, addr, len, 0))
    }
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        on_socket(fd, socket::accept::accept(fd, addr, len, flags))
    }
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int { on_socket(fd, socket::connect::connect(fd, addr, len)) }
    fn shutdown(fd: c_int, how: c_int) -> c_int { on_socket(fd, socket::close::shutdown(fd, how)) }
    fn getsockname(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) -> c_int { on_socket(fd, socket::name::local(fd, out, len)) }
    fn getpeername(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) -> c_int { on_socket(fd, socket::name::remote(fd, out, len)) }
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        on_socket(fd, socket::options::set(fd, level, name, value.cast(), len))
    }
    fn getsockopt(fd: c_int, level: c_int, name: c_int, out: *mut c_void, len: *mut socklen_t) -> c_int {
        on_socket(fd, socket::options::get(fd, level, name, out.cast(), len))
    }

    fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        on_socket(fd, msg::recvfrom(fd, to, len, flags, core::ptr::null_mut(), core::ptr::null_mut()))
    }
    fn recvfrom(
        fd: c_int,
        to: *mut c_void,
        len: size_t,
        flags: c_int,
        addr: *mut sockaddr,
        addr_len: *mut socklen_t,
    ) -> ssize_t {
        on_socket(fd, msg::recvfrom(fd, to, len, flags, addr, addr_len))
    }
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        if len > room { None } else { on_socket(fd, msg::recvfrom(fd, to, len, flags, core::ptr::null_mut(), core::ptr::null_mut())) }
    }
    fn __recvfrom_chk(
        fd: c_int,
        to: *mut c_void,
        len: size_t,
        room: size_t,
        flags: c_int,
        addr: *mut sockaddr,
        addr_len: *mut socklen_t,
    ) -> ssize_t {
        if len > room {
            None
        } else {
            on_socket(fd, msg::recvfrom(fd, to, len, flags, addr, addr_len))
        }
    }
    fn recvmsg(fd: c_int, to: *mut msghdr, flags: c_int) -> ssize_t { on_socket(fd, msg::recvmsg(fd, to, flags)) }
    fn recvmmsg(fd: c_int, to: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        match Timeout::from_timespec(timeout.as_ref()) {
            Ok(timeout) => on_socket(fd, msg::recvmmsg(fd, to, count, flags, timeout)),
            Err(e) => Some(Err(e)),
        }
    }
    fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        on_socket(fd, msg::sendto(fd, from, len, flags, core::ptr::null(), 0))
    }
    fn sendto(
        fd: c_int,
        from: *const c_void,
        len: size_t,
        flags: c_int,
        addr: *const sockaddr,
        addr_len: socklen_t,
    ) -> ssize_t {
        on_socket(fd, msg::sendto(fd, from, len, flags, addr, addr_len))
    }
    fn sendmsg(fd: c_int, from: *const msghdr, flags: c_int) -> ssize_t { on_socket(fd, msg::sendmsg(fd, from, flags)) }
    fn sendmmsg(fd: c_int, from: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        on_socket(fd, msg::sendmmsg(fd, from, count, flags))
    }
}
