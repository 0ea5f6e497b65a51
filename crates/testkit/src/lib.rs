//! What tests, the demonstration and benchmarks share.

pub mod cluster;
mod failure;
pub mod ports;
pub mod workspace;

pub use failure::{Failure, Outcome};
pub use ports::{free_address, free_port};
