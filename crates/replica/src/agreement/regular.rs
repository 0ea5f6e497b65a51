//! Timers of the server that fire again and again after the same time, as most timers of idle servers do.
//!
//! A leader's node must know when the server's next timer is due, which the server says when it has executed the entry of the one before. Waking for that alone would be every other
//! wake-up of a node that is idle. Where a timer came twice after the same time, it expects it after the same time again, wakes then, and has the server wake it before only for news:
//! that it said something, or has a timer earlier than expected ([`skein_arena::gate::News`]). So a wrong expectation costs a wake-up, and a right one makes a timer late by
//! [`LATE_NS`] at most.
//!
//! A server may have several such timers, as a JVM has one of 50 ms and some of a second: each is a series of its own, counted from its own last entry.

use std::collections::VecDeque;

/// A timer may be that much earlier than expected without its server waking the node, and its entry is made as much later than expected.
const SLACK_NS: u64 = 1_000_000;
/// So late is a timer at most for that: 2 ms.
pub const LATE_NS: u64 = 2 * SLACK_NS;
/// Shorter times are not worth it: 20 times that.
const SHORTEST_NS: u64 = 20 * LATE_NS;
/// The most timers that are expected at a time,
const MOST: usize = 8;
/// and the most entries among which a new one is looked for.
const MOST_STRAY: usize = 16;

/// When the next timer is expected, by virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Not before this,
    pub not_before_ns: u64,
    /// and by then.
    pub by_ns: u64,
}

/// A timer that comes again and again.
#[derive(Clone, Copy, Debug)]
struct Series {
    /// The stamp of its last entry,
    stamp_ns: u64,
    /// and the time from there to when it is due.
    after_ns: u64,
}

impl Series {
    const fn next_ns(&self) -> u64 {
        self.stamp_ns.saturating_add(self.after_ns)
    }
}

/// What is known of the timers.
#[derive(Clone, Debug, Default)]
pub struct Regular {
    series: Vec<Series>,
    /// The last entries of no such timer: when it was due, and their stamp.
    stray: VecDeque<(u64, u64)>,
    /// The stamp of the last entry for a timer.
    stamp_ns: u64,
}

impl Regular {
    /// An entry with this stamp was made for the timer that was due at `due_ns`.
    pub fn fired(&mut self, due_ns: u64, stamp_ns: u64) {
        self.stamp_ns = stamp_ns;
        let is_due = |series: &Series| same(series.next_ns(), due_ns);
        let mut expected = false;
        for series in self.series.iter_mut().filter(|series| is_due(series)) {
            (series.stamp_ns, expected) = (stamp_ns, true);
        }
        // One that did not come when it was expected comes no more.
        self.series.retain(|series| series.next_ns() > due_ns.saturating_sub(SLACK_NS));
        if expected {
            return;
        }
        if self.series.len() < MOST
            && let Some((n, after_ns)) = self.third(due_ns)
        {
            self.stray.remove(n);
            self.series.push(Series { stamp_ns, after_ns });
            return;
        }
        if self.stray.len() == MOST_STRAY {
            self.stray.pop_front();
        }
        self.stray.push_back((due_ns, stamp_ns));
    }

    /// The entry that the one due now follows after the same time as it followed another one: its number among those, and that time.
    fn third(&self, due_ns: u64) -> Option<(usize, u64)> {
        let before = |n: usize, after_ns: u64| {
            let (due_ns, _) = self.stray[n];
            let mut earlier = self.stray.range(..n);
            earlier.any(|(_, stamp_ns)| same(stamp_ns.saturating_add(after_ns), due_ns))
        };
        let last = (0..self.stray.len()).rev();
        let after = last.map(|n| (n, due_ns.saturating_sub(self.stray[n].1)));
        let mut worth = after.filter(|(_, after_ns)| *after_ns >= SHORTEST_NS);
        worth.find(|(n, after_ns)| before(*n, *after_ns))
    }

    /// The server executes something else, too.
    pub fn disturbed(&mut self) {
        *self = Self::default();
    }

    /// When the next timer is expected, if one is.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        let next = self.series.iter().map(Series::next_ns);
        let at = next.filter(|at| *at > self.stamp_ns + SLACK_NS).min()?;
        Some(Expected { not_before_ns: at - SLACK_NS, by_ns: at + SLACK_NS })
    }
}

const fn same(a_ns: u64, b_ns: u64) -> bool {
    a_ns.abs_diff(b_ns) <= SLACK_NS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_timer_is_expected_that_came_twice_after_the_same_time() {
        let mut regular = Regular::default();
        assert_eq!(regular.expected(), None);
        for (due, stamp) in [(1000 * MS, 1000 * MS), (1100 * MS, 1101 * MS)] {
            regular.fired(due, stamp);
            assert_eq!(regular.expected(), None);
        }
        // 100 ms after the entry before, as the last one.
        regular.fired(1201 * MS, 1203 * MS);
        let expected = Expected { not_before_ns: 1302 * MS, by_ns: 1304 * MS };
        assert_eq!(regular.expected(), Some(expected));
        regular.fired(1253 * MS, 1253 * MS);
        assert_eq!(regular.expected(), Some(expected), "it comes nevertheless");
        regular.fired(1310 * MS, 1310 * MS);
        assert_eq!(regular.expected(), None, "it did not");
        regular.disturbed();
        assert_eq!(regular.expected(), None);
    }

    #[test]
    fn several_timers_are_expected_each_by_itself() {
        let mut regular = Regular::default();
        // Each is set anew when its entry is executed; 1 ms late, as is allowed.
        let mut timers = [(50 * MS, 50 * MS), (170 * MS, 313 * MS), (900 * MS, 1007 * MS)];
        let mut unexpected = Vec::new();
        for n in 0..300 {
            let (due, after) = *timers.iter().min().unwrap();
            let expected = regular.expected();
            let is_expected = expected
                .is_some_and(|expected| (expected.not_before_ns..=expected.by_ns).contains(&due));
            if !is_expected {
                unexpected.push(n);
            }
            let stamp = due + MS;
            timers
                .iter_mut()
                .filter(|one| **one == (due, after))
                .for_each(|one| one.0 = stamp + after);
            regular.fired(due, stamp);
        }
        // Each is learned from three times; one that is due with the next of another is said by the server.
        assert!(unexpected.len() < 20, "{unexpected:?}");
    }

    #[test]
    fn a_timer_that_is_due_soon_is_not_worth_it() {
        let mut regular = Regular::default();
        (1..5).for_each(|n| regular.fired(n * 7 * MS, n * 7 * MS));
        assert_eq!(regular.expected(), None);
    }

    #[test]
    fn timers_without_order_are_bounded() {
        let mut regular = Regular::default();
        let mut at = 0;
        for n in 0..10_000_u64 {
            at += 40 * MS + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (200 * MS);
            regular.fired(at, at);
            assert!(regular.stray.len() <= MOST_STRAY && regular.series.len() <= MOST);
        }
    }
}
