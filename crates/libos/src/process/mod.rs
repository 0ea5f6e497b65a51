//! The server's processes: parents and children, ends, and the news for parents.
//!
//! A process is a real one of the host's, with memory and threads of its own; its attributes for the server (its parent, its group, its end) are in a
//! [`Process`] in the arena. One thread of all processes runs at a time, so state changes through cells.
//!
//! Invariant: the running code belongs to the process of the turn's holder ([`Host::process`]), except while another process is being ended.

pub mod group;
pub mod pidfd;
pub mod records;
pub mod wait;

use crate::host::Host;
use crate::keys::Key;
pub use crate::state::process::{Life, MAX_PROCESSES, Process, ProcessHandle, Processes};
use skein_arena::pool::Handle;

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
