//! Runs small programs (guests) under the runtime without a cluster, and compares.
//!
//! A guest is run three times: natively; under Skein with this harness as its *leader*, which decides the content of the log
//! (inputs of scripted clients, time bubbles at slots, clock entries when a timer is due); and under Skein as a
//! *follower*, which gets the leader's log as fast as its ring takes it and decides nothing. Then
//!
//! - standard output must be the same all three times,
//! - standard error (facts that only a schedule decides), the output frames and the marks in them (index, logical clock,
//!   operations) must be the same in both Skein runs.
//!
//! Both are done with two schedules; with the second one as on a processor that cannot fault on `cpuid`.
//!
//! Time is virtual: a timer that is due in an hour is due at once, so nothing sleeps.
//!
//! Threads: one a run; runs share nothing. Crash: a guest's pid namespace dies with the thread that started it.

pub mod catalogue;
pub mod chain;
mod clients;
pub mod compare;
pub mod head;
mod heap;
pub mod images;
mod input;
pub mod judge;
pub mod launch;
pub mod node;
mod outside;
pub mod restored;
pub mod runner;
mod sandboxed;
pub mod script;
pub mod sequences;
pub mod started;
pub mod sys;
mod trace;
