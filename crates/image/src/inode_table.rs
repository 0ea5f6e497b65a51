//! The arena's table of files, in a copy of the heap.

use crate::raw::Raw;
use skein_arena::Sizes;
use skein_arena::inodes::{INODE_BYTES, INODES};

/// Its length.
pub(crate) const TABLE_BYTES: u64 = (INODES * INODE_BYTES) as u64;

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

/// Where the server says that so many bytes of its heap are; 0, nowhere, if they would not be inside.
pub(crate) fn inside(at: u64, bytes: usize, sizes: Sizes) -> u64 {
    let end = at.checked_add(bytes as u64);
    if end.is_some_and(|end| end <= sizes.heap as u64) { at } else { 0 }
}

/// A word of the arena's header.
pub(crate) fn word(header: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*header[at..].first_chunk().expect("inside the header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_lies_outside_its_heap_is_nowhere() {
        let sizes = Sizes { heap: 1 << 20, ..Sizes::default() };
        let end = 1 << 20;
        assert_eq!([0, 64, end - 64].map(|at| inside(at, 64, sizes)), [0, 64, end - 64]);
        assert_eq!([end - 63, end, u64::MAX - 63].map(|at| inside(at, 64, sizes)), [0; 3]);
    }
}
