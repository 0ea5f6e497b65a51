//! Groups, sessions and parents: known in the library only. To the kernel all processes of the server are in the group and session of the first.

use super::{Life, ProcessHandle, all, find, handle, this};
use crate::abi;
use crate::errno::{Errno, Result, fail};
use crate::host::Host;

/// init's id in the server's namespace.
const INIT: i32 = 1;

/// `getppid`.
pub fn parent(k: &impl Host) -> i32 {
    this(k).parent.get().map_or(INIT, |parent| k.processes.get(parent).pid.get())
}

/// The process that a call names: 0 is the caller.
fn meant(k: &impl Host, pid: i32) -> Result<ProcessHandle> {
    match pid {
        0 => Ok(handle(k)),
        _ => find(k, pid).ok_or(Errno(abi::ESRCH)),
    }
}

/// `getpgid`.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn group_of(k: &impl Host, pid: i32) -> Result<i32> {
    Ok(k.processes.get(meant(k, pid)?).group.get())
}

/// `getsid`.
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn session_of(k: &impl Host, pid: i32) -> Result<i32> {
    Ok(k.processes.get(meant(k, pid)?).session.get())
}

/// Whether no process of a group, except one that ends, has a parent in another group of the session: then no process would continue a stopped one.
pub fn is_orphaned(k: &impl Host, group: i32, ends: Option<ProcessHandle>) -> bool {
    !all(k).any(|(handle, p)| {
        p.group.get() == group
            && p.life.get() == Life::Alive
            && ends != Some(handle)
            && p.parent.get().filter(|parent| ends != Some(*parent)).is_some_and(|parent| {
                let parent = k.processes.get(parent);
                parent.group.get() != group && parent.session.get() == p.session.get()
            })
    })
}

/// `setsid`.
///
/// # Errors
/// `EPERM` when the caller leads a group.
pub fn new_session(k: &impl Host) -> Result<i32> {
    let p = this(k);
    let pid = p.pid.get();
    if all(k).any(|(_, other)| other.group.get() == pid) {
        return fail(abi::EPERM);
    }
    p.group.set(pid);
    p.session.set(pid);
    Ok(pid)
}

/// `setpgid`.
///
/// # Errors
/// As Linux's.
pub fn set_group(k: &impl Host, pid: i32, group: i32) -> Result<()> {
    if group < 0 {
        return fail(abi::EINVAL);
    }
    let target = meant(k, pid)?;
    let p = k.processes.get(target);
    let child = p.parent.get() == Some(handle(k));
    if (target != handle(k) && !child) || p.life.get() != Life::Alive {
        return fail(abi::ESRCH);
    }
    if child && p.executed.get() {
        return fail(abi::EACCES);
    }
    let session = p.session.get();
    if session != this(k).session.get() || session == p.pid.get() {
        return fail(abi::EPERM);
    }
    let group = if group == 0 { p.pid.get() } else { group };
    let exists =
        all(k).any(|(_, other)| other.group.get() == group && other.session.get() == session);
    if group != p.pid.get() && !exists {
        return fail(abi::EPERM);
    }
    p.group.set(group);
    Ok(())
}
