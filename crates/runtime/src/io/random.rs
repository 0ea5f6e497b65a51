//! /dev/urandom and /dev/random: the log's randomness as files.

use crate::io::file::{self, Kind};
use crate::io::iov::Buffers;
use crate::kernel::{Kernel, kernel};
use crate::sys::Result;
use crate::turn;
use core::ffi::CStr;
use libc::{c_char, c_int, c_void, size_t, ssize_t};

/// Whether a path is one of the two devices.
///
/// # Safety
/// `path` is null or a string.
pub unsafe fn is_device(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's contract.
    matches!(unsafe { CStr::from_ptr(path) }.to_bytes(), b"/dev/urandom" | b"/dev/random")
}

/// Opens a device.
pub fn open(flags: c_int) -> Result<usize> {
    turn::operation();
    let k = kernel();
    let status = flags & (libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_APPEND);
    let file = file::create(k, Kind::Random, 0, status)?;
    file::install(k, file, flags & libc::O_CLOEXEC != 0).map(|fd| fd as usize)
}

/// Reads random bytes.
pub fn read(k: &Kernel, buffers: &mut Buffers<'_>) -> usize {
    let mut done = 0;
    loop {
        // SAFETY: the server's buffers; one thread runs at a time.
        let piece = unsafe { buffers.piece_mut(usize::MAX) };
        if piece.is_empty() {
            return done;
        }
        k.random.fill(piece);
        buffers.advance(piece.len());
        done += piece.len();
    }
}

/// What is written to the pool changes nothing.
pub fn write(buffers: &Buffers<'_>) -> usize {
    buffers.left()
}

#[repr(C)]
struct CookieFunctions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut libc::off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    fn fopencookie(
        cookie: *mut c_void,
        mode: *const c_char,
        functions: CookieFunctions,
    ) -> *mut libc::FILE;
}

unsafe extern "C" fn cookie_read(_cookie: *mut c_void, out: *mut c_char, len: size_t) -> ssize_t {
    turn::operation();
    // SAFETY: libc's buffer.
    kernel().random.fill(unsafe { core::slice::from_raw_parts_mut(out.cast(), len) });
    len as ssize_t
}

unsafe extern "C" fn cookie_write(
    _cookie: *mut c_void,
    _from: *const c_char,
    len: size_t,
) -> ssize_t {
    len as ssize_t
}

/// `fopen` of a device: a stream without a descriptor.
///
/// # Safety
/// `mode` is a string.
pub unsafe fn stream(mode: *const c_char) -> *mut libc::FILE {
    turn::operation();
    let functions = CookieFunctions {
        read: Some(cookie_read),
        write: Some(cookie_write),
        seek: None,
        close: None,
    };
    // SAFETY: libc's function; the cookie is not used.
    unsafe { fopencookie(core::ptr::null_mut(), mode, functions) }
}
