//! Calls that change files and directories: done by the kernel, then recorded with virtual time.

use crate::fatal::{self, line};
use crate::files::inode::{Id, MAPPED, Seen, Time};
use crate::files::local::{self, Noted};
use crate::files::stat::{self, Class};
use crate::files::stuck::{self, Change};
use crate::files::writes::Place;
use crate::files::{bytes, console, inputs, kernel_files, kernels, now};
use crate::io::table;
use crate::kernel::Kernel;
use crate::sys;
use libc::{c_char, c_int};
use skein_libos::errno::{Errno, Result};
use skein_libos::file::fifo;
use skein_model::frame::NOT_WRITABLE;

/// A file's descriptor has been written to.
#[inline]
fn written(k: &Kernel, fd: i32, place: Place) {
    let slot = local::slot(fd);
    let seen = match slot.map_or(Noted::Unknown, local::Slot::noted) {
        Noted::No => return,
        Noted::Of(seen) if k.files().inodes.holds(seen) => seen,
        _ => match look_up(k, fd, slot) {
            Some(seen) => seen,
            None => return,
        },
    };
    k.files().inodes.modified(seen, now(k));
    k.files().writes.note(seen.number, fd, place);
}

#[cold]
fn look_up(k: &Kernel, fd: i32, slot: Option<&local::Slot>) -> Option<Seen> {
    let st = stat::real_of(fd).ok()?;
    let seen = (stat::class(k, &st) == Class::Own).then(|| k.files().inodes.see(&st));
    if let Some(slot) = slot {
        slot.note(seen.map_or(Noted::No, Noted::Of));
    }
    seen
}

/// The result of a call that writes to `fd`, at the descriptor's position or at `at`, with the change recorded.
#[inline]
pub fn after_write(k: &Kernel, fd: i32, at: Option<i64>, result: Result<usize>) -> Result<usize> {
    if let Ok(n) = result
        && n > 0
    {
        written(k, fd, at.map_or(Place::Behind(n), |at| kernels::place(fd, at, n)));
    }
    result
}

/// The same of `pwritev2`, which may be told to append or not to.
pub fn after_pwritev2(
    k: &Kernel,
    fd: i32,
    at: i64,
    flags: c_int,
    result: Result<usize>,
) -> Result<usize> {
    if at != -1 && flags & (libc::RWF_APPEND | libc::RWF_NOAPPEND) != 0 {
        return after_change(k, fd, 0, result);
    }
    after_write(k, fd, (at != -1).then_some(at), result)
}

/// The result of a call that changes `fd` from a position on when it succeeds.
pub fn after_change(k: &Kernel, fd: i32, from: i64, result: Result<usize>) -> Result<usize> {
    if result.is_ok() {
        written(k, fd, Place::From(from));
    }
    result
}

/// What is at a position that the kernel has moved by what it has written.
///
/// # Safety
/// `at` is null or the server's own number.
pub unsafe fn moved(at: *const i64, result: &Result<usize>) -> Option<i64> {
    let moved = result.as_ref().ok()?;
    // SAFETY: the caller's contract; the kernel has used it.
    let end = unsafe { at.as_ref() }?;
    Some(end - *moved as i64)
}

/// A file was mapped and can be written to there from now on.
pub fn mapped(k: &Kernel, fd: i32) {
    let writes = kernels::flags(fd).is_some_and(|flags| flags & libc::O_ACCMODE == libc::O_RDWR);
    // What has no name is in no directory that an image has.
    if writes
        && let Ok(st) = stat::real_of(fd)
        && st.st_nlink > 0
    {
        may_be_mapped(k, &st);
    }
}

fn may_be_mapped(k: &Kernel, st: &libc::stat) {
    if stat::class(k, st) == Class::Own {
        k.files().inodes.known(k.files().inodes.see(st)).set(MAPPED);
    }
}

/// A file at a path is new.
///
/// # Safety
/// `path` is a string.
pub unsafe fn created(k: &Kernel, at: c_int, path: *const c_char) {
    // SAFETY: the caller's contract.
    unsafe {
        if let Ok(st) = stat::real_at(at, path, libc::AT_SYMLINK_NOFOLLOW) {
            k.files().inodes.fresh(&st, now(k));
        }
        parent_changed(k, at, path);
    }
}

/// The directory of the entry `path` has changed.
///
/// # Safety
/// `path` is a string.
pub unsafe fn parent_changed(k: &Kernel, at: c_int, path: *const c_char) {
    // SAFETY: the caller's contract.
    if let Some(st) = unsafe { parent(at, path) }
        && stat::class(k, &st) == Class::Own
    {
        // SAFETY: as above.
        inputs::touched(k, &st, unsafe { bytes(path) });
        k.files().inodes.modified(k.files().inodes.see(&st), now(k));
    }
}

