//! The end of a process.
//!
//! It ends itself, with the turn, whoever wants its end: a process that another one kills is given the turn with the order to end, and gives
//! it back. So it can clean up what only it can reach (its memory with robust mutexes in it), and others see its end at one
//! point. Then it hands the turn on and really ends; the next process with the turn waits until it is gone ([`crate::turn::handover`]).

use super::ProcessHandle;
use super::{Life, Process, all, children_key, forget, handle, this, threads_of, vfork_key};
use crate::files::inputs;
use crate::kernel::thread::{self, Thread};
use crate::kernel::{Kernel, kernel};
use crate::local;
use crate::local::header;
use crate::sys;
use crate::turn::{self, output, trace};
use core::sync::atomic::Ordering;
use libc::{c_int, pid_t};
use skein_arena::layout::state;
use skein_arena::pool::Handle;
use skein_libos::file::wait;
use skein_libos::signal;
use skein_model::OutFrame;

/// In [`Process::order`]: the wait status to end with is in the lower bits.
const ORDERED: u32 = 1 << 31;

/// This process ends with an exit status.
pub fn exit(status: c_int) -> ! {
    end((status & 0xff) << 8)
}

/// This process ends with a wait status.
pub fn end(wait_status: c_int) -> ! {
    if !local::ready() {
        die(wait_status);
    }
    let k = kernel();
    if k.processes.live.get() == 1 {
        // The reason of its end may be the content of a file.
        inputs::settle(k);
    }
    leave(k, wait_status);
    depart(k, None, wait_status)
}

/// Ends process `target` with a wait status, as by SIGKILL; returns when it is gone. Does not return when it is this one.
pub fn terminate(k: &Kernel, target: ProcessHandle, wait_status: c_int) {
    if target == handle() {
        end(wait_status);
    }
    let p = k.processes.get(target);
    if p.life.get() != Life::Alive {
        return;
    }
    p.order.set(ORDERED | wait_status as u32);
    k.killer.set(Some(k.current()));
    turn::handover::hand_over(k, target);
}

/// Carrier that has just got the turn: ends its process if it was ordered to.
pub fn obey(k: &Kernel) {
    let order = this().order.replace(0);
    if order & ORDERED == 0 {
        return;
    }
    let wait_status = (order & !ORDERED) as c_int;
    // Until it is gone, one of its threads is the turn's holder.
    let (mine, _) = threads_of(k, handle()).next().expect("a process has a thread");
    k.current.set(mine.raw());
    leave(k, wait_status);
    depart(k, k.killer.take(), wait_status)
}

/// Removes the process from everything that others see.
fn leave(k: &Kernel, wait_status: c_int) {
    let (me, p) = (handle(), this());
    for (thread, t) in threads_of(k, me) {
        trace::leaves(thread.raw(), 0);
        abandon(k, thread, t);
    }
    skein_libos::ipc::process_ended(k, me);
    p.table.close_all(k);
    super::shared::forget_all(k, p);
    signal::process_ended(k, me);
    for (thread, _) in threads_of(k, me) {
        thread::discard(k, thread);
    }
    p.threads.set(0);
    p.left.ended(p);
    release_groups(k, me);
    orphan(k, me);
    p.life.set(Life::Zombie);
    p.status.set(wait_status);
    skein_libos::process::pidfd::ended(k, p);
    k.processes.live.set(k.processes.live.get() - 1);
    if k.processes.root.get() == Some(me) {
        k.processes.root.set(None);
        k.processes.root_status.set(wait_status);
    }
    k.keys.wake(k, vfork_key(me), u32::MAX, u32::MAX);
    // The next process with the turn waits until the kernel has released them.
    crate::files::lock::released(k);
    match p.parent.get() {
        Some(parent) => tell(k, parent, me),
        // init's: it asks no parent.
        None => forget(k, me),
    }
}

/// A thread never runs again.
pub fn abandon(k: &Kernel, thread: Handle<Thread>, t: &Thread) {
    match t.life.get() {
        skein_libos::thread::Life::Runnable => k.run_queue.remove(&k.threads, thread),
        skein_libos::thread::Life::Stopped => k.set_aside.remove(&k.threads, thread),
        _ => {}
    }
    k.timers.clear_thread(k, thread);
    signal::abandon(k, t);
    k.keys.abandon(k, thread);
    crate::turn::spins::abandon(k, t);
    skein_libos::ipc::abandon(k, thread);
    wait::abandon(k, t);
    t.held.drop_all(k);
    skein_libos::sync::mutex::owner_gone(k, thread);
}

