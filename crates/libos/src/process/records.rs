//! Records of processes, and of descriptors that name them ([`crate::process`]).

use crate::room::Room;
use crate::state::file::{File, Table};
use crate::state::signal::ProcessSignals;
use core::cell::Cell;
use skein_arena::list::{In, List, Node};
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
    pub(in crate::process) pidfds: PidFds,
}

/// All processes; `P` is one as the host has it. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Processes<P> {
    pub(in crate::process) pool: Pool<P>,
    /// Descriptors of processes.
    pub(in crate::process) pidfds: Pool<PidFd>,
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
        room.pool(&self.pidfds, MAX_PIDFDS);
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

/// pidfds at one time, copies not counted: 4,096.
pub(in crate::process) const MAX_PIDFDS: u32 = 4 << 10;

/// A pidfd.
#[repr(C)]
pub struct PidFd {
    pub(in crate::process) node: Node<PidFd>,
    /// None when the process has been waited for.
    pub(in crate::process) process: Link<Process>,
    pub(in crate::process) file: Link<File>,
}

/// A pidfd's place among those of its process.
pub struct OfProcess;

/// The pidfds of a process.
pub type PidFds = List<PidFd, OfProcess>;

// SAFETY: links; all-zero is of no process.
unsafe impl ArenaObject for PidFd {}

impl In<OfProcess> for PidFd {
    fn node(&self) -> &Node<PidFd> {
        &self.node
    }
}
