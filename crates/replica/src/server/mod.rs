//! The server from its replica's side: the memory that they share, and what is known of its process.
//!
//! A server lives in *generations*: one start each, with an arena of its own. What a generation says late, after the next
//! one was begun, is not heard.

pub mod ahead;
pub mod feed;
pub mod link;
pub mod passage;
pub mod rebuilds;
pub mod slot;
pub mod state;
pub mod tap;

pub use link::{Broken, Link};
pub use passage::Passage;
pub use slot::Slot;
pub use state::ServerState;

use crate::editions::Edition;
use crate::error::ReplicaError;
use skein_arena::Sizes;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a server writes, as its environment keeps it: the replica only hands it on.
pub type Files = Arc<dyn Any + Send + Sync>;

/// Where a server begins.
#[derive(Clone, Debug)]
pub enum Source {
    /// With the log's first entry.
    Log,
    /// Where an image was taken, of which this is known.
    Image(Arc<ServerState>),
    /// With the first entry of this edition, on the files that a server left of which this is known.
    Files(Arc<ServerState>, Arc<Edition>),
}

/// An event of a server's process.
#[derive(Debug)]
pub enum ServerEvent {
    /// It runs.
    Launched {
        /// Its process.
        pid: u32,
        /// The parent of all its processes.
        init: u32,
        /// Its private layer.
        files: Option<Files>,
    },
    /// It could not be started.
    Failed(ReplicaError),
    /// It could not be started from its image.
    NotRestored {
        /// The reason.
        why: String,
        /// The image is not what was written.
        damaged: bool,
    },
    /// It ended, with this status as `waitpid` reports it.
    Ended {
        /// The status.
        status: i32,
    },
}

/// Where a server's memory is.
#[derive(Debug)]
pub struct MemoryPlace {
    /// The parent of its processes.
    pub init: u32,
    /// The file of its arena.
    pub arena: OwnedFd,
    /// The arena's.
    pub sizes: Sizes,
    /// Where the runtime says what in the arena's heap is a replica's own, as it says so itself.
    pub parts_at: u64,
}

/// A server that stands still.
#[derive(Debug)]
pub struct Stood {
    /// What it writes.
    pub files: Files,
    /// Where in its arena's file is when it wrote that.
    pub times_at: u64,
    /// What it holds.
    pub memory: MemoryPlace,
    /// The digest of all its output up to there; `None` while that is not known.
    pub digest: Option<u64>,
}
