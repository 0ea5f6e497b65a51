//! Directories of other users, which an ordinary user's private layer cannot hold, where they are pinned.
//!
//! overlayfs refuses a change in such a directory of the host: its copy would need the owner (`EOVERFLOW`). Where the directory is pinned, the one below the layer is the
//! node's own, and the change would be made. So the runtime refuses it: a server that is executed again sees what it has seen before.

use super::change;
use super::stat;
use crate::sys;
use libc::{c_char, c_int};
use skein_arena::inodes::agreed;
use skein_libos::errno::{Errno, Result};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An entry is made.
    Creation,
    /// An entry is removed or replaced.
    Entry,
    /// A file is opened to be written to.
    Contents,
    /// Its attributes are set.
    Attributes,
}

/// Refuses a change that the host would refuse. What the kernel refuses in any case, for another reason, passes.
///
/// # Safety
/// `path` is a string or something that the kernel refuses.
#[inline]
pub unsafe fn check(what: Change, at: c_int, path: *const c_char) -> Result<()> {
    // SAFETY: the caller's contract.
    match unsafe { change::parent(at, path) } {
        Some(parent) if is_stuck(&parent) => {
            // SAFETY: as above.
            unsafe { refuse(what, at, path) }
        }
        _ => Ok(()),
    }
}

fn is_stuck(st: &libc::stat) -> bool {
    agreed::of((st.st_atime, st.st_atime_nsec)).is_some_and(|agreed| agreed.is_stuck)
}

#[cold]
unsafe fn refuse(what: Change, at: c_int, path: *const c_char) -> Result<()> {
    let may_write = |at: c_int, path: *const c_char| {
        let args = sys::args([at as usize, path as usize, libc::W_OK as usize]);
        // SAFETY: the kernel has read the path.
        unsafe { sys::call(libc::SYS_faccessat, args) }.is_ok()
    };
    // SAFETY: the caller's contract.
    let found = unsafe { stat::real_at(at, path, libc::AT_SYMLINK_NOFOLLOW) };
    let is_there = found.is_ok();
    let (mut is_file, mut is_others) = (false, false);
    if let Ok(st) = found {
        is_file = st.st_mode & libc::S_IFMT == libc::S_IFREG;
        is_others = agreed::of((st.st_atime, st.st_atime_nsec)).is_some_and(|a| a.user.is_some());
    }
    // SAFETY: as above.
    let in_directory = || unsafe { change::with_parent(path, |parent| may_write(at, parent)) };
    let would_pass = match what {
        Change::Creation => !is_there && in_directory() == Some(true),
        Change::Entry => is_there && in_directory() == Some(true),
        Change::Contents => is_file && may_write(at, path),
        Change::Attributes if is_others => return Err(Errno(libc::EPERM)),
        Change::Attributes => is_there,
    };
    if would_pass { Err(Errno(libc::EOVERFLOW)) } else { Ok(()) }
}
