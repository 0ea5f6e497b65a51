//! Hooks: how processes begin, end and are waited for; their groups and sessions.

use super::{IntoC, hook};
use crate::original::real;
use crate::process::{fork, group, wait};
use core::ptr::null_mut;
use libc::{c_int, pid_t};

hook! {
    fn fork() -> pid_t {
        fork::fork().into_c()
    }

    fn vfork() -> pid_t {
        fork::vfork().into_c()
    } else {
        // SAFETY: `fork` does all that `vfork` promises; a hook cannot return twice on one stack.
        unsafe { real!(fork: fn() -> pid_t)() }
    }

    fn wait(status: *mut c_int) -> pid_t {
        wait::wait4(-1, status, 0, null_mut()).into_c()
    }

    fn waitpid(which: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        wait::wait4(which, status, options, null_mut()).into_c()
    }

    fn wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t {
        wait::wait4(-1, status, options, usage).into_c()
    }

    fn wait4(which: pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t {
        wait::wait4(which, status, options, usage).into_c()
    }

    fn waitid(kind: libc::idtype_t, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int) -> c_int {
        wait::waitid(kind as c_int, id, info, options).into_c()
    }

    fn getppid() -> pid_t {
        group::parent()
    }

    fn getpgrp() -> pid_t {
        group::group_of(0).into_c()
    }

    fn getpgid(pid: pid_t) -> pid_t {
        group::group_of(pid).into_c()
    }

    fn __getpgid(pid: pid_t) -> pid_t {
        group::group_of(pid).into_c()
    }

    fn getsid(pid: pid_t) -> pid_t {
        group::session_of(pid).into_c()
    }

    fn setsid() -> pid_t {
        group::new_session().into_c()
    }

    fn setpgid(pid: pid_t, to: pid_t) -> c_int {
        group::set_group(pid, to).into_c()
    }

    fn setpgrp() -> c_int {
        group::set_group(0, 0).into_c()
    }
}
