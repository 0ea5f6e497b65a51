//! Shared memory is read while the server goes on, so it stands only for what was written to it meanwhile.
//!
//! As private memory ([`crate::precopy`]) it is protected first, in all processes that map it, and read then: who writes to it takes the protection off in its own page tables. Those are gone with
//! a process, and with a mapping. So what was read counts only if the same processes map the same of it when the server stands, and none has begun, ended or changed what it
//! maps since, nor made a hole in it, which their runtime counts ([`Header::shared_changes`]). For the same reason nothing of it is known from the image before: it is read for each one.
//!
//! Only memory that never was a file's is read so: no descriptor leads to it.

use crate::before::Before;
use crate::copied::Room;
use crate::form::PAGE_BYTES;
use crate::maps::{self, FileId, Mapping};
use crate::pages::Pages;
use crate::processes::{self, Process};
use crate::raw::Raw;
use crate::sparse::{copy_pages, read_there};
use crate::written::{Watch, tells_of_shared, unprotected};
use crate::{MemoryError, Result};
use skein_arena::layout::Header;
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

/// So much is read; what is beyond is when the server stands: 320 MiB.
const MAX_BYTES: u64 = 320 << 20;
/// So is what processes map more of, together, 8 GiB: their page tables are written and read.
const MAX_MAPPED_BYTES: u64 = 8 << 30;
/// Protected, and not any more, in such parts: meanwhile the process gets no other memory.
const PART_BYTES: usize = 16 << 20;
/// Pages that are read together.
const BATCH: u64 = 64;

/// See the [module](self).
#[derive(Debug)]
pub struct SharedAhead {
    /// What the runtime had counted when this began.
    changes: u32,
    read: BTreeMap<FileId, Read>,
}

/// An object that was read.
#[derive(Debug)]
struct Read {
    file: File,
    pages: Raw,
    protected: Vec<Protected>,
}

/// A mapping of it whose pages are protected, until this is dropped.
#[derive(Debug)]
pub(crate) struct Protected {
    host_pid: u32,
    mapping: Mapping,
    watch: Watch,
    pages: Pages,
}

impl Drop for Protected {
    fn drop(&mut self) {
        // Each first write to a page costs a fault as long as it is.
        let Self { mapping, watch, .. } = self;
        parts(mapping).for_each(|(start, end)| watch.unprotect(start, end));
    }
}

impl Protected {
    fn is_of(&self, host_pid: u32, mapping: &Mapping) -> bool {
        let Mapping { start, end, offset, .. } = &self.mapping;
        self.host_pid == host_pid
            && (*start, *end, *offset) == (mapping.start, mapping.end, mapping.offset)
    }
}

/// What was read of an object while the server went on, what it has written since, zeros included, and what is to be dropped when the server need not stand any longer.
pub(crate) struct Counts {
    pub(crate) pages: Raw,
    pub(crate) since: Raw,
    pub(crate) protected: Vec<Protected>,
}

impl SharedAhead {
    /// Reads objects of so many bytes and more that the processes below `init` share, the first into `room`, if it has that. `None`: nothing was read that counts. Where
    /// the address of one turns out to be something else by now, `before` doubts what is there.
    pub fn read(
        arena: &File,
        init: u32,
        before: &mut Before,
        min_bytes: u64,
        room: &mut Option<Room>,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<Self> {
        let mut word = [0; 4];
        arena.read_exact_at(&mut word, offset_of!(Header, shared_changes) as u64).ok()?;
        let changes = u32::from_ne_bytes(word);
        if changes == 0 || !tells_of_shared() {
            return None;
        }
        let mut objects = objects(init).ok()?;
        let mut left = [MAX_BYTES, MAX_MAPPED_BYTES];
        objects.retain(|_, places| {
            let mapped = places.iter().map(|(_, mapping)| mapping.end - mapping.start).sum();
            let after = [end(places), mapped];
            let fits = after[0] >= min_bytes.max(1) && after.iter().zip(left).all(|(a, l)| *a <= l);
            if fits {
                left = [left[0] - after[0], left[1] - after[1]];
            }
            fits
        });
        let mut read = BTreeMap::new();
        for (id, places) in objects {
            if !is_wanted() {
                break;
            }
            let bytes = end(&places);
            let Some((process, mapping)) = places.first() else { continue };
            let Some(file) = maps::open_memory(process, mapping) else { continue };
            let protected = places.iter().map_while(|(process, mapping)| {
                let protected = Protected::new(process, mapping, is_wanted)?;
                if !is_there(process, mapping) {
                    before.doubt(process.host_pid, &[(mapping.start, mapping.end)]);
                    return None;
                }
                Some(protected)
            });
            let protected: Vec<_> = protected.collect();
            if protected.len() < places.len() {
                continue;
            }
            let mut pages = Raw::with_room(room.take_if(|room| room.is_used_by(bytes)));
            let go_on = || if is_wanted() { Ok(()) } else { Err(MemoryError::TooLong) };
            if copy_pages(&mut pages, &file, [0, 0, bytes], go_on, unreadable).is_ok() {
                read.insert(id, Read { file, pages, protected });
            }
        }
        (!read.is_empty()).then_some(Self { changes, read })
    }

    /// The number of pages that were read.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.read.values().map(|read| read.pages.len()).sum()
    }

