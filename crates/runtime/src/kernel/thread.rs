//! A thread in the arena.

use super::Kernel;
use super::process::{PID_AT, Process, handle};
use super::turns::Spinner;
use crate::context;
use crate::local::{MAX_THREADS, header};
use crate::stack::Place;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};
use skein_arena::list::{In, Node};
use skein_arena::parts::Threads;
use skein_arena::pool::{ArenaObject, Handle};
use skein_libos::process::{MAX_PROCESSES, ProcessHandle, threads_of};
use skein_libos::room::Room;
use skein_libos::thread::{Life, Queue, Waiting};

/// An `addrinfo` as words.
pub type Hints = [u64; size_of::<libc::addrinfo>() / size_of::<u64>()];

/// A thread: the library's part, and the carrier's own.
#[repr(C)]
pub struct Thread {
    pub run: Node<Thread>,
    pub waiting: Node<Thread>,
    pub os: skein_libos::Thread,
    /// Its suspended context.
    pub sp: Cell<u64>,
    /// Its TLS; also its `pthread_t`.
    pub fs: Cell<u64>,
    /// Where its stack of the runtime's ends ([`crate::stack`]).
    pub stack: Cell<usize>,
    /// The hints of its call of `getaddrinfo`.
    pub hints: Cell<Hints>,
    /// Whether it runs on its own kernel thread.
    pub pinned: Cell<bool>,
    /// Whether it is detached.
    pub detached: Cell<bool>,
    /// Whether a thread is joining it.
    pub joining: Cell<bool>,
    /// The address of its trapped system call that is being answered; 0 without one.
    pub trapped_at: Cell<usize>,
    /// The word that is cleared at its end, if it has asked for one (`set_tid_address`).
    pub clear_at_end: Cell<usize>,
    /// Its state of spinning.
    pub spin: Spinner,
    /// Its alternate stack: start, bytes, flags; without a byte between that nobody writes.
    pub alternate: Cell<(usize, usize, libc::c_long)>,
    /// The lowest frame of its handlers that are about to be called.
    pub frames: Cell<Place>,
    pub start: Cell<usize>,
    pub arg: Cell<usize>,
    /// Its exit code by the system call `exit`.
    pub code: Cell<i32>,
    /// The word at which its own kernel thread sleeps: [`SLEEP`], or [`GO`] when the context is given back to it.
    pub go: AtomicU32,
    /// The word at which the carrier sleeps while this pinned thread runs.
    pub back: AtomicU32,
    pub name: Cell<[u8; 16]>,
    pub park_stack: UnsafeCell<ParkStack>,
}

#[repr(C, align(16))]
pub struct ParkStack([u8; context::PARK_STACK_BYTES]);

// SAFETY: cells, links and a scratch stack; all-zero is an unborn thread.
unsafe impl ArenaObject for Thread {}
impl Deref for Thread {
    type Target = skein_libos::Thread;

    #[inline]
    fn deref(&self) -> &skein_libos::Thread {
        &self.os
    }
}
impl In<Queue> for Thread {
    fn node(&self) -> &Node<Thread> {
        &self.run
    }
}
impl In<Waiting> for Thread {
    fn node(&self) -> &Node<Thread> {
        &self.waiting
    }
}

pub const SLEEP: u32 = 0;
pub const GO: u32 = 1;

pub const UNPARKED: u32 = 0;
pub const PARKED: u32 = 1;
/// The pinned thread has the turn.
pub const OUT: u32 = 2;
/// It has given the turn up.
pub const GIVEN_UP: u32 = 3;
/// It has the turn, and the carrier is to await an entry.
pub const AWAITS: u32 = 4;

impl Thread {
    /// The part of threads that belongs to one replica: how deep in the runtime they wait, and the words by which their kernel threads sleep and wake.
    pub fn note_own(room: &Room, threads: *const u8, count: u32) {
        room.own::<Self>(threads, count, offset_of!(Self, sp), size_of::<Cell<u64>>());
        room.own::<Self>(threads, count, offset_of!(Self, go), size_of::<AtomicU32>());
        room.own::<Self>(threads, count, offset_of!(Self, back), size_of::<AtomicU32>());
        let stack = offset_of!(Self, park_stack);
        room.own::<Self>(threads, count, stack, size_of::<ParkStack>());
    }

    /// Tells debuggers where its fields are.
    pub fn note_places(room: &Room, threads: *const u8, processes: *const u8) {
        let places = Threads {
            stride: size_of::<Self>() as u32,
            count: MAX_THREADS,
            life: offset_of!(Self, os.life) as u32,
            sp: offset_of!(Self, sp) as u32,
            fs: offset_of!(Self, fs) as u32,
            tid: offset_of!(Self, os.tid) as u32,
            pinned: offset_of!(Self, pinned) as u32,
            process: offset_of!(Self, os.process) as u32,
            name: offset_of!(Self, name) as u32,
            process_stride: size_of::<Process>() as u32,
            pid: PID_AT as u32,
            processes: MAX_PROCESSES,
            ..Threads::default()
        };
        room.note_threads(threads, processes, places);
    }
}

/// A copy of the running thread that will be the only one of a forked process.
pub fn copy_current(k: &Kernel, process: ProcessHandle) -> Option<Handle<Thread>> {
    let this = k.this();
    let handle = k.threads.alloc()?;
    let t = k.threads.get(handle);
    t.process.set(Some(process));
    t.fs.set(this.fs.get());
    t.stack.set(this.stack.get());
    t.detached.set(this.detached.get());
    t.cancel_asked.set(this.cancel_asked.get());
    t.cancel_off.set(this.cancel_off.get());
    t.cancel_async.set(this.cancel_async.get());
    t.exiting.set(this.exiting.get());
    t.name.set(this.name.get());
    skein_libos::signal::inherit(this, t);
    t.alternate.set(this.alternate.get());
    Some(handle)
}

/// A thread that can run for the first time.
pub fn let_run(k: &Kernel, thread: Handle<Thread>) {
    k.threads.get(thread).life.set(Life::Runnable);
    k.run_queue.push_back(&k.threads, thread);
    header().runnable.store(k.run_queue.len(), Ordering::Relaxed);
}

/// Frees the place of a thread that never runs again.
pub fn discard(k: &Kernel, thread: Handle<Thread>) {
    let t = k.threads.get(thread);
    t.life.set(Life::Ended);
    t.process.set(None);
    t.fs.set(0);
    t.tid.set(0);
    k.threads.free(thread);
}

/// The thread of this process whose `pthread_t` this is.
pub fn find(k: &Kernel, pthread: libc::pthread_t) -> Option<Handle<Thread>> {
    threads_of(k, handle())
        .find(|(_, t)| t.fs.get() == pthread && t.tid.get() != 0)
        .map(|(handle, _)| handle)
}
