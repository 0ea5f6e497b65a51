//! The same calls by number: for `syscall()` and for what the safety net catches.

use crate::fatal;
use crate::files::{change, list, lock, open, stat};
use crate::sys::{self, Errno, Result};
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char};

/// A call on files by number: `None` when it is not one.
pub fn syscall(nr: i64, args: [usize; 6]) -> Option<Result<usize>> {
    // SAFETY: the arguments are the server's for this call.
    unsafe { looks(nr, args).or_else(|| changes(nr, args)).or_else(|| writes(nr, args)) }
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
            libc::SYS_link => change::entries(nr, args, &[(AT_FDCWD, path(b))]),
            libc::SYS_linkat => change::entries(nr, args, &[(c as i32, path(d))]),
            libc::SYS_rename => {
                change::entries(nr, args, &[(AT_FDCWD, first), (AT_FDCWD, path(b))])
            }
            libc::SYS_renameat | libc::SYS_renameat2 => {
                change::entries(nr, args, &[(at, path(b)), (c as i32, path(d))])
            }
            libc::SYS_truncate => change::truncate(first, b as i64),
            libc::SYS_utimensat => change::utimensat(at, path(b), c as *const _, d as i32),
            libc::SYS_futimesat => change::utimes(at, path(b), c as *const _),
            libc::SYS_utimes => change::utimes(AT_FDCWD, first, b as *const _),
            libc::SYS_utime => change::utime(first, b as *const _),
            _ => return None,
        })
    }
}

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

/// The loader compares files by device and inode number with those that it has loaded before the runtime was there: it gets the kernel's own.
/// `None` when the call is another one, or another's.
pub fn from_loader(nr: i64, args: [usize; 6], at: usize) -> Option<Result<usize>> {
    if !matches!(nr, libc::SYS_fstat | libc::SYS_newfstatat) {
        return None;
    }
    let mut text = [0, 1].map(|i| LOADER[i].load(Ordering::Relaxed));
    if text[1] == 0 {
        text = loader_text();
        LOADER[0].store(text[0], Ordering::Relaxed);
        LOADER[1].store(text[1], Ordering::Relaxed);
    }
    // SAFETY: the loader's own call.
    (text[0] <= at && at < text[1]).then(|| unsafe { sys::call(nr, args) })
}

fn loader_text() -> [usize; 2] {
    // SAFETY: reads a word of the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    if base == 0 {
        return [0, 1];
    }
    // SAFETY: the loader is mapped there, its headers first.
    unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let table = (base + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let headers = core::slice::from_raw_parts(table, header.e_phnum as usize);
        let text =
            headers.iter().find(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0);
        text.map_or([0, 1], |h| {
            let start = base + h.p_vaddr as usize;
            [start, start + h.p_memsz as usize]
        })
    }
}
