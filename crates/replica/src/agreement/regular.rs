//! Timers of the server that fire again and again after the same time, as most timers of idle servers do.
//!
//! A leader's node must know when the server's next timer is due, which the server says when it has executed the entry of the one before. Waking for that alone would be every other
//! wake-up of a node that is idle. Where a timer came twice after the same time, it expects it after the same time again, wakes then, and has the server wake it before only for news:
//! that it said something, or has a timer earlier than expected ([`skein_arena::gate::News`]). So a wrong expectation costs a wake-up.
//!
//! A server may have several such timers, as a JVM has one of 50 ms and some of a second. Each is a series of its own: some are set anew when they fire, and so are counted from the
//! entry before; others are due at multiples of their time, however late the one before came.
//!
//! One that is set anew has slack: its entry may come later by nine tenths of that time, and by no more than is configured. So timers are fewer, and share entries. The node is not woken
//! meanwhile for a timer that is not regular, which may be as late. Work in small steps between short sleeps is not slowed down by that but for its first few: for a second after a sleep that
//! came again, or many that were short, none has slack.

use std::collections::VecDeque;
use std::time::Duration;

/// A timer may be that much earlier than expected without its server waking the node, and its entry is made as much later than expected, at least.
const PRECISION_NS: u64 = 1_000_000;
/// From the earliest time of an expected timer to the latest without slack.
pub const SPAN_NS: u64 = 2 * PRECISION_NS;
/// Shorter times are not worth it: 40 ms.
const SHORTEST_NS: u64 = 40 * PRECISION_NS;
/// So long after work in small steps no timer has slack: 1 s.
const HASTE_NS: u64 = 1_000 * PRECISION_NS;
/// A sleep is the same one again within this time: 250 ms.
const AGAIN_NS: u64 = 250 * PRECISION_NS;
/// So many short sleeps in [`HASTE_NS`] are work in small steps.
const MANY_STEPS: usize = 6;
/// A series of which nothing but others' entries was seen so many times is none.
const MOST_SHARED: u8 = 4;
/// The most timers that are expected at a time,
const MOST: usize = 8;
/// and the most entries among which a new one is looked for.
const MOST_STRAY: usize = 16;

/// When the next timer is expected, by virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Not before this,
    pub not_before_ns: u64,
    /// and its entry is to come by then.
    pub by_ns: u64,
}

/// What the next time of a timer is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// The entry of the last one,
    Entry,
    /// or when that was due.
    Due,
}

/// A timer that comes again and again.
#[derive(Clone, Copy, Debug)]
struct Series {
    /// When the last one was due,
    due_ns: u64,
    /// the stamp of its entry,
    stamp_ns: u64,
    /// the time from one of these to the next,
    after_ns: u64,
    /// and from which, once that is known.
    from: Option<From>,
    /// The last entries were made for others.
    shared: u8,
}

impl Series {
    /// When the next one is due if it is counted from this.
    const fn next_from(&self, from: From) -> u64 {
        let last_ns = match from {
            From::Entry => self.stamp_ns,
            From::Due => self.due_ns,
        };
        last_ns.saturating_add(self.after_ns)
    }

    /// When the next one is due, or the earliest that it may be.
    fn next_ns(&self) -> u64 {
        self.next_from(self.from.unwrap_or(From::Due))
    }

    /// Whether it is the one that was due then; what its times are counted from shows by that.
    fn is_due(&mut self, due_ns: u64) -> bool {
        let [entry, due] = [From::Entry, From::Due].map(|from| same(self.next_from(from), due_ns));
        self.from = self.from.or(match (entry, due) {
            (true, false) => Some(From::Entry),
            (false, true) => Some(From::Due),
            _ => None,
        });
        match self.from {
            Some(From::Entry) => entry,
            Some(From::Due) => due,
            None => entry || due,
        }
    }
}

/// Work in small steps between short sleeps, perhaps: timers that nobody expected, each due soon after the entry before it.
#[derive(Clone, Debug, Default)]
struct Steps {
    /// The entries of the last ones,
    stamps: VecDeque<u64>,
    /// and how soon the last one was due.
    after_ns: u64,
}

impl Steps {
    /// One was due so long after the entry before it. Whether that is such work: the same sleep came shortly before, or many short ones did. Some come by chance: timers that have nothing to
    /// do with each other.
    fn are_taken(&mut self, after_ns: u64, stamp_ns: u64) -> bool {
        if after_ns >= SHORTEST_NS {
            return false;
        }
        let ago = |at: &u64| stamp_ns.saturating_sub(*at);
        let was_same = same(std::mem::replace(&mut self.after_ns, after_ns), after_ns);
        let again = was_same && self.stamps.back().is_some_and(|at| ago(at) < AGAIN_NS);
        self.stamps.retain(|at| ago(at) < HASTE_NS);
        self.stamps.push_back(stamp_ns);
        if self.stamps.len() > MANY_STEPS {
            self.stamps.pop_front();
        }
        again || self.stamps.len() == MANY_STEPS
    }
}

