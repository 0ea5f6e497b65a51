//! The stat family and statfs: the kernel's answer with the values that differ between replicas replaced.
//!
//! | field | what the server sees |
//! |---|---|
//! | inode number | the file's number ([`inode`](super::inode)) |
//! | device | one for all files, one for /proc |
//! | blocks | the size in blocks of 4096 bytes |
//! | size and links of a directory | 4096, 1 |
//! | modification | the server's time of its last change; of a file that it has not changed, the file's own, of a directory the log's start |
//! | links | 1 for a file of the host |
//! | change of status | as modification: a host's files have been installed at different times |
//! | last access | the time that the server has set, else as modification: reading a file sets nothing |
//! | birth | not told (statx) |

use crate::fatal::line;
use crate::files::inode::{Id, MADE, OWNED, Seen, Time};
use crate::files::local::{self, Noted};
use crate::files::{inputs, kernel_files};
use crate::io::{descriptor, table};
use crate::kernel::Kernel;
use crate::sys;
use crate::turn;
use core::ffi::CStr;
use libc::{c_char, c_int, c_uint};
use skein_arena::inodes::agreed;
use skein_libos::errno::{Errno, Result};
use skein_model::fact::What;

/// The device of all files.
const DEV_FILES: u64 = 0x801;
/// The device of /proc.
const DEV_PROC: u64 = 0x15;
/// The inode number of everything in /proc: the kernel gives such files new ones at any time.
const INO_PROC: u64 = 0xf000_0000;
/// The device and inode number of the server's own output.
const CONSOLE: Id = Id { dev: 0xd, ino: 3 };
const BLOCK_BYTES: i64 = 4096;

/// The kernel's own answer about a descriptor.
pub fn real_of(fd: i32) -> Result<libc::stat> {
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes a local.
    unsafe { sys::call(libc::SYS_fstat, sys::args([fd as usize, &raw mut st as usize]))? };
    as_agreed(&mut st);
    Ok(st)
}

/// A pinned file of another user has the attributes of its original.
fn as_agreed(st: &mut libc::stat) {
    if let Some(agreed) = agreed::of((st.st_atime, st.st_atime_nsec)) {
        st.st_mode = st.st_mode & libc::S_IFMT | agreed.mode;
        st.st_uid = agreed.user.unwrap_or(st.st_uid);
        st.st_gid = agreed.group.unwrap_or(st.st_gid);
    }
}

/// The kernel's own name of a descriptor's file, as much of it as fits.
pub fn real_name(fd: i32, name: &mut [u8]) -> Result<&[u8]> {
    let link = line!("/proc/self/fd/{fd}\0");
    let args = sys::args([
        libc::AT_FDCWD as usize,
        link.bytes().as_ptr() as usize,
        name.as_mut_ptr() as usize,
        name.len(),
    ]);
    // SAFETY: a string that ends in zero, and the caller's own bytes.
    let len = unsafe { sys::call(libc::SYS_readlinkat, args) }?;
    Ok(&name[..len])
}

/// The kernel's own answer about a path.
///
/// # Safety
/// `path` is a string or something that the kernel refuses.
pub unsafe fn real_at(at: c_int, path: *const c_char, flags: c_int) -> Result<libc::stat> {
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: writes a local; the path is the caller's.
    unsafe {
        let args =
            sys::args([at as usize, path as usize, &raw mut st as usize, flags as u32 as usize]);
        sys::call(libc::SYS_newfstatat, args)?;
    }
    as_agreed(&mut st);
    Ok(st)
}

/// The kind of a file, for the purposes of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The server's own output.
    Console,
    /// Below /proc.
    Proc,
    /// A device.
    Device,
    /// A file of the replica's own file system.
    Own,
}

