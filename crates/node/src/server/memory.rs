//! What a replica says of a server that stands still, as what can be read here.

use crate::memory::ServerMemory;
use skein_replica::server::{Files, MemoryPlace};
use skein_sandbox::{KeptTimes, Layer};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The server's layer, which is all that this node ever tells a replica of its files.
#[must_use]
pub fn layer(files: &Files) -> Arc<Layer> {
    files.clone().downcast().expect("a node's servers write into layers")
}

/// When it wrote what it wrote.
#[must_use]
pub fn times(arena: OwnedFd, times_at: u64) -> KeptTimes {
    KeptTimes::new(arena, times_at)
}

/// Its memory.
#[must_use]
pub fn memory(place: MemoryPlace) -> ServerMemory {
    let MemoryPlace { init, arena, sizes, parts_at } = place;
    ServerMemory { init, arena: arena.into(), sizes, parts_at }
}
