//! A parent's news about its children's ends.

use crate::abi;

/// Whether a wait status is that of a process that has exited.
const fn exited(status: i32) -> bool {
    status & 0x7f == 0
}

/// Whether a wait status is that of a process that is stopped.
const fn stopped(status: i32) -> bool {
    status & 0xff == 0x7f
}

/// The wait status of a continued process.
pub(crate) const CONTINUED: i32 = 0xffff;

/// The wait status of a stopped process.
pub(crate) const fn stopped_by(signo: i32) -> i32 {
    signo << 8 | 0x7f
}

/// A wait status in the form of `SIGCHLD` and `waitid`: a code, and a status or a signal.
#[must_use]
pub const fn told(status: i32) -> (i32, i32) {
    let high = status >> 8 & 0xff;
    if exited(status) {
        (abi::CLD_EXITED, high)
    } else if stopped(status) {
        (abi::CLD_STOPPED, high)
    } else if status == CONTINUED {
        (abi::CLD_CONTINUED, abi::SIGCONT)
    } else {
        (abi::CLD_KILLED, status & 0x7f)
    }
}
