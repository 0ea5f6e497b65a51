//! One replica: gateway, order mode, supervisor, admin.
//!
//! Start with [`node`], which puts a node together, [`reactor`], its loop, and [`replica`], which decides. [`gateway`] and [`order`] hold the rules,
//! free of I/O; [`server`] is the replicated program from the node's side, [`supervisor`] its sandbox.

pub mod admin;
pub mod begin;
pub mod check;
pub mod config;
pub mod error;
pub mod forward;
pub mod gateway;
pub mod health;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod order;
pub mod outgoing;
pub mod reactor;
pub mod replay;
pub mod replica;
pub mod server;
pub mod status;
pub mod supervisor;
mod timer;
pub mod trace;
pub mod transport;

pub use config::NodeConfig;
pub use error::{ExitReason, NodeError};
pub use node::Node;
pub use skein_log::disk::durable;
pub use status::{Counts, FilesStatus, MemoryStatus, NodeStatus, ReplicaState, ReplicaStatus};
