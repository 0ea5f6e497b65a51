//! The restore file: what a server is made of when it continues from an image. The node writes it, the runtime reads it.
//!
//! ```text
//! Head | pages, from 4096 on | Known... | Process... | Object... | Description... | Mapping... | Run... | Descriptor... | names
//! ```
//!
//! The tables begin at [`Head::tables_at`]. Addresses are the server's. Names end with a zero.

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
    /// The number of [`Known`] files.
    pub files: u32,
    /// Where in the tables the names begin.
    pub names_at: u64,
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
}

/// Memory that processes share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Object {
    /// Its length.
    pub bytes: u64,
    /// Its pages: the first run, and how many; their addresses are positions in it.
    pub runs: [u32; 2],
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
    /// 0.
    pub unused: u32,
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
    /// A file, shared and only read.
    pub const SHARED_FILE: u32 = 6;
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
}

/// Pages in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// The first one's address.
    pub address: u64,
    /// Their length.
    pub bytes: u64,
    /// Their position in the file.
    pub at: u64,
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

/// See [`Descriptor::description`].
pub const PLACEHOLDER: u32 = u32::MAX;
/// What a server's standard output was when it began.
pub const OUTPUT: u32 = u32::MAX - 1;
/// What its standard error was.
pub const ERRORS: u32 = u32::MAX - 2;
