//! The file system below the server's private layer, which may be another one on each replica: what differs is answered here, and a disk that fails ends the server.
//!
//! - A layer may be in memory or on a disk: file systems differ in holes, in ways to allocate, in what they say by `ioctl`, and in transfers past the page cache.
//! - On a disk, `ENOSPC` and `EIO` are one replica's alone. The server must not see them: it ends, and its node names the reason and builds it again. In memory
//!   the layer is full on all replicas at nearly the same write, and the server is told.

use crate::fatal::{self, refuse};
use crate::files::fake;
use crate::files::stat::{self, Class};
use crate::kernel::{Kernel, kernel};
use crate::sys;
use crate::turn;
use core::ffi::CStr;
use libc::c_int;
use skein_libos::errno::{Errno, Result};
use skein_sched::op::{Kind, Object};

/// Less room than this is none to speak of, where the kernel does not say what it lacked: 64 MiB.
const LITTLE_BYTES: u64 = 64 << 20;
/// The code of a SIGBUS for an address without a page of its file: behind its end, or where the disk had no room for it.
const BUS_ADRERR: c_int = 2;
/// Directories with overlays on nearly all hosts; the working directory is mostly in one.
const OVERLAYS: [&CStr; 4] = [c".", c"/usr", c"/var", c"/tmp"];

/// Whether the layer is on a disk: its overlays leave out syncs.
pub fn is_below() -> bool {
    let mut found = false;
    // SAFETY: no memory is involved.
    let pid = unsafe { sys::raw(libc::SYS_getpid, sys::args([])) } as u32;
    fake::each_line(pid, "mountinfo", |line| {
        let mut words = line.split(|byte| *byte == b' ').skip_while(|word| *word != b"-").skip(1);
        let (kind, options) = (words.next(), words.last().unwrap_or(b""));
        // Linux 6.18 says the second.
        let is_volatile = |word: &[u8]| matches!(word, b"volatile" | b"fsync=volatile");
        let is_volatile = options.split(|byte| *byte == b',').any(is_volatile);
        found |= kind == Some(b"overlay") && is_volatile;
    });
    found
}

/// The result of a call about files, which ends the server if its disk has failed it.
///
/// # Safety
/// The arguments are those of the call, which was made.
#[inline(always)]
pub unsafe fn settle(nr: i64, a: [usize; 6], result: &Result<usize>) {
    match *result {
        Err(Errno(errno @ (libc::ENOSPC | libc::EDQUOT | libc::EIO))) => failed(nr, a, errno),
        Ok(n) if is_transfer(nr) => {
            // SAFETY: the caller's contract.
            unsafe { moved(nr, a, n) };
        }
        _ => {}
    }
}

const fn is_transfer(nr: i64) -> bool {
    is_write(nr) || is_gather(nr)
}

const fn is_write(nr: i64) -> bool {
    matches!(nr, libc::SYS_write | libc::SYS_pwrite64)
}

const fn is_gather(nr: i64) -> bool {
    matches!(nr, libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2)
}

/// Whether the layer of this server is on a disk.
fn is_on_disk() -> bool {
    crate::local::ready() && kernel().files().on_disk.get()
}

/// A disk that has become full in the middle of a write is not said to be.
///
/// # Safety
/// As for [`settle`].
#[inline(always)]
unsafe fn moved(nr: i64, a: [usize; 6], n: usize) {
    if is_write(nr) {
        if n < a[2] {
            less_was_written(nr, a[0] as i32);
        }
    } else if is_on_disk() {
        let parts = a[1] as *const libc::iovec;
        // SAFETY: the kernel has read all parts.
        let wanted = (0..a[2]).map(|at| unsafe { (*parts.add(at)).iov_len });
        if n < wanted.fold(0, usize::saturating_add) {
            less_was_written(nr, a[0] as i32);
        }
    }
}

#[cold]
fn less_was_written(nr: i64, fd: i32) {
    if is_on_disk() && kernel().file(fd).is_none() && room_at(fd).is_some_and(is_little) {
        end(nr, libc::ENOSPC);
    }
}

const fn is_little(room: u64) -> bool {
    room < LITTLE_BYTES
}

#[cold]
fn failed(nr: i64, a: [usize; 6], errno: c_int) {
    if !is_on_disk() {
        return;
    }
    let is_layers = match nr {
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_syncfs
        | libc::SYS_sync_file_range
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_close
        | libc::SYS_getdents64 => is_of_overlay(a[0]),
        libc::SYS_sendfile => is_of_overlay(a[0]) || is_of_overlay(a[1]),
        libc::SYS_copy_file_range | libc::SYS_splice => is_of_overlay(a[0]) || is_of_overlay(a[2]),
        libc::SYS_open
        | libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_creat
        | libc::SYS_mkdir
        | libc::SYS_mkdirat
        | libc::SYS_symlink
        | libc::SYS_symlinkat
        | libc::SYS_mknod
        | libc::SYS_mknodat
        | libc::SYS_link
        | libc::SYS_linkat
        | libc::SYS_rename
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_rmdir
        | libc::SYS_truncate
        | libc::SYS_chmod
        | libc::SYS_fchmodat
        | libc::SYS_fchmodat2
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_fchownat
        | libc::SYS_utimensat
        | libc::SYS_futimesat
        | libc::SYS_utimes
        | libc::SYS_utime => true,
        _ => false,
    };
    if is_layers {
        end(nr, errno);
    }
}

fn is_of_overlay(fd: usize) -> bool {
    kernel().file(fd as i32).is_none() && room_at(fd as i32).is_some()
}

