//! Records of semaphores, message queues and shared memory with a key or a name ([`crate::ipc`]).

use crate::room::Room;
use crate::state::file::File;
use crate::state::process::Process;
use core::cell::Cell;
use skein_arena::bytes::Chunk;
use skein_arena::list::{In, List, Node};
use skein_arena::pool::{ArenaObject, Link, Pool};

/// Sets of semaphores, queues of either kind, segments, at one time: 1,024 each.
pub(in crate::ipc) const MAX_OBJECTS: u32 = 1 << 10;

/// Messages in all queues: 16,384.
pub(in crate::ipc) const MAX_MESSAGES: u32 = 16 << 10;

/// A message in a queue of either kind.
#[repr(C)]
pub struct Message {
    pub(in crate::ipc) node: Node<Message>,
    /// Its type, or its priority.
    pub(in crate::ipc) kind: Cell<i64>,
    pub(in crate::ipc) bytes: skein_arena::bytes::ByteQueue,
}

/// A message's place in its queue.
pub struct InQueue;

// SAFETY: cells, links and a queue; all-zero is an empty message.
unsafe impl ArenaObject for Message {}

impl In<InQueue> for Message {
    fn node(&self) -> &Node<Message> {
        &self.node
    }
}

/// The messages of a queue.
pub(in crate::ipc) type Messages = List<Message, InQueue>;

/// All objects. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Ipc {
    pub(in crate::ipc) sets: Pool<Set>,
    pub(in crate::ipc) set_list: List<Set, Known>,
    pub(in crate::ipc) sem_waits: Pool<SemWait>,
    pub(in crate::ipc) undos: Pool<Undo>,
    pub(in crate::ipc) queues: Pool<Queue>,
    pub(in crate::ipc) queue_list: List<Queue, Known>,
    pub(in crate::ipc) segments: Pool<Segment>,
    pub(in crate::ipc) segment_list: List<Segment, Known>,
    /// POSIX queues.
    pub(in crate::ipc) mqs: Pool<Mq>,
    pub(in crate::ipc) mq_list: Named,
    pub(in crate::ipc) messages: Pool<Message>,
    /// The number of objects made so far, so that ids are not reused soon.
    pub(in crate::ipc) made: Cell<u32>,
    pub(in crate::ipc) _pad: Cell<u32>,
}

impl Ipc {
    /// Takes its memory: there are at most so many threads.
    pub fn lay_out(&self, room: &mut Room, threads: u32) {
        room.pool(&self.sets, MAX_OBJECTS);
        room.pool(&self.sem_waits, threads);
        room.pool(&self.undos, MAX_OBJECTS);
        room.pool(&self.queues, MAX_OBJECTS);
        room.pool(&self.segments, MAX_OBJECTS);
        room.pool(&self.mqs, MAX_OBJECTS);
        room.pool(&self.messages, MAX_MESSAGES);
    }
}

/// The place of an object among those of its kind.
pub struct Known;

/// The common fields.
#[repr(C)]
pub struct Head {
    /// The id; 0 or less: there is none.
    pub(in crate::ipc) id: Cell<i32>,
    pub(in crate::ipc) key: Cell<i32>,
    pub(in crate::ipc) owner: Cell<[u32; 2]>,
    pub(in crate::ipc) maker: Cell<[u32; 2]>,
    pub(in crate::ipc) mode: Cell<u32>,
    /// When it was made or last set, in seconds.
    pub(in crate::ipc) changed_s: Cell<i64>,
}

/// A set of them.
#[repr(C)]
pub struct Set {
    pub(in crate::ipc) node: Node<Set>,
    pub(in crate::ipc) head: Head,
    pub(in crate::ipc) count: Cell<u32>,
    pub(in crate::ipc) page: Link<Chunk>,
    pub(in crate::ipc) operated_s: Cell<i64>,
    pub(in crate::ipc) waiting: List<SemWait, OnSet>,
}

// SAFETY: cells, links and lists; all-zero is a set with the id 0, which none has.
unsafe impl ArenaObject for Set {}

impl In<Known> for Set {
    fn node(&self) -> &Node<Set> {
        &self.node
    }
}

/// A wait's place on its set.
pub struct OnSet;

