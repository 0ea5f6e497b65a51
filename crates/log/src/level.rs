//! The level of what nodes say to each other and keep: which forms of messages, records of the log and images there are.
//!
//! One number, which grows with each form that nodes from before would not understand:
//!
//! | level | is |
//! |---|---|
//! | 1 | all forms up to the first version that has levels; nodes from before say nothing, and have this one |
//! | 2 | members' records and bases with the [agreed level](crate::Consensus::agreed_level), segments of the log that begin with such a base, [hellos](crate::frame::Hello) with levels |
//! | 3 | images that say what the processor can do for programs |
//!
//! Each node says the newest level that it knows. What all members know, they agree on by a record in the log; it never falls. A form of a level is sent and
//! written only when that is agreed: nodes of different versions work together, and one that is older than the agreement is refused. See `docs/decisions/0041`.
//!
//! **A new form**: raise [`Level::NEWEST`] and add a row above; read it always; send or write it where `agreed_level() >= Level(N)`.

use std::fmt;

/// See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(pub u16);

impl Level {
    /// That of nodes from before levels.
    pub const FIRST: Self = Self(1);
    /// The newest that this program knows.
    pub const NEWEST: Self = Self::PROCESSORS;
    /// Images say what the processor can do for programs.
    pub const PROCESSORS: Self = Self(3);
}

impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The members have agreed on more than this program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the members have agreed on level {needed} of what nodes say and keep, and this Skein knows no more than level {known}: \
     install the version of Skein that the other nodes have, or a later one"
)]
pub struct TooNew {
    /// The level that it would have to know.
    pub needed: Level,
    /// The newest that it knows.
    pub known: Level,
}

/// What holds a higher level back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The agreed level.
    pub agreed: Level,
    /// The one that the leader knows.
    pub known: Level,
    /// The members that have not said that they know it: they are older, or not connected.
    pub by: Vec<skein_model::ReplicaId>,
}
