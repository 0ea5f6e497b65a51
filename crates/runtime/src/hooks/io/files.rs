//! Hooks: read, write, close, dup, fcntl, ioctl, stat, pipes, the random devices, the kernel's counters.

use super::{answer, answer_or_call};
use crate::hooks::{hook, real};
use crate::io::{Answer, counters, descriptor, pipe, random, sendfile, transfer};
use core::ffi::{c_char, c_void};
use libc::{FILE, c_int, c_uint, c_ulong, iovec, off_t, off64_t, size_t, ssize_t, stat};

answer_or_call! {
    SYS_read: fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t { transfer::read(fd, to, len) }
    SYS_write: fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t { transfer::write(fd, from, len) }
    SYS_readv: fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t { transfer::readv(fd, list, count) }
    SYS_writev: fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t { transfer::writev(fd, list, count) }
    SYS_close: fn close(fd: c_int) -> c_int { descriptor::close(fd) }
    SYS_dup: fn dup(fd: c_int) -> c_int { descriptor::dup(fd) }
    SYS_dup2: fn dup2(old: c_int, new: c_int) -> c_int { descriptor::dup3(old, new, None) }
    SYS_dup3: fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int { descriptor::dup3(old, new, Some(flags)) }
    SYS_fcntl: fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int { descriptor::fcntl(fd, command, arg) }
    SYS_fcntl: fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int { descriptor::fcntl(fd, command, arg) }
    SYS_ioctl: fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int { descriptor::ioctl(fd, request as usize, arg) }
    SYS_lseek: fn lseek(fd: c_int, at: off_t, from: c_int) -> off_t { descriptor::lseek(fd) }
    SYS_lseek: fn lseek64(fd: c_int, at: off64_t, from: c_int) -> off64_t { descriptor::lseek(fd) }
}

answer! {
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        if len > room { None } else { transfer::read(fd, to, len) }
    }
    fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t { transfer::positioned(fd) }
    fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off64_t) -> ssize_t { transfer::positioned(fd) }
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t { transfer::positioned(fd) }
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t { transfer::positioned(fd) }
    fn preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t { transfer::positioned(fd) }
    fn preadv64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t { transfer::positioned(fd) }
    fn pwritev(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t { transfer::positioned(fd) }
    fn pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t { transfer::positioned(fd) }
    fn sendfile(out: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
        sendfile::sendfile(out, from, at, count)
    }
    fn sendfile64(out: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t {
        sendfile::sendfile(out, from, at, count)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        Some(descriptor::close_range(first, last, flags as c_uint))
    }
    fn fstat(fd: c_int, out: *mut stat) -> c_int { descriptor::fstat(fd, out) }
    fn fstat64(fd: c_int, out: *mut stat) -> c_int { descriptor::fstat(fd, out) }
    fn __fxstat(version: c_int, fd: c_int, out: *mut stat) -> c_int { descriptor::fstat(fd, out) }
    fn __fxstat64(version: c_int, fd: c_int, out: *mut stat) -> c_int { descriptor::fstat(fd, out) }
    fn fstatat(fd: c_int, path: *const c_char, out: *mut stat, flags: c_int) -> c_int {
        if is_empty(path, flags) { descriptor::fstat(fd, out) } else { None }
    }
    fn fstatat64(fd: c_int, path: *const c_char, out: *mut stat, flags: c_int) -> c_int {
        if is_empty(path, flags) { descriptor::fstat(fd, out) } else { None }
    }
    fn statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int {
        if is_empty(path, flags) { descriptor::statx(fd, out) } else { None }
    }
    fn fsync(fd: c_int) -> c_int { descriptor::sync(fd) }
    fn fdatasync(fd: c_int) -> c_int { descriptor::sync(fd) }
    fn ftruncate(fd: c_int, len: off_t) -> c_int { descriptor::sync(fd) }
    fn ftruncate64(fd: c_int, len: off64_t) -> c_int { descriptor::sync(fd) }
    fn tcgetattr(fd: c_int, out: *mut libc::termios) -> c_int { descriptor::not_a_terminal(fd) }

    fn pipe(out: *mut c_int) -> c_int { Some(pipe::create(0).map(|ends| put_pair(out, ends))) }
    fn pipe2(out: *mut c_int, flags: c_int) -> c_int { Some(pipe::create(flags).map(|ends| put_pair(out, ends))) }

    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int { device(path, flags) }
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int { device(path, flags) }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int { device(path, flags) }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int { device(path, flags) }
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int { device(path, flags) }
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int { device(path, flags) }
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int { device(path, flags) }
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int { device(path, flags) }
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

    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let real = real!(fopen: fn(*const c_char, *const c_char) -> *mut FILE);
        // SAFETY: the caller's strings.
        unsafe { stream(path, mode).unwrap_or_else(|| real(path, mode)) }
    } else {
        let real = real!(fopen: fn(*const c_char, *const c_char) -> *mut FILE);
        // SAFETY: libc's own function, called as it was.
        unsafe { real(path, mode) }
    }

    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let real = real!(fopen64: fn(*const c_char, *const c_char) -> *mut FILE);
        // SAFETY: the caller's strings.
        unsafe { stream(path, mode).unwrap_or_else(|| real(path, mode)) }
    } else {
        let real = real!(fopen64: fn(*const c_char, *const c_char) -> *mut FILE);
        // SAFETY: libc's own function, called as it was.
        unsafe { real(path, mode) }
    }

    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        let real = real!(freopen: fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE);
        // SAFETY: the caller's strings and stream.
        unsafe {
            if random::is_device(path) {
                crate::fatal::refused(b"freopen of a random device");
                crate::hooks::set_errno(crate::sys::Errno(libc::EINVAL));
                core::ptr::null_mut()
            } else {
                real(path, mode, stream)
            }
        }
    } else {
        let real = real!(freopen: fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE);
        // SAFETY: libc's own function, called as it was.
        unsafe { real(path, mode, stream) }
    }
}

/// A random device or the kernel's counters, or `None`.
pub unsafe fn device(path: *const c_char, flags: c_int) -> Answer {
    // SAFETY: the caller's string.
    unsafe {
        if random::is_device(path) {
            return Some(random::open(flags));
        }
        counters::named(path).map(|file| file.open(flags))
    }
}

/// The same as a stream.
unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut FILE> {
    // SAFETY: the caller's strings.
    unsafe {
        if random::is_device(path) {
            return Some(random::stream(mode));
        }
        counters::named(path).map(|file| file.stream(mode))
    }
}

/// Whether a call is on the descriptor itself.
unsafe fn is_empty(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller's string.
    flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

/// Gives two descriptors back.
pub unsafe fn put_pair(out: *mut c_int, ends: [c_int; 2]) -> usize {
    // SAFETY: the caller's array.
    unsafe { out.cast::<[c_int; 2]>().write_unaligned(ends) };
    0
}
