//! How nodes reach each other: by unix sockets on one machine, by TCP with a shared key between several.
//!
//! On one machine the kernel says who is at the other end: the directory of the sockets is open to their user alone, and each side looks
//! at the other's user id. Between machines the [`key`] does: [`channel`] proves and encrypts. TCP without a key is for a network that
//! nobody else is on.

pub mod address;
pub mod channel;
pub mod key;
pub mod socket;

pub use address::Address;
pub use key::Key;
