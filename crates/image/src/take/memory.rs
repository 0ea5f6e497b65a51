//! The private memory of processes: what there is, while the server stands; the pages, then or later.

use super::{FileId, Forks, Image, part, refused};
use crate::before::Lookup;
use crate::maps::{self, Mapping};
use crate::pages::{PAGE_BYTES, Pages, Part};
use crate::processes::Process;
use crate::raw::Raw;
use crate::stand_ins::Spared;
use crate::written::{Row, Watch};
use crate::{MemoryError, Result};
use skein_arena::layout::{
    LIBRARY_AT, MAX_SPARED, RUNTIME_BITS, RUNTIME_END, RUNTIME_PLACE, SERVER_BASE,
};
use skein_arena::restore::{self, advice, kind};
use std::cmp::Reverse;
use std::time::Instant;

/// A process with more private mappings than these forks with all its memory: the kernel bounds their number, 65,530 by default, and those that a copy does without are split.
const MANY_MAPPINGS: usize = 16 << 10;
/// From the arena to the runtime's library: nothing there is the server's.
const OWN: std::ops::Range<u64> = SERVER_BASE as u64..LIBRARY_AT as u64;

/// The pages of a private mapping.
#[derive(Debug)]
pub(super) struct Private {
    mapping: Mapping,
    pages: Written,
}

#[derive(Debug)]
enum Written {
    /// In these rows, some of which the image before has.
    Rows(Vec<Row>),
    /// All that the process has written, as its page map tells.
    Mapped,
    /// Not asked yet.
    Unasked,
    /// Not known yet: the process has a stand-in.
    Later,
    /// They were copied while the server stood.
    Here(Raw),
}

/// The private mappings of one process, and their numbers.
pub(super) type Mapped = Vec<(Mapping, u32)>;

/// The private memory of all processes.
pub(super) enum Found {
    /// Its mappings; what pages they have is not asked yet.
    Not(Vec<Mapped>),
    Is(Vec<Vec<Private>>),
}

impl Private {
    /// Copies what a fork does not.
    pub(super) fn hold_unforked(&mut self, process: &Process, stand: &Stand) -> Result<()> {
        if !self.mapping.is_unforked() || matches!(self.pages, Written::Here(_)) {
            return Ok(());
        }
        let pages = Pages::of(process)?;
        self.pages =
            Written::Here(copied(|each| pages.private(&self.mapping, stand.deadline, each))?);
        Ok(())
    }
}

/// Pages, as `read` tells them.
fn copied(
    read: impl FnOnce(&mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()>,
) -> Result<Raw> {
    let mut raw = Raw::default();
    read(&mut |at, page| raw.add(at, page).map_err(MemoryError::read("memory for an image")))?;
    Ok(raw)
}

/// Pages in a row of a mapping that are not read from a stand-in, and those found to be enough.
struct Unread<'a> {
    of: u32,
    /// The process may have more mappings for a moment.
    has_room: bool,
    row: Option<Spared>,
    long: &'a mut Vec<Spared>,
    forks: Forks,
}

impl Unread<'_> {
    /// So many pages from this address on, behind those before: between them there are none.
    fn add(&mut self, start: u64, pages: u64) {
        let row = self.row.get_or_insert(Spared { pid: self.of, start, end: start, pages: 0 });
        row.end = start + pages * PAGE_BYTES;
        row.pages += pages;
    }

    /// The next page is read.
    fn end(&mut self, mapping: &Mapping) {
        let is_own = (SERVER_BASE as u64..RUNTIME_END as u64).contains(&mapping.start);
        // A copy of a process needs what it runs on.
        let may = self.has_room && !is_own && !mapping.is_of_file() && !mapping.is_unforked();
        let is_enough = |row: &Spared| row.pages >= self.forks.spares;
        self.long.extend(
            self.row.take().filter(|row| may && mapping.name != "[stack]" && is_enough(row)),
        );
    }
}

/// What is known of a server's memory while it stands.
pub(super) struct Stand {
    /// The arena's file.
    pub(super) arena: FileId,
    /// Whether processes have told the kernel what only the list that counts pages shows.
    pub(super) advised: bool,
    /// Whether the pages are read later, from stand-ins.
    pub(super) forked: bool,
    pub(super) deadline: Instant,
}

