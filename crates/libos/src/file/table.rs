//! The descriptor table of a process.
//!
//! Pages of entries, taken when they are first needed: most processes have few descriptors.
//!
//! Numbers are the kernel's: each virtual descriptor has one reserved there ([`Host::reserve`]), so the lowest free one is the same for virtual descriptors and for
//! the kernel's own. A number that is not in the table is the kernel's or not open.
//!
//! Invariant: an entry that points to a file has its number reserved, and the file's `refs` counts it.

use super::File;
use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::state::file::{Entry, PAGE_ENTRIES};
pub use crate::state::file::{MAX_FDS, Table};
use skein_arena::bytes::Chunks;
use skein_arena::pool::Handle;

/// The table of the turn's holder.
#[inline]
pub fn of<H: Host>(k: &H) -> &Table {
    &k.this_process().table
}

/// The file behind a virtual descriptor of the turn's holder.
#[inline]
pub fn file<H: Host>(k: &H, fd: i32) -> Option<Handle<File>> {
    of(k).get(&k.chunks, fd)
}

/// Closes a virtual descriptor of the turn's holder.
///
/// # Errors
/// `EBADF` when there is none.
pub fn close<H: Host>(k: &H, fd: i32) -> Result<()> {
    let Some(file) = of(k).forget(&k.chunks, fd) else { return fail(abi::EBADF) };
    k.release(fd);
    super::drop_ref(k, file);
    Ok(())
}

impl Table {
    #[inline]
    fn entry<'a>(&self, chunks: &'a Chunks, fd: i32) -> Option<&'a Entry> {
        if !(0..MAX_FDS).contains(&fd) {
            return None;
        }
        let page = self.pages[fd as usize / PAGE_ENTRIES].get()?;
        let first = core::ptr::from_ref(chunks.get(page)).cast::<Entry>();
        // SAFETY: the page was zeroed when it was taken, belongs to this table, and holds `PAGE_ENTRIES` entries of cells; the arena is never unmapped.
        Some(unsafe { &*first.add(fd as usize % PAGE_ENTRIES) })
    }

    /// The entry of a number below [`MAX_FDS`], with a page for it.
    fn make<'a>(&self, chunks: &'a Chunks, fd: i32) -> Option<&'a Entry> {
        let link = &self.pages[fd as usize / PAGE_ENTRIES];
        if link.get().is_none() {
            link.set(Some(chunks.alloc()?));
        }
        self.entry(chunks, fd)
    }

    /// The file behind a virtual descriptor.
    #[inline]
    pub fn get(&self, chunks: &Chunks, fd: i32) -> Option<Handle<File>> {
        self.entry(chunks, fd)?.file.get()
    }

    /// One more than the highest number that was ever virtual.
    pub fn end(&self) -> i32 {
        self.end.get()
    }

    fn fill<H: Host>(&self, k: &H, entry: &Entry, fd: i32, file: Handle<File>, cloexec: bool) {
        entry.file.set(Some(file));
        entry.cloexec.set(u32::from(cloexec));
        self.end.set(self.end.get().max(fd + 1));
        super::add_ref(k, file);
    }

    /// Gives `file` the lowest free number from `least` on; it has one more reference.
    ///
    /// # Errors
    /// `EMFILE` and `ENOMEM`; `EINVAL` when no number can be that high.
    pub fn install<H: Host>(
        &self,
        k: &H,
        file: Handle<File>,
        least: i32,
        cloexec: bool,
    ) -> Result<i32> {
        let fd = k.reserve(least)?;
        if fd >= MAX_FDS {
            k.release(fd);
            return fail(abi::EMFILE);
        }
        let Some(entry) = self.make(&k.chunks, fd) else {
            k.release(fd);
            return fail(abi::ENOMEM);
        };
        self.fill(k, entry, fd, file, cloexec);
        Ok(fd)
    }

    /// Gives `file` the number `fd`, in place of its old file.
    ///
    /// # Errors
    /// `EBADF` when no descriptor of the server's has this number, `ENOMEM`.
    pub fn replace<H: Host>(
        &self,
        k: &H,
        file: Handle<File>,
        fd: i32,
        cloexec: bool,
    ) -> Result<()> {
        if !(0..MAX_FDS).contains(&fd) || k.is_own(fd) {
            return fail(abi::EBADF);
        }
        let Some(entry) = self.make(&k.chunks, fd) else { return fail(abi::ENOMEM) };
        k.reserve_at(fd)?;
        let before = self.forget(&k.chunks, fd);
        self.fill(k, entry, fd, file, cloexec);
        if let Some(before) = before {
            super::drop_ref(k, before);
        }
        Ok(())
    }

    /// Empties an entry but keeps its number reserved: the caller drops the file's reference.
    pub(super) fn forget(&self, chunks: &Chunks, fd: i32) -> Option<Handle<File>> {
        self.entry(chunks, fd)?.file.take()
    }

    /// The virtual descriptors from `first` on and below `end`.
    pub(super) fn within(
        &self,
        chunks: &Chunks,
        first: i32,
        end: i32,
    ) -> impl Iterator<Item = i32> {
        (first..end.min(self.end())).filter(move |fd| self.get(chunks, *fd).is_some())
    }

    /// Gives a forked child's empty table the same descriptors; false when there is no memory.
    pub fn copy_to<H: Host>(&self, k: &H, child: &Self) -> bool {
        for fd in self.within(&k.chunks, 0, MAX_FDS) {
            let (Some(file), Some(copy)) = (self.get(&k.chunks, fd), child.make(&k.chunks, fd))
            else {
                return false;
            };
            child.fill(k, copy, fd, file, self.cloexec(&k.chunks, fd));
        }
        true
    }

    /// Before an exec, with `keep`: the numbers of descriptors that the new program has stay reserved. Without: none of them would.
    pub fn keep_over_exec<H: Host>(&self, k: &H, keep: bool) {
        for fd in self.within(&k.chunks, 0, MAX_FDS) {
            k.keep_over_exec(fd, keep && !self.cloexec(&k.chunks, fd));
        }
    }

    /// In a new program: closes descriptors that are not inherited.
    pub fn close_on_exec<H: Host>(&self, k: &H) {
        for fd in 0..self.end() {
            if self.cloexec(&k.chunks, fd)
                && let Some(file) = self.forget(&k.chunks, fd)
            {
                super::drop_ref(k, file);
            }
        }
        self.keep_over_exec(k, false);
    }

    /// Drops all descriptors of a process that ends, and whose numbers go with it.
    pub fn close_all<H: Host>(&self, k: &H) {
        for fd in 0..self.end() {
            if let Some(file) = self.forget(&k.chunks, fd) {
                super::drop_ref(k, file);
            }
        }
        for page in &self.pages {
            if let Some(page) = page.take() {
                k.chunks.free(page);
            }
        }
        self.end.set(0);
    }

    /// The close-on-exec flag of a virtual descriptor.
    pub fn cloexec(&self, chunks: &Chunks, fd: i32) -> bool {
        self.entry(chunks, fd).is_some_and(|e| e.cloexec.get() != 0)
    }

    /// Sets the close-on-exec flag of a virtual descriptor.
    pub fn set_cloexec(&self, chunks: &Chunks, fd: i32, on: bool) {
        if let Some(entry) = self.entry(chunks, fd) {
            entry.cloexec.set(u32::from(on));
        }
    }
}
