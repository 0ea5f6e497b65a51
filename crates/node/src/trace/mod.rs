//! Traces of a server's operations: making them, reading them, and the first operation in which two runs differ.
//!
//! The runtime writes them ([`skein_sched::trace`] has the form); this is the node's side.
//!
//! * [`file`]: a trace in a file; its events, checked.
//! * [`compare`]: the first event in which two streams of events differ.
//! * [`watch`]: a traced run while it goes on: names the place of a server that has stopped at an event.
//! * [`say`]: an event in words.
//!
//! `skein check --operations` and `skein replay --operations` use all of it.
//!
//! Crash: a trace without a name is gone with its process. A trace is written by the server, so nothing in it is trusted.

pub mod compare;
pub mod file;
pub mod say;
pub mod watch;

pub use compare::{Different, Side, first_difference};
pub use file::{Damaged, Events, TraceFile};
pub use say::Told;
pub use skein_sched::trace::Event;
pub use watch::{Seen, Traced, Watch};
