//! A process's root directory: `chroot` changes it, a child begins with its parent's.
//!
//! Below another root a path means another file. So facts about a path ([`super::inputs`]) are stored with the root's number, and
//! facts about a file of the host name it by its path from the first root.

use super::{inputs, stat};
use crate::kernel::Kernel;
use crate::kernel::process;
use crate::kernel::process::Root;
use crate::sys;
use libc::c_char;
use skein_libos::errno::{Errno, Result};

impl Root {
    /// The directory's number; 0 for the first root.
    pub fn number(&self) -> u64 {
        self.number.get()
    }

    /// Writes its path to the start of `out`; answers its length.
    pub fn write_path(&self, k: &Kernel, out: &mut [u8]) -> usize {
        self.path.peek(&k.chunks, 0, out)
    }

    /// Becomes a copy of `other`; false when there is no memory.
    pub fn copy_from(&self, k: &Kernel, other: &Self) -> bool {
        let mut path = [0; libc::PATH_MAX as usize];
        let len = other.write_path(k, &mut path);
        self.number.set(other.number());
        self.path.push(&k.chunks, &path[..len]) == len
    }

    /// Gives back its memory.
    pub fn clear(&self, k: &Kernel) {
        self.path.clear(&k.chunks);
        self.number.set(0);
    }
}

/// Whether this process has the root that the server began with.
pub fn is_first() -> bool {
    process::this().root.number() == 0
}

/// `chroot`.
///
/// # Safety
/// `path` is a string or something that the kernel refuses.
pub unsafe fn change(k: &Kernel, path: *const c_char) -> Result<usize> {
    if path.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // Libraries are looked at by paths from the root that they were loaded below.
    inputs::libraries::look(k, 0);
    // SAFETY: the caller's contract; the kernel has read the path when it has found something.
    let (st, whole) = unsafe {
        inputs::glance(k, libc::AT_FDCWD, path, 0);
        let st = stat::real_at(libc::AT_FDCWD, path, 0)?;
        (st, inputs::whole_path(k, path))
    };
    let len = whole.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let whole = &whole[..len.min(libc::PATH_MAX as usize)];
    // SAFETY: the server's own call.
    unsafe { sys::call(libc::SYS_chroot, sys::args([path as usize]))? };
    let root = &process::this().root;
    root.clear(k);
    root.number.set(k.files().inodes.see_stat(&st).number);
    // Without memory its path is cut, which only messages show.
    root.path.push(&k.chunks, whole);
    Ok(0)
}
