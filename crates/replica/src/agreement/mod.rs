//! A leader's side of the agreement, whatever the mode. Pure decisions without I/O or clocks:
//!
//! * [`lead`]: when a new leader may serve, and how much it may have in flight.
//! * [`gather`]: when clients that are about to ask again are waited for.
//! * [`deferred_sync`]: when a leader's own disk is not waited for.
//! * [`regular`]: when the server's next timer is expected.
//! * [`unhurried`]: entries for which nobody waits.

pub mod deferred_sync;
pub mod gather;
pub mod lead;
pub mod regular;
pub mod unhurried;
