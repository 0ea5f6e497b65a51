//! Counts rebuilds of a server in a row, and decides the pause before the next.
//!
//! A server that fails again and again is rebuilt after growing pauses, and after a number of times its node gives up. Repaired failures are
//! forgotten: a server that has been in step with the others for a while begins a new row.

use std::time::Duration;

/// The pause before the second rebuild in a row; doubled each time.
const PAUSE: Duration = Duration::from_millis(200);
/// A server that was in step with the others for this long has not failed in a row: the cause of earlier failures is repaired.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Rebuilds {
    count: u32,
    forgiven: bool,
    in_step: Option<Duration>,
}

impl Rebuilds {
    /// The server has executed all committed entries.
    pub const fn in_step(&mut self, now: Duration) {
        self.in_step = Some(now);
    }

    /// The server has ended; answers the least pause before its rebuild.
    pub fn ended(&mut self, now: Duration) -> Duration {
        if self.in_step.take().is_some_and(|since| now.saturating_sub(since) > STABLE_AFTER) {
            self.count = 0;
        }
        PAUSE * (1 << self.count.min(6)) / 2
    }

    /// The next rebuild does not count.
    pub const fn forgive(&mut self) {
        self.forgiven = true;
    }

    /// The server is rebuilt; answers the number of rebuilds in a row.
    pub fn begin(&mut self) -> u32 {
        self.count += u32::from(!std::mem::take(&mut self.forgiven));
        self.count
    }

    /// The number of rebuilds in a row.
    pub const fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn those_in_a_row_wait_longer_and_longer() {
        let mut rebuilds = Rebuilds::default();
        let mut pauses = Vec::new();
        for n in 1..=9 {
            pauses.push(rebuilds.ended(SECOND * n).as_millis());
            assert_eq!(rebuilds.begin(), n);
            // It lives, but not for long enough.
            rebuilds.in_step(SECOND * n);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
    }

    #[test]
    fn those_that_were_mended_are_forgotten() {
        let mut rebuilds = Rebuilds::default();
        let mut now = SECOND;
        for _ in 0..100 {
            assert_eq!(rebuilds.ended(now), PAUSE / 2);
            assert_eq!(rebuilds.begin(), 1);
            rebuilds.in_step(now);
            now += STABLE_AFTER + Duration::from_millis(1);
        }
        // A server that never was in step counts, however long it lived.
        rebuilds.ended(now);
        assert_eq!(rebuilds.begin(), 1);
        rebuilds.ended(now + 100 * STABLE_AFTER);
        assert_eq!(rebuilds.begin(), 2);
    }

    #[test]
    fn one_that_is_nobodys_fault_does_not_count() {
        let mut rebuilds = Rebuilds::default();
        rebuilds.ended(SECOND);
        rebuilds.forgive();
        assert_eq!((rebuilds.begin(), rebuilds.count()), (0, 0));
        rebuilds.ended(SECOND);
        assert_eq!(rebuilds.begin(), 1);
    }
}
