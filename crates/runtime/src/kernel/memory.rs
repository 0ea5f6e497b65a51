//! Records of memory that several processes share, in the arena: [`crate::process::shared`] maintains them.

use core::cell::Cell;
use core::mem::offset_of;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Link, Pool};
use skein_libos::room::Room;

/// Shared mappings of all processes at one time: 16,384.
pub const MAX_MAPPINGS: u32 = 16 << 10;
/// Regions at one time: as many as a key has room for.
pub const MAX_REGIONS: u32 = (1 << 15) - 1;

/// The place of a mapping in its process's list.
pub struct InProcess;

/// A shared mapping of a process.
#[repr(C)]
pub struct Mapping {
    pub node: Node<Mapping>,
    pub start: Cell<usize>,
    pub len: Cell<usize>,
    /// Its offset in the region.
    pub offset: Cell<usize>,
    pub region: Link<Region>,
}

/// A region.
#[repr(C)]
pub struct Region {
    /// Mappings of it; 0: not in use.
    pub _free: Cell<u32>,
    pub mappings: Cell<u32>,
    /// Its identity: device and inode of a file, or of a segment 0 and its id. Anonymous memory equals nothing.
    pub device: Cell<u64>,
    pub inode: Cell<u64>,
    pub anonymous: Cell<bool>,
}

// SAFETY: cells and links.
unsafe impl ArenaObject for Mapping {}
// SAFETY: cells.
unsafe impl ArenaObject for Region {}
impl In<InProcess> for Mapping {
    fn node(&self) -> &Node<Mapping> {
        &self.node
    }
}

/// The shared mappings of a process.
pub type Mappings = List<Mapping, InProcess>;

/// All that is shared.
#[repr(C)]
pub struct Shared {
    /// Mappings of all processes.
    pub mappings: Pool<Mapping>,
    /// The mapped regions.
    pub regions: Pool<Region>,
}

impl Shared {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.mappings, MAX_MAPPINGS);
        let regions = room.pool(&self.regions, MAX_REGIONS);
        // The kernel's numbers are each replica's own.
        let numbers = offset_of!(Region, device)..offset_of!(Region, anonymous);
        room.own::<Region>(regions, MAX_REGIONS, numbers.start, numbers.len());
    }
}
