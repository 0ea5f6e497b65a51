//! What a replica says of a server that stands still, as what can be read here.

use super::launch::Running;
use crate::memory::ServerMemory;
use skein_replica::server::{Files, MemoryPlace};
use skein_sandbox::{KeptTimes, Layer, SpareNumbers};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What this node tells a replica of a server's files; the replica only hands it on.
#[derive(Debug)]
pub struct Outfit {
    layer: Arc<Layer>,
    /// What it prints into.
    given: Option<OwnedFd>,
    numbers: Option<Spare>,
}

/// Numbers for copies of the server's processes.
#[derive(Debug)]
struct Spare(Arc<SpareNumbers>);

impl skein_image::SpareNumbers for Spare {
    fn lend(&self, first: u32) -> io::Result<()> {
        self.0.lend(first).map(drop)
    }

    fn give_back(&self) -> io::Result<()> {
        self.0.give_back()
    }
}

impl Outfit {
    /// That of a server that was just started; none if it writes into the host's files.
    pub(super) fn of(running: &dyn Running) -> Option<Self> {
        let numbers = running.spare_numbers().map(Spare);
        running.layer().map(|layer| Self { layer, given: running.given(), numbers })
    }

    /// Where numbers for copies of its processes come from.
    pub fn numbers(&self) -> Option<&dyn skein_image::SpareNumbers> {
        self.numbers.as_ref().map(|spare| spare as &dyn skein_image::SpareNumbers)
    }

    /// What the server was given as standard output and standard error.
    pub fn given(&self) -> Option<BorrowedFd<'_>> {
        self.given.as_ref().map(AsFd::as_fd)
    }
}

/// The server's files.
#[must_use]
pub fn outfit(files: &Files) -> Arc<Outfit> {
    files.clone().downcast().expect("a node tells an outfit")
}

/// The server's layer.
#[must_use]
pub fn layer(files: &Files) -> Arc<Layer> {
    outfit(files).layer.clone()
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
