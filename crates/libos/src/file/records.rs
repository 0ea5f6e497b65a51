//! Records of descriptors' files: open file descriptions, waits, tables of descriptors, and the objects behind them ([`crate::file`]).

use crate::abi;
use crate::room::Room;
use crate::state::timers::Timer;
use core::cell::Cell;
use core::mem::offset_of;
use skein_arena::bytes::{ByteQueue, Chunk};
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Handle, Link, Pool};

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
    pub(in crate::file) pipes: Pool<Pipe>,
    /// Open FIFOs.
    pub(in crate::file) fifos: Pool<Fifo>,
    /// All of them.
    pub(in crate::file) open_fifos: Fifos,
    /// Epoll sets.
    pub(in crate::file) epolls: Pool<Epoll>,
    /// Items of epoll sets.
    pub(in crate::file) items: Pool<Item>,
    /// Eventfds.
    pub(in crate::file) eventfds: Pool<EventFd>,
    /// Timerfds.
    pub(in crate::file) timerfds: Pool<TimerFd>,
}

impl Fds {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.files, MAX_FILES);
        room.pool(&self.waits, MAX_WATCHES);
        room.pool(&self.pipes, MAX_SMALL);
        let fifos = room.pool(&self.fifos, MAX_SMALL);
        Fifo::note_own(room, fifos, MAX_SMALL);
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
    pub(in crate::file) refs: Cell<u32>,
    /// `O_` flags: access mode, `O_NONBLOCK`, `O_APPEND`, `O_ASYNC`.
    pub flags: Cell<i32>,
    /// The process that gets SIGIO when it is ready (`O_ASYNC`); 0: none.
    pub(in crate::file) owner: Cell<i32>,
    /// The object's handle.
    pub object: Cell<u32>,
    /// For an end of a FIFO that did not wait for a writer: the number of writers before it.
    pub(in crate::file) writers_before: Cell<u32>,
    /// Its place among the reading ends of a pipe, or in a list of the host's.
    pub reading: Node<File>,
    pub(in crate::file) writing: Node<File>,
    /// Epoll sets that watch it.
    pub(in crate::file) items: List<Item, OnFile>,
    /// Threads that wait for it.
    pub(in crate::file) waits: List<Wait, OnFile>,
}

// SAFETY: cells and lists of handles; all-zero is a file of kind `Free`.
unsafe impl ArenaObject for File {}

impl In<Reading> for File {
    fn node(&self) -> &Node<File> {
        &self.reading
    }
}

