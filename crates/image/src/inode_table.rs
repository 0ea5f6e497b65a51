//! The arena's table of files, in a copy of the heap.

use crate::raw::Raw;
use skein_arena::inodes::{INODE_BYTES, INODES};

const TABLE_BYTES: u64 = (INODES * INODE_BYTES) as u64;

/// The arena's table of files.
pub struct InodeTable<'a> {
    bytes: Vec<u8>,
    /// The heap that it is in, and where.
    pub heap: &'a Raw,
    at: u64,
}

impl<'a> InodeTable<'a> {
    /// At this position of the heap.
    pub fn new(heap: &'a Raw, at: u64) -> Self {
        Self { bytes: heap.bytes(at, at + TABLE_BYTES), heap, at }
    }

    /// The rows that were ever used, each at least once.
    pub fn rows(&self) -> impl Iterator<Item = &[u8; INODE_BYTES]> {
        const ROW: u64 = INODE_BYTES as u64;
        let rows = self.bytes.as_chunks::<INODE_BYTES>().0;
        let there = self.heap.there(self.at, self.at + TABLE_BYTES);
        there.flat_map(move |part| {
            let (first, last) = ((part.start - self.at) / ROW, (part.end - self.at).div_ceil(ROW));
            &rows[first as usize..last as usize]
        })
    }
}

/// A word of the arena's header.
pub(crate) fn word(header: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*header[at..].first_chunk().expect("inside the header"))
}
