//! C11's `threads.h`: mutexes and conditions are the pthread ones, as in glibc; only results and kinds have other numbers.

use super::attributes;
use core::mem::MaybeUninit;
use libc::c_int;
use skein_libos::errno::{Errno, Result};
use skein_libos::sync::mutex::{self, Mutex};

/// `thrd_success`.
pub const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

/// The result in `threads.h`'s numbers.
pub fn result(result: Result<()>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(Errno(libc::EBUSY)) => BUSY,
        Err(Errno(libc::ENOMEM)) => NO_MEMORY,
        Err(Errno(libc::ETIMEDOUT)) => TIMED_OUT,
        Err(_) => ERROR,
    }
}

/// `mtx_init`.
///
/// # Safety
/// `mutex` is the server's to write.
pub unsafe fn mtx_init(mutex: *mut Mutex, kind: c_int) -> c_int {
    const RECURSIVE: c_int = 1;
    const TIMED: c_int = 2;
    if kind & !(RECURSIVE | TIMED) != 0 {
        return ERROR;
    }
    let base = if kind & RECURSIVE != 0 {
        libc::PTHREAD_MUTEX_RECURSIVE
    } else {
        libc::PTHREAD_MUTEX_NORMAL
    };
    let mut attr = MaybeUninit::uninit();
    // SAFETY: libc's functions on a local attribute object; the mutex is the server's.
    result(unsafe {
        libc::pthread_mutexattr_init(attr.as_mut_ptr());
        libc::pthread_mutexattr_settype(attr.as_mut_ptr(), base);
        mutex::init(mutex, attributes::of_mutex(attr.as_ptr()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_glibcs() {
        let of = |errno| result(Err(Errno(errno)));
        assert_eq!(result(Ok(())), 0);
        assert_eq!(
            [libc::EBUSY, libc::EINVAL, libc::ENOMEM, libc::ETIMEDOUT, libc::EPERM].map(of),
            [1, 2, 3, 4, 2]
        );
    }
}
