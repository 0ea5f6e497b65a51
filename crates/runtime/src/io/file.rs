//! Open file descriptions: what descriptors share after `dup`, and where readiness is announced.
//!
//! Invariant: `refs` counts descriptors and calls in progress ([`Hold`]). The last one to go releases the object, as Linux does: a thread
//! blocked in `accept` keeps its listener alive although another has closed it.

use crate::io::epoll::{self, Item};
use crate::io::wait::Wait;
use crate::io::{Answer, eventfd, fail, pipe, socket, table, timerfd};
use crate::kernel::{Kernel, kernel};
use crate::sys::{Errno, Result};
use crate::{thread, turn};
use core::cell::Cell;
use skein_arena::list::List;
use skein_arena::pool::{ArenaObject, Handle};

/// Readiness: the bits of poll and epoll.
pub mod ready {
    /// Something can be read.
    pub const IN: u32 = libc::EPOLLIN as u32 | libc::EPOLLRDNORM as u32;
    /// Something can be written.
    pub const OUT: u32 = libc::EPOLLOUT as u32 | libc::EPOLLWRNORM as u32;
    /// An error is pending.
    pub const ERR: u32 = libc::EPOLLERR as u32;
    /// Both directions have ended.
    pub const HUP: u32 = libc::EPOLLHUP as u32;
    /// The peer sends no more.
    pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    /// A change of state: whoever waits looks again.
    pub const ALL: u32 = 0xffff;
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Not in use.
    Free = 0,
    /// The end of a pipe that is read.
    PipeReader,
    /// The end of a pipe that is written.
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
}

/// The place of an epoll item or a wait in its file's list.
pub struct OnFile;

/// An open file description.
#[repr(C)]
pub struct File {
    /// What it is.
    pub kind: Cell<Kind>,
    /// Descriptors and calls in progress.
    refs: Cell<u32>,
    /// `O_` flags: access mode, `O_NONBLOCK`, `O_APPEND`.
    pub flags: Cell<i32>,
    /// The object's handle.
    pub object: Cell<u32>,
    /// Epoll sets that watch it.
    pub items: List<Item, OnFile>,
    /// Threads that wait for it.
    pub waits: List<Wait, OnFile>,
}

// SAFETY: cells and lists of handles; all-zero is a file of kind `Free`.
unsafe impl ArenaObject for File {}

impl File {
    /// The object, when the file is of this kind.
    pub fn as_kind<T>(&self, kind: Kind) -> Option<Handle<T>> {
        if self.kind.get() == kind { Handle::from_raw(self.object.get()) } else { None }
    }

    /// Whether calls do not block.
    pub fn nonblocking(&self) -> bool {
        self.flags.get() & libc::O_NONBLOCK != 0
    }
}

/// Makes a file, as yet without a descriptor.
pub fn create(k: &Kernel, kind: Kind, object: u32, flags: i32) -> Result<Handle<File>> {
    let Some(file) = k.io.files.alloc() else { return fail(libc::ENFILE) };
    let f = k.io.files.get(file);
    f.kind.set(kind);
    f.flags.set(flags);
    f.object.set(object);
    Ok(file)
}

/// Gives a fresh file its first descriptor; without one the file is gone, but not its object.
pub fn install(k: &Kernel, file: Handle<File>, cloexec: bool) -> Result<i32> {
    let fd = k.io.table.install(k, file, 0, cloexec);
    if fd.is_err() {
        k.io.files.free(file);
    }
    fd
}

/// One more reference.
pub fn add_ref(k: &Kernel, file: Handle<File>) {
    let f = k.io.files.get(file);
    f.refs.set(f.refs.get() + 1);
}

/// One reference less; the last releases the file.
pub fn drop_ref(k: &Kernel, file: Handle<File>) {
    let f = k.io.files.get(file);
    f.refs.set(f.refs.get() - 1);
    if f.refs.get() == 0 {
        release(k, file);
    }
}

#[cold]
fn release(k: &Kernel, file: Handle<File>) {
    let f = k.io.files.get(file);
    while let Some(item) = f.items.front() {
        epoll::remove(k, item);
    }
    let object = f.object.get();
    match f.kind.get() {
        Kind::PipeReader => pipe::release_reader(k, object),
        Kind::PipeWriter => pipe::release_writer(k, object),
        Kind::Socket => socket::close::release(k, handle(object)),
        Kind::Epoll => epoll::release(k, handle(object)),
        Kind::EventFd => k.io.eventfds.free(handle(object)),
        Kind::TimerFd => timerfd::release(k, handle(object)),
        Kind::Random | Kind::Free => {}
    }
    f.kind.set(Kind::Free);
    k.io.files.free(file);
}

