//! Hooks: memory that processes share.

use super::{IntoC, hook, set_errno};
use crate::ipc::segment;
use crate::process::shared;
use crate::sys;
use libc::{c_int, c_void, off_t, size_t};
use skein_libos::errno::Result;

fn address(result: Result<usize>) -> *mut c_void {
    match result {
        Ok(at) => at as *mut c_void,
        Err(e) => {
            set_errno(e);
            libc::MAP_FAILED
        }
    }
}

/// Before the runtime is ready: from this library's text, as the net keeps the arena's descriptor from all others.
///
/// # Safety
/// As for the call.
unsafe fn map(args: [usize; 6]) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe { sys::call(libc::SYS_mmap, args) }
}

hook! {
    fn mmap(at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        address(shared::mmap([at as usize, len, protection as usize, flags as usize, fd as usize, offset as usize]))
    } else {
        // SAFETY: the caller's arguments.
        address(unsafe { map([at as usize, len, protection as usize, flags as usize, fd as usize, offset as usize]) })
    }

    fn mmap64(at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        address(shared::mmap([at as usize, len, protection as usize, flags as usize, fd as usize, offset as usize]))
    } else {
        // SAFETY: the caller's arguments.
        address(unsafe { map([at as usize, len, protection as usize, flags as usize, fd as usize, offset as usize]) })
    }

    fn munmap(at: *mut c_void, len: size_t) -> c_int {
        shared::munmap(at as usize, len).into_c()
    }

    fn mremap(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, new_at: *mut c_void) -> *mut c_void {
        address(shared::mremap([at as usize, len, new_len, flags as usize, new_at as usize, 0]))
    }

    fn shmat(id: c_int, at: *const c_void, flags: c_int) -> *mut c_void {
        address(segment::attach(id, at as usize, flags))
    }

    fn shmdt(at: *const c_void) -> c_int {
        segment::detach(at as usize).into_c()
    }
}