/// The directory of the entry `path`.
///
/// # Safety
/// `path` is a string.
pub unsafe fn parent(at: c_int, path: *const c_char) -> Option<libc::stat> {
    // SAFETY: the caller's contract; a string that ends in zero.
    unsafe { with_parent(path, |parent| stat::real_at(at, parent, 0).ok()) }.flatten()
}

/// Calls `then` with the path of the directory of the entry `path`; none if it is too long.
///
/// # Safety
/// `path` is a string.
pub unsafe fn with_parent<T>(
    path: *const c_char,
    then: impl FnOnce(*const c_char) -> T,
) -> Option<T> {
    // SAFETY: the caller's contract.
    let path = unsafe { bytes(path) };
    let name_end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let slash = path[..name_end].iter().rposition(|byte| *byte == b'/');
    let mut parent = [0u8; libc::PATH_MAX as usize];
    match slash {
        None => parent[0] = b'.',
        // "/name" is in "/".
        Some(at) if at + 1 < parent.len() => {
            parent[..at.max(1)].copy_from_slice(&path[..at.max(1)]);
        }
        Some(_) => return None,
    }
    Some(then(parent.as_ptr().cast()))
}

/// Reports why the private layer refuses a change: an ordinary user's cannot hold directories of others.
pub fn explain(path: &[u8], error: Errno) {
    if error.0 == libc::EOVERFLOW {
        let mut text = line!(
            "{NOT_WRITABLE}a directory above it belongs to another user (EOVERFLOW); give the server one whose parents are yours, or run as root: "
        );
        text.append(path);
        fatal::notice(text.bytes());
    }
}

/// Makes a call that removes an entry, or changes its file: `places` are the entries as (directory, path).
///
/// # Safety
/// As for the call.
pub unsafe fn entries(
    k: &Kernel,
    call: sys::Call,
    places: &[(c_int, *const c_char)],
) -> Result<usize> {
    for (at, path) in places {
        // SAFETY: the caller's contract.
        unsafe { inputs::glance(k, *at, *path, libc::AT_SYMLINK_NOFOLLOW) };
    }
    for (at, path) in places {
        // SAFETY: the kernel has read the path, or refuses it.
        unsafe { stuck::check(Change::Entry, *at, *path) }?;
    }
    // SAFETY: the caller's contract.
    let result = unsafe { call.make() };
    if result.is_ok() {
        for (at, path) in places {
            // SAFETY: the kernel has read the path.
            unsafe { parent_changed(k, *at, *path) };
        }
    }
    result
}

/// Makes a call that gives a file another name.
///
/// # Safety
/// As for the call.
pub unsafe fn link(k: &Kernel, call: sys::Call, at: c_int, path: *const c_char) -> Result<usize> {
    // SAFETY: the caller's contract.
    let result = unsafe { entries(k, call, &[(at, path)]) };
    if result.is_ok()
        // SAFETY: the kernel has read the path.
        && let Ok(st) = unsafe { stat::real_at(at, path, libc::AT_SYMLINK_NOFOLLOW) }
        && st.st_nlink == 1
    {
        // It had no name: whether it was mapped before is not known.
        may_be_mapped(k, &st);
    }
    result
}

/// Makes a call that creates an entry.
///
/// # Safety
/// As for the call.
pub unsafe fn creation(
    k: &Kernel,
    call: sys::Call,
    at: c_int,
    path: *const c_char,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe { inputs::glance(k, at, path, libc::AT_SYMLINK_NOFOLLOW) };
    // SAFETY: as above.
    let allowed = unsafe { stuck::check(Change::Creation, at, path) };
    // SAFETY: as above.
    let result = allowed.and_then(|()| unsafe { call.make() });
    match result {
        // SAFETY: the kernel has read the path.
        Ok(_) => unsafe { created(k, at, path) },
        // SAFETY: as above.
        Err(error) => explain(unsafe { bytes(path) }, error),
    }
    result
}

/// `mknod` and `mkfifo`: devices cannot be made.
///
/// # Safety
/// `path` is a string.
pub unsafe fn mknodat(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    mode: u32,
    dev: u64,
) -> Result<usize> {
    let args = sys::args([at as usize, path as usize, mode as usize, dev as usize]);
    // SAFETY: the caller's contract.
    let result = unsafe { creation(k, sys::Call { nr: libc::SYS_mknodat, args }, at, path) };
    if result.is_ok() && mode & libc::S_IFMT == libc::S_IFIFO {
        // SAFETY: the kernel has read the path.
        if let Ok(st) = unsafe { stat::real_at(at, path, libc::AT_SYMLINK_NOFOLLOW) } {
            fifo::made(k, Id::of(&st).name());
        }
    }
    result
}

