//! What entries bring to sockets.

use crate::kernel::Kernel;
use skein_model::{ConnId, SockAddr, Term};

/// Connections of older terms are reset.
pub fn term_start(_k: &Kernel, _term: Term) {}
/// A client connected.
pub fn open(_k: &Kernel, _conn: ConnId, _peer: SockAddr, _local: SockAddr) {}
/// Bytes from a client.
pub fn data(_k: &Kernel, _conn: ConnId, _bytes: &[u8]) {}
/// A client sends no more.
pub fn fin(_k: &Kernel, _conn: ConnId) {}
/// A client is gone.
pub fn reset(_k: &Kernel, _conn: ConnId) {}
/// A client took bytes.
pub fn drained(_k: &Kernel, _conn: ConnId, _bytes: u64) {}
