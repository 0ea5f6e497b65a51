//! Groups, sessions and parents: known here only. To the kernel all processes of the server are in the group and session of the first.

use super::ProcessHandle;
use super::{Life, find, handle, this};
use crate::kernel::Kernel;
use crate::turn;
use libc::pid_t;
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

/// init's id in the server's namespace.
const INIT: pid_t = 1;

/// `getppid`.
pub fn parent() -> pid_t {
    let turn = turn::enter(Object::Processes, Kind::Ask);
    let k = &*turn;
    this().parent.get().map_or(INIT, |parent| k.processes.get(parent).pid.get())
}

/// The process that a call names: 0 is the caller.
fn meant(k: &Kernel, pid: pid_t) -> Result<ProcessHandle> {
    match pid {
        0 => Ok(handle()),
        _ => find(k, pid).ok_or(Errno(libc::ESRCH)),
    }
}

/// `getpgid`.
pub fn group_of(pid: pid_t) -> Result<pid_t> {
    let turn = turn::enter(Object::Processes, Kind::Ask);
    let k = &*turn;
    Ok(k.processes.get(meant(k, pid)?).group.get())
}

/// `getsid`.
pub fn session_of(pid: pid_t) -> Result<pid_t> {
    let turn = turn::enter(Object::Processes, Kind::Ask);
    let k = &*turn;
    Ok(k.processes.get(meant(k, pid)?).session.get())
}

/// `setsid`.
pub fn new_session() -> Result<pid_t> {
    let turn = turn::enter(Object::Processes, Kind::Set);
    let (k, p) = (&*turn, this());
    let pid = p.pid.get();
    if super::all(k).any(|(_, other)| other.group.get() == pid) {
        return Err(Errno(libc::EPERM));
    }
    p.group.set(pid);
    p.session.set(pid);
    Ok(pid)
}

/// `setpgid`.
pub fn set_group(pid: pid_t, group: pid_t) -> Result<()> {
    let turn = turn::enter(Object::Processes, Kind::Set);
    if group < 0 {
        return Err(Errno(libc::EINVAL));
    }
    let k = &*turn;
    let target = meant(k, pid)?;
    let p = k.processes.get(target);
    let child = p.parent.get() == Some(handle());
    if (target != handle() && !child) || p.life.get() != Life::Alive {
        return Err(Errno(libc::ESRCH));
    }
    if child && p.executed.get() {
        return Err(Errno(libc::EACCES));
    }
    let session = p.session.get();
    if session != this().session.get() || session == p.pid.get() {
        return Err(Errno(libc::EPERM));
    }
    let group = if group == 0 { p.pid.get() } else { group };
    let exists = super::all(k)
        .any(|(_, other)| other.group.get() == group && other.session.get() == session);
    if group != p.pid.get() && !exists {
        return Err(Errno(libc::EPERM));
    }
    p.group.set(group);
    Ok(())
}
