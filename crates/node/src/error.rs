//! The reasons why a node ends.

use crate::config::ConfigError;
use crate::transport::Address;
use skein_log::ConsensusError;
use skein_log::wal::WalError;
use skein_model::LogIndex;
pub use skein_replica::error::ExitReason;
use skein_replica::error::ReplicaError;
use skein_sandbox::{LaunchError, ProgramError};
use std::io;
use std::path::PathBuf;

/// The reason why a node cannot start or continue. Every message is one line: problem, reason, remedy.
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
    /// What the replica cannot go on with.
    #[error(transparent)]
    Replica(ReplicaError),
    /// Consensus refuses the configuration or the recovered log.
    #[error("consensus: {0}")]
    Consensus(#[from] ConsensusError),
    /// A cluster is to be founded in a used directory.
    #[error("data directory {} holds a log already; start its node, or choose another directory", path.display())]
    HasLog {
        /// The directory.
        path: PathBuf,
    },
    /// The only replica is to be refilled from others.
    #[error(
        "its configuration names no other replica that could have its log; if members were added, name them in `peers`, and the cluster's id in `cluster_id` as 'skein members' shows it on them, then ask again"
    )]
    NobodyToRejoin,
    /// A replica is to join, and no member is named.
    #[error(
        "`peers` names this replica only: name members of the cluster, too, where it can knock"
    )]
    NobodyToJoin,
    /// The data directory.
    #[error("data directory {}: {error}; choose another one, or make it writable", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The server's private layer cannot be in the data directory.
    #[error("the server's layer cannot be in {}: {why}; use a data directory on a local disk (ext4, xfs, btrfs), or keep the layer in memory ('--layer memory', or `layer` under [server])", path.display())]
    Layer {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The files that the cluster begins with.
    #[error("imported files {}: {error}", path.display())]
    Import {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A cluster in a file.
    #[error("{}: {error}", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// What the server has used of its host, as the data directory keeps it.
    #[error("the server's base {}: {error}; free some room or repair the disk, or put the directory out of the way: then the host must have these files as they were", path.display())]
    Base {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// One that joins has no files of the server, and nobody gives them.
    #[error(
        "no other replica that can be reached gives the files that the server uses, which this one needs to join; start one that has them, then this node again"
    )]
    NobodyGives,
    /// Contents of a pinned file are damaged, and the host has others.
    #[error("the server's base: the contents of {} (object {digest}) are damaged or missing, and the host's file is another by now; put that back as it was, or name replicas that have it in `peers`, or refill this one with 'skein rejoin'", path.display())]
    BaseLost {
        /// The pinned path.
        path: PathBuf,
        /// What it should have.
        digest: String,
    },
    /// The server is to run with a runtime that this version of Skein does not drive.
    #[error("the server runs with {}, and {why}", path.display())]
    OtherRuntime {
        /// The runtime, as the server sees it.
        path: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// What an upgrade has made of the server.
    #[error("the server's edition {about}: {why}")]
    Edition {
        /// The edition.
        about: String,
        /// The reason, and what to do.
        why: String,
    },
    /// The configuration names a program that the cluster does not run.
    #[error(
        "the cluster's command is '{is}'{since}, and the configuration names '{named}': name that one, or the first one, '{first}'; 'skein upgrade' changes it"
    )]
    OtherCommand {
        /// The cluster's.
        is: String,
        /// Since when.
        since: String,
        /// The configuration's.
        named: String,
        /// The one that it was founded with.
        first: String,
    },
    /// The cluster's key.
    #[error("key file {}: {error}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The address for the other nodes.
    #[error(
        "cannot listen for other nodes at {address}: {error}; stop the program that uses the port, or change `listen`"
    )]
    Listen {
        /// The address.
        address: Address,
        /// The reason.
        error: io::Error,
    },
    /// A published port.
    #[error(
        "cannot publish {address}: {why}; stop the program that uses the port, or publish another one"
    )]
    Publish {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
    /// The admin interface.
    #[error("admin interface at {at}: {error}; choose another place")]
    Admin {
        /// The path or address.
        at: String,
        /// The reason.
        error: io::Error,
    },
    /// The runtime library.
    #[error("libskein.so was not found at {}; install it beside `skein`, or set SKEIN_RUNTIME", path.display())]
    Runtime {
        /// The expected path.
        path: PathBuf,
    },
    /// The arena.
    #[error("{0}; change tuning.arena_heap_bytes and the ring sizes")]
    Arena(#[from] skein_arena::MapError),
    /// A stored log begins later than at entry 1, and nothing has what is missing.
    #[error("the log begins at entry {first}, and no image in {} is of an entry before {until}; name a later entry, or use the data directory of another replica", dir.display())]
    NoImage {
        /// The log's first entry.
        first: LogIndex,
        /// The asked place.
        until: LogIndex,
        /// The directory.
        dir: PathBuf,
    },
    /// The image with which a run is to begin.
    #[error("--image {index}: {}: {why}", dir.display())]
    NamedImage {
        /// Its entry.
        index: LogIndex,
        /// The directory.
        dir: PathBuf,
        /// The reason.
        why: String,
    },
    /// An image in the data directory.
    #[error(transparent)]
    Image(#[from] skein_image::file::ImageError),
    /// No server can continue from an image with a setting as it is.
    #[error("{why}")]
    Setting {
        /// Which, and what it was.
        why: String,
    },
    /// No server could continue from an image.
    #[error("{why}")]
    NotRestored {
        /// What could not be restored, and why.
        why: String,
    },
    /// A system call of the node failed.
    #[error("{what}: {error}")]
    System {
        /// The purpose.
        what: &'static str,
        /// The reason.
        error: io::Error,
    },
}

impl From<ReplicaError> for NodeError {
    /// What failed around the replica comes back as what it was.
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Log(error) => Self::Log(error),
            ReplicaError::Around(error) => match error.downcast() {
                Ok(error) => *error,
                Err(error) => Self::Replica(ReplicaError::Around(error)),
            },
            error => Self::Replica(error),
        }
    }
}

impl From<NodeError> for ReplicaError {
    /// As which the replica hears what failed around it.
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Replica(error) => error,
            NodeError::Log(error) => Self::Log(error),
            error => Self::Around(Box::new(error)),
        }
    }
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
