//! What images have in common: pages, and the errors and bounds of their files.

use std::io;
use std::path::{Path, PathBuf};

/// A page.
pub const PAGE_BYTES: u64 = 4096;
/// The format of an image whose pages are in packs.
pub(crate) const PACKED: u32 = 2;
/// The newest that is read.
pub const VERSION: u32 = PACKED;
/// Read at a time.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// The most bytes of what a replica knows of its server.
pub(crate) const MAX_STATE_BYTES: u64 = 256 << 20;

/// Why an image cannot be used or written. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file system.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// There is no room.
    #[error("{}: disk full; free space, each image takes about as much as the one before", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// Something else.
    #[error("{}: it is no image of a server; move it out of the directory", path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later Skein.
    #[error("{}: an image of format {version}, and this Skein reads up to {VERSION}; run the version that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// Not of this cluster.
    #[error("{}: an image of another cluster's server; move it out of the directory", path.display())]
    OtherCluster {
        /// The file.
        path: PathBuf,
    },
    /// Not of this program.
    #[error("{}: an image of another program, or of this one with other libraries, arguments or another Skein; run what it was taken of, or remove it", path.display())]
    OtherProgram {
        /// The file.
        path: PathBuf,
    },
    /// Of a server on another processor.
    #[error("{}: an image of a server on a processor that has, and this one has not: {missing}; use a host with such a processor", path.display())]
    OtherProcessor {
        /// The file.
        path: PathBuf,
        /// The extensions, by the kernel's names.
        missing: String,
    },
    /// No reader would take it.
    #[error("{}: an image has at most {most} bytes of {what}, and this one {bytes}: it is not kept", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The part of it that is too long.
        what: &'static str,
        /// Its length,
        bytes: u64,
        /// and what is taken.
        most: u64,
    },
    /// Files alone.
    #[error("{}: it has the files that a server left when it ended for an upgrade, and no server that could go on; export a later image", path.display())]
    NoServer {
        /// The file.
        path: PathBuf,
    },
    /// The end is missing.
    #[error("{}: it ends after {bytes} bytes, too early for an image; remove it, another replica has a whole one", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The disk cannot read it any more, or for now.
    #[error("{}: the image is damaged: {error}; remove it, another replica has a whole one", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the disk says.
        error: io::Error,
    },
    /// Bytes changed.
    #[error("{}: the image is damaged: {why}; remove it, another replica has a whole one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that shows.
        why: String,
    },
}

impl ImageError {
    /// Wraps an error of the file system.
    pub fn io(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path: path.clone() }
            }
            _ => Self::Io { path: path.clone(), error },
        }
    }

    /// Wraps an error of reading what was written once: a sector that the disk cannot read any more is damage.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |error| match error.raw_os_error() {
            Some(libc::EIO | libc::EUCLEAN | libc::EBADMSG) => {
                Self::Unreadable { path: path.clone(), error }
            }
            _ => Self::io(&path)(error),
        }
    }

    /// The file's own fault: reading it again would not help, and nobody needs to change a setting.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::NotAnImage { .. }
                | Self::Cut { .. }
                | Self::Unreadable { .. }
                | Self::Damaged { .. }
        )
    }

    pub(crate) fn damaged(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }
}

/// `N` bytes at a place that is inside.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&bytes[at..at + N]);
    found
}

/// Whether a page holds zeros only.
#[must_use]
pub fn is_zero(page: &[u8]) -> bool {
    // In pieces that the compiler turns into a few instructions.
    let (pieces, rest) = page.as_chunks::<64>();
    pieces.iter().all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
        && rest.iter().all(|byte| *byte == 0)
}

/// A file on a disk that cannot read one byte of it any more.
#[cfg(test)]
pub(crate) struct Rotten {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lost: u64,
}

#[cfg(test)]
impl std::os::unix::fs::FileExt for Rotten {
    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        let from = &self.bytes[(at as usize).min(self.bytes.len())..];
        let len = out.len().min(from.len());
        if (at..at + len as u64).contains(&self.lost) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        out[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        unreachable!("it is only read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_cannot_read_any_more_is_damage() {
        let read = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            ImageError::reading(Path::new("pack"))(error)
        };
        assert!(read(libc::EIO).is_damage() && read(libc::EUCLEAN).is_damage());
        assert!(!read(libc::EACCES).is_damage() && !read(libc::ENOSPC).is_damage());
    }
}
