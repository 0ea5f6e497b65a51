//! Signals: the part that is Linux's and glibc's. The rest is the library's ([`skein_libos::signal`]): receivers, pending signals, masks.
//!
//! - [`calls`], [`wait`], [`timer`]: the server's calls, operations of the library on its pointers.
//! - [`deliver`] builds the frames of handlers and calls them, at the end of an operation of the thread that takes the signal.
//! - [`fault`] has the kernel's own handlers: faults of the server, and signals from outside, which are ignored.
//! - [`alternate`] has the alternate stacks.
//! - `entry/hooks/jump.rs` saves and restores the mask with `sigsetjmp` and `siglongjmp`.

mod alternate;
pub mod calls;
pub mod deliver;
pub mod fault;
pub mod timer;
pub mod wait;

use crate::kernel::kernel;
use crate::sys;
use crate::turn;
use libc::c_int;
use skein_libos::errno::Result;
use skein_libos::signal::{action, send};
use skein_sched::op::{Kind, Object};

pub use alternate::{NONE as NO_ALTERNATE, set_alternate};
pub use deliver::{boundary, boundary_of, boundary_of_call, deliver, interrupted};
pub use skein_libos::signal::{Action, FAULTS, Info, LAST, bit, is_due};

/// A signal that the turn's holder sends.
pub fn sent(signo: c_int, code: c_int) -> Info {
    Info::sent(kernel(), signo, code)
}

/// From the server's own `siginfo` (`rt_sigqueueinfo`).
///
/// # Safety
/// `from` is a valid `siginfo`.
pub unsafe fn read_info(from: *const libc::siginfo_t) -> Info {
    // SAFETY: the caller's contract; a `siginfo` is larger.
    unsafe { from.cast::<Info>().read() }
}

/// The whole `siginfo`.
///
/// # Safety
/// `out` is the server's to write.
pub unsafe fn write_info(info: &Info, out: *mut libc::siginfo_t) {
    // SAFETY: the caller's contract; the rest is zero, as the kernel leaves it.
    unsafe {
        out.cast::<u8>().write_bytes(0, size_of::<libc::siginfo_t>());
        out.cast::<Info>().write(*info);
    }
}

/// All of the server is one user's.
pub fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys::raw(libc::SYS_getuid, sys::args([])) as u32 }
}

/// The real group of the server's processes.
pub fn group() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys::raw(libc::SYS_getgid, sys::args([])) as u32 }
}

/// `sigprocmask` on kernel's sets: changes the mask, answers the one before.
pub fn change_mask(how: c_int, set: Option<u64>) -> Result<u64> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    skein_libos::signal::change_mask(&*turn, how, set)
}

/// `sigaction`: answers what was set before.
pub fn set_action(signo: c_int, action: Option<Action>) -> Result<Action> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    action::set(&*turn, signo, action)
}

/// `siginterrupt`.
pub fn set_interrupting(signo: c_int, interrupts: bool) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Set);
    let before = action::set(&*turn, signo, None)?;
    let action = action::set_interrupting(&*turn, signo, interrupts, before);
    action::set(&*turn, signo, Some(action)).map(|_| ())
}

/// What is pending for the turn's holder and blocked.
pub fn pending() -> u64 {
    let turn = turn::enter(Object::Signals, Kind::Ask);
    skein_libos::signal::pending(&*turn)
}

/// Sends `info` to the processes that `kill` means by `pid`.
pub fn send_to_process(pid: libc::pid_t, info: Info) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Send);
    send::to_process(&*turn, pid, info)
}

/// Sends `info` to the thread with this id, of process `pid` when that is given.
pub fn send_to_thread(pid: Option<libc::pid_t>, tid: libc::pid_t, info: Info) -> Result<()> {
    let turn = turn::enter(Object::Signals, Kind::Send);
    send::to_thread_id(&*turn, pid, tid, info)
}

/// `abort`: the handler of SIGABRT runs, and when it returns the default action is taken.
pub fn abort() -> ! {
    let turn = turn::enter(Object::Signals, Kind::Exit);
    send::abort(&*turn)
}
