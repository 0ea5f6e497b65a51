//! When a leader proposes an entry without client input: time bubbles and clock entries (CRANE section 4).
//!
//! A server at a slot cannot continue before it knows the next entry. If the leader has nothing under way for `wtimeout`, it
//! proposes a bubble: a grant of a number of turns. The more bubbles in a row, the longer they get. A quiescent server needs
//! nothing except, when one of its timers is due, an entry with the time. An idle server without timers costs no proposal at all.

use crate::modes::{Due, Proposal, Waiting};
use skein_model::WallNs;
use std::time::Duration;

/// Timers that are due within this time share one entry: 1 ms.
pub const TIMER_SLACK_NS: u64 = 1_000_000;
/// The least distance between clock entries, however often a server asks: 1 ms.
const CLOCK_SPACING: Duration = Duration::from_nanos(TIMER_SLACK_NS);
/// A row of bubbles doubles up to this many times `nclock`.
const MAX_GROWTH: u32 = 64;

/// The leader's side of admission.
#[derive(Clone, Debug)]
pub struct Admission {
    wtimeout: Duration,
    nclock: u32,
    growth: u32,
    slot_since: Option<Duration>,
    last_clock: Option<Duration>,
}

impl Admission {
    /// No wait.
    #[must_use]
    pub const fn new(wtimeout: Duration, nclock: u32) -> Self {
        Self { wtimeout, nclock, growth: 1, slot_since: None, last_clock: None }
    }

    /// This was proposed.
    pub fn proposed(&mut self, proposal: Proposal, now: Duration) {
        match proposal {
            Proposal::Input => {
                self.growth = 1;
                self.slot_since = None;
            }
            Proposal::Due(Due::Bubble(_)) => {
                self.slot_since = None;
                self.growth = (self.growth * 2).min(MAX_GROWTH);
            }
            Proposal::Due(Due::Clock) => self.last_clock = Some(now),
            Proposal::Due(Due::Findings | Due::Nothing | Due::After(_)) => {}
        }
    }

    /// What is due; `now` is monotonic, `wall` the time of day.
    pub fn due(&mut self, waiting: Waiting, now: Duration, wall: WallNs) -> Due {
        let Waiting::Slot = waiting else {
            self.slot_since = None;
            return match waiting {
                Waiting::Findings => Due::Findings,
                Waiting::Quiescent(u64::MAX) | Waiting::Nothing | Waiting::Slot => Due::Nothing,
                Waiting::Quiescent(deadline) => match deadline.checked_sub(wall.0) {
                    None | Some(0) => {
                        let next = self.last_clock.map_or(now, |last| last + CLOCK_SPACING);
                        if next > now { Due::After(next - now) } else { Due::Clock }
                    }
                    Some(left) => Due::After(Duration::from_nanos(left.max(TIMER_SLACK_NS))),
                },
            };
        };
        let since = *self.slot_since.get_or_insert(now);
        let waited = now.saturating_sub(since);
        if waited < self.wtimeout {
            return Due::After(self.wtimeout - waited);
        }
        Due::Bubble(self.nclock.saturating_mul(self.growth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Proposes what is due.
    fn decide(a: &mut Admission, waiting: Waiting, now: Duration, wall: WallNs) -> Due {
        let due = a.due(waiting, now, wall);
        a.proposed(Proposal::Due(due), now);
        due
    }

    #[test]
    fn an_idle_server_costs_nothing() {
        let mut a = Admission::new(100 * US, 16);
        for i in 0..1000 {
            assert_eq!(
                decide(&mut a, Waiting::Quiescent(u64::MAX), i * 1000 * US, WallNs(u64::from(i))),
                Due::Nothing
            );
            assert_eq!(
                decide(&mut a, Waiting::Nothing, i * 1000 * US, WallNs(u64::from(i))),
                Due::Nothing
            );
        }
    }

    #[test]
    fn bubbles_come_after_the_timeout_and_grow_until_an_input() {
        let mut a = Admission::new(100 * US, 16);
        assert_eq!(decide(&mut a, Waiting::Slot, 5 * US, WallNs(0)), Due::After(100 * US));
        assert_eq!(decide(&mut a, Waiting::Slot, 65 * US, WallNs(0)), Due::After(40 * US));
        let mut now = 105 * US;
        for turns in [16, 32, 64, 128, 256, 512, 1024, 1024] {
            assert_eq!(decide(&mut a, Waiting::Slot, now, WallNs(0)), Due::Bubble(turns));
            assert_eq!(decide(&mut a, Waiting::Nothing, now, WallNs(0)), Due::Nothing);
            assert_eq!(decide(&mut a, Waiting::Slot, now, WallNs(0)), Due::After(100 * US));
            now += 100 * US;
        }
        a.proposed(Proposal::Input, now);
        assert_eq!(decide(&mut a, Waiting::Slot, now, WallNs(0)), Due::After(100 * US));
        assert_eq!(decide(&mut a, Waiting::Slot, now + 100 * US, WallNs(0)), Due::Bubble(16));
    }

    #[test]
    fn a_timer_makes_one_clock_entry_when_it_is_due() {
        let mut a = Admission::new(100 * US, 16);
        let due = 50_000_000;
        assert_eq!(
            decide(&mut a, Waiting::Quiescent(due), US, WallNs(20_000_000)),
            Due::After(Duration::from_millis(30))
        );
        // Almost due: a millisecond later other timers may be due too.
        assert_eq!(
            decide(&mut a, Waiting::Quiescent(due), US, WallNs(due - 10)),
            Due::After(Duration::from_nanos(TIMER_SLACK_NS))
        );
        assert_eq!(decide(&mut a, Waiting::Quiescent(due), US, WallNs(due)), Due::Clock);
        // A server that asks again at once waits a little.
        let left = CLOCK_SPACING - 9 * US;
        assert_eq!(
            decide(&mut a, Waiting::Quiescent(due), 10 * US, WallNs(due + 1)),
            Due::After(left)
        );
        assert_eq!(
            decide(&mut a, Waiting::Quiescent(due), 10 * US + left, WallNs(due + 1)),
            Due::Clock
        );
    }
}