    /// Whether it counts for a server that stands, whose arena has this header.
    pub(crate) fn counts(&self, header: &[u8]) -> bool {
        let at = offset_of!(Header, shared_changes);
        header.get(at..at + 4) == Some(&self.changes.to_ne_bytes())
    }

    /// It does not count: memory for what was read most of, and what is to be dropped later.
    pub(crate) fn give_up(self) -> (Option<Room>, Vec<Protected>) {
        let mut read: Vec<_> = self.read.into_values().collect();
        let protected = read.iter_mut().flat_map(|read| std::mem::take(&mut read.protected));
        let protected = protected.collect();
        let most = read.into_iter().max_by_key(|read| read.pages.len());
        (most.map(|read| read.pages.into_room()), protected)
    }

    /// What was read of the object with this number, which processes, by their numbers on the host, map at these places. `None`: it is to be read again; into `room`.
    pub(crate) fn take(
        &mut self,
        id: FileId,
        places: &[(u32, &Mapping)],
        room: &mut Option<Room>,
    ) -> Option<Counts> {
        let Read { file, pages, protected } = self.read.remove(&id)?;
        let is_same = protected.len() == places.len()
            && places.iter().all(|(pid, m)| protected.iter().any(|one| one.is_of(*pid, m)));
        let since = if is_same { written(&file, &protected) } else { None };
        let Some(since) = since else {
            room.get_or_insert_with(|| pages.into_room());
            // To be dropped later, too.
            self.read.insert(id, Read { file, pages: Raw::default(), protected });
            return None;
        };
        Some(Counts { pages, since, protected })
    }
}

/// The pages of an object that were written since they were protected.
fn written(file: &File, protected: &[Protected]) -> Option<Raw> {
    let mut rows = Vec::new();
    for Protected { mapping, pages, .. } in protected {
        let Mapping { start, end, offset, .. } = *mapping;
        let found = unprotected(pages.pagemap(), start, end)?;
        rows.extend(
            found.into_iter().map(|(from, to)| (from - start + offset, to - start + offset)),
        );
    }
    rows.sort_unstable();
    let mut since = Raw::default();
    let mut piece = vec![0; (BATCH * PAGE_BYTES) as usize];
    let mut at = 0;
    for (from, to) in rows {
        at = at.max(from);
        while at < to {
            let bytes = (to - at).min(BATCH * PAGE_BYTES);
            let piece = &mut piece[..bytes as usize];
            read_there(file, at, piece).ok()?;
            for page in piece.chunks_exact(PAGE_BYTES as usize) {
                since.add(at, page).ok()?;
                at += PAGE_BYTES;
            }
        }
    }
    Some(since)
}

impl Protected {
    fn new(
        process: &Process,
        mapping: &Mapping,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<Self> {
        let (pages, watch) = (Pages::of(process).ok()?, Watch::of(process)?);
        let begun = watch.begin_shared(pages.pagemap(), mapping.start, mapping.end);
        let mut all = parts(mapping);
        let done = begun && all.all(|(start, end)| is_wanted() && watch.protect(start, end));
        // Some of it may be protected.
        let new = Self { host_pid: process.host_pid, mapping: mapping.clone(), watch, pages };
        done.then_some(new)
    }
}

/// The addresses of a mapping in parts.
fn parts(mapping: &Mapping) -> impl Iterator<Item = (u64, u64)> {
    let (start, end) = (mapping.start, mapping.end);
    (start..end).step_by(PART_BYTES).map(move |at| (at, end.min(at + PART_BYTES as u64)))
}

type Places = Vec<(Process, Mapping)>;

/// The end of what is mapped of an object.
fn end(places: &Places) -> u64 {
    let ends = places.iter().map(|(_, m)| m.offset + (m.end - m.start));
    ends.max().unwrap_or_default()
}

/// Memory that was never a file's, and its mappings.
fn objects(init: u32) -> Result<BTreeMap<FileId, Places>> {
    let mut objects: BTreeMap<_, Places> = BTreeMap::new();
    for process in processes::below(init)? {
        let is_wanted = |mapping: &Mapping| mapping.is_shared() && mapping.is_of_nobody();
        let mappings = match maps::plain(process.host_pid, is_wanted)? {
            Some(mappings) => mappings,
            None => maps::select(process.host_pid, is_wanted)?,
        };
        for mapping in mappings {
            objects.entry(mapping.file).or_default().push((process.clone(), mapping));
        }
    }
    Ok(objects)
}

/// Whether a process that goes on has this mapping.
fn is_there(process: &Process, mapping: &Mapping) -> bool {
    let is_it = |m: &Mapping| {
        (m.start, m.end, m.offset, m.file)
            == (mapping.start, mapping.end, mapping.offset, mapping.file)
    };
    let found = maps::plain(process.host_pid, is_it);
    let found = found.and_then(|found| match found {
        Some(found) => Ok(found),
        None => maps::select(process.host_pid, is_it),
    });
    found.is_ok_and(|found| !found.is_empty())
}

fn unreadable(error: std::io::Error) -> MemoryError {
    MemoryError::Read { what: "shared memory".into(), error }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
