//! Why a node ends.

use crate::config::ConfigError;
use crate::supervisor::{LaunchError, ProgramError};
use crate::transport::Address;
use skein_log::wal::WalError;
use skein_log::{ConsensusError, StepError};
use skein_model::LogIndex;
use std::io;
use std::path::PathBuf;

/// How a node that did its duty ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was told to.
    Stopped,
    /// The server ended on a majority of the replicas after the same entry.
    ServerEnded {
        /// The last entry that it had executed.
        index: LogIndex,
        /// Its status as `waitpid` reports it.
        status: i32,
    },
}

impl ExitReason {
    /// The exit status of a command that passes the server's on: 128 + signal as a shell says it.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::ServerEnded { status, .. } if status & 0x7f != 0 => 128 + (status & 0x7f) as u8,
            Self::ServerEnded { status, .. } => (status >> 8 & 0xff) as u8,
        }
    }
}

/// Why a node cannot start or go on. Every message is one line: what, why, what to do.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A configured value.
    #[error("configuration: {0}")]
    Config(#[from] ConfigError),
    /// The program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The server could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The log.
    #[error(transparent)]
    Log(#[from] WalError),
    /// Consensus refuses the configuration or what was recovered.
    #[error("consensus: {0}")]
    Consensus(#[from] ConsensusError),
    /// This replica's log was lost behind its back.
    #[error("{0}; 'skein rejoin' fills it anew from the others")]
    LogLost(StepError),
    /// A cluster is to be founded where a replica has been.
    #[error("data directory {} holds a log already; start its node, or choose another directory", path.display())]
    HasLog {
        /// Which.
        path: PathBuf,
    },
    /// The only replica is to be filled from others.
    #[error(
        "this is the only replica, so nobody else has its log; 'skein found' begins anew in another directory"
    )]
    NobodyToRejoin,
    /// The data directory.
    #[error("data directory {}: {error}; choose another one, or make it writable", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The cluster's key.
    #[error("key file {}: {error}", path.display())]
    Key {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The address for the other nodes.
    #[error(
        "cannot listen for other nodes at {address}: {error}; stop what uses the port, or change `listen`"
    )]
    Listen {
        /// Where.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// A published port.
    #[error("cannot publish {address}: {why}; stop what uses the port, or publish another one")]
    Publish {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// The admin interface.
    #[error("admin interface at {at}: {error}; choose another place")]
    Admin {
        /// Where.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// The runtime library.
    #[error("libskein.so was not found at {}; install it beside `skein`, or set SKEIN_RUNTIME", path.display())]
    Runtime {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The arena.
    #[error("{0}; change tuning.arena_heap_bytes and the ring sizes")]
    Arena(#[from] skein_arena::MapError),
    /// A file of the host is not what the log was made with, or not what it was when the server first used it.
    #[error("{0}")]
    HostFile(String),
    /// The server keeps ending here, and only here.
    #[error("the server ended {times} times in a row, not after the same entry and in the same way as a majority's, last after entry {index} with {how}; see its output in {}", output.display())]
    KeepsEnding {
        /// How often.
        times: u32,
        /// The last entry that it had executed.
        index: LogIndex,
        /// How it ended.
        how: String,
        /// Its output.
        output: PathBuf,
    },
    /// An entry of the log that this version cannot read.
    #[error("entry {index} of the log: {why}; run the version of Skein that wrote it")]
    Entry {
        /// Which.
        index: LogIndex,
        /// Why.
        why: skein_model::EntryError,
    },
    /// A system call of the node failed.
    #[error("{what}: {error}")]
    System {
        /// What it was for.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

impl NodeError {
    /// The exit status of a command: 126 and 127 for a program that cannot be run, 125 for all else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Program(error) => error.exit_code(),
            Self::Launch(error) => error.exit_code(),
            _ => 125,
        }
    }

    /// Whether another node has the data directory.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Log(WalError::InUse { .. }))
    }

    /// Wraps the failure of a system call.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}
