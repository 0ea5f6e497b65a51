//! Deadlines: a binary heap ordered by time, then by age, so that equal deadlines fire in the order they were set.

use crate::io::timerfd;
use crate::kernel::{Kernel, Room};
use crate::signal;
use crate::thread::Thread;
use crate::turn;
use core::cell::Cell;
use skein_arena::pool::{ArenaObject, Handle, Pool};
use skein_libos::thread::Wake;

/// Deadlines at one time: 16,384.
const MAX_TIMERS: u32 = 16 << 10;

// What a deadline is of.
const THREAD: u32 = 0;
const TIMERFD: u32 = 1;
const SIGNAL: u32 = 2;

/// A deadline.
#[repr(C)]
pub struct Timer {
    at_ns: Cell<u64>,
    age: Cell<u64>,
    /// Its place in the heap.
    place: Cell<u32>,
    /// What is told, and its kind: `raw << 2 | kind`.
    target: Cell<u32>,
}

// SAFETY: cells of numbers.
unsafe impl ArenaObject for Timer {}

/// All deadlines. All-zero bytes, then `lay_out`.
#[repr(C)]
pub struct Timers {
    pool: Pool<Timer>,
    heap: Cell<usize>,
    len: Cell<u32>,
    _pad: Cell<u32>,
    ages: Cell<u64>,
}

impl Timers {
    /// Takes its memory.
    pub fn lay_out(&self, room: &mut Room) {
        room.pool(&self.pool, MAX_TIMERS);
        self.heap.set(room.row::<u32>("timers by deadline", MAX_TIMERS) as usize);
    }

    fn place(&self, at: u32) -> &Cell<u32> {
        debug_assert!(at < MAX_TIMERS);
        // SAFETY: the heap array has `MAX_TIMERS` zeroed words for as long as the arena lives.
        unsafe { &*(self.heap.get() as *const Cell<u32>).add(at as usize) }
    }

    fn at(&self, at: u32) -> Handle<Timer> {
        Handle::from_raw(self.place(at).get()).expect("a filled place of the heap")
    }

    fn before(&self, a: Handle<Timer>, b: Handle<Timer>) -> bool {
        let (a, b) = (self.pool.get(a), self.pool.get(b));
        (a.at_ns.get(), a.age.get()) < (b.at_ns.get(), b.age.get())
    }

    fn put(&self, at: u32, timer: Handle<Timer>) {
        self.place(at).set(timer.raw());
        self.pool.get(timer).place.set(at);
    }

    fn sift(&self, mut at: u32, timer: Handle<Timer>) {
        while at > 0 && self.before(timer, self.at((at - 1) / 2)) {
            let parent = self.at((at - 1) / 2);
            self.put(at, parent);
            at = (at - 1) / 2;
        }
        loop {
            let left = 2 * at + 1;
            if left >= self.len.get() {
                break;
            }
            let right = left + 1;
            let least = if right < self.len.get() && self.before(self.at(right), self.at(left)) {
                right
            } else {
                left
            };
            if !self.before(self.at(least), timer) {
                break;
            }
            let child = self.at(least);
            self.put(at, child);
            at = least;
        }
        self.put(at, timer);
    }

    fn add(&self, at_ns: u64, target: u32) -> Handle<Timer> {
        let Some(timer) = self.pool.alloc() else {
            crate::fatal::refuse!("more than {MAX_TIMERS} deadlines at one time")
        };
        let t = self.pool.get(timer);
        t.at_ns.set(at_ns);
        t.age.set(self.ages.get());
        self.ages.set(self.ages.get() + 1);
        t.target.set(target);
        let at = self.len.get();
        self.len.set(at + 1);
        self.sift(at, timer);
        timer
    }

    /// Removes a deadline.
    pub fn remove(&self, timer: Handle<Timer>) {
        let at = self.pool.get(timer).place.get();
        let last = self.len.get() - 1;
        self.len.set(last);
        let moved = self.at(last);
        if moved != timer {
            self.sift(at, moved);
        }
        self.pool.free(timer);
    }

    /// Sets a thread's deadline.
    pub fn set_thread(&self, k: &Kernel, thread: Handle<Thread>, at_ns: u64) {
        let timer = self.add(at_ns, thread.raw() << 2 | THREAD);
        k.threads.get(thread).timer.set(Some(timer));
    }

    /// Removes a thread's deadline, if it has one.
    pub fn clear_thread(&self, k: &Kernel, thread: Handle<Thread>) {
        if let Some(timer) = k.threads.get(thread).timer.take() {
            self.remove(timer);
        }
    }

    /// Sets a deadline of a timerfd.
    pub fn set_timerfd(&self, raw: u32, at_ns: u64) -> Handle<Timer> {
        self.add(at_ns, raw << 2 | TIMERFD)
    }

    /// Sets a deadline of a timer that sends signals.
    pub fn set_signal(&self, raw: u32, at_ns: u64) -> Handle<Timer> {
        self.add(at_ns, raw << 2 | SIGNAL)
    }

    /// The earliest deadline; `u64::MAX` when there is none.
    pub fn next_deadline(&self) -> u64 {
        if self.len.get() == 0 { u64::MAX } else { self.pool.get(self.at(0)).at_ns.get() }
    }

    /// Fires all deadlines that the server's time has reached.
    pub fn fire_due(&self, k: &Kernel) {
        while self.next_deadline() <= k.now_ns.get() {
            let timer = self.at(0);
            let target = self.pool.get(timer).target.get();
            if target & 3 == THREAD {
                let thread = Handle::from_raw(target >> 2).expect("a thread");
                // Removes the deadline.
                if !turn::resume(thread, Wake::Timeout) {
                    self.clear_thread(k, thread);
                }
            } else {
                self.remove(timer);
                match target & 3 {
                    TIMERFD => timerfd::fired(k, target >> 2),
                    _ => signal::timer::fired(k, target >> 2),
                }
            }
        }
    }
}
