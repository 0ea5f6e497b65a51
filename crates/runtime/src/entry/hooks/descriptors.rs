//! Hooks: read, write, close, dup, fcntl, ioctl, pipes, on virtual descriptors and on files.

use super::{IntoC, hook, syscalls};
use crate::entry::calls::made;
use crate::io::descriptor;
use crate::original::real;
use core::ffi::c_void;
use libc::{c_int, c_uint, c_ulong, off_t, off64_t, size_t, ssize_t};
use skein_libos::abi::iovec;

syscalls! {
    SYS_read: fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t;
    SYS_write: fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t;
    SYS_readv: fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    SYS_writev: fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t;
    SYS_pread64: fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t;
    SYS_pread64: fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off64_t) -> ssize_t;
    SYS_preadv: fn preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t;
    SYS_preadv: fn preadv64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t;
    SYS_preadv2: fn preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = (fd, list, count, at, 0, flags);
    SYS_preadv2: fn preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t = (fd, list, count, at, 0, flags);
    SYS_pwrite64: fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t;
    SYS_pwrite64: fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t;
    SYS_pwritev: fn pwritev(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t;
    SYS_pwritev: fn pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t;
    SYS_pwritev2: fn pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = (fd, list, count, at, 0, flags);
    SYS_pwritev2: fn pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t = (fd, list, count, at, 0, flags);
    SYS_splice: fn splice(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    SYS_tee: fn tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t;
    SYS_vmsplice: fn vmsplice(fd: c_int, list: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    SYS_sendfile: fn sendfile(out: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
    SYS_sendfile: fn sendfile64(out: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t;
    SYS_copy_file_range: fn copy_file_range(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t;
    SYS_close: fn close(fd: c_int) -> c_int;
    SYS_close_range: fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    SYS_dup: fn dup(fd: c_int) -> c_int;
    SYS_dup2: fn dup2(old: c_int, new: c_int) -> c_int;
    SYS_dup3: fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    SYS_fcntl: fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int;
    SYS_fcntl: fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int;
    SYS_ioctl: fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int;
    SYS_lseek: fn lseek(fd: c_int, at: off_t, from: c_int) -> off_t;
    SYS_lseek: fn lseek64(fd: c_int, at: off64_t, from: c_int) -> off64_t;
    SYS_fsync: fn fsync(fd: c_int) -> c_int;
    SYS_fdatasync: fn fdatasync(fd: c_int) -> c_int;
    SYS_fchmod: fn fchmod(fd: c_int, mode: libc::mode_t) -> c_int;
    SYS_fchown: fn fchown(fd: c_int, user: libc::uid_t, group: libc::gid_t) -> c_int;
    SYS_pipe: fn pipe(out: *mut c_int) -> c_int;
    SYS_pipe2: fn pipe2(out: *mut c_int, flags: c_int) -> c_int;
}

hook! {
    // With the size of the buffer: libc's own function ends the program when it is too small.
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        // SAFETY: the caller's arguments; libc's own function, called as it was.
        unsafe {
            if len > room {
                real!(__read_chk: fn(c_int, *mut c_void, size_t, size_t) -> ssize_t)(fd, to, len, room)
            } else {
                made!(SYS_read(fd, to, len)).into_c()
            }
        }
    }

    fn closefrom(first: c_int) {
        // SAFETY: numbers.
        let _ = unsafe { made!(SYS_close_range(first.max(0), c_uint::MAX, 0)) };
    }

    fn isatty(fd: c_int) -> c_int {
        match descriptor::not_a_terminal(fd) {
            Some(result) => {
                let _: c_int = result.into_c();
                0
            }
            // SAFETY: libc's own function, called as it was.
            None => unsafe { real!(isatty: fn(c_int) -> c_int)(fd) },
        }
    }

    fn tcgetattr(fd: c_int, out: *mut libc::termios) -> c_int {
        match descriptor::not_a_terminal(fd) {
            Some(result) => result.into_c(),
            // SAFETY: libc's own function, called as it was.
            None => unsafe { real!(tcgetattr: fn(c_int, *mut libc::termios) -> c_int)(fd, out) },
        }
    }
}
