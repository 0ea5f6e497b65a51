//! The processes of a server that stands still, read from `/proc`, and images of it.
//!
//! * [`processes`]: all below the server's first parent.
//! * [`maps`]: the mappings of one.
//! * [`pages`]: their pages, those that were written.
//! * [`files`]: the files that the server knows by the kernel's numbers.
//! * [`take`]: all of it as the restore file that a server continues from.
//! * [`file`]: an image as a replica keeps it: the restore file, the server's files, and what the replica knew.
//!
//! The server's data are not trusted: each list is bounded, and what cannot be understood is an error.

mod error;
pub mod file;
mod files;
pub mod maps;
pub mod pages;
pub mod processes;
pub mod take;

pub use error::{MemoryError, Result};
pub use maps::Mapping;
pub use pages::{PAGE_BYTES, Pages, is_zero};
pub use processes::Process;
