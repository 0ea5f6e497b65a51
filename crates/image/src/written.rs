//! Which pages of its private memory a process has written since the image before.
//!
//! The kernel notes it: a userfaultfd of the process, which its runtime has made, protects pages against writes in the asynchronous mode, in which a write takes the
//! protection off and goes on; one call of `PAGEMAP_SCAN` tells which pages are protected still, and protects the others (Linux 6.7). It sees the kernel's own writes,
//! too. A page that is protected was so since the image before, in this mapping: memory that is new, moved, or another process's is not, and counts as written.
//!
//! To tell of each page whether it is there takes ten times as long as to list those that are not protected. So these are listed first, and long rows that the image before has and that are
//! not among them are passed over ([`passed`]).
//!
//! Who wrote shared memory since then may be gone; what of it is written during a short time is found out as well ([`crate::shared`]).

use crate::before::Lookup;
use crate::form::PAGE_BYTES;
use crate::maps::Mapping;
use crate::proc;
use crate::processes::Process;
use skein_arena::layout::WRITTEN_FD;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::OnceLock;

/// `UFFDIO_API` and `UFFDIO_REGISTER`: `_IOWR(0xaa, 0x3f, struct uffdio_api)`, `_IOWR(0xaa, 0, struct uffdio_register)`.
const API_CALL: libc::Ioctl = 0xc018_aa3f;
const REGISTER_CALL: libc::Ioctl = 0xc020_aa00;
const UNREGISTER_CALL: libc::Ioctl = 0x8010_aa01;
/// `UFFDIO_WRITEPROTECT`: `_IOWR(0xaa, 6, struct uffdio_writeprotect)`.
const PROTECT_CALL: libc::Ioctl = 0xc018_aa06;
/// `UFFD_API`, `UFFD_FEATURE_WP_ASYNC`, `UFFDIO_REGISTER_MODE_WP`.
const API: u64 = 0xaa;
const WP_ASYNC: u64 = 1 << 15;
const MODE_WP: u64 = 2;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const SCAN_CALL: libc::Ioctl = 0xc060_6610;
/// `PM_SCAN_WP_MATCHING`, `PM_SCAN_CHECK_WPASYNC`.
const PROTECT: u64 = 1;
const CHECK: u64 = 2;
/// `PAGE_IS_` bits.
const WRITTEN: u64 = 1 << 1;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
/// Regions per call.
const REGIONS: usize = 1024;
/// Shorter rows are not worth a call to pass them over.
const MIN_PASSED: u64 = 512 * PAGE_BYTES;
/// What one of the processor's page tables has entries for.
const TABLE_BYTES: u64 = 2 << 20;
/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: i32 = 1;
/// In `/proc/PID/pagemap`: the page is there, or swapped out.
const IN_TABLE: u64 = 1 << 63 | 1 << 62;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

impl Scan {
    /// From one address to another; what is found goes to `regions`.
    fn of(start: u64, end: u64, regions: &mut [Region]) -> Self {
        Self {
            size: size_of::<Self>() as u64,
            start,
            end,
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            regions_len: regions.len() as u64,
            ..Self::default()
        }
    }

    /// The number of regions found; `None`: the kernel does not tell.
    fn call(&mut self, pagemap: &File) -> Option<usize> {
        // SAFETY: the structure as the kernel reads and writes it, with room for as many regions as it says.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), SCAN_CALL, ptr::from_mut(self)) };
        usize::try_from(found).ok()
    }
}

/// Where the next call begins. The kernel walks in pieces of 512 regions, and where the last piece is not full it says where the one before ended: from there on it would tell all once
/// more, protected by now.
fn behind(scan: &Scan, found: &[Region]) -> u64 {
    found.last().map_or(scan.walk_end, |last| last.end.max(scan.walk_end))
}

/// Pages in a row of which the same is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// They may have changed.
    pub(crate) written: bool,
}

