//! Attribute objects: libc's own, read by its functions.

use libc::{c_int, pthread_condattr_t, pthread_mutexattr_t, pthread_rwlockattr_t};
use skein_libos::sync::barrier::Barrier;
use skein_libos::sync::cond::Cond;
use skein_libos::sync::mutex::{Attributes, Mutex};
use skein_libos::sync::rwlock::RwLock;
use skein_libos::sync::semaphore::Semaphore;

// Objects take the place of libc's.
const _: () = assert!(size_of::<Mutex>() == size_of::<libc::pthread_mutex_t>());
const _: () = assert!(size_of::<Cond>() == size_of::<libc::pthread_cond_t>());
const _: () = assert!(size_of::<RwLock>() == size_of::<libc::pthread_rwlock_t>());
const _: () = assert!(size_of::<Barrier>() == size_of::<libc::pthread_barrier_t>());
const _: () = assert!(size_of::<Semaphore>() == size_of::<libc::sem_t>());

unsafe extern "C" {
    fn pthread_mutexattr_gettype(attr: *const pthread_mutexattr_t, out: *mut c_int) -> c_int;
    fn pthread_mutexattr_getrobust(attr: *const pthread_mutexattr_t, out: *mut c_int) -> c_int;
    fn pthread_mutexattr_getprotocol(attr: *const pthread_mutexattr_t, out: *mut c_int) -> c_int;
    fn pthread_mutexattr_getpshared(attr: *const pthread_mutexattr_t, out: *mut c_int) -> c_int;
    fn pthread_mutexattr_getprioceiling(attr: *const pthread_mutexattr_t, out: *mut c_int)
    -> c_int;
    fn pthread_condattr_getclock(attr: *const pthread_condattr_t, out: *mut c_int) -> c_int;
    fn pthread_rwlockattr_getkind_np(attr: *const pthread_rwlockattr_t, out: *mut c_int) -> c_int;
}

/// The settings of `attr` for a mutex.
///
/// # Safety
/// `attr` is null or initialised.
pub unsafe fn of_mutex(attr: *const pthread_mutexattr_t) -> Attributes {
    let (mut kind, mut robust, mut protocol, mut shared, mut ceiling) = (0, 0, 0, 0, 0);
    if !attr.is_null() {
        // SAFETY: libc's functions on an initialised attribute object and locals.
        unsafe {
            pthread_mutexattr_gettype(attr, &raw mut kind);
            pthread_mutexattr_getrobust(attr, &raw mut robust);
            pthread_mutexattr_getprotocol(attr, &raw mut protocol);
            pthread_mutexattr_getpshared(attr, &raw mut shared);
            if protocol == libc::PTHREAD_PRIO_PROTECT {
                pthread_mutexattr_getprioceiling(attr, &raw mut ceiling);
            }
        }
    }
    Attributes { kind, robust: robust != 0, protocol, shared: shared != 0, ceiling }
}

/// The clock of a condition variable.
///
/// # Safety
/// `attr` is null or initialised.
pub unsafe fn clock_of_cond(attr: *const pthread_condattr_t) -> c_int {
    let mut clock = libc::CLOCK_REALTIME;
    if !attr.is_null() {
        // SAFETY: libc's function on an initialised attribute object and a local.
        unsafe { pthread_condattr_getclock(attr, &raw mut clock) };
    }
    clock
}

/// The kind of a readers-writer lock.
///
/// # Safety
/// `attr` is null or initialised.
pub unsafe fn kind_of_rwlock(attr: *const pthread_rwlockattr_t) -> c_int {
    let mut kind = 0;
    if !attr.is_null() {
        // SAFETY: libc's function on an initialised attribute object and a local.
        unsafe { pthread_rwlockattr_getkind_np(attr, &raw mut kind) };
    }
    kind
}
