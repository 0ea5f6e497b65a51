//! The replicated log: consensus and write-ahead log.
//!
//! Three parts, none of which knows a socket or a clock:
//!
//! * [`consensus`]: TiKV's `raft` behind [`Consensus`], the only code of Skein that names it. Inputs are ticks, messages
//!   and proposals, the output is a [`Batch`] of duties. Start with the head of that module: it lists the caller's duties.
//! * [`wal`]: segment files that hold entries and votes so that a crash at any byte loses nothing that was synced, over
//!   a small [`disk::Disk`] trait so that tests can tear, lose and flip written bytes. [`wal::thread`] syncs it in groups.
//! * [`wire`] and [`frame`]: messages between nodes: versioned, bounded, never trusted.
//!
//! [`Base`] is where a log begins. [`Level`] is what nodes know of each other's forms. [`identity`] is the durable record of a replica whose log is in memory, so that it knows after a crash that it forgot.

mod base;
pub mod consensus;
mod cursor;
pub mod disk;
pub mod frame;
pub mod identity;
mod level;
mod places;
mod recovered;
mod rng;
mod types;
pub mod wal;
pub mod wire;

pub use base::{Base, Members, NewBase};
pub use consensus::{
    Batch, Change, ChangeError, Chunk, Config, Consensus, ConsensusError, EntryReader,
    MemberStatus, OldEntries, Outgoing, PeerStatus, Progress, ProposeError, RoleChange, Status,
    StepError, UnfitKinds, unfit_kinds,
};
pub use level::{HeldBack, Level, TooNew};
pub use places::{Kind, MAX_ADDRESS_BYTES, MAX_REPLICAS, NoKind, Place};
pub use recovered::Recovered;
pub use types::{
    ClusterId, Durability, EntryKind, HardState, LogEntry, Persist, ProgramHash, Role, Ticket,
    majority,
};
