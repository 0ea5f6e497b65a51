//! When the next image is due.
//!
//! By what a restart would have to execute again (entries, bytes of the log), or by time if anything happened. An image that took long to take or to fetch is
//! followed by a pause of [`SHARE`] times as long, so that images cost a bounded share of a replica's time, unless the log grows too long meanwhile; one that failed is tried again after growing pauses.

use crate::config::CheckpointConfig;
use skein_model::{LogIndex, WallNs};
use std::time::Duration;

/// The pause after an image, in times of what it took.
const SHARE: u32 = 20;
/// The next one follows after so long already if a restart would execute so large a part of what is configured again: a second or two of a busy host.
const EARLY: Duration = Duration::from_secs(2);
/// The same where clients wait for it.
const EARLY_OF_CLIENTS: Duration = Duration::from_secs(5);
const EARLY_PART: u64 = 5;
/// The pause ends when the log has grown by so many times what is configured: a disk, and with a log in memory the node, has room for so much.
const LONGEST: u64 = 8;
/// The pause after the first failure; doubled with each in a row,
const PAUSE: Duration = Duration::from_secs(1);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What begins at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// Nothing.
    Nothing,
    /// A stretch of the log, as long as the interval between images.
    Stretch,
    /// A long one, of several intervals.
    LongStretch,
}

/// Whom a replica lets take an image first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// A follower nobody.
    Nobody,
    /// A leader nobody, as it alone has a server: its clients wait.
    Clients,
    /// A follower itself, at the next digests, where images can be compared.
    Digests,
    /// A leader the others, which it fetches one from.
    Others,
}

impl After {
    /// How many times what is configured it waits, in time and entries, and in bytes of the log.
    const fn times(self) -> (u64, u64) {
        match self {
            Self::Nobody | Self::Clients => (1, 1),
            // Digests do not come by bytes.
            Self::Digests => (2, 1),
            Self::Others => (3, 3),
        }
    }

