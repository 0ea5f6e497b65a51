//! What a server tells the kernel about its memory, and what the kernel shows only in the list of mappings that counts all pages: which parts a fork copies, huge pages, protection keys, seals.
//! It is rare, and noted: as long as a server has told nothing, its node need not read that list for an image ([`Use::MemoryAdvice`]).

use crate::local::header;
use crate::sys;
use crate::uses::{self, Use};
use core::sync::atomic::Ordering;
use skein_libos::errno::Result;

/// `mseal`, which libc does not know yet.
const MSEAL: i64 = 462;
/// Flags of `mmap`: memory that grows, and huge pages. Memory that may be dropped is not copied by a fork, either.
pub const MAPPED: u32 = (libc::MAP_GROWSDOWN | libc::MAP_HUGETLB) as u32;
/// The kind of such memory, in [`libc::MAP_TYPE`].
pub const DROPPABLE: u32 = 8;
/// Kinds of memory of which the runtime knows: that, and what processes share, as what is written to files there passes by it.
pub const MAPPED_AS: [u32; 3] =
    [DROPPABLE, libc::MAP_SHARED as u32, libc::MAP_SHARED_VALIDATE as u32];

/// Advice about copies at a fork and huge pages; and that by which what processes share gets a hole.
pub const ADVICE: [i32; 7] = [
    libc::MADV_DONTFORK,
    libc::MADV_DOFORK,
    libc::MADV_WIPEONFORK,
    libc::MADV_KEEPONFORK,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_REMOVE,
];
/// Calls that are such a word whatever their arguments are.
pub const ALWAYS: [i64; 2] = [MSEAL, libc::SYS_pkey_mprotect];

/// Whether `mmap` with these flags is one.
const fn is_in_flags(flags: u32) -> bool {
    flags & MAPPED != 0 || flags & libc::MAP_TYPE as u32 == DROPPABLE
}

/// `mmap` with these flags was made.
#[inline]
pub fn mapped(flags: u32) {
    if is_in_flags(flags) {
        uses::note(Use::MemoryAdvice);
    }
}

/// What processes map of shared memory, or where it has holes, is something else now: what the node has read of it before does not count.
pub fn shared_changed() {
    let _ = header().shared_changes.fetch_add(1, Ordering::Relaxed);
}

/// Notes a call that is one; makes it, unless it is `mmap`, which is answered as others are.
///
/// # Safety
/// The arguments are those of the call.
pub unsafe fn handle(nr: i64, a: [usize; 6]) -> Option<Result<usize>> {
    let is_map = nr == libc::SYS_mmap;
    let is = match nr {
        libc::SYS_mmap => is_in_flags(a[3] as u32),
        libc::SYS_madvise => ADVICE.contains(&(a[2] as i32)),
        _ => ALWAYS.contains(&nr),
    };
    let is_hole = nr == libc::SYS_madvise && a[2] as i32 == libc::MADV_REMOVE;
    if is && !is_hole {
        uses::note(Use::MemoryAdvice);
    }
    // SAFETY: the caller's contract.
    let result = (is && !is_map).then(|| unsafe { sys::call(nr, a) });
    if is_hole {
        shared_changed();
    }
    result
}
