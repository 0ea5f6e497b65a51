//! Reads some pages again: their current content, whether or not they were in a survey, and the objects in them.

use super::heap::Heap;
use super::symbols::Objects;
use super::{
    ARENA, MAX_LOOKED_AT, MAX_SHOWN, MemoryError, PAGE_BYTES, Page, Question, Result, ServerMemory,
    hash, hex,
};
use skein_image::{Mapping, Process, maps, processes};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A process whose pages are read.
struct Seen {
    process: Process,
    mappings: Vec<Mapping>,
    memory: File,
}

impl ServerMemory {
    /// Answers a page for each request.
    ///
    /// # Errors
    /// Too many pages are requested, or a process cannot be read. A missing page is no error.
    pub fn look(&self, question: &Question) -> Result<Vec<Page>> {
        let most = if question.contents { MAX_SHOWN } else { MAX_LOOKED_AT };
        if question.pages.len() > most {
            return Err(MemoryError::TooMuch("can be looked at at one time"));
        }
        let heap = Heap::of(self)?;
        let wanted = |pid: u32| question.pages.iter().any(|page| page.pid == pid);
        let mut seen = BTreeMap::new();
        for process in processes::below(self.init)? {
            if wanted(process.pid) {
                let path = format!("/proc/{}/mem", process.host_pid);
                let memory = File::open(&path).map_err(MemoryError::read(path))?;
                let mappings = maps::of(process.host_pid, &self.arena)?;
                seen.insert(process.pid, Seen { process, mappings, memory });
            }
        }
        let mut objects = Objects::default();
        let page = |at: &super::PageAt| {
            let seen = seen.get(&at.pid);
            let contents = match at.pid {
                ARENA => heap.look(at.address),
                _ => seen.and_then(|seen| contents(seen, at.address)),
            };
            let Some(contents) = contents else { return Page::default() };
            let mut page = Page { hash: format!("{:016x}", hash(&contents)), ..Page::default() };
            if question.contents {
                page.contents = hex(&contents);
                page.things = match (at.pid, seen) {
                    (ARENA, _) => heap.things(at.address),
                    (_, Some(seen)) => {
                        objects.things(seen.process.host_pid, &seen.mappings, at.address)
                    }
                    (_, None) => Vec::new(),
                };
            }
            page
        };
        Ok(question.pages.iter().map(page).collect())
    }
}

fn contents(seen: &Seen, address: u64) -> Option<Vec<u8>> {
    // Only the server's own memory, not the parts that are left out.
    let mapped = seen.mappings.iter().any(|m| m.counts() && (m.start..m.end).contains(&address));
    let mut page = vec![0; PAGE_BYTES as usize];
    let fits = mapped && address.is_multiple_of(PAGE_BYTES);
    (fits && seen.memory.read_exact_at(&mut page, address).is_ok()).then_some(page)
}