    /// How long it waits at least, if it need not wait for the interval.
    const fn early(self) -> Option<Duration> {
        match self {
            Self::Nobody => Some(EARLY),
            Self::Clients => Some(EARLY_OF_CLIENTS),
            Self::Digests | Self::Others => None,
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Schedule {
    config: CheckpointConfig,
    /// The entry of the newest image; 0 for none.
    newest: LogIndex,
    /// When it came.
    since: Duration,
    /// Bytes of entries committed since,
    bytes: u64,
    /// of those that came before it and are in the log,
    before: u64,
    /// and of those among them that came behind the image before it.
    between: u64,
    /// Not before.
    not_before: Duration,
    /// Failures in a row.
    failures: u32,
    /// Whether it is due at once.
    hurries: bool,
}

impl Schedule {
    /// `newest` is the newest image at the start; 0 for none.
    #[must_use]
    pub const fn new(config: CheckpointConfig, newest: LogIndex) -> Self {
        let (since, not_before) = (Duration::ZERO, Duration::ZERO);
        let (bytes, before, between) = (0, 0, 0);
        let (failures, hurries) = (0, false);
        Self { config, newest, since, bytes, before, between, not_before, failures, hurries }
    }

    /// Entries of so many bytes were committed.
    pub const fn committed(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// There is a new image; it took this long.
    pub fn came(&mut self, index: LogIndex, took: Duration, now: Duration) {
        if index > self.newest {
            (self.newest, self.since, self.hurries) = (index, now, false);
            self.before += self.bytes;
            (self.between, self.bytes) = (self.bytes, 0);
        }
        self.failures = 0;
        self.not_before = now + SHARE * took;
    }

    /// The log begins behind the image before the newest one now, or later.
    pub const fn forgot(&mut self) {
        self.before = self.between;
    }

    /// The newest image is this one now, because others were removed; 0 for none.
    pub const fn is_left(&mut self, newest: LogIndex) {
        self.newest = newest;
    }

    /// None could be had.
    pub fn failed(&mut self, now: Duration) {
        self.not_before = now + (PAUSE * (1 << self.failures.min(10))).min(LONGEST_PAUSE);
        self.failures += 1;
    }

    /// How many in a row could not be had.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the next one is due, for a server that has executed all up to `executed`.
    #[must_use]
    pub fn is_due(&self, executed: LogIndex, after: After, now: Duration) -> bool {
        let CheckpointConfig { enabled, interval_s, log_bytes, log_entries, .. } = self.config;
        let entries = executed.0.saturating_sub(self.newest.0);
        let waited = now.saturating_sub(self.since);
        let (times, of_bytes) = after.times();
        let is_early = after.early().is_some_and(|early| waited >= early) && self.is_much(executed);
        enabled
            && entries > 0
            && self.may_begin(now)
            && (self.hurries && after != After::Others
                || is_early
                || entries >= log_entries.saturating_mul(times)
                || self.bytes >= log_bytes.saturating_mul(of_bytes)
                || waited >= Duration::from_secs(interval_s.saturating_mul(times)))
    }

    /// Whether so much was executed behind the newest one that the next need not be late.
    fn is_much(&self, executed: LogIndex) -> bool {
        let entries = executed.0.saturating_sub(self.newest.0);
        let is_part = |of: u64, whole: u64| of >= (whole / EARLY_PART).max(1);
        is_part(entries, self.config.log_entries) || is_part(self.bytes, self.config.log_bytes)
    }

    /// Whether the log has grown so much that no pause counts, but one after a failure.
    const fn is_too_long(&self) -> bool {
        self.failures == 0 && self.bytes >= self.config.log_bytes.saturating_mul(LONGEST)
    }

    /// What begins between two entries, given with their times; nothing when images are not taken by themselves. The same on all replicas with this configuration.
    #[must_use]
    pub fn begins(&self, before: (LogIndex, WallNs), now: (LogIndex, WallNs)) -> Begins {
        let CheckpointConfig { enabled, interval_s, log_entries, leader_intervals, .. } =
            self.config;
        let interval_ns = interval_s.max(1).saturating_mul(1_000_000_000);
        let long_ns = match leader_intervals {
            0 => u64::MAX,
            intervals => interval_ns.saturating_mul(intervals),
        };
        let passes = |before: u64, now: u64, length: u64| before / length != now / length;
        match enabled {
            true if passes(before.1.0, now.1.0, long_ns) => Begins::LongStretch,
            true if passes(before.1.0, now.1.0, interval_ns) => Begins::Stretch,
            true if passes(before.0.0, now.0.0, log_entries.max(1)) => Begins::Stretch,
            _ => Begins::Nothing,
        }
    }

    /// The next one is due as soon as anything has happened since the newest, but for a leader, which fetches it.
    pub const fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Whether the last one, or failures, allow the next.
    #[must_use]
    pub fn may_begin(&self, now: Duration) -> bool {
        now >= self.not_before || self.is_too_long()
    }

    /// When that is.
    #[must_use]
    pub const fn not_before(&self) -> Duration {
        self.not_before
    }

    /// Whether a log of so many entries, with so many images to be kept, is so long that the next image may begin at once.
    #[must_use]
    pub fn is_full(&self, entries: u64, keep: u64, now: Duration) -> bool {
        let CheckpointConfig { enabled, log_bytes, log_entries, .. } = self.config;
        // As long as an image is late it has one interval more.
        let times = keep + 1;
        let is_long = entries >= log_entries.saturating_mul(times)
            || self.before + self.bytes >= log_bytes.saturating_mul(times);
        enabled && self.may_begin(now) && is_long
    }

    /// Whether a log of so many entries is longer than so many times what is configured between two images.
    #[must_use]
    pub const fn is_exceeded(&self, entries: u64, times: u64) -> bool {
        let CheckpointConfig { log_bytes, log_entries, .. } = &self.config;
        entries >= log_entries.saturating_mul(times)
            || self.bytes >= log_bytes.saturating_mul(times)
    }

    /// When it may become due by time alone, if ever, for a server that has executed all up to `executed`.
    #[must_use]
    pub fn wake(&self, executed: LogIndex, after: After) -> Option<Duration> {
        let interval = Duration::from_secs(self.config.interval_s);
        let early = after.early().filter(|_| self.is_much(executed));
        self.config.enabled.then(|| match (after, early) {
            (After::Nobody | After::Clients | After::Digests, _) if self.hurries => self.not_before,
            (_, Some(early)) => self.not_before.max(self.since + early.min(interval)),
            // A leader looks for an image of the others as soon as one is due.
            (After::Nobody | After::Clients | After::Others, None) => {
                self.not_before.max(self.since + interval)
            }
            (After::Digests, None) => self.not_before.max(self.since + 2 * interval),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule() -> Schedule {
        let config = CheckpointConfig {
            enabled: true,
            interval_s: 100,
            log_bytes: 1000,
            log_entries: 50,
            leader_intervals: 6,
            scrub_s: 0,
            keep: 2,
            fetch_bytes_per_s: 1,
        };
        Schedule::new(config, LogIndex(10))
    }

    #[test]
    fn it_is_due_by_entries_bytes_or_time() {
        let mut s = schedule();
        assert!(
            !s.is_due(LogIndex(59), After::Nobody, SECOND)
                && s.is_due(LogIndex(60), After::Nobody, SECOND)
        );
        assert!(
            !s.is_due(LogIndex(60), After::Digests, SECOND)
                && s.is_due(LogIndex(110), After::Digests, SECOND)
        );
        // A fifth, after a while, which is longer where clients wait.
        for (after, early) in [(After::Nobody, 2), (After::Clients, 5)] {
            assert!(
                !s.is_due(LogIndex(20), after, (early - 1) * SECOND)
                    && !s.is_due(LogIndex(19), after, early * SECOND)
                    && s.is_due(LogIndex(20), after, early * SECOND)
            );
        }
        assert!([After::Digests, After::Others].iter().all(|after| !s.is_due(
            LogIndex(20),
            *after,
            99 * SECOND
        )));
        assert!(
            !s.is_due(LogIndex(11), After::Nobody, 99 * SECOND)
                && s.is_due(LogIndex(11), After::Nobody, 100 * SECOND)
        );
        assert!(!s.is_due(LogIndex(10), After::Nobody, 1000 * SECOND), "nothing happened");
        s.committed(199);
        assert!(!s.is_due(LogIndex(11), After::Nobody, 2 * SECOND));
        s.committed(1);
        assert!(s.is_due(LogIndex(11), After::Nobody, 2 * SECOND), "a fifth of the bytes");
        assert!(!s.is_due(LogIndex(11), After::Digests, 2 * SECOND));
        assert_eq!(s.wake(LogIndex(11), After::Nobody), Some(2 * SECOND));
        s.committed(800);
        assert!(s.is_due(LogIndex(11), After::Nobody, SECOND));
        assert!(s.is_due(LogIndex(11), After::Digests, SECOND));
        assert!(!s.is_due(LogIndex(11), After::Others, SECOND));
        s.came(LogIndex(11), Duration::ZERO, SECOND);
        assert!(!s.is_due(LogIndex(12), After::Nobody, SECOND));
        s.hurry();
        assert!(
            !s.is_due(LogIndex(11), After::Nobody, SECOND)
                && s.is_due(LogIndex(12), After::Nobody, SECOND)
        );
        assert!(!s.is_due(LogIndex(12), After::Others, SECOND), "a leader fetches it");
        assert_eq!(s.wake(LogIndex(12), After::Nobody), Some(SECOND), "at once");
        s.came(LogIndex(12), Duration::ZERO, SECOND);
        assert!(!s.is_due(LogIndex(13), After::Nobody, SECOND));
        let wakes = |executed| {
            [After::Nobody, After::Clients, After::Digests, After::Others]
                .map(|after| s.wake(LogIndex(executed), after).map(|wake| wake.as_secs()))
        };
        assert_eq!(wakes(21), [101, 101, 201, 101].map(Some));
        assert_eq!(wakes(22), [3, 6, 201, 101].map(Some), "a fifth was executed");
        let off = CheckpointConfig { enabled: false, ..schedule().config };
        let off = Schedule::new(off, LogIndex(0));
        assert!(!off.is_due(LogIndex(9999), After::Nobody, 1000 * SECOND));
        assert_eq!(off.wake(LogIndex(9999), After::Nobody), None);
    }

    #[test]
    fn a_long_log_that_forgets_nothing_needs_an_image_at_once() {
        let mut s = schedule();
        assert!(!s.is_full(149, 2, SECOND) && s.is_full(150, 2, SECOND));
        s.came(LogIndex(20), SECOND, 10 * SECOND);
        assert!(!s.is_full(150, 2, 29 * SECOND) && s.is_full(150, 2, 30 * SECOND));
        // By bytes: of 2,000 behind an image, and 1,000 since.
        let is_full = |s: &Schedule| s.is_full(1, 2, 40 * SECOND);
        s.committed(2000);
        s.came(LogIndex(30), Duration::ZERO, 40 * SECOND);
        s.committed(999);
        assert!(!is_full(&s));
        s.committed(1);
        assert!(is_full(&s));
        s.came(LogIndex(40), Duration::ZERO, 40 * SECOND);
        s.forgot();
        s.committed(1999);
        assert!(!is_full(&s));
        s.committed(1);
        assert!(is_full(&s));
        let off = CheckpointConfig { enabled: false, ..schedule().config };
        assert!(!Schedule::new(off, LogIndex(0)).is_full(150, 2, SECOND));
    }

    #[test]
    fn one_that_took_long_is_followed_by_a_long_pause() {
        let mut s = schedule();
        s.came(LogIndex(20), SECOND, 10 * SECOND);
        assert!(
            !s.is_due(LogIndex(999), After::Nobody, 29 * SECOND)
                && s.is_due(LogIndex(999), After::Nobody, 30 * SECOND)
        );
        s.committed(7999);
        assert!(!s.is_due(LogIndex(999), After::Nobody, 29 * SECOND));
        s.committed(1);
        assert!(s.is_due(LogIndex(999), After::Nobody, 29 * SECOND), "the log grows too long");
        s.failed(29 * SECOND);
        assert!(!s.is_due(LogIndex(999), After::Nobody, 29 * SECOND));
    }

    #[test]
    fn one_that_failed_is_tried_again_after_growing_pauses() {
        let mut s = schedule();
        let due = |s: &Schedule, at| s.is_due(LogIndex(999), After::Nobody, at);
        s.failed(SECOND);
        assert!(!due(&s, SECOND) && due(&s, 2 * SECOND));
        s.failed(2 * SECOND);
        assert!(!due(&s, 3 * SECOND) && due(&s, 4 * SECOND));
        (0..40).for_each(|_| s.failed(5 * SECOND));
        assert!(!due(&s, 604 * SECOND) && due(&s, 605 * SECOND));
        s.came(LogIndex(11), Duration::ZERO, 700 * SECOND);
        s.failed(700 * SECOND);
        assert!(due(&s, 701 * SECOND));
    }

    #[test]
    fn stretches_follow_from_the_log() {
        let s = schedule();
        let at = |index, second: u64| (LogIndex(index), WallNs(second * 1_000_000_000));
        assert_eq!(s.begins(at(100, 100), at(149, 199)), Begins::Nothing);
        assert_eq!(s.begins(at(149, 199), at(150, 199)), Begins::Stretch);
        assert_eq!(s.begins(at(149, 199), at(149, 200)), Begins::Stretch);
        assert_eq!(s.begins(at(149, 599), at(150, 600)), Begins::LongStretch);
        let off = CheckpointConfig { enabled: false, ..schedule().config };
        let off = Schedule::new(off, LogIndex(0));
        assert_eq!(off.begins(at(1, 1), at(999, 999)), Begins::Nothing);
    }
}
