//! The descriptor table of a process.
//!
//! Pages of entries, taken when they are first needed: most processes have few descriptors.
//!
//! A virtual descriptor's number is reserved in the kernel by a placeholder: a duplicate of one `O_PATH` descriptor of /dev/null, the lowest
//! free number as on Linux. Used directly it answers `EBADF`. It is always close-on-exec; the server's own flag is kept here.
//!
//! Invariant: an entry that points to a file has a placeholder at its number, and the file's `refs` counts it.

use crate::fatal::refuse;
use crate::io::socket;
use crate::kernel::{Kernel, kernel};
use crate::sys;
use core::cell::Cell;
use skein_arena::bytes::Chunk;
use skein_arena::layout::{ARENA_FD, FORMER_TRACE_FD, TRACE_FD, WAKE_FD};
use skein_arena::pool::{Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::file::{self, File};
use skein_libos::host::Kernels;

/// Virtual descriptors are smaller than this: 65,536.
pub const MAX_FDS: i32 = 64 << 10;
/// The placeholder that all placeholders are duplicates of, behind the runtime's other descriptors.
const SPARE_FD: i32 = WAKE_FD + 1;
/// Ends of the socket pair through which files of the kernel pass from one process to another.
pub const PARK_IN_FD: i32 = SPARE_FD + 1;
/// See [`PARK_IN_FD`].
pub const PARK_OUT_FD: i32 = SPARE_FD + 2;
const _: () = assert!(PARK_OUT_FD + 1 == TRACE_FD && TRACE_FD + 1 == FORMER_TRACE_FD);

/// A descriptor.
#[repr(C)]
struct Entry {
    file: Link<File>,
    cloexec: Cell<u32>,
}

const PAGE_ENTRIES: usize = size_of::<Chunk>() / size_of::<Entry>();

/// All descriptors of a process. All-zero bytes are an empty table.
#[repr(C)]
pub struct Table {
    pages: [Link<Chunk>; MAX_FDS as usize / PAGE_ENTRIES],
    /// One more than the highest number that was ever virtual.
    end: Cell<i32>,
    _pad: Cell<u32>,
}

/// Whether a descriptor belongs to the runtime: the server may not touch it.
pub const fn is_own(fd: i32) -> bool {
    matches!(fd, ARENA_FD..=FORMER_TRACE_FD)
}

/// The runtime's own descriptors, first and last.
pub const fn own_range() -> (u32, u32) {
    (ARENA_FD as u32, FORMER_TRACE_FD as u32)
}

/// Refuses one of the runtime's own descriptors, as one that is not open.
pub fn not_own(fd: i32) -> Result<()> {
    if is_own(fd) { fail(libc::EBADF) } else { Ok(()) }
}

/// Refuses a system call that names one of the runtime's own descriptors.
pub fn no_own(nr: i64, args: &[usize; 6]) -> Result<()> {
    let places = skein_interpose::descriptors(nr);
    if places.iter().any(|place| is_own(args[*place] as i32)) {
        // An anonymous mapping names none.
        if nr != libc::SYS_mmap || args[3] as i32 & libc::MAP_ANONYMOUS == 0 {
            return fail(libc::EBADF);
        }
    }
    Ok(())
}

impl Table {
    fn entry(&self, fd: i32) -> Option<&Entry> {
        if !(0..MAX_FDS).contains(&fd) {
            return None;
        }
        let page = self.pages[fd as usize / PAGE_ENTRIES].get()?;
        Some(Self::of_page(page, fd))
    }

    fn of_page<'a>(page: Handle<Chunk>, fd: i32) -> &'a Entry {
        let first = core::ptr::from_ref(kernel().chunks.get(page)).cast::<Entry>();
        // SAFETY: the page was zeroed when it was taken, belongs to this table, and holds `PAGE_ENTRIES` entries; the arena is never unmapped.
        unsafe { &*first.add(fd as usize % PAGE_ENTRIES) }
    }

    /// The entry of a number, with a page for it.
    fn make(&self, k: &Kernel, fd: i32) -> Option<&Entry> {
        let link = &self.pages[fd as usize / PAGE_ENTRIES];
        if link.get().is_none() {
            link.set(Some(k.chunks.alloc()?));
        }
        self.entry(fd)
    }

    /// The file behind a virtual descriptor.
    #[inline]
    pub fn get(&self, fd: i32) -> Option<Handle<File>> {
        self.entry(fd)?.file.get()
    }

    /// One more than the highest number that was ever virtual.
    pub fn end(&self) -> i32 {
        self.end.get()
    }

    fn fill(&self, k: &Kernel, entry: &Entry, fd: i32, file: Handle<File>, cloexec: bool) {
        entry.file.set(Some(file));
        entry.cloexec.set(u32::from(cloexec));
        self.end.set(self.end.get().max(fd + 1));
        file::add_ref(k, file);
    }

    /// Gives `file` the lowest free number from `least` on.
    pub fn install(
        &self,
        k: &Kernel,
        file: Handle<File>,
        least: i32,
        cloexec: bool,
    ) -> Result<i32> {
        let fd = duplicate(SPARE_FD, least)?;
        if fd >= MAX_FDS {
            let _ = sys::close(fd);
            return fail(libc::EMFILE);
        }
        let Some(entry) = self.make(k, fd) else {
            let _ = sys::close(fd);
            return fail(libc::ENOMEM);
        };
        self.fill(k, entry, fd, file, cloexec);
        Ok(fd)
    }

    /// Gives `file` the number `fd`, whatever was there.
    pub fn replace(&self, k: &Kernel, file: Handle<File>, fd: i32, cloexec: bool) -> Result<()> {
        if !(0..MAX_FDS).contains(&fd) || is_own(fd) {
            return fail(libc::EBADF);
        }
        let Some(entry) = self.make(k, fd) else { return fail(libc::ENOMEM) };
        // SAFETY: no memory is involved.
        unsafe {
            sys::call(
                libc::SYS_dup3,
                sys::args([SPARE_FD as usize, fd as usize, libc::O_CLOEXEC as usize]),
            )?;
        }
        let before = self.forget(fd);
        self.fill(k, entry, fd, file, cloexec);
        if let Some(before) = before {
            file::drop_ref(k, before);
        }
        Ok(())
    }

    /// Empties an entry without closing the placeholder: the caller drops the file's reference.
    pub fn forget(&self, fd: i32) -> Option<Handle<File>> {
        self.entry(fd)?.file.take()
    }

    /// Gives a forked child's empty table the same descriptors; false when there is no memory.
    pub fn copy_to(&self, k: &Kernel, child: &Self) -> bool {
        for fd in 0..self.end() {
            let Some((entry, file)) = self.entry(fd).and_then(|e| Some((e, e.file.get()?))) else {
                continue;
            };
            let Some(copy) = child.make(k, fd) else { return false };
            child.fill(k, copy, fd, file, entry.cloexec.get() != 0);
        }
        true
    }

    /// Before an exec, with `keep`: the placeholders of descriptors that the new program has stay. Without: as ever.
    pub fn keep_over_exec(&self, keep: bool) {
        for fd in 0..self.end() {
            if let Some(entry) = self.entry(fd)
                && entry.file.get().is_some()
            {
                let closes = !keep || entry.cloexec.get() != 0;
                let flags = if closes { libc::FD_CLOEXEC } else { 0 };
                set_kernel_flags(fd, flags);
            }
        }
        set_kernel_flags(SPARE_FD, if keep { 0 } else { libc::FD_CLOEXEC });
    }

    /// In a new program: closes what does not stay open.
    pub fn close_on_exec(&self, k: &Kernel) {
        for fd in 0..self.end() {
            if self.cloexec(fd)
                && let Some(file) = self.forget(fd)
            {
                file::drop_ref(k, file);
            }
        }
        self.keep_over_exec(false);
    }

    /// Drops all descriptors of a process that ends: the kernel closes their placeholders.
    pub fn close_all(&self, k: &Kernel) {
        for fd in 0..self.end() {
            if let Some(file) = self.forget(fd) {
                file::drop_ref(k, file);
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
    pub fn cloexec(&self, fd: i32) -> bool {
        self.entry(fd).is_some_and(|e| e.cloexec.get() != 0)
    }

    /// Sets the close-on-exec flag of a virtual descriptor.
    pub fn set_cloexec(&self, fd: i32, on: bool) {
        if let Some(entry) = self.entry(fd) {
            entry.cloexec.set(u32::from(on));
        }
    }
}

/// Makes the placeholder that all others are duplicates of.
pub fn begin() {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: a constant path.
    let opened = unsafe {
        sys::call(libc::SYS_open, sys::args([c"/dev/null".as_ptr() as usize, flags as usize]))
    };
    let Ok(first) = opened else { refuse!("/dev/null cannot be opened") };
    let spare = duplicate(first as i32, SPARE_FD);
    if spare != Ok(SPARE_FD) {
        refuse!(
            "descriptor {SPARE_FD} is not free: raise the limit of open files above {SPARE_FD}"
        );
    }
    let _ = sys::close(first as i32);
    socket::unix::park::open();
}

fn duplicate(fd: i32, least: i32) -> Result<i32> {
    let args = sys::args([fd as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_fcntl, args) }.map(|fd| fd as i32)
}

/// Whether there is a number for one more descriptor.
pub fn check_free() -> Result<()> {
    let fd = duplicate(SPARE_FD, 0)?;
    let _ = sys::close(fd);
    Ok(())
}

fn set_kernel_flags(fd: i32, flags: i32) {
    // SAFETY: no memory is involved.
    unsafe {
        sys::raw(libc::SYS_fcntl, sys::args([fd as usize, libc::F_SETFD as usize, flags as usize]));
    }
}

/// What a descriptor that is not virtual is of; `None` when it is not open.
pub fn of_kernel(fd: i32) -> Option<Kernels> {
    if !is_open(fd) {
        return None;
    }
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes to a local.
    let done =
        unsafe { sys::call(libc::SYS_fstat, sys::args([fd as usize, &raw mut st as usize])) };
    let regular = matches!(st.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
    Some(if done.is_ok() && regular { Kernels::Regular } else { Kernels::Other })
}

/// Whether a descriptor that is not virtual is open.
pub fn is_open(fd: i32) -> bool {
    // SAFETY: no memory is involved.
    !is_own(fd)
        && unsafe { sys::call(libc::SYS_fcntl, sys::args([fd as usize, libc::F_GETFD as usize])) }
            .is_ok()
}
