//! Which pages of its private memory a process has written since the image before.
//!
//! The kernel notes it: a userfaultfd of the process, which its runtime has made, protects pages against writes in the asynchronous mode, in which a write takes the
//! protection off and goes on; one call of `PAGEMAP_SCAN` tells which pages are protected still, and protects the others (Linux 6.7). It sees the kernel's own writes,
//! too. A page that is protected was so since the image before, in this mapping: memory that is new, moved, or another process's is not, and counts as written.
//!
//! Shared memory is not read this way: who wrote it may be gone.

use crate::before::Lookup;
use crate::form::PAGE_BYTES;
use crate::maps::Mapping;
use crate::processes::Process;
use skein_arena::layout::WRITTEN_FD;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `UFFDIO_API` and `UFFDIO_REGISTER`: `_IOWR(0xaa, 0x3f, struct uffdio_api)`, `_IOWR(0xaa, 0, struct uffdio_register)`.
const API_CALL: libc::Ioctl = 0xc018_aa3f;
const REGISTER_CALL: libc::Ioctl = 0xc020_aa00;
/// `UFFDIO_WRITEPROTECT`: `_IOWR(0xaa, 6, struct uffdio_writeprotect)`.
const PROTECT_CALL: libc::Ioctl = 0xc018_aa06;
/// `UFFD_API`, `UFFD_FEATURE_WP_ASYNC`, `UFFDIO_REGISTER_MODE_WP`.
const API: u64 = 0xaa;
const WP_ASYNC: u64 = 1 << 15;
const MODE_WP: u64 = 2;
/// `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const SCAN_CALL: libc::Ioctl = 0xc060_6610;
/// `PM_SCAN_WP_MATCHING`, `PM_SCAN_CHECK_WPASYNC`.
const PROTECT_AND_CHECK: u64 = 1 | 2;
/// `PAGE_IS_` bits.
const WRITTEN: u64 = 1 << 1;
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
/// Regions per call.
const REGIONS: usize = 1024;

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
    /// Its pages in order: an address, and the hashes of those from there on that the image before has; none: that page is to be read.
    pub(crate) fn parts<'b>(
        self,
        before: &mut Lookup<'b>,
    ) -> impl Iterator<Item = (u64, &'b [u128])> {
        let mut at = self.start;
        std::iter::from_fn(move || {
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
        let watch = Self(owned(fd)?);
        let mut api = [API, WP_ASYNC, 0];
        // SAFETY: the structure as the kernel reads and writes it. An error says that it was done before, or is not known; then registering fails.
        unsafe { libc::ioctl(watch.0.as_raw_fd(), API_CALL, api.as_mut_ptr()) };
        Some(watch)
    }

    /// Begins to watch a mapping. Pages that moved here, or whose mapping the kernel has ceased to watch, may bear an old mark of their protection, which would say for ever
    /// that they are unwritten: it is taken off.
    fn register(&self, start: u64, end: u64) -> io::Result<()> {
        let mut range = [start, end - start, MODE_WP, 0];
        // SAFETY: the structure as the kernel reads and writes it.
        let registered =
            unsafe { libc::ioctl(self.0.as_raw_fd(), REGISTER_CALL, range.as_mut_ptr()) };
        let mut unmark = [start, end - start, 0];
        // SAFETY: the structure as the kernel reads and writes it.
        let done = registered == 0
            && unsafe { libc::ioctl(self.0.as_raw_fd(), PROTECT_CALL, unmark.as_mut_ptr()) } == 0;
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether a mapping has any page of the process's own: servers reserve terabytes that they never use, which need not be watched.
    fn has_pages(pagemap: &File, mapping: &Mapping, of_file: u64) -> bool {
        let mut region = Region::default();
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: mapping.start,
            end: mapping.end,
            regions: (&raw mut region).expose_provenance() as u64,
            regions_len: 1,
            max_pages: 1,
            inverted: of_file,
            mask: of_file,
            any_of: PRESENT | SWAPPED,
            returned: PRESENT,
            ..Scan::default()
        };
        // SAFETY: the structure as the kernel reads and writes it, with room for one region.
        unsafe { libc::ioctl(pagemap.as_raw_fd(), SCAN_CALL, &raw mut scan) != 0 }
    }

    /// Calls `each` for the pages of a private mapping that are the process's own, in order, and protects them. False: this kernel cannot, and `each` may have been
    /// called for some.
    ///
    /// # Errors
    /// An error of `each`.
    pub(crate) fn rows<E>(
        &self,
        pagemap: &File,
        mapping: &Mapping,
        mut each: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<bool, E> {
        // To look whether a page is the file's costs a look at the page.
        let of_file = if mapping.is_of_file() { FILE } else { 0 };
        if !Self::has_pages(pagemap, mapping, of_file) {
            return Ok(true);
        }
        let mut regions = vec![Region::default(); REGIONS];
        let mut is_new = false;
        let mut at = mapping.start;
        while at < mapping.end {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: PROTECT_AND_CHECK,
                start: at,
                end: mapping.end,
                regions: regions.as_mut_ptr().expose_provenance() as u64,
                regions_len: REGIONS as u64,
                // Pages of the file itself are not the process's own.
                inverted: of_file,
                mask: of_file,
                any_of: PRESENT | SWAPPED,
                returned: WRITTEN | SWAPPED | ZERO,
                ..Scan::default()
            };
            // SAFETY: the structure as the kernel reads and writes it, with room for as many regions as it says.
            let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), SCAN_CALL, &raw mut scan) };
            let Ok(found) = usize::try_from(found) else {
                let is_unknown = io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
                if is_new || !is_unknown || self.register(mapping.start, mapping.end).is_err() {
                    return Ok(false);
                }
                is_new = true;
                continue;
            };
            for Region { start, end, categories } in regions.iter().take(found).copied() {
                let is_zero = categories & ZERO != 0 && !mapping.is_of_file();
                if !is_zero {
                    // What is swapped out may have been dropped: that looks alike.
                    let written = is_new || categories & (WRITTEN | SWAPPED) != 0;
                    each(Row { start, end, written })?;
                }
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

/// The rows of a private mapping's own pages in a process that nobody watches; `None`: this kernel does not tell.
pub(crate) fn present(pagemap: &File, mapping: &Mapping) -> Option<Vec<Row>> {
    let of_file = if mapping.is_of_file() { FILE } else { 0 };
    let mut regions = vec![Region::default(); REGIONS];
    let mut rows = Vec::new();
    let mut at = mapping.start;
    while at < mapping.end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            start: at,
            end: mapping.end,
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            regions_len: REGIONS as u64,
            inverted: of_file,
            mask: of_file,
            any_of: PRESENT | SWAPPED,
            returned: ZERO,
            ..Scan::default()
        };
        // SAFETY: the structure as the kernel reads and writes it, with room for as many regions as it says.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), SCAN_CALL, &raw mut scan) };
        let found = usize::try_from(found).ok()?;
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
mod tests {
    use super::*;

    #[test]
    fn a_copys_pages_are_those_before_where_its_origin_was_not_written() {
        let row = |start, end, written| Row { start, end, written };
        let there = [row(0, 10, true), row(20, 30, true), row(40, 50, true)];
        let noted = [row(2, 4, false), row(4, 6, true), row(8, 22, false), row(29, 45, false)];
        let found = unless_noted(&there, &noted);
        let expected = [
            row(0, 2, true),
            row(2, 4, false),
            row(4, 8, true),
            row(8, 10, false),
            row(20, 22, false),
            row(22, 29, true),
            row(29, 30, false),
            row(40, 45, false),
            row(45, 50, true),
        ];
        assert_eq!(found, expected);
        assert_eq!(unless_noted(&there, &[]), there);
    }
}
