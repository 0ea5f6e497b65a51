//! The same calls by number: for `syscall()` and for what the safety net catches.

use crate::fatal;
use crate::files::{change, inputs, list, lock, open, root, stat};
use crate::sys;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char};
use skein_libos::errno::{Errno, Result};

/// A call on files by number: `None` when it is not one.
pub fn syscall(nr: i64, args: [usize; 6]) -> Option<Result<usize>> {
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        looks(nr, args)
            .or_else(|| changes(nr, args))
            .or_else(|| writes(nr, args))
            .or_else(|| others(nr, args))
    }
}

unsafe fn looks(nr: i64, [a, b, c, d, e, _]: [usize; 6]) -> Option<Result<usize>> {
    let path = |word: usize| word as *const c_char;
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        Some(match nr {
            libc::SYS_open => open::open(AT_FDCWD, path(a), b as i32, c as u32),
            libc::SYS_openat => open::open(a as i32, path(b), c as i32, d as u32),
            libc::SYS_openat2 => open::openat2(a as i32, path(b), c as *const _, d),
            libc::SYS_creat => open::creat(path(a), b as u32),
            libc::SYS_stat => stat::fstatat(AT_FDCWD, path(a), b as *mut _, 0),
            libc::SYS_lstat => stat::fstatat(AT_FDCWD, path(a), b as *mut _, AT_SYMLINK_NOFOLLOW),
            libc::SYS_fstat => stat::fstat(a as i32, b as *mut _),
            libc::SYS_newfstatat => stat::fstatat(a as i32, path(b), c as *mut _, d as i32),
            libc::SYS_statx => stat::statx(a as i32, path(b), c as i32, d as u32, e as *mut _),
            libc::SYS_statfs | libc::SYS_fstatfs => stat::statfs(nr, a, b as *mut _),
            libc::SYS_readlink => stat::readlinkat(AT_FDCWD, path(a), b as *mut u8, c),
            libc::SYS_readlinkat => stat::readlinkat(a as i32, path(b), c as *mut u8, d),
            libc::SYS_getdents64 => list::getdents64(a as i32, b as *mut u8, c),
            libc::SYS_getdents | libc::SYS_name_to_handle_at | libc::SYS_open_by_handle_at => {
                let name: &[u8] = match nr {
                    libc::SYS_getdents => b"getdents",
                    libc::SYS_name_to_handle_at => b"name_to_handle_at",
                    _ => b"open_by_handle_at",
                };
                fatal::refused(name);
                Err(Errno(libc::EOPNOTSUPP))
            }
            libc::SYS_flock => lock::flock(a as i32, b as i32),
            libc::SYS_fcntl => return lock::fcntl(a as i32, b as i32, c),
            libc::SYS_lseek => return list::lseek(a as i32, b as i64, c as i32),
            _ => return None,
        })
    }
}

unsafe fn changes(nr: i64, args: [usize; 6]) -> Option<Result<usize>> {
    let [a, b, c, d, ..] = args;
    let path = |word: usize| word as *const c_char;
    let (at, first) = (a as i32, path(a));
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        Some(match nr {
            libc::SYS_mkdir => change::creation(nr, args, AT_FDCWD, first),
            libc::SYS_mkdirat => change::creation(nr, args, at, path(b)),
            libc::SYS_symlink => change::creation(nr, args, AT_FDCWD, path(b)),
            libc::SYS_symlinkat => change::creation(nr, args, b as i32, path(c)),
            libc::SYS_mknod => change::mknodat(AT_FDCWD, first, b as u32, c as u64),
            libc::SYS_mknodat => change::mknodat(at, path(b), c as u32, d as u64),
            libc::SYS_rmdir | libc::SYS_unlink => change::entries(nr, args, &[(AT_FDCWD, first)]),
            libc::SYS_unlinkat => change::entries(nr, args, &[(at, path(b))]),
            libc::SYS_link => {
                inputs::before_move(AT_FDCWD, first);
                change::entries(nr, args, &[(AT_FDCWD, path(b))])
            }
            libc::SYS_linkat => {
                inputs::before_move(at, path(b));
                change::entries(nr, args, &[(c as i32, path(d))])
            }
            libc::SYS_rename => {
                inputs::before_move(AT_FDCWD, first);
                change::entries(nr, args, &[(AT_FDCWD, first), (AT_FDCWD, path(b))])
            }
            libc::SYS_renameat | libc::SYS_renameat2 => {
                inputs::before_move(at, path(b));
                if nr == libc::SYS_renameat2 && args[4] as u32 & libc::RENAME_EXCHANGE != 0 {
                    inputs::before_move(c as i32, path(d));
                }
                change::entries(nr, args, &[(at, path(b)), (c as i32, path(d))])
            }
            libc::SYS_truncate => change::truncate(first, b as i64),
            libc::SYS_chroot => root::change(first),
            libc::SYS_utimensat => change::utimensat(at, path(b), c as *const _, d as i32),
            libc::SYS_futimesat => change::utimes(at, path(b), c as *const _),
            libc::SYS_utimes => change::utimes(AT_FDCWD, first, b as *const _),
            libc::SYS_utime => change::utime(first, b as *const _),
            _ => return None,
        })
    }
}

