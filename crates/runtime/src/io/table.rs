//! The kernel's side of the descriptor table ([`skein_libos::file::table`]).
//!
//! A virtual descriptor's number is reserved in the kernel by a placeholder: a duplicate of one `O_PATH` descriptor of /dev/null, the lowest
//! free number as on Linux. Used directly it answers `EBADF`. It is always close-on-exec but during an exec; the server's own flag is the library's.

use crate::fatal::refuse;
use crate::sys;
use skein_arena::layout::{ARENA_FD, FORMER_TRACE_FD, TRACE_FD, WAKE_FD, WRITTEN_FD};
use skein_libos::errno::{Result, fail};
use skein_libos::host::Kernels;

/// The placeholder that all placeholders are duplicates of, behind the runtime's other descriptors.
pub const SPARE_FD: i32 = WAKE_FD + 1;
pub use skein_arena::layout::{PARK_IN_FD, PARK_OUT_FD};
const _: () = assert!(SPARE_FD + 1 == PARK_IN_FD && PARK_IN_FD + 1 == PARK_OUT_FD);
const _: () = assert!(PARK_OUT_FD + 1 == TRACE_FD && TRACE_FD + 1 == FORMER_TRACE_FD);
const _: () = assert!(FORMER_TRACE_FD + 1 == WRITTEN_FD);

/// Whether a descriptor belongs to the runtime: the server may not touch it.
pub const fn is_own(fd: i32) -> bool {
    matches!(fd, ARENA_FD..=WRITTEN_FD)
}

/// The runtime's own descriptors, first and last.
pub const fn own_range() -> (u32, u32) {
    (ARENA_FD as u32, WRITTEN_FD as u32)
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

/// Makes the placeholder that all others are duplicates of.
pub fn begin() {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: a constant path.
    let opened = unsafe {
        sys::call(libc::SYS_open, sys::args([c"/dev/null".as_ptr() as usize, flags as usize]))
    };
    let Ok(first) = opened else { refuse!("/dev/null cannot be opened") };
    let spare = lowest(first as i32, SPARE_FD);
    if spare != Ok(SPARE_FD) {
        refuse!(
            "descriptor {SPARE_FD} is not free: raise the limit of open files above {SPARE_FD}"
        );
    }
    let _ = sys::close(first as i32);
}

fn lowest(fd: i32, least: i32) -> Result<i32> {
    let args = sys::args([fd as usize, libc::F_DUPFD_CLOEXEC as usize, least as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_fcntl, args) }.map(|fd| fd as i32)
}

/// Reserves the lowest free number from `least` on.
pub fn reserve(least: i32) -> Result<i32> {
    lowest(SPARE_FD, least)
}

/// Reserves this number; its old descriptor is closed.
pub fn reserve_at(fd: i32) -> Result<()> {
    let args = sys::args([SPARE_FD as usize, fd as usize, libc::O_CLOEXEC as usize]);
    // SAFETY: no memory is involved.
    unsafe { sys::call(libc::SYS_dup3, args) }.map(|_| ())
}

/// Whether there is a number for one more descriptor.
pub fn check_free() -> Result<()> {
    let fd = reserve(0)?;
    let _ = sys::close(fd);
    Ok(())
}

/// Whether the placeholder at `fd` stays when the process executes a program.
pub fn keep_over_exec(fd: i32, keep: bool) {
    let flags = if keep { 0 } else { libc::FD_CLOEXEC };
    // SAFETY: no memory is involved.
    unsafe {
        sys::raw(libc::SYS_fcntl, sys::args([fd as usize, libc::F_SETFD as usize, flags as usize]));
    }
}

/// The same for the placeholder that all others are duplicates of.
pub fn keep_spare_over_exec(keep: bool) {
    keep_over_exec(SPARE_FD, keep);
}

/// The kind of a descriptor that is not virtual; `None` when it is not open.
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
