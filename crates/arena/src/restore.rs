//! The restore file: what a server is made of when it continues from an image. The node writes it, the runtime reads it.
//!
//! ```text
//! Head | pages, from 4096 on | Known... | Process... | Object... | Description... | Mapping... | Run... | Lock... | Credentials... |
//! Parked... | Program... | Descriptor... | groups | names
//! ```
//!
//! Pages: first those of the processes, then what they share: those of the arena's heap, and of objects. The tables begin at [`Head::tables_at`]. Addresses are the server's. Names end with a zero.

use crate::layout::{NUMBERS_FD, RESTORE_FD};

/// `skeinim` and the version of the format.
pub const MAGIC: u64 = u64::from_le_bytes(*b"skeinim\x01");

/// The first bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// Where the tables are, a multiple of 4096.
    pub tables_at: u64,
    /// Their length.
    pub tables_bytes: u64,
    /// The position of the arena's header as it was.
    pub header_at: u64,
    /// The number of [`Process`]es, by number.
    pub processes: u32,
    /// The number of [`Object`]s.
    pub objects: u32,
    /// The number of [`Description`]s.
    pub descriptions: u32,
    /// The number of [`Mapping`]s.
    pub mappings: u32,
    /// The number of [`Run`]s.
    pub runs: u32,
    /// The number of [`Descriptor`]s.
    pub descriptors: u32,
    /// The runs of the arena's heap, which come first.
    pub heap_runs: u32,
    /// Above it are no descriptors of the server's, and none of the runtime's: there the restore keeps its own.
    pub last_fd: i32,
    /// The number of [`Lock`]s.
    pub locks: u32,
    /// The number of [`Credentials`].
    pub credentials: u32,
    /// The number of groups.
    pub groups: u32,
    /// The number of [`Parked`] files.
    pub parked: u32,
    /// The number of [`Program`]s.
    pub programs: u32,
    /// The number of [`Known`] files.
    pub files: u32,
    /// Where in the tables the names begin.
    pub names_at: u64,
    /// The length of the auxiliary vector that the kernel gives a program; 0: an older version did not say.
    pub vector_bytes: u64,
    /// Where in the names the [`Settings`] of all processes are, from 1; 0: none has any.
    pub settings_at: u64,
}

/// What a process has told the kernel by files of `/proc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its `oom_score_adj`.
    pub score: i32,
    /// Its `coredump_filter`; 0, too, where the kernel has none.
    pub filter: u32,
}

/// A file that the arena knows by the kernel's numbers, and a path where it is. Sorted by these numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Device and inode number when the image was taken.
    pub was: [u64; 2],
    /// The path, in the names; a symbolic link at its end is the file itself.
    pub path: u64,
    /// Zeros; while the server is restored: device and inode number now.
    pub is: [u64; 2],
}

impl Head {
    /// The descriptor of the restore file while processes are restored. Behind it and [`numbers_fd`](Self::numbers_fd) are those that processes take over.
    #[must_use]
    pub const fn file_fd(&self) -> i32 {
        if self.last_fd < RESTORE_FD { RESTORE_FD } else { self.last_fd.saturating_add(1) }
    }

    /// The descriptor at which numbers of processes are asked for meanwhile.
    #[must_use]
    pub const fn numbers_fd(&self) -> i32 {
        self.file_fd().saturating_add(NUMBERS_FD - RESTORE_FD)
    }

    /// The number of descriptors that processes take over.
    #[must_use]
    pub const fn lent(&self) -> u32 {
        // Standard output and standard error are two more.
        self.objects.saturating_add(self.descriptions).saturating_add(2)
    }
}