/// Calls that say whether a file is there, or who may do what with it; and those that read from a descriptor of the kernel's.
unsafe fn others(nr: i64, args: [usize; 6]) -> Option<Result<usize>> {
    let [a, b, _, d, e, _] = args;
    let path = |word: usize| word as *const c_char;
    let (at, first) = (a as i32, path(a));
    // SAFETY: the arguments are the server's for this call.
    unsafe {
        match nr {
            libc::SYS_access | libc::SYS_chdir => inputs::glance(AT_FDCWD, first, 0),
            libc::SYS_faccessat => inputs::glance(at, path(b), 0),
            libc::SYS_faccessat2 => inputs::glance(at, path(b), d as i32),
            libc::SYS_chmod | libc::SYS_chown => {
                return Some(change::permissions(nr, args, AT_FDCWD, first, 0));
            }
            libc::SYS_lchown => {
                let flags = AT_SYMLINK_NOFOLLOW;
                return Some(change::permissions(nr, args, AT_FDCWD, first, flags));
            }
            libc::SYS_fchmodat => return Some(change::permissions(nr, args, at, path(b), 0)),
            SYS_FCHMODAT2 => return Some(change::permissions(nr, args, at, path(b), d as i32)),
            libc::SYS_fchownat => {
                return Some(change::permissions(nr, args, at, path(b), e as i32));
            }
            libc::SYS_fchmod | libc::SYS_fchown => {
                return Some(change::permissions(nr, args, at, core::ptr::null(), 0));
            }
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2 => {
                return Some(inputs::after_read(at, sys::call(nr, args)));
            }
            _ => return None,
        }
        Some(sys::call(nr, args))
    }
}

/// `fchmodat2`, which libc does not name.
const SYS_FCHMODAT2: i64 = 452;

/// Calls that write to a descriptor of the kernel's.
unsafe fn writes(nr: i64, args: [usize; 6]) -> Option<Result<usize>> {
    let fd = match nr {
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwrite64
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_sendfile => args[0] as i32,
        libc::SYS_copy_file_range => args[2] as i32,
        libc::SYS_ftruncate | libc::SYS_fallocate => {
            // SAFETY: the server's own call.
            let result = unsafe { sys::call(nr, args) };
            return Some(change::after_change(args[0] as i32, result));
        }
        _ => return None,
    };
    // SAFETY: the server's own call.
    Some(change::after_write(fd, unsafe { sys::call(nr, args) }))
}

/// The loader's text, first and last address, once it is known.
static LOADER: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The loader's question about a file, whose answer stays in its record of a library and below the server's stack: as the server would be told, but not
/// an operation of the server's. `None` when the call is another one, or another's.
pub fn from_loader(nr: i64, args: [usize; 6], at: usize) -> Option<Result<usize>> {
    let answer = match nr {
        libc::SYS_fstat => args[1],
        libc::SYS_newfstatat => args[2],
        _ => return None,
    };
    if !is_in_loader(at) {
        return None;
    }
    // SAFETY: the loader's own call.
    let result = unsafe { sys::call(nr, args) };
    if result.is_ok() {
        // SAFETY: the kernel has just written there.
        stat::replace(crate::kernel::kernel(), unsafe { &mut *(answer as *mut libc::stat) }, None);
    }
    Some(result)
}

/// Whether an address is in the loader's text.
fn is_in_loader(at: usize) -> bool {
    let mut text = [0, 1].map(|i| LOADER[i].load(Ordering::Relaxed));
    if text[1] == 0 {
        text = crate::loader::Image::find().map_or([0, 1], |loader| {
            let start = loader.text.at;
            [start, start + loader.text.bytes.len()]
        });
        LOADER[0].store(text[0], Ordering::Relaxed);
        LOADER[1].store(text[1], Ordering::Relaxed);
    }
    text[0] <= at && at < text[1]
}
