//! The server's busy time between two waits for its node. By that the node decides whether both share a core
//! ([`super::cores`]).
//!
//! Its CPU time, not wall clock time: a server that waits for its core is not busy. Each measurement is a system call, so they are rare.

use crate::kernel::Kernel;
use crate::local::header;
use crate::sys;
use core::sync::atomic::Ordering;

/// One of this many bursts is measured: a prime, as a request often takes a server two or four.
const EVERY: u32 = 17;
/// The node is told the mean of this many.
const MEASURED: u32 = 16;

/// Input of the node arrived.
#[inline]
pub fn begins(k: &Kernel) {
    let s = &k.cpu_bursts;
    s.begun.set(s.begun.get().wrapping_add(1));
    if s.begun.get().is_multiple_of(EVERY) {
        s.measuring.set(true);
        s.since.set(cpu_time());
    }
}

/// The turn goes to another process.
#[inline]
pub(super) fn leaves(k: &Kernel) {
    let s = &k.cpu_bursts;
    if s.measuring.get() {
        s.used.set(s.used.get() + cpu_time().saturating_sub(s.since.get()));
    }
}

/// The turn has come from another process.
#[inline]
pub(super) fn arrives(k: &Kernel) {
    let s = &k.cpu_bursts;
    if s.measuring.get() {
        s.since.set(cpu_time());
    }
}

/// The server waits for its node.
#[inline]
pub fn ends(k: &Kernel) {
    let s = &k.cpu_bursts;
    if !s.measuring.get() {
        return;
    }
    leaves(k);
    s.measuring.set(false);
    s.measured.set(s.measured.get() + 1);
    if s.measured.get() == MEASURED {
        s.measured.set(0);
        let mean = (s.used.take() / u64::from(MEASURED)).max(1);
        header().burst_ns.store(mean, Ordering::Relaxed);
    }
}

/// Of the carrier, in ns.
#[cold]
fn cpu_time() -> u64 {
    let mut now = skein_libos::abi::timespec { tv_sec: 0, tv_nsec: 0 };
    let args = sys::args([libc::CLOCK_THREAD_CPUTIME_ID as usize, &raw mut now as usize]);
    // SAFETY: writes a local.
    unsafe { sys::raw(libc::SYS_clock_gettime, args) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
