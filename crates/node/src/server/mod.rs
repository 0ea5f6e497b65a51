//! The server's process from the node's side: how it is started, kept and read.

pub mod cores;
pub mod launch;
pub mod layers;
pub mod memory;
pub mod offline;
pub mod printed;
pub mod program;

pub use launch::{Launcher, Running};
pub use memory::{layer, memory, outfit, times};
pub use offline::{Backlog, Offline, Source};
