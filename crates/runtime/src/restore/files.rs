//! Open files of a restored server: what has no path is made again, the others are opened again, and each process takes its descriptors and locks.
//!
//! The first process makes and opens all of them above every descriptor of the server's, where its children find them. Permissions and seals come when all are open,
//! as they may forbid to open them again.

use super::{PAGE_BYTES, Tables, WRITE, decimal, must, part};
use crate::files::inode::Id;
use crate::io::park;
use crate::io::table::{SPARE_FD, is_own};
use crate::kernel::kernel;
use crate::sys::{self, args};
use core::ffi::CStr;
use skein_arena::layout::{RESTORE_AT, RESTORE_SPAN};
use skein_arena::restore::{
    Description, Descriptor, ERRORS, Lock, OUTPUT, Object, PLACEHOLDER, lock, object,
};
use skein_libos::errno::{Errno, Result};

/// The longest path.
const PATH_BYTES: usize = libc::PATH_MAX as usize;
/// The part of `O_TMPFILE` that no other flag has.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// Behind the path of a file that makes room for a moment.
const ASIDE: &[u8] = b".restored";

impl Tables {
    /// The descriptor of an object.
    pub(super) fn object_fd(&self, n: u64) -> usize {
        self.lent() + n as usize
    }

    /// What the kernel calls the object now that it called so.
    pub(super) fn object_now(&self, was: Id) -> Option<Id> {
        let same = |object: &Object| object.file == [was.dev, was.ino] && was.ino != 0;
        let n = self.objects.iter().position(same)?;
        // SAFETY: all-zero is a valid `stat`, which the call writes.
        unsafe {
            let mut st: libc::stat = core::mem::zeroed();
            must(52, libc::SYS_fstat, args([self.object_fd(n as u64), &raw mut st as usize]));
            Some(Id::of(&st))
        }
    }

    /// The object that an open file has made, which had no name and has none.
    fn makes(&self, file: &Description) -> Option<usize> {
        let n = (file.object as usize).checked_sub(1)?;
        let is = self.objects[n].kind == object::NAMELESS && file.flags & TMPFILE != 0;
        is.then_some(n)
    }

    /// The descriptor of an open file.
    fn description_fd(&self, description: u32) -> usize {
        let files = self.lent() + self.objects.len();
        let given = files + self.descriptions.len();
        match description {
            PLACEHOLDER => SPARE_FD as usize,
            OUTPUT => given,
            ERRORS => given + 1,
            n => files + n as usize,
        }
    }
}

/// Moves a descriptor to where all processes find it.
unsafe fn lend(fd: usize, to: usize) {
    if fd != to {
        // SAFETY: numbers.
        unsafe {
            must(11, libc::SYS_dup3, args([fd, to, libc::O_CLOEXEC as usize]));
            sys::raw(libc::SYS_close, args([fd]));
        }
    }
}

/// Makes what has no path.
pub(super) unsafe fn objects(t: &Tables) {
    for (n, object) in t.objects.iter().enumerate() {
        // SAFETY: this process's own files; a mapping behind the tables while one is filled.
        unsafe {
            let fd = make(t, n, object);
            let whole = (object.bytes as usize).next_multiple_of(PAGE_BYTES);
            if whole > 0 {
                must(7, libc::SYS_ftruncate, args([fd, whole]));
                let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as usize;
                let at = RESTORE_AT + RESTORE_SPAN / 2;
                let protection = libc::PROT_READ as usize | WRITE;
                // It may be open for writing only.
                let both = match object.kind {
                    object::NAMELESS => open_object(fd, libc::O_RDWR | libc::O_CLOEXEC),
                    _ => fd,
                };
                must(8, libc::SYS_mmap, [at, whole, protection, flags, both, 0]);
                if both != fd {
                    sys::raw(libc::SYS_close, args([both]));
                }
                t.fill(part(t.runs, object.runs), at);
                must(9, libc::SYS_munmap, args([at, whole]));
                must(7, libc::SYS_ftruncate, args([fd, object.bytes as usize]));
            }
            lend(fd, t.object_fd(n as u64));
        }
    }
}

unsafe fn make(t: &Tables, n: usize, object: &Object) -> usize {
    let name = t.name(object.name);
    let sealable = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    // SAFETY: names of the tables.
    unsafe {
        match object.kind {
            object::MEMORY => {
                must(6, libc::SYS_memfd_create, args([name, libc::MFD_CLOEXEC as usize]))
            }
            object::MEMORY_FILE => must(6, libc::SYS_memfd_create, args([name, sealable])),
            object::NAMELESS => {
                // The open file that made it knows that it did.
                let own = t.descriptions.iter().find(|file| t.makes(file) == Some(n));
                let how = own.map_or(libc::O_RDWR | libc::O_TMPFILE, |file| file.flags);
                let id = Id { dev: object.file[0], ino: object.file[1] };
                let stays = kernel().files().inodes.stays_nameless(id);
                let how = how | libc::O_CLOEXEC | if stays { libc::O_EXCL } else { 0 };
                must(53, libc::SYS_open, args([name, how as usize, 0o600]))
            }
            _ => make_removed(name),
        }
    }
}

