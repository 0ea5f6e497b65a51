//! One replica: what it decides, without doing anything by itself.
//!
//! Start with [`replica`], which decides, and [`environment`], all that is around it: a node's event loop is one, a simulation another. [`gateway`],
//! [`agreement`], [`modes`], [`verdicts`], [`health`], [`images`], [`editions`] and [`time`] hold the rules, [`server`] is the replicated program from the replica's side. There are no sockets here, no disk, no processes, no clock.

pub mod agreement;
pub mod config;
pub mod editions;
pub mod environment;
pub mod error;
pub mod gateway;
pub mod health;
pub mod images;
pub mod members;
pub mod metrics;
pub mod modes;
pub mod outgoing;
pub mod replica;
pub mod server;
pub mod status;
pub mod time;
pub mod verdicts;

pub use config::ReplicaConfig;
pub use environment::Environment;
pub use error::{ExitReason, ReplicaError};
pub use replica::{Command, Inbox, Parts, Replica};
pub use skein_log::majority;
