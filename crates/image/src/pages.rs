//! The pages of a process, from `/proc/PID/pagemap` and `/proc/PID/mem`.

use crate::maps::Mapping;
use crate::processes::Process;
use crate::{MemoryError, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// A page.
pub const PAGE_BYTES: u64 = 4096;
/// The entries of `/proc/PID/pagemap` per read: for 16 MiB of addresses.
const ENTRIES: u64 = 4096;
/// The pages of memory per read.
const PIECE: u64 = 256;
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

/// Reads the pages of a process.
#[derive(Debug)]
pub struct Pages {
    pid: u32,
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
        Ok(Self { pid: process.pid, pagemap: open("pagemap")?, memory: open("mem")? })
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
                let failed = |error| self.failed("mem", address, error);
                self.memory.read_exact_at(piece, address).map_err(failed)?;
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

    fn failed(&self, file: &str, at: u64, error: std::io::Error) -> MemoryError {
        MemoryError::Read { what: format!("{file} of process {} at {at:#x}", self.pid), error }
    }
}
