//! A hash for each page that may hold something, of all processes; memory that they share counts once.

use super::heap::Heap;
use super::{MAX_PAGES, MemoryError, ProcessMemory, Result, Run, ServerMemory, Survey, hash, push};
use skein_image::pages::in_time;
use skein_image::take::each_page;
use skein_image::{Mapping, Pages, Process, is_zero, maps, processes};
use std::collections::BTreeMap;
use std::time::Instant;

/// Counts a page, and checks the limits.
pub fn count(pages: &mut u64, deadline: Instant) -> Result<()> {
    *pages += 1;
    if *pages > MAX_PAGES {
        return Err(MemoryError::TooMuch("16 GiB of pages with something in them"));
    }
    if pages.is_multiple_of(1024) { in_time(deadline) } else { Ok(()) }
}

/// A process and its mappings.
struct Mapped {
    process: Process,
    mappings: Vec<Mapping>,
}

/// A mapping of a piece of shared memory.
#[derive(Clone, Copy)]
struct Place {
    process: usize,
    mapping: usize,
}

impl ServerMemory {
    /// Hashes the whole memory of the server, which stands still.
    ///
    /// # Errors
    /// It cannot be read, or not until `deadline`, or is too large.
    pub fn survey(&self, deadline: Instant) -> Result<Survey> {
        let mut pages = 0;
        let arena = Heap::of(self)?.survey(deadline, &mut pages)?;
        let mut mapped = Vec::new();
        for process in processes::below(self.init)? {
            let mut mappings = maps::of(process.host_pid, &self.arena)?;
            mappings.retain(Mapping::counts);
            mapped.push(Mapped { process, mappings: maps::join(&mappings) });
        }
        let mut shared = shared(&mapped, deadline, &mut pages)?;
        let mut processes = Vec::new();
        for (n, Mapped { process, mappings }) in mapped.into_iter().enumerate() {
            let reader = Pages::of(&process)?;
            let mut told = Vec::new();
            for (m, mapping) in mappings.into_iter().enumerate() {
                let mut runs = Vec::new();
                if mapping.is_shared() {
                    for (address, hash) in shared.remove(&(n, m)).unwrap_or_default() {
                        push(&mut runs, address, hash);
                    }
                } else {
                    private(&reader, &mapping, deadline, &mut pages, &mut runs)?;
                }
                let Mapping { start, end, permissions, name, .. } = mapping;
                told.push(super::Mapping { start, end, permissions, name, pages: runs });
            }
            let Process { pid, command, .. } = process;
            processes.push(ProcessMemory { pid, command, mappings: told });
        }
        Ok(Survey { processes, arena, pages })
    }
}

/// Pages of shared memory, by address, for the mapping that lists them.
type Shared = BTreeMap<(usize, usize), BTreeMap<u64, u64>>;

fn shared(mapped: &[Mapped], deadline: Instant, pages: &mut u64) -> Result<Shared> {
    let mut objects: BTreeMap<(u64, u64), Vec<Place>> = BTreeMap::new();
    for (process, Mapped { mappings, .. }) in mapped.iter().enumerate() {
        for (mapping, m) in mappings.iter().enumerate().filter(|(_, m)| m.is_shared()) {
            objects.entry(m.file).or_default().push(Place { process, mapping });
        }
    }
    let mut found = Shared::new();
    for places in objects.values() {
        let mapping = |place: &Place| &mapped[place.process].mappings[place.mapping];
        let mut add = |offset: u64, page: &[u8]| {
            // The first that maps it.
            let at = places.iter().find_map(|place| {
                let m = mapping(place);
                let inside = offset.checked_sub(m.offset).filter(|far| *far < m.end - m.start)?;
                Some(((place.process, place.mapping), m.start + inside))
            });
            let Some((place, address)) = at.filter(|_| !is_zero(page)) else { return Ok(()) };
            match found.entry(place).or_default().insert(address, hash(page)) {
                None => count(pages, deadline),
                Some(_) => Ok(()),
            }
        };
        let first = &places[0];
        if let Some(file) = maps::open_memory(&mapped[first.process].process, mapping(first)) {
            let failed = |error| MemoryError::Read { what: "shared memory".into(), error };
            let add = |offset, page: &[u8]| {
                in_time(deadline)?;
                add(offset, page)
            };
            each_page(&file, 0, u64::MAX, add, failed)?;
            continue;
        }
        for place in places {
            let (m, reader) = (mapping(place), Pages::of(&mapped[place.process].process)?);
            reader
                .touched(m, deadline, |address, page| add(m.offset + (address - m.start), page))?;
        }
    }
    Ok(found)
}

