//! The memory of a server, for `skein verify`: what all its processes and all that it can see of the arena hold, so that replicas can be compared.
//!
//! ```text
//! survey:   processes -> their mappings -> a hash for each page that may hold something       (survey.rs)
//!           the arena's heap without what is a replica's own -> a hash a page                 (heap.rs)
//! look:     some pages again: what they hold now, and what lies there                         (look.rs, symbols.rs)
//! ```
//!
//! Read while the server stands still ([`crate::replica`]'s standstill), from `/proc/PID`, in bounded memory: eight bytes a page.
//!
//! Left out: what is the runtime's own in each process, which all lies in one range of addresses; the vDSO and its data, which are the kernel's and
//! hidden from the server; the arena's header and rings. Pages that were never written are not read: of a private mapping of a file those that the
//! process has not changed, which are the file's; of other memory those that no process has in its page tables. So a page may be missing on one side only, and
//! hold the same: whoever compares looks at it again.
//!
//! Nothing that the server says is trusted: it can spoil its own comparison, and no more.

mod heap;
mod look;
mod maps;
mod processes;
mod survey;
mod symbols;
pub mod threads;

pub use processes::{Process, below};

use std::fs::File;

use serde::{Deserialize, Serialize};
use skein_arena::Sizes;

/// A page, as hashed and compared.
pub const PAGE_BYTES: u64 = 4096;
/// Hexadecimal digits of a page's hash.
pub const HASH_DIGITS: usize = 16;
/// The process number under which the arena's heap goes.
pub const ARENA: u32 = 0;
/// Pages with something in them that a survey holds at most: 16 GiB of them.
const MAX_PAGES: u64 = 4 << 20;
/// Pages that can be looked at again at one time.
pub const MAX_LOOKED_AT: usize = 16 << 10;
/// Pages whose contents can be asked for at one time.
pub const MAX_SHOWN: usize = 64;

/// All that a server holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Its processes, by their number in the server.
    pub processes: Vec<ProcessMemory>,
    /// The heap of the arena, at its addresses in the server.
    pub arena: Vec<Run>,
    /// How many pages were hashed.
    pub pages: u64,
}

/// The memory of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Its number, as the server sees it.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Its mappings, by address; neighbours that are alike are one.
    pub mappings: Vec<Mapping>,
}

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// Behind its last address.
    pub end: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub permissions: String,
    /// A path, `[heap]`, `[stack]`, or `anonymous`.
    pub name: String,
    /// Its pages that may hold something. Those of shared memory stand at the first mapping of it alone.
    pub pages: Vec<Run>,
}

/// Pages in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The first one's address.
    pub address: u64,
    /// Their XXH3 hashes, [`HASH_DIGITS`] digits each.
    pub hashes: String,
}

/// Which pages somebody wants to look at again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Whether their contents are wanted, and what lies there.
    pub contents: bool,
    /// The pages.
    pub pages: Vec<PageAt>,
}

/// Where a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageAt {
    /// The process, or [`ARENA`].
    pub pid: u32,
    /// Its address there.
    pub address: u64,
}

/// What is in a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The hash of its contents; empty when there is no such page.
    pub hash: String,
    /// Two hexadecimal digits a byte, if they were wanted.
    pub contents: String,
    /// What lies in it, as far as that is known.
    pub things: Vec<Thing>,
}

/// Something that has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thing {
    /// What it is.
    pub kind: Kind,
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// A symbol's name; an object's file.
    pub name: String,
}

/// What has a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A program or library, or the arena.
    #[default]
    Object,
    /// A function or a variable of one, or an object in the arena.
    Symbol,
}

/// Where a server's memory is to be found.
#[derive(Debug)]
pub struct ServerMemory {
    /// The process that is the parent of all of the server's.
    pub init: u32,
    /// The arena's file.
    pub arena: File,
    /// How large its parts are.
    pub sizes: Sizes,
    /// Where in the heap the runtime says what lies where.
    pub parts_at: u64,
}

/// Why a server's memory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file of `/proc` is not as it should be, or cannot be read.
    #[error("{what}: {error}")]
    Read {
        /// What was read.
        what: String,
        /// Why not.
        error: std::io::Error,
    },
    /// There is more than fits into a survey.
    #[error("the server holds more than {0}")]
    TooMuch(&'static str),
    /// It took too long.
    #[error("reading the server's memory took longer than a server is held")]
    TooLong,
}

impl MemoryError {
    fn read(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Read { what, error }
    }
}

type Result<T> = std::result::Result<T, MemoryError>;

fn hash(page: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(page)
}

fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

/// Puts the hash of the page at `address` behind the others: pages come in order.
fn push(runs: &mut Vec<Run>, address: u64, hash: u64) {
    use std::fmt::Write;
    let follows = |run: &&mut Run| {
        run.address + (run.hashes.len() / HASH_DIGITS) as u64 * PAGE_BYTES == address
    };
    if runs.last_mut().as_ref().is_none_or(|run| !follows(run)) {
        runs.push(Run { address, hashes: String::new() });
    }
    if let Some(run) = runs.last_mut() {
        write!(run.hashes, "{hash:016x}").expect("a string takes everything");
    }
}
