//! Hooks: files by path, and what is said about files. All of them are answered by the runtime, none passes through.

use super::hook;
use crate::files::{change, list, lock, open, stat};
use crate::hooks::IntoC;
use crate::io::table;
use crate::sys;
use libc::{
    AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_long, c_uint, c_void, dev_t, mode_t, off_t,
    off64_t, size_t, ssize_t,
};
use skein_libos::abi::timespec;
use skein_libos::errno::{Result, fail};

/// Defines hooks whose handler answers a result.
macro_rules! handled {
    ($( fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty { $handler:expr } )*) => { hook! {$(
        fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the arguments are the caller's, as for libc's own function.
            #[allow(unused_unsafe)]
            #[allow(clippy::macro_metavars_in_unsafe)]
            let result: Result<usize> = unsafe { $handler };
            result.into_c()
        }
    )*}};
}

/// One of the calls that are done by number.
unsafe fn numbered<const N: usize>(nr: c_long, args: [usize; N]) -> Result<usize> {
    let args = sys::args(args);
    table::no_own(nr, &args)?;
    // SAFETY: the caller's arguments.
    crate::files::syscall(nr, args).unwrap_or(fail(libc::ENOSYS))
}

type Stat = *mut libc::stat;
type Path = *const c_char;

handled! {
    fn open(path: Path, flags: c_int, mode: c_uint) -> c_int { open::open(AT_FDCWD, path, flags, mode) }
    fn open64(path: Path, flags: c_int, mode: c_uint) -> c_int { open::open(AT_FDCWD, path, flags, mode) }
    fn __open_2(path: Path, flags: c_int) -> c_int { open::open(AT_FDCWD, path, flags, 0) }
    fn __open64_2(path: Path, flags: c_int) -> c_int { open::open(AT_FDCWD, path, flags, 0) }
    fn openat(at: c_int, path: Path, flags: c_int, mode: c_uint) -> c_int { open::open(at, path, flags, mode) }
    fn openat64(at: c_int, path: Path, flags: c_int, mode: c_uint) -> c_int { open::open(at, path, flags, mode) }
    fn __openat_2(at: c_int, path: Path, flags: c_int) -> c_int { open::open(at, path, flags, 0) }
    fn __openat64_2(at: c_int, path: Path, flags: c_int) -> c_int { open::open(at, path, flags, 0) }
    fn creat(path: Path, mode: mode_t) -> c_int { open::creat(path, mode) }
    fn creat64(path: Path, mode: mode_t) -> c_int { open::creat(path, mode) }

    fn stat(path: Path, out: Stat) -> c_int { stat::fstatat(AT_FDCWD, path, out, 0) }
    fn stat64(path: Path, out: Stat) -> c_int { stat::fstatat(AT_FDCWD, path, out, 0) }
    fn lstat(path: Path, out: Stat) -> c_int { stat::fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) }
    fn lstat64(path: Path, out: Stat) -> c_int { stat::fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) }
    fn fstat(fd: c_int, out: Stat) -> c_int { stat::fstat(fd, out) }
    fn fstat64(fd: c_int, out: Stat) -> c_int { stat::fstat(fd, out) }
    fn fstatat(at: c_int, path: Path, out: Stat, flags: c_int) -> c_int { stat::fstatat(at, path, out, flags) }
    fn fstatat64(at: c_int, path: Path, out: Stat, flags: c_int) -> c_int { stat::fstatat(at, path, out, flags) }
    fn __xstat(version: c_int, path: Path, out: Stat) -> c_int { stat::fstatat(AT_FDCWD, path, out, 0) }
    fn __xstat64(version: c_int, path: Path, out: Stat) -> c_int { stat::fstatat(AT_FDCWD, path, out, 0) }
    fn __lxstat(version: c_int, path: Path, out: Stat) -> c_int {
        stat::fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }
    fn __lxstat64(version: c_int, path: Path, out: Stat) -> c_int {
        stat::fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW)
    }
    fn __fxstat(version: c_int, fd: c_int, out: Stat) -> c_int { stat::fstat(fd, out) }
    fn __fxstat64(version: c_int, fd: c_int, out: Stat) -> c_int { stat::fstat(fd, out) }
    fn __fxstatat(version: c_int, at: c_int, path: Path, out: Stat, flags: c_int) -> c_int {
        stat::fstatat(at, path, out, flags)
    }
    fn __fxstatat64(version: c_int, at: c_int, path: Path, out: Stat, flags: c_int) -> c_int {
        stat::fstatat(at, path, out, flags)
    }
    fn statx(at: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int {
        stat::statx(at, path, flags, mask, out)
    }
    fn statfs(path: Path, out: *mut libc::statfs) -> c_int { stat::statfs(libc::SYS_statfs, path as usize, out) }
    fn statfs64(path: Path, out: *mut libc::statfs) -> c_int { stat::statfs(libc::SYS_statfs, path as usize, out) }
    fn fstatfs(fd: c_int, out: *mut libc::statfs) -> c_int { stat::statfs(libc::SYS_fstatfs, fd as usize, out) }
    fn fstatfs64(fd: c_int, out: *mut libc::statfs) -> c_int { stat::statfs(libc::SYS_fstatfs, fd as usize, out) }
    fn readlink(path: Path, out: *mut c_char, len: size_t) -> ssize_t { stat::readlinkat(AT_FDCWD, path, out.cast(), len) }
    fn readlinkat(at: c_int, path: Path, out: *mut c_char, len: size_t) -> ssize_t { stat::readlinkat(at, path, out.cast(), len) }
    fn getdents64(fd: c_int, out: *mut c_void, len: size_t) -> ssize_t { list::getdents64(fd, out.cast(), len) }
    fn flock(fd: c_int, operation: c_int) -> c_int { lock::flock(fd, operation) }

    fn mkdir(path: Path, mode: mode_t) -> c_int { numbered(libc::SYS_mkdir, [path as usize, mode as usize]) }
    fn mkdirat(at: c_int, path: Path, mode: mode_t) -> c_int {
        numbered(libc::SYS_mkdirat, [at as usize, path as usize, mode as usize])
    }
    fn rmdir(path: Path) -> c_int { numbered(libc::SYS_rmdir, [path as usize]) }
    fn unlink(path: Path) -> c_int { numbered(libc::SYS_unlink, [path as usize]) }
    fn unlinkat(at: c_int, path: Path, flags: c_int) -> c_int {
        numbered(libc::SYS_unlinkat, [at as usize, path as usize, flags as usize])
    }
    fn symlink(to: Path, path: Path) -> c_int { numbered(libc::SYS_symlink, [to as usize, path as usize]) }
    fn symlinkat(to: Path, at: c_int, path: Path) -> c_int {
        numbered(libc::SYS_symlinkat, [to as usize, at as usize, path as usize])
    }
    fn link(from: Path, to: Path) -> c_int { numbered(libc::SYS_link, [from as usize, to as usize]) }
    fn linkat(from_at: c_int, from: Path, at: c_int, to: Path, flags: c_int) -> c_int {
        numbered(libc::SYS_linkat, [from_at as usize, from as usize, at as usize, to as usize, flags as usize])
    }
    fn rename(from: Path, to: Path) -> c_int { numbered(libc::SYS_rename, [from as usize, to as usize]) }
    fn renameat(from_at: c_int, from: Path, at: c_int, to: Path) -> c_int {
        numbered(libc::SYS_renameat, [from_at as usize, from as usize, at as usize, to as usize])
    }
    fn renameat2(from_at: c_int, from: Path, at: c_int, to: Path, flags: c_uint) -> c_int {
        numbered(libc::SYS_renameat2, [from_at as usize, from as usize, at as usize, to as usize, flags as usize])
    }
    fn mknod(path: Path, mode: mode_t, dev: dev_t) -> c_int { change::mknodat(AT_FDCWD, path, mode, dev) }
    fn mknodat(at: c_int, path: Path, mode: mode_t, dev: dev_t) -> c_int { change::mknodat(at, path, mode, dev) }
    fn mkfifo(path: Path, mode: mode_t) -> c_int { change::mknodat(AT_FDCWD, path, mode | libc::S_IFIFO, 0) }
    fn mkfifoat(at: c_int, path: Path, mode: mode_t) -> c_int { change::mknodat(at, path, mode | libc::S_IFIFO, 0) }
    fn truncate(path: Path, len: off_t) -> c_int { change::truncate(path, len) }
    fn truncate64(path: Path, len: off64_t) -> c_int { change::truncate(path, len) }
    fn utimensat(at: c_int, path: Path, times: *const timespec, flags: c_int) -> c_int {
        if path.is_null() { fail(libc::EINVAL) } else { change::utimensat(at, path, times.cast(), flags) }
    }
    fn futimens(fd: c_int, times: *const timespec) -> c_int { change::utimensat(fd, core::ptr::null(), times.cast(), 0) }
    fn ftruncate(fd: c_int, len: off_t) -> c_int { on_file(libc::SYS_ftruncate, fd, [len as usize, 0, 0]) }
    fn ftruncate64(fd: c_int, len: off64_t) -> c_int { on_file(libc::SYS_ftruncate, fd, [len as usize, 0, 0]) }
    fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
        on_file(libc::SYS_fallocate, fd, [mode as usize, at as usize, len as usize])
    }
    fn fallocate64(fd: c_int, mode: c_int, at: off64_t, len: off64_t) -> c_int {
        on_file(libc::SYS_fallocate, fd, [mode as usize, at as usize, len as usize])
    }
    fn copy_file_range(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t {
        numbered(libc::SYS_copy_file_range, [from as usize, from_at as usize, to as usize, to_at as usize, len, flags as usize])
    }
}

/// A call on a descriptor that only files have.
unsafe fn on_file(nr: c_long, fd: c_int, [a, b, c]: [usize; 3]) -> Result<usize> {
    if let Some(answer) = crate::io::descriptor::sync(fd) {
        return answer;
    }
    // SAFETY: the caller's arguments.
    unsafe { numbered(nr, [fd as usize, a, b, c]) }
}
