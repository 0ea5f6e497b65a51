//! Files of a layer by their directory's descriptor: what the kernel says of them, and their contents.
//!
//! A layer has many files in few directories: so the kernel does not follow a long path for each of them.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstatat};

/// What the kernel says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Device and inode number.
    pub(super) id: (u64, u64),
    /// The kind, too.
    pub(super) mode: u32,
    /// The number of its names.
    pub(super) links: u64,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Of a device: which one.
    pub(super) device: u64,
    pub(super) size: u64,
    /// Of 512 bytes, which it occupies.
    pub(super) blocks: u64,
    /// Times: seconds since the epoch, and nanoseconds.
    pub(super) accessed: (i64, i64),
    pub(super) modified: (i64, i64),
    /// Of the last change of any kind.
    pub(super) changed: (i64, i64),
}

impl Stat {
    /// Of an entry of a directory; a symbolic link is not followed.
    pub(super) fn at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        Ok((&fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?).into())
    }

    fn is(&self, kind: libc::mode_t) -> bool {
        self.mode & libc::S_IFMT == kind
    }

    pub(super) fn is_dir(&self) -> bool {
        self.is(libc::S_IFDIR)
    }

    pub(super) fn is_file(&self) -> bool {
        self.is(libc::S_IFREG)
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.is(libc::S_IFLNK)
    }

    pub(super) fn is_fifo(&self) -> bool {
        self.is(libc::S_IFIFO)
    }

    pub(super) fn is_socket(&self) -> bool {
        self.is(libc::S_IFSOCK)
    }

    /// Whether it is what overlayfs notes a removed entry by.
    pub(super) fn is_whiteout(&self) -> bool {
        self.is(libc::S_IFCHR) && self.device == 0
    }

    /// Whether all but the time of last access is the same.
    pub(super) fn is_unchanged(&self, since: &Self) -> bool {
        Self { accessed: since.accessed, ..*self } == *since
    }
}

impl From<&FileStat> for Stat {
    fn from(stat: &FileStat) -> Self {
        Self {
            id: (stat.st_dev, stat.st_ino),
            mode: stat.st_mode,
            links: stat.st_nlink,
            user: stat.st_uid,
            group: stat.st_gid,
            device: stat.st_rdev,
            size: stat.st_size.cast_unsigned(),
            blocks: stat.st_blocks.cast_unsigned(),
            accessed: (stat.st_atime, stat.st_atime_nsec),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl From<&Metadata> for Stat {
    fn from(meta: &Metadata) -> Self {
        Self {
            id: (meta.dev(), meta.ino()),
            mode: meta.mode(),
            links: meta.nlink(),
            user: meta.uid(),
            group: meta.gid(),
            device: meta.rdev(),
            size: meta.size(),
            blocks: meta.blocks(),
            accessed: (meta.atime(), meta.atime_nsec()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// A directory to look at entries of.
pub(super) fn directory(place: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(place)
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a OsStr,
}

impl Place<'_> {
    /// What the kernel says of it; a symbolic link is not followed.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        Stat::at(self.directory, self.name)
    }

    /// A path to it.
    pub(super) fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(self.name)
    }

    /// Opens a file to be read, without a trace in its time of last access where it may be so: in a layer all files are the node's user's, or that is root.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let name = self.name.as_bytes();
        let opened = match openat(self.directory, name, flags | OFlag::O_NOATIME, Mode::empty()) {
            Err(Errno::EPERM) => openat(self.directory, name, flags, Mode::empty()),
            opened => opened,
        };
        Ok(opened?.into())
    }
}
