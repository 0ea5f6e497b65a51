//! The server from the node's side: its process, and the memory that it shares with the node.
//!
//! A server lives in *generations*: one start each, with an arena of its own. What a generation says late, after the next
//! one was begun, is not heard.

pub mod launch;
pub mod link;
pub mod offline;
pub mod place;
pub mod printed;
pub mod program;
pub mod shared_core;
pub mod tap;

pub use launch::{Launcher, Running, ServerEvent};
pub use link::{Broken, Link};
pub use offline::{Backlog, Offline, Source};
