//! Barriers: the last thread to arrive is the serial thread and wakes the others.

use super::block;
use crate::abi;
use crate::errno::{Errno, Result};
use crate::host::Host;
use crate::keys::Key;
use crate::thread::Wake;
use core::cell::Cell;

/// `pthread_barrier_t`, which has no static initialiser.
#[repr(C)]
pub struct Barrier {
    arrived: Cell<u32>,
    round: Cell<u32>,
    count: Cell<u32>,
    unused: [Cell<u32>; 5],
}

const _: () = assert!(size_of::<Barrier>() == 32);

/// `pthread_barrier_init`.
///
/// # Safety
/// `barrier` is the server's to write.
pub unsafe fn init(barrier: *mut Barrier, count: u32) -> Result<()> {
    // glibc's limit.
    if count == 0 || count > u32::MAX / 2 {
        return Err(Errno(abi::EINVAL));
    }
    // SAFETY: the server's own memory, of a barrier's size; all-zero is one that nobody came to.
    let barrier = unsafe {
        barrier.write_bytes(0, 1);
        &*barrier
    };
    barrier.count.set(count);
    Ok(())
}

impl Barrier {
    /// `pthread_barrier_wait`; answers whether the caller is the serial thread.
    pub fn wait(&self, k: &impl Host) -> bool {
        self.arrived.set(self.arrived.get() + 1);
        if self.arrived.get() == self.count.get() {
            self.arrived.set(0);
            self.round.set(self.round.get().wrapping_add(1));
            k.keys.wake(k, Key::of(k, self), u32::MAX, u32::MAX);
            return true;
        }
        let round = self.round.get();
        while block(k, Key::of(k, self), None) != Wake::Event && self.round.get() == round {}
        false
    }
}