/// `truncate`.
///
/// # Safety
/// `path` is a string.
pub unsafe fn truncate(k: &Kernel, path: *const c_char, len: i64) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        if kernel_files::hidden(bytes(path)) {
            return Err(Errno(libc::ENOENT));
        }
        if console::is_at(k, libc::AT_FDCWD, path) {
            return Err(Errno(libc::EINVAL));
        }
        inputs::before_truncation(k, path);
        stuck::check(Change::Contents, libc::AT_FDCWD, path)?;
        sys::call(libc::SYS_truncate, sys::args([path as usize, len as usize]))?;
        if let Ok(st) = stat::real_at(libc::AT_FDCWD, path, 0) {
            let seen = k.files().inodes.see(&st);
            k.files().inodes.modified(seen, now(k));
            k.files().writes.note(seen.number, -1, Place::From(len));
        }
    }
    Ok(0)
}

/// `utimensat` and, with a null path, `futimens`. `times` is null for "now".
///
/// # Safety
/// `path` is null or a string; `times` is null or two times.
pub unsafe fn utimensat(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    times: *const [skein_libos::abi::timespec; 2],
    flags: c_int,
) -> Result<usize> {
    table::not_own(at)?;
    let current = now(k);
    // SAFETY: the caller's contract.
    let wanted = unsafe { times.as_ref() };
    let pick = |which: usize| match wanted.map(|times| times[which]) {
        Some(time) if time.tv_nsec == libc::UTIME_OMIT => None,
        Some(time) if time.tv_nsec != libc::UTIME_NOW => {
            Some(Time { s: time.tv_sec, ns: time.tv_nsec })
        }
        _ => Some(current),
    };
    let (accessed, modified) = (pick(0), pick(1));
    let args = sys::args([at as usize, path as usize, times as usize, flags as usize]);
    // SAFETY: the server's own call.
    unsafe {
        let seen = inputs::before_change(k, at, path, flags);
        if !path.is_null() {
            stuck::check(Change::Attributes, at, path)?;
        }
        sys::call(libc::SYS_utimensat, args)?;
        inputs::after_change(k, seen, at, path, flags);
    }
    let st = if path.is_null() {
        stat::real_of(at)
    } else {
        // SAFETY: the kernel has read the path.
        unsafe { stat::real_at(at, path, flags) }
    };
    let Ok(st) = st else { return Ok(0) };
    if stat::class(k, &st) == Class::Own {
        let seen = k.files().inodes.see(&st);
        if let Some(time) = modified {
            k.files().inodes.modified(seen, time);
        }
        if let Some(time) = accessed {
            k.files().inodes.accessed(seen, time);
        }
    }
    Ok(0)
}

/// Makes a call that changes the permissions or the owner of the file at a path.
///
/// # Safety
/// As for the call.
pub unsafe fn permissions(
    k: &Kernel,
    call: sys::Call,
    at: c_int,
    path: *const c_char,
    flags: c_int,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        let seen = inputs::before_change(k, at, path, flags);
        if !path.is_null() {
            stuck::check(Change::Attributes, at, path)?;
        }
        let result = call.make();
        if result.is_ok() {
            inputs::after_change(k, seen, at, path, flags);
        }
        result
    }
}

/// Microseconds as the older calls take them.
fn from_timeval(time: libc::timeval) -> Result<skein_libos::abi::timespec> {
    if !(0..1_000_000).contains(&time.tv_usec) {
        return Err(Errno(libc::EINVAL));
    }
    Ok(skein_libos::abi::timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 })
}

/// `utimes` and `futimesat`.
///
/// # Safety
/// `path` is a string; `times` is null or two times.
pub unsafe fn utimes(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    times: *const [libc::timeval; 2],
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        match times.as_ref() {
            None => utimensat(k, at, path, core::ptr::null(), 0),
            Some([a, m]) => utimensat(k, at, path, &[from_timeval(*a)?, from_timeval(*m)?], 0),
        }
    }
}

/// `utime`.
///
/// # Safety
/// `path` is a string; `times` is null or two times.
pub unsafe fn utime(k: &Kernel, path: *const c_char, times: *const libc::utimbuf) -> Result<usize> {
    let at = libc::AT_FDCWD;
    // SAFETY: the caller's contract.
    unsafe {
        match times.as_ref() {
            None => utimensat(k, at, path, core::ptr::null(), 0),
            Some(both) => {
                let whole = |s| skein_libos::abi::timespec { tv_sec: s, tv_nsec: 0 };
                utimensat(k, at, path, &[whole(both.actime), whole(both.modtime)], 0)
            }
        }
    }
}
