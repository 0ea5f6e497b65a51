//! The program or library that contains an address: its segments, and its functions' starts.
//!
//! The loader's tables are asked without a lock (`_dl_find_object`), because the caller may be inside the loader. Functions are told apart by the table
//! for unwinding, which every object has that C++ exceptions or cancellation can pass through; code in an object without one is not touched.

use super::code::Stretch;
use core::ffi::CStr;
use core::ops::Range;
use libc::{Elf64_Ehdr, Elf64_Phdr, c_char, c_int, c_void};
use skein_arena::places::{Id, NAME_BYTES};

/// glibc's `struct dl_find_object`.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// The begin of the loader's record of an object.
#[repr(C)]
struct LinkMap {
    /// What is added to addresses of the file.
    base: usize,
    path: *const c_char,
}

unsafe extern "C" {
    fn _dl_find_object(address: *const c_void, result: *mut Found) -> c_int;
}

/// The parts of an object.
#[derive(Clone, Copy)]
struct Segments {
    base: usize,
    headers: &'static [Elf64_Phdr],
}

/// An object of the loader's, found but not looked at.
struct Object {
    found: Found,
    segments: Segments,
}

impl Object {
    /// The object that contains `address`. Its data are in memory for as long as the object is loaded.
    fn of(address: usize) -> Option<Self> {
        // SAFETY: all-zero is a valid `Found`.
        let mut found: Found = unsafe { core::mem::zeroed() };
        // SAFETY: glibc's function with a live result.
        if unsafe { _dl_find_object(address as *const c_void, &raw mut found) } != 0 {
            return None;
        }
        // SAFETY: the loader's record of a loaded object.
        let base = unsafe { (*found.link_map).base };
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
        Some(Self { found, segments: Segments { base, headers } })
    }

    /// The last part of its path.
    fn name(&self) -> [u8; NAME_BYTES] {
        // SAFETY: the loader's string; the program's own is empty there, and the kernel has it.
        let path = unsafe {
            let path = CStr::from_ptr((*self.found.link_map).path);
            let executed = libc::getauxval(libc::AT_EXECFN) as *const c_char;
            if path.is_empty() && !executed.is_null() { CStr::from_ptr(executed) } else { path }
        };
        let path = path.to_bytes();
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut name = [0; NAME_BYTES];
        let len = last.len().min(NAME_BYTES);
        name[..len].copy_from_slice(&last[..len]);
        name
    }
}

impl Segments {
    /// A segment's bytes in memory, as far as they come from the file.
    fn segment(&self, header: &Elf64_Phdr) -> Stretch<'static> {
        let at = self.base.wrapping_add(header.p_vaddr as usize);
        let len = header.p_filesz as usize;
        // SAFETY: a segment that is mapped for reading; only this thread runs, and it changes nothing while it looks.
        Stretch { at, bytes: unsafe { core::slice::from_raw_parts(at as *const u8, len) } }
    }

    /// The linker's hash of all that is in it; zero when it has none.
    fn id(&self) -> Id {
        let loaded = |note: &&Elf64_Phdr| {
            self.headers.iter().any(|header| {
                let range = header.p_vaddr..header.p_vaddr + header.p_filesz;
                header.p_type == libc::PT_LOAD
                    && header.p_flags & libc::PF_R != 0
                    && range.contains(&note.p_vaddr)
                    && note.p_vaddr + note.p_filesz <= range.end
            })
        };
        let notes = self.headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
        let bytes = notes.filter(loaded).map(|header| self.segment(header).bytes);
        bytes.into_iter().find_map(build_id).unwrap_or_default()
    }

    /// The size of the segment of code that `address` lies in.
    fn text_bytes(&self, address: usize) -> usize {
        let code = |header: &&Elf64_Phdr| {
            header.p_type == libc::PT_LOAD
                && header.p_flags & libc::PF_X != 0
                && address.wrapping_sub(self.base.wrapping_add(header.p_vaddr as usize))
                    < header.p_filesz as usize
        };
        self.headers.iter().find(code).map_or(0, |header| header.p_filesz as usize)
    }
}

