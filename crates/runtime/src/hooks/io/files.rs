//! Hooks: read, write, close, dup, fcntl, ioctl, pipes, on virtual descriptors and on files.

use super::{answer, answer_or_call};
use crate::files::{change, inputs, list, lock};
use crate::hooks::hook;
use crate::io::{Answer, descriptor, readiness, sendfile, splice, table, transfer};
use crate::original::real;
use crate::sys;
use core::ffi::c_void;
use libc::{c_int, c_long, c_uint, c_ulong, off_t, off64_t, size_t, ssize_t};
use skein_libos::abi::iovec;

answer_or_call! {
    SYS_read: fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t { transfer::read(fd, to, len).or_else(|| read_file(libc::SYS_read, [fd as usize, to as usize, len, 0])) }
    SYS_write: fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t { transfer::write(fd, from, len).or_else(|| write_file(libc::SYS_write, [fd as usize, from as usize, len, 0])) }
    SYS_readv: fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t { transfer::readv(fd, list, count).or_else(|| read_file(libc::SYS_readv, [fd as usize, list as usize, count as usize, 0])) }
    SYS_writev: fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t { transfer::writev(fd, list, count).or_else(|| write_file(libc::SYS_writev, [fd as usize, list as usize, count as usize, 0])) }
    SYS_close: fn close(fd: c_int) -> c_int { descriptor::close(fd) }
    SYS_dup: fn dup(fd: c_int) -> c_int { descriptor::dup(fd) }
    SYS_dup2: fn dup2(old: c_int, new: c_int) -> c_int { descriptor::dup3(old, new, None) }
    SYS_dup3: fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int { descriptor::dup3(old, new, Some(flags)) }
    SYS_fcntl: fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int { control(fd, command, arg) }
    SYS_fcntl: fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int { control(fd, command, arg) }
    SYS_ioctl: fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int { descriptor::ioctl(fd, request as usize, arg) }
    SYS_lseek: fn lseek(fd: c_int, at: off_t, from: c_int) -> off_t { descriptor::lseek(fd, from).or_else(|| list::lseek(fd, at, from)) }
    SYS_lseek: fn lseek64(fd: c_int, at: off64_t, from: c_int) -> off64_t { descriptor::lseek(fd, from).or_else(|| list::lseek(fd, at, from)) }
    SYS_pread64: fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t { transfer::positioned(fd).or_else(|| read_file(libc::SYS_pread64, [fd as usize, to as usize, len, at as usize])) }
    SYS_pread64: fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off64_t) -> ssize_t { transfer::positioned(fd).or_else(|| read_file(libc::SYS_pread64, [fd as usize, to as usize, len, at as usize])) }
    // The position's upper half is ignored on 64 bits.
    SYS_preadv: fn preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t { transfer::positioned(fd).or_else(|| read_file(libc::SYS_preadv, [fd as usize, list as usize, count as usize, at as usize])) }
    SYS_preadv: fn preadv64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t { transfer::positioned(fd).or_else(|| read_file(libc::SYS_preadv, [fd as usize, list as usize, count as usize, at as usize])) }
    SYS_fsync: fn fsync(fd: c_int) -> c_int { descriptor::sync(fd) }
    SYS_fdatasync: fn fdatasync(fd: c_int) -> c_int { descriptor::sync(fd) }
    SYS_fchmod: fn fchmod(fd: c_int, mode: libc::mode_t) -> c_int { descriptor::change_mode(fd, Some(mode)) }
    SYS_fchown: fn fchown(fd: c_int, user: libc::uid_t, group: libc::gid_t) -> c_int { descriptor::change_mode(fd, None) }
}

