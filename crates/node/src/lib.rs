//! One replica: gateway, order mode, supervisor, admin.

pub mod config;
pub mod gateway;
pub mod order;
pub mod status;
pub mod supervisor;

pub use config::NodeConfig;
pub use status::{NodeStatus, ReplicaState, ReplicaStatus};
