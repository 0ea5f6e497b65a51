//! What a server is given to continue from an image: the restore file before it is started, its files before it gets its first entry.
//!
//! Runs on the thread of the server's keeper. The whole file is read and compared before anything of it is used.

use super::store::Store;
use nix::sys::memfd::{MFdFlags, memfd_create};
use skein_image::file::{Body, ImageError};
use skein_model::LogIndex;
use skein_sandbox::Layer;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// A start from an image.
#[derive(Clone, Debug)]
pub struct Restart {
    /// Where it is.
    pub store: Store,
    /// Its entry.
    pub index: LogIndex,
}

/// Why a server cannot continue from an image.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// The file.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The server's files.
    #[error("{}: the server's files cannot be made again: {why}", path.display())]
    Files {
        /// The image.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// An unpacked image.
pub struct Unpacked {
    path: PathBuf,
    memory: File,
    body: Body,
}

impl Restart {
    /// Unpacks what the server needs at its start.
    ///
    /// # Errors
    /// The image cannot be used, or there is no memory.
    pub fn unpack(&self) -> Result<Unpacked, RestartError> {
        let path = self.store.path(self.index);
        let (_, mut body) = self.store.verify(self.index)?.unpack()?;
        let memory = memfd_create(c"skein-restore", MFdFlags::MFD_CLOEXEC);
        let mut memory = memory.map(File::from).map_err(|e| ImageError::io(&path)(e.into()))?;
        body.memory(&mut memory)?;
        Ok(Unpacked { path, memory, body })
    }
}

impl Unpacked {
    /// The restore file.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Makes the server's files again, in the layer of one that was just started.
    ///
    /// # Errors
    /// They are damaged or cannot be made: that server is of no use.
    pub fn give_files(self, layer: Option<&Layer>) -> Result<(), RestartError> {
        let Self { path, memory, body } = self;
        drop(memory);
        let made = body.layer(|from| match layer {
            Some(layer) => layer.unpack(from),
            // A server without a layer wrote into the host's files.
            None => std::io::copy(from, &mut std::io::sink()).map(drop),
        })?;
        made.map_err(|error| RestartError::Files { path, why: error.to_string() })
    }
}
