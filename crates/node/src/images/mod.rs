//! Images of the server on this replica's disk, `DATA_DIR/images`.
//!
//! * [`store`]: the directory: which images are there, how one gets in and out.
//! * [`export`](mod@export): a copy elsewhere.
//! * [`incoming`]: one that another replica sends.
//! * [`restart`]: what a server is given to continue from one.
//!
//! Formats are those of [`skein_image::file`]. A crash leaves every whole image whole, and of others files with names of their own.

pub mod export;
pub mod incoming;
pub mod restart;
pub mod store;

pub use export::export;
pub use restart::Restart;
pub use store::{Found, Store};