/// The class of a file.
pub fn class(k: &Kernel, st: &libc::stat) -> Class {
    let id = Id::of(st);
    match st.st_mode & libc::S_IFMT {
        libc::S_IFCHR | libc::S_IFBLK => Class::Device,
        _ if id.dev == k.files().proc_dev.get() => Class::Proc,
        _ if id == k.files().console[0].get() || id == k.files().console[1].get() => Class::Console,
        _ => Class::Own,
    }
}

/// Replaces values that differ between replicas; `seen` is the file, when it is known already.
pub fn replace(k: &Kernel, st: &mut libc::stat, seen: Option<Seen>) {
    let start = Time::from_ns(k.boot_ns.get());
    let mut times = (start, start);
    match class(k, st) {
        Class::Console => {
            (st.st_dev, st.st_ino) = (CONSOLE.dev, CONSOLE.ino);
            st.st_mode = libc::S_IFIFO | 0o600;
            (st.st_size, st.st_blocks, st.st_nlink) = (0, 0, 1);
        }
        Class::Proc => {
            (st.st_dev, st.st_ino) = (DEV_PROC, INO_PROC);
            if st.st_mode & libc::S_IFMT == libc::S_IFDIR {
                st.st_nlink = 1;
            }
        }
        class => {
            let seen = seen.unwrap_or_else(|| k.files().inodes.see(st));
            (st.st_dev, st.st_ino) = (DEV_FILES, seen.number);
            if class == Class::Own {
                times = times_of(k, st, seen, start);
                shape(st);
                let known = k.files().inodes.known(seen);
                let is_hosts = known.stamp.get() != 0 || !known.is(MADE);
                if is_hosts && !known.is(OWNED) && st.st_nlink > 1 {
                    // The number of links that others made, the node for pinned files among them; also where only the loader looked.
                    st.st_nlink = 1;
                }
            }
        }
    }
    st.st_blksize = BLOCK_BYTES;
    let (modified, accessed) = times;
    (st.st_mtime, st.st_mtime_nsec) = (modified.s, modified.ns);
    (st.st_ctime, st.st_ctime_nsec) = (modified.s, modified.ns);
    (st.st_atime, st.st_atime_nsec) = (accessed.s, accessed.ns);
}

fn times_of(k: &Kernel, st: &libc::stat, seen: Seen, start: Time) -> (Time, Time) {
    let (changed, accessed) = k.files().inodes.times(seen);
    let modified = changed.unwrap_or_else(|| {
        if st.st_mode & libc::S_IFMT == libc::S_IFDIR {
            // Changes of others in a directory are not the server's.
            return start;
        }
        // Changed unseen, by a mapping for example: the real time must not show. When the log began, no replica's server ran;
        // the start of this one differs between replicas.
        let own = Time { s: st.st_mtime, ns: st.st_mtime_nsec };
        if (own.s, own.ns) >= (start.s, start.ns) { start } else { own }
    });
    (modified, accessed.unwrap_or(modified))
}

/// Sizes that the file system chose.
fn shape(st: &mut libc::stat) {
    if st.st_mode & libc::S_IFMT == libc::S_IFDIR {
        st.st_size = BLOCK_BYTES;
        // One that is removed has none.
        st.st_nlink = st.st_nlink.min(1);
    }
    let link = st.st_mode & libc::S_IFMT == libc::S_IFLNK;
    let blocks = if link { 0 } else { st.st_size.max(0).saturating_add(BLOCK_BYTES - 1) };
    st.st_blocks = blocks / BLOCK_BYTES * (BLOCK_BYTES / 512);
}

/// `fstat`.
///
/// # Safety
/// `out` is writable.
pub unsafe fn fstat(k: &Kernel, fd: i32, out: *mut libc::stat) -> Result<usize> {
    if k.file(fd).is_some() {
        // It is no regular file: asking it is an operation of its own.
        turn::end();
    }
    // SAFETY: the caller's contract.
    if let Some(answer) = unsafe { descriptor::fstat(fd, out) } {
        return answer;
    }
    table::not_own(fd)?;
    if out.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the kernel checks the address; it is valid when it has written there.
    let st = unsafe {
        sys::call(libc::SYS_fstat, sys::args([fd as usize, out as usize]))?;
        &mut *out
    };
    as_agreed(st);
    let before = k.files().inodes.renewals();
    inputs::stated(k, fd, st);
    if k.files().inodes.renewals() != before {
        *st = real_of(fd)?;
    }
    replace(k, st, known(k, fd));
    Ok(0)
}

