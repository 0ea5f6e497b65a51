//! Hooks: the calls on System V semaphores and message queues that servers make often. All others come through the net.

use super::syscalls;
use libc::{c_int, c_long, c_void, size_t, ssize_t};
use skein_libos::abi::{sembuf, timespec};

syscalls! {
    SYS_semop: fn semop(id: c_int, operations: *mut sembuf, count: size_t) -> c_int;
    SYS_semtimedop: fn semtimedop(id: c_int, operations: *mut sembuf, count: size_t, limit: *const timespec) -> c_int;
    SYS_msgsnd: fn msgsnd(id: c_int, from: *const c_void, len: size_t, flags: c_int) -> c_int;
    SYS_msgrcv: fn msgrcv(id: c_int, to: *mut c_void, len: size_t, wanted: c_long, flags: c_int) -> ssize_t;
}