/// Free bytes below a descriptor's overlay; none if it is of another file system.
fn room_at(fd: i32) -> Option<u64> {
    room(libc::SYS_fstatfs, fd as usize)
}

fn room(nr: i64, what: usize) -> Option<u64> {
    // SAFETY: all-zero is a valid `statfs`.
    let mut fs: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: a descriptor or a string, and a local.
    unsafe { sys::call(nr, sys::args([what, &raw mut fs as usize])) }.ok()?;
    let is_overlay = fs.f_type == libc::OVERLAYFS_SUPER_MAGIC;
    is_overlay.then(|| fs.f_bavail.saturating_mul(fs.f_bsize as u64))
}

fn end(nr: i64, errno: c_int) -> ! {
    let call = skein_interpose::name(nr).unwrap_or("a call");
    let what = if errno == libc::EIO { "has failed" } else { "is full" };
    refuse!(
        "the disk of the server's private layer {what} ({call}: errno {errno}); make room, or replace the disk: the server is built again from image and log"
    )
}

/// Before the server is told of a fault in its memory: ends it if the page of a mapped file had no room on the disk.
pub fn before_fault(signo: c_int, code: c_int) {
    if signo == libc::SIGBUS && code == BUS_ADRERR && is_on_disk() {
        let rooms =
            OVERLAYS.iter().filter_map(|path| room(libc::SYS_statfs, path.as_ptr() as usize));
        if rooms.into_iter().any(is_little) {
            refuse!(
                "the disk of the server's private layer is full (a page of a mapped file); make room: the server is built again from image and log"
            );
        }
    }
}

/// Flags of an open file, without transfers past the page cache: file systems ask for different alignments, or refuse them.
pub const fn through_cache(flags: c_int) -> c_int {
    flags & !libc::O_DIRECT
}

/// `fcntl`'s argument.
pub const fn argument(command: c_int, arg: usize) -> usize {
    if command == libc::F_SETFL { through_cache(arg as c_int) as usize } else { arg }
}

/// `fcntl` with what only some kernels or files have, and no image: hints for the file system, as before Linux 4.13, questions of later ones, and who hears of a file by a signal, which nobody ever does. `None` when it is
/// another one.
pub fn fcntl(command: c_int, arg: usize) -> Option<Result<usize>> {
    /// `F_GET_RW_HINT`, `F_SET_RW_HINT`, and those of open files.
    const HINTS: core::ops::RangeInclusive<c_int> = 1035..=1038;
    /// `F_DUPFD_QUERY` and `F_CREATED_QUERY`, of Linux 6.10 and 6.12.
    const QUERIES: [c_int; 2] = [1027, 1028];
    const SET_SIGNAL: c_int = 10;
    const SET_OWNER_EX: c_int = 15;
    let refused: &[u8] = match command {
        _ if HINTS.contains(&command) || QUERIES.contains(&command) => {
            return Some(Err(Errno(libc::EINVAL)));
        }
        libc::F_SETOWN if arg as c_int != 0 => b"fcntl F_SETOWN",
        SET_SIGNAL if arg as c_int != 0 => b"fcntl F_SETSIG",
        SET_OWNER_EX => b"fcntl F_SETOWN_EX",
        _ => return None,
    };
    let _turn = turn::enter(Object::Files, Kind::Refuse);
    fatal::refused(refused);
    Some(Err(Errno(libc::EINVAL)))
}

/// `lseek` to data or a hole of a file: all of it is data. `None` when it is another call.
pub fn seek(k: &Kernel, fd: i32, to: i64, whence: c_int) -> Option<Result<usize>> {
    if !matches!(whence, libc::SEEK_DATA | libc::SEEK_HOLE) {
        return None;
    }
    let st = stat::real_of(fd).ok()?;
    if st.st_mode & libc::S_IFMT != libc::S_IFREG || stat::class(k, &st) != Class::Own {
        return None;
    }
    if to < 0 || to >= st.st_size {
        return Some(Err(Errno(libc::ENXIO)));
    }
    let at = if whence == libc::SEEK_DATA { to } else { st.st_size };
    let args = sys::args([fd as usize, at as usize, libc::SEEK_SET as usize]);
    // SAFETY: no memory is involved.
    Some(unsafe { sys::call(libc::SYS_lseek, args) })
}

/// Whether a way to allocate is known to every file system: to add room, and to make a hole.
pub const fn allocates(mode: c_int) -> bool {
    mode & !(libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE) == 0
}

/// `ioctl` about a file's place in its file system, or its attributes there: not supported. `None` when it is another one.
pub const fn ioctl(request: usize) -> Option<Result<usize>> {
    const BLOCK_BYTES: u32 = 2;
    const EXTENT_MAP: u32 = 0xc020_660b;
    let request = request as u32;
    match (request, request >> 8 & 0xff) {
        (EXTENT_MAP, _) | (_, 0x94) => Some(Err(Errno(libc::EOPNOTSUPP))),
        (BLOCK_BYTES, _) | (_, 0x15 | 0x58 | 0x66 | 0x76) => Some(Err(Errno(libc::ENOTTY))),
        _ => None,
    }
}

/// `msync`'s flags: no file of the server's outlives it, so nothing needs to be on a disk.
pub const fn unsynced(flags: c_int) -> c_int {
    if flags & (libc::MS_SYNC | libc::MS_ASYNC) == libc::MS_SYNC {
        flags & !libc::MS_SYNC | libc::MS_ASYNC
    } else {
        flags
    }
}
