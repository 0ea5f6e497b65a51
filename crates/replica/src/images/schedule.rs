//! When the next image is due.
//!
//! By what a restart would have to execute again (entries, bytes of the log), or by time if anything happened. An image that took long to take or to fetch is
//! followed by a pause of [`SHARE`] times as long, so that images cost a bounded share of a replica's time; one that failed is tried again after growing pauses.

use crate::config::CheckpointConfig;
use skein_model::LogIndex;
use std::time::Duration;

/// The pause after an image, in times of what it took.
const SHARE: u32 = 20;
/// The pause after the first failure; doubled with each in a row,
const PAUSE: Duration = Duration::from_secs(1);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// See the [module](self).
#[derive(Debug)]
pub struct Schedule {
    config: CheckpointConfig,
    /// The entry of the newest image; 0 for none.
    newest: LogIndex,
    /// When it came.
    since: Duration,
    /// Bytes of entries committed since.
    bytes: u64,
    /// Not before.
    not_before: Duration,
    /// Failures in a row.
    failures: u32,
}

impl Schedule {
    /// `newest` is the newest image at the start; 0 for none.
    #[must_use]
    pub const fn new(config: CheckpointConfig, newest: LogIndex) -> Self {
        let (since, not_before) = (Duration::ZERO, Duration::ZERO);
        Self { config, newest, since, bytes: 0, not_before, failures: 0 }
    }

    /// Entries of so many bytes were committed.
    pub const fn committed(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// There is a new image; it took this long.
    pub fn came(&mut self, index: LogIndex, took: Duration, now: Duration) {
        if index > self.newest {
            (self.newest, self.since, self.bytes) = (index, now, 0);
        }
        self.failures = 0;
        self.not_before = now + SHARE * took;
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

    /// Whether the next one is due, for a server that has executed all up to `executed`. `times`: only when it has been due for so many times what is configured.
    #[must_use]
    pub fn is_due(&self, executed: LogIndex, times: u32, now: Duration) -> bool {
        let CheckpointConfig { enabled, interval_s, log_bytes, log_entries, .. } = self.config;
        let entries = executed.0.saturating_sub(self.newest.0);
        let waited = now.saturating_sub(self.since);
        let times = u64::from(times);
        enabled
            && entries > 0
            && now >= self.not_before
            && (entries >= log_entries.saturating_mul(times)
                || self.bytes >= log_bytes.saturating_mul(times)
                || waited >= Duration::from_secs(interval_s.saturating_mul(times)))
    }

    /// Whether the last one, or failures, allow the next.
    #[must_use]
    pub fn may_begin(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    /// When that is.
    #[must_use]
    pub const fn not_before(&self) -> Duration {
        self.not_before
    }

    /// Whether a log of so many entries is longer than so many times what is configured between two images.
    #[must_use]
    pub const fn is_exceeded(&self, entries: u64, times: u64) -> bool {
        let CheckpointConfig { log_bytes, log_entries, .. } = &self.config;
        entries >= log_entries.saturating_mul(times)
            || self.bytes >= log_bytes.saturating_mul(times)
    }

    /// When it may become due by time alone.
    #[must_use]
    pub fn wake(&self) -> Duration {
        self.not_before.max(self.since + Duration::from_secs(self.config.interval_s))
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
            keep: 2,
            fetch_bytes_per_s: 1,
        };
        Schedule::new(config, LogIndex(10))
    }

    #[test]
    fn it_is_due_by_entries_bytes_or_time() {
        let mut s = schedule();
        assert!(!s.is_due(LogIndex(59), 1, SECOND) && s.is_due(LogIndex(60), 1, SECOND));
        assert!(!s.is_due(LogIndex(60), 2, SECOND) && s.is_due(LogIndex(110), 2, SECOND));
        assert!(!s.is_due(LogIndex(11), 1, 99 * SECOND) && s.is_due(LogIndex(11), 1, 100 * SECOND));
        assert!(!s.is_due(LogIndex(10), 1, 1000 * SECOND), "nothing happened");
        s.committed(1000);
        assert!(s.is_due(LogIndex(11), 1, SECOND));
        s.came(LogIndex(11), Duration::ZERO, SECOND);
        assert!(!s.is_due(LogIndex(12), 1, SECOND));
        let off = CheckpointConfig { enabled: false, ..schedule().config };
        assert!(!Schedule::new(off, LogIndex(0)).is_due(LogIndex(9999), 1, 1000 * SECOND));
    }

    #[test]
    fn one_that_took_long_is_followed_by_a_long_pause() {
        let mut s = schedule();
        s.came(LogIndex(20), SECOND, 10 * SECOND);
        assert!(
            !s.is_due(LogIndex(999), 1, 29 * SECOND) && s.is_due(LogIndex(999), 1, 30 * SECOND)
        );
    }

    #[test]
    fn one_that_failed_is_tried_again_after_growing_pauses() {
        let mut s = schedule();
        let due = |s: &Schedule, at| s.is_due(LogIndex(999), 1, at);
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
}
