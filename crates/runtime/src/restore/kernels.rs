//! The kernel's own memory in a process: the vDSO and what it reads.
//!
//! Its size follows the kernel's version, and so does the place of all that the loader maps below. Where an image has something of its own, the memory that this kernel has put there is removed first,
//! each mapping as a whole: the kernel splits none of them. Where the kernel of the image had its own and this one has not the same, memory without content keeps the place: what the start has put there
//! goes, and later mappings come where they come on the image's kernel. In a program that another one executed libc calls the vDSO, whose changed functions
//! ([`crate::image`]) are pages of the image like others; elsewhere nothing does.

use super::must;
use crate::files::fake;
use crate::stack;
use crate::sys::{self, args};
use core::ops::Range;
use skein_arena::restore::{Mapping, kind};

/// More than any kernel has.
const MOST: usize = 8;

/// This kernel's mappings that the image has in the same place.
pub(super) struct Same {
    ranges: [Range<u64>; MOST],
    count: usize,
}

impl Same {
    /// Whether a mapping that stays, as its kind says, is another kernel's: this one has nothing there.
    pub(super) fn lacks(&self, m: &Mapping) -> bool {
        let is_runtimes = stack::is_own(m.start as usize);
        m.kind == kind::STAYS
            && !is_runtimes
            && !self.ranges[..self.count].iter().any(|range| is(m, range))
    }
}

/// Removes the kernel's mappings that the image has not in the same place; answers the others.
///
/// # Safety
/// Nothing calls the vDSO until the process is restored. The runtime's own variables are not replaced yet.
pub(super) unsafe fn make_room(mappings: &[Mapping]) -> Same {
    let mut found = Same { ranges: [const { 0..0 }; MOST], count: 0 };
    // SAFETY: no memory.
    let pid = unsafe { sys::raw(libc::SYS_getpid, args([])) } as u32;
    fake::each_line(pid, "maps", |line| {
        let Some(range) = range_of(line) else { return };
        if !stays(&range, mappings) {
            let bytes = (range.end - range.start) as usize;
            // SAFETY: a whole mapping that nothing uses.
            unsafe { must(61, libc::SYS_munmap, args([range.start as usize, bytes])) };
        } else if let Some(place) = found.ranges.get_mut(found.count) {
            *place = range;
            found.count += 1;
        }
    });
    found
}

/// Whether the image has the same in the same place.
fn stays(range: &Range<u64>, mappings: &[Mapping]) -> bool {
    mappings.iter().any(|m| m.kind == kind::STAYS && is(m, range))
}

fn is(m: &Mapping, range: &Range<u64>) -> bool {
    (m.start, m.end) == (range.start, range.end)
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
        let mut same = Same { ranges: [const { 0..0 }; MOST], count: 1 };
        same.ranges[0] = 0x8000..0xa000;
        assert!(same.lacks(&image[1]), "memory without content keeps its place");
        assert!(!same.lacks(&image[2]) && !same.lacks(&image[0]));
        let library = mapping(skein_arena::layout::LIBRARY_AT as u64, 0, kind::STAYS);
        assert!(!same.lacks(&library), "it is mapped");
    }
}
