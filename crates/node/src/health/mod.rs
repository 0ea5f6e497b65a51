//! What ails this replica while it runs, as `skein status` names it.
//!
//! Pure trackers without I/O or clocks, each in a file of its own; the reactor feeds them (`reactor/health.rs`):
//!
//! * [`disk`]: writes that hang, a disk that is slow.
//! * [`peers`]: replicas that are not heard of, links that are slow, and how far the others' servers are.
//! * [`progress`]: a server that executes nothing while those of others do.
//! * [`spin`]: a server that runs without a call while something waits for it.
//!
//! A fault begins and ends by what is measured: nobody has to acknowledge it.

pub mod disk;
pub mod peers;
pub mod progress;
pub mod spin;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often nodes tell each other how they are.
pub const PULSE_EVERY: Duration = Duration::from_millis(100);

/// The name of the fault that a server has ended and is not there again.
pub const SERVER_ENDED: &str = "server_ended";

/// Something that ails a replica now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which kind it is, and of which peer: the same for as long as it lasts.
    pub name: String,
    /// What is wrong, in words.
    pub why: String,
}

impl Fault {
    /// One of this name.
    pub fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}

/// So many seconds, with one digit behind the point.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
