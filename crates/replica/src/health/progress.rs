//! Does this replica's server progress while those of others do?
//!
//! A server is stuck when it has executed nothing for some time, though it has an entry that another replica's server executed that long ago: it
//! loops on this replica only, or its process was stopped. An entry that takes all replicas long is no fault of this one: where the other needed long for its
//! entry, this one may need [`SLOWER`] times as long, as it may have less of its host's processors.

use super::{Fault, seconds};
use skein_model::LogIndex;
use std::time::Duration;

/// A server that is not stuck may be this many times slower than another.
const SLOWER: u32 = 2;

/// The entries that this replica's server and the others' have executed, with times.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    executed: LogIndex,
    /// The time since when it has had an entry after that.
    busy: Option<Duration>,
    /// The time since when another replica has been beyond that, as far as is known.
    behind: Option<Duration>,
}

impl Progress {
    /// This replica's server has executed `executed`, and another one's `others`; `waits`: it has nothing to execute.
    pub fn look(&mut self, executed: LogIndex, others: LogIndex, waits: bool, now: Duration) {
        if executed != self.executed || waits {
            *self = Self { executed, ..Self::default() };
        }
        if waits {
            return;
        }
        self.busy.get_or_insert(now);
        if others > executed {
            self.behind.get_or_insert(now);
        }
    }

    /// How long it has been stuck, if that is `patience` or longer.
    #[must_use]
    pub fn stuck(&self, patience: Duration, now: Duration) -> Option<Duration> {
        let (busy, behind) = (self.busy?, self.behind?);
        let took = behind.saturating_sub(busy);
        let stuck = now.saturating_sub(behind);
        (stuck >= patience.max(SLOWER * took)).then_some(stuck)
    }

    /// Nothing is known of the server, which is a new one.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The fault after `patience`.
    #[must_use]
    pub fn fault(&self, patience: Duration, now: Duration) -> Option<Fault> {
        let stuck = self.stuck(patience, now)?;
        let why = format!(
            "its server has not got past entry {} for {}, and another replica's has",
            self.executed,
            seconds(stuck)
        );
        Some(Fault::new("server_stuck", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_is_who_alone_does_not_get_on() {
        let at = Duration::from_millis;
        let mut progress = Progress::default();
        let mut look = |executed, others, waits, now| {
            progress.look(LogIndex(executed), LogIndex(others), waits, at(now));
            progress.stuck(Duration::ZERO, at(now)).map(|time| time.as_millis())
        };
        assert_eq!(look(5, 5, false, 0), None);
        assert_eq!(look(5, 6, false, 0), Some(0));
        assert_eq!(look(5, 9, false, 800), Some(800));
        assert_eq!(look(6, 9, false, 900), Some(0), "it does");
        assert_eq!(look(6, 9, false, 2000), Some(1100));
        assert_eq!(look(6, 9, true, 2000), None, "it has nothing to do");
        assert_eq!(look(6, 9, false, 2100), Some(0));
        assert_eq!(look(9, 9, false, 2200), None);
        look(9, 10, false, 2200);
        assert!(progress.fault(at(1000), at(3100)).is_none());
        let fault = progress.fault(at(1000), at(3200)).unwrap();
        assert!(fault.why.contains("entry 9 for 1.0 s"), "{}", fault.why);
    }

    #[test]
    fn what_takes_another_long_may_take_longer_here() {
        let at = Duration::from_millis;
        let mut progress = Progress::default();
        progress.look(LogIndex(5), LogIndex(5), false, at(1000));
        progress.look(LogIndex(5), LogIndex(5), false, at(4000));
        assert_eq!(progress.stuck(Duration::ZERO, at(4000)), None, "nobody gets on");
        progress.look(LogIndex(5), LogIndex(6), false, at(5000));
        assert_eq!(progress.stuck(at(1000), at(12_900)), None, "the other took 4 s");
        assert_eq!(progress.stuck(at(1000), at(13_000)), Some(at(8000)));
        assert_eq!(progress.stuck(at(9000), at(13_900)), None);
        progress.look(LogIndex(6), LogIndex(7), false, at(14_000));
        assert_eq!(progress.stuck(at(1000), at(15_000)), Some(at(1000)), "another entry");
    }
}
