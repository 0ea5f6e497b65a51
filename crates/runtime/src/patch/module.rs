//! The program or library that an address lies in: its segments, and where its functions begin.
//!
//! The loader's tables are asked without a lock (`_dl_find_object`), because the caller may be inside the loader. Functions are told apart by the table
//! for unwinding, which every object has that C++ exceptions or cancellation can pass through; code in an object without one is not touched.

use super::code::Stretch;
use core::ops::Range;
use libc::{Elf64_Ehdr, Elf64_Phdr, c_int, c_void};

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

unsafe extern "C" {
    fn _dl_find_object(address: *const c_void, result: *mut Found) -> c_int;
}

/// An object of the loader's.
pub struct Module {
    /// Its executable segment that the address lies in.
    pub text: Stretch<'static>,
    /// Its other segments.
    pub data: [Stretch<'static>; 4],
    /// The first address of its segments.
    pub start: usize,
    functions: Functions,
}

impl Module {
    /// The one that `address` lies in; `None` when there is none, or it is not like those that compilers make.
    ///
    /// What it refers to is memory for as long as the object is loaded.
    pub fn of(address: usize) -> Option<Self> {
        // SAFETY: all-zero is a valid `Found`.
        let mut found: Found = unsafe { core::mem::zeroed() };
        // SAFETY: glibc's function with a live result.
        if unsafe { _dl_find_object(address as *const c_void, &raw mut found) } != 0 {
            return None;
        }
        // SAFETY: the first word of a link map is what is added to addresses of the file.
        let base = unsafe { *found.link_map };
        // SAFETY: an object that was moved is mapped from its file's begin on; of those that were not, the program is wanted, whose headers the
        // kernel names. (What was found may be one of several mappings, so its begin does not tell.)
        let headers = unsafe {
            if base == 0 {
                let [at, count] = [libc::AT_PHDR, libc::AT_PHNUM].map(|word| libc::getauxval(word));
                core::slice::from_raw_parts(at as *const Elf64_Phdr, count as usize)
            } else {
                let head = &*(base as *const Elf64_Ehdr);
                if head.e_ident[..4] != *b"\x7fELF" {
                    return None;
                }
                let at = (base + head.e_phoff as usize) as *const Elf64_Phdr;
                core::slice::from_raw_parts(at, head.e_phnum.into())
            }
        };
        let empty = Stretch { at: 0, bytes: &[] };
        let (mut text, mut data, mut count) = (None, [empty; 4], 0);
        let (mut start, mut end) = (usize::MAX, 0);
        for header in headers {
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_R == 0 {
                continue;
            }
            let at = base.wrapping_add(header.p_vaddr as usize);
            let len = header.p_filesz as usize;
            // SAFETY: a segment that is mapped for reading; only this thread runs, and it changes nothing while it looks.
            let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, len) };
            let stretch = Stretch { at, bytes };
            (start, end) = (start.min(at), end.max(at + len));
            if header.p_flags & libc::PF_X != 0 {
                let writable = header.p_flags & libc::PF_W != 0;
                if (at..at + len).contains(&address) && !writable {
                    text = Some(stretch);
                }
            } else {
                *data.get_mut(count)? = stretch;
                count += 1;
            }
        }
        let frames =
            data.iter().find(|d| (d.at..d.at + d.bytes.len()).contains(&found.eh_frame))?;
        let table = frames.bytes.get(found.eh_frame - frames.at..)?;
        let text = text?;
        // Distances must fit 32 bits.
        if end.saturating_sub(start) >= 1 << 30 {
            return None;
        }
        let end = text.at + text.bytes.len();
        let functions = Functions::read(found.eh_frame, table, end)?;
        Some(Self { text, data, start, functions })
    }

    /// From the begin of the function that `address` lies in to the begin of the next one.
    pub fn function(&self, address: usize) -> Option<Range<usize>> {
        let range = self.functions.around(address)?;
        let text = self.text.at..self.text.at + self.text.bytes.len();
        (text.contains(&range.start) && range.end <= text.end).then_some(range)
    }
}

/// The table of `.eh_frame_hdr`: for each function, sorted, its begin and its record, as distances from the table's own begin.
struct Functions {
    at: usize,
    entries: &'static [[[u8; 4]; 2]],
    end: usize,
}

/// Version 1; the pointer to the records relative to itself, a count of four bytes, and distances of four bytes from the table: what all linkers write.
const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

impl Functions {
    fn read(at: usize, bytes: &'static [u8], end: usize) -> Option<Self> {
        if bytes.get(..4)? != USUAL {
            return None;
        }
        let count = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        let table = bytes.get(12..12 + count.checked_mul(8)?)?;
        // SAFETY: arrays of bytes of the same size, without alignment.
        let entries = unsafe { core::slice::from_raw_parts(table.as_ptr().cast(), count) };
        Some(Self { at, entries, end })
    }

    fn begin(&self, entry: usize) -> usize {
        self.entries.get(entry).map_or(self.end, |[begin, _]| {
            self.at.wrapping_add_signed(i32::from_le_bytes(*begin) as isize)
        })
    }

    fn around(&self, address: usize) -> Option<Range<usize>> {
        let mut range = 0..self.entries.len();
        // Invariant: the entry wanted is in `range`, if its first begins at or below the address.
        while range.len() > 1 {
            let middle = usize::midpoint(range.start, range.end);
            if self.begin(middle) <= address {
                range.start = middle;
            } else {
                range.end = middle;
            }
        }
        let found = self.begin(range.start)..self.begin(range.start + 1);
        found.contains(&address).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_addresses() {
        let entry = |begin: i32| [begin.to_le_bytes(), [0; 4]];
        let entries = [entry(-0x300), entry(-0x200), entry(-0x100)];
        let functions = Functions { at: 0x1000, entries: entries.to_vec().leak(), end: 0xf80 };
        for (address, found) in [
            (0xcff, None),
            (0xd00, Some(0xd00..0xe00)),
            (0xdff, Some(0xd00..0xe00)),
            (0xe00, Some(0xe00..0xf00)),
            (0xf7f, Some(0xf00..0xf80)),
            (0xf80, None),
        ] {
            assert_eq!(functions.around(address), found, "{address:x}");
        }
    }

    #[test]
    fn this_test_is_in_a_module_of_its_own() {
        let here = Module::of as fn(usize) -> Option<Module> as usize;
        let module = Module::of(here).expect("a program");
        assert!(module.function(here).is_some_and(|function| function.start == here));
        assert!(Module::of(8).is_none());
    }
}
