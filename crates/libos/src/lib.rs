//! The operating system that a replicated server sees, as a library: the meaning of its calls, without a Linux to carry them out.
//!
//! State lives in the arena: [`Os`] and its parts ([`mod@state`]). A caller reaches it through the guard of its turn, so only one thread at a time does, and objects
//! change through cells. Services of a kernel, a processor or the node come from the [`Host`]: blocking the thread, running a signal's handler,
//! looking up the process's memory. The runtime is the host of a server; tests have a host of their own, which plays the other threads.
//!
//! Numbers and layouts that a server sees are those of Linux and glibc on `x86_64` ([`abi`]).
//!
//! # Rooms
//!
//! From the bottom: Linux's numbers ([`abi`], [`errno`]); records in the arena, plain data ([`mod@state`]); what the host does ([`host`]); waiting ([`thread`], [`keys`], [`time`], [`timers`]);
//! descriptors' files ([`file`]); what has descriptors: [`process`], then [`signal`]; [`ipc`], [`net`]; and [`sync`] on waiting alone. What a room calls above itself is a trait of its own, which
//! `above.rs` implements for every host: the compiler joins them, and nothing is looked up when the server runs. `cargo xtask tidy` checks that rooms do not use each other in circles, and lists their arrows with `--rooms`.
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
pub mod pace;
pub mod process;
pub mod room;
pub mod signal;
pub mod state;
pub mod sync;
pub mod thread;
pub mod time;
pub mod timers;

pub use host::Host;
pub use state::Os;
pub use state::process::Process;
pub use state::thread::Thread;
