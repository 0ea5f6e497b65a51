//! Whole clusters in one thread, with time, network, disks and clients faked, all of it decided by one seed.
//!
//! What runs is real: consensus, the write-ahead log's code, the gateway, and the decisions of mode `order`. What is
//! simulated is below and around it: a network that loses, delays, reorders, repeats and partitions; disks that forget
//! and tear what was not synced; processes that are killed, stopped and continued; machines that lose power; clocks
//! that differ. The server is a small register store ([`server`]), its clients remember what they were told.
//!
//! Checked all the time ([`check`]): one leader a term, the same entries committed everywhere, nothing executed twice, the
//! same output digests on all replicas; at the end: everyone converges, and what clients saw is linearizable
//! ([`history`]).
//!
//! [`run`] with the same seed does exactly the same. [`options::Break`] breaks a rule on purpose: tests show that this is
//! noticed.

pub mod check;
mod client;
pub mod history;
pub mod options;
mod replica;
pub mod server;
mod world;

pub use options::{Break, Options};
pub use world::{Failure, Report};

/// Runs one simulation to its end.
///
/// # Errors
/// A promise was broken; the failure says which, when, and how to see it again.
pub fn run(seed: u64, options: &Options) -> Result<Report, Failure> {
    world::World::new(seed, options).run()
}
