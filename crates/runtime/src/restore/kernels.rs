//! The kernel's own memory in a process: the vDSO and what it reads.
//!
//! Its size follows the kernel's version, and so does the place of all that the loader maps below. Where an image has something of its own, the memory that this kernel has put there is removed first,
//! each mapping as a whole: the kernel splits none of them. Nothing calls the vDSO ([`crate::image`]).

use super::must;
use crate::files::fake;
use crate::sys::{self, args};
use core::ops::Range;
use skein_arena::restore::{Mapping, kind};

/// More than any kernel has.
const MOST: usize = 8;

/// Removes the kernel's mappings that the image has not in the same place.
///
/// # Safety
/// Nothing calls the vDSO. The runtime's own variables are not replaced yet.
pub(super) unsafe fn make_room(mappings: &[Mapping]) {
    let mut found: [Range<u64>; MOST] = [const { 0..0 }; MOST];
    let mut count = 0;
    // SAFETY: no memory.
    let pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as u32;
    fake::each_line(pid, "maps", |line| {
        if let (Some(range), Some(place)) = (range_of(line), found.get_mut(count)) {
            *place = range;
            count += 1;
        }
    });
    for range in found.iter().take(count).filter(|range| !stays(range, mappings)) {
        let bytes = (range.end - range.start) as usize;
        // SAFETY: a whole mapping that nothing uses.
        unsafe { must(61, libc::SYS_munmap, args([range.start as usize, bytes])) };
    }
}

/// Whether the image has the same in the same place.
fn stays(range: &Range<u64>, mappings: &[Mapping]) -> bool {
    mappings.iter().any(|m| m.kind == kind::STAYS && (m.start, m.end) == (range.start, range.end))
}

/// The range of a line of `/proc/PID/maps`, if the mapping is one of the kernel's that can be removed.
fn range_of(line: &[u8]) -> Option<Range<u64>> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let range = core::str::from_utf8(words.next()?).ok()?;
    let name = words.nth(4)?;
    if !name.starts_with(b"[vdso") && !name.starts_with(b"[vvar") {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_memory_is_known_by_its_name() {
        let line = b"7ffff7fc6000-7ffff7fc8000 r--p 00000000 00:00 0                          [vvar_vclock]";
        assert_eq!(range_of(line), Some(0x7fff_f7fc_6000..0x7fff_f7fc_8000));
        assert_eq!(
            range_of(b"7ffff7fc8000-7ffff7fca000 r-xp 0 00:00 0 [vdso]").map(|r| r.start),
            Some(0x7fff_f7fc_8000)
        );
        assert_eq!(range_of(b"7ffff7fc2000-7ffff7fc4000 rw-p 00000000 00:00 0 "), None);
        assert_eq!(
            range_of(b"7ffff7fc2000-7ffff7fc4000 rw-p 00000000 fe:00 12   /tmp/[vdso]"),
            None
        );
        assert_eq!(
            range_of(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]"),
            None
        );
    }

    #[test]
    fn what_another_kernel_has_there_goes() {
        let mapping = |start, end, kind| Mapping { start, end, kind, ..Mapping::default() };
        // The data of Linux 6.1's vDSO, below it; that of 6.18 is longer, and reaches into the server's memory.
        let image = [
            mapping(0x2000, 0x4000, kind::ANONYMOUS),
            mapping(0x4000, 0x8000, kind::STAYS),
            mapping(0x8000, 0xa000, kind::STAYS),
        ];
        assert!(!stays(&(0x2000..0x6000), &image));
        assert!(!stays(&(0x6000..0x8000), &image));
        assert!(stays(&(0x8000..0xa000), &image));
        assert!(!stays(&(0x2000..0x4000), &image));
    }
}