/// What is known of the timers.
#[derive(Clone, Debug)]
pub struct Regular {
    /// The longest slack.
    slack_ns: u64,
    series: Vec<Series>,
    /// The last entries of no such timer: when it was due, and their stamp.
    stray: VecDeque<(u64, u64)>,
    /// The stamp of the last entry for a timer,
    stamp_ns: u64,
    /// and until when none has slack.
    haste_ns: u64,
    steps: Steps,
}

impl Regular {
    /// Nothing; timers fire that much later at most.
    #[must_use]
    pub fn new(slack: Duration) -> Self {
        let slack_ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
        let (series, stray, steps) = (Vec::new(), VecDeque::new(), Steps::default());
        Self { slack_ns, series, stray, stamp_ns: 0, haste_ns: 0, steps }
    }

    /// An entry with this stamp was made for the timer that was due at `due_ns`.
    pub fn fired(&mut self, due_ns: u64, stamp_ns: u64) {
        let last_ns = std::mem::replace(&mut self.stamp_ns, stamp_ns);
        let mut expected = false;
        for series in &mut self.series {
            if series.is_due(due_ns) {
                (series.due_ns, series.stamp_ns, expected) = (due_ns, stamp_ns, true);
                series.shared = 0;
            } else if (due_ns..=stamp_ns).contains(&series.next_ns()) {
                // The same entry was for this one.
                (series.due_ns, series.stamp_ns) = (series.next_ns(), stamp_ns);
                series.shared += 1;
            }
        }
        // One that did not come when it was expected comes no more.
        let comes = |one: &Series| one.next_ns() > due_ns.saturating_sub(PRECISION_NS);
        self.series.retain(|series| comes(series) && series.shared < MOST_SHARED);
        if expected {
            return;
        }
        if self.steps.are_taken(due_ns.saturating_sub(last_ns), stamp_ns) {
            self.haste_ns = stamp_ns.saturating_add(HASTE_NS);
        }
        if self.series.len() < MOST
            && let Some((n, after_ns)) = self.third(due_ns)
        {
            // It came so long after that entry.
            let entry = self.stray.remove(n).map(|(due_ns, _)| due_ns.saturating_add(after_ns));
            let from = entry.filter(|at| !same(*at, due_ns)).map(|_| From::Entry);
            self.series.push(Series { due_ns, stamp_ns, after_ns, from, shared: 0 });
            return;
        }
        if self.stray.len() == MOST_STRAY {
            self.stray.pop_front();
        }
        self.stray.push_back((due_ns, stamp_ns));
    }

    /// The timer that is expected next is given an entry with this stamp.
    pub fn comes(&mut self, stamp_ns: u64) {
        let due_ns = self.expected().map(|expected| expected.not_before_ns + PRECISION_NS);
        self.fired(due_ns.unwrap_or(stamp_ns), stamp_ns);
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
        let mut later = after.filter(|(_, after_ns)| *after_ns > PRECISION_NS);
        // Multiples of a shorter time come after it.
        let shortest = later.find(|(n, after_ns)| before(*n, *after_ns));
        shortest.filter(|(_, after_ns)| *after_ns >= SHORTEST_NS)
    }

    /// The server executes something else, too.
    pub fn disturbed(&mut self) {
        self.series.clear();
        self.stray.clear();
        (self.stamp_ns, self.haste_ns, self.steps) = (0, 0, Steps::default());
    }

    /// When the next timer is expected, if one is.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        let next = self.series.iter().filter(|one| one.next_ns() > self.stamp_ns + PRECISION_NS);
        let not_before_ns = next.clone().map(Series::next_ns).min()? - PRECISION_NS;
        let by_ns = next.map(|one| {
            // One that is due at multiples of its time does not come less often by it.
            let has_slack = one.from != Some(From::Due) && self.stamp_ns >= self.haste_ns;
            let slack_ns = if has_slack { self.slack_ns.min(one.after_ns / 10 * 9) } else { 0 };
            one.next_ns().saturating_add(slack_ns.max(PRECISION_NS))
        });
        Some(Expected { not_before_ns, by_ns: by_ns.min()? })
    }
}

