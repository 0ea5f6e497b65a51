//! Modes: the rules by which replicas keep their servers equal.
//!
//! A [`Replica`](crate::replica::Replica) asks its [`Mode`] four questions, and does all the rest alike in every mode: what is
//! proposed besides clients' inputs, which server executes an entry and when, what is recorded of that, and when output leaves.
//!
//! Pure: a mode has no clock, no server and no I/O of its own.

pub mod order;

pub use order::Order;

use skein_model::{LogIndex, WallNs};
use std::fmt::Debug;
use std::time::Duration;

/// What the leader's server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing: it runs, or has entries to execute, or proposals are under way.
    Nothing,
    /// At a slot, for the next entry.
    Slot,
    /// Quiescent; a timer is due at this time of its day, `u64::MAX` for none.
    Quiescent(u64),
    /// For the agreement on what it found in its host's files.
    Findings,
}

/// What a leader proposes for its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing until an event.
    Nothing,
    /// Nothing yet; ask again after this long.
    After(Duration),
    /// A bubble of this many turns.
    Bubble(u32),
    /// An entry without records, for its time.
    Clock,
    /// The server's findings.
    Findings,
}

/// A proposal that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Of a client's or an operator's input.
    Input,
    /// Of what was due.
    Due(Due),
}

/// How far an entry is when a server gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its leader has proposed it.
    Proposed,
    /// It is committed.
    Committed,
}

/// How a replica's server executes entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// It gets them at this stage.
    pub from: Stage,
    /// It may sleep for this long with entries in its ring.
    pub within: Duration,
}

/// What replicas write into the log about their servers' execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Digests of its output, which are compared.
    Digests,
    /// Nothing.
    Nothing,
}

/// See the [module](self).
pub trait Mode: Debug + Send {
    /// What is proposed: the answer for the leader's server, at `now` by the steady clock and `wall` by virtual time.
    fn due(&mut self, waiting: Waiting, now: Duration, wall: WallNs) -> Due;

    /// This was proposed.
    fn proposed(&mut self, proposal: Proposal, now: Duration);

    /// Who executes when: the answer for the server of a replica that leads, or follows.
    fn execution(&self, leads: bool) -> Execution;

    /// What is recorded.
    fn recorded(&self) -> Recorded;

    /// When output leaves: that of entries up to the answer may, while those up to `committed` are committed.
    fn released(&self, committed: LogIndex) -> LogIndex;
}
