//! Mode `order`: agree on inputs first, execute them everywhere, compare the outputs (CRANE sections 2 to 5).
//!
//! Pure decisions without I/O or clocks, each in a file of its own; the replica puts them together:
//!
//! * [`virtual_time`]: the time that goes into entries, and [`clocks`]: the replicas' wall clocks as its source.
//! * [`admission`]: when a leader proposes time bubbles and clock entries.
//! * [`gather`]: when clients that are about to ask again are waited for.
//! * [`deferred_sync`]: when a leader's own disk is not waited for.
//! * [`ahead`]: entries that a leader's server executes before they are committed.
//! * [`feed`]: which entries the server gets, and which is next.
//! * [`lead`]: when a new leader may serve, and how much it may have in flight.
//! * [`lag`]: how far servers are behind, and when a leader waits for them.
//! * [`digest`] and [`verdict`]: the server's output, and whether it equals the others'.
//! * [`exits`]: whether the servers ended because of their input.
//! * [`events`]: the last frames in short form, for a report of a divergence.

pub mod admission;
pub mod ahead;
pub mod clocks;
pub mod deferred_sync;
pub mod digest;
pub mod events;
pub mod exits;
pub mod feed;
pub mod gather;
pub mod lag;
pub mod lead;
pub mod verdict;
pub mod virtual_time;
