//! The faults of this replica while it runs, as `skein status` names them.
//!
//! Pure trackers without I/O or clocks, each in a file of its own; the replica feeds them (`replica/health.rs`, `replica/pulse.rs`):
//!
//! * [`disk`]: writes that hang, a disk that is slow.
//! * [`lag`]: how far servers are behind, and when a leader waits for them.
//! * [`peers`]: silent replicas, slow links, and the progress of the others' servers.
//! * [`progress`]: a server that executes nothing while those of others do.
//! * [`spin`]: a server that runs without a call while something waits for it.
//!
//! A fault begins and ends by measurement: no operator has to acknowledge it.

pub mod disk;
pub mod lag;
pub mod peers;
pub mod progress;
pub mod spin;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often a node looks at its own state, and tells the others when it has changed,
pub const PULSE_EVERY: Duration = Duration::from_millis(100);
/// and when it has not: twice in the time after which a connection counts as silent, and with each slow heartbeat. While these are slow it looks as often.
pub const PULSE_UNCHANGED_EVERY: Duration = Duration::from_millis(250);

/// The name of the fault of a server that has ended and is not back.
pub const SERVER_ENDED: &str = "server_ended";

/// A current fault of this replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its kind and peer: the same for as long as it lasts.
    pub name: String,
    /// Its description.
    pub why: String,
}

impl Fault {
    /// A fault with this name.
    pub fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}

/// A number of seconds, with one digit behind the point.
fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
