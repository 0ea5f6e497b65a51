//! Spin locks: no thread spins under a schedule of one running thread; a waiter blocks, and the lock is handed over.
//!
//! The word is glibc's: 1 is free, less is held; -1 is held and a thread may wait.

use super::block;
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use core::cell::Cell;

/// `pthread_spinlock_t`.
#[repr(transparent)]
pub struct Spin(Cell<i32>);

const FREE: i32 = 1;
const HELD: i32 = 0;
const WAITED: i32 = -1;

impl Spin {
    /// `pthread_spin_init`.
    pub fn init(&self) {
        self.0.set(FREE);
    }

    /// `pthread_spin_trylock`.
    pub fn try_lock(&self) -> Result<()> {
        if self.0.get() != FREE {
            return Err(Errno(abi::EBUSY));
        }
        self.0.set(HELD);
        Ok(())
    }

    /// `pthread_spin_lock`.
    pub fn lock(&self, k: &impl Host) {
        while self.try_lock().is_err() {
            self.0.set(WAITED);
            if block(k, Key::of(k, self), None) == Wake::Event {
                return;
            }
        }
    }

    /// `pthread_spin_unlock`.
    pub fn unlock(&self, k: &impl Host) {
        let handed_over =
            self.0.get() == WAITED && k.keys.wake_oldest(k, Key::of(k, self)).is_some();
        if !handed_over {
            self.0.set(FREE);
        }
    }
}
