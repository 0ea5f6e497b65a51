//! When a leader proposes what clients have said, and when it waits a moment for those that are about to say more.
//!
//! An entry costs every replica the same whatever is in it: messages, a write to disk, several wake-ups. Clients that were
//! answered together tend to ask again together, but the first of them is back before the last one is answered: proposed at
//! once, a crowd falls apart into small entries. So while more clients have just been answered than are back, the leader
//! naps; it goes on as soon as most are back, or when a nap brought nobody (databases call this a commit delay, with siblings). A
//! client alone never waits, and where waiting does not pay, it is tried less and less often.

use std::time::Duration;

/// One nap. Shorter than what an entry costs to commit, longer than a client needs for its next request on the same machine.
pub const NAP: Duration = Duration::from_micros(50);
/// It is not worth waiting for one client where so many are back.
const FEW: usize = 3;
/// Naps in a row, however many are still coming.
const MAX_NAPS: u32 = 8;
/// After naps in vain this many proposals at most go without one.
const MAX_SKIP: u32 = 63;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    naps: u32,
    /// How many were awaited before the last nap.
    awaited: usize,
    skip: u32,
    backoff: u32,
}

impl Gather {
    /// Whether to nap before what `ready` clients said is proposed; `awaited` others were answered a moment ago.
    pub fn should_nap(&mut self, ready: usize, awaited: usize) -> bool {
        if awaited * FEW <= ready || self.skip > 0 || self.naps == MAX_NAPS {
            return false;
        }
        if self.naps > 0 {
            let came = awaited < self.awaited;
            if self.naps == 1 {
                self.backoff = if came { 0 } else { (2 * self.backoff + 1).min(MAX_SKIP) };
                self.skip = self.backoff;
            }
            if !came {
                return false;
            }
        }
        self.naps += 1;
        self.awaited = awaited;
        true
    }

    /// An entry of clients' inputs is proposed.
    pub fn proposed(&mut self) {
        if self.naps == 0 {
            self.skip = self.skip.saturating_sub(1);
        }
        self.naps = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_or_nearly_complete_never_waits() {
        let mut gather = Gather::default();
        for (ready, awaited) in [(1, 0), (50, 0), (30, 10), (0, 0)] {
            assert!(!gather.should_nap(ready, awaited), "{ready} are back, {awaited} are not");
            gather.proposed();
        }
    }

    #[test]
    fn a_crowd_that_comes_back_is_waited_for_until_most_are_there() {
        let mut gather = Gather::default();
        for _ in 0..100 {
            assert!(gather.should_nap(1, 49));
            assert!(gather.should_nap(20, 30));
            assert!(gather.should_nap(35, 15));
            assert!(!gather.should_nap(40, 10));
            gather.proposed();
        }
    }

    #[test]
    fn naps_end_when_nobody_comes_and_are_bounded_when_somebody_always_does() {
        let mut gather = Gather::default();
        assert!(gather.should_nap(1, 49));
        assert!(gather.should_nap(2, 48));
        assert!(!gather.should_nap(2, 48), "the last nap brought nobody");
        gather.proposed();
        let naps = (0..100).take_while(|n| gather.should_nap(1, 1000 - n)).count();
        assert_eq!(naps, MAX_NAPS as usize);
    }

    #[test]
    fn where_it_does_not_pay_it_is_tried_less_and_less_often_until_it_pays() {
        let mut gather = Gather::default();
        let mut tried = Vec::new();
        for proposal in 0..400 {
            if gather.should_nap(1, 49) {
                tried.push(proposal);
                assert!(!gather.should_nap(1, 49));
            }
            gather.proposed();
        }
        let gaps: Vec<_> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[..7], [2, 4, 8, 16, 32, 64, 64]);
        while !gather.should_nap(1, 49) {
            gather.proposed();
        }
        assert!(gather.should_nap(20, 30), "somebody came");
        gather.proposed();
        assert!(gather.should_nap(1, 49));
    }
}
