//! Waiting at an address: what mutexes, condition variables, futexes, semaphores and joins are made of.

use crate::kernel::kernel;
use crate::thread::{Thread, Waiting};
use crate::turn::{self, Wake};
use skein_arena::list::List;
use skein_arena::pool::Handle;

const BUCKETS: usize = 1024;

/// Wait queues by address, first come first served. All-zero bytes are empty queues.
#[repr(C)]
pub struct KeyQueues {
    buckets: [List<Thread, Waiting>; BUCKETS],
}

/// An address that threads wait at; objects of the runtime's own use small odd numbers that are no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

impl Key {
    /// The key of an object of the server.
    pub fn of<T>(object: *const T) -> Self {
        Self(object as u64)
    }
}

impl KeyQueues {
    fn bucket(&self, key: Key) -> &List<Thread, Waiting> {
        // Fibonacci hashing: the upper bits of the product.
        let hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.ilog2());
        &self.buckets[hash as usize]
    }

    /// Blocks the turn's holder at `key` until woken or the deadline. `bits` select what wakes it (futex bitsets; all ones otherwise).
    pub fn wait(&self, key: Key, bits: u32, deadline_ns: Option<u64>) -> Wake {
        let k = kernel();
        let me = k.current();
        let this = k.this();
        this.key.set(key.0);
        this.key_bits.set(bits);
        self.bucket(key).push_back(&k.threads, me);
        let why = turn::suspend(deadline_ns);
        // `wake` has taken it out; a timeout or an interruption has not. A requeue may have changed the key.
        if why != Wake::Event {
            let key = Key(this.key.get());
            self.bucket(key).remove(&k.threads, me);
        }
        this.key.set(0);
        why
    }

    /// Wakes up to `most` threads at `key` that wait for one of `bits`, oldest first; answers how many.
    pub fn wake(&self, key: Key, most: u32, bits: u32) -> u32 {
        let mut woken = 0;
        self.each(key, |list, thread, t| {
            if woken == most {
                return false;
            }
            // One whose deadline has passed is runnable already and takes itself out.
            if t.key_bits.get() & bits != 0 && t.blocked() {
                list.remove(&kernel().threads, thread);
                turn::resume(thread, Wake::Event);
                woken += 1;
            }
            true
        });
        woken
    }

    /// Wakes the thread that has waited longest at `key`; answers which, to hand something over to it.
    pub fn wake_oldest(&self, key: Key) -> Option<Handle<Thread>> {
        let mut oldest = None;
        self.each(key, |list, thread, t| {
            if !t.blocked() {
                return true;
            }
            list.remove(&kernel().threads, thread);
            turn::resume(thread, Wake::Event);
            oldest = Some(thread);
            false
        });
        oldest
    }

    /// Moves up to `most` threads from `from` to `to`, oldest first; answers how many.
    pub fn requeue(&self, from: Key, to: Key, most: u32) -> u32 {
        let mut moved = 0;
        self.each(from, |list, thread, t| {
            if moved == most {
                return false;
            }
            if t.blocked() {
                let k = kernel();
                list.remove(&k.threads, thread);
                t.key.set(to.0);
                self.bucket(to).push_back(&k.threads, thread);
                moved += 1;
            }
            true
        });
        moved
    }

    /// Whether a thread waits at `key`.
    pub fn waited(&self, key: Key) -> bool {
        let mut found = false;
        self.each(key, |_, _, t| {
            found = t.blocked();
            !found
        });
        found
    }

    fn each(
        &self,
        key: Key,
        mut f: impl FnMut(&List<Thread, Waiting>, Handle<Thread>, &Thread) -> bool,
    ) {
        let k = kernel();
        let list = self.bucket(key);
        // The length bounds the walk: a requeue into the same bucket must not be seen again.
        let mut left = list.len();
        let mut at = list.front();
        while let Some(thread) = at {
            if left == 0 {
                return;
            }
            left -= 1;
            at = list.next(&k.threads, thread);
            let t = k.threads.get(thread);
            if t.key.get() == key.0 && !f(list, thread, t) {
                return;
            }
        }
    }
}
