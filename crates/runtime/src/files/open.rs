//! Opening: classifies the files that the server opens, and records those that it creates.
//!
//! A created file must be known as new, so `O_CREAT` without `O_EXCL` is done in two steps: without creating, then exclusively. One turn
//! holder at a time makes this as good as one step.

use crate::fatal::{self, line};
use crate::files::inode::{Id, NAMELESS};
use crate::files::local::{self, Noted};
use crate::files::stat::{self, Class};
use crate::files::stuck::{self, Change};
use crate::files::writes::Place;
use crate::files::{bytes, change, console, disk, inputs, kernel_files, now};
use crate::io::{descriptor, table};
use crate::kernel::Kernel;
use crate::sys;
use libc::{c_char, c_int};
use skein_libos::errno::{Errno, Result};
use skein_libos::file::fifo;
use skein_libos::file::random::is_device;

/// The part of `O_TMPFILE` that no other flag has.
const TMPFILE: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// `openat`, and with `AT_FDCWD` open and creat.
///
/// # Safety
/// `path` is a string or something that the kernel refuses.
pub unsafe fn open(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> Result<usize> {
    let flags = disk::through_cache(flags);
    // SAFETY: the caller's contract.
    unsafe {
        if is_device(bytes(path)) {
            return descriptor::open_random(flags);
        }
        if bytes(path).first() != Some(&b'/') {
            table::not_own(at)?;
        }
        if let Some(result) = kernel_files::open(k, bytes(path), flags) {
            return result;
        }
        if let Some(fd) = kernel_files::descriptor(bytes(path))
            && flags & libc::O_PATH == 0
            && k.file(fd).is_some()
        {
            return descriptor::reopen(fd, flags);
        }
        // A pipe is not cut short.
        let is_cut = flags & libc::O_TRUNC != 0 && console::is_at(k, at, path);
        let flags = if is_cut { flags & !libc::O_TRUNC } else { flags };
        // The kernel's FIFO must not be waited for.
        let hasty = if flags & libc::O_PATH == 0 { libc::O_NONBLOCK & !flags } else { 0 };
        let call = |flags: c_int| {
            let flags = flags | hasty;
            let args = sys::args([at as usize, path as usize, flags as usize, mode as usize]);
            sys::call(libc::SYS_openat, args)
        };
        let no_reader = |e: Errno| match stat::real_at(at, path, 0) {
            Ok(st) if e.0 == libc::ENXIO && is_fifo(&st) => open_fifo(k, at, path, st, flags),
            _ => Err(e),
        };
        let creates = flags & libc::O_CREAT != 0 && flags & (libc::O_PATH | TMPFILE) == 0;
        let original = inputs::original(k, at, path, flags);
        let changes = flags & (libc::O_ACCMODE | libc::O_TRUNC) != 0 && flags & libc::O_PATH == 0;
        let stuck = match changes || creates {
            true => stuck::check(Change::Contents, at, path).and_then(|()| {
                if creates { stuck::check(Change::Creation, at, path) } else { Ok(()) }
            }),
            false => Ok(()),
        };
        let opened = if let Err(e) = stuck {
            Err(e)
        } else if !creates {
            call(flags).map(|fd| (fd, false))
        } else if flags & libc::O_EXCL != 0 {
            inputs::glance(k, at, path, libc::AT_SYMLINK_NOFOLLOW);
            call(flags).map(|fd| (fd, true))
        } else {
            match call(flags & !libc::O_CREAT) {
                Err(e @ Errno(libc::ENOENT)) => {
                    inputs::not_opened(k, at, path, flags, e);
                    let made = match call(flags | libc::O_EXCL) {
                        // A link to nothing: its target is created.
                        Err(Errno(libc::EEXIST)) => call(flags),
                        result => result,
                    };
                    made.map(|fd| (fd, true))
                }
                result => result.map(|fd| (fd, false)),
            }
        };
        let (fd, created) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                inputs::not_opened(k, at, path, flags, e);
                change::explain(bytes(path), e);
                return no_reader(e);
            }
        };
        if let Some(original) = original {
            inputs::opened_copy(k, fd as i32, original);
        }
        finish(k, fd as i32, at, path, flags, (created, hasty))
    }
}

