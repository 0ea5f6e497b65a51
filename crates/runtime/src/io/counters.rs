//! What the kernel counts about this process, as files in /proc: resident memory, page faults, processor time.
//!
//! The counts differ between replicas, and servers answer with them (redis' `INFO` has its resident memory). Read through `stat`, `statm`, `smaps`
//! and `smaps_rollup` they are zero: "not known" on all replicas. An opened one is a small file in memory; whatever else is in /proc is the kernel's.

use crate::fatal::{Line, line};
use crate::sys::{self, Result};
use core::ffi::CStr;
use libc::{c_char, c_int};

/// A file of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// `stat`: one line of 52 fields.
    Stat,
    /// `statm`: seven numbers of pages.
    Statm,
    /// `smaps` and `smaps_rollup`: no mapping is told.
    Smaps,
}

fn pid() -> usize {
    // SAFETY: no memory is involved.
    unsafe { sys::raw(libc::SYS_getpid, sys::args([])) as usize }
}

/// The file that a path names.
///
/// # Safety
/// `path` is null or a string.
pub unsafe fn named(path: *const c_char) -> Option<Counters> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    parse(unsafe { CStr::from_ptr(path) }.to_bytes(), pid())
}

fn parse(path: &[u8], pid: usize) -> Option<Counters> {
    let rest = path.strip_prefix(b"/proc/")?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (who, file) = (&rest[..slash], &rest[slash + 1..]);
    if who != b"self" && who != b"thread-self" && who != line!("{pid}").bytes() {
        return None;
    }
    match file {
        b"stat" => Some(Counters::Stat),
        b"statm" => Some(Counters::Statm),
        b"smaps" | b"smaps_rollup" => Some(Counters::Smaps),
        _ => None,
    }
}

impl Counters {
    fn text(self) -> Line {
        let pid = pid();
        match self {
            // pid, name, state, parent, group, session; no terminal; then counts, of which priority 20 and one thread are not zero.
            Self::Stat => line!(
                "{pid} (server) R 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0 0 0 \
                 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            ),
            Self::Statm => line!("0 0 0 0 0 0 0\n"),
            Self::Smaps => Line::new(),
        }
    }

    /// Opens it for reading.
    pub fn open(self, flags: c_int) -> Result<usize> {
        let cloexec = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
        let text = self.text();
        let bytes = text.bytes();
        // SAFETY: a constant name; then the bytes of `text`, which outlives the calls.
        unsafe {
            let name = c"proc".as_ptr() as usize;
            let fd = sys::call(libc::SYS_memfd_create, sys::args([name, cloexec as usize]))?;
            let at = bytes.as_ptr() as usize;
            sys::call(libc::SYS_pwrite64, sys::args([fd, at, bytes.len(), 0]))?;
            Ok(fd)
        }
    }

    /// Opens it as a stream.
    ///
    /// # Safety
    /// `mode` is a string.
    pub unsafe fn stream(self, mode: *const c_char) -> *mut libc::FILE {
        match self.open(libc::O_RDONLY) {
            // SAFETY: libc's function on a descriptor that nobody else has.
            Ok(fd) => unsafe { libc::fdopen(fd as c_int, mode) },
            Err(error) => {
                crate::hooks::set_errno(error);
                core::ptr::null_mut()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_process_has_such_files() {
        assert_eq!(parse(b"/proc/self/stat", 7), Some(Counters::Stat));
        assert_eq!(parse(b"/proc/7/statm", 7), Some(Counters::Statm));
        assert_eq!(parse(b"/proc/self/smaps", 7), Some(Counters::Smaps));
        for other in ["/proc/8/stat", "/proc/stat", "/proc/self/status", "/proc/", "stat", ""] {
            assert_eq!(parse(other.as_bytes(), 7), None, "{other}");
        }
    }

    #[test]
    fn as_many_fields_as_linux_has() {
        let fields = |counters: Counters| {
            let text = counters.text();
            text.bytes().split(|byte| *byte == b' ').count()
        };
        assert_eq!(fields(Counters::Stat), 52);
        assert_eq!(fields(Counters::Statm), 7);
    }
}
