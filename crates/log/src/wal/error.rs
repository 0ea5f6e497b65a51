//! Errors of a data directory, as one clear line each.

use crate::types::{ClusterId, ProgramHash};
use std::{io, sync::Arc};

/// The reason why the write-ahead log cannot be opened, or cannot continue.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WalError {
    /// Another process has the directory.
    #[error(
        "data directory {dir} is in use by another node; stop that node or choose another directory"
    )]
    InUse {
        /// The directory.
        dir: String,
    },
    /// The log belongs to another cluster.
    #[error(
        "data directory {dir} belongs to cluster {found}, not {expected}; choose another directory"
    )]
    OtherCluster {
        /// The directory.
        dir: String,
        /// The cluster that made it.
        found: ClusterId,
        /// The cluster of this node.
        expected: ClusterId,
    },
    /// The log was made by another program.
    #[error(
        "data directory {dir} was made for a program with hash {found}, this one has {expected}; \
         run the same program and libraries, or choose another directory"
    )]
    OtherProgram {
        /// The directory.
        dir: String,
        /// The program that made it.
        found: ProgramHash,
        /// The program of this node.
        expected: ProgramHash,
    },
    /// The directory holds state of the other durability.
    #[error(
        "data directory {dir} was made with --durability {made_for}; use the same or choose another directory"
    )]
    OtherDurability {
        /// The directory.
        dir: String,
        /// The durability that made it.
        made_for: &'static str,
    },
    /// A newer or older format.
    #[error(
        "{file}: log format {found} is not supported, this program reads up to {expected}; run the version that wrote it"
    )]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The newest version that this program reads.
        expected: u32,
    },
    /// The directory is empty.
    #[error(
        "{dir} holds no log; 'skein rejoin' brings a replica back whose disk was lost, \
         'skein found' begins a new cluster"
    )]
    NoLog {
        /// The directory.
        dir: String,
    },
    /// Durable bytes have changed.
    #[error(
        "{file}: damaged at byte {offset}: {why}; later bytes cannot be trusted. \
         The other replicas have it: 'skein rejoin' fills this one anew"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The offset in it.
        offset: u64,
        /// The finding.
        why: String,
    },
    /// The disk is full.
    #[error("{file}: disk full; free space and restart the node")]
    DiskFull {
        /// The file.
        file: String,
    },
    /// The disk is too full for a log to begin.
    #[error(
        "{file}: disk full; free space and restart the node: a log takes {mib} MiB at a time, and each replica has its own"
    )]
    NoRoom {
        /// The file.
        file: String,
        /// The space that it needs.
        mib: u64,
    },
    /// The operating system reported an error.
    #[error("{file}: cannot {what}: {source}")]
    Io {
        /// The file or directory.
        file: String,
        /// The operation.
        what: &'static str,
        /// The reason.
        source: Arc<io::Error>,
    },
    /// An earlier write or sync failed: the state of the disk is unknown.
    #[error("the log stopped after an earlier failure ({cause}); restart the node")]
    Stopped {
        /// The first failure.
        cause: String,
    },
    /// An entry from before the log's first one.
    #[error(
        "the log begins at entry {first}: entry {index} is no longer in it, and its effects are in a checkpoint only"
    )]
    BelowBase {
        /// The entry.
        index: u64,
        /// The log's first one.
        first: u64,
    },
    /// The log lacks an entry that it should have.
    #[error("the log has no entry {index}")]
    Missing {
        /// Its index.
        index: u64,
    },
}

impl WalError {
    pub(crate) fn io(file: &str, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { file },
            _ => Self::Io { file, what, source: Arc::new(error) },
        }
    }

    pub(crate) fn damaged(file: String, offset: u64, why: impl Into<String>) -> Self {
        Self::Damaged { file, offset, why: why.into() }
    }
}
