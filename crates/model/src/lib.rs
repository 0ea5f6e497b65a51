//! The types that every part of Skein shares: ids, clocks, log entries and the frames of the arena's rings.
//!
//! Owns no state. Everything here is a plain value or a bounded codec over byte slices, without allocation, so that
//! the runtime inside the server, the node and the simulation read the same bytes the same way.
//!
//! Start with [`entry`]: consensus agrees on entries, and a server executes them.
#![no_std]

pub mod entry;
pub mod fact;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod net;
mod padding;

pub use entry::{EntryBuilder, EntryError, EntryRef, Record};
pub use frame::{OutFrame, OutFrameError};
pub use ids::{Clock, ConnId, LogIndex, ReplicaId, Term, WallNs};
pub use net::{Interface, SockAddr};
pub use padding::pad8;

#[cfg(test)]
extern crate alloc;
