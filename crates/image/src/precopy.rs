//! Pre-copy: private memory that was written since the image before is read while the server goes on, so it stands only for what it writes from then on.
//!
//! A page is protected first, and then read. Who writes it meanwhile takes the protection off, and it is read again when the server stands: what is read here need not be
//! consistent. It counts like a page of the image before ([`Before::learn`]), whose content is in no pack yet but here. What was protected and could not be read is
//! [doubted](Before::doubt).

use crate::before::{Before, Lookup};
use crate::copied::{Copied, hash};
use crate::form::PAGE_BYTES;
use crate::maps::{self, Mapping};
use crate::pages::{BATCH, Pages, is_zero};
use crate::processes;
use crate::written::Watch;
use crate::{MemoryError, Result};
use skein_arena::layout::{LIBRARY_AT, SERVER_BASE};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

const PAGE: usize = PAGE_BYTES as usize;
/// So many pages are kept, and read at a time: 320 MiB.
const MAX_PAGES: usize = 80 << 10;
/// What was written is searched for in such parts: meanwhile the server cannot get other memory.
const PART_BYTES: u64 = 16 << 20;
/// Larger mappings of files are left: most of their pages are the file's, and are looked at one by one.
const MAX_FILE_BYTES: u64 = 4 * PART_BYTES;

/// Pages that were read while the server went on.
#[derive(Debug, Default)]
pub struct Precopied {
    copied: Copied<'static>,
    /// Their numbers in it by the hashes of their contents.
    places: HashMap<u128, usize>,
}

impl Precopied {
    /// How many there are.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.copied.fresh()
    }

    /// The one with this hash.
    #[must_use]
    pub fn get(&self, hash: u128) -> Option<&[u8; PAGE]> {
        let page = self.copied.here(*self.places.get(&hash)?);
        Some(page.try_into().expect("it is a page"))
    }

    pub(crate) fn put(&mut self, page: &[u8]) -> io::Result<u128> {
        let hash = hash(page);
        if let Entry::Vacant(place) = self.places.entry(hash) {
            place.insert(self.copied.fresh());
            self.copied.page(page)?;
        }
        Ok(hash)
    }

    /// Reads what the processes below `init` have written since the image `before`, which knows it from then on, as long as it is wanted. Answers how many pages it
    /// knows now: some may be written again by now.
    ///
    /// # Errors
    /// The image before does not count any more.
    pub fn read(
        &mut self,
        init: u32,
        before: &mut Before,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<usize> {
        let (mut read, mut learned) = (0, 0);
        for process in processes::below(init)? {
            // It may end at any moment.
            let Ok(pages) = Pages::of(&process) else { continue };
            let Some(watch) = Watch::of(&process) else { continue };
            let Ok(Some(mappings)) = maps::plain(process.host_pid, may_be_read) else { continue };
            let mut own = Own { read, ..Own::default() };
            let mut known = before.process(process.host_pid);
            let mut goes_on = true;
            'all: for mapping in &mappings {
                goes_on = is_wanted();
                if !goes_on {
                    break;
                }
                match pages.begins(mapping, &watch) {
                    None => continue,
                    Some(false) => own.doubtful.push((mapping.start, mapping.end)),
                    Some(true) => {
                        let of = Of { pages: &pages, watch: &watch };
                        for part in parts(mapping) {
                            goes_on = is_wanted()
                                && self.read_part(&of, &part, &mut known, &mut own, is_wanted)?;
                            if !goes_on {
                                break 'all;
                            }
                        }
                    }
                }
            }
            read = own.read;
            learned += own.learned.len();
            before.doubt(process.host_pid, &own.doubtful);
            before.learn(process.host_pid, &own.learned);
            if !goes_on {
                break;
            }
        }
        Ok(learned)
    }

    /// Reads a part of a mapping; false: no more is wanted.
    fn read_part(
        &mut self,
        of: &Of<'_>,
        mapping: &Mapping,
        known: &mut Lookup<'_>,
        own: &mut Own,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let (rows, all) = of.pages.rows_now(mapping, of.watch, known);
        if !all {
            let start = rows.last().map_or(mapping.start, |row| row.end);
            own.doubtful.push((start, mapping.end));
        }
        let mut to_read = Vec::new();
        for row in &rows {
            let unknown = row.parts(mapping, known).filter(|(_, hashes)| hashes.is_empty());
            to_read.extend(unknown.map(|(address, _)| address));
        }
        own.doubtful.extend(to_read.iter().map(|at| (*at, at + PAGE_BYTES)));
        for addresses in to_read.chunks(BATCH) {
            if !is_wanted() || self.pages() >= MAX_PAGES || own.read >= MAX_PAGES {
                return Ok(false);
            }
            own.read += addresses.len();
            own.piece.resize(BATCH * PAGE, 0);
            let piece = &mut own.piece[..addresses.len() * PAGE];
            // They may be gone.
            if of.pages.gather(mapping, addresses, piece).is_err() {
                continue;
            }
            for (address, page) in addresses.iter().zip(piece.chunks_exact(PAGE)) {
                // Such a page may never have been touched, and is in no image; or it was written over a file's.
                if !is_zero(page) {
                    let hash = self.put(page).map_err(MemoryError::read("memory for an image"))?;
                    own.learned.push((*address, hash));
                }
            }
        }
        Ok(true)
    }
}

/// What is found out about a process: pages that are protected by now, in order, and those of them whose contents are known.
#[derive(Debug, Default)]
struct Own {
    doubtful: Vec<(u64, u64)>,
    learned: Vec<(u64, u128)>,
    /// How many were read, of all processes.
    read: usize,
    piece: Vec<u8>,
}

/// Where a process is read.
struct Of<'a> {
    pages: &'a Pages,
    watch: &'a Watch,
}

/// A mapping in parts.
fn parts(mapping: &Mapping) -> impl Iterator<Item = Mapping> {
    let starts = (mapping.start..mapping.end).step_by(PART_BYTES as usize);
    starts.map(|start| Mapping {
        start,
        end: mapping.end.min(start.saturating_add(PART_BYTES)),
        ..mapping.clone()
    })
}

/// Whether a mapping is private memory of the server's own. Not a stack: it may have grown since the kernel listed it, and would be split. Nor what a removed file held, of which all pages are
/// read, nor files that may have huge pages, of which the list does not say enough.
fn may_be_read(mapping: &Mapping) -> bool {
    let is_own = (SERVER_BASE as u64..LIBRARY_AT as u64).contains(&mapping.start);
    let has_kind = mapping.name.starts_with("[v") || mapping.name == "[stack]";
    let is_removed = mapping.name.ends_with(" (deleted)");
    let is_large = mapping.end - mapping.start > MAX_FILE_BYTES;
    let is_left = mapping.is_of_file() && (is_removed || is_large || mapping.may_be_huge());
    !is_own && !mapping.is_shared() && !is_left && !has_kind
}