answer! {
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        if len > room {
            None
        } else {
            transfer::read(fd, to, len).or_else(|| read_file(libc::SYS_read, [fd as usize, to as usize, len, 0]))
        }
    }
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
        transfer::positioned(fd).or_else(|| write_file(libc::SYS_pwrite64, [fd as usize, from as usize, len, at as usize]))
    }
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t {
        transfer::positioned(fd).or_else(|| write_file(libc::SYS_pwrite64, [fd as usize, from as usize, len, at as usize]))
    }
    fn pwritev(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
        transfer::positioned(fd).or_else(|| write_file(libc::SYS_pwritev, [fd as usize, list as usize, count as usize, at as usize]))
    }
    fn pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t {
        transfer::positioned(fd).or_else(|| write_file(libc::SYS_pwritev, [fd as usize, list as usize, count as usize, at as usize]))
    }
    fn preadv2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        transfer::preadv2(fd, list, count, at, flags)
    }
    fn preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
        transfer::preadv2(fd, list, count, at, flags)
    }
    fn pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        transfer::pwritev2(fd, list, count, at, flags).or_else(|| write_at(fd, list, count, at, flags))
    }
    fn pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
        transfer::pwritev2(fd, list, count, at, flags).or_else(|| write_at(fd, list, count, at, flags))
    }
    fn splice(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t {
        splice::splice(from, from_at, to, to_at, len, flags)
    }
    fn tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t { splice::tee(from, to, len, flags) }
    fn vmsplice(fd: c_int, list: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
        splice::vmsplice(fd, list, count, flags)
    }
    fn sendfile(out: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
        sendfile::sendfile(out, from, at, count)
            .or_else(|| write_file(libc::SYS_sendfile, [out as usize, from as usize, at as usize, count]))
    }
    fn sendfile64(out: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t {
        sendfile::sendfile(out, from, at, count)
            .or_else(|| write_file(libc::SYS_sendfile, [out as usize, from as usize, at as usize, count]))
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        Some(descriptor::close_range(first, last, flags as c_uint))
    }
    fn tcgetattr(fd: c_int, out: *mut libc::termios) -> c_int { descriptor::not_a_terminal(fd) }


    fn pipe(out: *mut c_int) -> c_int { Some(readiness::pipe(0).map(|ends| crate::io::put_pair(out, ends))) }
    fn pipe2(out: *mut c_int, flags: c_int) -> c_int { Some(readiness::pipe(flags).map(|ends| crate::io::put_pair(out, ends))) }
}

hook! {
    fn closefrom(first: c_int) {
        let _ = descriptor::close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    } else {
        let real = real!(closefrom: fn(c_int));
        // SAFETY: libc's own function, called as it was.
        unsafe { real(first) }
    }

    fn isatty(fd: c_int) -> c_int {
        match descriptor::not_a_terminal(fd) {
            Some(result) => {
                let _: c_int = crate::hooks::IntoC::into_c(result);
                0
            }
            None => {
                let real = real!(isatty: fn(c_int) -> c_int);
                // SAFETY: libc's own function, called as it was.
                unsafe { real(fd) }
            }
        }
    } else {
        let real = real!(isatty: fn(c_int) -> c_int);
        // SAFETY: libc's own function, called as it was.
        unsafe { real(fd) }
    }
}

/// `fcntl` on whatever it is.
unsafe fn control(fd: c_int, command: c_int, arg: usize) -> Answer {
    // SAFETY: the caller's argument.
    descriptor::fcntl(fd, command, arg).or_else(|| unsafe { lock::fcntl(fd, command, arg) })
}

/// Reads from a file of the host, which must be what it was; `None` for all others.
unsafe fn read_file(nr: c_long, args: [usize; 4]) -> Answer {
    let fd = args[0] as c_int;
    // SAFETY: the caller's call.
    inputs::watches(fd).then(|| inputs::after_read(fd, unsafe { sys::call(nr, sys::args(args)) }))
}

/// Writes to a descriptor of the kernel's, and notes when.
unsafe fn write_file(nr: c_long, [a, b, c, d]: [usize; 4]) -> Answer {
    // The position of `pwritev` comes in two halves, of which the kernel ignores the upper one.
    let args = sys::args([a, b, c, d]);
    Some(table::no_own(nr, &args).and_then(|()| {
        // SAFETY: the caller's call.
        change::after_write(a as c_int, unsafe { sys::call(nr, args) })
    }))
}

/// `pwritev2` to a file of the kernel's.
unsafe fn write_at(fd: c_int, list: *const iovec, count: c_int, at: i64, flags: c_int) -> Answer {
    // The position comes in two halves, of which the kernel ignores the upper one.
    let args = [fd as usize, list as usize, count as usize, at as usize, 0, flags as usize];
    Some(table::no_own(libc::SYS_pwritev2, &args).and_then(|()| {
        // SAFETY: the caller's call.
        change::after_write(fd, unsafe { sys::call(libc::SYS_pwritev2, args) })
    }))
}
