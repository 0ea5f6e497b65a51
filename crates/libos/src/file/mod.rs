//! Open file descriptions: what descriptors ([`table`]) share after `dup`, and where readiness is announced.
//!
//! Invariant: `refs` counts descriptors and calls in progress ([`Hold`]). The last reference to go releases the object, as in Linux: a thread
//! blocked in `accept` keeps its listener alive although another thread has closed it.

pub mod buffers;
pub mod descriptor;
pub mod epoll;
pub mod eventfd;
pub mod fifo;
pub mod inotify;
pub mod ops;
pub mod pipe;
pub mod poll;
pub mod random;
pub mod records;
pub mod select;
pub mod splice;
pub mod table;
#[cfg(test)]
mod tests;
pub mod timerfd;
pub mod transfer;
pub mod wait;

use crate::abi;
use crate::errno::{Result, fail};
use crate::host::Host;
use crate::state::file::MOST_HELD;
pub use crate::state::file::{Fds, File, Held, Kind, MAX_FILES, MAX_SMALL, MAX_WATCHES, OnFile};
use ops::Kinds;
use skein_arena::pool::Handle;

/// Readiness: the bits of poll and epoll.
pub mod ready {
    use crate::abi;

    /// Readable.
    pub const IN: u32 = abi::EPOLLIN as u32 | abi::EPOLLRDNORM as u32;
    /// Writable.
    pub const OUT: u32 = abi::EPOLLOUT as u32 | abi::EPOLLWRNORM as u32;
    /// An error is pending.
    pub const ERR: u32 = abi::EPOLLERR as u32;
    /// Both directions have ended.
    pub const HUP: u32 = abi::EPOLLHUP as u32;
    /// The peer has shut its sending side.
    pub const RDHUP: u32 = abi::EPOLLRDHUP as u32;
    /// Something came for a socket. As in Linux, sets that watch for urgent data only note it, too, and may find nothing to report.
    pub const CAME: u32 = IN | abi::EPOLLPRI as u32 | abi::EPOLLRDBAND as u32;
    /// A socket has room again.
    pub const ROOM: u32 = OUT | abi::EPOLLWRBAND as u32;
    /// A change of state: every waiting thread looks again.
    pub const ALL: u32 = 0xffff;
}

/// Makes a file without a descriptor.
pub fn create<H: Host>(k: &H, kind: Kind, object: u32, flags: i32) -> Result<Handle<File>> {
    let Some(file) = k.fds.files.alloc() else { return fail(abi::ENFILE) };
    let f = k.fds.files.get(file);
    f.kind.set(kind);
    f.flags.set(flags);
    f.owner.set(0);
    f.object.set(object);
    f.writers_before.set(0);
    Ok(file)
}

/// Makes a file with its first descriptor. If that fails there is no file, and its object stays the caller's.
pub fn open<H: Host>(
    k: &H,
    kind: Kind,
    object: u32,
    flags: i32,
    cloexec: bool,
) -> Result<(Handle<File>, i32)> {
    let file = create(k, kind, object, flags)?;
    Ok((file, install(k, file, cloexec)?))
}

/// Gives a fresh file its first descriptor. If that fails the file is gone, but not its object.
pub fn install<H: Host>(k: &H, file: Handle<File>, cloexec: bool) -> Result<i32> {
    let fd = table::of(k).install(k, file, 0, cloexec);
    if fd.is_err() {
        k.fds.files.free(file);
    }
    fd
}

/// Adds a reference.
#[inline]
pub fn add_ref<H: Host>(k: &H, file: Handle<File>) {
    let f = k.fds.files.get(file);
    f.refs.set(f.refs.get() + 1);
}

/// Drops a reference; the last releases the file.
#[inline]
pub fn drop_ref<H: Host>(k: &H, file: Handle<File>) {
    let f = k.fds.files.get(file);
    f.refs.set(f.refs.get() - 1);
    if f.refs.get() == 0 {
        release(k, file);
    }
}

#[cold]
fn release<H: Host>(k: &H, file: Handle<File>) {
    let f = k.fds.files.get(file);
    while let Some(item) = f.items.front() {
        epoll::remove(k, item);
    }
    ops::of::<H>(f.kind.get()).release(k, file);
    f.kind.set(Kind::Free);
    k.fds.files.free(file);
}

/// The object of a file, by its number.
pub fn handle<T>(raw: u32) -> Handle<T> {
    Handle::from_raw(raw).expect("a file's object")
}

/// The events that the file is ready for.
#[inline]
pub fn mask<H: Host>(k: &H, file: Handle<File>) -> u32 {
    let f = k.fds.files.get(file);
    k.mask_of(f)
}

/// The file has changed: threads that wait for one of `events` look again. Answers whether a thread was resumed.
#[inline]
pub fn notify<H: Host>(k: &H, file: Option<Handle<File>>, events: u32) -> bool {
    let Some(file) = file else { return false };
    let f = k.fds.files.get(file);
    if f.flags.get() & abi::O_ASYNC != 0 {
        k.send_sigio(f.owner.get());
    }
    let in_sets = epoll::notify(k, f, events);
    notify_waits(k, f, events) || in_sets
}

/// Resumes threads that wait for one of `events`; of the exclusive ones only the first. Answers whether there was one.
// Inlined: a wait for a set that is ready ends with it.
#[inline(always)]
pub fn notify_waits<H: Host>(k: &H, f: &File, events: u32) -> bool {
    let mut resumed = false;
    let mut exclusive_resumed = false;
    for (_, w) in f.waits.iter(&k.fds.waits) {
        if w.events.get() & events == 0 || (w.exclusive.get() && exclusive_resumed) {
            continue;
        }
        // A thread that was resumed before and has not run yet does not count: the event may not be for it.
        if w.resume(k) {
            resumed = true;
            exclusive_resumed |= w.exclusive.get();
        }
    }
    resumed
}

/// A call in progress on a file. Its thread knows of it, too, because a process may end in the middle of its threads' calls.
pub struct Hold<'k, H: Host>(pub Handle<File>, &'k H);

impl<H: Host> Drop for Hold<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.1.this().held.remove(self.0);
        drop_ref(self.1, self.0);
    }
}

impl Held {
    fn add(&self, file: Handle<File>) {
        let n = self.count.get() as usize;
        // A nested call deeper than this would leak a reference if its process were killed inside it.
        assert!(n < MOST_HELD, "calls on files nest too deeply");
        self.files[n].set(Some(file));
        self.count.set(n as u32 + 1);
    }

    fn remove(&self, file: Handle<File>) {
        let n = self.count.get() as usize;
        // Calls end in the reverse order of their begin. A thread that left a handler by `longjmp` has lost some.
        if let Some(at) = (0..n).rev().find(|at| self.files[*at].get() == Some(file)) {
            for i in at + 1..n {
                self.files[i - 1].set(self.files[i].get());
            }
            self.count.set(n as u32 - 1);
        }
    }

    /// Drops all references: the thread never runs again.
    pub fn drop_all<H: Host>(&self, k: &H) {
        while let Some(n) = self.count.get().checked_sub(1) {
            self.count.set(n);
            if let Some(file) = self.files[n as usize].take() {
                drop_ref(k, file);
            }
        }
    }
}

impl<'k, H: Host> Hold<'k, H> {
    /// A call on a file begins.
    #[inline]
    pub fn new(k: &'k H, file: Handle<File>) -> Self {
        add_ref(k, file);
        k.this().held.add(file);
        Self(file, k)
    }

    /// The file.
    pub fn file<'a>(&self, k: &'a H) -> &'a File {
        k.fds.files.get(self.0)
    }
}
