//! One replica's daemon: event loop, transport, the server's process, admin.
//!
//! Start with [`node`], which puts a node together, and [`reactor`], the loop that drives a [`Replica`](skein_replica::Replica), which decides. [`server`]
//! starts the replicated program, in a sandbox ([`skein_sandbox`]), and keeps it.

pub mod admin;
pub mod archive;
pub mod base;
pub mod begin;
pub mod check;
pub mod config;
pub mod error;
pub mod forward;
pub mod founding;
pub mod images;
pub mod import;
pub mod key;
mod members;
pub mod memory;
pub mod node;
pub mod place;
pub mod processor;
pub mod reactor;
pub mod relay;
pub mod replay;
pub mod rolling;
pub mod server;
pub mod status;
mod timer;
pub mod trace;
pub mod transport;

pub use base::edition;
pub use config::NodeConfig;
pub use error::{ExitReason, NodeError};
pub use node::Node;
pub use skein_log::disk::durable;
pub use status::{
    Counts, FileAnswer, FileQuestion, FilesStatus, MemoryRoot, MemoryStatus, NodeStatus,
    ReplicaState, ReplicaStatus,
};
