//! The server's copies of the host's files that it changes.
//!
//! The kernel names a copy by the original as long as that has one name, and by itself from the moment when the host removes or links it. The server must
//! not see that: for it, it is one file. So a copy gets a mark, a last access time that no other file has: the server never sees the
//! kernel's access times, and the layer of copies is mounted so that reading leaves them alone.

use super::place::kind_of;
use super::{is_off, looked};
use crate::files::inode::{FIRST_MARK_S, Id, LAST_MARK_S, MADE, OWNED, Seen, Time};
use crate::files::stat;
use crate::kernel::Kernel;
use crate::sys;
use libc::{c_char, c_int};
use skein_model::fact::What;

/// A file is the server's own from now on: it has changed the file or its metadata. With a null path it is the one of descriptor `at`.
///
/// # Safety
/// `path` is null or a string.
pub unsafe fn own(k: &Kernel, seen: Seen, at: c_int, path: *const c_char, flags: c_int) {
    let known = k.files().inodes.known(seen);
    if known.is(MADE) {
        return;
    }
    known.set(OWNED);
    if !k.files().layered.get() {
        return;
    }
    let Some(mark) = k.files().inodes.mark_of(seen).or_else(new_mark) else { return };
    let accessed = skein_libos::abi::timespec { tv_sec: mark.s, tv_nsec: mark.ns };
    let times = [accessed, skein_libos::abi::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT }];
    let args =
        sys::args([at as usize, path as usize, (&raw const times) as usize, flags as u32 as usize]);
    // SAFETY: the caller's path, two live times. A file of another user's cannot be marked, and is not.
    let marked = unsafe { sys::call(libc::SYS_utimensat, args) }.is_ok();
    // SAFETY: the caller's path.
    let now =
        unsafe { if path.is_null() { stat::real_of(at) } else { stat::real_at(at, path, flags) } };
    if let Ok(st) = now {
        let shown = Time { s: st.st_atime, ns: st.st_atime_nsec };
        k.files().inodes.copied(seen, &st, (marked && shown == mark).then_some(mark));
    }
}

/// Unpredictable: another user's file must not bear it.
fn new_mark() -> Option<Time> {
    let mut words = [0u64; 2];
    let args = [words.as_mut_ptr() as usize, size_of_val(&words), libc::GRND_INSECURE as usize];
    // SAFETY: a live local.
    let got = unsafe { sys::call(libc::SYS_getrandom, sys::args(args)) };
    (got == Ok(size_of_val(&words))).then(|| Time {
        s: FIRST_MARK_S + (words[0] >> 2) as i64 % (LAST_MARK_S - FIRST_MARK_S),
        ns: (words[1] % 1_000_000_000) as i64,
    })
}

/// Before the server opens a file to write to it: the kernel's name of it, if that will change with the copy.
///
/// # Safety
/// `path` is a string or something that the kernel refuses.
pub unsafe fn original(k: &Kernel, at: c_int, path: *const c_char, flags: c_int) -> Option<Id> {
    if flags & libc::O_ACCMODE == libc::O_RDONLY || flags & libc::O_PATH != 0 || is_off(k) {
        return None;
    }
    let flags = if flags & libc::O_NOFOLLOW == 0 { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: the caller's contract.
    let st = unsafe { stat::real_at(at, path, flags) }.ok()?;
    (st.st_mode & libc::S_IFMT == libc::S_IFREG && st.st_nlink > 1).then(|| Id::of(&st))
}

/// The server has opened the copy of the [`original`].
pub fn opened_copy(k: &Kernel, fd: c_int, original: Id) {
    if let Ok(st) = stat::real_of(fd) {
        k.files().inodes.renamed(original, &st);
    }
}

/// Before the server gives a file another name, or one more.
///
/// # Safety
/// As for [`looked`].
pub unsafe fn before_move(k: &Kernel, at: c_int, path: *const c_char) {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    if is_off(k) || path.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe {
        let answer = stat::real_at(at, path, flags);
        let seen = looked(k, at, path, flags, &answer, What::There);
        if let (Some(seen), Ok(st)) = (seen, answer)
            && kind_of(&st) != libc::DT_DIR
        {
            own(k, seen, at, path, flags);
        }
    }
}
