//! The operating system that a replicated server sees, as a library: the meaning of its calls, without a Linux to carry them out.
//!
//! State lives in the arena: [`Os`] and its parts. A caller reaches it through the guard of its turn, so only one thread at a time does, and objects
//! change through cells. Services of a kernel, a processor or the node come from the [`Host`]: blocking the thread, running a signal's handler,
//! looking up the process's memory. The runtime is the host of a server; tests have a host of their own, which plays the other threads.
//!
//! Numbers and layouts that a server sees are those of Linux and glibc on `x86_64` ([`abi`]).
//!
//! `xtask/src/tidy/rooms.rs` checks that rooms do not use each other in circles, and names those that still do.
#![cfg_attr(not(test), no_std)]

pub mod abi;
mod above;
pub mod errno;
#[cfg(test)]
mod fake;
pub mod file;
pub mod host;
pub mod identity;
pub mod ipc;
pub mod keys;
pub mod net;
pub mod os;
pub mod pace;
pub mod process;
pub mod room;
pub mod signal;
pub mod sync;
pub mod thread;
pub mod time;
pub mod timers;

pub use host::Host;
pub use os::Os;
pub use process::Process;
pub use thread::Thread;
