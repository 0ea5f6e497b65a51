//! The turn goes from one process to another.
//!
//! A process that does not have the turn sleeps: its carrier in here, its other kernel threads where they park. So everything that happens to
//! it (getting the turn, being ended) happens here, at a place where its state is whole.

use super::above::above;
use super::{admit, carrier, cores, cpu_burst, is_copy_wanted, output};
use crate::kernel::process::this;
use crate::kernel::{Kernel, kernel};
use crate::local::header;
use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering};
use skein_libos::process::ProcessHandle;

const SLEEP: u32 = 0;
const GO: u32 = 1;

/// Gives the turn to process `to`, with `k.current` its thread (or none: it must look for one), and sleeps until it is back with a thread of
/// this process.
pub fn hand_over(k: &Kernel, to: ProcessHandle) {
    cores::lead(k);
    cpu_burst::leaves(k);
    wake(k, to);
    sleep(k);
}

/// Wakes a process's carrier.
pub fn wake(k: &Kernel, to: ProcessHandle) {
    let p = k.processes.get(to);
    p.go.store(GO, Ordering::Release);
    sys::futex_wake(&p.go);
}

/// Sleeps until this process has the turn.
pub fn sleep(k: &Kernel) {
    let p = this();
    while p.go.load(Ordering::Acquire) == SLEEP {
        if carrier::hold(until_woken, &raw const p.go as usize) {
            above().restored(k);
        }
    }
    p.go.store(SLEEP, Ordering::Relaxed);
    cores::follow(k);
    cpu_burst::arrives(k);
    admit::catch_up();
    output::catch_up();
    header().carrier_tid.store(p.pid.get() as u32, Ordering::Relaxed);
    await_gone(k);
    above().obey(k);
}

extern "C" fn until_woken(go: usize) {
    // SAFETY: a process's word in the arena.
    let go = unsafe { &*(go as *const AtomicU32) };
    while go.load(Ordering::Acquire) == SLEEP {
        if is_copy_wanted() {
            above().copy_memory(kernel(), false);
        }
        sys::futex_wait(go, SLEEP);
    }
}

/// The process that had the turn before may have ended: others continue only when the kernel has released all its resources (above all locks of files).
/// go on.
fn await_gone(k: &Kernel) {
    let pid = k.gone.replace(0);
    if pid == 0 {
        return;
    }
    // SAFETY: a number, no memory.
    let pidfd = unsafe { sys::call(libc::SYS_pidfd_open, sys::args([pid as usize, 0])) };
    // No such process: init has seen to it already. No descriptor left: ask without one.
    let Ok(pidfd) = pidfd else { return await_reaped(pid) };
    let mut ask = skein_libos::abi::pollfd { fd: pidfd as i32, events: libc::POLLIN, revents: 0 };
    while ask.revents == 0 {
        // SAFETY: one live `pollfd`; no time limit.
        unsafe {
            sys::raw(libc::SYS_poll, sys::args([&raw mut ask as usize, 1, usize::MAX]));
        }
    }
    let _ = sys::close(pidfd as i32);
}

fn await_reaped(pid: i32) {
    // SAFETY: asks whether there is such a process.
    while unsafe { sys::raw(libc::SYS_kill, sys::args([pid as usize, 0])) } == 0 {
        let pause = skein_libos::abi::timespec { tv_sec: 0, tv_nsec: 50_000 };
        // SAFETY: a live `timespec`.
        unsafe { sys::raw(libc::SYS_nanosleep, sys::args([&raw const pause as usize, 0])) };
    }
}