/// A process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// Its number in the server.
    pub pid: u32,
    /// Its `umask`.
    pub umask: u32,
    /// Its working directory's path, in the names.
    pub directory: u64,
    /// The end of its data segment (`brk`); 0: it has none.
    pub brk: u64,
    /// Its mappings, by address: the first, and how many.
    pub mappings: [u32; 2],
    /// Its pages.
    pub runs: [u32; 2],
    /// Its descriptors, by number.
    pub descriptors: [u32; 2],
    /// Its locks: the first, and how many.
    pub locks: [u32; 2],
    /// Its [`Credentials`].
    pub credentials: u32,
    /// Its [`Program`], from 1; [`FIRST_PROGRAM`].
    pub program: u32,
    /// Its root directory's path, in the names; [`NO_NAME`]: the first one's.
    pub root: u64,
    /// Its limits by the kernel's numbers: soft and hard.
    pub limits: [[u64; 2]; LIMITS],
    /// Its name, which ends with a zero.
    pub title: [u8; 16],
}

/// The program of the first process.
pub const FIRST_PROGRAM: u32 = 0;

/// A program that a process has executed. Executed with this, it has its stack where that was.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Program {
    /// In the names: the program's path,
    pub exe: u64,
    /// the path to execute,
    pub path: u64,
    /// the first argument, behind which the others are,
    pub arguments: u64,
    /// and the first variable of the environment, which loads the runtime.
    pub environment: u64,
    /// The numbers of arguments and of variables.
    pub counts: [u32; 2],
    /// The address of the number of arguments on its stack.
    pub stack: u64,
}

/// `RLIM_NLIMITS`.
pub const LIMITS: usize = 16;
/// No place in the names.
pub const NO_NAME: u64 = u64::MAX;

/// What has no path, but a content: memory that processes share, or a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    /// Its length.
    pub bytes: u64,
    /// Its pages: the first run, and how many; their addresses are positions in it.
    pub runs: [u32; 2],
    /// Its kind ([`object`]).
    pub kind: u32,
    /// Its permissions.
    pub mode: u32,
    /// In the names: its name, its former path, or its directory.
    pub name: u64,
    /// Its user and group, as the server numbers them.
    pub owner: [u32; 2],
    /// The kernel's device and inode number as they were; zeros: nobody asked.
    pub file: [u64; 2],
    /// Times of the last access and of the last change: seconds and nanoseconds each.
    pub times: [[i64; 2]; 2],
    /// `F_SEAL_` bits.
    pub seals: u32,
    /// Where in the names its extended attributes are, from 1; 0: it has none. Each is its name with a zero, the length of its value in four bytes, and that. An empty name ends them.
    pub attributes: u32,
}

/// What an object is.
pub mod object {
    /// Memory that processes share and nobody can open: a memory file that is closed, or named [`SHARED_NAME`](super::SHARED_NAME).
    pub const MEMORY: u32 = 0;
    /// A memory file.
    pub const MEMORY_FILE: u32 = 1;
    /// A file that was removed.
    pub const REMOVED: u32 = 2;
    /// A file that never had a name (`O_TMPFILE`).
    pub const NAMELESS: u32 = 3;
}

/// An open file, which several descriptors may share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Description {
    /// Its path, in the names.
    pub name: u64,
    /// The position in the file.
    pub position: u64,
    /// Flags of `open`.
    pub flags: i32,
    /// The number of its object, from 1; 0: it has a path.
    pub object: u32,
}

/// What a mapping is of.
pub mod kind {
    /// Private memory of nothing.
    pub const ANONYMOUS: u32 = 0;
    /// The main thread's stack, which the kernel makes.
    pub const STACK: u32 = 1;
    /// The program's data segment.
    pub const HEAP: u32 = 2;
    /// A file, private.
    pub const FILE: u32 = 3;
    /// The kernel's own, or the runtime's library: it stays, and only its pages are filled.
    pub const STAYS: u32 = 4;
    /// An object that processes share.
    pub const SHARED: u32 = 5;
    /// A file, shared, whose descriptor was for reading only.
    pub const SHARED_FILE: u32 = 6;
    /// A file, shared, whose descriptor was for writing, too.
    pub const WRITTEN_FILE: u32 = 7;
    /// An object, private.
    pub const PRIVATE: u32 = 8;
}

