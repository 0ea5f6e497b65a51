//! How nodes reach each other: by unix sockets on one machine, by TCP with a shared key between several.
//!
//! On one machine the kernel names the user at the other end: the directory of the sockets is open to their user alone, and each side checks
//! the other's user id. Between machines the [`key`] does: [`channel`] proves and encrypts. TCP without a key is for a network that
//! no stranger can reach.

pub mod address;
pub mod channel;
pub mod key;
pub mod socket;

pub use address::Address;
pub use key::Key;
