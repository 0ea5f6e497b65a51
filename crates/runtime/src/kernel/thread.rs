//! A thread in the arena.

use super::process::{PID_AT, Process};
use super::turns::Spinner;
use crate::context;
use crate::local::MAX_THREADS;
use crate::stack::Place;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::AtomicU32;
use skein_arena::list::{In, Node};
use skein_arena::parts::Threads;
use skein_arena::pool::ArenaObject;
use skein_libos::process::MAX_PROCESSES;
use skein_libos::room::Room;
use skein_libos::thread::{Queue, Waiting};

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
