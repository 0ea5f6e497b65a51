//! Calls on descriptors themselves: close, dup, fcntl, ioctl, stat.

use crate::fatal;
use crate::files;
use crate::io::call;
use crate::io::call::Hold;
use crate::io::{Answer, fifo, socket, table};
use crate::kernel::{Kernel, kernel};
use crate::sys;
use crate::{thread, turn};
use core::ffi::c_int;
use skein_arena::pool::Handle;
use skein_libos::errno::{Result, fail};
use skein_libos::file::{self, File, Kind, pipe};
use skein_sched::op::{Kind as Op, Object};

/// Closes a virtual descriptor.
pub fn close_virtual(k: &Kernel, fd: i32) -> Result<usize> {
    let Some(file) = k.table().forget(fd) else { return fail(libc::EBADF) };
    let _ = sys::close(fd);
    file::drop_ref(k, file);
    Ok(0)
}

/// `close`.
pub fn close(fd: i32) -> Answer {
    if table::is_own(fd) {
        return Some(fail(libc::EBADF));
    }
    let k = kernel();
    if k.table().get(fd).is_none() {
        files::closed(k, fd);
        return None;
    }
    thread::test_cancel();
    let _turn = turn::enter(Object::Descriptors, Op::Close);
    Some(close_virtual(k, fd))
}

/// `dup`.
pub fn dup(fd: i32) -> Answer {
    call::with(fd, Op::Duplicate, |k, hold| duplicate(k, hold, 0, false))
}

fn duplicate(k: &Kernel, hold: &Hold, least: i32, cloexec: bool) -> Result<usize> {
    k.table().install(k, hold.0, least, cloexec).map(|fd| fd as usize)
}

/// `dup3`, or `dup2` when `flags` is `None`.
pub fn dup3(old: i32, new: i32, flags: Option<i32>) -> Answer {
    if table::is_own(old) || table::is_own(new) {
        return Some(fail(libc::EBADF));
    }
    let k = kernel();
    if old != new {
        files::closed(k, new);
    }
    if k.table().get(old).is_none() {
        // A file takes a virtual descriptor's place: the kernel closes the placeholder.
        k.table().get(new)?;
        let _turn = turn::enter(Object::Descriptors, Op::Duplicate);
        return Some(replace_by_file(k, old, new, flags));
    }
    call::with(old, Op::Duplicate, |k, hold| {
        let bits = flags.unwrap_or(0);
        if bits & !libc::O_CLOEXEC != 0 || (flags.is_some() && old == new) {
            return fail(libc::EINVAL);
        }
        if old != new {
            k.table().replace(k, hold.0, new, bits & libc::O_CLOEXEC != 0)?;
        }
        Ok(new as usize)
    })
}

fn replace_by_file(k: &Kernel, old: i32, new: i32, flags: Option<i32>) -> Result<usize> {
    let nr = if flags.is_some() { libc::SYS_dup3 } else { libc::SYS_dup2 };
    // SAFETY: no memory is involved.
    unsafe { sys::call(nr, sys::args([old as usize, new as usize, flags.unwrap_or(0) as usize]))? };
    if let Some(file) = k.table().forget(new) {
        file::drop_ref(k, file);
    }
    Ok(new as usize)
}

/// `close_range`: always handled, as the runtime's own descriptors may lie in the range.
pub fn close_range(first: u32, last: u32, flags: u32) -> Result<usize> {
    let turn = turn::enter(Object::Descriptors, Op::Close);
    let k = &*turn;
    if flags & !(libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE) != 0 || first > last {
        return fail(libc::EINVAL);
    }
    let cloexec = flags & libc::CLOSE_RANGE_CLOEXEC != 0;
    if !cloexec {
        files::closed_range(k, first, last);
    }
    let end = (k.table().end() as u32).min(last.saturating_add(1));
    for fd in first..end {
        let fd = fd as i32;
        if k.table().get(fd).is_none() {
            continue;
        }
        if cloexec {
            k.table().set_cloexec(fd, true);
        } else {
            close_virtual(k, fd)?;
        }
    }
    // The kernel's own descriptors, around the runtime's.
    let (own_first, own_last) = table::own_range();
    for (from, to) in [(first, last.min(own_first - 1)), (first.max(own_last + 1), last)] {
        if from <= to {
            // SAFETY: no memory is involved.
            unsafe {
                sys::call(
                    libc::SYS_close_range,
                    sys::args([from as usize, to as usize, flags as usize]),
                )?
            };
        }
    }
    Ok(0)
}

