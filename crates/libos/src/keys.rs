//! Waiting at an address: the base of mutexes, condition variables, futexes, semaphores and joins.

pub mod records;
use crate::host::{Host, HostThread};
use crate::state::keys::BUCKETS;
pub use crate::state::keys::KeyQueues;
use crate::thread::{Life, Waiting, Wake};
use core::cell::Cell;
use skein_arena::bytes::{Chunk, Chunks};
use skein_arena::list::List;
use skein_arena::pool::Handle;

/// Addresses that a thread may wait at: Linux's `FUTEX_WAITV_MAX`.
pub const MAX_SEVERAL: usize = 128;
/// Where threads queue that wait at several addresses.
const SEVERAL: Key = Key::of_runtime(4, 0);

/// The addresses that a thread waits at, in a chunk of its own.
#[repr(C)]
struct Several {
    count: Cell<u32>,
    /// The address at which it was woken.
    hit: Cell<u32>,
    keys: [Cell<u64>; MAX_SEVERAL],
}

fn several(chunks: &Chunks, chunk: Handle<Chunk>) -> &Several {
    const { assert!(size_of::<Several>() <= size_of::<Chunk>()) };
    // SAFETY: a zeroed page that belongs to the thread; cells; the arena is never unmapped.
    unsafe { &*core::ptr::from_ref(chunks.get(chunk)).cast::<Several>() }
}

/// An address that threads wait at, with its process; objects of the runtime's own use odd numbers of no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

/// Bits of an address; above them is the process.
const ADDRESS_BITS: u32 = 48;

/// For shared memory: the region instead of a process, and the offset instead of an address.
const IN_SHARED: u64 = 1 << 63;

impl Key {
    /// The key of an object of the server's, at this address of the turn's holder's process: the same address is another object in another
    /// process, unless the memory is shared.
    #[inline]
    pub fn of<T>(k: &impl Host, object: *const T) -> Self {
        if let Some((region, offset)) = k.in_shared_memory(object as usize) {
            return Self(IN_SHARED | u64::from(region) << ADDRESS_BITS | offset as u64);
        }
        Self(object as u64 | u64::from(k.process()) << ADDRESS_BITS)
    }

    /// The key of one of the runtime's own objects: its kind, below 16, and number.
    pub const fn of_runtime(kind: u32, raw: u32) -> Self {
        // An odd number of no process.
        Self((kind as u64) << 32 | (raw as u64) << 1 | 1)
    }
}

