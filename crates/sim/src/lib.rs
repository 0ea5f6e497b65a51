//! Whole clusters in one thread, with time, network, disks and clients faked, all of it decided by one seed.
//!
//! What runs is the real [`Replica`](skein_replica::replica::Replica), with consensus, the write-ahead log's code, the gateway and the order mode in it,
//! and the rings of a real arena. What is simulated is around it (`around.rs`): a network of connections that stall, break and are cut in one
//! direction; disks that forget, tear, hang, fail and fill up; nodes that are killed, stopped and continued; machines that lose power, or are lost for
//! good; clocks that differ and jump; servers that end and hang. The server is a small register store ([`server`]) that stands in the arena as a real
//! one does (`scripted.rs`); its clients remember what they were told.
//!
//! Checked all the time ([`check`]): one leader a term, the same entries committed and executed everywhere, nothing executed twice, the
//! same output digests on all replicas, virtual time near the true one; nobody fails or ends by anything but what was done to it. At the end: everyone
//! who is left converges, and what clients saw is linearizable ([`history`]).
//!
//! [`run`] with the same seed does exactly the same. [`options::Break`] breaks a rule on purpose: tests show that this is
//! noticed.

mod around;
pub mod check;
mod client;
mod hasty;
pub mod history;
mod keeper;
mod machine;
mod machines;
pub mod options;
mod outside;
mod promises;
mod scripted;
pub mod server;
mod shelf;
mod wire;
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
