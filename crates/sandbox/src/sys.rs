//! Direct system calls for code that runs between fork and exec: no allocation, no locks, no libc function that keeps
//! state of its own. Errors are errno values.

use std::ffi::{CStr, c_long};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A system call's errno.
pub(super) type Errno = i32;

/// Makes a `Result` of the value of a libc wrapper of a system call.
pub(super) fn check(result: c_long) -> Result<c_long, Errno> {
    // SAFETY: __errno_location gives this thread's errno, which is always readable.
    if result == -1 { Err(unsafe { *libc::__errno_location() }) } else { Ok(result) }
}

/// Makes a `Result` of the value of a libc wrapper with an int result.
pub(super) fn check_int(result: libc::c_int) -> Result<libc::c_int, Errno> {
    check(c_long::from(result)).map(|_| result)
}

/// Forks without libc's fork handlers and locks: their copies may be held by threads that the child does not have.
///
/// # Safety
/// The child may only make system calls and touch memory that no other thread was changing, and must end in exec or
/// `exit`.
pub(super) unsafe fn fork(flags: u64, pidfd: Option<&mut RawFd>) -> Result<libc::pid_t, Errno> {
    // SAFETY: all zeroes is a valid clone_args: no flags, no addresses.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(pidfd) = pidfd {
        args.flags |= libc::CLONE_PIDFD as u64;
        args.pidfd = ptr::from_mut(pidfd) as u64;
    }
    // SAFETY: args is valid for its size and outlives the call; without CLONE_VM and a stack the child goes on with its
    // own copy of this stack, as after fork. The caller keeps to what the child may do.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>())
    })?;
    Ok(pid as libc::pid_t)
}

/// Ends this process without running exit handlers.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: _exit takes no pointers and does not return.
    unsafe { libc::_exit(code) }
}

/// Blocks all signals of this thread; gives the old mask.
pub(super) fn block_signals() -> u64 {
    set_signal_mask(u64::MAX)
}

/// Sets this thread's signal mask, past libc (which keeps two signals for itself); gives the old mask.
pub(super) fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: both masks are 8 bytes, the kernel's size of a signal set, and live through the call.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            size_of::<u64>(),
        );
    }
    before
}

/// Sets every signal's disposition to the default.
pub(super) fn reset_dispositions() {
    // The kernel's struct sigaction: handler, flags, restorer, mask. All zeroes is SIG_DFL without flags.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: the structure is as the kernel reads it. SIGKILL and SIGSTOP are refused, harmlessly.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const default,
                ptr::null_mut::<u8>(),
                size_of::<u64>(),
            );
        }
    }
}

/// Closes (or with `CLOSE_RANGE_CLOEXEC` in `flags`: closes at exec) descriptors `first..=last`.
pub(super) fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: takes no pointers; the caller forked and owns its descriptor table.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Sends one record; a node that is gone is noticed elsewhere.
pub(super) fn send(socket: RawFd, record: &[u8]) {
    // SAFETY: the pointer and length are those of a live slice.
    unsafe { libc::send(socket, record.as_ptr().cast(), record.len(), libc::MSG_NOSIGNAL) };
}

/// Sends one record with a descriptor.
pub(super) fn send_descriptor(
    socket: RawFd,
    record: &[u8],
    descriptor: RawFd,
) -> Result<(), Errno> {
    // Room for one control message with one descriptor, aligned as its header wants.
    let mut control = [0u64; 4];
    let mut part =
        libc::iovec { iov_base: record.as_ptr().cast_mut().cast(), iov_len: record.len() };
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the message and its parts are live; the control buffer has room for the one message that is written into it.
    let sent = unsafe {
        let bytes = size_of::<RawFd>() as u32;
        message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(descriptor);
        libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL)
    };
    check(sent as libc::c_long).map(drop)
}

/// A view of `path` without state: whether it has `security.capability`.
pub(super) fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in a zero byte; a null buffer of size 0 asks for the value's size.
    let size = unsafe {
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), ptr::null_mut(), 0)
    };
    size > 0
}

/// `mount(2)`; empty strings stand for null pointers.
pub(super) fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: libc::c_ulong,
    data: &CStr,
) -> Result<(), Errno> {
    let pointer = |text: &CStr| if text.is_empty() { ptr::null() } else { text.as_ptr() };
    // SAFETY: every pointer is null or to a terminated string that outlives the call.
    check_int(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), pointer(kind), flags, pointer(data).cast())
    })
    .map(drop)
}

/// Makes the mount at `path` and all below it read-only, keeping their other flags.
pub(super) fn make_read_only(path: &CStr) -> Result<(), Errno> {
    const AT_RECURSIVE: libc::c_int = 0x8000;
    const MOUNT_ATTR_RDONLY: u64 = 1;
    // struct mount_attr: attr_set, attr_clr, propagation, userns_fd.
    let attributes: [u64; 4] = [MOUNT_ATTR_RDONLY, 0, 0, 0];
    // SAFETY: the path is terminated, the attributes are as the kernel reads them, in the size given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            AT_RECURSIVE,
            &raw const attributes,
            size_of_val(&attributes),
        )
    })
    .map(drop)
}
