//! A single-producer, single-consumer ring of bytes.
//!
//! Positions count bytes ever written and read and only grow. Because the ring is mapped twice in a row, any `len <= capacity`
//! bytes from any position are one slice. The producer may let the consumer take bytes that it has not published ([`crate::planned`]): until it publishes them it
//! must not use the ring otherwise, as the consumer's position may be beyond its own. Neither side trusts the other's position: one that is impossible is an error,
//! not an out-of-bounds access.

use crate::layout::Positions;
use crate::sync::Ordering;

/// The other side wrote an impossible position: the arena is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl core::fmt::Display for Damaged {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a ring of the arena has an impossible position")
    }
}

impl core::error::Error for Damaged {}

/// The writing side.
#[derive(Debug)]
pub struct Producer {
    positions: *const Positions,
    data: *mut u8,
    capacity: usize,
    head: u64,
}

/// The reading side.
#[derive(Debug)]
pub struct Consumer {
    positions: *const Positions,
    data: *const u8,
    capacity: usize,
    tail: u64,
    /// Up to here the producer has said what there is, or has published it.
    known: u64,
}

// SAFETY: a `Producer` is the only writer of its ring's head and free bytes, whichever thread holds it.
unsafe impl Send for Producer {}
// SAFETY: a `Consumer` is the only writer of its ring's tail, whichever thread holds it.
unsafe impl Send for Consumer {}

impl Producer {
    /// The producer of the ring at `data`.
    ///
    /// # Safety
    /// `positions` and `data[..2 * capacity]` (mapped twice) stay valid as long as this lives; there is no other producer.
    #[must_use]
    pub unsafe fn new(positions: *const Positions, data: *mut u8, capacity: usize) -> Self {
        // SAFETY: `positions` is valid by this function's contract.
        let head = unsafe { &*positions }.head.0.load(Ordering::Relaxed);
        Self { positions, data, capacity, head }
    }

    fn positions(&self) -> &Positions {
        // SAFETY: valid as long as `self` by `new`'s contract; all fields are atomics.
        unsafe { &*self.positions }
    }

    /// The number of free bytes.
    ///
    /// # Errors
    /// The consumer's position is impossible.
    pub fn free(&self) -> Result<usize, Damaged> {
        let used = self.head.wrapping_sub(self.positions().tail.0.load(Ordering::Acquire));
        if used > self.capacity as u64 { Err(Damaged) } else { Ok(self.capacity - used as usize) }
    }

    /// Space for `len` bytes, or `None` when there is less. The consumer sees the bytes after [`publish`](Self::publish).
    ///
    /// # Errors
    /// The consumer's position is impossible.
    pub fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, Damaged> {
        if len > self.free()? {
            return Ok(None);
        }
        let at = (self.head % self.capacity as u64) as usize;
        // SAFETY: `at < capacity` and `len <= capacity`, so the range lies in the doubly mapped ring; its bytes are free, so
        // the consumer does not read them until they are published.
        Ok(Some(unsafe { core::slice::from_raw_parts_mut(self.data.add(at), len) }))
    }

    /// Hands the first `len` reserved bytes to the consumer. The caller then opens the consumer's gate.
    pub fn publish(&mut self, len: usize) {
        debug_assert!(len <= self.capacity);
        self.head += len as u64;
        self.positions().head.0.store(self.head, Ordering::Release);
    }

    /// Continues where another process that shares this end, and does not use it now, has left off.
    pub fn catch_up(&mut self) {
        self.head = self.positions().head.0.load(Ordering::Relaxed);
    }

    /// Bytes ever published.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }
}

impl Consumer {
    /// The consumer of the ring at `data`.
    ///
    /// # Safety
    /// As for [`Producer::new`]; there is no other consumer.
    #[must_use]
    pub unsafe fn new(positions: *const Positions, data: *const u8, capacity: usize) -> Self {
        // SAFETY: `positions` is valid by this function's contract.
        let tail = unsafe { &*positions }.tail.0.load(Ordering::Relaxed);
        Self { positions, data, capacity, tail, known: tail }
    }

    fn positions(&self) -> &Positions {
        // SAFETY: valid as long as `self` by `new`'s contract; all fields are atomics.
        unsafe { &*self.positions }
    }

    /// All bytes that are ready to be consumed.
    ///
    /// The producer may be a hostile process that goes on writing to them: parse once, copy what must not change.
    ///
    /// # Errors
    /// The producer's position is impossible.
    pub fn readable(&self) -> Result<&[u8], Damaged> {
        let head = self.positions().head.0.load(Ordering::Acquire).max(self.known);
        self.at_tail(head.wrapping_sub(self.tail))
    }

    /// The next `len` bytes, which the producer has not published, but has said to be there. To be released as those that are ready.
    ///
    /// # Errors
    /// They are more than the ring has.
    pub fn planned(&mut self, len: u64) -> Result<&[u8], Damaged> {
        self.known = self.tail.saturating_add(len);
        self.at_tail(len)
    }

    fn at_tail(&self, len: u64) -> Result<&[u8], Damaged> {
        if len > self.capacity as u64 {
            return Err(Damaged);
        }
        let at = (self.tail % self.capacity as u64) as usize;
        // SAFETY: `at < capacity` and `len <= capacity`, so the range lies in the doubly mapped ring, whose memory stays
        // mapped whatever the producer does.
        Ok(unsafe { core::slice::from_raw_parts(self.data.add(at), len as usize) })
    }

    /// Whether the ring is empty.
    ///
    /// # Errors
    /// The producer's position is impossible.
    pub fn is_empty(&self) -> Result<bool, Damaged> {
        Ok(self.readable()?.is_empty())
    }

    /// Continues where another process that shares this end, and does not use it now, has left off.
    pub fn catch_up(&mut self) {
        self.tail = self.positions().tail.0.load(Ordering::Relaxed);
        self.known = self.tail;
    }

    /// Gives the first `len` bytes back to the producer. The caller then opens the producer's gate.
    pub fn release(&mut self, len: usize) {
        self.tail += len as u64;
        self.positions().tail.0.store(self.tail, Ordering::Release);
    }
}
