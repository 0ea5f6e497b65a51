//! Sleeping at words of the arena, and waking who sleeps there in a server's processes.

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word has this value, and no longer than `most`, which is less than a second; false when it was not woken.
pub fn wait(word: &AtomicU32, value: u32, most: Duration) -> bool {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    // SAFETY: a live word and time; a wait that other processes end.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout)
    };
    woken == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes all that sleep there.
pub fn wake(word: &AtomicU32) {
    // SAFETY: a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
