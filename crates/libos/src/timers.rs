//! Deadlines: a binary heap ordered by time, then by age, so that equal deadlines fire in the order they were set.

pub mod records;
use crate::host::Host;
use crate::room::Room;
use crate::state::timers::MAX_TIMERS;
pub use crate::state::timers::{Timer, Timers};
use crate::thread::Wake;
use core::cell::Cell;
use skein_arena::pool::Handle;

// The owner of a deadline.
const THREAD: u32 = 0;
const TIMERFD: u32 = 1;
const SIGNAL: u32 = 2;

/// Those that set deadlines, for every host: `above.rs` says what they do, as they are of rooms above this one.
pub trait Owners: Host {
    /// The deadline of timerfd `raw` has passed.
    fn timerfd_is_due(&self, raw: u32);
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

    fn add(&self, k: &impl Host, at_ns: u64, target: u32) -> Handle<Timer> {
        let Some(timer) = self.pool.alloc() else {
            k.fatal(format_args!("more than {MAX_TIMERS} deadlines at one time"))
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
    pub fn set_thread<H: Host>(&self, k: &H, thread: Handle<H::Thread>, at_ns: u64) {
        let timer = self.add(k, at_ns, thread.raw() << 2 | THREAD);
        k.threads.get(thread).timer.set(Some(timer));
    }

    /// Removes a thread's deadline, if it has one.
    pub fn clear_thread<H: Host>(&self, k: &H, thread: Handle<H::Thread>) {
        if let Some(timer) = k.threads.get(thread).timer.take() {
            self.remove(timer);
        }
    }

    /// Sets a deadline of a timerfd.
    pub fn set_timerfd(&self, k: &impl Host, raw: u32, at_ns: u64) -> Handle<Timer> {
        self.add(k, at_ns, raw << 2 | TIMERFD)
    }

    /// Sets a deadline of a timer that sends signals.
    pub fn set_signal(&self, k: &impl Host, raw: u32, at_ns: u64) -> Handle<Timer> {
        self.add(k, at_ns, raw << 2 | SIGNAL)
    }

    /// The earliest deadline; `u64::MAX` when there is none.
    pub fn next_deadline(&self) -> u64 {
        if self.len.get() == 0 { u64::MAX } else { self.pool.get(self.at(0)).at_ns.get() }
    }

    /// Fires all deadlines that virtual time has reached.
    pub fn fire_due<H: Host>(&self, k: &H) {
        while self.next_deadline() <= k.now_ns.get() {
            let timer = self.at(0);
            let target = self.pool.get(timer).target.get();
            if target & 3 == THREAD {
                let thread = Handle::from_raw(target >> 2).expect("a thread");
                // Removes the deadline.
                if !k.resume(thread, Wake::Timeout) {
                    self.clear_thread(k, thread);
                }
            } else {
                self.remove(timer);
                match target & 3 {
                    TIMERFD => k.timerfd_is_due(target >> 2),
                    _ => k.signal_timer_fired(target >> 2),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fake::Fake;

    fn fired(k: &Fake<'_>, now_ns: u64) -> Vec<u32> {
        k.now_ns.set(now_ns);
        k.timers.fire_due(k);
        k.signal_timers.take()
    }

    #[test]
    fn deadlines_pass_in_order_and_equal_ones_by_age() {
        let k = Fake::new(1);
        for (raw, at_ns) in [(1, 500), (2, 300), (3, 500), (4, 100), (5, 300), (6, 900)] {
            k.timers.set_signal(&k, raw, 2_000_000 + at_ns);
        }
        assert_eq!(k.timers.next_deadline(), 2_000_100);
        assert_eq!(fired(&k, 2_000_299), [4]);
        assert_eq!(fired(&k, 2_000_500), [2, 5, 1, 3]);
        assert_eq!(fired(&k, 2_000_899), [0; 0]);
        assert_eq!(fired(&k, u64::MAX - 1), [6]);
        assert_eq!(k.timers.next_deadline(), u64::MAX);
    }

    #[test]
    fn removed_deadlines_do_not_pass() {
        let k = Fake::new(1);
        let set = |raw: u32| k.timers.set_signal(&k, raw, 2_000_000 + u64::from(raw * 7 % 11));
        let timers: Vec<_> = (1..=10).map(set).collect();
        for timer in timers.iter().step_by(3) {
            k.timers.remove(*timer);
        }
        let mut left: Vec<u32> = (1..=10).filter(|raw| (raw - 1) % 3 != 0).collect();
        left.sort_by_key(|raw| raw * 7 % 11);
        assert_eq!(fired(&k, 3_000_000), left);
    }
}