/// `fcntl`.
pub fn fcntl(fd: i32, command: i32, arg: usize) -> Answer {
    if table::is_own(fd) {
        return Some(fail(libc::EBADF));
    }
    call::with(fd, Op::Set, |k, hold| control(k, hold, fd, command, arg))
}

fn control(k: &Kernel, hold: &Hold, fd: i32, command: i32, arg: usize) -> Result<usize> {
    let f = hold.file(k);
    match command {
        libc::F_DUPFD => duplicate(k, hold, arg as i32, false),
        libc::F_DUPFD_CLOEXEC => duplicate(k, hold, arg as i32, true),
        libc::F_GETFD => Ok(usize::from(k.table().cloexec(fd))),
        libc::F_SETFD => {
            k.table().set_cloexec(fd, arg as i32 & libc::FD_CLOEXEC != 0);
            Ok(0)
        }
        libc::F_GETFL => Ok(f.flags.get() as usize),
        libc::F_SETFL => {
            let settable = libc::O_NONBLOCK | libc::O_APPEND | libc::O_NOATIME | libc::O_ASYNC;
            f.flags.set(f.flags.get() & !settable | arg as i32 & settable);
            Ok(0)
        }
        libc::F_GETPIPE_SZ | libc::F_SETPIPE_SZ => match pipe::of(k, f) {
            None => fail(libc::EBADF),
            Some(p) if command == libc::F_GETPIPE_SZ => Ok(p.capacity()),
            Some(p) => pipe::resize(k, p, arg as u32 as usize),
        },
        libc::F_GETOWN => Ok(f.owner.get() as usize),
        libc::F_SETOWN if (arg as i32) < 0 => {
            fatal::refused(b"fcntl F_SETOWN with a process group");
            fail(libc::EINVAL)
        }
        libc::F_SETOWN => {
            f.owner.set(arg as i32);
            Ok(0)
        }
        // The signal is always SIGIO.
        F_GETSIG => Ok(0),
        _ => fail(libc::EINVAL),
    }
}

/// Not named by libc.
const F_GETSIG: i32 = 11;
const FIONREAD: usize = libc::FIONREAD as usize;
const FIONBIO: usize = libc::FIONBIO as usize;
const FIOASYNC: usize = libc::FIOASYNC as usize;
const FIOCLEX: usize = libc::FIOCLEX as usize;
const FIONCLEX: usize = libc::FIONCLEX as usize;
const TIOCOUTQ: usize = libc::TIOCOUTQ as usize;

/// `ioctl`.
///
/// # Safety
/// `arg` is what the request wants.
pub unsafe fn ioctl(fd: i32, request: usize, arg: usize) -> Answer {
    // Requests are 32 bits wide.
    let request = request & 0xffff_ffff;
    call::with(fd, Op::Set, |k, hold| {
        let f = hold.file(k);
        match request {
            FIOCLEX | FIONCLEX => {
                k.table().set_cloexec(fd, request == FIOCLEX);
                Ok(0)
            }
            FIONBIO | FIOASYNC => {
                let flag = if request == FIONBIO { libc::O_NONBLOCK } else { libc::O_ASYNC };
                // SAFETY: the request takes a number.
                let on = unsafe { *(arg as *const c_int) } != 0;
                f.flags.set(f.flags.get() & !flag | if on { flag } else { 0 });
                Ok(0)
            }
            FIONREAD | TIOCOUTQ => {
                let n = queued(k, f, request)?;
                // SAFETY: the request writes a number.
                unsafe { *(arg as *mut c_int) = n as c_int };
                Ok(0)
            }
            // Epoll sets have requests of their own, none of them known here.
            _ if f.kind.get() == Kind::Epoll => fail(libc::EINVAL),
            _ if f.kind.get() == Kind::Socket && request >> 8 == 0x89 => {
                // SAFETY: the caller's contract.
                unsafe { socket::interface::ioctl(request, arg) }
            }
            _ => fail(libc::ENOTTY),
        }
    })
}