/// Hashes the pages that a process has written itself.
fn private(
    reader: &Pages,
    mapping: &Mapping,
    deadline: Instant,
    pages: &mut u64,
    runs: &mut Vec<Run>,
) -> Result<()> {
    reader.private(mapping, deadline, |address, page| {
        count(pages, deadline)?;
        push(runs, address, hash(page));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_image::PAGE_BYTES;
    use std::time::Duration;

    fn own() -> Process {
        let pid = std::process::id();
        Process { pid, host_pid: pid, command: String::new() }
    }

    fn mapping_of(address: u64) -> Mapping {
        let arena = tempfile::tempfile().unwrap();
        let mappings = maps::of(std::process::id(), &arena).unwrap();
        mappings.into_iter().find(|m| (m.start..m.end).contains(&address)).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn pages_that_were_written_are_hashed_and_no_others() {
        let mut memory = vec![0u8; 1 << 20];
        let first = memory.as_ptr().addr().next_multiple_of(4096);
        let third = first - memory.as_ptr().addr() + 2 * 4096;
        memory[third..third + 4096].fill(7);
        let at = first as u64 + 2 * 4096;
        let (mut pages, mut runs) = (0, Vec::new());
        let mapping = Mapping { start: at - 8192, end: at + 8192, ..mapping_of(at) };
        private(&Pages::of(&own()).unwrap(), &mapping, soon(), &mut pages, &mut runs).unwrap();
        assert_eq!(pages, 1);
        assert_eq!(runs, [Run { address: at, hashes: format!("{:016x}", hash(&[7; 4096])) }]);
    }

    #[test]
    fn of_a_files_private_mapping_only_what_was_changed_counts() {
        // Constants are in the file; a written variable's page is not.
        static CONSTANT: [u8; 64] = [3; 64];
        let at = CONSTANT.as_ptr().addr() as u64;
        assert_eq!(std::hint::black_box(CONSTANT)[5], 3);
        let (mut pages, mut runs) = (0, Vec::new());
        let page = at / PAGE_BYTES * PAGE_BYTES;
        let mapping = Mapping { start: page, end: page + PAGE_BYTES, ..mapping_of(at) };
        assert!(mapping.is_of_file() && mapping.permissions.starts_with('r'), "{mapping:?}");
        private(&Pages::of(&own()).unwrap(), &mapping, soon(), &mut pages, &mut runs).unwrap();
        assert_eq!((pages, runs), (0, vec![]));
    }

    #[test]
    fn what_was_reserved_and_never_used_takes_no_time() {
        const BYTES: usize = 8 << 40;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, of which nothing is used.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_NONE, flags, -1, 0).addr()
        };
        let mapping = mapping_of(at as u64);
        assert!(mapping.end - mapping.start >= BYTES as u64);
        let (mut pages, mut runs) = (0, Vec::new());
        private(&Pages::of(&own()).unwrap(), &mapping, soon(), &mut pages, &mut runs).unwrap();
        // SAFETY: the memory from above.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), BYTES) };
        assert_eq!(pages, 0);
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let at = Box::leak(Box::new(1u8)) as *const u8 as u64;
        let reader = Pages::of(&own()).unwrap();
        let end = private(&reader, &mapping_of(at), Instant::now(), &mut 0, &mut Vec::new());
        assert!(matches!(end, Err(MemoryError::TooLong)), "{end:?}");
    }
}