/// The build id among an object's notes; of a longer one the first bytes.
fn build_id(notes: &[u8]) -> Option<Id> {
    const NT_GNU_BUILD_ID: usize = 3;
    let mut rest = notes;
    loop {
        let word = |n: usize| {
            let bytes = rest.get(4 * n..4 * n + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let (name, len, kind) = (word(0)?, word(1)?, word(2)?);
        let described = 12 + name.next_multiple_of(4);
        let bytes = rest.get(described..described + len)?;
        if kind == NT_GNU_BUILD_ID && rest[12..].starts_with(b"GNU\0") {
            let word =
                |n: usize| Some(u64::from_le_bytes(bytes.get(8 * n..8 * n + 8)?.try_into().ok()?));
            return Some([word(0)?, word(1)?]);
        }
        rest = rest.get(described + len.next_multiple_of(4)..)?;
    }
}

/// The name of an address in every process: an object's build id and name, and the offset.
pub struct Called {
    pub id: Id,
    pub name: [u8; NAME_BYTES],
    pub offset: u64,
    /// Bytes of the segment that it lies in.
    pub text_bytes: usize,
}

impl Called {
    /// Code outside all objects is named by its address.
    pub fn of(address: usize) -> Self {
        match Object::of(address) {
            Some(object) => Self {
                id: object.segments.id(),
                name: object.name(),
                offset: address.wrapping_sub(object.segments.base) as u64,
                text_bytes: object.segments.text_bytes(address),
            },
            None => Self {
                id: Id::default(),
                name: [0; NAME_BYTES],
                offset: address as u64,
                text_bytes: 0,
            },
        }
    }
}

/// Tells of every loaded object that has a build id, and of the address of its begin.
pub fn each(mut told: impl FnMut(Id, usize)) {
    unsafe extern "C" fn one<F: FnMut(Id, usize)>(
        object: *mut libc::dl_phdr_info,
        _: usize,
        told: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes valid pointers for the time of the call, and what `each` gave it.
        let (object, told) = unsafe { (&*object, &mut *told.cast::<F>()) };
        // SAFETY: as above; they stay for as long as the object is loaded, which is longer.
        let headers =
            unsafe { core::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
        let segments = Segments { base: object.dlpi_addr as usize, headers };
        let id = segments.id();
        if id != Id::default() {
            told(id, segments.base);
        }
        0
    }
    fn for_type<F: FnMut(Id, usize)>(
        _: &F,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        one::<F>
    }
    // SAFETY: what the loader wants; `told` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(for_type(&told)), (&raw mut told).cast()) };
}

/// An object whose code can be looked at.
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
        let object = Object::of(address)?;
        let found = &object.found;
        let empty = Stretch { at: 0, bytes: &[] };
        let (mut text, mut data, mut count) = (None, [empty; 4], 0);
        let (mut start, mut end) = (usize::MAX, 0);
        for header in object.segments.headers {
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_R == 0 {
                continue;
            }
            let stretch = object.segments.segment(header);
            let (at, len) = (stretch.at, stretch.bytes.len());
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
    fn build_ids_are_found_behind_other_notes() {
        let note = |kind: u32, bytes: &[u8]| {
            let mut note = Vec::new();
            for word in [4, bytes.len() as u32, kind] {
                note.extend(word.to_le_bytes());
            }
            note.extend(b"GNU\0");
            note.extend(bytes);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let id: Vec<u8> = (1..=20).collect();
        let found = Some([0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09]);
        assert_eq!(build_id(&note(3, &id)), found);
        assert_eq!(build_id(&[note(5, &[9; 13]), note(3, &id)].concat()), found);
        for none in [note(1, &id), note(3, &id[..9]), note(3, &id)[..30].to_vec(), vec![]] {
            assert_eq!(build_id(&none), None, "{none:x?}");
        }
    }

    #[test]
    fn an_address_is_called_the_same_wherever_its_object_lies() {
        let here = Called::of as fn(usize) -> Called as usize;
        let (called, none) = (Called::of(here), Called::of(8));
        assert!(called.offset < here as u64 && called.name != none.name);
        assert_eq!((none.offset, none.id), (8, Id::default()));
    }

    #[test]
    fn this_test_is_in_a_module_of_its_own() {
        let here = Module::of as fn(usize) -> Option<Module> as usize;
        let module = Module::of(here).expect("a program");
        assert!(module.function(here).is_some_and(|function| function.start == here));
        assert!(Module::of(8).is_none());
    }
}