impl Row {
    /// Its pages in order, without those that were zeros and are: an address, and the hashes of those from there on that the image before has; none: that page is to be read.
    pub(crate) fn parts<'b>(
        self,
        mapping: &Mapping,
        before: &mut Lookup<'b>,
    ) -> impl Iterator<Item = (u64, &'b [u128])> {
        let mut at = self.start;
        let is_of_file = mapping.is_of_file();
        std::iter::from_fn(move || {
            if !self.written && !is_of_file {
                at += before.zeros(at, self.end) * PAGE_BYTES;
            }
            let address = Some(at).filter(|at| *at < self.end)?;
            let known = if self.written { &[] } else { before.row(at, self.end) };
            at += known.len().max(1) as u64 * PAGE_BYTES;
            Some((address, known))
        })
    }
}

/// Watches a process.
#[derive(Debug)]
pub(crate) struct Watch(OwnedFd);

impl Watch {
    /// `None`: the process, or the kernel, has not got it.
    pub(crate) fn of(process: &Process) -> Option<Self> {
        let owned = |fd: libc::c_long| {
            let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
            // SAFETY: a new descriptor, which nobody else knows.
            Some(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        // SAFETY: takes no pointers.
        let pidfd = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process.host_pid, 0) })?;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), WRITTEN_FD, 0) };
        Some(Self::with(owned(fd)?))
    }

    /// With a process's userfaultfd.
    fn with(fd: OwnedFd) -> Self {
        let mut api = [API, WP_ASYNC, 0];
        // SAFETY: the structure as the kernel reads and writes it. An error says that it was done before, or is not known; then registering fails.
        unsafe { libc::ioctl(fd.as_raw_fd(), API_CALL, api.as_mut_ptr()) };
        Self(fd)
    }

    /// Begins to watch a mapping. Pages that moved here, or whose mapping the kernel has ceased to watch, may bear an old mark of their protection, which would say for ever
    /// that they are unwritten: it is taken off.
    fn register(&self, start: u64, end: u64) -> io::Result<()> {
        let mut range = [start, end - start, MODE_WP, 0];
        // SAFETY: the structure as the kernel reads and writes it.
        let registered =
            unsafe { libc::ioctl(self.0.as_raw_fd(), REGISTER_CALL, range.as_mut_ptr()) };
        if registered == 0 && self.set(start, end, false) {
            return Ok(());
        }
        let failed = io::Error::last_os_error();
        if registered == 0 {
            // A process that goes on has changed its mappings meanwhile: what is left may bear old marks.
            let mut range = [start, end - start];
            // SAFETY: the structure as the kernel reads it.
            unsafe { libc::ioctl(self.0.as_raw_fd(), UNREGISTER_CALL, range.as_mut_ptr()) };
        }
        Err(failed)
    }

    /// Whether a shared mapping is watched from now on, if it was not before.
    pub(crate) fn begin_shared(&self, pagemap: &File, start: u64, end: u64) -> bool {
        let mut region = [Region::default()];
        let mut scan = Scan { flags: CHECK, max_pages: 1, ..Scan::of(start, end, &mut region) };
        scan.call(pagemap).is_some() || self.register(start, end).is_ok()
    }

    /// Protects all pages of it between these addresses, those that the process has not used yet, too; false: not all of them.
    pub(crate) fn protect(&self, start: u64, end: u64) -> bool {
        self.set(start, end, true)
    }

    /// Takes the protection off.
    pub(crate) fn unprotect(&self, start: u64, end: u64) {
        // Where there is nothing any more, nothing is protected.
        self.set(start, end, false);
    }

    /// `UFFDIO_WRITEPROTECT`.
    fn set(&self, start: u64, end: u64, protects: bool) -> bool {
        let mut range = [start, end - start, protects.into()];
        // SAFETY: the structure as the kernel reads and writes it.
        unsafe { libc::ioctl(self.0.as_raw_fd(), PROTECT_CALL, range.as_mut_ptr()) == 0 }
    }

    /// Whether a mapping has any page of the process's own: servers reserve terabytes that they never use, which need not be watched.
    fn has_pages(pagemap: &File, mapping: &Mapping, of_file: u64) -> bool {
        let mut region = [Region::default()];
        let mut scan = Scan {
            max_pages: 1,
            inverted: of_file,
            mask: of_file,
            any_of: PRESENT | SWAPPED,
            returned: PRESENT,
            ..Scan::of(mapping.start, mapping.end, &mut region)
        };
        scan.call(pagemap) != Some(0)
    }

    /// Whether a private mapping is watched from now on, if it was not before; `None`: the process has no page of its own there.
    pub(crate) fn begins(&self, pagemap: &File, mapping: &Mapping) -> Option<bool> {
        let of_file = if mapping.is_of_file() { FILE } else { 0 };
        let mut region = [Region::default()];
        let mut scan = Scan {
            flags: CHECK,
            max_pages: 1,
            inverted: of_file,
            mask: of_file,
            any_of: PRESENT | SWAPPED,
            returned: PRESENT,
            ..Scan::of(mapping.start, mapping.end, &mut region)
        };
        match scan.call(pagemap) {
            Some(0) => None,
            Some(_) => Some(true),
            None if !Self::has_pages(pagemap, mapping, of_file) => None,
            None => Some(self.register(mapping.start, mapping.end).is_ok()),
        }
    }

    /// Calls `each` for the pages of a private mapping that are the process's own, in order, and protects them. False: this kernel cannot, and `each` may have been
    /// called for some. `before`: what the image before has, when the process stands as it did for that.
    ///
    /// # Errors
    /// An error of `each`.
    pub(crate) fn rows<E>(
        &self,
        pagemap: &File,
        mapping: &Mapping,
        before: &mut Lookup<'_>,
        mut each: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<bool, E> {
        // To look whether a page is the file's costs a look at the page.
        let of_file = if mapping.is_of_file() { FILE } else { 0 };
        // Pages of the file itself are not the process's own. That of zeros takes the place of one that is gone: protected, it would be taken for that.
        let others = if mapping.is_of_file() { FILE } else { ZERO };
        let mut regions = vec![Region::default(); REGIONS];
        let mut is_new = false;
        let mut at = mapping.start;
        let passed = passed(pagemap, mapping, before, &mut regions);
        let mut passed = passed.into_iter().peekable();
        while at < mapping.end {
            let end = match passed.peek() {
                Some(row) if row.start == at => {
                    at = row.end;
                    each(*row)?;
                    passed.next();
                    continue;
                }
                Some(row) => row.start,
                None => mapping.end,
            };
            let mut scan = Scan {
                flags: PROTECT | CHECK,
                inverted: others,
                mask: others,
                any_of: PRESENT | SWAPPED,
                returned: WRITTEN | SWAPPED,
                ..Scan::of(at, end, &mut regions)
            };
            let Some(found) = scan.call(pagemap) else {
                let is_unknown = io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
                if is_unknown && !Self::has_pages(pagemap, mapping, of_file) {
                    return Ok(true);
                }
                if is_new || !is_unknown || self.register(mapping.start, mapping.end).is_err() {
                    return Ok(false);
                }
                is_new = true;
                continue;
            };
            for Region { start, end, categories } in regions.iter().take(found).copied() {
                // What is swapped out may have been dropped: that looks alike.
                let written = is_new || categories & (WRITTEN | SWAPPED) != 0;
                each(Row { start, end, written })?;
            }
            let next = behind(&scan, &regions[..found.min(REGIONS)]);
            if next <= at {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }
}

/// Long rows of a watched mapping that are as the image `before` has them, in order: they are protected, and their pages are there.
///
/// The kernel lists what is not protected, pages that are gone included. It drops page tables in which nothing is left, and some kernels tell nothing of those ([`Listing`]): there one page
/// of each table is looked for. Of files nothing is passed over, since there a page that is gone may stay protected.
fn passed(
    pagemap: &File,
    mapping: &Mapping,
    before: &mut Lookup<'_>,
    regions: &mut [Region],
) -> Vec<Row> {
    let mut rows = Vec::new();
    let is_short = mapping.end - mapping.start < MIN_PASSED;
    if is_short || mapping.is_of_file() || before.next_row(mapping.start, mapping.end).is_none() {
        return rows;
    }
    static LISTING: OnceLock<Listing> = OnceLock::new();
    let tried = || Listing::tried(libc::MAP_PRIVATE).unwrap_or(Listing::Wrong);
    let listing = *LISTING.get_or_init(tried);
    if listing == Listing::Wrong {
        return rows;
    }
    let is_certain = listing == Listing::Whole;
    let mut at = mapping.start;
    let mut unprotected = mapping.start;
    while at < mapping.end {
        let mut scan = Scan {
            flags: CHECK,
            mask: WRITTEN,
            returned: WRITTEN,
            ..Scan::of(at, mapping.end, regions)
        };
        // It is not watched, or not all of it.
        let Some(found) = scan.call(pagemap) else { return Vec::new() };
        let found = &regions[..found.min(regions.len())];
        for region in found {
            pass(pagemap, is_certain, before, unprotected, region.start, &mut rows);
            unprotected = region.end;
        }
        let next = behind(&scan, found);
        if next <= at {
            return Vec::new();
        }
        at = next;
    }
    pass(pagemap, is_certain, before, unprotected, mapping.end, &mut rows);
    rows
}

/// Adds the long rows between two addresses that the image `before` has; unless it is certain that there are page tables, where these are.
fn pass(
    pagemap: &File,
    is_certain: bool,
    before: &mut Lookup<'_>,
    from: u64,
    to: u64,
    rows: &mut Vec<Row>,
) {
    let mut at = from;
    while let Some((start, end)) = before.next_row(at, to) {
        at = end;
        if end - start < MIN_PASSED {
            continue;
        }
        if is_certain {
            rows.push(Row { start, end, written: false });
            continue;
        }
        let mut table = start;
        while table < end {
            let next = ((table / TABLE_BYTES + 1) * TABLE_BYTES).min(end);
            let mut entry = [0; 8];
            let read = pagemap.read_exact_at(&mut entry, table / PAGE_BYTES * 8);
            if read.is_ok() && u64::from_ne_bytes(entry) & IN_TABLE != 0 {
                match rows.last_mut().filter(|row| row.end == table) {
                    Some(row) => row.end = next,
                    None => rows.push(Row { start: table, end: next, written: false }),
                }
            }
            table = next;
        }
    }
}

/// What this kernel lists as unprotected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// All that is.
    Whole,
    /// Not that for which there is no page table.
    OfTables,
    /// Not pages that are gone, or not those that are swapped out or on the move: before Linux 6.9.
    Wrong,
}

impl Listing {
    /// Tried with memory of this process, private or shared.
    fn tried(kind: i32) -> io::Result<Self> {
        let release = proc::text("/proc/sys/kernel/osrelease")?;
        if version(&release).is_none_or(|version| version < (6, 9)) {
            return Ok(Self::Wrong);
        }
        // SAFETY: takes no pointers; for this process's own writes.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, which nobody else knows.
        let watch = Watch::with(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        // Where it begins and ends there may be a table for its neighbours.
        let bytes = 3 * TABLE_BYTES as usize;
        let kind = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory of nothing.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: that memory. A kernel without huge pages refuses, and needs no such advice.
        unsafe { libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE) };
        let start = memory.expose_provenance() as u64;
        let listing = Self::of(&watch, start, start + bytes as u64);
        // SAFETY: the memory from above, which nobody refers to.
        unsafe { libc::munmap(memory, bytes) };
        listing
    }

    /// Tried with this memory, which nobody has used.
    fn of(watch: &Watch, start: u64, end: u64) -> io::Result<Self> {
        watch.register(start, end)?;
        let pagemap = File::open("/proc/self/pagemap")?;
        let table = (start / TABLE_BYTES + 1) * TABLE_BYTES;
        let lists_all = || {
            let mut regions = [Region::default(); 1];
            let mut scan = Scan {
                flags: CHECK,
                mask: WRITTEN,
                returned: WRITTEN,
                ..Scan::of(table, table + TABLE_BYTES, &mut regions)
            };
            let found = scan.call(&pagemap);
            found == Some(1) && (regions[0].start, regions[0].end) == (table, table + TABLE_BYTES)
        };
        let without_table = lists_all();
        // SAFETY: an address in that memory.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(table as usize).write_volatile(1) };
        Ok(match (lists_all(), without_table) {
            (true, true) => Self::Whole,
            (true, false) => Self::OfTables,
            (false, _) => Self::Wrong,
        })
    }
}

/// Whether this kernel lists all of a shared mapping that is not protected.
pub(crate) fn tells_of_shared() -> bool {
    static LISTING: OnceLock<Listing> = OnceLock::new();
    let tried = || Listing::tried(libc::MAP_SHARED).unwrap_or(Listing::Wrong);
    *LISTING.get_or_init(tried) == Listing::Whole
}

/// The rows of a shared mapping that are not protected, in order, from one address to another; `None`: it is not watched, or not all of it.
pub(crate) fn unprotected(pagemap: &File, start: u64, end: u64) -> Option<Vec<(u64, u64)>> {
    let mut regions = vec![Region::default(); REGIONS];
    let mut rows = Vec::new();
    let mut at = start;
    while at < end {
        let mut scan = Scan {
            flags: CHECK,
            mask: WRITTEN,
            returned: WRITTEN,
            ..Scan::of(at, end, &mut regions)
        };
        let found = scan.call(pagemap)?;
        let found = &regions[..found.min(REGIONS)];
        rows.extend(found.iter().map(|region| (region.start, region.end)));
        let next = behind(&scan, found);
        if next <= at {
            return None;
        }
        at = next;
    }
    Some(rows)
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether short mappings among these, which are in order, have a page of the process's own. Others may have, too.
pub(crate) fn may_have_pages(pagemap: &File, mappings: &[&Mapping]) -> Vec<bool> {
    let is_short = |mapping: &Mapping| mapping.end - mapping.start < TABLE_BYTES;
    // One call for all that lie together.
    let are_near = |one: &&Mapping, next: &&Mapping| {
        is_short(one) && is_short(next) && next.start.saturating_sub(one.end) < TABLE_BYTES
    };
    let mut regions = vec![Region::default(); REGIONS];
    let mut all = Vec::with_capacity(mappings.len());
    for near in mappings.chunk_by(are_near) {
        let [first, .., last] = near else {
            all.push(true);
            continue;
        };
        let mut scan = Scan {
            inverted: FILE,
            mask: FILE,
            any_of: PRESENT | SWAPPED,
            returned: PRESENT,
            ..Scan::of(first.start, last.end, &mut regions)
        };
        let found = scan.call(pagemap).map(|found| (&regions[..found], scan.walk_end));
        all.extend(near.iter().map(|mapping| {
            found.is_none_or(|(found, end)| {
                let is_there =
                    |region: &Region| region.start < mapping.end && mapping.start < region.end;
                mapping.end > end || found.iter().any(is_there)
            })
        }));
    }
    all
}

/// The rows of a private mapping's own pages in a process that nobody watches; `None`: this kernel does not tell.
pub(crate) fn present(pagemap: &File, mapping: &Mapping) -> Option<Vec<Row>> {
    let of_file = if mapping.is_of_file() { FILE } else { 0 };
    let mut regions = vec![Region::default(); REGIONS];
    let mut rows = Vec::new();
    let mut at = mapping.start;
    while at < mapping.end {
        let mut scan = Scan {
            inverted: of_file,
            mask: of_file,
            any_of: PRESENT | SWAPPED,
            returned: ZERO,
            ..Scan::of(at, mapping.end, &mut regions)
        };
        let found = scan.call(pagemap)?;
        for Region { start, end, categories } in regions.iter().take(found).copied() {
            if categories & ZERO == 0 || mapping.is_of_file() {
                rows.push(Row { start, end, written: true });
            }
        }
        let next = behind(&scan, &regions[..found.min(REGIONS)]);
        if next <= at {
            return None;
        }
        at = next;
    }
    Some(rows)
}

/// The rows of `there`, written unless they are in an unwritten one of `noted`. Both are in order.
pub(crate) fn unless_noted(there: &[Row], noted: &[Row]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut unwritten = noted.iter().filter(|row| !row.written).peekable();
    for Row { start, end, .. } in there.iter().copied() {
        let mut at = start;
        while at < end {
            while unwritten.next_if(|row| row.end <= at).is_some() {}
            let (to, written) = match unwritten.peek() {
                Some(row) if row.start <= at => (row.end.min(end), false),
                Some(row) => (row.start.min(end), true),
                None => (end, true),
            };
            rows.push(Row { start: at, end: to, written });
            at = to;
        }
    }
    rows
}

#[cfg(test)]
#[path = "written_tests.rs"]
mod tests;
