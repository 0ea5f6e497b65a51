//! The pages of a process, from `/proc/PID/pagemap` and `/proc/PID/mem`.

use crate::before::Lookup;
use crate::copied::Page;
pub use crate::form::PAGE_BYTES;
use crate::maps::Mapping;
use crate::processes::Process;
use crate::written::{Row, Watch};
use crate::{MemoryError, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// The entries of `/proc/PID/pagemap` per read: for 16 MiB of addresses.
const ENTRIES: u64 = 4096;
/// The pages of memory per read: what stays in the processor's cache until it is looked at.
const PIECE: u64 = 64;
/// In an entry: the page is there, it is swapped out, it is a file's (or shared).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Whether there is time left.
///
/// # Errors
/// There is none.
pub fn in_time(deadline: Instant) -> Result<()> {
    if Instant::now() < deadline { Ok(()) } else { Err(MemoryError::TooLong) }
}

/// Whether a page holds zeros only.
#[must_use]
pub fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

/// A whole page that was read.
fn here(page: &[u8]) -> Page<'_> {
    Page::Here(page.try_into().expect("memory is read in pages"))
}

/// Pages that are read together.
const BATCH: usize = 64;
/// Pages that are handed on together, read or known.
const MOST: usize = 4096;

/// Pages in order, of which some are to be read.
struct Batch {
    pages: Vec<(u64, Option<u128>)>,
    to_read: Vec<u64>,
    piece: Vec<u8>,
}

impl Batch {
    fn new() -> Self {
        let piece = vec![0; BATCH * PAGE_BYTES as usize];
        Self { pages: Vec::new(), to_read: Vec::with_capacity(BATCH), piece }
    }

    fn add(&mut self, address: u64, known: Option<u128>) {
        self.pages.push((address, known));
        if known.is_none() {
            self.to_read.push(address);
        }
    }

    fn is_full(&self) -> bool {
        self.to_read.len() == BATCH || self.pages.len() >= MOST
    }

    /// Reads them, and calls `each` for all.
    fn empty(
        &mut self,
        from: &Pages,
        mapping: &Mapping,
        of_file: bool,
        each: &mut impl FnMut(u64, Page<'_>) -> Result<()>,
    ) -> Result<()> {
        let piece = &mut self.piece[..self.to_read.len() * PAGE_BYTES as usize];
        if !piece.is_empty() {
            from.gather(mapping, &self.to_read, piece)?;
        }
        let mut read = piece.chunks_exact(PAGE_BYTES as usize);
        for (address, known) in self.pages.drain(..) {
            match known {
                Some(hash) => each(address, Page::Known(hash))?,
                None => {
                    let page = read.next().expect("as many were read as are unknown");
                    if of_file || !is_zero(page) {
                        each(address, here(page))?;
                    }
                }
            }
        }
        self.to_read.clear();
        Ok(())
    }
}

/// Reads the pages of a process.
#[derive(Debug)]
pub struct Pages {
    pid: u32,
    host_pid: u32,
    pagemap: File,
    memory: File,
}

impl Pages {
    /// Of this process.
    ///
    /// # Errors
    /// It is gone, or may not be read.
    pub fn of(process: &Process) -> Result<Self> {
        let open = |name: &str| {
            let path = format!("/proc/{}/{name}", process.host_pid);
            File::open(&path).map_err(MemoryError::read(path))
        };
        let Process { pid, host_pid, .. } = *process;
        Ok(Self { pid, host_pid, pagemap: open("pagemap")?, memory: open("mem")? })
    }

    /// Calls `each` for the pages of a private mapping that the process has written itself.
    ///
    /// # Errors
    /// They cannot be read, or not until `deadline`; or an error of `each`.
    pub fn private(
        &self,
        mapping: &Mapping,
        deadline: Instant,
        mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if !mapping.is_used {
            return Ok(());
        }
        let of_file = mapping.is_of_file();
        let written =
            |entry| entry & (PRESENT | SWAPPED) != 0 && !(of_file && entry & OF_FILE != 0);
        self.each(mapping, written, deadline, |address, page| {
            // Zeros over a file's content were written; other zero pages may never have been.
            if of_file || !is_zero(page) { each(address, page) } else { Ok(()) }
        })
    }

