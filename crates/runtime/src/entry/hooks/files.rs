//! Hooks: files by path, and facts about files. The runtime answers all of them; none passes through.

use super::{IntoC, hook, syscalls};
use crate::entry::calls::made;
use core::ptr::null;
use libc::{
    AT_FDCWD, S_IFIFO, c_char, c_int, c_uint, c_void, dev_t, mode_t, off_t, off64_t, size_t,
    ssize_t,
};
use skein_libos::abi::timespec;
use skein_libos::errno::{Errno, Result};

type Stat = *mut libc::stat;
type Path = *const c_char;

const NO_PATH: Path = null();

syscalls! {
    SYS_open: fn open(path: Path, flags: c_int, mode: c_uint) -> c_int;
    SYS_open: fn open64(path: Path, flags: c_int, mode: c_uint) -> c_int;
    SYS_open: fn __open_2(path: Path, flags: c_int) -> c_int = (path, flags, 0);
    SYS_open: fn __open64_2(path: Path, flags: c_int) -> c_int = (path, flags, 0);
    SYS_openat: fn openat(at: c_int, path: Path, flags: c_int, mode: c_uint) -> c_int;
    SYS_openat: fn openat64(at: c_int, path: Path, flags: c_int, mode: c_uint) -> c_int;
    SYS_openat: fn __openat_2(at: c_int, path: Path, flags: c_int) -> c_int = (at, path, flags, 0);
    SYS_openat: fn __openat64_2(at: c_int, path: Path, flags: c_int) -> c_int = (at, path, flags, 0);
    SYS_creat: fn creat(path: Path, mode: mode_t) -> c_int;
    SYS_creat: fn creat64(path: Path, mode: mode_t) -> c_int;

    SYS_stat: fn stat(path: Path, out: Stat) -> c_int;
    SYS_stat: fn stat64(path: Path, out: Stat) -> c_int;
    SYS_lstat: fn lstat(path: Path, out: Stat) -> c_int;
    SYS_lstat: fn lstat64(path: Path, out: Stat) -> c_int;
    SYS_fstat: fn fstat(fd: c_int, out: Stat) -> c_int;
    SYS_fstat: fn fstat64(fd: c_int, out: Stat) -> c_int;
    SYS_newfstatat: fn fstatat(at: c_int, path: Path, out: Stat, flags: c_int) -> c_int;
    SYS_newfstatat: fn fstatat64(at: c_int, path: Path, out: Stat, flags: c_int) -> c_int;
    SYS_stat: fn __xstat(version: c_int, path: Path, out: Stat) -> c_int = (path, out);
    SYS_stat: fn __xstat64(version: c_int, path: Path, out: Stat) -> c_int = (path, out);
    SYS_lstat: fn __lxstat(version: c_int, path: Path, out: Stat) -> c_int = (path, out);
    SYS_lstat: fn __lxstat64(version: c_int, path: Path, out: Stat) -> c_int = (path, out);
    SYS_fstat: fn __fxstat(version: c_int, fd: c_int, out: Stat) -> c_int = (fd, out);
    SYS_fstat: fn __fxstat64(version: c_int, fd: c_int, out: Stat) -> c_int = (fd, out);
    SYS_newfstatat: fn __fxstatat(version: c_int, at: c_int, path: Path, out: Stat, flags: c_int) -> c_int = (at, path, out, flags);
    SYS_newfstatat: fn __fxstatat64(version: c_int, at: c_int, path: Path, out: Stat, flags: c_int) -> c_int = (at, path, out, flags);
    SYS_statx: fn statx(at: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int;
    SYS_statfs: fn statfs(path: Path, out: *mut libc::statfs) -> c_int;
    SYS_statfs: fn statfs64(path: Path, out: *mut libc::statfs) -> c_int;
    SYS_fstatfs: fn fstatfs(fd: c_int, out: *mut libc::statfs) -> c_int;
    SYS_fstatfs: fn fstatfs64(fd: c_int, out: *mut libc::statfs) -> c_int;
    SYS_readlink: fn readlink(path: Path, out: *mut c_char, len: size_t) -> ssize_t;
    SYS_readlinkat: fn readlinkat(at: c_int, path: Path, out: *mut c_char, len: size_t) -> ssize_t;
    SYS_getdents64: fn getdents64(fd: c_int, out: *mut c_void, len: size_t) -> ssize_t;
    SYS_flock: fn flock(fd: c_int, operation: c_int) -> c_int;

    SYS_mkdir: fn mkdir(path: Path, mode: mode_t) -> c_int;
    SYS_mkdirat: fn mkdirat(at: c_int, path: Path, mode: mode_t) -> c_int;
    SYS_rmdir: fn rmdir(path: Path) -> c_int;
    SYS_unlink: fn unlink(path: Path) -> c_int;
    SYS_unlinkat: fn unlinkat(at: c_int, path: Path, flags: c_int) -> c_int;
    SYS_symlink: fn symlink(to: Path, path: Path) -> c_int;
    SYS_symlinkat: fn symlinkat(to: Path, at: c_int, path: Path) -> c_int;
    SYS_link: fn link(from: Path, to: Path) -> c_int;
    SYS_linkat: fn linkat(from_at: c_int, from: Path, at: c_int, to: Path, flags: c_int) -> c_int;
    SYS_rename: fn rename(from: Path, to: Path) -> c_int;
    SYS_renameat: fn renameat(from_at: c_int, from: Path, at: c_int, to: Path) -> c_int;
    SYS_renameat2: fn renameat2(from_at: c_int, from: Path, at: c_int, to: Path, flags: c_uint) -> c_int;
    SYS_mknod: fn mknod(path: Path, mode: mode_t, dev: dev_t) -> c_int;
    SYS_mknodat: fn mknodat(at: c_int, path: Path, mode: mode_t, dev: dev_t) -> c_int;
    SYS_mknodat: fn mkfifo(path: Path, mode: mode_t) -> c_int = (AT_FDCWD, path, mode | S_IFIFO, 0);
    SYS_mknodat: fn mkfifoat(at: c_int, path: Path, mode: mode_t) -> c_int = (at, path, mode | S_IFIFO, 0);
    SYS_truncate: fn truncate(path: Path, len: off_t) -> c_int;
    SYS_truncate: fn truncate64(path: Path, len: off64_t) -> c_int;
    SYS_ftruncate: fn ftruncate(fd: c_int, len: off_t) -> c_int;
    SYS_ftruncate: fn ftruncate64(fd: c_int, len: off64_t) -> c_int;
    SYS_fallocate: fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int;
    SYS_fallocate: fn fallocate64(fd: c_int, mode: c_int, at: off64_t, len: off64_t) -> c_int;
    SYS_utimensat: fn futimens(fd: c_int, times: *const timespec) -> c_int = (fd, NO_PATH, times, 0);
}

hook! {
    fn utimensat(at: c_int, path: Path, times: *const timespec, flags: c_int) -> c_int {
        let result: Result<usize> = if path.is_null() {
            Err(Errno(libc::EINVAL))
        } else {
            // SAFETY: the caller's arguments.
            unsafe { made!(SYS_utimensat(at, path, times, flags)) }
        };
        result.into_c()
    }
}
