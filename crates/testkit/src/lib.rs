//! What tests, the demonstration and benchmarks share.

pub mod ports;

pub use ports::{free_address, free_port};
