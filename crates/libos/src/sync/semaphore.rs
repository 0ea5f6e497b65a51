//! Semaphores: a post with a waiter gives it the token; the value counts only tokens that no thread waits for.

use super::{Until, block_cancellably, deadline};
use crate::abi;
use crate::errno::{Errno, RESTART, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use core::cell::Cell;

/// `sem_t`: glibc's value and number of waiters, which no static initialiser sets.
#[repr(C)]
pub struct Semaphore {
    value: Cell<u32>,
    waiters: Cell<u32>,
    unused: [Cell<u32>; 6],
}

const _: () = assert!(size_of::<Semaphore>() == 32);

/// `SEM_VALUE_MAX`.
const MOST: u32 = i32::MAX as u32;

/// `sem_init`.
///
/// # Safety
/// `sem` is the server's to write.
pub unsafe fn init(sem: *mut Semaphore, value: u32) -> Result<()> {
    if value > MOST {
        return Err(Errno(abi::EINVAL));
    }
    // SAFETY: the server's own memory, of a semaphore's size; all-zero is one.
    let sem = unsafe {
        sem.write_bytes(0, 1);
        &*sem
    };
    sem.value.set(value);
    Ok(())
}

impl Semaphore {
    /// `sem_trywait`.
    pub fn try_wait(&self) -> Result<()> {
        let value = self.value.get().checked_sub(1).ok_or(Errno(abi::EAGAIN))?;
        self.value.set(value);
        Ok(())
    }

    /// `sem_wait` and its timed forms: cancellation points even when there is a token.
    pub fn wait(&self, k: &impl Host, until: Until<'_>) -> Result<()> {
        let deadline_ns = deadline(k, until)?;
        k.test_cancel();
        loop {
            if self.try_wait().is_ok() {
                return Ok(());
            }
            match self.block(k, deadline_ns) {
                Err(RESTART) => {}
                done => return done,
            }
        }
    }

    /// Waits for a token; [`RESTART`] when the wait must be repeated.
    fn block(&self, k: &impl Host, deadline_ns: Option<u64>) -> Result<()> {
        self.waiters.set(self.waiters.get() + 1);
        let why = block_cancellably(k, Key::of(k, self), deadline_ns);
        if why == Wake::Event {
            // The token is ours, and a thread that is cancelled now takes it along to its next cancellation point.
            return Ok(());
        }
        self.waiters.set(self.waiters.get() - 1);
        if why == Wake::Timeout {
            return Err(Errno(abi::ETIMEDOUT));
        }
        k.test_cancel();
        let again = k.interrupted(deadline_ns.is_none());
        Err(if again { RESTART } else { Errno(abi::EINTR) })
    }

    /// `sem_post`.
    pub fn post(&self, k: &impl Host) -> Result<()> {
        if self.waiters.get() != 0 && k.keys.wake_oldest(k, Key::of(k, self)).is_some() {
            // The waiter cannot run before this.
            self.waiters.set(self.waiters.get() - 1);
            return Ok(());
        }
        if self.value.get() >= MOST {
            return Err(Errno(abi::EOVERFLOW));
        }
        self.value.set(self.value.get() + 1);
        Ok(())
    }

    /// `sem_getvalue`.
    pub fn value(&self) -> i32 {
        self.value.get() as i32
    }
}
