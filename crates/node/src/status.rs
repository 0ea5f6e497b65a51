//! What a node says about itself and its server at its admin socket.

use serde::{Deserialize, Serialize};
pub use skein_replica::status::*;

/// The written files of a replica's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesStatus {
    /// The last entry that the server had executed: it stood there while they were read.
    pub index: u64,
    /// The files.
    pub written: skein_sandbox::Written,
}

/// The memory of a replica's server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// The last entry that the server had executed: it stands there, so that more can be requested.
    pub index: u64,
    /// The survey.
    pub survey: crate::memory::Survey,
}