impl In<Writing> for File {
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

/// The most files of a thread's calls in progress.
pub(in crate::file) const MOST_HELD: usize = 4;

/// The files of a thread's calls in progress, the last begun at the end.
#[repr(C)]
pub struct Held {
    pub(in crate::file) files: [Link<File>; MOST_HELD],
    pub(in crate::file) count: Cell<u32>,
}

/// A thread that waits for a file.
#[repr(C)]
pub struct Wait {
    pub(in crate::file) node: Node<Wait>,
    /// The thread, by its number in the arena.
    pub(in crate::file) thread: Cell<u32>,
    pub(in crate::file) file: Link<File>,
    /// The next wait of the same call (`poll`).
    pub(in crate::file) next: Link<Wait>,
    /// The events that it waits for.
    pub(in crate::file) events: Cell<u32>,
    /// An exclusive wait: one of these is enough for an event.
    pub(in crate::file) exclusive: Cell<bool>,
}

// SAFETY: links and cells; all-zero is a wait of no thread.
unsafe impl ArenaObject for Wait {}

impl In<OnFile> for Wait {
    fn node(&self) -> &Node<Wait> {
        &self.node
    }
}

/// Virtual descriptors are smaller than this: 65,536.
pub const MAX_FDS: i32 = 64 << 10;

/// A descriptor.
#[repr(C)]
pub(in crate::file) struct Entry {
    pub(in crate::file) file: Link<File>,
    pub(in crate::file) cloexec: Cell<u32>,
}

pub(in crate::file) const PAGE_ENTRIES: usize = size_of::<Chunk>() / size_of::<Entry>();

/// All descriptors of a process. All-zero bytes are an empty table.
#[repr(C)]
pub struct Table {
    pub(in crate::file) pages: [Link<Chunk>; MAX_FDS as usize / PAGE_ENTRIES],
    /// One more than the highest number that was ever virtual.
    pub(in crate::file) end: Cell<i32>,
    pub(in crate::file) _pad: Cell<u32>,
}

/// The reading ends of a pipe.
pub struct Reading;

/// The writing ends of a pipe.
pub struct Writing;

/// A pipe. A pipe without ends is freed.
#[repr(C)]
pub struct Pipe {
    pub(in crate::file) queue: ByteQueue,
    pub(in crate::file) capacity: Cell<u32>,
    pub(in crate::file) readers: List<File, Reading>,
    pub(in crate::file) writers: List<File, Writing>,
    /// The number of reading ends so far.
    pub(in crate::file) reader_opens: Cell<u32>,
    /// The number of writing ends so far.
    pub(in crate::file) writer_opens: Cell<u32>,
    /// Its name, if it has one: the host's number of it; 0: none.
    pub(in crate::file) fifo: Cell<u32>,
}

// SAFETY: cells and links; all-zero is an empty pipe without ends.
unsafe impl ArenaObject for Pipe {}

/// The kernel's name for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Name {
    /// Device.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// An open FIFO.
#[repr(C)]
pub struct Fifo {
    pub(in crate::file) node: Node<Fifo>,
    pub(in crate::file) pipe: Link<Pipe>,
    /// The kernel's name for it; changed when another file has that.
    pub(in crate::file) name: Cell<Name>,
    /// The answer of `fstat` about it.
    pub(in crate::file) stat: Cell<abi::stat>,
}

impl Fifo {
    /// The part of FIFOs that belongs to one replica: the kernel's numbers.
    pub fn note_own(room: &Room, fifos: *const u8, count: u32) {
        room.own::<Self>(fifos, count, offset_of!(Self, name), size_of::<Name>());
    }
}

/// All FIFOs that are open.
pub struct Opened;

// SAFETY: cells and links of numbers; all-zero is a FIFO without a pipe.
unsafe impl ArenaObject for Fifo {}

impl In<Opened> for Fifo {
    fn node(&self) -> &Node<Fifo> {
        &self.node
    }
}

/// All FIFOs that are open.
pub type Fifos = List<Fifo, Opened>;

/// An item's place in its set.
pub struct OnSet;

/// An item's place in its set's ready list.
pub struct OnReady;

/// An epoll set.
#[repr(C)]
pub struct Epoll {
    pub(in crate::file) file: Link<File>,
    pub(in crate::file) items: List<Item, OnSet>,
    pub(in crate::file) ready: List<Item, OnReady>,
}

/// A descriptor that an epoll set watches.
#[repr(C)]
pub struct Item {
    pub(in crate::file) on_file: Node<Item>,
    pub(in crate::file) on_set: Node<Item>,
    pub(in crate::file) on_ready: Node<Item>,
    pub(in crate::file) set: Link<Epoll>,
    pub(in crate::file) file: Link<File>,
    pub(in crate::file) fd: Cell<i32>,
    pub(in crate::file) events: Cell<u32>,
    pub(in crate::file) data: Cell<u64>,
    pub(in crate::file) is_ready: Cell<bool>,
}

// SAFETY: cells and links.
unsafe impl ArenaObject for Epoll {}

// SAFETY: cells and links.
unsafe impl ArenaObject for Item {}

impl In<OnFile> for Item {
    fn node(&self) -> &Node<Item> {
        &self.on_file
    }
}

impl In<OnSet> for Item {
    fn node(&self) -> &Node<Item> {
        &self.on_set
    }
}

impl In<OnReady> for Item {
    fn node(&self) -> &Node<Item> {
        &self.on_ready
    }
}

/// An eventfd.
#[repr(C)]
pub struct EventFd {
    pub(in crate::file) count: Cell<u64>,
    /// Its file.
    pub(in crate::file) file: Link<File>,
    pub(in crate::file) semaphore: Cell<bool>,
}

// SAFETY: cells and a link.
unsafe impl ArenaObject for EventFd {}

/// A timerfd.
#[repr(C)]
pub struct TimerFd {
    pub(in crate::file) clock: Cell<i32>,
    pub(in crate::file) file: Link<File>,
    /// The pending deadline.
    pub(in crate::file) timer: Link<Timer>,
    pub(in crate::file) armed: Cell<bool>,
    /// In virtual time; of the last expiry once it has fired.
    pub(in crate::file) deadline_ns: Cell<u64>,
    pub(in crate::file) interval_ns: Cell<u64>,
    /// Expirations that were not read.
    pub(in crate::file) expired: Cell<u64>,
}

// SAFETY: cells and links.
unsafe impl ArenaObject for TimerFd {}
