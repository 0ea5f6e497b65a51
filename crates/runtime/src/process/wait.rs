//! How a process learns of the end of its children.

use super::{Life, Process, all, children_key, forget, handle, this};
use crate::fatal::refused;
use crate::kernel::{Kernel, kernel};
use crate::sys::{Errno, Result};
use crate::turn::Wake;
use crate::{signal, thread, turn};
use libc::{c_int, pid_t};
use skein_arena::pool::Handle;

/// Which children.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// All.
    Any,
    /// The one with this id.
    One(pid_t),
    /// Those of this group.
    Group(pid_t),
}

impl Which {
    /// From `waitpid`'s first argument.
    pub fn of(pid: pid_t) -> Self {
        match pid {
            -1 => Self::Any,
            0 => Self::Group(this().group.get()),
            ..-1 => Self::Group(pid.wrapping_neg()),
            _ => Self::One(pid),
        }
    }

    fn fits(self, p: &Process) -> bool {
        match self {
            Self::Any => true,
            Self::One(pid) => p.pid.get() == pid,
            Self::Group(group) => p.group.get() == group,
        }
    }
}

/// An ended child that fits, the one that was born first.
fn ended(k: &Kernel, which: Which) -> Result<Option<(Handle<Process>, &Process)>> {
    let me = Some(handle());
    let mut fits = false;
    let mut first: Option<(Handle<Process>, &Process)> = None;
    for (child, c) in all(k) {
        if c.parent.get() != me || !which.fits(c) {
            continue;
        }
        fits = true;
        if c.life.get() == Life::Zombie && first.is_none_or(|(_, f)| c.born.get() < f.born.get()) {
            first = Some((child, c));
        }
    }
    if fits { Ok(first) } else { Err(Errno(libc::ECHILD)) }
}

/// Options that change nothing: no child ever stops, and all are children of the process.
const HARMLESS: c_int = libc::WUNTRACED | libc::WCONTINUED | libc::__WALL | libc::__WNOTHREAD;

/// `wait4` and its relatives: an ended child and its wait status; `None` when there is none yet and `WNOHANG` is asked for.
pub fn wait(which: Which, options: c_int) -> Result<Option<(pid_t, c_int)>> {
    turn::operation();
    if options & !(HARMLESS | libc::WNOHANG | libc::WNOWAIT | libc::WEXITED | libc::__WCLONE) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if options & libc::__WCLONE != 0 && options & libc::__WALL == 0 {
        // Children that do not send SIGCHLD at their end: there are none.
        return Err(Errno(libc::ECHILD));
    }
    let k = kernel();
    loop {
        if let Some((child, c)) = ended(k, which)? {
            let found = (c.pid.get(), c.status.get());
            if options & libc::WNOWAIT == 0 {
                forget(k, child);
            }
            return Ok(Some(found));
        }
        if options & libc::WNOHANG != 0 {
            return Ok(None);
        }
        let why = thread::cancellable(|| k.keys.wait(children_key(handle()), u32::MAX, None));
        // A child that has ended meanwhile comes first, and its SIGCHLD after the call.
        if why == Wake::Interrupted && ended(k, which)?.is_none() && !signal::interrupted(true) {
            return Err(Errno(libc::EINTR));
        }
    }
}

/// `wait4`: the status goes to `status`; what the child used is "not known": zero.
pub fn wait4(
    pid: pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut libc::rusage,
) -> Result<pid_t> {
    if options & (libc::WNOWAIT | libc::WEXITED) != 0 || pid == pid_t::MIN {
        return Err(Errno(if pid == pid_t::MIN { libc::ESRCH } else { libc::EINVAL }));
    }
    let Some((pid, ended)) = wait(Which::of(pid), options)? else { return Ok(0) };
    if !status.is_null() {
        // SAFETY: the server's own pointer, not null.
        unsafe { status.write(ended) };
    }
    if !usage.is_null() {
        // SAFETY: the server's own pointer, not null; all-zero is a valid `rusage`.
        unsafe { usage.write(core::mem::zeroed()) };
    }
    Ok(pid)
}

/// `waitid`.
pub fn waitid(kind: c_int, id: u32, info: *mut libc::siginfo_t, options: c_int) -> Result<()> {
    let which = match kind as libc::idtype_t {
        libc::P_PID if id as pid_t > 0 => Which::One(id as pid_t),
        libc::P_ALL => Which::Any,
        libc::P_PGID if id == 0 => Which::Group(this().group.get()),
        libc::P_PGID => Which::Group(id as pid_t),
        libc::P_PIDFD => {
            refused(b"waitid with P_PIDFD");
            return Err(Errno(libc::EINVAL));
        }
        _ => return Err(Errno(libc::EINVAL)),
    };
    if options & (libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED) == 0 {
        return Err(Errno(libc::EINVAL));
    }
    let found = if options & libc::WEXITED != 0 {
        wait(which, options)?
    } else {
        // Only for stops and continuations, which do not happen here.
        wait(which, options | libc::WNOHANG | libc::WNOWAIT)?;
        if options & libc::WNOHANG == 0 {
            refused(b"waitid for stopped children");
            return Err(Errno(libc::EINVAL));
        }
        None
    };
    if !info.is_null() {
        // SAFETY: the server's own pointer, not null.
        unsafe { describe(info, found) };
    }
    Ok(())
}

/// The kernel's layout: signo, errno, code, padding, pid, uid, status.
unsafe fn describe(info: *mut libc::siginfo_t, found: Option<(pid_t, c_int)>) {
    // SAFETY: the caller's `siginfo_t`, of which seven words are written.
    unsafe {
        info.cast::<u8>().write_bytes(0, size_of::<libc::siginfo_t>());
        let Some((pid, status)) = found else { return };
        let exited = libc::WIFEXITED(status);
        let value = if exited { libc::WEXITSTATUS(status) } else { libc::WTERMSIG(status) };
        let code = if exited { libc::CLD_EXITED } else { libc::CLD_KILLED };
        let words = info.cast::<c_int>();
        words.write(libc::SIGCHLD);
        words.add(2).write(code);
        words.add(4).write(pid);
        words.add(5).write(libc::getuid() as c_int);
        words.add(6).write(value);
    }
}
