//! Virtual time: the clock that a leader stamps entries by and compares its server's deadlines with.
//!
//! It continues from the newest stamp at the rate of the node's steady clock, and is slewed towards the time that a majority of the replicas'
//! wall clocks agree on ([`super::clocks`]): by a twentieth while it is far off, imperceptibly otherwise. So wall clocks can neither stop it,
//! nor turn it back, nor make it jump.
//!
//! It steps forward at one point only: once in each term, when a majority's clocks first agree that it is later. A server that was stopped
//! for a day begins in the present then, as it would after any restart. Nothing steps it back.
//!
//! The steady clock is the kernel's `CLOCK_BOOTTIME`: it goes on while the machine is suspended, and so does virtual time.
//!
//! The newest stamp may be of an entry that was planned, and lead its reading by some milliseconds: by as much as it was slewed meanwhile.
//!
//! Invariants: stamps grow strictly; between two readings of one leader virtual time moves by 0.95 to 1.05 of the steady time between
//! them, the step apart. Pure: the caller reads the clocks.

use skein_model::WallNs;
use std::time::Duration;

/// Virtual time is slewed by one part in so many where it is [`FAR_NS`] off, or more,
const SLEW: u64 = 20;
/// and by this fraction otherwise: 0.05 %.
const TRIM: u64 = 2000;
/// 20 ms.
const FAR_NS: u128 = 20_000_000;
/// The interval between two measurements of the error: 1 ms.
const COURSE: Duration = Duration::from_millis(1);

/// The readings of the replicas' wall clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallClocks {
    /// The time that a majority's clocks agree on, if one does.
    pub agreed: Option<WallNs>,
    /// The slowest of the known clocks: the start of a cluster whose clocks do not agree, because virtual time
    /// can step forward later, and never back.
    pub earliest: WallNs,
}

/// The clock of one node.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    /// The newest stamp.
    last: WallNs,
    /// Its reading when the steady clock was `at`.
    reads_ns: u64,
    at: Duration,
    /// Its error then, which is corrected from there on.
    behind_ns: i128,
    /// Whether it may step forward in this term.
    may_step: bool,
}

impl Default for VirtualTime {
    fn default() -> Self {
        Self::new()
    }
}

impl VirtualTime {
    /// It has not begun.
    #[must_use]
    pub const fn new() -> Self {
        let (last, at) = (WallNs(0), Duration::ZERO);
        Self { last, reads_ns: 0, at, behind_ns: 0, may_step: false }
    }

    /// This node leads from now on.
    pub const fn begin_term(&mut self) {
        self.may_step = true;
    }

    /// An entry of the log has this stamp: virtual time goes on from there.
    pub fn observe(&mut self, stamp: WallNs, at: Duration) {
        if stamp > self.last {
            self.last = stamp;
            self.anchor(stamp.0, at, 0);
        }
    }

    /// An entry has this stamp, which was planned.
    pub fn took(&mut self, stamp: WallNs) {
        self.last = self.last.max(stamp);
    }

    /// The newest stamp.
    #[must_use]
    pub const fn last(&self) -> WallNs {
        self.last
    }

    /// Virtual time when the steady clock shows `at`; never less than at the last call. `clocks` is asked now and then.
    pub fn now(&mut self, at: Duration, clocks: impl FnOnce() -> WallClocks) -> WallNs {
        if self.reads_ns == 0 {
            let WallClocks { agreed, earliest } = clocks();
            self.may_step &= agreed.is_none();
            self.anchor(agreed.unwrap_or(earliest).0.max(1), at, 0);
            return WallNs(self.reads_ns);
        }
        let reads = self.reading(at);
        if at.saturating_sub(self.at) < COURSE && !self.may_step {
            return reads;
        }
        let Some(agreed) = clocks().agreed else {
            self.anchor(reads.0, at, 0);
            return reads;
        };
        let behind = i128::from(agreed.0) - i128::from(reads.0);
        if std::mem::take(&mut self.may_step) && behind > 0 {
            self.anchor(agreed.0, at, 0);
            return agreed;
        }
        self.anchor(reads.0, at, behind);
        reads
    }

    /// Its reading when the steady clock shows `at`, if the wall clocks are not asked until then.
    #[must_use]
    pub fn reading(&self, at: Duration) -> WallNs {
        let passed = nanoseconds(at.saturating_sub(self.at));
        let part = if self.behind_ns.unsigned_abs() < FAR_NS { TRIM } else { SLEW };
        let most = i128::from(passed / part);
        // Not negative: the correction is a part of `passed`.
        let slewed = i128::from(passed) + self.behind_ns.clamp(-most, most);
        WallNs(self.reads_ns.saturating_add(u64::try_from(slewed).unwrap_or(u64::MAX)))
    }

    /// A stamp for an entry made now; as [`now`](Self::now).
    pub fn stamp(&mut self, at: Duration, clocks: impl FnOnce() -> WallClocks) -> WallNs {
        self.last = self.now(at, clocks).max(self.last.next());
        self.last
    }

    const fn anchor(&mut self, reads_ns: u64, at: Duration, behind_ns: i128) {
        self.reads_ns = reads_ns;
        self.at = at;
        self.behind_ns = behind_ns;
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "virtual_time_tests.rs"]
mod tests;
