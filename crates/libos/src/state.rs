//! The library's state: one structure in the arena, with the pools behind it.
//!
//! Plain data and its layout, below the host and all rooms, because the host lends all of it. Each room has its part in its own `records.rs`, which says for each
//! field who may touch it: `pub(in crate::ROOM)` that room only, which the compiler checks; `pub` also other rooms and the host. What others may do
//! with the rest are the room's functions. `cargo xtask tidy` allows nothing between the two.

pub use crate::file::records as file;
pub use crate::ipc::records as ipc;
pub use crate::keys::records as keys;
pub use crate::net::records as net;
pub use crate::process::records as process;
pub use crate::signal::records as signal;
pub use crate::thread::records as thread;
pub use crate::timers::records as timers;

use core::cell::Cell;
use file::Fds;
use ipc::Ipc;
use keys::KeyQueues;
use net::Net;
use process::Processes;
use signal::Signals;
use skein_arena::bytes::Chunks;
use skein_arena::list::{In, List};
use skein_arena::pool::{Handle, Pool};
use thread::Queue;
use timers::Timers;

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
