//! Open file descriptions: what descriptors share after `dup`, and where readiness is announced.
//!
//! Invariant: `refs` counts descriptors and calls in progress ([`Hold`]). The last one to go releases the object, as Linux does: a thread
//! blocked in `accept` keeps its listener alive although another has closed it.

use crate::io::epoll::{self, Item};
use crate::io::wait::Wait;
use crate::io::{Answer, eventfd, pipe, signalfd, socket, table, timerfd};
use crate::ipc::mq;
use crate::kernel::{Kernel, kernel};
use crate::process::pidfd;
use crate::turn::Turn;
use crate::{process, signal, thread, turn};
use core::cell::Cell;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link};
use skein_libos::errno::RESTART;
use skein_libos::errno::{Errno, Result, fail};
use skein_sched::op::{Kind as Op, Object};

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

/// The place of an epoll item or a wait in its file's list.
pub struct OnFile;

/// An open file description.
#[repr(C)]
pub struct File {
    /// What it is.
    pub kind: Cell<Kind>,
    /// Descriptors and calls in progress.
    refs: Cell<u32>,
    /// `O_` flags: access mode, `O_NONBLOCK`, `O_APPEND`, `O_ASYNC`.
    pub flags: Cell<i32>,
    /// The process that gets SIGIO when it is ready (`O_ASYNC`); 0: none.
    pub owner: Cell<i32>,
    /// The object's handle.
    pub object: Cell<u32>,
    /// Of an end of a FIFO that did not wait for a writer: how many there had been.
    pub writers_before: Cell<u32>,
    reading: Node<File>,
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
// No file is both.
impl In<mq::OnQueue> for File {
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
    f.owner.set(0);
    f.object.set(object);
    f.writers_before.set(0);
    Ok(file)
}

/// Makes a file with its first descriptor; without one there is no file, but its object stays the caller's.
pub fn open(
    k: &Kernel,
    kind: Kind,
    object: u32,
    flags: i32,
    cloexec: bool,
) -> Result<(Handle<File>, i32)> {
    let file = create(k, kind, object, flags)?;
    Ok((file, install(k, file, cloexec)?))
}

/// Gives a fresh file its first descriptor; without one the file is gone, but not its object.
pub fn install(k: &Kernel, file: Handle<File>, cloexec: bool) -> Result<i32> {
    let fd = k.table().install(k, file, 0, cloexec);
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
        Kind::PipeReader | Kind::PipeWriter | Kind::PipeBoth => pipe::release(k, file, object),
        Kind::Socket => socket::close::release(k, handle(object)),
        Kind::Epoll => epoll::release(k, handle(object)),
        Kind::EventFd => k.io.eventfds.free(handle(object)),
        Kind::TimerFd => timerfd::release(k, handle(object)),
        Kind::SignalFd => signalfd::release(k, handle(object)),
        Kind::PidFd => pidfd::release(k, handle(object)),
        Kind::MessageQueue => mq::release(k, file, handle(object)),
        Kind::Random | Kind::Inotify | Kind::Free => {}
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
        Kind::PipeReader => pipe::reader_mask(k, f),
        Kind::PipeWriter => pipe::writer_mask(k, f),
        Kind::PipeBoth => pipe::reader_mask(k, f) | pipe::writer_mask(k, f),
        Kind::Epoll => epoll::mask(k, handle(object)),
        Kind::EventFd => eventfd::mask(k, handle(object)),
        Kind::TimerFd => timerfd::mask(k, handle(object)),
        Kind::SignalFd => signalfd::mask(k, handle(object)),
        Kind::PidFd => pidfd::mask(k, handle(object)),
        Kind::MessageQueue => mq::mask(k, handle(object)),
        Kind::Random => ready::IN | ready::OUT,
        Kind::Inotify | Kind::Free => 0,
    }
}

/// Something about the file has changed: those who wait for one of `events` look again. Answers whether a thread was resumed.
pub fn notify(k: &Kernel, file: Option<Handle<File>>, events: u32) -> bool {
    let Some(file) = file else { return false };
    let f = k.io.files.get(file);
    if f.flags.get() & libc::O_ASYNC != 0 {
        send_sigio(k, f);
    }
    let in_sets = epoll::notify(k, f, events);
    notify_waits(k, f, events) || in_sets
}

#[cold]
fn send_sigio(k: &Kernel, f: &File) {
    if let Some(owner) = process::find(k, f.owner.get()) {
        // A process that has as many signals pending as can be has this one, too.
        let _ =
            signal::post(k, signal::Target::Process(owner), signal::Info::of_kernel(libc::SIGIO));
    }
}

