//! Memory that was freed goes back to the system.
//!
//! glibc gives each new thread a part of its own of the heap, eight for each processor, and takes the size of the largest block that was freed, up to 64 MiB, as what each part may keep.
//! A node whose threads write images has hundreds of MiB for ever by that. With bounds that do not move it keeps a few.

/// So many parts has the heap at most: the threads that free and take much are few.
const PARTS: i32 = 4;
/// Larger blocks have a mapping of their own, which goes when they are freed: 2 MiB, more than the largest entry.
const MAPPED_BYTES: i32 = 2 << 20;
/// So much that is free at the end of a part stays at most: 8 MiB, as many as entries in flight have. A busy loop does not come back to the kernel for each buffer.
const KEPT_BYTES: i32 = 8 << 20;

/// Sets the bounds of this process; to be called while it has one thread.
pub fn bound() {
    let bounds = [
        (libc::M_ARENA_MAX, PARTS),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
    ];
    for (what, most) in bounds {
        // SAFETY: the call takes two numbers, and no other thread is in the allocator.
        let done = unsafe { libc::mallopt(what, most) };
        debug_assert_eq!(done, 1, "glibc takes these");
    }
}
