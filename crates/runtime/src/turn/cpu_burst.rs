//! How long the server is busy from one time that it waits for its node to the next. By that the node decides whether both are to share a core
//! ([`super::cores`]).
//!
//! Its CPU time, not what a clock on the wall says: a server that waits for its core is not busy. A system call a look, so only now and then.

use crate::kernel::Kernel;
use crate::local::header;
use crate::sys;
use core::sync::atomic::Ordering;

/// Of so many bursts one is measured: a prime, as a request often takes a server two or four.
const EVERY: u32 = 17;
/// The mean of so many is what the node is told.
const MEASURED: u32 = 16;

/// There is something from the node.
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
