//! Why a replica ends.

use skein_log::wal::WalError;
use skein_log::{StepError, TooNew};
use skein_model::LogIndex;
use std::io;
use std::path::PathBuf;

/// Exit status of a node that was removed from its cluster: there is nothing that a restart could do.
pub const EXIT_REMOVED: u8 = 4;

/// The regular end of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was told to.
    Stopped,
    /// The cluster has it no longer as a member.
    Removed,
    /// The server ended on a majority of the replicas after the same entry.
    ServerEnded {
        /// The last entry that it had executed.
        index: LogIndex,
        /// Its status as `waitpid` reports it.
        status: i32,
    },
}

impl ExitReason {
    /// The exit status of a command that passes the server's on: 128 + signal as in a shell.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::Removed => EXIT_REMOVED,
            Self::ServerEnded { status, .. } if status & 0x7f != 0 => 128 + (status & 0x7f) as u8,
            Self::ServerEnded { status, .. } => (status >> 8 & 0xff) as u8,
        }
    }
}

/// Why a replica cannot go on. Every message is one line: what, why, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The log.
    #[error(transparent)]
    Log(#[from] WalError),
    /// This replica's log was lost without its knowledge.
    #[error("{0}; 'skein rejoin' fills it anew from the others")]
    LogLost(StepError),
    /// The members have agreed on more than this version knows.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// A file of the host differs from the log, or changed since the server first used it.
    #[error("{0}")]
    HostFile(String),
    /// The server keeps ending, and only on this replica.
    #[error("the server ended {times} times in a row, not after the same entry and in the same way as a majority's, last after entry {index} with {how}; see its output in {}", output.display())]
    KeepsEnding {
        /// The number of times.
        times: u32,
        /// The last entry that it had executed.
        index: LogIndex,
        /// Its end.
        how: String,
        /// The file of its output.
        output: PathBuf,
    },
    /// An entry of the log that this version cannot read.
    #[error("entry {index} of the log: {why}; run the version of Skein that wrote it")]
    Entry {
        /// The entry.
        index: LogIndex,
        /// The reason.
        why: skein_model::EntryError,
    },
    /// A step of an upgrade that this version cannot read.
    #[error(
        "entry {index} of the log: a step of an upgrade of the server that this Skein cannot read; run the version that wrote it"
    )]
    Upgrade {
        /// The entry.
        index: LogIndex,
    },
    /// The arena.
    #[error("{0}; change tuning.arena_heap_bytes and the ring sizes")]
    Arena(#[from] skein_arena::MapError),
    /// A system call for the arena failed.
    #[error("{what}: {error}")]
    System {
        /// What it was for.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// Something around the replica failed, which its environment knows.
    #[error(transparent)]
    Around(Box<dyn std::error::Error + Send + Sync>),
}
