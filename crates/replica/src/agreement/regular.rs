//! A timer of the server that fires again and again after the same time, as most timers of idle servers do.
//!
//! A leader's node must know when the server's next timer is due, which the server says when it has executed the entry of the one before. Waking for that alone would be every other
//! wake-up of a node that is idle. Where the last two times were equal, it expects the next timer after the same time again, wakes then, and has the server wake it before only for news:
//! that it said something, or has a timer earlier than expected ([`skein_arena::gate::News`]). So a wrong expectation costs a wake-up, and a right one makes a timer late by
//! [`LATE_NS`] at most.

/// A timer may be that much earlier than expected without its server waking the node, and its entry is made as much later than expected.
const SLACK_NS: u64 = 1_000_000;
/// So late is a timer at most for that: 2 ms.
pub const LATE_NS: u64 = 2 * SLACK_NS;
/// Shorter times are not worth it: 20 times that.
const SHORTEST_NS: u64 = 20 * LATE_NS;

/// When the next timer is expected, by virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Not before this,
    pub not_before_ns: u64,
    /// and by then.
    pub by_ns: u64,
}

/// What is known of the timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regular {
    /// The stamp of the last entry for a timer.
    stamp_ns: Option<u64>,
    /// The last time from such an entry to the next timer,
    after_ns: Option<u64>,
    /// which was that of the time before, too.
    is_regular: bool,
}

impl Regular {
    /// An entry with this stamp was made for the timer that was due at `due_ns`.
    pub fn fired(&mut self, due_ns: u64, stamp_ns: u64) {
        let after = self.stamp_ns.replace(stamp_ns).map(|last| due_ns.saturating_sub(last));
        let same = |(before, after): (u64, u64)| before.abs_diff(after) <= SLACK_NS / 2;
        self.is_regular = self.after_ns.zip(after).is_some_and(same);
        self.after_ns = after;
    }

    /// The server executes something else, too.
    pub fn disturbed(&mut self) {
        *self = Self::default();
    }

    /// When the next timer is expected, if it is.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        let after = self.after_ns.filter(|after| self.is_regular && *after >= SHORTEST_NS)?;
        let at = self.stamp_ns?.saturating_add(after);
        Some(Expected { not_before_ns: at - SLACK_NS, by_ns: at + SLACK_NS })
    }
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
        assert_eq!(regular.expected(), None, "it was earlier");
        regular.fired(1303 * MS, 1303 * MS);
        assert!(regular.expected().is_some());
        regular.disturbed();
        assert_eq!(regular.expected(), None);
    }

    #[test]
    fn a_timer_that_is_due_soon_is_not_worth_it() {
        let mut regular = Regular::default();
        (1..5).for_each(|n| regular.fired(n * 7 * MS, n * 7 * MS));
        assert_eq!(regular.expected(), None);
    }
}
