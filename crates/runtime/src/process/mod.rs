//! The processes of the server: all share one kernel in the arena, and one thread of them all runs at a time.
//!
//! A process is a real one, with memory, descriptors of the kernel's and a carrier of its own; what it is to the server (its parent, its
//! descriptors, its end) is a [`Process`] in the arena. Every process is a child of init, whatever its parent here: so init sees every end.
//!
//! - [`fork`]: how one begins. - [`handover`]: how the turn goes from one to another. - [`end`]: how one ends, by itself or killed.
//! - [`cores`]: on which core they do that; [`stint`]: for how long at a time the server is busy. - [`exec`]: how it executes another program; [`image`]: what that would see that differs.
//! - [`pidfd`]: processes as descriptors. - [`shared`]: memory that several of them have. - [`wait`]: how its parent learns of that. - [`group`]: groups, sessions, parents.
//!
//! Invariant: the code that runs belongs to the process of the turn's holder ([`this`] is [`Kernel::current`]'s process), but for a process
//! that another one ends ([`end::terminate`]).

pub mod cores;
pub mod end;
pub mod exec;
pub mod fork;
pub mod group;
pub mod handover;
pub mod image;
pub mod pidfd;
pub mod shared;
pub mod spawn;
pub mod stint;
pub mod wait;

use crate::io::table::Table;
use crate::kernel::Kernel;
use crate::local::LOCAL;
use crate::thread::Thread;
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{c_int, pid_t};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::keys::Key;
use skein_libos::room::Room;

/// Processes at one time, those that ended and were not waited for included: 1,024.
pub const MAX_PROCESSES: u32 = 1 << 10;

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Life {
    /// There is none.
    Free = 0,
    /// It has threads.
    Alive = 1,
    /// It has ended, and its parent has not waited for it.
    Zombie = 2,
}

/// A process of the server.
#[repr(C)]
pub struct Process {
    /// The pool's.
    _free: Cell<u32>,
    /// Whether there is one.
    pub life: Cell<Life>,
    /// Its id, the kernel's.
    pub pid: Cell<pid_t>,
    /// Its group and session.
    pub group: Cell<pid_t>,
    /// Its session.
    pub session: Cell<pid_t>,
    /// Its wait status when it has ended.
    pub status: Cell<c_int>,
    /// Whether a signal has stopped it.
    pub stopped: Cell<bool>,
    /// The wait status of its last stop, or of its going on, that its parent has not seen; 0: none.
    pub report: Cell<c_int>,
    /// Its parent; none is init.
    pub parent: Link<Process>,
    /// Its threads that have not ended.
    pub threads: Cell<u32>,
    /// One of its threads has ended by the system call `exit`, unseen by libc ([`crate::thread`]).
    pub ended_around_libc: Cell<bool>,
    /// Counts up: children are waited for in the order of their birth.
    pub born: Cell<u64>,
    /// Orphans below it become its children.
    pub subreaper: Cell<bool>,
    /// Its children vanish when they end (SIGCHLD is ignored).
    pub forgets_children: Cell<bool>,
    /// It has executed another program since its birth.
    pub executed: Cell<bool>,
    /// It is doing so: the next thing that is heard of it comes from the new program.
    pub executing: Cell<bool>,
    /// What it leaves for the parent whose memory it would share.
    pub left: spawn::Left,
    /// The signal that it gets when its parent ends; 0 for none.
    pub parent_end_signal: Cell<c_int>,
    /// How unimportant it has made itself: remembered, without effect.
    pub nice: Cell<c_int>,
    /// Resource limits that it has set itself, a bit each.
    pub limits_set: Cell<u32>,
    /// The limit of its address space that it has set, soft and hard.
    pub space_limit: Cell<(u64, u64)>,
    /// Where its carrier sleeps while another process has the turn.
    go: AtomicU32,
    /// What its carrier is to do when it wakes: 0, or [`end`]'s order to end.
    order: Cell<u32>,
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
pub fn handle() -> Handle<Process> {
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
fn become_process(k: &Kernel, process: Handle<Process>) {
    let p = k.processes.get(process);
    LOCAL.process.store(core::ptr::from_ref(p).cast_mut().cast(), Ordering::Relaxed);
    LOCAL.process_number.store(process.raw(), Ordering::Relaxed);
    shared::begin(k);
}

/// Makes the first process, of which all others are descendants.
pub fn adopt_root(k: &Kernel, pid: pid_t) -> Handle<Process> {
    let root = k.processes.alloc().expect("an empty process table");
    let p = k.processes.get(root);
    p.life.set(Life::Alive);
    p.pid.set(pid);
    // It was made the leader of a group and a session of its own.
    p.group.set(pid);
    p.session.set(pid);
    k.root.set(Some(root));
    k.live_processes.set(1);
    become_process(k, root);
    root
}

/// All processes, by number.
pub fn all(k: &Kernel) -> impl Iterator<Item = (Handle<Process>, &Process)> {
    (1..=k.processes.high())
        .filter_map(Handle::from_raw)
        .map(|handle| (handle, k.processes.get(handle)))
        .filter(|(_, p)| p.life.get() != Life::Free)
}

/// The process with this id, ended ones included.
pub fn find(k: &Kernel, pid: pid_t) -> Option<Handle<Process>> {
    all(k).find(|(_, p)| p.pid.get() == pid).map(|(handle, _)| handle)
}

/// All threads of a process.
pub fn threads_of(
    k: &Kernel,
    process: Handle<Process>,
) -> impl Iterator<Item = (Handle<Thread>, &Thread)> {
    (1..=k.threads.high())
        .filter_map(Handle::from_raw)
        .map(|handle| (handle, k.threads.get(handle)))
        .filter(move |(_, t)| t.process.get() == Some(process))
}

/// Frees a process's place.
fn forget(k: &Kernel, process: Handle<Process>) {
    let p = k.processes.get(process);
    pidfd::reaped(k, p);
    p.root.clear(k);
    p.life.set(Life::Free);
    k.processes.free(process);
}

/// Where a process's threads wait for its children.
pub(crate) fn children_key(process: Handle<Process>) -> Key {
    Key::of_runtime(1, process.raw())
}

/// Where a parent waits for a child to execute a program or to end (`vfork`).
fn vfork_key(process: Handle<Process>) -> Key {
    Key::of_runtime(2, process.raw())
}
