//! The processes of the server: all share the state in the arena, and one thread of them all runs at a time.
//!
//! A process is a real one, with memory, descriptors of the kernel's and a carrier of its own; its attributes for the server (its parent, its
//! descriptors, its end) are in a [`Process`] in the arena. Every process is a child of init, whatever its parent here: so init sees every end.
//!
//! - [`fork`]: birth. - [`crate::turn::handover`]: passing the turn to another process. - [`end`]: its end, by itself or killed.
//! - [`exec`]: executing another program; [`crate::image`]: the data of that which differ.
//! - [`stand_in`]: a copy that keeps its memory for an image.
//! - [`pidfd`]: calls on processes as descriptors. - [`shared`]: memory of several processes. - [`wait`]: a parent's news about ends. - [`group`]: groups, sessions, parents.
//!
//! Invariant: the code that runs belongs to the process of the turn's holder ([`this`] is [`Kernel::current`]'s process), but for a process
//! that another one ends ([`end::terminate`]).

pub mod end;
pub mod exec;
pub mod fork;
pub mod group;
pub mod pidfd;
pub mod shared;
pub mod spawn;
pub mod stand_in;
pub mod wait;
pub mod written;

use crate::kernel::Kernel;
use crate::local::LOCAL;
use core::sync::atomic::Ordering;
use libc::pid_t;

pub use crate::kernel::process::{Process, handle, raw, this};
pub use skein_libos::process::{
    Life, ProcessHandle, all, children_key, find, threads_of, vfork_key,
};

/// This process is `process` from now on.
fn become_process(k: &Kernel, process: ProcessHandle) {
    let p = k.processes.get(process);
    LOCAL.process.store(core::ptr::from_ref(p).cast_mut().cast(), Ordering::Relaxed);
    LOCAL.process_number.store(process.raw(), Ordering::Relaxed);
    shared::begin(k);
}

/// Makes the first process, of which all others are descendants.
pub fn adopt_root(k: &Kernel, pid: pid_t) -> ProcessHandle {
    let root = k.processes.alloc().expect("an empty process table");
    let p = k.processes.get(root);
    p.life.set(Life::Alive);
    p.pid.set(pid);
    // It was made the leader of a group and a session of its own.
    p.group.set(pid);
    p.session.set(pid);
    k.processes.root.set(Some(root));
    k.processes.live.set(1);
    become_process(k, root);
    root
}

/// Frees a process's place.
fn forget(k: &Kernel, process: ProcessHandle) {
    let p = k.processes.get(process);
    skein_libos::process::pidfd::reaped(k, p);
    p.root.clear(k);
    p.life.set(Life::Free);
    k.processes.free(process);
}