/// Where only this process could continue stopped ones of a group, they continue by themselves.
fn release_groups(k: &Kernel, me: ProcessHandle) {
    let (p, parent) = (k.processes.get(me), k.processes.get(me).parent.get());
    let watches = |watcher: &Process, group, session| {
        watcher.group.get() != group && watcher.session.get() == session
    };
    let (group, session) = (p.group.get(), p.session.get());
    if parent.is_some_and(|parent| watches(k.processes.get(parent), group, session)) {
        signal::stop::release_orphans(k, group, me);
    }
    for (_, c) in all(k).filter(|(_, c)| c.parent.get() == Some(me)) {
        if watches(p, c.group.get(), c.session.get()) {
            signal::stop::release_orphans(k, c.group.get(), me);
        }
    }
}

/// The children of an ended process become those of the nearest subreaper above it, or init's.
fn orphan(k: &Kernel, me: ProcessHandle) {
    let mut heir = k.processes.get(me).parent.get();
    while let Some(h) = heir
        && !k.processes.get(h).subreaper.get()
    {
        heir = k.processes.get(h).parent.get();
    }
    for (child, c) in all(k) {
        if c.parent.get() != Some(me) {
            continue;
        }
        c.parent.set(heir);
        let signo = c.parent_end_signal.get();
        if signo != 0 && c.life.get() == Life::Alive {
            let _ =
                signal::post(k, signal::Target::Process(child), signal::Info::sent(k, signo, 0));
        }
        match (c.life.get(), heir) {
            (Life::Zombie, None) => forget(k, child),
            (Life::Zombie, Some(heir)) => tell(k, heir, child),
            _ => {}
        }
    }
}

/// `child` of `parent` has ended.
fn tell(k: &Kernel, parent: ProcessHandle, child: ProcessHandle) {
    let c = k.processes.get(child);
    let info = signal::Info::of_child(k, c, c.status.get());
    let _ = signal::post(k, signal::Target::Process(parent), info);
    if k.processes.get(parent).forgets_children.get() {
        forget(k, child);
    }
    k.keys.wake(k, children_key(parent), u32::MAX, u32::MAX);
}

/// Hands the turn to `to`, or to the next thread, and really ends.
fn depart(k: &Kernel, to: Option<Handle<Thread>>, wait_status: c_int) -> ! {
    if k.processes.live.get() == 0 {
        output::emit(OutFrame::Exit { status: k.processes.root_status.get() });
        header().server_state.store(state::ENDED, Ordering::Release);
        output::wake_node();
        header().deaths.fetch_add(1, Ordering::Release);
        die(wait_status);
    }
    k.gone.set(own_pid());
    let next = match to {
        Some(thread) => {
            k.current.set(thread.raw());
            k.threads.get(thread).process.get()
        }
        None => turn::leave(k),
    };
    let next = next.unwrap_or_else(|| {
        // Nobody can run: any process can wait for the next entry.
        all(k).find(|(_, p)| p.life.get() == Life::Alive).expect("a process is alive").0
    });
    header().deaths.fetch_add(1, Ordering::Release);
    turn::handover::wake(k, next);
    die(wait_status)
}

fn own_pid() -> pid_t {
    // SAFETY: no arguments.
    unsafe { sys::raw(libc::SYS_getpid, sys::args([])) as pid_t }
}

/// The real end.
fn die(wait_status: c_int) -> ! {
    if libc::WIFSIGNALED(wait_status) {
        let signal = libc::WTERMSIG(wait_status) as usize;
        let default = [0usize; 4];
        let mask = !(1u64 << (signal - 1));
        for signal in [signal, libc::SIGKILL as usize] {
            // SAFETY: the kernel's own structures: an action of four words, a mask of one; then the end.
            unsafe {
                sys::raw(
                    libc::SYS_rt_sigaction,
                    sys::args([signal, default.as_ptr() as usize, 0, 8]),
                );
                sys::raw(
                    libc::SYS_rt_sigprocmask,
                    sys::args([libc::SIG_SETMASK as usize, &raw const mask as usize, 0, 8]),
                );
                sys::raw(
                    libc::SYS_tgkill,
                    sys::args([own_pid() as usize, sys::gettid() as usize, signal]),
                );
            }
        }
    }
    sys::exit_group(libc::WEXITSTATUS(wait_status))
}