/// Looks at what was opened.
unsafe fn finish(
    k: &Kernel,
    fd: i32,
    at: c_int,
    path: *const c_char,
    flags: c_int,
    (created, hasty): (bool, c_int),
) -> Result<usize> {
    let Ok(mut st) = stat::real_of(fd) else { return Ok(fd as usize) };
    if Id::of(&st) == k.files().arena.get() {
        let _ = sys::close(fd);
        return Err(Errno(libc::ENOENT));
    }
    if !created && flags & TMPFILE == 0 {
        let before = k.files().inodes.renewals();
        // SAFETY: the kernel has read the path.
        unsafe { inputs::opened(k, fd, &st, at, path, flags) };
        if k.files().inodes.renewals() != before {
            st = stat::real_of(fd)?;
        }
    }
    if flags & libc::O_PATH == 0 && is_fifo(&st) && stat::class(k, &st) == Class::Own {
        let _ = sys::close(fd);
        // SAFETY: the kernel has read the path.
        return unsafe { open_fifo(k, at, path, st, flags) };
    }
    if hasty != 0 {
        // SAFETY: no memory is involved.
        unsafe {
            sys::raw(
                libc::SYS_fcntl,
                sys::args([fd as usize, libc::F_SETFL as usize, flags as usize]),
            )
        };
    }
    let slot = local::slot(fd);
    match st.st_mode & libc::S_IFMT {
        libc::S_IFDIR => {
            if flags & libc::O_CREAT != 0 && flags & TMPFILE == 0 {
                let _ = sys::close(fd);
                return Err(Errno(libc::EISDIR));
            }
            if let Some(slot) = slot {
                slot.directory.set(true);
            }
        }
        libc::S_IFCHR | libc::S_IFBLK if flags & libc::O_PATH == 0 => {
            return device(fd, st.st_rdev, flags);
        }
        libc::S_IFREG => {
            match stat::class(k, &st) {
                Class::Proc => return kernels_own(k, fd, path, flags),
                Class::Console => {
                    console::opened(fd, flags);
                    return Ok(fd as usize);
                }
                _ => {}
            }
            if created || flags & libc::O_ACCMODE != libc::O_RDONLY {
                crate::uses::note(crate::uses::Use::FilesWritten);
            }
            let changed = if created || flags & TMPFILE != 0 {
                let seen = k.files().inodes.fresh(&st, now(k));
                if flags & TMPFILE != 0 && flags & libc::O_EXCL != 0 {
                    k.files().inodes.known(seen).set(NAMELESS);
                }
                Some(seen)
            } else if flags & libc::O_TRUNC != 0 && flags & libc::O_PATH == 0 {
                let seen = k.files().inodes.see(&st);
                k.files().inodes.modified(seen, now(k));
                k.files().writes.note(seen.number, fd, Place::From(0));
                Some(seen)
            } else {
                None
            };
            if let (Some(slot), Some(seen)) = (slot, changed) {
                slot.note(Noted::Of(seen));
            }
            if created {
                // SAFETY: the kernel has read the path.
                unsafe { change::parent_changed(k, at, path) };
            }
        }
        _ => {}
    }
    Ok(fd as usize)
}

/// A file in /proc that was opened by a relative path, through a link, or as one that passes.
fn kernels_own(k: &Kernel, fd: i32, path: *const c_char, flags: c_int) -> Result<usize> {
    // SAFETY: the kernel has read the path.
    let named = unsafe { bytes(path) }.starts_with(b"/proc/");
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        crate::uses::note(crate::uses::Use::OwnSettings);
    }
    if !named && let Some(instead) = kernel_files::reopen(k, fd, flags) {
        let _ = sys::close(fd);
        return instead;
    }
    Ok(fd as usize)
}

/// Devices that are the same everywhere pass; the random ones are the log's.
fn device(fd: i32, rdev: u64, flags: c_int) -> Result<usize> {
    match (libc::major(rdev), libc::minor(rdev)) {
        // null, zero, full; the terminal, which a server has not got.
        (1, 3 | 5 | 7) | (5, 0) => Ok(fd as usize),
        // A read would wait in the kernel, which passes bytes on at any time.
        (5, 2) | (136..=143, _) => {
            let _ = sys::close(fd);
            fatal::refused(b"open of a pseudo-terminal");
            Err(Errno(libc::ENXIO))
        }
        (1, 8 | 9) => {
            let _ = sys::close(fd);
            descriptor::open_random(flags)
        }
        (major, minor) => {
            let _ = sys::close(fd);
            fatal::refused(line!("open of device {major}:{minor}").bytes());
            Err(Errno(libc::ENXIO))
        }
    }
}

fn is_fifo(st: &libc::stat) -> bool {
    st.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// A FIFO that the kernel has let the server open: its pipe is virtual.
///
/// # Safety
/// The kernel has read the path.
unsafe fn open_fifo(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    st: libc::stat,
    flags: c_int,
) -> Result<usize> {
    let seen = k.files().inodes.see(&st);
    if k.files().inodes.times(seen).0.is_none() && !fifo::is_open(k, Id::of(&st).name()) {
        // SAFETY: the caller's contract.
        let path = core::str::from_utf8(unsafe { bytes(path) }).unwrap_or("?");
        fatal::notice(
            line!("{path} is a FIFO of the host: the server's pipe is its own, without a process outside at its other end")
                .bytes(),
        );
    }
    // Once more each time that it begins to wait: the kernel's numbers change when the server is restored meanwhile.
    let find = |k: &Kernel| {
        let nofollow = if flags & libc::O_NOFOLLOW == 0 { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        // SAFETY: the caller's contract.
        let mut st = unsafe { stat::real_at(at, path, nofollow) }?;
        if !is_fifo(&st) {
            return Err(Errno(libc::ENXIO));
        }
        let name = Id::of(&st).name();
        stat::replace(k, &mut st, None);
        Ok((name, st))
    };
    descriptor::open_fifo(find, flags)
}

/// `creat`.
///
/// # Safety
/// As for [`open`].
pub unsafe fn creat(k: &Kernel, path: *const c_char, mode: u32) -> Result<usize> {
    let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    // SAFETY: the caller's contract.
    unsafe { open(k, libc::AT_FDCWD, path, flags, mode) }
}

/// The argument of `openat2`: flags, mode, and restrictions of the resolution.
pub type How = [u64; 3];

/// `openat2`: done as far as `openat` can; restrictions of the resolution are refused.
///
/// # Safety
/// As for the call.
pub unsafe fn openat2(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    how: *const How,
    size: usize,
) -> Result<usize> {
    if size < size_of::<How>() || how.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's contract.
    let [flags, mode, resolve] = unsafe { *how };
    if size > size_of::<How>() || resolve != 0 || flags > i32::MAX as u64 {
        fatal::refused(b"openat2 with a way to resolve paths");
        return Err(Errno(libc::ENOSYS));
    }
    // SAFETY: the caller's contract.
    unsafe { open(k, at, path, flags as c_int, mode as u32) }
}
