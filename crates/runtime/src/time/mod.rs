//! Virtual time. The time of day is the stamp of the last admitted entry, moved on a little by every look at it, so that clocks
//! never stand still nor run backwards inside an entry; all other clocks are offsets from it.

pub mod calls;

use crate::kernel::kernel;
use crate::{process, turn};
use core::cell::Cell;
use skein_libos::errno::{Errno, Result};
use skein_libos::time::NS_PER_S;
use skein_sched::Policy;
use skein_sched::op::{Kind, Object};

/// What one look at a clock takes: about what it takes natively, so that virtual time does not outrun the real one.
const LOOK_NS: u64 = 20;
/// A server that has looked more often since the last entry is working by the clock, until its time is up, or answers many requests. Each further
/// look takes as long as some work between two does.
const WORKING_LOOKS: u64 = 64;
const WORKING_LOOK_NS: u64 = 1000;
/// Whoever has looked so often and done nothing else that is ordered (who answers a crowd receives and sends between looks) is working by the clock
/// indeed: a look takes twice as long every few looks, up to 16 us. So "for a millisecond" is some 150 looks, where it would be 1,000.
const RUN_LOOKS: u64 = 64;
const RUN_DOUBLES_LOOKS: u64 = 8;
const RUN_DOUBLINGS_MAX: u64 = 4;
/// Longer looks than [`LOOK_NS`] are for a clock that is ahead of the last entry's stamp by less than 10 ms. Stamps are the leader's clock, so
/// virtual time keeps pace with it, however often a server looks: commands that a client sends by the hundred without waiting look like such work, and take a
/// microsecond each.
const AHEAD_NS: u64 = 10_000_000;
/// A server that works by the clock and has used that up gets more time from the leader alone. After so many looks in a row it waits for the next
/// entry, and what time it is then: else its work, which it bounds by the clock, would go on for long.
const WAIT_EVERY_LOOKS: u64 = 4096;
/// What the monotonic clock says at the server's start: some time after "boot", as on any machine.
const MONOTONIC_AT_START_NS: u64 = 1000 * NS_PER_S;

/// How often the server looks at clocks, and what it does between two looks: what the length of a look follows from. All-zero bytes are valid.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Pace {
    /// Looks since the last entry.
    looks: Cell<u64>,
    /// Looks without any other operation between them.
    run: Cell<u64>,
    /// Operations at the end of the last look.
    operations: Cell<u64>,
    /// The last entry's stamp.
    stamp_ns: Cell<u64>,
}

impl Pace {
    /// An entry with this stamp is admitted.
    pub fn admitted(&self, stamp_ns: u64) {
        self.looks.set(0);
        self.stamp_ns.set(stamp_ns);
    }

    /// A look begins after so many operations.
    fn begin(&self, operations: u64) {
        let on = operations == self.operations.get();
        self.run.set(if on { self.run.get() + 1 } else { 0 });
    }

    /// Whether the clock, which reads `now_ns`, is as far ahead of the last entry as it may be.
    fn is_ahead(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.stamp_ns.get()) >= AHEAD_NS
    }

    /// Whether the server must know the next entry before this look ends.
    fn needs_entry(&self, now_ns: u64) -> bool {
        let run = self.run.get();
        run > 0 && run.is_multiple_of(WAIT_EVERY_LOOKS) && self.is_ahead(now_ns)
    }

    /// It ends after so many operations, at `now_ns`: how long it took.
    fn end(&self, operations: u64, now_ns: u64) -> u64 {
        self.operations.set(operations);
        let looks = self.looks.get();
        self.looks.set(looks + 1);
        if self.is_ahead(now_ns) {
            return LOOK_NS;
        }
        match self.run.get().checked_sub(RUN_LOOKS) {
            Some(run) => WORKING_LOOK_NS << (run / RUN_DOUBLES_LOOKS).min(RUN_DOUBLINGS_MAX),
            None if looks < WORKING_LOOKS => LOOK_NS,
            None => WORKING_LOOK_NS,
        }
    }
}

/// A look at a clock: an operation.
pub fn look() -> u64 {
    let k = kernel();
    k.pace.begin(k.sched.operations());
    let _turn = turn::enter(Object::Clock, Kind::Ask);
    if k.pace.needs_entry(k.now_ns.get()) {
        turn::await_entry();
    }
    let now = k.now_ns.get();
    let now = now + k.pace.end(k.sched.operations(), now);
    k.now_ns.set(now);
    now
}

/// Whether `clock` is the time of day.
const fn is_realtime(clock: i32) -> bool {
    matches!(
        clock,
        libc::CLOCK_REALTIME
            | libc::CLOCK_REALTIME_COARSE
            | libc::CLOCK_REALTIME_ALARM
            | libc::CLOCK_TAI
    )
}