    /// The same, for those that may have changed since the image before; of the others it gives the hash.
    ///
    /// # Errors
    /// As [`private`](Self::private).
    pub(crate) fn changed(
        &self,
        mapping: &Mapping,
        watch: &Watch,
        before: &mut Lookup<'_>,
        deadline: Instant,
        mut each: impl FnMut(u64, Page<'_>) -> Result<()>,
    ) -> Result<()> {
        if !mapping.is_used {
            return Ok(());
        }
        let of_file = mapping.is_of_file();
        let mut batch = Batch::new();
        let mut next = mapping.start;
        let all = watch.rows(&self.pagemap, mapping, |row: Row| {
            in_time(deadline)?;
            for address in (row.start..row.end).step_by(PAGE_BYTES as usize) {
                let known = if row.written { None } else { before.find(address) };
                batch.add(address, known);
                if batch.is_full() {
                    batch.empty(self, mapping, of_file, &mut each)?;
                }
            }
            next = row.end;
            Ok::<(), MemoryError>(())
        })?;
        batch.empty(self, mapping, of_file, &mut each)?;
        if !all {
            let rest = Mapping { start: next, ..mapping.clone() };
            self.private(&rest, deadline, |address, page| each(address, here(page)))?;
        }
        Ok(())
    }

    /// Calls `each` for the pages of a mapping that the process has in its page tables.
    ///
    /// # Errors
    /// As [`private`](Self::private).
    pub fn touched(
        &self,
        mapping: &Mapping,
        deadline: Instant,
        each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.each(mapping, |entry| entry & (PRESENT | SWAPPED) != 0, deadline, each)
    }

    /// Calls `each` for all pages of a mapping, whether the process has touched them or not.
    ///
    /// # Errors
    /// As [`private`](Self::private).
    pub fn all(
        &self,
        mapping: &Mapping,
        deadline: Instant,
        each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.each(mapping, |_| true, deadline, each)
    }

    /// Calls `each` for the pages of a mapping that are `wanted` by their entry in the page map.
    fn each(
        &self,
        mapping: &Mapping,
        wanted: impl Fn(u64) -> bool,
        deadline: Instant,
        mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut entries = vec![0; (ENTRIES * 8) as usize];
        let mut piece = vec![0; (PIECE * PAGE_BYTES) as usize];
        let mut at = mapping.start;
        while at < mapping.end {
            in_time(deadline)?;
            let n = ((mapping.end - at) / PAGE_BYTES).min(ENTRIES);
            let entries = &mut entries[..(n * 8) as usize];
            let failed = |error| self.failed("pagemap", at, error);
            self.pagemap.read_exact_at(entries, at / PAGE_BYTES * 8).map_err(failed)?;
            let (words, _) = entries.as_chunks::<8>();
            let is_wanted: Vec<bool> =
                words.iter().map(|word| wanted(u64::from_ne_bytes(*word))).collect();
            let mut from = 0;
            while let Some(first) = is_wanted[from..].iter().position(|wanted| *wanted) {
                let first = from + first;
                let row = is_wanted[first..].iter().take(PIECE as usize);
                let len = row.take_while(|wanted| **wanted).count();
                let address = at + first as u64 * PAGE_BYTES;
                let piece = &mut piece[..len * PAGE_BYTES as usize];
                self.read(mapping, address, piece)?;
                let (pages, _) = piece.as_chunks::<{ PAGE_BYTES as usize }>();
                for (n, page) in pages.iter().enumerate() {
                    each(address + n as u64 * PAGE_BYTES, page)?;
                }
                from = first + len;
            }
            at += n * PAGE_BYTES;
        }
        Ok(())
    }

    /// Fills `piece` from an address of a mapping on.
    fn read(&self, mapping: &Mapping, address: u64, piece: &mut [u8]) -> Result<()> {
        // Half as expensive as the file, but only for memory that the process itself may read.
        if mapping.permissions.starts_with('r') {
            let own = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
            let there = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(address as usize),
                iov_len: piece.len(),
            };
            let pid = self.host_pid.cast_signed();
            // SAFETY: the kernel writes into `piece` only, and no more than its length.
            let read =
                unsafe { libc::process_vm_readv(pid, &raw const own, 1, &raw const there, 1, 0) };
            if usize::try_from(read) == Ok(piece.len()) {
                return Ok(());
            }
        }
        let failed = |error| self.failed("mem", address, error);
        self.memory.read_exact_at(piece, address).map_err(failed)
    }

    /// Fills `piece` with these pages of a mapping, wherever they are.
    fn gather(&self, mapping: &Mapping, addresses: &[u64], piece: &mut [u8]) -> Result<()> {
        let own = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        let mut there = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        for (place, address) in there.iter_mut().zip(addresses) {
            place.iov_base = std::ptr::without_provenance_mut(*address as usize);
            place.iov_len = PAGE_BYTES as usize;
        }
        let (pid, count) = (self.host_pid.cast_signed(), addresses.len() as libc::c_ulong);
        // SAFETY: the kernel writes into `piece` only, and no more than its length.
        let read =
            unsafe { libc::process_vm_readv(pid, &raw const own, 1, there.as_ptr(), count, 0) };
        if usize::try_from(read) == Ok(piece.len()) {
            return Ok(());
        }
        let pages = piece.chunks_exact_mut(PAGE_BYTES as usize);
        pages.zip(addresses).try_for_each(|(page, address)| self.read(mapping, *address, page))
    }

    fn failed(&self, file: &str, at: u64, error: std::io::Error) -> MemoryError {
        MemoryError::Read { what: format!("{file} of process {} at {at:#x}", self.pid), error }
    }
}