const fn same(a_ns: u64, b_ns: u64) -> bool {
    a_ns.abs_diff(b_ns) <= PRECISION_NS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_timer_is_expected_that_came_twice_after_the_same_time() {
        let mut regular = Regular::new(Duration::ZERO);
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
        let mut regular = Regular::new(Duration::ZERO);
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

    /// A server's timers, each with its time, and what that is counted from: the entries of some time, the expected ones as late as they may come.
    fn entries_of(slack: Duration, timers: &mut [(u64, u64, From)], seconds: u64) -> (u64, u64) {
        let mut regular = Regular::new(slack);
        let (mut now, mut entries, mut unexpected) = (0, 0, 0);
        while now < seconds * 1_000 * MS {
            let due = timers.iter().map(|timer| timer.0).min().unwrap();
            let expected = regular.expected().filter(|at| due >= at.not_before_ns && due > now);
            now = expected.map_or(due, |expected| expected.by_ns).max(due).max(now);
            unexpected += u64::from(expected.is_none());
            entries += 1;
            for (next, after, from) in timers.iter_mut().filter(|timer| timer.0 <= now) {
                let most = u64::try_from(slack.as_nanos()).unwrap().min(*after / 10 * 9);
                assert!(now - *next <= most.max(MS) + MS, "{after}: {}", now - *next);
                *next = *after + if *from == From::Entry { now } else { *next };
            }
            regular.fired(due, now);
        }
        (entries, unexpected)
    }

    #[test]
    fn timers_with_slack_are_fewer_and_share_entries() {
        let slack = Duration::from_millis(45);
        for from in [From::Entry, From::Due] {
            let mut one = [(100 * MS, 100 * MS, from)];
            let (all, few) =
                (entries_of(Duration::ZERO, &mut one.clone(), 10), entries_of(slack, &mut one, 10));
            assert!((95..=100).contains(&all.0) && all.1 < 5, "{from:?}: {all:?}");
            // Those that are due at multiples of their time do not become fewer.
            let most = if from == From::Entry { 72 } else { 100 };
            assert!((67..=most).contains(&few.0) && few.1 < 8, "{from:?}: {few:?}");
        }
        let mut several = [
            (50 * MS, 50 * MS, From::Entry),
            (70 * MS, 310 * MS, From::Entry),
            (90 * MS, 970 * MS, From::Due),
        ];
        let all = entries_of(Duration::ZERO, &mut several.clone(), 10);
        let (few, unexpected) = entries_of(slack, &mut several, 10);
        // 200, 32 and 10 of each without.
        assert!(all.0 > 230 && few < 195, "{all:?}: {few}");
        assert!(unexpected < 40, "{unexpected}");
    }

    /// An idle JVM with an HTTP server: periodic tasks, idle monitors, garbage collection, compilers, a dispatcher.
    #[test]
    fn timers_of_an_idle_jvm_share_entries() {
        let every = [50, 250, 300, 1_000, 1_000, 1_000, 5_000, 5_000, 10_000];
        let first = [50, 120, 130, 400, 500, 777, 1_000, 1_003, 3_000];
        let mut timers = Vec::new();
        timers
            .extend(first.iter().zip(every).map(|(at, after)| (at * MS, after * MS, From::Entry)));
        let (all, _) = entries_of(Duration::ZERO, &mut timers.clone(), 60);
        let (few, unexpected) = entries_of(Duration::from_millis(45), &mut timers, 60);
        assert!(all > 1_700, "{all}");
        assert!(few < 850 && unexpected < 80, "{few} entries, {unexpected} unexpected");
    }

    #[test]
    fn a_timer_that_is_due_soon_is_not_worth_it() {
        for every in [3, 7, 19, 20, 39] {
            let mut regular = Regular::new(Duration::from_millis(45));
            (1..100).for_each(|n| regular.fired(n * every * MS, n * every * MS));
            assert_eq!(regular.expected(), None, "{every} ms");
        }
    }

    /// A server sleeps for short times now and then, beside a regular timer.
    #[test]
    fn short_sleeps_are_as_short_as_ever_but_for_the_first() {
        // The regular timer, sleeps from one length to another, and how many of a burst may be late.
        for (every, first, last, most) in [
            (100, 2, 2, 2),
            (100, 10, 10, 2),
            (100, 30, 30, 2),
            (100, 1, 37, 3),
            (50, 2, 2, 2),
            (50, 30, 30, 4),
            (50, 39, 39, 4),
            (50, 1, 37, 5),
            (50, 20, 39, 6),
        ] {
            let sleep = |step: u64| first + step * 17 % (last - first + 1);
            let mut regular = Regular::new(Duration::from_millis(45));
            let (mut cron, mut step, mut steps) = (every * MS, 3_000 * MS, 0);
            let (mut now, mut late) = (0, Vec::new());
            while now < 20_000 * MS {
                let due = cron.min(step);
                let expected = regular.expected().filter(|at| due >= at.not_before_ns);
                now = expected.map_or(due, |expected| expected.by_ns).max(due);
                if step <= now {
                    late.push(now - step);
                    steps += 1;
                    step = now + if steps % 40 == 0 { 3_000 } else { sleep(steps) } * MS;
                }
                if cron <= now {
                    cron = now + every * MS;
                }
                regular.fired(due, now);
            }
            let name = format!("{every} ms, sleeps of {first} to {last} ms");
            let bursts = steps / 40 + 1;
            let stalls = late.iter().filter(|late| **late > 2 * PRECISION_NS).count() as u64;
            assert!(steps > 80 && stalls <= most * bursts, "{name}: {stalls} of {steps}");
            assert!(late.iter().all(|late| *late <= 47 * MS), "{name}: {late:?}");
        }
    }

    #[test]
    fn timers_without_order_are_bounded() {
        let mut regular = Regular::new(Duration::ZERO);
        let mut at = 0;
        for n in 0..10_000_u64 {
            at += 40 * MS + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (200 * MS);
            regular.fired(at, at);
            assert!(regular.stray.len() <= MOST_STRAY && regular.series.len() <= MOST);
        }
    }
}
