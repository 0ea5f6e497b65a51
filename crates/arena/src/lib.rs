//! The arena: the memory that a node shares with its server, and the objects that live in it.
//!
//! ```text
//! file      | header 64 KiB | input ring | output ring | heap                    |
//! address   | header        | input ring | its mirror  | output ring | its mirror | heap |
//! ```
//!
//! Each ring is mapped twice, one copy behind the other, so that a frame never wraps. In the server the arena lies at
//! [`layout::SERVER_BASE`] always, so that replicas' heaps can be compared; the node maps
//! the header and the rings at any address. Of the heap it reads only the table of files ([`inodes`]) and the record of writes to them
//! ([`writes`]), and all of it when replicas are compared ([`parts`]).
//!
//! Writers: the node produces the input ring, the runtime the output ring; each field of the header names its writer.
//! The heap belongs to the runtime, which under the `serial` schedule runs one thread at a time: its objects use [`core::cell::Cell`].
//!
//! A crash of the server leaves an arena that nobody reads again; a crash of the node takes the server with it.
#![cfg_attr(not(test), no_std)]

pub mod asks;
pub mod bytes;
pub mod full;
pub mod gate;
pub mod inodes;
pub mod interface;
pub mod layout;
pub mod list;
pub mod map;
pub mod parts;
pub mod places;
pub mod planned;
pub mod pool;
pub mod restore;
pub mod ring;
pub mod trapped;
pub mod uses;
pub mod writes;

pub use gate::Gate;
pub use layout::{Header, Sizes};
pub use map::{Arena, MapError};
pub use ring::{Consumer, Producer};

pub(crate) mod sync {
    #[cfg(not(loom))]
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
