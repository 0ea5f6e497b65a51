//! The birth of a process: as a copy of another.
//!
//! libc's own `fork` runs, with its handlers and locks; its system call comes through the net to [`clone`]. The child sleeps at once until it is
//! given the turn: libc and the server do their work after the fork with the turn.

use super::ProcessHandle;
use super::{Life, become_process, handle, shared, this, vfork_key};
use crate::fatal::{line, refused};
use crate::kernel::thread::{self, Thread};
use crate::kernel::{Kernel, kernel, name};
use crate::sys;
use crate::turn;
use crate::{context, original, patch, signal, stack};
use libc::pid_t;
use skein_arena::pool::Handle;
use skein_libos::errno::{Errno, Result};
use skein_libos::thread::Wake;
use skein_sched::op::{Kind, Object};

/// The allowed flags of a fork, besides the signal at its end.
const KNOWN: u32 =
    (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::CLONE_PARENT_SETTID) as u32;

/// Namespaces of the child's own, which a process without privileges may not make.
const NAMESPACES: u32 = (libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u32;

/// Whether the arguments of `clone` ask for a process that has a copy of all memory and goes on with its parent's stack.
pub fn is_plain(a: [usize; 6]) -> bool {
    a[1] == 0 && a[0] as u32 & (libc::CLONE_THREAD as u32 | SHARING) == 0
}

/// `fork`.
pub fn fork() -> Result<i32> {
    // SAFETY: libc's own fork, with its handlers; it makes `clone`.
    let pid = unsafe { original::real!(fork: fn() -> pid_t)() };
    if pid < 0 {
        // SAFETY: this thread's errno.
        return Err(Errno(unsafe { *libc::__errno_location() }));
    }
    Ok(pid)
}

/// `vfork`: a fork whose parent goes on when the child has executed a program or ended.
pub fn vfork() -> Result<i32> {
    let pid = fork()?;
    if pid == 0 {
        return Ok(0);
    }
    let k = kernel();
    if let Some(child) = super::find(k, pid) {
        await_program(k, child, pid);
    }
    Ok(pid)
}

/// The system call `clone` that makes a process. A child that asked for a stack of its own goes on there: `on_stack` is told.
///
/// A child that would share its parent's memory while that waits (`posix_spawn`, and with it `system` and `popen`) has a copy, too
/// ([`super::spawn`]).
///
/// # Safety
/// The arguments are those of the call.
pub unsafe fn clone(a: [usize; 6], on_stack: impl FnOnce(usize)) -> Result<usize> {
    crate::uses::note(crate::uses::Use::Processes);
    let turn = turn::enter(Object::Processes, Kind::Create);
    let flags = a[0] as u32;
    let shares = flags & SHARING;
    if flags & NAMESPACES != 0 {
        refused(line!("clone with flags {flags:#x}").bytes());
        return Err(Errno(libc::EPERM));
    }
    if flags & 0xff != libc::SIGCHLD as u32
        || flags & !0xff & !KNOWN & !SHARING != 0
        || (shares != 0 && shares != SHARING)
    {
        refused(line!("clone with flags {flags:#x}").bytes());
        return Err(Errno(libc::EINVAL));
    }
    let k = &*turn;
    patch::before_fork();
    let (process, thread) = prepare(k)?;
    let p = k.processes.get(process);
    if shares != 0 {
        // SAFETY: the caller's arguments: a stack as libc's `clone` makes it.
        unsafe { p.left.note(a[1]) };
    }
    let real = flags & !SHARING | libc::CLONE_PARENT as u32;
    // SAFETY: a fork, on the same stack; all processes are children of the first one's parent, which sees all their ends.
    let result = unsafe { sys::call(libc::SYS_clone, [real as usize, 0, a[2], a[3], a[4], 0]) };
    match result {
        Ok(0) => {
            become_process(k, process);
            super::written::begin();
            if context::fs_base() != turn::carrier::main_fs() {
                // The kernel has given it the carrier's.
                name::give(&k.threads.get(thread).name.get());
            }
            turn::carrier::be_main();
            stack::forked(k.threads.get(thread).stack.get());
            turn::above::above().forked();
            turn::handover::sleep(k);
            debug_assert_eq!(k.current(), thread);
            if a[1] != 0 {
                on_stack(a[1]);
            }
            Ok(0)
        }
        Ok(pid) => {
            p.pid.set(pid as pid_t);
            k.last_number.set(pid as u32);
            k.threads.get(thread).tid.set(pid as u32);
            k.processes.live.set(k.processes.live.get() + 1);
            thread::let_run(k, thread);
            if shares != 0 {
                await_program(k, process, pid as pid_t);
                if p.pid.get() == pid as pid_t {
                    p.left.bring_over();
                }
            }
            Ok(pid)
        }
        Err(e) => {
            p.table.close_all(k);
            shared::forget_all(k, p);
            super::forget(k, process);
            thread::discard(k, thread);
            Err(e)
        }
    }
}

/// Shares memory with its parent, which waits until it does not need it any more.
const SHARING: u32 = (libc::CLONE_VM | libc::CLONE_VFORK) as u32;

/// Waits until a child has executed a program or ended.
fn await_program(k: &Kernel, child: ProcessHandle, pid: pid_t) {
    let c = k.processes.get(child);
    while c.pid.get() == pid && c.life.get() == Life::Alive && !c.executed.get() {
        if k.keys.wait(k, vfork_key(child), u32::MAX, None) == Wake::Interrupted {
            signal::deliver(k);
        }
    }
}

/// The child's process and its only thread, a copy of the one that forks.
fn prepare(k: &Kernel) -> Result<(ProcessHandle, Handle<Thread>)> {
    let Some(process) = k.processes.alloc() else { return Err(Errno(libc::EAGAIN)) };
    let Some(thread) = thread::copy_current(k, process) else {
        super::forget(k, process);
        return Err(Errno(libc::EAGAIN));
    };
    let (p, parent) = (k.processes.get(process), this());
    if !parent.table.copy_to(k, &p.table)
        || !shared::copy(k, parent, p)
        || !p.root.copy_from(k, &parent.root)
    {
        p.table.close_all(k);
        shared::forget_all(k, p);
        super::forget(k, process);
        thread::discard(k, thread);
        return Err(Errno(libc::ENOMEM));
    }
    p.life.set(Life::Alive);
    p.parent.set(Some(handle()));
    p.group.set(parent.group.get());
    p.session.set(parent.session.get());
    p.forgets_children.set(parent.forgets_children.get());
    p.told.copy_from(&parent.told);
    p.nice.set(parent.nice.get());
    p.limits_set.set(parent.limits_set.get());
    p.space_limit.set(parent.space_limit.get());
    p.subreaper.set(false);
    p.parent_end_signal.set(0);
    p.threads.set(1);
    p.ended_around_libc.set(false);
    skein_libos::signal::forked(parent, p);
    p.born.set(k.processes.births.get());
    k.processes.births.set(k.processes.births.get() + 1);
    Ok((process, thread))
}
