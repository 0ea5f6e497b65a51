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
use crate::room::Room;
use core::cell::Cell;
use epoll::Item;
use ops::Kinds;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link, Pool};
use wait::Wait;

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
    /// A change of state: every waiting thread looks again.
    pub const ALL: u32 = 0xffff;
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Not in use.
    Free = 0,
    /// The reading end of a pipe.
    PipeReader,
    /// The writing end of a pipe.
    PipeWriter,
    /// A socket.
    Socket,
    /// An epoll set.
    Epoll,
    /// An eventfd.
    EventFd,
    /// A timerfd.
    TimerFd,
    /// /dev/urandom or /dev/random.
    Random,
    /// A signalfd.
    SignalFd,
    /// Both ends of a pipe.
    PipeBoth,
    /// A POSIX message queue.
    MessageQueue,
    /// A pidfd.
    PidFd,
    /// An inotify descriptor, by which nothing comes.
    Inotify,
}

/// Open file descriptions at one time: 32,768.
pub const MAX_FILES: u32 = 32 << 10;
/// Watched descriptors of all epoll sets, and waits: 65,536 each.
pub const MAX_WATCHES: u32 = 64 << 10;
/// Pipes, epoll sets, eventfds, timerfds at one time: 8,192 each.
pub const MAX_SMALL: u32 = 8 << 10;

/// Descriptors' files, and the library's objects behind them. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Fds {
    /// Open file descriptions.
    pub files: Pool<File>,
    /// Waiting threads.
    pub waits: Pool<Wait>,
    /// Pipes.
    pub pipes: Pool<pipe::Pipe>,
    /// Open FIFOs.
    pub fifos: Pool<fifo::Fifo>,
    /// All of them.
    pub open_fifos: fifo::Fifos,
    /// Epoll sets.
    pub epolls: Pool<epoll::Epoll>,
    /// Items of epoll sets.
    pub items: Pool<Item>,
    /// Eventfds.
    pub eventfds: Pool<eventfd::EventFd>,
    /// Timerfds.
    pub timerfds: Pool<timerfd::TimerFd>,
}

impl Fds {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.files, MAX_FILES);
        room.pool(&self.waits, MAX_WATCHES);
        room.pool(&self.pipes, MAX_SMALL);
        let fifos = room.pool(&self.fifos, MAX_SMALL);
        fifo::Fifo::note_own(room, fifos, MAX_SMALL);
        room.pool(&self.epolls, MAX_SMALL);
        room.pool(&self.items, MAX_WATCHES);
        room.pool(&self.eventfds, MAX_SMALL);
        room.pool(&self.timerfds, MAX_SMALL);
    }
}

/// The place of an epoll item or a wait in its file's list.
pub struct OnFile;

/// An open file description.
#[repr(C)]
pub struct File {
    /// Its kind.
    pub kind: Cell<Kind>,
    /// Descriptors and calls in progress.
    refs: Cell<u32>,
    /// `O_` flags: access mode, `O_NONBLOCK`, `O_APPEND`, `O_ASYNC`.
    pub flags: Cell<i32>,
    /// The process that gets SIGIO when it is ready (`O_ASYNC`); 0: none.
    pub owner: Cell<i32>,
    /// The object's handle.
    pub object: Cell<u32>,
    /// For an end of a FIFO that did not wait for a writer: the number of writers before it.
    pub writers_before: Cell<u32>,
    /// Its place among the reading ends of a pipe, or in a list of the host's.
    pub reading: Node<File>,
    writing: Node<File>,
    /// Epoll sets that watch it.
    pub items: List<Item, OnFile>,
    /// Threads that wait for it.
    pub waits: List<Wait, OnFile>,
}

// SAFETY: cells and lists of handles; all-zero is a file of kind `Free`.
unsafe impl ArenaObject for File {}
impl In<pipe::Reading> for File {
    fn node(&self) -> &Node<File> {
        &self.reading
    }
}
impl In<pipe::Writing> for File {
    fn node(&self) -> &Node<File> {
        &self.writing
    }
}

impl File {
    /// The object, when the file is of this kind.
    #[inline]
    pub fn as_kind<T>(&self, kind: Kind) -> Option<Handle<T>> {
        if self.kind.get() == kind { Handle::from_raw(self.object.get()) } else { None }
    }

    /// Whether calls are non-blocking.
    #[inline]
    pub fn nonblocking(&self) -> bool {
        self.flags.get() & abi::O_NONBLOCK != 0
    }
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

/// The most files of a thread's calls in progress.
const MOST_HELD: usize = 4;

/// The files of a thread's calls in progress, the last begun at the end.
#[repr(C)]
pub struct Held {
    files: [Link<File>; MOST_HELD],
    count: Cell<u32>,
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