/// A thread that waits for its operations to be done.
#[repr(C)]
pub struct SemWait {
    pub(in crate::ipc) node: Node<SemWait>,
    /// The thread, by its number in the arena.
    pub(in crate::ipc) thread: Cell<u32>,
    pub(in crate::ipc) process: Link<Process>,
    pub(in crate::ipc) set: Link<Set>,
    pub(in crate::ipc) undo: Link<Undo>,
    pub(in crate::ipc) operations: Link<Chunk>,
    pub(in crate::ipc) count: Cell<u32>,
    /// The operation that cannot be done.
    pub(in crate::ipc) stuck: Cell<u32>,
    /// Its operations were answered: with 0 or an errno.
    pub(in crate::ipc) answered: Cell<bool>,
    pub(in crate::ipc) answer: Cell<i32>,
}

// SAFETY: cells and links; all-zero is a wait of no thread.
unsafe impl ArenaObject for SemWait {}

impl In<OnSet> for SemWait {
    fn node(&self) -> &Node<SemWait> {
        &self.node
    }
}

/// Adjustments of one process to one set.
#[repr(C)]
pub struct Undo {
    pub(in crate::ipc) _free: Cell<u32>,
    pub(in crate::ipc) process: Link<Process>,
    pub(in crate::ipc) set: Link<Set>,
    pub(in crate::ipc) values: Link<Chunk>,
}

// SAFETY: links; all-zero is of no process.
unsafe impl ArenaObject for Undo {}

/// A message queue.
#[repr(C)]
pub struct Queue {
    pub(in crate::ipc) node: Node<Queue>,
    pub(in crate::ipc) head: Head,
    /// Its capacity in bytes.
    pub(in crate::ipc) limit: Cell<u64>,
    /// The bytes that it holds.
    pub(in crate::ipc) bytes: Cell<u64>,
    pub(in crate::ipc) sent_s: Cell<i64>,
    pub(in crate::ipc) received_s: Cell<i64>,
    pub(in crate::ipc) sender: Cell<i32>,
    pub(in crate::ipc) receiver: Cell<i32>,
    pub(in crate::ipc) messages: Messages,
}

// SAFETY: cells and lists; all-zero is a queue with the id 0, which none has.
unsafe impl ArenaObject for Queue {}

impl In<Known> for Queue {
    fn node(&self) -> &Node<Queue> {
        &self.node
    }
}

/// A segment of shared memory.
#[repr(C)]
pub struct Segment {
    pub(in crate::ipc) node: Node<Segment>,
    pub(in crate::ipc) head: Head,
    pub(in crate::ipc) bytes: Cell<u64>,
    /// The host's word for its memory.
    pub(in crate::ipc) ticket: Cell<u64>,
    pub(in crate::ipc) attached_s: Cell<i64>,
    pub(in crate::ipc) detached_s: Cell<i64>,
    /// The processes that made it, and that attached or detached it last.
    pub(in crate::ipc) maker: Cell<i32>,
    pub(in crate::ipc) last: Cell<i32>,
    /// Mappings of it.
    pub(in crate::ipc) attached: Cell<u32>,
    /// It goes with its last mapping.
    pub(in crate::ipc) is_removed: Cell<bool>,
}

// SAFETY: cells; all-zero is a segment with the id 0, which none has.
unsafe impl ArenaObject for Segment {}

impl In<Known> for Segment {
    fn node(&self) -> &Node<Segment> {
        &self.node
    }
}

/// The longest name.
pub(in crate::ipc) const NAME_BYTES: usize = 255;

/// A queue.
#[repr(C)]
pub struct Mq {
    pub(in crate::ipc) node: Node<Mq>,
    pub(in crate::ipc) name: Cell<[u8; NAME_BYTES + 1]>,
    /// Its name is gone; it goes with its last descriptor.
    pub(in crate::ipc) unlinked: Cell<bool>,
    pub(in crate::ipc) mode: Cell<u32>,
    pub(in crate::ipc) owner: Cell<[u32; 2]>,
    pub(in crate::ipc) most: Cell<i64>,
    pub(in crate::ipc) most_bytes: Cell<i64>,
    /// Highest priority first, then oldest first.
    pub(in crate::ipc) messages: Messages,
    /// Open file descriptions.
    pub(in crate::ipc) files: List<File, OnQueue>,
}

/// The place of a queue among the named ones.
pub struct HasName;

/// All of them.
pub type Named = List<Mq, HasName>;

/// An open file description's place on its queue.
pub struct OnQueue;

// No file is both an end of a pipe and a queue's.
impl In<OnQueue> for File {
    fn node(&self) -> &Node<File> {
        &self.reading
    }
}

// SAFETY: cells and lists; all-zero is a queue without a name.
unsafe impl ArenaObject for Mq {}

impl In<HasName> for Mq {
    fn node(&self) -> &Node<Mq> {
        &self.node
    }
}
