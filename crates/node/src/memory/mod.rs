//! The memory of a server, for `skein verify`: the content of all its processes and of the part of the arena that it can see, so that replicas can be compared.
//!
//! ```text
//! survey:   processes -> their mappings -> a hash for each page that may hold something       (survey.rs)
//!           the arena's heap without bytes that belong to one replica -> a hash a page        (heap.rs)
//! tree:     a hash for each 512 of these pages, and one of all                              (tree.rs)
//! look:     some pages again: their content, and the objects in them                         (look.rs, symbols.rs)
//! repair:   some pages are written, as another replica has them                              (repair.rs)
//! state:    what only the kernel has of the processes: descriptors, limits, rights            (state.rs)
//! ```
//!
//! Read while the server stands still ([`skein_replica::replica`]'s standstill), from `/proc/PID`, in bounded memory: eight bytes a page.
//!
//! Left out: the runtime's own memory in each process, which all lies in one range of addresses; the vDSO and its data, which are the kernel's and
//! hidden from the server; the arena's header and rings. Pages that were never written are not read: of a private mapping of a file those that the
//! process has not changed, which are the file's; of other memory those that no process has in its page tables. So a page may be missing on one side only, and
//! hold the same: the comparison then reads it again.
//!
//! The server's data are not trusted: a server can spoil its own comparison, and no more.

mod heap;
mod look;
mod repair;
mod state;
mod survey;
mod symbols;
pub mod threads;
mod tree;

use skein_image::Result;
pub use skein_image::processes::below;
pub use skein_image::{MemoryError, PAGE_BYTES, Process};
pub use state::{Fact, ProcessState, state_root};
pub use tree::GROUP_BYTES;

use std::fmt;
use std::fs::File;

use serde::{Deserialize, Serialize};
use skein_arena::Sizes;

/// Hexadecimal digits of a page's hash.
pub const HASH_DIGITS: usize = 16;
/// The process number that stands for the arena's heap.
pub const ARENA: u32 = 0;
/// The most pages in a survey: 16 GiB of them.
const MAX_PAGES: u64 = 4 << 20;
/// The most pages that can be read again at one time.
pub const MAX_LOOKED_AT: usize = 16 << 10;
/// The most pages whose contents can be requested at one time.
pub const MAX_SHOWN: usize = 64;

/// The whole memory of a server; or the same with groups of pages in place of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// Its processes, by their number in the server.
    pub processes: Vec<ProcessMemory>,
    /// The heap of the arena, at its addresses in the server.
    pub arena: Vec<Run>,
    /// The number of hashed pages.
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
    /// The address behind its last.
    pub end: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub permissions: String,
    /// A path, `[heap]`, `[stack]`, or `anonymous`.
    pub name: String,
    /// Its pages that may hold something. Those of shared memory are listed at its first mapping only.
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

/// Pages to be read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Whether their contents and objects are requested.
    pub contents: bool,
    /// The pages.
    pub pages: Vec<PageAt>,
}

/// The position of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageAt {
    /// The process, or [`ARENA`].
    pub pid: u32,
    /// Its address there.
    pub address: u64,
}

/// The content of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The hash of its content; empty when there is no such page.
    pub hash: String,
    /// Two hexadecimal digits a byte, if requested.
    pub contents: String,
    /// Its objects, as far as they are known.
    pub things: Vec<Thing>,
}

/// A page to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageContents {
    /// Its position.
    pub at: PageAt,
    /// Two hexadecimal digits a byte.
    pub contents: String,
}

/// A named object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thing {
    /// Its kind.
    pub kind: Kind,
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// A symbol's name; an object's file.
    pub name: String,
}

/// Kinds of named objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A program or library, or the arena.
    #[default]
    Object,
    /// A function or a variable of one, or an object in the arena.
    Symbol,
}

/// The sources of a server's memory.
#[derive(Debug)]
pub struct ServerMemory {
    /// The parent of all of the server's processes.
    pub init: u32,
    /// The arena's file.
    pub arena: File,
    /// The sizes of its parts.
    pub sizes: Sizes,
    /// The offset of the table of parts in the heap.
    pub parts_at: u64,
}

/// Two hexadecimal digits a byte.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// The bytes in such a text; what is none is left out.
#[must_use]
pub fn bytes(hex: &str) -> Vec<u8> {
    let (pairs, _) = hex.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    pairs.iter().filter_map(byte).collect()
}

fn hash(page: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(page)
}

/// Appends the hash of the page at `address`: pages come in order.
fn push(runs: &mut Vec<Run>, address: u64, hash: u64) {
    append(runs, address, PAGE_BYTES, format_args!("{hash:016x}"));
}

/// Appends the hash of a page or a group.
fn append(runs: &mut Vec<Run>, address: u64, size: u64, hash: fmt::Arguments<'_>) {
    use std::fmt::Write;
    let follows = |run: &&mut Run| {
        let len = (run.hashes.len() / HASH_DIGITS) as u64 * size;
        run.address.checked_add(len) == Some(address)
    };
    if runs.last_mut().as_ref().is_none_or(|run| !follows(run)) {
        runs.push(Run { address, hashes: String::new() });
    }
    if let Some(run) = runs.last_mut() {
        run.hashes.write_fmt(hash).expect("a string takes everything");
    }
}
