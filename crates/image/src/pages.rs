//! The pages of a process, from `/proc/PID/pagemap` and `/proc/PID/mem`.

use crate::before::Lookup;
pub use crate::form::{PAGE_BYTES, is_zero};
use crate::maps::{Mapping, VDSO};
use crate::processes::Process;
use crate::written::{self, Row, Watch};
use crate::{MemoryError, Result};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
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

/// A whole page that was read.
fn here(page: &[u8]) -> &[u8; PAGE_BYTES as usize] {
    page.try_into().expect("memory is read in pages")
}

/// Pages in a row of an image that is being taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a, 'b> {
    /// One that was read.
    Here(&'a [u8; PAGE_BYTES as usize]),
    /// Those of the image before, by their hashes.
    Known(&'b [u128]),
}

/// So often it is looked where a page is, if the kernel takes it away meanwhile.
const TRIES: u32 = 3;
/// Pages that are read together.
pub(crate) const BATCH: usize = 64;

/// Pages in order, of which some are to be read.
struct Batch<'b> {
    parts: Vec<(u64, Option<&'b [u128]>)>,
    to_read: Vec<u64>,
    piece: Vec<u8>,
}

impl<'b> Batch<'b> {
    fn new() -> Self {
        Self { parts: Vec::new(), to_read: Vec::with_capacity(BATCH), piece: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.to_read.len() == BATCH
    }

    fn read(&mut self, address: u64) {
        self.parts.push((address, None));
        self.to_read.push(address);
    }

    /// Reads them, and calls `each` for all.
    fn empty(
        &mut self,
        from: &Pages,
        mapping: &Mapping,
        each: &mut impl FnMut(u64, Part<'_, 'b>) -> Result<()>,
    ) -> Result<()> {
        // Most mappings have few pages to read, or none.
        let len = self.to_read.len() * PAGE_BYTES as usize;
        self.piece.resize(self.piece.len().max(len), 0);
        let piece = &mut self.piece[..len];
        let mut cut = BTreeSet::new();
        if !piece.is_empty()
            && let Err(error) = from.gather(mapping, &self.to_read, piece)
        {
            cut = self.to_read.iter().copied().filter(|at| from.is_cut(mapping, *at)).collect();
            if cut.is_empty() {
                return Err(error);
            }
            let pages = piece.chunks_exact_mut(PAGE_BYTES as usize).zip(&self.to_read);
            let mut there = pages.filter(|(_, address)| !cut.contains(*address));
            there.try_for_each(|(page, address)| from.read(mapping, *address, page))?;
        }
        let mut read = piece.chunks_exact(PAGE_BYTES as usize);
        for (address, known) in self.parts.drain(..) {
            match known {
                Some(hashes) => each(address, Part::Known(hashes))?,
                None => {
                    let page = read.next().expect("as many were read as are unknown");
                    let is_own = match mapping.is_of_file() {
                        true => !cut.contains(&address) && !from.is_files(mapping, address)?,
                        false => !is_zero(page),
                    };
                    if is_own {
                        each(address, Part::Here(here(page)))?;
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
    /// Whether it is a copy of a process of the server.
    is_copy: bool,
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
        let (pagemap, memory) = (open("pagemap")?, open("mem")?);
        Ok(Self { pid, host_pid, pagemap, memory, is_copy: false })
    }

    /// Of this copy of a process.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(crate) fn of_copy(copy: &Process) -> Result<Self> {
        Ok(Self { is_copy: true, ..Self::of(copy)? })
    }

    /// What the kernel is asked by.
    pub(crate) const fn pagemap(&self) -> &File {
        &self.pagemap
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
        let of_file = mapping.is_of_file() || mapping.name == VDSO;
        let written =
            |entry| entry & (PRESENT | SWAPPED) != 0 && !(of_file && entry & OF_FILE != 0);
        self.each(mapping, (written, true), deadline, |address, page| {
            // Zeros over a file's content were written; other zero pages may never have been.
            let is_own = match of_file {
                true => !self.is_files(mapping, address)?,
                false => !is_zero(page),
            };
            if is_own { each(address, page) } else { Ok(()) }
        })
    }

    /// The rows of a private mapping's own pages, which the kernel protects from now on; false: it cannot do so behind the last of them. `before`: what an image has of the process,
    /// which stands.
    ///
    /// # Errors
    /// There is no time left.
    pub(crate) fn rows(
        &self,
        mapping: &Mapping,
        watch: &Watch,
        before: &mut Lookup<'_>,
        deadline: Instant,
    ) -> Result<(Vec<Row>, bool)> {
        let mut rows = Vec::new();
        let all = watch.rows(&self.pagemap, mapping, before, |row| {
            in_time(deadline)?;
            rows.push(row);
            Ok::<(), MemoryError>(())
        })?;
        Ok((rows, all))
    }

    /// The same of a process that goes on, which may change its mappings meanwhile.
    pub(crate) fn rows_now(
        &self,
        mapping: &Mapping,
        watch: &Watch,
        before: &mut Lookup<'_>,
    ) -> (Vec<Row>, bool) {
        let mut rows = Vec::new();
        let all = watch.rows(&self.pagemap, mapping, before, |row| {
            rows.push(row);
            Ok::<(), Infallible>(())
        });
        (rows, all == Ok(true))
    }

    /// Whether a private mapping is watched from now on; `None`: the process has no page of its own there.
    pub(crate) fn begins(&self, mapping: &Mapping, watch: &Watch) -> Option<bool> {
        watch.begins(&self.pagemap, mapping)
    }

    /// Whether the process may have pages of its own in these mappings, which are in order.
    pub(crate) fn may_be_in(&self, mappings: &[&Mapping]) -> Vec<bool> {
        written::may_have_pages(&self.pagemap, mappings)
    }

    /// The rows of a private mapping's own pages, in a copy of a process that these rows are of; `None`: this kernel does not tell.
    pub(crate) fn copied_rows(&self, mapping: &Mapping, noted: &[Row]) -> Option<Vec<Row>> {
        Some(written::unless_noted(&written::present(&self.pagemap, mapping)?, noted))
    }

    /// Calls `each` for the pages of these rows: of those that have not changed since the image before it gives the hashes.
    ///
    /// # Errors
    /// As [`private`](Self::private).
    pub(crate) fn of_rows<'b>(
        &self,
        mapping: &Mapping,
        rows: &[Row],
        before: &mut Lookup<'b>,
        deadline: Instant,
        mut each: impl FnMut(u64, Part<'_, 'b>) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Batch::new();
        for row in rows {
            for (at, known) in row.parts(mapping, before) {
                match known.is_empty() {
                    true => batch.read(at),
                    false => batch.parts.push((at, Some(known))),
                }
                if batch.is_full() {
                    in_time(deadline)?;
                    batch.empty(self, mapping, &mut each)?;
                }
            }
        }
        batch.empty(self, mapping, &mut each)
    }

    /// Whether a page of a file's mapping that was just read is the file's: one that was given back looks as if it were swapped out until it is read, as the kernel keeps the mark of its protection.
    fn is_files(&self, mapping: &Mapping, address: u64) -> Result<bool> {
        let mut page = [0; PAGE_BYTES as usize];
        for _ in 0..TRIES {
            let mut entry = [0; 8];
            let failed = |error| self.failed("pagemap", address, error);
            self.pagemap.read_exact_at(&mut entry, address / PAGE_BYTES * 8).map_err(failed)?;
            let entry = u64::from_ne_bytes(entry);
            if entry & PRESENT != 0 {
                return Ok(entry & OF_FILE != 0);
            }
            // The kernel has taken it away again meanwhile.
            self.read(mapping, address, &mut page)?;
        }
        Ok(false)
    }

    /// Whether the place of a page was cut off the file that is mapped there: it is in no mapping then, though the kernel keeps the mark of its protection. Not told of a copy of a process: it was
    /// made before, perhaps, and such marks are not copied.
    fn is_cut(&self, mapping: &Mapping, address: u64) -> bool {
        if self.is_copy || !mapping.is_of_file() {
            return false;
        }
        let about = fs::metadata(format!("/proc/{}/root{}", self.host_pid, mapping.name));
        about.is_ok_and(|about| {
            let place = mapping.offset.saturating_add(address - mapping.start);
            let is_it = (about.dev(), about.ino()) == mapping.file;
            is_it && place >= about.len().next_multiple_of(PAGE_BYTES)
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
        let is_there = |entry| entry & (PRESENT | SWAPPED) != 0;
        self.each(mapping, (is_there, false), deadline, each)
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
        self.each(mapping, (|_| true, false), deadline, each)
    }

    /// Calls `each` for the pages of a mapping that are `wanted` by their entry in the page map; where they `may_be_cut`, without those whose place was cut off their file.
    fn each(
        &self,
        mapping: &Mapping,
        (wanted, may_be_cut): (impl Fn(u64) -> bool, bool),
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
                let places = (address..).step_by(PAGE_BYTES as usize).take(len);
                match self.read(mapping, address, piece) {
                    Ok(()) => {
                        let mut pages = piece.chunks_exact(PAGE_BYTES as usize).zip(places);
                        pages.try_for_each(|(page, at)| each(at, page))?;
                    }
                    Err(error) if !may_be_cut => return Err(error),
                    Err(_) => {
                        for (page, at) in piece.chunks_exact_mut(PAGE_BYTES as usize).zip(places) {
                            match self.read(mapping, at, page) {
                                Ok(()) => each(at, page)?,
                                Err(_) if self.is_cut(mapping, at) => {}
                                Err(error) => return Err(error),
                            }
                        }
                    }
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

    /// Fills `piece` with these pages of a mapping, [`BATCH`] at most, wherever they are.
    pub(crate) fn gather(
        &self,
        mapping: &Mapping,
        addresses: &[u64],
        piece: &mut [u8],
    ) -> Result<()> {
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
