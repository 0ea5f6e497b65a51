//! Calls on pidfds ([`skein_libos::process::pidfd`]).

use crate::signal;
use crate::turn;
use libc::{c_int, pid_t};
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::process::pidfd;
use skein_sched::op::{Kind as Op, Object};

/// `pidfd_open`.
pub fn open(pid: pid_t, flags: u32) -> Result<usize> {
    pidfd::open(&*turn::enter(Object::Processes, Op::Open), pid, flags)
}

/// The id of a pidfd's process, none when that has been waited for, and whether calls on it do not block.
///
/// # Errors
/// `EBADF` when it is no pidfd.
pub(super) fn process_of(fd: c_int) -> Result<(Option<pid_t>, bool)> {
    pidfd::process_of(&*turn::enter(Object::Processes, Op::Ask), fd)
}

/// `pidfd_send_signal`.
///
/// # Safety
/// `info` is null or valid.
pub unsafe fn send(
    fd: c_int,
    signo: c_int,
    info: *const libc::siginfo_t,
    flags: u32,
) -> Result<usize> {
    if flags != 0 {
        let _turn = turn::enter(Object::Processes, Op::Refuse);
        return fail(libc::EINVAL);
    }
    let pid = process_of(fd)?.0.ok_or(Errno(libc::ESRCH))?;
    turn::end();
    let info = if info.is_null() {
        signal::sent(signo, libc::SI_USER)
    } else {
        // SAFETY: the caller's contract.
        let given = unsafe { signal::read_info(info) };
        if given.signo != signo {
            return fail(libc::EINVAL);
        }
        // As with `rt_sigqueueinfo`: only to itself as if it came from elsewhere.
        if pid != super::this().pid.get() && (given.code >= 0 || given.code == libc::SI_TKILL) {
            return fail(libc::EPERM);
        }
        given
    };
    signal::send_to_process(pid, info).map(|()| 0)
}