/// Resumes threads that wait for one of `events`; of the exclusive ones only the first. Answers whether there was one.
#[inline]
pub fn notify_waits(k: &Kernel, f: &File, events: u32) -> bool {
    let mut resumed = false;
    let mut exclusive_resumed = false;
    for (_, w) in f.waits.iter(&k.io.waits) {
        if w.events.get() & events == 0 || (w.exclusive.get() && exclusive_resumed) {
            continue;
        }
        // One that was resumed before and has not run yet does not count: the event may not be for it.
        if turn::resume(w.thread.get().expect("a waiting thread"), skein_libos::thread::Wake::Event)
        {
            resumed = true;
            exclusive_resumed |= w.exclusive.get();
        }
    }
    resumed
}

/// A call in progress on a file. Its thread knows of it, too: a process may end in the middle of its threads' calls.
pub struct Hold(pub Handle<File>);

impl Drop for Hold {
    fn drop(&mut self) {
        let k = kernel();
        k.this().held.remove(self.0);
        drop_ref(k, self.0);
    }
}

/// The files of a thread's calls in progress: at most so many at a time.
const MOST_HELD: usize = 4;

/// The files of a thread's calls in progress, the last begun last.
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
        // Calls end in the reverse order of their begin; a thread that a handler was left by `longjmp` for has lost some.
        if let Some(at) = (0..n).rev().find(|at| self.files[*at].get() == Some(file)) {
            for i in at + 1..n {
                self.files[i - 1].set(self.files[i].get());
            }
            self.count.set(n as u32 - 1);
        }
    }

    /// Drops all references: the thread never runs again.
    pub fn drop_all(&self, k: &Kernel) {
        while let Some(n) = self.count.get().checked_sub(1) {
            self.count.set(n);
            if let Some(file) = self.files[n as usize].take() {
                drop_ref(k, file);
            }
        }
    }
}

impl Hold {
    /// A call on a file begins.
    pub fn new(k: &Kernel, file: Handle<File>) -> Self {
        add_ref(k, file);
        k.this().held.add(file);
        Self(file)
    }

    /// The file.
    pub fn file<'a>(&self, k: &'a Kernel) -> &'a File {
        k.io.files.get(self.0)
    }
}

/// Begins a call on a descriptor: an operation. `None` when the descriptor is not virtual.
#[inline]
fn enter(fd: i32, op: Op) -> Option<(Turn, Result<Hold>)> {
    let file = kernel().table().get(fd)?;
    let turn = turn::enter(Object::File(file.raw()), op);
    // Another thread may have closed it meanwhile.
    let file = turn.table().get(fd);
    let hold = file.map_or_else(|| fail(libc::EBADF), |file| Ok(Hold::new(&turn, file)));
    Some((turn, hold))
}

/// A call on a descriptor that does not block.
pub fn with(fd: i32, op: Op, call: impl FnOnce(&Kernel, &Hold) -> Result<usize>) -> Answer {
    let (turn, hold) = enter(fd, op)?;
    Some(hold.and_then(|hold| call(&turn, &hold)))
}

/// A call on a descriptor that may block: a cancellation point, done again when a signal handler says so.
#[inline]
pub fn with_cancel(
    fd: i32,
    op: Op,
    mut call: impl FnMut(&Kernel, &Hold) -> Result<usize>,
) -> Answer {
    loop {
        kernel().table().get(fd)?;
        thread::test_cancel();
        let (turn, hold) = enter(fd, op)?;
        let result = hold.and_then(|hold| call(&turn, &hold));
        if let Some(result) = signal::deliver::settle(interruptible(result)) {
            return Some(result);
        }
    }
}

/// A call that only virtual files have, on a descriptor that may be the kernel's: those answer `errno`, closed ones `EBADF`.
pub fn only_virtual(answer: Answer, fd: i32, errno: i32) -> Answer {
    Some(answer.unwrap_or_else(|| fail(if table::is_open(fd) { errno } else { libc::EBADF })))
}

/// The end of a call that is a cancellation point: one that was interrupted to be cancelled ends the thread, with nothing held.
pub fn interruptible(result: Result<usize>) -> Result<usize> {
    if matches!(result, Err(Errno(libc::EINTR) | RESTART)) {
        thread::test_cancel();
    }
    result
}

/// What is no epoll set or timerfd says so.
pub fn of_kind(fd: i32, answer: Answer) -> Answer {
    only_virtual(answer, fd, libc::EINVAL)
}
