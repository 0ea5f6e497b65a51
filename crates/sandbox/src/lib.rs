//! Starts the replicated program (the server) in its sandbox, and watches it.
//!
//! [`inspect`] resolves a program as a shell would and refuses programs that the runtime cannot be loaded into; it hashes the
//! program with all of its libraries, so that replicas can compare their programs. [`launch`] starts it:
//!
//! ```text
//! node --clone3--> init, pid 1: its own user, mount, pid, net, uts and ipc namespaces
//!                    |  executes this program again, mounts a private writable layer, then forks
//!                    +--> server, pid 2: user and mount namespaces of its own; exec'd under ptrace by init, which rewrites the
//!                         auxiliary vector and detaches
//! ```
//!
//! Invariants: every start has a fresh, empty layer (the log rebuilds state); the server sees the same pids, host name,
//! descriptors, environment, stack and addresses on every replica; nothing of it outlives the node.
//!
//! Threads: none. Between the node's fork and init's exec only direct system calls are made (`handover.rs`).
//!
//! Crash: `init` polls a pidfd of the node. When the node is gone it exits, and the kernel kills everything in its pid
//! namespace and drops the mounts with the mount namespace. The same happens when the server exits.

mod confine;
mod elf;
mod error;
mod handover;
mod ids;
mod init;
mod job;
mod launch;
mod layer;
mod libraries;
mod mountinfo;
mod numbers;
mod owner;
mod pins;
mod plan;
mod process;
mod program;
mod report;
mod server;
mod spec;
mod sys;
mod times;

pub use confine::hide_memory;
pub use error::{LaunchError, ProgramError};
pub use launch::launch;
pub use layer::disk::{file_system, make_layer, remove_layer, unfit_for_layer};
pub use layer::tree::{Amount, export, own_directories, pack_tree};
pub use layer::{
    Content, EXTENT_BYTES, Extent, Extents, Layer, Packs, Shown, Written, WrittenFile,
};
pub use numbers::SpareNumbers;
pub use pins::{About, Pin, Pins, can_be_stacked, clone_contents, copy as copy_contents};
pub use process::{Exit, ServerProcess};
pub use program::{Program, Search, inspect};
pub use spec::{Isolation, LaunchSpec, Limits};
pub use times::{KeptTimes, Time, Times};
