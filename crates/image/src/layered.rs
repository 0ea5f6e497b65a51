//! A file in a server's layer on its way into an image: it is opened only if it is read.

use crate::file_pages::Two;
use std::fs::File;
use std::io;

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

/// A file by itself.
#[cfg(test)]
impl Layered for File {
    fn id(&self) -> Two<u64> {
        self.about().id
    }

    fn about(&self) -> About {
        use std::os::unix::fs::MetadataExt;
        let meta = self.metadata().expect("it is open");
        About {
            id: (meta.dev(), meta.ino()),
            accessed: (meta.atime(), meta.atime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    fn file(&self) -> io::Result<&File> {
        Ok(self)
    }
}