impl<'b> Image<'_, 'b> {
    /// The mappings of process number `n`.
    pub(super) fn mappings_of(
        &mut self,
        n: usize,
        process: &Process,
        stand: &Stand,
    ) -> Result<Mapped> {
        let first_mapping = self.mappings.len();
        let wanted = |m: &Mapping| {
            !OWN.contains(&m.start) && m.file != stand.arena && m.name != "[vsyscall]"
        };
        let plain = match stand.advised || !self.watches {
            true => None,
            false => maps::plain(process.host_pid, wanted)?,
        };
        let mappings = match plain {
            Some(mappings) => mappings,
            None => maps::select(process.host_pid, wanted)?,
        };
        let mut found = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            let kind = self.kind(process, &mapping)?;
            let has_path = matches!(kind, kind::FILE | kind::SHARED_FILE | kind::WRITTEN_FILE);
            if has_path && self.is_closed(&mapping.name) {
                let what = format!("{} mapped, in a directory that it has closed", mapping.name);
                return refused(process, what);
            }
            if kind == kind::HEAP {
                self.processes[n].brk = mapping.end;
            }
            let of = match kind {
                kind::SHARED => self.memory(process, &mapping).into(),
                kind::PRIVATE => self.by_file[&mapping.file].into(),
                _ => self.name(&mapping.name),
            };
            self.mappings.push(restore::Mapping {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                of,
                kind,
                protection: protection(&mapping.permissions),
                advice: advice(&mapping, stand.advised),
                unused: 0,
            });
            found.push((mapping, kind));
        }
        self.processes[n].mappings = part(first_mapping, self.mappings.len());
        Ok(found)
    }

    /// The private memory of all processes; of what `is_now` is false for it is not asked yet.
    pub(super) fn all_private(
        &self,
        processes: &[Process],
        mappings: Vec<Mapped>,
        stand: &Stand,
        is_now: fn(&Mapping) -> bool,
    ) -> Result<Vec<Vec<Private>>> {
        let all = processes.iter().zip(mappings);
        let all = all.map(|(process, mappings)| {
            let mut found = Vec::with_capacity(mappings.len());
            for (mapping, kind) in mappings {
                let is_shared =
                    matches!(kind, kind::SHARED | kind::SHARED_FILE | kind::WRITTEN_FILE);
                let is_code = mapping.name == maps::VDSO;
                let is_kernels = mapping.name.starts_with("[v") && !is_code;
                if is_shared || is_kernels || !mapping.is_used {
                    continue;
                }
                // A program that another one executed has changed its functions. The kernel notes no writes there.
                if is_code {
                    found.push(Private { mapping, pages: Written::Mapped });
                    continue;
                }
                // The file is gone: what it held is the process's own from now on.
                let is_all = kind == kind::ANONYMOUS && mapping.is_of_file();
                let raw = is_all.then(|| {
                    let pages = Pages::of(process)?;
                    copied(|each| pages.all(&mapping, stand.deadline, each))
                });
                let pages = raw.transpose()?.map_or(Written::Unasked, Written::Here);
                found.push(Private { mapping, pages });
            }
            self.ask(process, found, stand, is_now)
        });
        all.collect()
    }

    /// Asks about all that was not asked about yet; where the processes have forked, that is done when they have gone on.
    pub(super) fn ask_all(
        &self,
        processes: &[Process],
        private: Vec<Vec<Private>>,
        stand: &Stand,
    ) -> Result<Vec<Vec<Private>>> {
        let all = processes.iter().zip(private);
        all.map(|(process, private)| self.ask(process, private, stand, |_| true)).collect()
    }

    /// What stand-ins for these pages do without; `None`: there are to be none ([`Source::forks`](super::Source::forks)).
    pub(super) fn spared(
        &self,
        processes: &[Process],
        found: &[Vec<Private>],
        forks: Forks,
    ) -> Option<Vec<Spared>> {
        let whole = |from: u64, to: u64| (to - from) / PAGE_BYTES;
        let (mut read, mut pages) = (0, 0);
        let mut all = Vec::new();
        for (process, private) in processes.iter().zip(found) {
            let before = self.before.map(|before| before.process(process.host_pid));
            let mut before = before.unwrap_or_default();
            let has_room = private.len() <= MANY_MAPPINGS;
            for Private { mapping, pages: written } in private {
                let rows = match written {
                    Written::Rows(rows) => rows,
                    // How many there are is not known: all are read.
                    Written::Mapped => {
                        let all = whole(mapping.start, mapping.end);
                        (read, pages) = (read + all, pages + all);
                        continue;
                    }
                    Written::Unasked | Written::Later | Written::Here(_) => continue,
                };
                let mut unread =
                    Unread { of: process.pid, has_room, row: None, long: &mut all, forks };
                for row in rows {
                    pages += whole(row.start, row.end);
                    if row.written {
                        read += whole(row.start, row.end);
                        unread.end(mapping);
                        continue;
                    }
                    for (address, known) in row.parts(mapping, &mut before) {
                        if known.is_empty() {
                            read += 1;
                            unread.end(mapping);
                        } else {
                            unread.add(address, known.len() as u64);
                        }
                    }
                }
                unread.end(mapping);
            }
        }
        all.sort_unstable_by_key(|one| Reverse(one.pages));
        all.truncate(MAX_SPARED);
        let spared = all.iter().map(|one| one.pages).sum::<u64>();
        (forks.for_pages)(read, pages - spared).then_some(all)
    }

    /// Which of their pages are the process's own; from now on the kernel notes writes to them.
    fn ask(
        &self,
        process: &Process,
        private: Vec<Private>,
        stand: &Stand,
        is_now: fn(&Mapping) -> bool,
    ) -> Result<Vec<Private>> {
        let is_asked =
            |one: &Private| matches!(one.pages, Written::Unasked) && is_now(&one.mapping);
        let asked: Vec<&Mapping> =
            private.iter().filter(|one| is_asked(one)).map(|one| &one.mapping).collect();
        if asked.is_empty() {
            return Ok(private);
        }
        let pages = Pages::of(process)?;
        let watch = Watch::of(process).filter(|_| self.watches);
        let before = self.before.map(|before| before.process(process.host_pid));
        let mut before = before.unwrap_or_default();
        let may_be_there = match watch {
            Some(_) if !stand.forked => pages.may_be_in(&asked),
            _ => vec![true; asked.len()],
        };
        let mut may_be_there = may_be_there.into_iter();
        let mut known = Vec::with_capacity(private.len());
        for one in private {
            if !is_asked(&one) {
                known.push(one);
                continue;
            }
            let mapping = one.mapping;
            if !may_be_there.next().expect("as many as were asked about") {
                continue;
            }
            let written = match &watch {
                _ if stand.forked => Written::Later,
                None => Written::Mapped,
                Some(watch) => {
                    let (rows, all) = pages.rows(&mapping, watch, &mut before, stand.deadline)?;
                    let start = rows.last().map_or(mapping.start, |row| row.end);
                    let rest = (!all).then(|| Mapping { start, ..mapping.clone() });
                    known.push(Private { mapping, pages: Written::Rows(rows) });
                    known.extend(rest.map(|mapping| Private { mapping, pages: Written::Mapped }));
                    continue;
                }
            };
            known.push(Private { mapping, pages: written });
        }
        Ok(known)
    }

    /// The pages of all processes, read from their copies, if there are some.
    pub(super) fn all_pages(
        &mut self,
        processes: &[Process],
        copies: Option<&[Process]>,
        private: Vec<Vec<Private>>,
        deadline: Instant,
    ) -> Result<()> {
        for (n, (process, private)) in processes.iter().zip(private).enumerate() {
            self.pages_of(n, process, copies.map(|copies| &copies[n]), private, deadline)?;
        }
        Ok(())
    }

    /// The pages of process number `n`, read from its copy, if it has one.
    fn pages_of(
        &mut self,
        n: usize,
        process: &Process,
        copy: Option<&Process>,
        mut private: Vec<Private>,
        deadline: Instant,
    ) -> Result<()> {
        let first_run = self.runs.len();
        let pages = copy.map_or_else(|| Pages::of(process), Pages::of_copy)?;
        if copy.is_some() {
            self.compare_with_copy(process, &pages, &mut private, deadline)?;
        }
        let before = self.before;
        let mut before = before.map_or_else(Lookup::default, |b| b.process(process.host_pid));
        for Private { mapping, pages: written } in &private {
            if mapping.name == maps::VDSO {
                self.places.kernels.insert(process.host_pid, (mapping.start, mapping.end));
            }
            match written {
                Written::Unasked | Written::Later => unreachable!("it is known by now"),
                Written::Here(raw) => {
                    for (at, page) in raw.each() {
                        self.compared(at, page, Some(&mut before))?;
                    }
                }
                Written::Mapped => {
                    let compare = |at, page: &[u8]| self.compared(at, page, Some(&mut before));
                    pages.private(mapping, deadline, compare)?;
                }
                Written::Rows(rows) => {
                    let each = |at, found: Part<'_, 'b>| match found {
                        Part::Here(page) => self.page(at, page),
                        Part::Known(hashes) => self.known_pages(at, hashes),
                    };
                    pages.of_rows(mapping, rows, &mut before, deadline, each)?;
                }
            }
        }
        self.processes[n].runs = self.since(first_run);
        Ok(())
    }

    /// Finds out which pages of a copy are as in the image before. Its process has gone on, and the kernel notes what it writes from now on only: what it has written up to now,
    /// before the copy was made or behind it, is read again for the next image ([`Places::doubtful`](crate::before::Places)). A page that it has no more, the copy has.
    fn compare_with_copy(
        &mut self,
        process: &Process,
        copy: &Pages,
        private: &mut [Private],
        deadline: Instant,
    ) -> Result<()> {
        // It may have ended.
        let origin = Pages::of(process).ok().filter(|_| self.watches);
        let origin = origin.and_then(|pages| Some((pages, Watch::of(process)?)));
        let doubtful = self.places.doubtful.entry(process.host_pid).or_default();
        for Private { mapping, pages } in private {
            if !matches!(pages, Written::Later) {
                continue;
            }
            let (noted, all) = match &origin {
                Some((origin, watch)) => {
                    origin.rows(mapping, watch, &mut Lookup::default(), deadline)?
                }
                None => (Vec::new(), true),
            };
            let written = noted.iter().filter(|row| row.written);
            doubtful.extend(written.map(|row| (row.start, row.end)));
            if !all {
                // Some of the rest may be protected by now.
                let rest = noted.last().map_or(mapping.start, |row| row.end);
                doubtful.push((rest, mapping.end));
            }
            let rows = origin.as_ref().and_then(|_| copy.copied_rows(mapping, &noted));
            *pages = rows.map_or(Written::Mapped, Written::Rows);
        }
        Ok(())
    }

    fn kind(&self, process: &Process, mapping: &Mapping) -> Result<u32> {
        let name = mapping.name.as_str();
        let is_memory = name.starts_with("/dev/zero") || name.starts_with("[anon_shmem:");
        let is_removed = mapping.is_of_file() && name.ends_with(" (deleted)");
        Ok(match name {
            "[stack]" => kind::STACK,
            maps::HEAP => kind::HEAP,
            maps::VDSO | "[vvar]" | "[vvar_vclock]" => kind::STAYS,
            _ if mapping.start >> RUNTIME_BITS == RUNTIME_PLACE as u64 && mapping.is_of_file() => {
                kind::STAYS
            }
            _ if mapping.has("ht") => return refused(process, format!("huge pages of {name}")),
            _ if mapping.key != 0 => {
                return refused(process, format!("protection key {} at {name}", mapping.key));
            }
            _ if mapping.is_shared() && (is_removed || is_memory) => kind::SHARED,
            _ if mapping.is_shared() && mapping.has("mw") => kind::WRITTEN_FILE,
            _ if mapping.is_shared() => kind::SHARED_FILE,
            _ if self.by_file.contains_key(&mapping.file) => kind::PRIVATE,
            _ if mapping.is_of_file() && !is_removed => kind::FILE,
            _ => kind::ANONYMOUS,
        })
    }
}

fn protection(permissions: &str) -> u32 {
    let letters = permissions.bytes().zip(*b"rwx");
    let bits = [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC];
    letters
        .zip(bits)
        .filter(|((is, letter), _)| is == letter)
        .fold(0, |all, (_, bit)| all | bit as u32)
}

/// What the server has told the kernel about a mapping. A kernel that gives stacks small pages says so of its own accord, and to a server that tells nothing (`advised`) the size is all the
/// same.
fn advice(mapping: &Mapping, advised: bool) -> u32 {
    let words = [
        ("dc", advice::NOT_FORKED),
        ("wf", advice::WIPED),
        ("hg", advice::HUGE),
        ("nh", advice::SMALL),
        ("sl", advice::SEALED),
        ("gd", advice::GROWS),
    ];
    let told =
        words.iter().filter(|(word, _)| mapping.has(word)).fold(0, |all, (_, bit)| all | bit);
    if advised { told } else { told & !advice::SMALL }
}
