//! The descriptor table.
//!
//! A virtual descriptor's number is reserved in the kernel by a placeholder: a duplicate of one `O_PATH` descriptor of /dev/null, the lowest
//! free number as on Linux. Used directly it answers `EBADF`. It is always close-on-exec; the server's own flag is kept here.
//!
//! Invariant: an entry that points to a file has a placeholder at its number, and the file's `refs` counts it.

use crate::fatal::refuse;
use crate::io::fail;
use crate::io::file::{self, File};
use crate::kernel::{Kernel, Room};
use crate::sys::{self, Result};
use core::cell::Cell;
use skein_arena::layout::{ARENA_FD, WAKE_FD};
use skein_arena::pool::{Handle, Link};

/// Virtual descriptors are smaller than this: 65,536.
pub const MAX_FDS: i32 = 64 << 10;
/// The placeholder that all placeholders are duplicates of, behind the runtime's other descriptors.
const SPARE_FD: i32 = WAKE_FD + 1;

/// A descriptor.
#[repr(C)]
struct Entry {
    file: Link<File>,
    cloexec: Cell<u32>,
}

/// All descriptors. All-zero bytes, then `lay_out`, then [`begin`](Self::begin).
#[repr(C)]
pub struct Table {
    entries: Cell<usize>,
    /// One more than the highest number that was ever virtual.
    end: Cell<i32>,
    _pad: Cell<u32>,
}

/// Whether a descriptor belongs to the runtime: the server may not touch it.
pub const fn is_own(fd: i32) -> bool {
    matches!(fd, ARENA_FD..=SPARE_FD)
}

/// The runtime's own descriptors, first and last.
pub const fn own_range() -> (u32, u32) {
    (ARENA_FD as u32, SPARE_FD as u32)
}

impl Table {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        self.entries.set(room.take(MAX_FDS as usize * size_of::<Entry>()) as usize);
    }

    /// Makes the placeholder.
    pub fn begin(&self) {
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
    }

    fn entry(&self, fd: i32) -> Option<&Entry> {
        // SAFETY: the array has `MAX_FDS` zeroed entries for as long as the arena lives, and `fd` is one of them.
        (0..MAX_FDS)
            .contains(&fd)
            .then(|| unsafe { &*(self.entries.get() as *const Entry).add(fd as usize) })
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

    fn fill(&self, k: &Kernel, fd: i32, file: Handle<File>, cloexec: bool) {
        let entry = self.entry(fd).expect("a checked number");
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
        self.fill(k, fd, file, cloexec);
        Ok(fd)
    }

    /// Gives `file` the number `fd`, whatever was there.
    pub fn replace(&self, k: &Kernel, file: Handle<File>, fd: i32, cloexec: bool) -> Result<()> {
        if !(0..MAX_FDS).contains(&fd) || is_own(fd) {
            return fail(libc::EBADF);
        }
        // SAFETY: no memory is involved.
        unsafe {
            sys::call(
                libc::SYS_dup3,
                sys::args([SPARE_FD as usize, fd as usize, libc::O_CLOEXEC as usize]),
            )?;
        }
        let before = self.forget(fd);
        self.fill(k, fd, file, cloexec);
        if let Some(before) = before {
            file::drop_ref(k, before);
        }
        Ok(())
    }

    /// Empties an entry without closing the placeholder: the caller drops the file's reference.
    pub fn forget(&self, fd: i32) -> Option<Handle<File>> {
        self.entry(fd)?.file.take()
    }

    /// A forked child has its own copy of the table; its parent's descriptors keep every file open whatever the child closes.
    pub fn keep_for_parent(&self, k: &Kernel) {
        for fd in 0..self.end() {
            if let Some(file) = self.get(fd) {
                file::add_ref(k, file);
            }
        }
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

fn duplicate(fd: i32, least: i32) -> Result<i32> {
    let args = sys::args([fd as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_fcntl, args) }.map(|fd| fd as i32)
}

/// Whether a descriptor that is not virtual is open.
pub fn is_open(fd: i32) -> bool {
    // SAFETY: no memory is involved.
    !is_own(fd)
        && unsafe { sys::call(libc::SYS_fcntl, sys::args([fd as usize, libc::F_GETFD as usize])) }
            .is_ok()
}
