//! The few system calls that the standard library does not offer.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The result of a call that answers -1 for an error.
pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Memory with a descriptor, closed at exec, that may be sealed.
pub fn memfd(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is terminated.
    owned(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })
        .map(File::from)
}

/// The same that is written to at its end, as a node's for what its server prints.
pub fn printed(name: &CStr) -> io::Result<File> {
    let file = memfd(name)?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) })?;
    Ok(file)
}

/// A pipe, closed at exec: reading end, writing end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both are new and nobody else knows them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Waits until one of `fds` can be read, or for so long.
pub fn wait_readable(fds: [RawFd; 2], timeout_ms: i32) -> io::Result<()> {
    let mut fds = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the array is live and its length is given.
    match check(unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout_ms) }) {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other.map(drop),
    }
}

/// Takes the count out of an eventfd.
pub fn drain_eventfd(fd: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: the buffer is live; EAGAIN is fine.
    unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Whether a read would not block.
pub fn is_readable(fd: RawFd) -> io::Result<bool> {
    let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    // SAFETY: the array is live and its length is given.
    check(unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) }).map(|n| n > 0)
}

/// Whether the processor can fault on `cpuid`, and the kernel lets it.
#[must_use]
pub fn faults_on_cpuid() -> bool {
    const ARCH_SET_CPUID: libc::c_int = 0x1012;
    // SAFETY: takes no pointers; the instruction stays allowed, as it is.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, 1) == 0 }
}
