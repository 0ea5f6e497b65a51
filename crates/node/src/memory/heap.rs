//! The arena's heap: the part that must be equal on all replicas.

use super::{Kind, MemoryError, PAGE_BYTES, Result, Run, ServerMemory, Thing, hash, push};
use nix::unistd::{Whence, lseek64};
use skein_arena::layout::SERVER_BASE;
use skein_arena::parts::{Own, PARTS_BYTES, Parts, Threads};
use skein_image::is_zero;
use std::io::Error;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The most named objects in one page.
const MAX_THINGS: usize = 512;

/// The heap of an arena.
pub struct Heap<'a> {
    memory: &'a ServerMemory,
    parts: Parts,
    owns: Vec<Own>,
}

impl<'a> Heap<'a> {
    /// Reads the table of the heap's parts.
    pub fn of(memory: &'a ServerMemory) -> Result<Self> {
        let mut bytes = [0; PARTS_BYTES];
        let within = memory.parts_at.checked_add(PARTS_BYTES as u64);
        if memory.parts_at != 0 && within.is_some_and(|end| end <= memory.sizes.heap as u64) {
            let at = Self::file_at(memory) + memory.parts_at;
            memory.arena.read_exact_at(&mut bytes, at).map_err(MemoryError::read("the arena"))?;
        }
        let parts = Parts::read(&bytes);
        let owns = parts.owns().collect();
        Ok(Self { memory, parts, owns })
    }

    /// Offset of the heap in the file.
    fn file_at(memory: &ServerMemory) -> u64 {
        (memory.sizes.file_bytes() - memory.sizes.heap) as u64
    }

    /// Where the threads are.
    pub const fn threads(&self) -> Threads {
        self.parts.threads()
    }

    /// Address of the heap in the server.
    pub fn address(&self) -> u64 {
        (SERVER_BASE + self.memory.sizes.span_bytes() - self.memory.sizes.heap) as u64
    }

    /// Its pages that hold something.
    pub fn survey(&self, deadline: Instant, pages: &mut u64) -> Result<Vec<Run>> {
        let failed =
            |error: nix::Error| MemoryError::Read { what: "the arena".into(), error: error.into() };
        let (begin, len) = (Self::file_at(self.memory), self.memory.sizes.heap as u64);
        let mut runs = Vec::new();
        let mut at = 0;
        while at < len {
            // Pages that were never touched are holes.
            let from = |at: u64, whence| match lseek64(
                self.memory.arena.as_fd(),
                (begin + at).cast_signed(),
                whence,
            ) {
                Ok(found) => Ok(Some(found.cast_unsigned() - begin)),
                Err(nix::Error::ENXIO) => Ok(None),
                Err(error) => Err(failed(error)),
            };
            let Some(data) = from(at, Whence::SeekData)? else { break };
            let end = from(data, Whence::SeekHole)?.unwrap_or(len).min(len);
            for page_at in (data / PAGE_BYTES * PAGE_BYTES..end).step_by(PAGE_BYTES as usize) {
                let page = self.page(page_at)?;
                if !is_zero(&page) {
                    super::survey::count(pages, deadline)?;
                    push(&mut runs, self.address() + page_at, hash(&page));
                }
            }
            at = end;
        }
        Ok(runs)
    }

    /// The part of a page that must be equal on all replicas, by its address in the server.
    pub fn look(&self, address: u64) -> Option<Vec<u8>> {
        let at = address.checked_sub(self.address())?;
        let within = at.is_multiple_of(PAGE_BYTES) && at < self.memory.sizes.heap as u64;
        within.then(|| self.page(at).ok()).flatten()
    }

    /// Writes a page, but not the bytes that belong to one replica.
    pub fn repair(&self, address: u64, mut page: Vec<u8>) -> Result<()> {
        let outside = || MemoryError::read("the arena")(Error::other("there is no such page"));
        let at = address.checked_sub(self.address()).ok_or_else(outside)?;
        if !at.is_multiple_of(PAGE_BYTES) || at >= self.memory.sizes.heap as u64 {
            return Err(outside());
        }
        let (here, mut shared) = (self.raw(at)?, vec![1; PAGE_BYTES as usize]);
        for own in &self.owns {
            own.clear(&mut shared, at);
        }
        for (byte, (here, shared)) in page.iter_mut().zip(here.iter().zip(&shared)) {
            if *shared == 0 {
                *byte = *here;
            }
        }
        let file_at = Self::file_at(self.memory) + at;
        self.memory.arena.write_all_at(&page, file_at).map_err(MemoryError::read("the arena"))
    }

    fn page(&self, at: u64) -> Result<Vec<u8>> {
        let mut page = self.raw(at)?;
        for own in &self.owns {
            own.clear(&mut page, at);
        }
        Ok(page)
    }

    fn raw(&self, at: u64) -> Result<Vec<u8>> {
        let mut page = vec![0; PAGE_BYTES as usize];
        let file_at = Self::file_at(self.memory) + at;
        let read = self.memory.arena.read_exact_at(&mut page, file_at);
        read.map(|()| page).map_err(MemoryError::read("the arena"))
    }

    /// The objects in a page.
    pub fn things(&self, address: u64) -> Vec<Thing> {
        let base = self.address();
        let Some(at) = address.checked_sub(base) else { return Vec::new() };
        let (len, name) = (self.memory.sizes.heap as u64, "arena".to_owned());
        let mut things = vec![Thing { kind: Kind::Object, address: base, len, name }];
        for part in self.parts.parts() {
            let mut look_at = at.max(part.at);
            while look_at < at + PAGE_BYTES && things.len() < MAX_THINGS {
                let Some((number, begins)) = part.object(look_at) else { break };
                things.push(Thing {
                    kind: Kind::Symbol,
                    address: base + begins,
                    len: part.stride.into(),
                    // Handles count from one.
                    name: format!("{} #{}", part.name(), number + 1),
                });
                look_at = begins + u64::from(part.stride);
            }
        }
        things
    }
}
