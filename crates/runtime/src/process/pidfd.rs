//! pidfds: descriptors of processes. They become readable when the process ends, and name no process when it has been waited for.

use super::{Life, Process, find};
use crate::kernel::{Kernel, kernel};
use crate::signal;
use crate::turn;
use libc::{c_int, pid_t};
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Errno, Result, fail};
use skein_libos::file::{self, File, Kind, ready};
use skein_sched::op::{Kind as Op, Object};

/// pidfds at one time, copies not counted: 4,096.
pub const MAX_PIDFDS: u32 = 4 << 10;

/// A pidfd.
#[repr(C)]
pub struct PidFd {
    node: Node<PidFd>,
    /// None when the process has been waited for.
    process: Link<skein_libos::Process>,
    file: Link<File>,
}

/// A pidfd's place among those of its process.
pub struct OfProcess;
/// The pidfds of a process.
pub type PidFds = List<PidFd, OfProcess>;

// SAFETY: links; all-zero is of no process.
unsafe impl ArenaObject for PidFd {}
impl In<OfProcess> for PidFd {
    fn node(&self) -> &Node<PidFd> {
        &self.node
    }
}

/// `pidfd_open`.
pub fn open(pid: pid_t, flags: u32) -> Result<usize> {
    let turn = turn::enter(Object::Processes, Op::Open);
    let nonblock = libc::O_NONBLOCK;
    if pid <= 0 || flags & !(nonblock as u32) != 0 {
        return fail(libc::EINVAL);
    }
    let k = &*turn;
    let process = find(k, pid).ok_or(Errno(libc::ESRCH))?;
    let Some(pidfd) = k.pidfds.alloc() else { return fail(libc::ENFILE) };
    let status = libc::O_RDWR | flags as i32 & nonblock;
    let made = file::create(k, Kind::PidFd, pidfd.raw(), status)
        .and_then(|file| Ok((file, file::install(k, file, true)?)));
    match made {
        Ok((file, fd)) => {
            let p = k.pidfds.get(pidfd);
            p.process.set(Some(process));
            p.file.set(Some(file));
            k.processes.get(process).pidfds.push_back(&k.pidfds, pidfd);
            Ok(fd as usize)
        }
        Err(e) => {
            k.pidfds.free(pidfd);
            Err(e)
        }
    }
}

/// The last reference to its file is gone.
pub fn release(k: &Kernel, pidfd: Handle<PidFd>) {
    if let Some(process) = k.pidfds.get(pidfd).process.take() {
        k.processes.get(process).pidfds.remove(&k.pidfds, pidfd);
    }
    k.pidfds.free(pidfd);
}

/// Readiness.
pub fn mask(k: &Kernel, pidfd: Handle<PidFd>) -> u32 {
    let process = k.pidfds.get(pidfd).process.get();
    let lives = process.is_some_and(|p| k.processes.get(p).life.get() == Life::Alive);
    if lives { 0 } else { ready::IN }
}

/// A process has ended.
pub(super) fn ended(k: &Kernel, p: &Process) {
    let mut at = p.pidfds.front();
    while let Some(pidfd) = at {
        file::notify(k, k.pidfds.get(pidfd).file.get(), ready::IN);
        at = p.pidfds.next(&k.pidfds, pidfd);
    }
}

/// A process has been waited for: its pidfds name no process.
pub(super) fn reaped(k: &Kernel, p: &Process) {
    while let Some(pidfd) = p.pidfds.pop_front(&k.pidfds) {
        k.pidfds.get(pidfd).process.set(None);
    }
}

/// The id of a pidfd's process, none when that has been waited for, and whether calls on it do not block.
///
/// # Errors
/// `EBADF` when it is no pidfd.
pub(super) fn process_of(fd: c_int) -> Result<(Option<pid_t>, bool)> {
    let k = kernel();
    let file = k.file(fd).ok_or(Errno(libc::EBADF))?;
    let f = k.fds.files.get(file);
    let pidfd = f.as_kind::<PidFd>(Kind::PidFd).ok_or(Errno(libc::EBADF))?;
    let process = k.pidfds.get(pidfd).process.get();
    Ok((process.map(|process| k.processes.get(process).pid.get()), f.nonblocking()))
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
