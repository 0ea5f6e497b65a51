//! Readers-writer locks: readers first unless the lock's kind prefers writers, as glibc's.
//!
//! Released locks are handed over: to all waiting readers, or to the oldest writer. Of glibc's layout the kind is kept at its place, because the static
//! initialisers set it; the rest is all-zero when fresh.

use super::{Until, block, deadline, me};
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use core::cell::Cell;

/// `pthread_rwlock_t`.
#[repr(C)]
pub struct RwLock {
    readers: Cell<u32>,
    /// Threads that are blocked or were just woken: when there are none, an unlock need not look for any.
    waiting: Cell<u32>,
    unused: [Cell<u32>; 4],
    /// The writer's thread id, at glibc's place.
    writer: Cell<u32>,
    unused_shared: [Cell<u32>; 5],
    kind: Cell<u32>,
    unused_end: Cell<u32>,
}

const _: () = assert!(size_of::<RwLock>() == 56);
const _: () = assert!(core::mem::offset_of!(RwLock, writer) == 24);
const _: () = assert!(core::mem::offset_of!(RwLock, kind) == 48);

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`, the only kind that prefers writers.
const PREFER_WRITER: u32 = 2;

/// `pthread_rwlock_init`, of this `PTHREAD_RWLOCK_` kind.
///
/// # Safety
/// `lock` is the server's to write.
pub unsafe fn init(lock: *mut RwLock, kind: i32) {
    // SAFETY: the server's own memory, of a lock's size; all-zero is one.
    let lock = unsafe {
        lock.write_bytes(0, 1);
        &*lock
    };
    lock.kind.set(kind as u32);
}

impl RwLock {
    /// Where readers wait.
    fn readers_key(&self, k: &impl Host) -> Key {
        Key::of(k, &raw const self.readers)
    }

    /// Where writers wait.
    fn writers_key(&self, k: &impl Host) -> Key {
        Key::of(k, &raw const self.writer)
    }

    fn prefers_writers(&self) -> bool {
        self.kind.get() == PREFER_WRITER
    }

    fn writer_waits(&self, k: &impl Host) -> bool {
        self.waiting.get() != 0 && k.keys.waited(k, self.writers_key(k))
    }

    fn take_read(&self, k: &impl Host) -> Result<()> {
        if self.writer.get() != 0 || self.prefers_writers() && self.writer_waits(k) {
            return Err(Errno(abi::EBUSY));
        }
        let readers = self.readers.get().checked_add(1).ok_or(Errno(abi::EAGAIN))?;
        self.readers.set(readers);
        Ok(())
    }

    fn take_write(&self, me: u32) -> Result<()> {
        if self.writer.get() != 0 || self.readers.get() != 0 {
            return Err(Errno(abi::EBUSY));
        }
        self.writer.set(me);
        Ok(())
    }

    /// `pthread_rwlock_tryrdlock`.
    pub fn try_read(&self, k: &impl Host) -> Result<()> {
        self.take_read(k)
    }

    /// `pthread_rwlock_trywrlock`.
    pub fn try_write(&self, k: &impl Host) -> Result<()> {
        self.take_write(me(k))
    }

    /// `pthread_rwlock_rdlock` and its timed forms.
    pub fn read(&self, k: &impl Host, until: Until<'_>) -> Result<()> {
        self.acquire(k, until, self.readers_key(k), |lock, _| lock.take_read(k))
    }

    /// `pthread_rwlock_wrlock` and its timed forms.
    pub fn write(&self, k: &impl Host, until: Until<'_>) -> Result<()> {
        self.acquire(k, until, self.writers_key(k), Self::take_write)
    }

    fn acquire(
        &self,
        k: &impl Host,
        until: Until<'_>,
        key: Key,
        take: impl Fn(&Self, u32) -> Result<()>,
    ) -> Result<()> {
        let deadline_ns = deadline(k, until)?;
        let me = me(k);
        if self.writer.get() == me {
            return Err(Errno(abi::EDEADLK));
        }
        loop {
            match take(self, me) {
                Err(Errno(abi::EBUSY)) => {}
                done => return done,
            }
            self.waiting.set(self.waiting.get() + 1);
            let why = block(k, key, deadline_ns);
            self.waiting.set(self.waiting.get() - 1);
            match why {
                // Handed over.
                Wake::Event => return Ok(()),
                Wake::Timeout => {
                    // A writer that gives up may have kept readers out.
                    self.pass_on(k);
                    return Err(Errno(abi::ETIMEDOUT));
                }
                Wake::Interrupted => {}
            }
        }
    }

    /// `pthread_rwlock_unlock`.
    pub fn unlock(&self, k: &impl Host) {
        if self.writer.get() == me(k) {
            self.writer.set(0);
        } else {
            self.readers.set(self.readers.get().saturating_sub(1));
        }
        self.pass_on(k);
    }

    /// Lets in the threads that may enter now.
    fn pass_on(&self, k: &impl Host) {
        if self.waiting.get() == 0 || self.writer.get() != 0 {
            return;
        }
        if !(self.prefers_writers() && self.writer_waits(k)) {
            let woken = k.keys.wake(k, self.readers_key(k), u32::MAX, u32::MAX);
            self.readers.set(self.readers.get() + woken);
        }
        if self.readers.get() == 0
            && let Some(next) = k.keys.wake_oldest(k, self.writers_key(k))
        {
            self.writer.set(k.threads.get(next).tid.get());
        }
    }
}
