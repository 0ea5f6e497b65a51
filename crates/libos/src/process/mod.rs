//! The server's processes: parents and children, ends, and the news for parents.
//!
//! A process is a real one of the host's, with memory and threads of its own; its attributes for the server (its parent, its group, its end) are in a
//! [`Process`] in the arena. One thread of all processes runs at a time, so state changes through cells.
//!
//! Invariant: the running code belongs to the process of the turn's holder ([`Host::process`]), except while another process is being ended.

pub mod group;
pub mod pidfd;
pub mod wait;

use crate::file::table::Table;
use crate::host::Host;
use crate::keys::Key;
use crate::room::Room;
use crate::signal::ProcessSignals;
use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Handle, Link, Pool};

/// The most processes, including ended ones that no parent has waited for: 1,024.
pub const MAX_PROCESSES: u32 = 1 << 10;

/// A process by its number in the arena, whatever the host has beside the library's part.
pub type ProcessHandle = Handle<Process>;

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Life {
    /// It does not exist.
    Free = 0,
    /// It has threads.
    Alive = 1,
    /// It has ended, and its parent has not waited for it.
    Zombie = 2,
}

/// The library's part of a process. All-zero bytes are none.
#[repr(C)]
pub struct Process {
    /// Whether there is one.
    pub life: Cell<Life>,
    /// Its id, the kernel's.
    pub pid: Cell<i32>,
    /// Its group.
    pub group: Cell<i32>,
    /// Its session.
    pub session: Cell<i32>,
    /// Its wait status when it has ended.
    pub status: Cell<i32>,
    /// The wait status of its last stop, or of its continuation, that its parent has not seen; 0: none.
    pub report: Cell<i32>,
    /// Its parent; none is init.
    pub parent: Link<Process>,
    /// Its threads that have not ended.
    pub threads: Cell<u32>,
    /// Counts up: children are waited for in the order of their birth.
    pub born: Cell<u64>,
    /// The signal that it gets when its parent ends; 0 for none.
    pub parent_end_signal: Cell<i32>,
    /// Whether a signal has stopped it.
    pub stopped: Cell<bool>,
    /// It is a subreaper: orphans below it become its children.
    pub subreaper: Cell<bool>,
    /// Its children vanish when they end (SIGCHLD is ignored).
    pub forgets_children: Cell<bool>,
    /// It has executed another program since its birth.
    pub executed: Cell<bool>,
    /// Its signals.
    pub signals: ProcessSignals,
    /// Its descriptors.
    pub table: Table,
    /// Those that name it.
    pidfds: pidfd::PidFds,
}

/// All processes; `P` is one as the host has it. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Processes<P> {
    pool: Pool<P>,
    /// Descriptors of processes.
    pidfds: Pool<pidfd::PidFd>,
    /// Those that have not ended.
    pub live: Cell<u32>,
    /// Those that are stopped.
    pub stopped: Cell<u32>,
    /// Those born so far.
    pub births: Cell<u64>,
    /// The first process, while it has not ended.
    pub root: Link<Process>,
    /// The first process's wait status afterwards.
    pub root_status: Cell<i32>,
}

/// The host's pool counts both parts of a process by one number.
fn hosts<P>(process: ProcessHandle) -> Handle<P> {
    Handle::from_raw(process.raw()).expect("a number of a process")
}

impl<P: ArenaObject> Processes<P> {
    /// Takes its memory; answers where the processes are.
    pub fn lay_out(&self, room: &mut Room) -> *const u8 {
        let processes = room.pool(&self.pool, MAX_PROCESSES);
        room.pool(&self.pidfds, pidfd::MAX_PIDFDS);
        processes
    }

    /// A new process, all zero; `None` when there are too many.
    pub fn alloc(&self) -> Option<ProcessHandle> {
        self.pool.alloc().and_then(|process| Handle::from_raw(process.raw()))
    }

    /// Frees a process's place.
    pub fn free(&self, process: ProcessHandle) {
        self.pool.free(hosts(process));
    }

    /// The process.
    #[inline]
    pub fn get(&self, process: ProcessHandle) -> &P {
        self.pool.get(hosts(process))
    }
}

/// The process that the turn's holder belongs to.
#[inline]
pub fn handle<H: Host>(k: &H) -> ProcessHandle {
    Handle::from_raw(k.process()).expect("a process")
}

/// The process that the turn's holder belongs to.
#[inline]
pub fn this<H: Host>(k: &H) -> &H::Process {
    k.processes.get(handle(k))
}

/// All processes, by number.
pub fn all<H: Host>(k: &H) -> impl Iterator<Item = (ProcessHandle, &H::Process)> {
    (1..=k.processes.pool.high())
        .filter_map(Handle::from_raw)
        .map(|handle| (handle, k.processes.get(handle)))
        .filter(|(_, p)| p.life.get() != Life::Free)
}

/// The process with this id, ended ones included.
pub fn find<H: Host>(k: &H, pid: i32) -> Option<ProcessHandle> {
    all(k).find(|(_, p)| p.pid.get() == pid).map(|(handle, _)| handle)
}

/// All threads of a process.
pub fn threads_of<H: Host>(
    k: &H,
    process: ProcessHandle,
) -> impl Iterator<Item = (Handle<H::Thread>, &H::Thread)> {
    (1..=k.threads.high())
        .filter_map(Handle::from_raw)
        .map(|handle| (handle, k.threads.get(handle)))
        .filter(move |(_, t)| t.process.get() == Some(process))
}

/// Where a process's threads wait for its children.
pub fn children_key(process: ProcessHandle) -> Key {
    Key::of_runtime(1, process.raw())
}

/// Where a parent waits for a child to execute a program or to end (`vfork`).
pub fn vfork_key(process: ProcessHandle) -> Key {
    Key::of_runtime(2, process.raw())
}
