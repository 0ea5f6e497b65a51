//! A parent's news about its children's ends.

use super::ProcessHandle;
use super::{Life, Process, all, children_key, forget, handle, pidfd, this};
use crate::kernel::Kernel;
use crate::{signal, turn};
use libc::{c_int, pid_t};
use skein_libos::errno::{Errno, Result};
use skein_libos::process::wait::told;
use skein_libos::thread::{Wake, cancellable};
use skein_sched::op::{Kind, Object};

/// The selected children.
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

/// The events that a wait is for: bits of the options.
const EVENTS: c_int = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;
/// Options that change nothing: all children are children of the process.
const HARMLESS: c_int = libc::__WALL | libc::__WNOTHREAD;

/// A child's news of this kind: a wait status.
fn news(c: &Process, events: c_int) -> Option<c_int> {
    let report = c.report.get();
    match c.life.get() {
        Life::Zombie => (events & libc::WEXITED != 0).then(|| c.status.get()),
        _ if report == 0 => None,
        _ if libc::WIFSTOPPED(report) => (events & libc::WSTOPPED != 0).then_some(report),
        _ => (events & libc::WCONTINUED != 0).then_some(report),
    }
}

/// A matching child with news, the first born.
fn find(
    k: &Kernel,
    which: Which,
    events: c_int,
) -> Result<Option<(ProcessHandle, &Process, c_int)>> {
    let me = Some(handle());
    let mut fits = false;
    let mut first: Option<(ProcessHandle, &Process, c_int)> = None;
    for (child, c) in all(k) {
        if c.parent.get() != me || !which.fits(c) {
            continue;
        }
        fits = true;
        if let Some(status) = news(c, events)
            && first.is_none_or(|(_, f, _)| c.born.get() < f.born.get())
        {
            first = Some((child, c, status));
        }
    }
    if fits { Ok(first) } else { Err(Errno(libc::ECHILD)) }
}

/// `waitid` without its arguments: a child that has ended, stopped or gone on, and its wait status; `None` when there is none yet and
/// `WNOHANG` is asked for.
pub fn wait(which: Which, options: c_int) -> Result<Option<(pid_t, c_int)>> {
    let turn = turn::enter(Object::Processes, Kind::Join);
    if options & !(EVENTS | HARMLESS | libc::WNOHANG | libc::WNOWAIT | libc::__WCLONE) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if options & libc::__WCLONE != 0 && options & libc::__WALL == 0 {
        // Children that do not send SIGCHLD at their end: there are none.
        return Err(Errno(libc::ECHILD));
    }
    let (k, events) = (&*turn, options & EVENTS);
    loop {
        if let Some((child, c, status)) = find(k, which, events)? {
            let found = (c.pid.get(), status);
            if options & libc::WNOWAIT == 0 {
                c.report.set(0);
                if c.life.get() == Life::Zombie {
                    forget(k, child);
                }
            }
            return Ok(Some(found));
        }
        if options & libc::WNOHANG != 0 {
            return Ok(None);
        }
        let why = cancellable(k, || k.keys.wait(k, children_key(handle()), u32::MAX, None));
        // A child that has news meanwhile comes first, and its SIGCHLD after the call.
        if why == Wake::Interrupted
            && find(k, which, events)?.is_none()
            && !signal::interrupted(true)
        {
            return Err(Errno(libc::EINTR));
        }
    }
}

/// `wait4`: the status goes to `status`; the child's resource use is "not known": zero.
pub fn wait4(
    pid: pid_t,
    status: *mut c_int,
    options: c_int,
    usage: *mut libc::rusage,
) -> Result<pid_t> {
    if options & (libc::WNOWAIT | libc::WEXITED) != 0 || pid == pid_t::MIN {
        return Err(Errno(if pid == pid_t::MIN { libc::ESRCH } else { libc::EINVAL }));
    }
    let Some((pid, ended)) = wait(Which::of(pid), options | libc::WEXITED)? else { return Ok(0) };
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
    let mut which_hasty = false;
    let which = match kind as libc::idtype_t {
        libc::P_PID if id as pid_t > 0 => Which::One(id as pid_t),
        libc::P_ALL => Which::Any,
        libc::P_PGID if id == 0 => Which::Group(this().group.get()),
        libc::P_PGID => Which::Group(id as pid_t),
        libc::P_PIDFD => {
            let (pid, hasty) = pidfd::process_of(id as c_int)?;
            turn::end();
            // A process that was waited for is no longer a child.
            which_hasty = hasty;
            Which::One(pid.unwrap_or(0))
        }
        _ => return Err(Errno(libc::EINVAL)),
    };
    if options & EVENTS == 0 {
        return Err(Errno(libc::EINVAL));
    }
    let hasty = if which_hasty { libc::WNOHANG } else { 0 };
    let found = wait(which, options | hasty)?;
    if found.is_none() && options & libc::WNOHANG == 0 {
        return Err(Errno(libc::EAGAIN));
    }
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
        let (code, value) = told(status);
        let words = info.cast::<c_int>();
        words.write(libc::SIGCHLD);
        words.add(2).write(code);
        words.add(4).write(pid);
        words.add(5).write(libc::getuid() as c_int);
        words.add(6).write(value);
    }
}
