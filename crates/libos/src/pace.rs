//! How far a look at a clock advances virtual time.

use core::cell::Cell;

/// The advance of one look at a clock: about its native duration, so that virtual time does not outrun the real one.
const LOOK_NS: u64 = 20;
/// A server that has looked more often since the last entry is working by the clock, until its time is up, or answers many requests. Each further
/// look takes as long as the work between two looks natively does.
const WORKING_LOOKS: u64 = 64;
const WORKING_LOOK_NS: u64 = 1000;
/// A server that looked this often and did no other ordered operation (a server that answers a crowd receives and sends between looks) is certainly working by the clock:
/// a look takes twice as long every few looks, up to 16 us. So "for a millisecond" is some 150 looks, where it would be 1,000.
const RUN_LOOKS: u64 = 64;
const RUN_DOUBLES_LOOKS: u64 = 8;
const RUN_DOUBLINGS_MAX: u64 = 4;
/// Looks longer than [`LOOK_NS`] are made only while the clock is less than 10 ms ahead of the last entry's stamp. Stamps are the leader's clock, so
/// virtual time keeps pace with it, however often a server looks: hundreds of pipelined commands look like such work, and take a
/// microsecond each.
const AHEAD_NS: u64 = 10_000_000;
/// A server that works by the clock and has used that up gets more time from the leader only. After this many looks in a row it waits for the next
/// entry and its time: otherwise its work, which it bounds by the clock, would go on for long.
const WAIT_EVERY_LOOKS: u64 = 4096;

/// The server's looks at clocks, and its operations between them: they decide the length of a look. All-zero bytes are valid.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Pace {
    /// The number of looks since the last entry.
    looks: Cell<u64>,
    /// The number of looks without any other operation between them.
    run: Cell<u64>,
    /// The number of operations at the end of the last look.
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

    /// A look begins after this many operations.
    #[inline]
    pub fn begin(&self, operations: u64) {
        let on = operations == self.operations.get();
        self.run.set(if on { self.run.get() + 1 } else { 0 });
    }

    /// Whether the clock, which reads `now_ns`, is as far ahead of the last entry as it may be.
    fn is_ahead(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.stamp_ns.get()) >= AHEAD_NS
    }

    /// Whether the server must know the next entry before this look ends.
    #[inline]
    pub fn needs_entry(&self, now_ns: u64) -> bool {
        let run = self.run.get();
        run > 0 && run.is_multiple_of(WAIT_EVERY_LOOKS) && self.is_ahead(now_ns)
    }

    /// The look ends after this many operations, at `now_ns`; answers its duration.
    #[inline]
    pub fn end(&self, operations: u64, now_ns: u64) -> u64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A server that looks at its clock, with `between` other operations before each look, until `ns` are over; answers the number of looks.
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
        // Operations before the entry were no looks.
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
