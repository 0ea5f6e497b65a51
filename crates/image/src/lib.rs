//! The processes of a server that stands still, read from `/proc`, and images of it.
//!
//! * [`processes`]: all below the server's first parent.
//! * [`maps`]: the mappings of one.
//! * [`pages`]: their pages, those that were written.
//! * [`state`]: what only the kernel has of them: descriptors, directories, limits, rights.
//! * [`files`]: the files that the server knows by the kernel's numbers.
//! * [`take`]: all of it as the restore file that a server continues from,
//!   with the pages that changed since the image [`before`], of which [`precopy`] reads most while the server goes on;
//! * [`contents`]: the same for the server's files, and [`ahead`]: of what was read of them before;
//! * [`copied`]: in memory, until it is written.
//! * [`file`]: an image as a replica keeps it: the restore file, the server's files, and what the replica knew;
//! * [`packed`]: without pages, which are in packs of several images,
//! * [`pack`]: one of these;
//! * [`placed`]: its pages by their places, for several threads;
//! * [`restore_file`]: what the restore file says of itself.
//!
//! The server's data are not trusted: each list is bounded, and what cannot be understood is an error.

pub mod ahead;
pub mod before;
pub mod contents;
pub mod copied;
mod error;
mod extended;
pub mod file;
mod file_pages;
mod files;
mod files_copied;
mod form;
pub mod futex;
mod inode_table;
mod layered;
pub mod maps;
mod noted;
pub mod pack;
pub mod packed;
pub mod pages;
pub mod placed;
pub mod precopy;
mod proc;
pub mod processes;
mod raw;
pub mod restore_file;
pub mod shared;
mod sparse;
mod stand_ins;
pub mod state;
pub mod take;
mod written;

pub use copied::{Beyond, Copied, Room};
pub use error::{MemoryError, Result};
pub use files_copied::FilesCopied;
pub use form::PAGE_BYTES;
pub use layered::{About, Layered, Plain};
pub use maps::Mapping;
pub use pages::{Pages, is_zero};
pub use processes::Process;
pub use stand_ins::SpareNumbers;