/// Makes a file and removes it. Another one that has its path by now makes room meanwhile.
unsafe fn make_removed(path: usize) -> usize {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_CREAT | libc::O_EXCL;
    let create = args([path, flags as usize, 0o600]);
    let mut aside = [0u8; PATH_BYTES + ASIDE.len()];
    // SAFETY: a path of the tables, which ends with a zero; a local.
    unsafe {
        let mut made = sys::call(libc::SYS_open, create);
        let is_taken = made == Err(Errno(libc::EEXIST));
        let other = aside.as_ptr() as usize;
        let here = libc::AT_FDCWD as usize;
        if is_taken {
            let text = CStr::from_ptr(path as *const libc::c_char).to_bytes();
            let len = text.len().min(PATH_BYTES - 1);
            aside[..len].copy_from_slice(&text[..len]);
            aside[len..len + ASIDE.len()].copy_from_slice(ASIDE);
            let keep = libc::RENAME_NOREPLACE as usize;
            must(30, libc::SYS_renameat2, args([here, path, here, other, keep]));
            made = sys::call(libc::SYS_open, create);
        }
        let fd = made.unwrap_or_else(|e| super::failed(31, e));
        must(32, libc::SYS_unlink, args([path]));
        if is_taken {
            must(30, libc::SYS_renameat2, args([here, other, here, path, 0]));
        }
        fd
    }
}

/// Opens the files that were open.
pub(super) unsafe fn open(t: &Tables) {
    for (n, file) in t.descriptions.iter().enumerate() {
        // SAFETY: a path of the tables; numbers.
        unsafe {
            let fd = open_again(t, file);
            let seek = args([fd, file.position as usize, libc::SEEK_SET as usize]);
            // Not every file has a position.
            sys::raw(libc::SYS_lseek, seek);
            lend(fd, t.description_fd(n as u32));
        }
    }
    for (standard, description) in [(libc::STDOUT_FILENO, OUTPUT), (libc::STDERR_FILENO, ERRORS)] {
        let to = t.description_fd(description);
        // SAFETY: numbers.
        unsafe {
            must(27, libc::SYS_dup3, args([standard as usize, to, libc::O_CLOEXEC as usize]));
        }
    }
}

unsafe fn open_again(t: &Tables, file: &Description) -> usize {
    if let Some(n) = t.makes(file) {
        let made = args([t.object_fd(n as u64), libc::F_DUPFD_CLOEXEC as usize, 0]);
        // SAFETY: numbers.
        return unsafe { must(11, libc::SYS_fcntl, made) };
    }
    let mut flags = file.flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_CLOEXEC;
    if file.object == 0 {
        // SAFETY: a path of the tables.
        return match unsafe { open_path(t.name(file.name), flags) } {
            Ok(fd) => fd,
            Err(e) => super::failed(10, e),
        };
    }
    if flags & TMPFILE != 0 {
        flags &= !libc::O_TMPFILE;
    }
    // The link in /proc is to be followed.
    flags &= !libc::O_NOFOLLOW;
    // SAFETY: a descriptor of this process.
    unsafe { open_object(t.object_fd(u64::from(file.object - 1)), flags) }
}

/// Opens the file of a descriptor again.
unsafe fn open_object(fd: usize, flags: i32) -> usize {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0; 10];
    let digits = decimal(fd as u32, &mut digits);
    let at = path.len() - 1 - 10;
    path[at..at + digits.len()].copy_from_slice(digits);
    // SAFETY: a local that ends with a zero.
    unsafe { must(10, libc::SYS_open, args([path.as_ptr() as usize, flags as usize])) }
}

/// Opens a file that the server had open. Its permissions may forbid that by now: a server can make a file that nobody else may open.
pub(super) unsafe fn open_path(path: usize, flags: i32) -> Result<usize> {
    // SAFETY: the caller's path; a local.
    unsafe {
        let call = || sys::call(libc::SYS_open, args([path, flags as usize]));
        let opened = call();
        let mut st: libc::stat = core::mem::zeroed();
        if opened != Err(Errno(libc::EACCES))
            || sys::call(libc::SYS_stat, args([path, &raw mut st as usize])).is_err()
        {
            return opened;
        }
        let mode = (st.st_mode & 0o7777) as usize;
        sys::call(libc::SYS_chmod, args([path, mode | 0o600]))?;
        let opened = call();
        sys::call(libc::SYS_chmod, args([path, mode]))?;
        opened
    }
}

