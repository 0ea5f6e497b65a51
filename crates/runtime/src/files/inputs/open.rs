//! Contents of files: agreed on when a file is opened, and checked while it is read.

use super::place::{Place, kind_of, stamp_of};
use super::{OWN, add, copies, facts, found, glance, is_off, look_again, looked, short};
use crate::files::inode::{Id, MADE, OWNED, Seen, THERE};
use crate::files::local;
use crate::files::stat;
use crate::kernel::Kernel;
use crate::sys;
use libc::{c_char, c_int};
use skein_libos::errno::Result;
use skein_model::fact::{Fact, MAX_TEXT_BYTES, What};

/// A file was opened, not made.
///
/// # Safety
/// `path` is a string.
pub unsafe fn opened(
    k: &Kernel,
    fd: i32,
    st: &libc::stat,
    at: c_int,
    path: *const c_char,
    flags: c_int,
) {
    if is_off(k) || Id::of(st) == k.files().arena.get() {
        return;
    }
    facts::note_name(k, at, path, st);
    let place = Place { at, path, follows: flags & libc::O_NOFOLLOW == 0 };
    let nofollow = if place.follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let link = kind_of(st) == libc::DT_LNK;
    let what = if link { What::About } else { What::There };
    let regular = st.st_mode & libc::S_IFMT == libc::S_IFREG;
    if !regular || flags & (libc::O_PATH | libc::O_TRUNC) != 0 {
        // SAFETY: the caller's contract.
        unsafe { looked(k, at, path, nofollow, &Ok(*st), what) };
    }
    if !regular || flags & libc::O_PATH != 0 {
        return;
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // Opened to be written to, it is a copy with a time of its own.
    let original = Some(fd).filter(|_| !writes);
    let Some(seen) = found(k, place, st, original) else { return };
    let known = k.files().inodes.known(seen);
    if flags & libc::O_TRUNC != 0 {
        known.contents.set(OWN);
    } else if known.contents.get() == 0 {
        take_contents(k, fd, seen, place);
    }
    if writes {
        if !known.is(OWNED) {
            // SAFETY: a null path.
            unsafe { copies::own(k, seen, fd, core::ptr::null(), 0) };
        }
    } else if !known.is(OWNED)
        && let Some(slot) = local::slot(fd)
    {
        slot.watched.set(true);
    }
}

/// Agrees on a file's content.
pub fn take_contents(k: &Kernel, fd: i32, seen: Seen, place: Place) {
    let read = facts::contents(fd).or_else(|_| {
        // Opened for writing only.
        let other = place.open()?;
        let read = facts::contents(other);
        let _ = sys::close(other);
        read
    });
    let known = k.files().inodes.known(seen);
    let path = place.whole();
    let Ok((size, hash)) = read else {
        // The server cannot read it either.
        known.contents.set(OWN);
        return;
    };
    known.contents.set(short(&hash));
    known.set(THERE);
    let name = stat::real_name(fd, facts::more_scratch()).map_or(b"".as_slice(), |name| name);
    let more = if name == path || name.len() >= MAX_TEXT_BYTES { b"" } else { name };
    add(k, &Fact { kind: libc::DT_REG, size, hash, more, ..Fact::new(What::Contents, path) });
}

/// Before the server truncates a file: the remaining content is known.
///
/// # Safety
/// As for [`looked`].
pub unsafe fn before_truncation(k: &Kernel, path: *const c_char) {
    let at = libc::AT_FDCWD;
    // SAFETY: the caller's contract.
    unsafe { glance(k, at, path, 0) };
    // SAFETY: the kernel has read the path.
    if let Ok(fd) = (Place { at, path, follows: true }).open()
        && !is_off(k)
    {
        if let Ok(st) = stat::real_of(fd) {
            // SAFETY: as above.
            unsafe { opened(k, fd, &st, at, path, libc::O_WRONLY) };
        }
        let _ = sys::close(fd);
    }
}

/// Whether a descriptor belongs to a file of the host that must not change.
#[inline]
fn watches(fd: i32) -> bool {
    local::slot(fd).is_some_and(|slot| slot.watched.get())
}

/// The result of a call that reads from `fd`: the server gets the agreed content.
#[inline]
pub fn after_read(k: &Kernel, fd: i32, result: Result<usize>) -> Result<usize> {
    if watches(fd) {
        watch(k, fd);
    }
    result
}

fn watch(k: &Kernel, fd: i32) {
    let Ok(st) = stat::real_of(fd) else { return };
    let seen = k.files().inodes.see_stat(&st);
    let known = k.files().inodes.known(seen);
    if known.is(MADE) || known.is(OWNED) || known.contents.get() <= OWN {
        return;
    }
    if known.stamp.get() != stamp_of(&st) {
        look_again(k, &st, seen, Some(fd), None);
    }
}