impl<T: HostThread> KeyQueues<T> {
    fn bucket(&self, key: Key) -> &List<T, Waiting> {
        // Fibonacci hashing: the upper bits of the product.
        let hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.ilog2());
        &self.buckets[hash as usize]
    }

    /// Blocks the turn's holder at `key` until woken or the deadline. `bits` select the wake-ups (futex bitsets; all ones otherwise).
    pub fn wait(
        &self,
        k: &impl Host<Thread = T>,
        key: Key,
        bits: u32,
        deadline_ns: Option<u64>,
    ) -> Wake {
        let me = k.current();
        let this = k.this();
        this.key.set(key.0);
        this.key_bits.set(bits);
        self.bucket(key).push_back(&k.threads, me);
        let why = k.suspend(deadline_ns);
        // `wake` has taken it out; a timeout or an interruption has not. A requeue may have changed the key.
        if why != Wake::Event {
            let key = Key(this.key.get());
            self.bucket(key).remove(&k.threads, me);
        }
        this.key.set(0);
        why
    }

    /// Removes a thread that never runs again from its queue.
    pub fn abandon(&self, k: &impl Host<Thread = T>, thread: Handle<T>) {
        let t = k.threads.get(thread);
        // One that was woken has been taken out.
        let able = matches!(t.life.get(), Life::Runnable | Life::Stopped);
        let woken = able && t.wake.get() == Wake::Event;
        if t.key.get() != 0 && t.life.get() != Life::Running && !woken {
            self.bucket(Key(t.key.get())).remove(&k.threads, thread);
        }
        t.key.set(0);
        self.forget_several(k, t);
    }

    /// Wakes up to `most` threads at `key` that wait for one of `bits`, oldest first; answers how many.
    pub fn wake(&self, k: &impl Host<Thread = T>, key: Key, most: u32, bits: u32) -> u32 {
        let mut woken = 0;
        self.each(k, key, |list, thread, t| {
            if woken == most {
                return false;
            }
            // A thread whose deadline has passed is runnable already and removes itself.
            if t.key_bits.get() & bits != 0 && t.blocked() {
                list.remove(&k.threads, thread);
                k.resume(thread, Wake::Event);
                woken += 1;
            }
            true
        });
        if woken < most && self.several.get() > 0 {
            woken += self.wake_several(k, key, most - woken);
        }
        woken
    }

    /// Blocks the turn's holder at all of `keys`; answers which one it was woken at. `None` when there is no memory.
    pub fn wait_at_several(
        &self,
        k: &impl Host<Thread = T>,
        keys: &[Key],
        deadline_ns: Option<u64>,
    ) -> Option<(Wake, usize)> {
        let chunk = k.chunks.alloc()?;
        let at = several(&k.chunks, chunk);
        for (to, key) in at.keys.iter().zip(keys) {
            to.set(key.0);
        }
        at.count.set(keys.len() as u32);
        k.this().several.set(Some(chunk));
        self.several.set(self.several.get() + 1);
        let why = self.wait(k, SEVERAL, u32::MAX, deadline_ns);
        let hit = at.hit.get() as usize;
        self.forget_several(k, k.this());
        Some((why, hit))
    }

    fn forget_several(&self, k: &impl Host<Thread = T>, t: &T) {
        if let Some(chunk) = t.several.take() {
            k.chunks.free(chunk);
            self.several.set(self.several.get() - 1);
        }
    }

    #[cold]
    fn wake_several(&self, k: &impl Host<Thread = T>, key: Key, most: u32) -> u32 {
        let mut woken = 0;
        self.each(k, SEVERAL, |list, thread, t| {
            if woken == most {
                return false;
            }
            let Some(chunk) = t.several.get() else { return true };
            let at = several(&k.chunks, chunk);
            let keys = &at.keys[..at.count.get() as usize];
            if t.blocked()
                && let Some(hit) = keys.iter().position(|at| at.get() == key.0)
            {
                at.hit.set(hit as u32);
                list.remove(&k.threads, thread);
                k.resume(thread, Wake::Event);
                woken += 1;
            }
            true
        });
        woken
    }

    /// Wakes the thread that has waited longest at `key`; answers it, so that an object can be handed over to it.
    pub fn wake_oldest(&self, k: &impl Host<Thread = T>, key: Key) -> Option<Handle<T>> {
        let mut oldest = None;
        self.each(k, key, |list, thread, t| {
            if !t.blocked() {
                return true;
            }
            list.remove(&k.threads, thread);
            k.resume(thread, Wake::Event);
            oldest = Some(thread);
            false
        });
        oldest
    }

    /// Wakes the thread among those selected that has waited longest at `key`.
    pub fn wake_first(
        &self,
        k: &impl Host<Thread = T>,
        key: Key,
        meant: impl Fn(&T) -> bool,
    ) -> Option<Handle<T>> {
        let mut first = None;
        self.each(k, key, |list, thread, t| {
            if !t.blocked() || !meant(t) {
                return true;
            }
            list.remove(&k.threads, thread);
            k.resume(thread, Wake::Event);
            first = Some(thread);
            false
        });
        first
    }

    /// Moves up to `most` threads from `from` to `to`, oldest first; answers how many.
    pub fn requeue(&self, k: &impl Host<Thread = T>, from: Key, to: Key, most: u32) -> u32 {
        let mut moved = 0;
        self.each(k, from, |list, thread, t| {
            if moved == most {
                return false;
            }
            if t.blocked() {
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
    pub fn waited(&self, k: &impl Host<Thread = T>, key: Key) -> bool {
        let mut found = false;
        self.each(k, key, |_, _, t| {
            found = t.blocked();
            !found
        });
        found
    }

    fn each(
        &self,
        k: &impl Host<Thread = T>,
        key: Key,
        mut f: impl FnMut(&List<T, Waiting>, Handle<T>, &T) -> bool,
    ) {
        let list = self.bucket(key);
        // The length bounds the walk: a requeue into the same bucket must not be seen again.
        for (thread, t) in list.iter(&k.threads).take(list.len() as usize) {
            if t.key.get() == key.0 && !f(list, thread, t) {
                return;
            }
        }
    }
}
