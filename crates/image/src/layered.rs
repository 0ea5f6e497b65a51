//! A file in a server's layer on its way into an image: it is opened only if it is read.

use crate::file_pages::Two;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// What the kernel says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Device and inode number.
    pub id: Two<u64>,
    /// Time of last access: seconds since the epoch, and nanoseconds.
    pub accessed: Two<i64>,
    /// Time of the last change of any kind.
    pub changed: Two<i64>,
}

impl From<&Metadata> for About {
    fn from(meta: &Metadata) -> Self {
        Self {
            id: (meta.dev(), meta.ino()),
            accessed: (meta.atime(), meta.atime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// A file in a layer.
pub trait Layered {
    /// Its device and inode number there.
    fn id(&self) -> Two<u64>;

    /// What the server's mounts say of it.
    fn about(&self) -> About;

    /// The file, open to be read.
    ///
    /// # Errors
    /// It cannot be opened.
    fn file(&self) -> io::Result<&File>;
}

/// A file that is open, and where nothing else is shown than what is there.
#[derive(Debug)]
pub struct Plain {
    file: File,
    about: About,
}

impl Plain {
    /// # Errors
    /// The kernel does not say what it is.
    pub fn new(file: File) -> io::Result<Self> {
        let about = About::from(&file.metadata()?);
        Ok(Self { file, about })
    }
}

impl Layered for Plain {
    fn id(&self) -> Two<u64> {
        self.about.id
    }

    fn about(&self) -> About {
        self.about
    }

    fn file(&self) -> io::Result<&File> {
        Ok(&self.file)
    }
}