/// The clock's reading when the time of day is `now_ns`.
fn reading(clock: i32, now_ns: u64) -> Result<u64> {
    let since_start = now_ns - kernel().boot_ns.get();
    match clock {
        _ if is_realtime(clock) => Ok(now_ns),
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_BOOTTIME_ALARM => Ok(MONOTONIC_AT_START_NS + since_start),
        // CPU time is operations done, a microsecond each: it grows with work and is the same everywhere.
        libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => {
            Ok(kernel().sched.operations() * 1000)
        }
        clock if clock < 0 && is_somebodys(clock) => Ok(kernel().sched.operations() * 1000),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Clocks of processes and threads have negative numbers: the id, all bits turned over, and what it is of. Whether there is such a one.
fn is_somebodys(clock: i32) -> bool {
    const OF_THREAD: i32 = 4;
    const KIND: i32 = 3;
    let (id, k) = (!(clock >> 3), kernel());
    if clock & KIND == KIND {
        return false;
    }
    if clock & OF_THREAD != 0 {
        let mut own = process::threads_of(k, process::handle());
        return id == 0 || own.any(|(_, t)| t.tid.get() == id as u32);
    }
    id == 0 || process::find(k, id).is_some()
}

/// `clock_gettime`, in nanoseconds.
pub fn clock_ns(clock: i32) -> Result<u64> {
    let now = look();
    reading(clock, now)
}

/// The time of day at which `clock` will read `at_ns`: how absolute deadlines become the server's own.
pub fn deadline_of(clock: i32, at_ns: u64) -> Result<u64> {
    let now = kernel().now_ns.get();
    let reads = reading(clock, now)?;
    Ok(if at_ns >= reads {
        now.saturating_add(at_ns - reads)
    } else {
        now.saturating_sub(reads - at_ns)
    })
}

/// The time of day `ns` from now.
pub fn after(ns: u64) -> u64 {
    kernel().now_ns.get().saturating_add(ns)
}

/// Sleeps until the server's time of day is `deadline_ns`.
pub fn sleep_until(deadline_ns: u64) -> skein_libos::thread::Wake {
    crate::thread::cancellable(|| {
        if deadline_ns <= kernel().now_ns.get() {
            turn::yield_now();
            return skein_libos::thread::Wake::Timeout;
        }
        turn::suspend(Some(deadline_ns))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A server that looks at its clock, with `between` other operations before each look, until `ns` are over: how often it looked.
    fn looks_for(pace: &Pace, now_ns: &mut u64, ns: u64, between: u64) -> u64 {
        let until = *now_ns + ns;
        (1..)
            .find(|_| {
                let operations = pace.operations.get() + between;
                pace.begin(operations);
                *now_ns += pace.end(operations + 1, *now_ns);
                *now_ns >= until
            })
            .expect("the clock goes on")
    }

    fn admitted(stamp_ns: u64) -> (Pace, u64) {
        let pace = Pace::default();
        // Whatever was done before the entry, it was no look.
        pace.begin(1);
        pace.admitted(stamp_ns);
        (pace, stamp_ns)
    }

    #[test]
    fn work_for_a_millisecond_is_some_hundred_looks() {
        let (pace, mut now) = admitted(MS);
        let first = looks_for(&pace, &mut now, MS, 0);
        assert!((100..200).contains(&first), "{first} looks");
        // Each further one goes on where it was.
        let next = looks_for(&pace, &mut now, MS, 0);
        assert!((50..100).contains(&next), "{next} looks");
    }

    #[test]
    fn looks_between_other_operations_are_short() {
        for between in [1, 7] {
            let (pace, mut now) = admitted(MS);
            let looks = looks_for(&pace, &mut now, MS, between);
            assert!((1000..1100).contains(&looks), "{looks} looks with {between} between");
        }
    }

    #[test]
    fn an_operation_ends_a_run() {
        let (pace, mut now) = admitted(MS);
        looks_for(&pace, &mut now, MS, 0);
        let before = now;
        looks_for(&pace, &mut now, 1, 1);
        assert_eq!(now - before, WORKING_LOOK_NS);
    }

    #[test]
    fn a_clock_that_is_ahead_goes_on_by_short_looks() {
        let (pace, mut now) = admitted(MS);
        looks_for(&pace, &mut now, AHEAD_NS, 0);
        for between in [0, 1] {
            let looks = looks_for(&pace, &mut now, MS, between);
            assert_eq!(looks, MS / LOOK_NS, "{between} between");
        }
        // The next entry comes before real time has caught up.
        pace.admitted(2 * MS);
        assert!(looks_for(&pace, &mut now, MS, 0) > 1000);
        // This one after.
        now = 20 * MS;
        pace.admitted(now);
        assert!(looks_for(&pace, &mut now, MS, 0) < 100);
    }

    #[test]
    fn however_often_a_server_looks_it_keeps_pace_with_the_stamps() {
        let (pace, mut now) = admitted(MS);
        // 10,000 looks in each entry, which takes 5 ms; a few of them with other operations between.
        for entry in 1..1000 {
            for look in 0..10_000_u64 {
                let between = u64::from(look.is_multiple_of(entry));
                looks_for(&pace, &mut now, 1, between);
            }
            let stamp = MS + entry * 5 * MS;
            assert!(now < stamp + AHEAD_NS, "{} ns ahead", now - stamp);
            now = now.max(stamp);
            pace.admitted(stamp);
        }
    }

    #[test]
    fn whoever_works_by_a_clock_that_is_ahead_waits_for_the_next_entry_now_and_then() {
        let (pace, mut now) = admitted(MS);
        let mut waits = |looks: u64, between: u64| {
            let needs = |_: &u64| {
                looks_for(&pace, &mut now, 1, between);
                pace.needs_entry(now)
            };
            (0..looks).filter(needs).count()
        };
        assert_eq!(waits(WAIT_EVERY_LOOKS / 2, 0), 0, "it was not ahead for long");
        assert_eq!(waits(WAIT_EVERY_LOOKS * 10, 0), 10);
        assert_eq!(waits(WAIT_EVERY_LOOKS * 10, 1), 0, "it does other things");
    }
}