/// Gives the objects their attributes, owners, permissions, times and seals.
pub(super) unsafe fn finish(t: &Tables) {
    for (n, object) in t.objects.iter().enumerate() {
        let fd = t.object_fd(n as u64);
        if object.kind == object::MEMORY {
            continue;
        }
        // SAFETY: numbers; the tables' attributes, and times, laid out as the kernel's.
        unsafe {
            attributes(t, object, fd);
            let mut st: libc::stat = core::mem::zeroed();
            must(52, libc::SYS_fstat, args([fd, &raw mut st as usize]));
            let [user, group] = object.owner;
            if [st.st_uid, st.st_gid] != object.owner {
                must(33, libc::SYS_fchown, args([fd, user as usize, group as usize]));
            }
            must(34, libc::SYS_fchmod, args([fd, object.mode as usize]));
            must(35, libc::SYS_utimensat, args([fd, 0, object.times.as_ptr() as usize, 0]));
            if object.seals != 0 {
                let add = libc::F_ADD_SEALS as usize;
                must(36, libc::SYS_fcntl, args([fd, add, object.seals as usize]));
            }
        }
    }
}

/// Gives an object its extended attributes.
unsafe fn attributes(t: &Tables, object: &Object, fd: usize) {
    let Some(first) = object.attributes.checked_sub(1) else { return };
    let mut at = t.name(first.into()) as *const u8;
    // SAFETY: written so by the node.
    unsafe {
        while at.read() != 0 {
            let name = CStr::from_ptr(at.cast());
            let value = at.add(name.count_bytes() + 1);
            let (len, value) = (value.cast::<u32>().read_unaligned() as usize, value.add(4));
            let set = [fd, name.as_ptr() as usize, value as usize, len, 0, 0];
            // Another kernel or file system may take none here, or fewer.
            let refused = [libc::EOPNOTSUPP, libc::EPERM, libc::ENOSPC, libc::EDQUOT];
            if let Err(e) = sys::call(libc::SYS_fsetxattr, set)
                && !refused.contains(&e.0)
            {
                super::failed(62, e);
            }
            at = value.add(len);
        }
    }
}

/// Takes the descriptors that were open.
pub(super) unsafe fn descriptors(t: &Tables, of: &[Descriptor]) {
    // SAFETY: numbers.
    unsafe {
        for standard in 0..3 {
            sys::raw(libc::SYS_close, args([standard]));
        }
        for d in of.iter().filter(|d| !is_own(d.fd)) {
            let from = t.description_fd(d.description);
            must(25, libc::SYS_dup3, args([from, d.fd as usize, d.flags as usize]));
        }
        let last = t.lent() + t.head.lent() as usize - 1;
        must(26, libc::SYS_close_range, args([t.lent(), last, 0]));
    }
}

/// Sends the files again that were on their way.
pub(super) unsafe fn park(t: &Tables) {
    for parked in t.parked {
        park::put(parked.ticket, t.description_fd(parked.description) as i32);
    }
}

/// Takes the locks of open files.
pub(super) unsafe fn locks_of_files(t: &Tables) {
    for l in t.locks {
        let fd = t.description_fd(l.description);
        // SAFETY: numbers.
        unsafe {
            match l.kind {
                lock::WHOLE => {
                    let how = if l.is_exclusive != 0 { libc::LOCK_EX } else { libc::LOCK_SH };
                    must(37, libc::SYS_flock, args([fd, (how | libc::LOCK_NB) as usize]));
                }
                lock::OPEN_FILE => record(fd, l, libc::F_OFD_SETLK),
                _ => {}
            }
        }
    }
}

/// Takes a process's own locks, when it has its descriptors: it loses them with any of the file's that it closes.
pub(super) unsafe fn locks_of_process(of: &[Lock]) {
    for l in of.iter().filter(|l| l.kind == lock::PROCESS) {
        // SAFETY: this process's descriptor.
        unsafe { record(l.fd as usize, l, libc::F_SETLK) };
    }
}

unsafe fn record(fd: usize, l: &Lock, command: i32) {
    let kind = if l.is_exclusive != 0 { libc::F_WRLCK } else { libc::F_RDLCK };
    let range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: l.start as i64,
        l_len: if l.last == u64::MAX { 0 } else { (l.last - l.start + 1) as i64 },
        l_pid: 0,
    };
    // SAFETY: a local.
    unsafe {
        must(38, libc::SYS_fcntl, args([fd, command as usize, &raw const range as usize]));
    }
}
