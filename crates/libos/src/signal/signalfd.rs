//! signalfd: takes signals that are blocked, as `sigwait` does.

use super::{Info, take_of, waits_for};
use crate::abi;
use crate::errno::{Result, fail};
use crate::file::buffers::Buffers;
use crate::file::ops::FileOps;
use crate::file::wait::wait_if_blocking;
use crate::file::{self, File, Hold, Kind, handle, ready};
use crate::host::Host;
use crate::state::signal::SignalFd;
use skein_arena::pool::Handle;

/// `signalfd4` of -1: a new one.
///
/// # Errors
/// `EINVAL` for flags that there are not; `ENFILE`, `EMFILE`.
pub fn create<H: Host>(k: &H, set: u64, flags: i32) -> Result<usize> {
    check(flags)?;
    let Some(signals) = k.signals.fds.alloc() else { return fail(abi::ENFILE) };
    let s = k.signals.fds.get(signals);
    s.set.set(set);
    let status = abi::O_RDWR | flags & abi::O_NONBLOCK;
    let cloexec = flags & abi::SFD_CLOEXEC != 0;
    let (file, fd) = file::open(k, Kind::SignalFd, signals.raw(), status, cloexec)
        .inspect_err(|_| k.signals.fds.free(signals))?;
    s.file.set(Some(file));
    s.used.set(true);
    Ok(fd as usize)
}

/// `signalfd4` of one that there is: it takes other signals from now on.
///
/// # Errors
/// `EINVAL` for flags that there are not, and when it is no signalfd.
pub fn change<H: Host>(k: &H, hold: &Hold<'_, H>, set: u64) -> Result<()> {
    let Some(signals) = hold.file(k).as_kind::<SignalFd>(Kind::SignalFd) else {
        return fail(abi::EINVAL);
    };
    k.signals.fds.get(signals).set.set(set);
    file::notify(k, Some(hold.0), ready::IN);
    Ok(())
}

/// Refuses flags of `signalfd4` that there are not.
///
/// # Errors
/// `EINVAL`.
pub fn check(flags: i32) -> Result<()> {
    if flags & !(abi::SFD_CLOEXEC | abi::SFD_NONBLOCK) == 0 { Ok(()) } else { fail(abi::EINVAL) }
}

/// A new signal waits: waiting threads look. As in Linux, each is an edge for every signalfd, whatever its set.
pub(super) fn notify<H: Host>(k: &H) {
    if k.signals.fds.used() == 0 {
        return;
    }
    for signals in (1..=k.signals.fds.high()).filter_map(Handle::from_raw) {
        let s = k.signals.fds.get(signals);
        if s.used.get() {
            file::notify(k, s.file.get(), ready::IN);
        }
    }
}

/// `struct signalfd_siginfo`, of which the rest is zero.
fn entry(info: &Info) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let timer = info.code == abi::SI_TIMER;
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
    if info.signo == abi::SIGCHLD && info.code > 0 {
        put(40, info.value as i32);
    } else if info.code < 0 {
        put(44, info.value as i32);
        bytes[48..56].copy_from_slice(&info.value.to_ne_bytes());
    }
    bytes
}

/// Bytes of one signal.
const ENTRY_BYTES: usize = 128;

/// The functions of a signalfd.
pub struct Ops;

impl<H: Host> FileOps<H> for Ops {
    /// Whether a signal waits for the calling thread.
    fn mask(&self, k: &H, file: &File) -> u32 {
        let s: &SignalFd = k.signals.fds.get(handle(file.object.get()));
        if waits_for(k, s.set.get()) { ready::IN } else { 0 }
    }

    fn release(&self, k: &H, file: Handle<File>) {
        let signals = handle(k.fds.files.get(file).object.get());
        k.signals.fds.get(signals).used.set(false);
        k.signals.fds.free(signals);
    }

    /// Takes signals, one at least.
    fn read(&self, k: &H, hold: &Hold<'_, H>, buffers: &mut Buffers<'_>) -> Result<usize> {
        if buffers.left() < ENTRY_BYTES {
            return fail(abi::EINVAL);
        }
        let s: &SignalFd = k.signals.fds.get(handle(hold.file(k).object.get()));
        let mut done = 0;
        while buffers.left() >= ENTRY_BYTES {
            if let Some(info) = take_of(k, s.set.get()) {
                // SAFETY: the server's buffers; one thread runs at a time.
                unsafe { buffers.scatter(&entry(&info)) };
                done += ENTRY_BYTES;
            } else if done > 0 {
                break;
            } else {
                wait_if_blocking(k, hold, ready::IN)?;
            }
        }
        Ok(done)
    }

    fn stays(&self) -> bool {
        true
    }
}
