//! Shared by tests, the demonstration and benchmarks.

pub mod client;
pub mod cluster;
mod failure;
pub mod memory;
pub mod nodes;
pub mod ports;
pub mod preload;
pub mod random;
pub mod resp;
pub mod servers;
pub mod steps;
pub mod workspace;

pub use failure::{Failure, Outcome};
pub use ports::{free_address, free_port};
pub use random::Random;
