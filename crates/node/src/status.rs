//! What a node says about itself and its server at its admin socket.

use crate::memory::{ProcessState, Survey, state_root};
use serde::{Deserialize, Serialize};
pub use skein_replica::members::MemberReport;
pub use skein_replica::status::*;
use skein_sandbox::Written;
use std::path::PathBuf;

/// The images of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagesListed {
    /// Their directory.
    pub dir: PathBuf,
    /// Oldest first.
    pub images: Vec<ImageStatus>,
}

/// An image on a replica's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageStatus {
    /// The last entry that the server had executed.
    pub index: u64,
    /// Whether the servers were found equal since: only then it counts.
    pub confirmed: bool,
    /// When it was taken, ms since 1970.
    pub taken_ms: u64,
    /// What it takes on the disk beside what images before it take.
    pub bytes: u64,
    /// With what it shares with them.
    pub total_bytes: u64,
    /// The server's memory in it, unpacked.
    pub memory_bytes: u64,
    /// The files that the server has written, packed.
    pub files_bytes: u64,
    /// The server's processes.
    pub processes: u64,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// The written files of a replica's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesStatus {
    /// The last entry that the server had executed: it stood there while they were read.
    pub index: u64,
    /// The files.
    pub written: Written,
}

/// The memory and the files of a replica's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// The last entry that the server had executed: it stands there, so that more can be requested.
    pub index: u64,
    /// The digest of all its output up to there, 16 hexadecimal digits; empty while that is not known.
    pub digest: String,
    /// The survey.
    pub survey: Survey,
    /// Its files.
    pub written: Written,
    /// What the kernel has of its processes; none of a node of an earlier version, or where the kernel does not tell it.
    #[serde(default)]
    pub state: Option<Vec<ProcessState>>,
}

/// The memory and the files of a replica's server, in short: what is equal on all replicas is not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRoot {
    /// The last entry that the server had executed: it stands there, so that more can be requested.
    pub index: u64,
    /// As [`MemoryStatus::digest`].
    pub digest: String,
    /// The root of its memory, 16 hexadecimal digits.
    pub root: String,
    /// The number of processes,
    pub processes: u64,
    /// of their mappings,
    pub mappings: u64,
    /// and of hashed pages.
    pub pages: u64,
    /// The digest of all its files,
    pub files_digest: String,
    /// their number,
    pub files: u64,
    /// and bytes in them.
    pub bytes: u64,
    /// The hash of what the kernel has of its processes, 16 hexadecimal digits; empty where that is not told.
    #[serde(default)]
    pub state: String,
}

impl MemoryRoot {
    /// That of all of it.
    #[must_use]
    pub fn of(status: &MemoryStatus) -> Self {
        let MemoryStatus { index, digest, survey, written, state } = status;
        let mappings = survey.processes.iter().map(|process| process.mappings.len() as u64);
        Self {
            index: *index,
            digest: digest.clone(),
            root: format!("{:016x}", survey.grouped().root()),
            processes: survey.processes.len() as u64,
            mappings: mappings.sum(),
            pages: survey.pages,
            files_digest: written.digest.clone(),
            files: written.count,
            bytes: written.bytes,
            state: state
                .as_ref()
                .map(|all| format!("{:016x}", state_root(all)))
                .unwrap_or_default(),
        }
    }
}

/// A request for pieces of a file that the server has written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileQuestion {
    /// The file's path in the server.
    pub path: String,
    /// The numbers of the pieces whose contents are requested; none: all in short.
    pub pieces: Vec<u64>,
}

/// A file in short, or some pieces of it; also what a file is to be given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAnswer {
    /// The file's path in the server.
    pub path: String,
    /// Length, and hashes of all pieces unless contents were requested.
    pub extents: skein_sandbox::Extents,
    /// Numbers of pieces and their contents, two hexadecimal digits a byte.
    pub pieces: Vec<(u64, String)>,
}

/// The members of the cluster, as a node's log has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersStatus {
    /// The cluster's id: a replica that joins needs it in its configuration.
    pub cluster_id: String,
    /// The leader, if the node knows one.
    pub leader: Option<u64>,
    /// The members, by their ids.
    pub members: Vec<MemberReport>,
}
