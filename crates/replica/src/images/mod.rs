//! Images of the server: when one is taken, which are kept, which one is fetched from another replica. Pure; [`crate::replica`] carries it out.
//!
//! A replica keeps a few images on its disk, its own or another's: at one entry all servers are alike. A follower takes one while its server stands still
//! for a moment; no client waits for that. Several do so in turn, or, where images are to be compared (`crate::replica`'s `roots`), at the same entries. A leader fetches one from a follower, and takes one itself only when no other replica has any. What the oldest kept
//! image covers is forgotten by the log, so the replica's disk stays bounded, and image and log together are always the whole.
//!
//! ```text
//! peers tell each other:  HELD    my newest image: entry, length, digest
//! to a peer that has it:  FETCH   the next bytes of it from here on
//! its answer:             PART    these are they (none: it is gone)
//! a leader to a replica   NEED    you need an image of this entry or a later one: the log before it is gone
//! one that can begin nowhere, to all   FETCH of entry 0   take an image of this entry or a later one
//! ```
//!
//! What was received so far stays on disk, so a broken transfer goes on where it was.

pub mod fetch;
pub mod schedule;
mod sent;
mod taken;
mod turn;

pub use fetch::Fetch;
pub use schedule::Schedule;
pub use sent::Sent;
pub use taken::{Checkpointed, Taken, Taking};
pub use turn::Turn;
