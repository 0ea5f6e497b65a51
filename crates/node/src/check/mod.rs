//! Tells whether a program is deterministic under Skein: runs it once as the only replica, records the log and all its
//! output, then runs it again from that log and compares, frame by frame.
//!
//! * [`seen`]: the observations of a run, shared with its waiter.
//! * [`recording`]: log and output of the first run, in files that have no name.
//! * [`first`]: the first run, by an ordinary node without a data directory, peers or operators.
//! * [`second`]: the second run, by the same link that an ordinary node has, fed as a follower is.
//! * [`compare`]: the first difference, in words.
//! * [`files`]: the first difference between the files that the two runs left.
//! * [`otherwise`]: a third run on another schedule, which tells whether clients' answers depend on it.
//!
//! Nothing in here is part of a cluster. Crash: the files have no names and the servers die with their node, so nothing stays.

pub mod compare;
pub mod files;
pub mod first;
pub mod otherwise;
pub mod recording;
pub mod second;
pub mod seen;

pub use compare::{Difference, Kind, NOWHERE};
pub use first::FirstRun;
pub use recording::Recording;
pub use second::{Replayed, replay};
pub use seen::Seen;
