//! Whether the replicas' servers are equal, and whether they ended because of their input. Pure decisions without I/O or clocks:
//!
//! * [`digest`] and [`rounds`]: a server's output, and whether it equals the others'.
//! * [`exits`]: whether the servers ended because of their input.
//! * [`events`]: the last frames in short form, for a report of a divergence.

pub mod digest;
pub mod events;
pub mod exits;
pub mod rounds;
