//! /dev/urandom and /dev/random: the log's randomness as files.

use crate::kernel::Kernel;
use crate::turn;
use core::ffi::CStr;
use libc::{c_char, c_int};
use skein_libos::errno::Result;
use skein_libos::file::buffers::Buffers;
use skein_libos::file::{self, Kind};
use skein_sched::op::{Kind as Op, Object};

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
    let turn = turn::enter(Object::Descriptors, Op::Open);
    crate::uses::note(crate::uses::Use::Randomness);
    let k = &*turn;
    let status = flags & (libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_APPEND);
    let (_, fd) = file::open(k, Kind::Random, 0, status, flags & libc::O_CLOEXEC != 0)?;
    Ok(fd as usize)
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