fn queued(k: &Kernel, f: &File, request: usize) -> Result<usize> {
    if let Some(socket) = f.as_kind(Kind::Socket) {
        return socket::queued(k, socket, request == TIOCOUTQ);
    }
    match pipe::of(k, f) {
        Some(p) if request == FIONREAD => Ok(p.unread()),
        _ if f.kind.get() == Kind::Inotify && request == FIONREAD => Ok(0),
        _ if f.kind.get() == Kind::Epoll => fail(libc::EINVAL),
        _ => fail(libc::ENOTTY),
    }
}

/// `lseek`: what has no position stays where it is, or says so.
pub fn lseek(fd: i32, whence: i32) -> Answer {
    call::with(fd, Op::Set, |k, hold| {
        if !(libc::SEEK_SET..=libc::SEEK_HOLE).contains(&whence) {
            return fail(libc::EINVAL);
        }
        match hold.file(k).kind.get() {
            Kind::Random | Kind::Inotify => Ok(0),
            Kind::Epoll | Kind::EventFd | Kind::TimerFd | Kind::SignalFd => Ok(0),
            _ => fail(libc::ESPIPE),
        }
    })
}

/// `fsync` and its like.
pub fn sync(fd: i32) -> Answer {
    call::with(fd, Op::Refuse, |_, _| fail(libc::EINVAL))
}

/// `isatty`, `tcgetattr`.
pub fn not_a_terminal(fd: i32) -> Answer {
    call::with(fd, Op::Ask, |_, _| fail(libc::ENOTTY))
}

/// The device of anonymous files, as Linux numbers it on most machines.
const DEVICE: u64 = 8;

/// `fstat`.
///
/// # Safety
/// `out` is writable.
pub unsafe fn fstat(fd: i32, out: *mut libc::stat) -> Answer {
    call::with(fd, Op::Ask, |k, hold| {
        // SAFETY: all-zero is a valid `stat`.
        let mut st: libc::stat = unsafe { core::mem::zeroed() };
        if let Some(st) = fifo::stat(k, hold.file(k)) {
            // SAFETY: the caller's contract.
            unsafe { out.write(st) };
            return Ok(0);
        }
        let (mode, ino) = mode_and_inode(k.fds.files.get(hold.0), hold.0);
        st.st_dev = DEVICE;
        st.st_ino = ino;
        st.st_mode = mode;
        st.st_nlink = 1;
        st.st_blksize = 4096;
        // SAFETY: the caller's contract.
        unsafe { out.write(st) };
        Ok(0)
    })
}

fn mode_and_inode(f: &File, file: Handle<File>) -> (u32, u64) {
    // Both ends of a pipe are one inode.
    let pipe = u64::from(f.object.get()) + (1 << 20);
    match f.kind.get() {
        Kind::PipeReader | Kind::PipeWriter | Kind::PipeBoth => (libc::S_IFIFO | 0o600, pipe),
        Kind::Socket => (libc::S_IFSOCK | 0o777, u64::from(file.raw()) + (2 << 20)),
        Kind::Random => (libc::S_IFCHR | 0o666, 9),
        _ => (0o600, u64::from(file.raw()) + (2 << 20)),
    }
}

/// `fchmod` and `fchown` of a virtual descriptor: the mode of a UNIX socket is that of the path which it is bound to later.
pub fn change_mode(fd: i32, mode: Option<u32>) -> Answer {
    call::with(fd, Op::Set, |k, hold| {
        if let (Some(mode), Some(socket)) = (mode, hold.file(k).as_kind(Kind::Socket)) {
            socket::unix::bind::set_mode(k, socket, mode);
        }
        Ok(0)
    })
}
