//! Threads that wait for files.

use super::{File, Hold, ready};
use crate::abi;
use crate::errno::{RESTART, Result, fail};
use crate::host::Host;
use crate::keys::Key;
pub use crate::state::file::Wait;
use crate::thread::{Thread, Wake};
use skein_arena::pool::{Handle, Link};

/// Signals, as waits know them, for every host: `above.rs` asks the room of signals, which is above this one.
pub trait Signalled: Host {
    /// Whether the turn's holder must run a handler before it may block.
    fn signal_is_due(&self) -> bool;
}

/// Whether a call that does not wait and found nothing looks again: as in Linux a signal that its own mask lets in comes first.
///
/// # Errors
/// `EINTR` when a handler has run.
pub fn looks_again<H: Host>(k: &H) -> Result<bool> {
    if !k.signal_is_due() {
        return Ok(false);
    }
    if k.interrupted(false) { Ok(true) } else { fail(abi::EINTR) }
}

impl Wait {
    /// Resumes the thread. Answers whether it was waiting.
    #[inline]
    pub(super) fn resume<H: Host>(&self, k: &H) -> bool {
        k.resume(Handle::from_raw(self.thread.get()).expect("a waiting thread"), Wake::Event)
    }
}

/// Removes the waits of a thread that never runs again.
pub fn abandon<H: Host>(k: &H, thread: &Thread) {
    let set = WaitSet::default();
    set.head.set(thread.waits.take());
    set.clear(k);
}

/// The files that one call waits for.
#[derive(Default)]
pub struct WaitSet {
    head: Link<Wait>,
}

impl WaitSet {
    /// Waits for `events` (errors and hang-ups always) of `file`, too.
    pub fn add<H: Host>(
        &self,
        k: &H,
        file: Handle<File>,
        events: u32,
        exclusive: bool,
    ) -> Result<()> {
        let Some(wait) = k.fds.waits.alloc() else { return fail(abi::ENOMEM) };
        let w = k.fds.waits.get(wait);
        w.thread.set(k.current.get());
        w.file.set(Some(file));
        w.events.set(events | ready::ERR | ready::HUP);
        w.exclusive.set(exclusive);
        w.next.set(self.head.get());
        self.head.set(Some(wait));
        super::add_ref(k, file);
        k.fds.files.get(file).waits.push_back(&k.fds.waits, wait);
        Ok(())
    }

    /// Waits for no file any more.
    pub fn clear<H: Host>(&self, k: &H) {
        while let Some(wait) = self.head.take() {
            let w = k.fds.waits.get(wait);
            self.head.set(w.next.get());
            let file = w.file.get().expect("a wait's file");
            k.fds.files.get(file).waits.remove(&k.fds.waits, wait);
            k.fds.waits.free(wait);
            super::drop_ref(k, file);
        }
    }

    /// Blocks until a file may be ready or the deadline.
    pub fn block<H: Host>(&self, k: &H, deadline_ns: Option<u64>) -> Wake {
        // The thread records its waits while it is blocked, because its process may end meanwhile.
        k.this().waits.set(self.head.get());
        let why = block(k, deadline_ns);
        k.this().waits.set(None);
        self.clear(k);
        why
    }
}

/// Blocks the turn's holder at a cancellation point.
pub fn block<H: Host>(k: &H, deadline_ns: Option<u64>) -> Wake {
    let this = k.this();
    if this.cancel_pending() {
        return Wake::Interrupted;
    }
    if deadline_ns.is_some_and(|at| at <= k.now_ns.get()) {
        k.yield_now();
        return Wake::Timeout;
    }
    this.at_cancel_point.set(true);
    let why = k.suspend(deadline_ns);
    this.at_cancel_point.set(false);
    why
}

/// Blocks at an address until woken. `EAGAIN` after the deadline, `EINTR` or [`RESTART`] when interrupted.
pub fn wait_at<H: Host>(k: &H, key: Key, deadline_ns: Option<u64>) -> Result<()> {
    let this = k.this();
    if this.cancel_pending() {
        return fail(abi::EINTR);
    }
    this.at_cancel_point.set(true);
    let why = k.keys.wait(k, key, u32::MAX, deadline_ns);
    this.at_cancel_point.set(false);
    match why {
        Wake::Event => Ok(()),
        Wake::Timeout => fail(abi::EAGAIN),
        Wake::Interrupted if deadline_ns.is_none() => Err(RESTART),
        Wake::Interrupted => fail(abi::EINTR),
    }
}

/// As [`wait`], without a limit, but `EAGAIN` when calls on the file do not block.
pub fn wait_if_blocking<H: Host>(k: &H, hold: &Hold<'_, H>, events: u32) -> Result<()> {
    if hold.file(k).nonblocking() {
        return fail(abi::EAGAIN);
    }
    wait(k, hold.0, events, false, None)
}

/// Blocks until `file` may be ready for `events`. `EAGAIN` after the deadline, `EINTR` or [`RESTART`] when interrupted.
pub fn wait<H: Host>(
    k: &H,
    file: Handle<File>,
    events: u32,
    exclusive: bool,
    deadline_ns: Option<u64>,
) -> Result<()> {
    let set = WaitSet::default();
    set.add(k, file, events, exclusive)?;
    match set.block(k, deadline_ns) {
        Wake::Event => Ok(()),
        Wake::Timeout => fail(abi::EAGAIN),
        // As in Linux a call with a time limit is never done again.
        Wake::Interrupted if deadline_ns.is_none() => Err(RESTART),
        Wake::Interrupted => fail(abi::EINTR),
    }
}
