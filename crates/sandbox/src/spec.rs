//! The parameters of a start: the whole of the server's surroundings, given by the caller.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The isolation of the server from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// User, mount, pid, net, uts and ipc namespaces, and a private writable layer over the file system.
    Full,
    /// None of these, for diagnosis: the server writes to the host's files and sees its processes and host name. The settings
    /// at exec (addresses, auxiliary vector, descriptors, signals, limits) are the same.
    None,
}

/// Resource limits of the server, soft and hard. They are part of its input: a server asks for them, and the stack limit
/// decides where memory is mapped. A core file is never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Soft limit of open files (`RLIMIT_NOFILE`).
    pub open_files: u64,
    /// Hard limit of open files. May not exceed the node's own hard limit unless the node has `CAP_SYS_RESOURCE`.
    pub open_files_max: u64,
    /// Bytes of stack (`RLIMIT_STACK`), soft and hard.
    pub stack_bytes: u64,
}

impl Default for Limits {
    /// The values of a login on Debian, which every host can give: 1024 files (4096 at most), 8 MiB of stack.
    fn default() -> Self {
        Self { open_files: 1024, open_files_max: 4096, stack_bytes: 8 * 1024 * 1024 }
    }
}

/// One start of the server.
#[derive(Debug, Clone)]
pub struct LaunchSpec<'a> {
    /// The program, absolute ([`super::Program::path`]).
    pub program: &'a Path,
    /// The argument vector, `argv[0]` included ([`super::Program::argv`]).
    pub argv: Vec<OsString>,
    /// The environment, exactly.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory.
    pub cwd: &'a Path,
    /// The server's descriptors, each with its number there. Take high numbers, so that the server's own start
    /// at 3.
    pub inherit: Vec<(BorrowedFd<'a>, RawFd)>,
    /// Becomes descriptor 1. Descriptor 0 is /dev/null.
    pub stdout: BorrowedFd<'a>,
    /// Becomes descriptor 2.
    pub stderr: BorrowedFd<'a>,
    /// The host name (not with [`Isolation::None`]).
    pub hostname: &'a str,
    /// The most bytes of files that the server writes in memory: all of them, or those that stay there beside a [`layer_dir`](Self::layer_dir), as /dev/shm.
    pub layer_bytes: u64,
    /// A new, empty directory on a disk for what the server writes; none: that is kept in memory.
    pub layer_dir: Option<PathBuf>,
    /// Further directories, besides the working directory, that the server must be able to write below. Matters to a node that is
    /// an ordinary user, and there only for directories of its own inside those of others (/var/lib/own).
    pub writable: Vec<PathBuf>,
    /// Files that take the place of the host's (not with [`Isolation::None`]).
    pub pins: super::Pins,
    /// Resource limits.
    pub limits: Limits,
    /// Its isolation.
    pub isolation: Isolation,
    /// The file that the server continues from: an image (`skein_image::take`). It gets it as [`RESTORE_FD`](skein_arena::layout::RESTORE_FD), and beside that a way to
    /// ask for the numbers of its processes. Before it is given its first entry, its files are unpacked ([`super::Layer::unpack`]). Not with [`Isolation::None`].
    pub restore: Option<BorrowedFd<'a>>,
    /// The 16 bytes that `AT_RANDOM` points to: the C library's stack protector and pointer guard come from them.
    pub random: [u8; 16],
}
