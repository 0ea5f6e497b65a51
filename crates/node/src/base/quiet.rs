//! Work on large files: in threads that everything else goes before, at the processor and at the disk.

use std::io;
use std::thread::{Builder, scope};

/// The lowest priority at the processor.
const NICE: i32 = 19;
/// `IOPRIO_WHO_PROCESS`, of which 0 is the calling thread.
const THREAD: libc::c_long = 1;
/// `IOPRIO_CLASS_IDLE` in its place: the disk when nobody else wants it.
const IDLE: libc::c_long = 3 << 13;

/// All others go before this thread from now on.
pub(super) fn lower() {
    // SAFETY: takes no pointers. 0 is the calling thread; should it fail, the work is only less polite.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, 0, IDLE) };
}

/// Does this in a thread that all others go before, and waits for it: an ordinary user's thread could not step forward again.
///
/// # Errors
/// No thread can be made.
pub(super) fn quietly<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    scope(|scope| {
        let thread = Builder::new().name("skein-base-read".into()).spawn_scoped(scope, || {
            lower();
            work()
        })?;
        thread.join().map_err(|_| io::Error::other("the thread that reads it panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the calling thread.
    fn priorities() -> (i32, i64) {
        // SAFETY: takes no pointers.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above.
        (nice, unsafe { libc::syscall(libc::SYS_ioprio_get, THREAD, 0) })
    }

    #[test]
    fn only_the_work_steps_back() {
        let before = priorities();
        assert_eq!(quietly(priorities).unwrap(), (NICE, IDLE));
        assert_eq!(priorities(), before);
    }
}