fn handle<T>(raw: u32) -> Handle<T> {
    Handle::from_raw(raw).expect("a file's object")
}

/// What the file is ready for.
pub fn mask(k: &Kernel, file: Handle<File>) -> u32 {
    let f = k.io.files.get(file);
    let object = f.object.get();
    match f.kind.get() {
        Kind::Socket => socket::mask(k, handle(object)),
        Kind::PipeReader => pipe::reader_mask(k, object),
        Kind::PipeWriter => pipe::writer_mask(k, object),
        Kind::Epoll => epoll::mask(k, handle(object)),
        Kind::EventFd => eventfd::mask(k, handle(object)),
        Kind::TimerFd => timerfd::mask(k, handle(object)),
        Kind::Random => ready::IN | ready::OUT,
        Kind::Free => 0,
    }
}

/// Something about the file has changed: those who wait for one of `events` look again. Answers whether a thread was resumed.
pub fn notify(k: &Kernel, file: Option<Handle<File>>, events: u32) -> bool {
    let Some(file) = file else { return false };
    let f = k.io.files.get(file);
    let in_sets = epoll::notify(k, f, events);
    notify_waits(k, f, events) || in_sets
}

/// Resumes threads that wait for one of `events`; of the exclusive ones only the first. Answers whether there was one.
#[inline]
pub fn notify_waits(k: &Kernel, f: &File, events: u32) -> bool {
    let mut resumed = false;
    let mut exclusive_resumed = false;
    let mut at = f.waits.front();
    while let Some(wait) = at {
        at = f.waits.next(&k.io.waits, wait);
        let w = k.io.waits.get(wait);
        if w.events.get() & events == 0 || (w.exclusive.get() && exclusive_resumed) {
            continue;
        }
        // One that was resumed before and has not run yet does not count: the event may not be for it.
        if turn::resume(w.thread.get().expect("a waiting thread"), turn::Wake::Event) {
            resumed = true;
            exclusive_resumed |= w.exclusive.get();
        }
    }
    resumed
}

/// A call in progress on a file.
pub struct Hold(pub Handle<File>);

impl Drop for Hold {
    fn drop(&mut self) {
        drop_ref(kernel(), self.0);
    }
}

impl Hold {
    /// The file.
    pub fn file<'a>(&self, k: &'a Kernel) -> &'a File {
        k.io.files.get(self.0)
    }
}

/// Begins a call on a descriptor: an operation. `None` when the descriptor is not virtual.
#[inline]
pub fn enter(k: &Kernel, fd: i32) -> Option<Result<Hold>> {
    k.io.table.get(fd)?;
    turn::operation();
    // Another thread may have closed it meanwhile.
    let Some(file) = k.io.table.get(fd) else { return Some(fail(libc::EBADF)) };
    add_ref(k, file);
    Some(Ok(Hold(file)))
}

/// A call on a descriptor that does not block.
pub fn with(fd: i32, call: impl FnOnce(&Kernel, &Hold) -> Result<usize>) -> Answer {
    let k = kernel();
    Some(enter(k, fd)?.and_then(|hold| call(k, &hold)))
}

/// A call on a descriptor that may block: a cancellation point.
#[inline]
pub fn with_cancel(fd: i32, call: impl FnOnce(&Kernel, &Hold) -> Result<usize>) -> Answer {
    let k = kernel();
    k.io.table.get(fd)?;
    thread::test_cancel();
    let result = enter(k, fd)?.and_then(|hold| call(k, &hold));
    Some(interruptible(result))
}

/// A call that only virtual files have, on a descriptor that may be the kernel's: those answer `errno`, closed ones `EBADF`.
pub fn only_virtual(answer: Answer, fd: i32, errno: i32) -> Answer {
    Some(answer.unwrap_or_else(|| fail(if table::is_open(fd) { errno } else { libc::EBADF })))
}

/// The end of a call that is a cancellation point: one that was interrupted to be cancelled ends the thread, with nothing held.
pub fn interruptible(result: Result<usize>) -> Result<usize> {
    if result == Err(Errno(libc::EINTR)) {
        thread::test_cancel();
    }
    result
}
