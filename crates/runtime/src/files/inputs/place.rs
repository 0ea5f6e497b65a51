//! The place of a file, and its identity.

use super::facts;
use super::names::Names;
use crate::files::stat::{self, Class};
use crate::files::{bytes, root};
use crate::kernel::Kernel;
use crate::kernel::process;
use crate::sys;
use libc::{c_char, c_int};
use skein_libos::errno::Result;
use xxhash_rust::xxh3::xxh3_64;

/// A path as the server wrote it.
#[derive(Clone, Copy)]
pub struct Place {
    /// The directory's descriptor.
    pub at: c_int,
    /// The text.
    pub path: *const c_char,
    /// Whether a symbolic link at its end is followed.
    pub follows: bool,
}

impl Place {
    /// The text.
    pub fn text(&self) -> &[u8] {
        // SAFETY: the kernel has read the path.
        unsafe { bytes(self.path) }
    }

    /// The whole path.
    pub fn whole(&self) -> &'static [u8] {
        // SAFETY: as above.
        unsafe { facts::absolute(crate::kernel::kernel(), self.at, self.path) }
    }

    /// Its key in the table of paths; `None` where the directory is not a file's.
    pub fn key(&self, k: &Kernel) -> Option<u64> {
        let text = self.text();
        let directory = if text.starts_with(b"/") {
            0
        } else {
            let st = if self.at == libc::AT_FDCWD {
                // SAFETY: a constant path.
                unsafe { stat::real_at(self.at, c".".as_ptr(), 0) }
            } else {
                stat::real_of(self.at)
            };
            let st = st.ok().filter(|st| stat::class(k, st) == Class::Own)?;
            k.files().inodes.see_stat(&st).number
        };
        let root = process::this().root.number();
        Some(Names::key(root, directory, text, self.follows))
    }

    /// Opens it to be read again.
    pub fn open(&self) -> Result<i32> {
        let mut flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        if !self.follows {
            flags |= libc::O_NOFOLLOW;
        }
        let args = sys::args([self.at as usize, self.path as usize, flags as usize]);
        // SAFETY: the kernel has read the path.
        unsafe { sys::call(libc::SYS_openat, args) }.map(|fd| fd as i32)
    }
}

/// Paths below which nothing is the host's, as this process names them.
pub fn is_kernels(path: &[u8]) -> bool {
    root::is_first()
        && [b"/proc".as_slice(), b"/sys", b"/dev"]
            .iter()
            .any(|top| path.strip_prefix(*top).is_some_and(|rest| matches!(rest, [] | [b'/', ..])))
}

/// The identity of a file by the kernel's view; directories change with their entries.
pub fn stamp_of(st: &libc::stat) -> u64 {
    if st.st_mode & libc::S_IFMT == libc::S_IFDIR {
        return 1;
    }
    let words = [
        st.st_size as u64,
        st.st_mtime as u64,
        st.st_mtime_nsec as u64,
        st.st_ctime as u64,
        st.st_ctime_nsec as u64,
    ];
    xxh3_64(words.map(u64::to_le_bytes).as_flattened()) | 1
}

/// Its kind, in the form of a listing.
pub fn kind_of(st: &libc::stat) -> u8 {
    ((st.st_mode & libc::S_IFMT) >> 12) as u8
}
