//! The processes of the server: all share one kernel in the arena, and one thread of them all runs at a time.
//!
//! A process is a real one, with memory, descriptors of the kernel's and a carrier of its own; what it is to the server (its parent, its
//! descriptors, its end) is a [`Process`] in the arena. Every process is a child of init, whatever its parent here: so init sees every end.
//!
//! - [`fork`]: how one begins. - [`handover`]: how the turn goes from one to another. - [`end`]: how one ends, by itself or killed.
//! - [`cores`]: on which core they do that; [`stint`]: for how long at a time the server is busy. - [`exec`]: how it executes another program; [`crate::image`]: what that would see that differs.
//! - [`pidfd`]: processes as descriptors. - [`shared`]: memory that several of them have. - [`wait`]: how its parent learns of that. - [`group`]: groups, sessions, parents.
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
pub mod wait;

use crate::io::table::Table;
use crate::kernel::Kernel;
use crate::local::LOCAL;
use crate::thread::Thread;
use core::cell::Cell;
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{c_int, pid_t};
use skein_arena::pool::{ArenaObject, Handle};
use skein_libos::room::Room;

pub use skein_libos::process::{
    Life, MAX_PROCESSES, ProcessHandle, all, children_key, find, threads_of, vfork_key,
};

/// A process: the library's part, and what the runtime needs to run it.
#[repr(C)]
pub struct Process {
    /// The pool's.
    _free: Cell<u32>,
    os: skein_libos::Process,
    /// One of its threads has ended by the system call `exit`, unseen by libc ([`crate::thread`]).
    pub ended_around_libc: Cell<bool>,
    /// It is executing another program: the next thing that is heard of it comes from the new program.
    pub executing: Cell<bool>,
    /// What it leaves for the parent whose memory it would share.
    pub left: spawn::Left,
    /// How unimportant it has made itself: remembered, without effect.
    pub nice: Cell<c_int>,
    /// Resource limits that it has set itself, a bit each.
    pub limits_set: Cell<u32>,
    /// The limit of its address space that it has set, soft and hard.
    pub space_limit: Cell<(u64, u64)>,
    /// Where its carrier sleeps while another process has the turn.
    pub go: AtomicU32,
    /// What its carrier is to do when it wakes: 0, or [`end`]'s order to end.
    pub order: Cell<u32>,
    /// Its signals.
    pub signals: crate::signal::ProcessSignals,
    /// Its pidfds.
    pub pidfds: pidfd::PidFds,
    /// Its shared memory.
    pub mappings: shared::Mappings,
    /// The directory that it calls `/`.
    pub root: crate::files::root::Root,
    /// Its descriptors.
    pub table: Table,
}

// SAFETY: cells, links and a table; all-zero is a free process without descriptors.
unsafe impl ArenaObject for Process {}
impl Deref for Process {
    type Target = skein_libos::Process;

    #[inline]
    fn deref(&self) -> &skein_libos::Process {
        &self.os
    }
}

/// Where the id is in a process.
pub const PID_AT: usize = offset_of!(Process, os.pid);

impl Process {
    /// What of all processes is a replica's own: how their carriers wake each other.
    pub fn note_own(room: &Room, processes: *const u8, count: u32) {
        room.own::<Self>(processes, count, offset_of!(Self, go), size_of::<AtomicU32>());
        room.own::<Self>(processes, count, offset_of!(Self, order), size_of::<Cell<u32>>());
    }
}

/// The process that this code runs in.
#[inline]
pub fn this() -> &'static Process {
    // SAFETY: set when the process began, before there is a kernel to ask; the arena is never unmapped.
    unsafe { &*LOCAL.process.load(Ordering::Relaxed).cast::<Process>() }
}

/// The process that this code runs in.
#[inline]
pub fn handle() -> ProcessHandle {
    Handle::from_raw(raw()).expect("a process")
}

/// Its number in the arena.
#[inline]
pub fn raw() -> u32 {
    LOCAL.process_number.load(Ordering::Relaxed)
}

/// Whether a thread belongs to this process.
#[inline]
pub fn is_here(thread: &Thread) -> bool {
    thread.process.get().map_or(0, Handle::raw) == LOCAL.process_number.load(Ordering::Relaxed)
}

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
    pidfd::reaped(k, p);
    p.root.clear(k);
    p.life.set(Life::Free);
    k.processes.free(process);
}
