//! Deferred syncs: a leader delays its own writes while the followers' disks suffice.
//!
//! An entry is committed when a majority has it on disk, and of three replicas or more the followers are a majority without the leader. While
//! they answer, no client waits for the leader's disk. The leader therefore holds its writes for some milliseconds and makes many entries durable
//! by one sync. When the followers are late (one is slow or dead), the leader's disk is needed: it writes the held entries at once, and
//! the next ones without a delay, for a while.
//!
//! Writes of entries that nobody waits for ([`super::unhurried`]) are held for longer, on followers, too.
//!
//! The promise does not change: consensus counts the leader's vote for an entry only when its own disk has the entry.

use skein_log::majority;
use std::time::Duration;

/// The longest delay of a write that others make as well.
pub const LONGEST: Duration = Duration::from_millis(25);
/// The least time that the other replicas get for a commit.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);
/// Their time as a multiple of a recent commit's.
const PATIENCE: u32 = 3;
/// The most time that they get.
const LONGEST_PATIENCE: Duration = Duration::from_millis(5);
/// Held writes beyond this size are made at once: 1 MiB.
const MOST_BYTES: usize = 1 << 20;
/// The most writes that a leader makes at once after its disk was needed.
const MAX_UNDEFERRED: u32 = 1023;

/// The writes that a replica defers. `T` is a write.
#[derive(Clone, Debug)]
pub struct DeferredSync<T> {
    held: Vec<T>,
    bytes: usize,
    /// When they are made at the latest.
    until: Duration,
    /// The duration of a recent commit.
    takes: Duration,
    /// The number of next writes that are not deferred.
    undeferred: u32,
    /// The last number of such writes: it doubles each time the disk is needed.
    backoff: u32,
}

impl<T> Default for DeferredSync<T> {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            bytes: 0,
            until: Duration::ZERO,
            takes: Duration::ZERO,
            undeferred: 0,
            backoff: 0,
        }
    }
}

impl<T> DeferredSync<T> {
    /// Decides about the next write: true if it is deferred. Each call counts as one write. `others` of `replicas` can answer.
    pub const fn defer_next(&mut self, others: usize, replicas: usize) -> bool {
        if self.undeferred > 0 {
            self.undeferred -= 1;
            return false;
        }
        others >= majority(replicas)
    }

    /// Holds `what`, a write of so many bytes, until this time at the latest.
    pub fn hold(&mut self, what: T, bytes: usize, until: Duration) {
        self.until = if self.held.is_empty() { until } else { self.until.min(until) };
        self.held.push(what);
        self.bytes += bytes;
    }

    /// When the held writes must be made, if there are any; the oldest uncommitted entry has been waited for since `oldest`.
    #[must_use]
    pub fn due(&self, oldest: Option<Duration>) -> Option<Duration> {
        if self.held.is_empty() {
            return None;
        }
        if self.bytes > MOST_BYTES {
            return Some(Duration::ZERO);
        }
        Some(oldest.map_or(self.until, |since| self.until.min(since + self.patience())))
    }

    fn patience(&self) -> Duration {
        (PATIENCE * self.takes).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    /// Hands out the held writes, to be made now.
    pub fn take(&mut self, oldest: Option<Duration>, now: Duration) -> Vec<T> {
        if !self.held.is_empty() {
            if oldest.is_some_and(|since| since + self.patience() <= now) {
                self.backoff = (2 * self.backoff + 1).min(MAX_UNDEFERRED);
                self.undeferred = self.backoff;
            } else {
                self.backoff = 0;
            }
        }
        self.bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// An entry was committed this long after its proposal.
    pub fn committed(&mut self, took: Duration) {
        self.takes = (7 * self.takes + took) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn only_where_the_others_are_a_majority() {
        for (others, replicas, may) in
            [(0, 1, false), (1, 2, false), (1, 3, false), (2, 3, true), (2, 5, false), (3, 5, true)]
        {
            assert_eq!(DeferredSync::<()>::default().defer_next(others, replicas), may, "{others}");
        }
    }

    #[test]
    fn many_entries_are_written_by_one_sync() {
        let mut deferred_sync = DeferredSync::default();
        let mut now = 100 * US;
        assert_eq!(deferred_sync.due(None), None);
        for n in 0..10 {
            assert!(deferred_sync.defer_next(2, 3));
            deferred_sync.hold(n, 1000, now + LONGEST);
            assert_eq!(deferred_sync.due(None), Some(100 * US + LONGEST));
            now += 400 * US;
            deferred_sync.committed(400 * US);
        }
        assert_eq!(deferred_sync.take(None, now), (0..10).collect::<Vec<_>>());
        assert_eq!(deferred_sync.due(None), None);
        assert!(deferred_sync.defer_next(2, 3), "its disk was not needed");
    }

    #[test]
    fn the_least_patient_write_decides() {
        let mut deferred_sync = DeferredSync::default();
        deferred_sync.hold((), 1000, 900 * US);
        deferred_sync.hold((), 1000, 950 * US);
        assert_eq!(deferred_sync.due(None), Some(900 * US));
        deferred_sync.hold((), 1000, 300 * US);
        assert_eq!(deferred_sync.due(None), Some(300 * US));
        assert_eq!(deferred_sync.take(None, 300 * US).len(), 3);
        deferred_sync.hold((), 1000, 5000 * US);
        assert_eq!(deferred_sync.due(None), Some(5000 * US), "those before are made");
    }

    #[test]
    fn what_the_others_do_not_commit_in_time_is_written_and_so_is_what_follows() {
        let mut deferred_sync = DeferredSync::default();
        let mut now = Duration::ZERO;
        let mut at_once = Vec::new();
        for _ in 0..12 {
            assert!(deferred_sync.defer_next(2, 3));
            deferred_sync.hold((), 1000, now + LONGEST);
            let due = deferred_sync.due(Some(now)).unwrap();
            assert_eq!(due, now + SHORTEST_PATIENCE);
            now = due;
            assert_eq!(deferred_sync.take(Some(due - SHORTEST_PATIENCE), now).len(), 1);
            let mut count = 0;
            while !deferred_sync.defer_next(2, 3) {
                count += 1;
            }
            at_once.push(count);
            // The loop looks at the next one.
        }
        assert_eq!(at_once[..4], [1, 3, 7, 15]);
        assert_eq!(at_once[11], MAX_UNDEFERRED as usize);
        deferred_sync.hold((), 1000, now + LONGEST);
        deferred_sync.take(None, now + LONGEST);
        deferred_sync.hold((), 1000, now + LONGEST);
        deferred_sync.take(Some(now), now + LONGEST);
        assert_eq!(deferred_sync.undeferred, 1, "it was not needed in between");
    }

    #[test]
    fn slow_disks_of_the_others_are_given_more_time_and_much_data_none() {
        let mut deferred_sync = DeferredSync::default();
        (0..100).for_each(|_| deferred_sync.committed(1200 * US));
        deferred_sync.hold((), 1000, 10 * US + LONGEST);
        let due = deferred_sync.due(Some(10 * US)).unwrap();
        assert!(due > 3500 * US && due < 3700 * US, "{due:?}");
        deferred_sync.hold((), MOST_BYTES, 20 * US + LONGEST);
        assert_eq!(deferred_sync.due(None), Some(Duration::ZERO));
    }
}