/// The file of a descriptor, when it is remembered.
fn known(k: &Kernel, fd: i32) -> Option<Seen> {
    match local::slot(fd)?.noted() {
        Noted::Of(seen) if k.files().inodes.holds(seen) => Some(seen),
        _ => None,
    }
}

/// `fstatat`, and with `AT_FDCWD` stat and lstat.
///
/// # Safety
/// `path` is a string, `out` is writable.
pub unsafe fn fstatat(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    out: *mut libc::stat,
    flags: c_int,
) -> Result<usize> {
    // SAFETY: the caller's contract.
    unsafe {
        if is_empty(path, flags) && at != libc::AT_FDCWD {
            return fstat(k, at, out);
        }
        if kernel_files::hidden(super::bytes(path)) {
            return Err(Errno(libc::ENOENT));
        }
    }
    if out.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let args = sys::args([at as usize, path as usize, out as usize, flags as u32 as usize]);
    // SAFETY: the kernel checks the addresses; `out` is valid when it has written there.
    let mut answer = unsafe { sys::call(libc::SYS_newfstatat, args).map(|_| *out) };
    if let Ok(st) = &mut answer {
        as_agreed(st);
    }
    let before = k.files().inodes.renewals();
    // SAFETY: the kernel has seen the path.
    unsafe { inputs::looked(k, at, path, flags, &answer, What::About) };
    let mut st = answer?;
    if k.files().inodes.renewals() != before {
        // SAFETY: as above.
        st = unsafe { real_at(at, path, flags) }?;
    }
    replace(k, &mut st, None);
    // SAFETY: the kernel has written there.
    unsafe { out.write(st) };
    Ok(0)
}

