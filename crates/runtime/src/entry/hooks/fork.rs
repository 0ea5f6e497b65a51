//! Hooks: how processes begin, end and are waited for; their groups and sessions.

use super::{IntoC, hook, syscalls};
use crate::original::real;
use crate::process::fork;
use core::ptr::null_mut;
use libc::{c_int, pid_t, rusage};

const NO_USAGE: *mut rusage = null_mut();

syscalls! {
    SYS_fork: fn fork() -> pid_t;
    SYS_wait4: fn wait(status: *mut c_int) -> pid_t = (-1, status, 0, NO_USAGE);
    SYS_wait4: fn waitpid(which: pid_t, status: *mut c_int, options: c_int) -> pid_t = (which, status, options, NO_USAGE);
    SYS_wait4: fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t = (-1, status, options, usage);
    SYS_wait4: fn wait4(which: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t;
    SYS_waitid: fn waitid(kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int) -> c_int;
    SYS_getppid: fn getppid() -> pid_t;
    SYS_getpgrp: fn getpgrp() -> pid_t;
    SYS_getpgid: fn getpgid(pid: pid_t) -> pid_t;
    SYS_getpgid: fn __getpgid(pid: pid_t) -> pid_t;
    SYS_getsid: fn getsid(pid: pid_t) -> pid_t;
    SYS_setsid: fn setsid() -> pid_t;
    SYS_setpgid: fn setpgid(pid: pid_t, to: pid_t) -> c_int;
    SYS_setpgid: fn setpgrp() -> c_int = (0, 0);
}

hook! {
    fn vfork() -> pid_t {
        fork::vfork().into_c()
    } else {
        // SAFETY: `fork` keeps all promises of `vfork`; a hook cannot return twice on one stack.
        unsafe { real!(fork: fn() -> pid_t)() }
    }
}
