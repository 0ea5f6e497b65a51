//! Hooks: sockets.

use super::{hook, syscalls};
use crate::entry::calls::made;
use crate::entry::hooks::IntoC;
use crate::original::real;
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use libc::{c_int, c_uint, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use skein_libos::abi::timespec;

const NO_NAME: *mut sockaddr = null_mut();
const NO_LEN: *mut socklen_t = null_mut();

syscalls! {
    SYS_socket: fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    SYS_socketpair: fn socketpair(family: c_int, kind: c_int, protocol: c_int, out: *mut c_int) -> c_int;
    SYS_bind: fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    SYS_listen: fn listen(fd: c_int, backlog: c_int) -> c_int;
    SYS_accept: fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    SYS_accept4: fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    SYS_connect: fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    SYS_shutdown: fn shutdown(fd: c_int, how: c_int) -> c_int;
    SYS_getsockname: fn getsockname(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) -> c_int;
    SYS_getpeername: fn getpeername(fd: c_int, out: *mut sockaddr, len: *mut socklen_t) -> c_int;
    SYS_setsockopt: fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    SYS_getsockopt: fn getsockopt(fd: c_int, level: c_int, name: c_int, out: *mut c_void, len: *mut socklen_t) -> c_int;
    SYS_recvfrom: fn recv(fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t = (fd, to, len, flags, NO_NAME, NO_LEN);
    SYS_recvfrom: fn recvfrom(fd: c_int, to: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t;
    SYS_recvmsg: fn recvmsg(fd: c_int, to: *mut msghdr, flags: c_int) -> ssize_t;
    SYS_recvmmsg: fn recvmmsg(fd: c_int, to: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    SYS_sendto: fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t = (fd, from, len, flags, null::<sockaddr>(), 0);
    SYS_sendto: fn sendto(fd: c_int, from: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> ssize_t;
    SYS_sendmsg: fn sendmsg(fd: c_int, from: *const msghdr, flags: c_int) -> ssize_t;
    SYS_sendmmsg: fn sendmmsg(fd: c_int, from: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
}

// With the size of the buffer: libc's own function ends the program when it is too small.
hook! {
    fn __recv_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's arguments; libc's own function, called as it was.
        unsafe {
            if len > room {
                real!(__recv_chk: fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t)(fd, to, len, room, flags)
            } else {
                made!(SYS_recvfrom(fd, to, len, flags, NO_NAME, NO_LEN)).into_c()
            }
        }
    }

    fn __recvfrom_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t {
        // SAFETY: as above.
        unsafe {
            if len > room {
                real!(__recvfrom_chk: fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)(fd, to, len, room, flags, addr, addr_len)
            } else {
                made!(SYS_recvfrom(fd, to, len, flags, addr, addr_len)).into_c()
            }
        }
    }
}