/// Whether a call is on the descriptor itself.
unsafe fn is_empty(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller's string.
    flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

/// `statx`: what `fstatat` says, in the other form.
///
/// # Safety
/// `path` is a string, `out` is writable.
pub unsafe fn statx(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> Result<usize> {
    if mask & libc::STATX__RESERVED as c_uint != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if out.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let known = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    if flags & !(known | libc::AT_STATX_SYNC_TYPE) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: all-zero is a valid `stat`.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the caller's path, a local.
    unsafe { fstatat(k, at, path, &raw mut st, flags & known)? };
    let time = |s: i64, ns: i64| {
        // SAFETY: all-zero is a valid timestamp.
        let mut time: libc::statx_timestamp = unsafe { core::mem::zeroed() };
        (time.tv_sec, time.tv_nsec) = (s, ns as u32);
        time
    };
    // SAFETY: all-zero is a valid `statx`.
    let mut x: libc::statx = unsafe { core::mem::zeroed() };
    x.stx_mask = libc::STATX_BASIC_STATS;
    x.stx_blksize = st.st_blksize as u32;
    x.stx_nlink = st.st_nlink as u32;
    x.stx_uid = st.st_uid;
    x.stx_gid = st.st_gid;
    x.stx_mode = st.st_mode as u16;
    x.stx_ino = st.st_ino;
    x.stx_size = st.st_size as u64;
    x.stx_blocks = st.st_blocks as u64;
    x.stx_atime = time(st.st_atime, st.st_atime_nsec);
    x.stx_mtime = time(st.st_mtime, st.st_mtime_nsec);
    x.stx_ctime = time(st.st_ctime, st.st_ctime_nsec);
    (x.stx_rdev_major, x.stx_rdev_minor) = (libc::major(st.st_rdev), libc::minor(st.st_rdev));
    (x.stx_dev_major, x.stx_dev_minor) = (libc::major(st.st_dev), libc::minor(st.st_dev));
    // SAFETY: the caller's contract.
    unsafe { out.write(x) };
    Ok(0)
}

/// The answer of `statfs` for every file system that is not the kernel's: 1 TiB of 4096 bytes, half of it free.
fn space(fs: &mut libc::statfs) {
    const PROC_MAGIC: i64 = 0x9fa0;
    const EXT_MAGIC: i64 = 0xef53;
    let is_proc = fs.f_type == PROC_MAGIC;
    // SAFETY: all-zero is a valid `statfs`.
    *fs = unsafe { core::mem::zeroed() };
    const ST_VALID: i64 = 0x20;
    const ST_RELATIME: i64 = 0x1000;
    fs.f_type = if is_proc { PROC_MAGIC } else { EXT_MAGIC };
    fs.f_bsize = BLOCK_BYTES;
    fs.f_frsize = BLOCK_BYTES;
    fs.f_namelen = 255;
    // The eleventh word, which libc does not name.
    // SAFETY: within the structure, whose words are all initialised.
    unsafe { core::ptr::from_mut(fs).cast::<i64>().add(10).write(ST_VALID | ST_RELATIME) };
    if !is_proc {
        fs.f_blocks = 1 << 28;
        fs.f_bfree = 1 << 27;
        fs.f_bavail = 1 << 27;
        fs.f_files = 1 << 26;
        fs.f_ffree = 1 << 25;
    }
}

/// Whether a path is in memory that a node has mounted for its server.
pub fn is_layer(path: &CStr) -> bool {
    const ST_NOATIME: i64 = 0x400;
    // SAFETY: all-zero is a valid `statfs`.
    let mut fs: libc::statfs = unsafe { core::mem::zeroed() };
    let args = sys::args([path.as_ptr() as usize, &raw mut fs as usize]);
    // SAFETY: a string and a local, of which the eleventh word is the flags.
    let (told, flags) = unsafe {
        (sys::call(libc::SYS_statfs, args), (&raw const fs).cast::<i64>().add(10).read())
    };
    told.is_ok() && fs.f_type == libc::TMPFS_MAGIC && flags & ST_NOATIME != 0
}

/// `statfs` and `fstatfs`: `nr` selects, `what` is the path or the descriptor.
///
/// # Safety
/// As for the call.
pub unsafe fn statfs(k: &Kernel, nr: i64, what: usize, out: *mut libc::statfs) -> Result<usize> {
    let virtual_fd = nr == libc::SYS_fstatfs && k.file(what as i32).is_some() && !out.is_null();
    if !virtual_fd {
        table::no_own(nr, &sys::args([what]))?;
        // SAFETY: the kernel checks the addresses.
        unsafe { sys::call(nr, sys::args([what, out as usize]))? };
    }
    // SAFETY: the kernel has written there, or it is not null and the caller's.
    space(unsafe { &mut *out });
    Ok(0)
}

/// `readlink`: the names of descriptors are virtual, too.
///
/// # Safety
/// As for the call.
pub unsafe fn readlinkat(
    k: &Kernel,
    at: c_int,
    path: *const c_char,
    out: *mut u8,
    len: usize,
) -> Result<usize> {
    // SAFETY: the caller's string.
    if let Some(name) = kernel_files::link(k, unsafe { super::bytes(path) }) {
        let name = name?;
        let n = name.bytes().len().min(len);
        // SAFETY: the caller's buffer.
        unsafe { core::ptr::copy_nonoverlapping(name.bytes().as_ptr(), out, n) };
        return Ok(n);
    }
    let args = sys::args([at as usize, path as usize, out as usize, len]);
    // SAFETY: the server's own call.
    let result = unsafe { sys::call(libc::SYS_readlinkat, args) };
    if result != Err(Errno(libc::EFAULT)) {
        // SAFETY: the kernel has read the path.
        unsafe { inputs::link_read(k, at, path) };
    }
    result
}
