//! Lets the node see which pages a process writes between two images: the descriptor that the kernel asks for, a userfaultfd of this process's memory. Only the
//! node uses it (`skein_image::written`): here it is made, renewed where a process gets other memory; and what a
//! server would see of it is hidden.
//!
//! It is made for faults in user mode only, which is all that the sandbox allows, and no fault is ever handed to it: in its asynchronous mode the kernel
//! notes a write and goes on. Without it all pages are read for each image; so a failure here is none of the server's.

use crate::files::fake::is_one_mapping;
use crate::sys::{self, args};
use skein_arena::layout::WRITTEN_FD;
use skein_libos::errno::{Errno, Result};

/// Of `userfaultfd`: it does not catch faults inside the kernel.
const USER_MODE_ONLY: i32 = 1;
const PAGE_BYTES: usize = 4096;

/// This process has memory of its own from now on: an earlier descriptor is about another one's.
pub fn begin() {
    crate::advice::shared_changed();
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: a new descriptor; the number is the runtime's own.
    unsafe {
        let moved = sys::call(libc::SYS_userfaultfd, args([flags as usize])).and_then(|fd| {
            let to = [fd, WRITTEN_FD as usize, libc::O_CLOEXEC as usize];
            let moved = sys::call(libc::SYS_dup3, args(to));
            let _ = sys::close(fd as i32);
            moved
        });
        if moved.is_err() {
            let _ = sys::close(WRITTEN_FD);
        }
    }
}

/// `mremap` of private memory of nothing that the kernel keeps apart and the server knows as one mapping: where an image was taken before a part of it was mapped.
/// `refusal` is what the kernel said to it.
pub fn mremap(a: [usize; 6], refusal: Errno) -> Result<usize> {
    let [start, len, new_len, flags, new_at, _] = a;
    let (len, new_len) = (len.next_multiple_of(PAGE_BYTES), new_len.next_multiple_of(PAGE_BYTES));
    let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    if refusal != Errno(libc::EFAULT)
        || flags as i32 & !known != 0
        || len == 0
        || new_len < len
        || !is_one_mapping(start, start.saturating_add(len))
    {
        return Err(refusal);
    }
    let more = new_len - len;
    let is_fixed = flags as i32 & libc::MREMAP_FIXED != 0;
    if !is_fixed {
        // The last page's mapping grows where it is, if there is room.
        let last = start + len - PAGE_BYTES;
        // SAFETY: the server's own memory, which stays where it is.
        let grown =
            unsafe { sys::call(libc::SYS_mremap, args([last, PAGE_BYTES, PAGE_BYTES + more, 0])) };
        if grown.is_ok() {
            return Ok(start);
        }
        if flags as i32 & libc::MREMAP_MAYMOVE == 0 {
            return grown;
        }
    }
    let to = if is_fixed {
        new_at
    } else {
        // The place that the kernel would choose for all of it.
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory of nothing.
        unsafe { sys::call(libc::SYS_mmap, [0, new_len, 0, kind as usize, usize::MAX, 0])? }
    };
    let (mut done, mut part) = (0, len);
    while done < len {
        part = part.min(len - done);
        let grows = if done + part == len { more } else { 0 };
        let moves = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        let step = [start + done, part, part + grows, moves, to + done, 0];
        // SAFETY: the server's own memory moves to where it asked for it, or where there was nothing.
        match unsafe { sys::call(libc::SYS_mremap, step) } {
            Ok(_) => done += part,
            // More than one of the kernel's mappings.
            Err(Errno(libc::EFAULT)) if part > PAGE_BYTES => {
                part = (part / 2).next_multiple_of(PAGE_BYTES);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(to)
}