/// Who writes the private pages of a process: the node, when the process has made its mappings and asks, or the process itself, from the file. The values of
/// [`Header::restore_asks`](crate::layout::Header::restore_asks).
///
/// The node offers, the first process accepts; then one process at a time asks, the node answers, and the process takes its answer away. A node or a runtime of before knows nothing of it:
/// then nobody offers, or nobody accepts.
pub mod placing {
    /// Each process reads its pages from the file.
    pub const NOT: u32 = 0;
    /// The node would write them.
    pub const OFFERED: u32 = 1;
    /// No process asks.
    pub const FREE: u32 = 2;
    /// Those of the process that asked are there.
    pub const PLACED: u32 = 3;
    /// The node cannot write them: they come in the file, for all processes.
    pub const IN_FILE: u32 = 4;
    /// The process with the number `n` in the table asks by `FIRST + n`.
    pub const FIRST: u32 = 16;
}

/// What a server has told the kernel about a mapping.
pub mod advice {
    /// A forked child does not have it.
    pub const NOT_FORKED: u32 = 1;
    /// A forked child has zeros in its place.
    pub const WIPED: u32 = 2;
    /// It may have huge pages.
    pub const HUGE: u32 = 4;
    /// It may not.
    pub const SMALL: u32 = 8;
    /// It cannot be changed any more.
    pub const SEALED: u32 = 16;
    /// It grows downwards, as stacks do.
    pub const GROWS: u32 = 32;
}

/// A mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// Its offset in the file or the object.
    pub offset: u64,
    /// The file's path, in the names; the object's number.
    pub of: u64,
    /// Its kind ([`kind`]).
    pub kind: u32,
    /// `PROT_` bits.
    pub protection: u32,
    /// [`advice`] bits.
    pub advice: u32,
    /// 0.
    pub unused: u32,
}

/// Pages in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first one's address.
    pub address: u64,
    /// Their length.
    pub bytes: u64,
    /// Their position in the file.
    pub at: u64,
}

/// A lock of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// The locked range's first byte.
    pub start: u64,
    /// Its last byte; `u64::MAX`: to the end, wherever that is.
    pub last: u64,
    /// The descriptor by which the process has the file.
    pub fd: i32,
    /// Its open file ([`Descriptor::description`]).
    pub description: u32,
    /// Whose it is ([`lock`]).
    pub kind: u32,
    /// Whether it excludes readers.
    pub is_exclusive: u32,
}

/// Whose a lock is.
pub mod lock {
    /// The open file's, by `flock`.
    pub const WHOLE: u32 = 0;
    /// The process's, by `fcntl`.
    pub const PROCESS: u32 = 1;
    /// The open file's, by `fcntl`.
    pub const OPEN_FILE: u32 = 2;
}

/// A process's rights. The order of users and groups: real, effective, saved, for files.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Users.
    pub users: [u32; 4],
    /// Groups.
    pub groups: [u32; 4],
    /// Its other groups: the first, and how many.
    pub others: [u32; 2],
    /// Capabilities: effective, permitted, inheritable, bounding, ambient.
    pub capabilities: [u64; 5],
}

/// An open file on its way from one process to another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Parked {
    /// The runtime's word for it.
    pub ticket: u64,
    /// Its open file ([`Descriptor::description`]).
    pub description: u32,
    /// 0.
    pub unused: u32,
}

/// A descriptor of the kernel's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// Its open file; [`PLACEHOLDER`]: it reserves the number of a virtual descriptor; [`OUTPUT`] or [`ERRORS`].
    pub description: u32,
    /// `O_CLOEXEC`, or 0.
    pub flags: i32,
}

/// The name of memory of no file that processes share, once it was restored,
pub const SHARED_NAME: &core::ffi::CStr = c"skein-shared";
/// as mappings of it say it,
pub const SHARED_SHOWN: &str = "/memfd:skein-shared (deleted)";
/// and as they said it before: for the server, and where servers are compared, it still is that.
pub const SHARED_WAS: &str = "/dev/zero (deleted)";

/// See [`Descriptor::description`].
pub const PLACEHOLDER: u32 = u32::MAX;
/// What a server's standard output was when it began.
pub const OUTPUT: u32 = u32::MAX - 1;
/// What its standard error was.
pub const ERRORS: u32 = u32::MAX - 2;
