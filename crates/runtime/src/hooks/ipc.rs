//! Hooks: the calls on System V semaphores and message queues that servers make often. All others come through the net.

use super::{IntoC, hook};
use crate::ipc::{queue, semaphore};
use libc::{c_int, c_long, c_void, sembuf, size_t, ssize_t};
use skein_libos::abi::timespec;

hook! {
    fn semop(id: c_int, operations: *mut sembuf, count: size_t) -> c_int {
        // SAFETY: the arguments are those of `semop`.
        unsafe { semaphore::operate(id, operations, count, core::ptr::null()) }.into_c()
    }

    fn semtimedop(id: c_int, operations: *mut sembuf, count: size_t, limit: *const timespec) -> c_int {
        // SAFETY: the arguments are those of `semtimedop`.
        unsafe { semaphore::operate(id, operations, count, limit) }.into_c()
    }

    fn msgsnd(id: c_int, from: *const c_void, len: size_t, flags: c_int) -> c_int {
        // SAFETY: the arguments are those of `msgsnd`.
        unsafe { queue::send(id, from.cast(), len, flags) }.into_c()
    }

    fn msgrcv(id: c_int, to: *mut c_void, len: size_t, wanted: c_long, flags: c_int) -> ssize_t {
        // SAFETY: the arguments are those of `msgrcv`.
        unsafe { queue::receive(id, to.cast(), len, wanted, flags) }.into_c()
    }
}
