//! signalfd: takes signals that are blocked, as `sigwait` does.

use crate::io::call;
use crate::io::call::Hold;
use crate::kernel::{Kernel, kernel};
use crate::signal;
use crate::turn;
use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::{Result, fail};
use skein_libos::file::buffers::Buffers;
use skein_libos::file::wait::wait_if_blocking;
use skein_libos::file::{self, File, Kind, ready};
use skein_sched::op::{Kind as Op, Object};

/// A signalfd.
#[repr(C)]
pub struct SignalFd {
    /// The signals that it takes.
    set: Cell<u64>,
    file: Link<File>,
    used: Cell<bool>,
}

// SAFETY: cells and a link.
unsafe impl ArenaObject for SignalFd {}

/// `signalfd4`.
pub fn create(fd: i32, set: u64, flags: i32) -> Result<usize> {
    if flags & !(libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) != 0 {
        return fail(libc::EINVAL);
    }
    if fd == -1 {
        let _turn = turn::enter(Object::Descriptors, Op::Create);
        return make(set, flags);
    }
    let changed = call::with(fd, Op::Set, |k, hold| {
        let Some(signals) = hold.file(k).as_kind::<SignalFd>(Kind::SignalFd) else {
            return fail(libc::EINVAL);
        };
        k.io.signalfds.get(signals).set.set(set);
        file::notify(k, Some(hold.0), ready::IN);
        Ok(fd as usize)
    });
    call::of_kind(fd, changed)
}

fn make(set: u64, flags: i32) -> Result<usize> {
    let k = kernel();
    let Some(signals) = k.io.signalfds.alloc() else { return fail(libc::ENFILE) };
    let s = k.io.signalfds.get(signals);
    s.set.set(set);
    let status = libc::O_RDWR | flags & libc::O_NONBLOCK;
    let cloexec = flags & libc::SFD_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::SignalFd, signals.raw(), status, cloexec)
        .inspect_err(|_| k.io.signalfds.free(signals))?;
    s.file.set(Some(file));
    s.used.set(true);
    Ok(fd as usize)
}

/// The last reference is gone.
pub fn release(k: &Kernel, signals: Handle<SignalFd>) {
    k.io.signalfds.get(signals).used.set(false);
    k.io.signalfds.free(signals);
}

/// A signal was sent: waiting threads look. As in Linux, each is an edge for every signalfd, whatever its set.
pub fn notify(k: &Kernel) {
    if k.io.signalfds.used() == 0 {
        return;
    }
    for signals in (1..=k.io.signalfds.high()).filter_map(Handle::from_raw) {
        let s = k.io.signalfds.get(signals);
        if s.used.get() {
            file::notify(k, s.file.get(), ready::IN);
        }
    }
}

/// Readiness: whether a signal waits for the calling thread.
pub fn mask(k: &Kernel, signals: Handle<SignalFd>) -> u32 {
    if signal::waits_for(k, k.io.signalfds.get(signals).set.get()) { ready::IN } else { 0 }
}

/// `struct signalfd_siginfo`, of which the rest is zero.
fn entry(info: &signal::Info) -> [u8; 128] {
    let mut bytes = [0; 128];
    let timer = info.code == libc::SI_TIMER;
    let words = [info.signo, info.errno, info.code];
    for (at, word) in words.iter().enumerate() {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let mut put = |at: usize, word: i32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    if timer {
        put(24, info.pid);
        put(32, info.uid);
    } else {
        put(12, info.pid);
        put(16, info.uid);
    }
    if info.signo == libc::SIGCHLD && info.code > 0 {
        put(40, info.value as i32);
    } else if info.code < 0 {
        put(44, info.value as i32);
        bytes[48..56].copy_from_slice(&info.value.to_ne_bytes());
    }
    bytes
}

/// Takes signals, one at least.
pub fn read(
    k: &Kernel,
    hold: &Hold,
    signals: Handle<SignalFd>,
    buffers: &mut Buffers<'_>,
) -> Result<usize> {
    const BYTES: usize = 128;
    if buffers.left() < BYTES {
        return fail(libc::EINVAL);
    }
    let mut done = 0;
    while buffers.left() >= BYTES {
        let set = k.io.signalfds.get(signals).set.get();
        if let Some(info) = signal::take_of(k, set) {
            // SAFETY: the server's buffers; one thread runs at a time.
            unsafe { buffers.scatter(&entry(&info)) };
            done += BYTES;
        } else if done > 0 {
            break;
        } else {
            wait_if_blocking(k, hold, ready::IN)?;
        }
    }
    Ok(done)
}
