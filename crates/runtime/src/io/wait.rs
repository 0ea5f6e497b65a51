//! Threads that wait for files.

use crate::io::file::{File, Hold, OnFile, ready};
use crate::kernel::Kernel;
use crate::thread::Thread;
use crate::turn;
use core::cell::Cell;
use skein_arena::list::{In, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::RESTART;
use skein_libos::errno::{Result, fail};
use skein_libos::keys::Key;
use skein_libos::thread::Wake;

/// A thread that waits for a file.
#[repr(C)]
pub struct Wait {
    node: Node<Wait>,
    /// The thread.
    pub thread: Link<Thread>,
    file: Link<File>,
    /// The next wait of the same call (`poll`).
    next: Link<Wait>,
    /// What it waits for.
    pub events: Cell<u32>,
    /// One of these is enough for an event.
    pub exclusive: Cell<bool>,
}

// SAFETY: links and cells; all-zero is a wait of no thread.
unsafe impl ArenaObject for Wait {}
impl In<OnFile> for Wait {
    fn node(&self) -> &Node<Wait> {
        &self.node
    }
}

/// Takes back the waits of a thread that never runs again.
pub fn abandon(k: &Kernel, thread: &Thread) {
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
    pub fn add(&self, k: &Kernel, file: Handle<File>, events: u32, exclusive: bool) -> Result<()> {
        let Some(wait) = k.io.waits.alloc() else { return fail(libc::ENOMEM) };
        let w = k.io.waits.get(wait);
        w.thread.set(Some(k.current()));
        w.file.set(Some(file));
        w.events.set(events | ready::ERR | ready::HUP);
        w.exclusive.set(exclusive);
        w.next.set(self.head.get());
        self.head.set(Some(wait));
        crate::io::file::add_ref(k, file);
        k.io.files.get(file).waits.push_back(&k.io.waits, wait);
        Ok(())
    }

    /// Waits for no file any more.
    pub fn clear(&self, k: &Kernel) {
        while let Some(wait) = self.head.take() {
            let w = k.io.waits.get(wait);
            self.head.set(w.next.get());
            let file = w.file.get().expect("a wait's file");
            k.io.files.get(file).waits.remove(&k.io.waits, wait);
            k.io.waits.free(wait);
            crate::io::file::drop_ref(k, file);
        }
    }

    /// Blocks until a file may be ready or the deadline.
    pub fn block(&self, k: &Kernel, deadline_ns: Option<u64>) -> Wake {
        // The thread knows its waits while it is blocked: its process may end meanwhile.
        k.this().waits.set(self.head.get());
        let why = block(k, deadline_ns);
        k.this().waits.set(None);
        self.clear(k);
        why
    }
}

/// Blocks the turn's holder at a cancellation point.
pub fn block(k: &Kernel, deadline_ns: Option<u64>) -> Wake {
    let this = k.this();
    if this.cancel_asked.get() && !this.cancel_off.get() && !this.exiting.get() {
        return Wake::Interrupted;
    }
    if deadline_ns.is_some_and(|at| at <= k.now_ns.get()) {
        turn::yield_now();
        return Wake::Timeout;
    }
    this.at_cancel_point.set(true);
    let why = turn::suspend(deadline_ns);
    this.at_cancel_point.set(false);
    why
}

/// Blocks at an address until woken. `EAGAIN` after the deadline, `EINTR` or [`RESTART`] when interrupted.
pub fn wait_at(k: &Kernel, key: Key, deadline_ns: Option<u64>) -> Result<()> {
    let this = k.this();
    if this.cancel_asked.get() && !this.cancel_off.get() && !this.exiting.get() {
        return fail(libc::EINTR);
    }
    this.at_cancel_point.set(true);
    let why = k.keys.wait(k, key, u32::MAX, deadline_ns);
    this.at_cancel_point.set(false);
    match why {
        Wake::Event => Ok(()),
        Wake::Timeout => fail(libc::EAGAIN),
        Wake::Interrupted if deadline_ns.is_none() => Err(RESTART),
        Wake::Interrupted => fail(libc::EINTR),
    }
}

/// As [`wait`], for as long as it takes, but `EAGAIN` when calls on the file do not block.
pub fn wait_if_blocking(k: &Kernel, hold: &Hold, events: u32) -> Result<()> {
    if hold.file(k).nonblocking() {
        return fail(libc::EAGAIN);
    }
    wait(k, hold.0, events, false, None)
}

/// Blocks until `file` may be ready for `events`. `EAGAIN` after the deadline, `EINTR` or [`RESTART`] when interrupted.
pub fn wait(
    k: &Kernel,
    file: Handle<File>,
    events: u32,
    exclusive: bool,
    deadline_ns: Option<u64>,
) -> Result<()> {
    let set = WaitSet::default();
    set.add(k, file, events, exclusive)?;
    match set.block(k, deadline_ns) {
        Wake::Event => Ok(()),
        Wake::Timeout => fail(libc::EAGAIN),
        // As in Linux a call with a time limit is never done again.
        Wake::Interrupted if deadline_ns.is_none() => Err(RESTART),
        Wake::Interrupted => fail(libc::EINTR),
    }
}
