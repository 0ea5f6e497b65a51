//! The library's state: one structure in the arena, with the pools behind it.

use crate::file::Fds;
use crate::ipc::Ipc;
use crate::keys::KeyQueues;
use crate::net::Net;
use crate::process::Processes;
use crate::signal::Signals;
use crate::thread::Queue;
use crate::timers::Timers;
use core::cell::Cell;
use skein_arena::bytes::Chunks;
use skein_arena::list::{In, List};
use skein_arena::pool::{Handle, Pool};

/// State that all processes of a server share; `T` and `P` are the host's records of a thread and a process. All-zero bytes, then the host lays the pools out.
#[repr(C)]
pub struct Os<T, P> {
    /// The thread that has the turn.
    pub current: Cell<u32>,
    _pad: Cell<u32>,
    /// Threads that can run, without the turn's holder, in the order of their turns.
    pub run_queue: List<T, Queue>,
    /// Threads that could run, if their process were not stopped.
    pub set_aside: List<T, Queue>,
    /// All threads.
    pub threads: Pool<T>,
    /// Threads that wait at addresses: mutexes, condition variables, futexes, joins.
    pub keys: KeyQueues<T>,
    /// Virtual time: the server's time of day, ns since the epoch.
    pub now_ns: Cell<u64>,
    /// Deadlines.
    pub timers: Timers,
    /// Descriptors' files.
    pub fds: Fds,
    /// All processes.
    pub processes: Processes<P>,
    /// Semaphores and message queues with a key or a name.
    pub ipc: Ipc,
    /// Sockets, and the network around them.
    pub net: Net,
    /// Signals, and the timers that send them.
    pub signals: Signals,
    /// Bytes in flight.
    pub chunks: Chunks,
}

impl<T: In<Queue>, P> Os<T, P> {
    /// The turn's holder.
    #[inline]
    pub fn current(&self) -> Handle<T> {
        Handle::from_raw(self.current.get()).expect("a thread has the turn")
    }

    /// The time of day `ns` from now.
    pub fn after(&self, ns: u64) -> u64 {
        self.now_ns.get().saturating_add(ns)
    }

    /// The turn's holder.
    #[inline]
    pub fn this(&self) -> &T {
        self.threads.get(self.current())
    }
}
