//! The kernel's descriptors, on behalf of the library: what a call does to them beside virtual ones.

use super::writes::Place;
use super::{change, closed_range, stat};
use crate::io::table::own_range;
use crate::kernel::Kernel;
use crate::sys;
use skein_libos::errno::Result;

/// `close_range` around the runtime's own descriptors.
pub fn close_range(k: &Kernel, first: u32, last: u32, flags: u32) -> Result<()> {
    if flags & libc::CLOSE_RANGE_CLOEXEC == 0 {
        closed_range(k, first, last);
    }
    let (own_first, own_last) = own_range();
    for (from, to) in [(first, last.min(own_first - 1)), (first.max(own_last + 1), last)] {
        if from <= to {
            let args = sys::args([from as usize, to as usize, flags as usize]);
            // SAFETY: no memory is involved.
            unsafe { sys::call(libc::SYS_close_range, args)? };
        }
    }
    Ok(())
}

/// `dup3`, or `dup2` when `flags` is `None`, of one of the kernel's descriptors.
pub fn duplicate(old: i32, new: i32, flags: Option<i32>) -> Result<()> {
    let nr = if flags.is_some() { libc::SYS_dup3 } else { libc::SYS_dup2 };
    let args = sys::args([old as usize, new as usize, flags.unwrap_or(0) as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(nr, args) }.map(|_| ())
}

/// Reads from one of the kernel's descriptors, at its own position or at `at`.
pub fn read(fd: i32, at: Option<i64>, to: &mut [u8]) -> Result<usize> {
    let nr = if at.is_none() { libc::SYS_read } else { libc::SYS_pread64 };
    let place = [fd as usize, to.as_mut_ptr() as usize, to.len(), at.unwrap_or(0) as usize];
    // SAFETY: the room is the caller's.
    unsafe { sys::call(nr, sys::args(place)) }
}

/// Writes to one of the kernel's descriptors, at its own position or at `at`.
pub fn write(k: &Kernel, fd: i32, at: Option<i64>, bytes: &[u8]) -> Result<usize> {
    let nr = if at.is_none() { libc::SYS_write } else { libc::SYS_pwrite64 };
    let place = [fd as usize, bytes.as_ptr() as usize, bytes.len(), at.unwrap_or(0) as usize];
    // SAFETY: the bytes are the caller's.
    change::after_write(k, fd, at, unsafe { sys::call(nr, sys::args(place)) })
}

/// The flags of one of the kernel's descriptors.
pub fn flags(fd: i32) -> Option<i32> {
    let args = sys::args([fd as usize, libc::F_GETFL as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_fcntl, args) }.ok().map(|flags| flags as i32)
}

/// Where so many bytes were written that were meant for the position `at`: Linux puts them at the end of a file that is open for appending.
pub fn place(fd: i32, at: i64, len: usize) -> Place {
    match flags(fd) {
        Some(flags) if flags & libc::O_APPEND == 0 => Place::At(at, len),
        _ => match stat::real_of(fd) {
            Ok(st) => Place::At(st.st_size - len as i64, len),
            Err(_) => Place::From(0),
        },
    }
}

/// Moves the position of one of the kernel's descriptors.
pub fn seek(fd: i32, by: i64) -> Result<()> {
    let args = sys::args([fd as usize, by as usize, libc::SEEK_CUR as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_lseek, args) }.map(|_| ())
}
