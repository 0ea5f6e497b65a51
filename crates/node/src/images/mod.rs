//! Images of the server on this replica's disk, `DATA_DIR/images`.
//!
//! * [`store`]: the directory: which images are there,
//! * [`write`](mod@write): how one gets in,
//! * [`packs`]: which pages stay.
//! * [`files`]: the server's files in an image.
//! * [`export`](mod@export): a copy elsewhere.
//! * [`incoming`]: one that another replica sends.
//! * [`restart`]: what a server is given to continue from one;
//! * [`placing`]: its pages.
//!
//! Formats are those of [`skein_image::file`]. A crash leaves every whole image whole, and of others files with names of their own.

pub mod adopt;
pub mod export;
pub mod files;
pub mod incoming;
pub mod packs;
mod placing;
pub mod restart;
pub mod store;
pub mod write;

pub use export::export;
pub use packs::Removal;
pub use restart::Restart;
pub use store::{Found, Store};
