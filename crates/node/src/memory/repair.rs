//! Writes pages of another replica's server into this one's, which differs and stands still.
//!
//! A process's page is written through `/proc/PID/mem`: also one that the process itself may only read, which becomes its own by that, as for a debugger's breakpoint; the
//! kernel notes it as written, so the next image has it. Of the arena's pages, bytes that belong to one replica stay as they are.
//!
//! A page that cannot be written (of shared memory that is mapped for reading only; of a stack that has not grown so far) is an error: such a server is rebuilt instead.

use super::heap::Heap;
use super::{ARENA, MAX_SHOWN, MemoryError, PAGE_BYTES, PageContents, Result, ServerMemory, bytes};
use skein_image::{Mapping, maps, processes};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;

/// A process whose pages are written.
struct Written {
    mappings: Vec<Mapping>,
    memory: File,
}

impl ServerMemory {
    /// Writes these pages.
    ///
    /// # Errors
    /// There are too many, or one of them cannot be written: those before it were.
    pub fn repair(&self, pages: &[PageContents]) -> Result<()> {
        if pages.len() > MAX_SHOWN {
            return Err(MemoryError::TooMuch("can be repaired at one time"));
        }
        let heap = Heap::of(self)?;
        let mut written = BTreeMap::new();
        for process in processes::below(self.init)? {
            if pages.iter().any(|page| page.at.pid == process.pid) {
                let path = format!("/proc/{}/mem", process.host_pid);
                let memory = File::options().read(true).write(true).open(&path);
                let memory = memory.map_err(MemoryError::read(path))?;
                let mappings = maps::of(process.host_pid, &self.arena)?;
                written.insert(process.pid, Written { mappings, memory });
            }
        }
        for page in pages {
            let (pid, address) = (page.at.pid, page.at.address);
            let failed = |error| MemoryError::Read {
                what: match pid {
                    ARENA => format!("the arena's page at {address:#x} is not repaired"),
                    pid => format!("page {address:#x} of process {pid} is not repaired"),
                },
                error,
            };
            let contents = bytes(&page.contents);
            if contents.len() as u64 != PAGE_BYTES {
                return Err(failed(Error::other("its content is no page")));
            }
            if pid == ARENA {
                heap.repair(address, contents)?;
                continue;
            }
            let process = written.get(&pid).ok_or_else(|| Error::other("there is no such process"));
            process.and_then(|process| process.write(address, &contents)).map_err(failed)?;
        }
        Ok(())
    }
}

impl Written {
    fn write(&self, address: u64, contents: &[u8]) -> std::io::Result<()> {
        // Only the server's own memory, not the parts that are left out of comparisons.
        let fits = |m: &Mapping| m.counts() && (m.start..m.end).contains(&address);
        if !address.is_multiple_of(PAGE_BYTES) || !self.mappings.iter().any(fits) {
            return Err(Error::other("it is not mapped"));
        }
        self.memory.write_all_at(contents, address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PageAt, hex};
    use super::*;
    use skein_arena::Sizes;
    use skein_arena::layout::SERVER_BASE;
    use skein_arena::parts::{Own, PARTS_BYTES, Parts};

    fn memory(init: u32) -> ServerMemory {
        let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
        let arena = tempfile::tempfile().unwrap();
        arena.set_len(sizes.file_bytes() as u64).unwrap();
        let parts = Parts::read(&[0; PARTS_BYTES]);
        parts.note_own(Own { at: 16 << 12 | 8, stride: 64, count: 2, len: 4 });
        // SAFETY: plain numbers without padding between them, read as bytes.
        let table =
            unsafe { std::slice::from_raw_parts((&raw const parts).cast::<u8>(), PARTS_BYTES) };
        arena.write_all_at(table, (sizes.file_bytes() - sizes.heap) as u64 + 4096).unwrap();
        ServerMemory { init, arena, sizes, parts_at: 4096 }
    }

    fn page(pid: u32, address: u64, contents: &[u8]) -> PageContents {
        PageContents { at: PageAt { pid, address }, contents: hex(contents) }
    }

    #[test]
    fn bytes_of_the_arena_that_belong_to_one_replica_stay() {
        let memory = memory(std::process::id());
        let heap = (memory.sizes.file_bytes() - memory.sizes.heap) as u64;
        memory.arena.write_all_at(&[1; 4096], heap + (16 << 12)).unwrap();
        let base = (SERVER_BASE + memory.sizes.span_bytes() - memory.sizes.heap) as u64;
        memory.repair(&[page(ARENA, base + (16 << 12), &[2; 4096])]).unwrap();
        let mut after = [0; 4096];
        memory.arena.read_exact_at(&mut after, heap + (16 << 12)).unwrap();
        let own: Vec<usize> = (0..4096).filter(|at| after[*at] == 1).collect();
        assert_eq!(own, [8, 9, 10, 11, 72, 73, 74, 75]);
        assert!(after.iter().all(|byte| matches!(byte, 1 | 2)));
        assert!(memory.repair(&[page(ARENA, base + 1, &[2; 4096])]).is_err(), "no page");
        assert!(memory.repair(&[page(ARENA, base - 4096, &[2; 4096])]).is_err(), "its header");
        assert!(memory.repair(&[page(ARENA, base, &[2; 4095])]).is_err(), "not whole");
    }

    #[test]
    fn only_pages_of_the_servers_processes_are_written() {
        let memory = memory(std::process::id());
        assert!(memory.repair(&[page(1 << 30, 0x1000, &[0; 4096])]).is_err(), "no process");
        assert!(memory.repair(&vec![page(ARENA, 0, &[0; 4096]); MAX_SHOWN + 1]).is_err());
    }
}
