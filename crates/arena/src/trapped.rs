//! Calls that came through the safety net, counted by system call number. Each costs a signal, so no server's hot path should make one. A second set of
//! counters is for calls from replaced places, which cost no signal.
//!
//! The runtime counts; a node reads plain numbers that it need not trust. The numbers behind the table of system calls are instructions.

use crate::sync::{AtomicU64, Ordering};

/// Room for every number that Linux has, and some spare.
pub const PLACES: usize = 512;
/// The last numbers are no system calls of x86-64. This one stands for any number without a counter of its own.
pub const OTHER: usize = PLACES - 1;
/// Reads of the time stamp counter.
pub const RDTSC: usize = PLACES - 2;
/// `cpuid`.
pub const CPUID: usize = PLACES - 3;
/// 32-bit system calls.
pub const INT80: usize = PLACES - 4;

/// The counters.
#[repr(C)]
#[derive(Debug)]
pub struct Trapped([AtomicU64; PLACES]);

impl Trapped {
    /// Adds one to a counter; a number beyond the last counter counts as [`OTHER`].
    #[inline]
    pub fn note(&self, place: usize) {
        self.0[place.min(OTHER)].fetch_add(1, Ordering::Relaxed);
    }

    /// All counters that are not zero, as number and count.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let count = |place: &AtomicU64| place.load(Ordering::Relaxed);
        self.0.iter().map(count).enumerate().filter(|(_, n)| *n != 0)
    }
}
