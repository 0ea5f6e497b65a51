//! A leader's loop and its server on one core.
//!
//! Loop and server wake each other thousands of times a second, and mostly wait for each other. The kernel prefers to wake a thread on
//! an idle core, which takes ten times as long as on the waker's own core. While the server is busy only briefly, the loop's thread therefore binds itself to
//! its current core, and the server follows it there. From time to time both are free for some hand-overs, so the kernel still decides where they run.
//!
//! A server with longer CPU bursts is not bound: it runs beside its node.
//!
//! Threads: the loop's, which must not start others, or the server, while it is bound: they would inherit that.

use crate::environment::Servers;
use std::time::Duration;

/// A server is busy only briefly when it takes less CPU time than this between two waits for the node: about
/// the cost of waking it on another core, and of being woken from there.
const MOMENT: Duration = Duration::from_micros(100);
/// The number of hand-overs while bound,
const STAYS: u32 = 512;
/// and while free;
const ROAMS: u32 = 16;
/// neither for longer than this: rare hand-overs need no care.
const LONGEST: Duration = Duration::from_millis(250);

/// When to share a core; knows no kernel.
#[derive(Debug, Default)]
struct Turns {
    shares: bool,
    hand_overs: u32,
    since: Duration,
}

impl Turns {
    fn late(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > LONGEST
    }

    /// The server was woken, and takes about `burst` at a time, if that is known. Answers whether that ends the phase.
    fn handed_over(&mut self, burst: Option<Duration>, now: Duration) -> bool {
        self.hand_overs += 1;
        let late = self.late(now);
        if self.shares {
            if late || self.hand_overs >= STAYS {
                *self = Self { shares: false, hand_overs: 0, since: now };
                return true;
            }
        } else if late {
            (self.hand_overs, self.since) = (0, now);
        } else if self.hand_overs >= ROAMS && burst.is_some_and(|burst| burst < MOMENT) {
            *self = Self { shares: true, hand_overs: 0, since: now };
            return true;
        }
        false
    }
}

/// The core that the loop and its server share, if they do.
#[derive(Debug)]
pub struct SharedCore {
    /// There is a choice, and it is to be made.
    wanted: bool,
    turns: Turns,
}

impl SharedCore {
    /// For the calling thread only.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self { wanted, turns: Turns::default() }
    }

    /// Whether thread and server are bound to one core.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.turns.shares
    }

    /// The thread has woken the server. Answers the server's new core, from 1, and 0 for any, if that changes.
    pub fn handed_over(
        &mut self,
        burst: Option<Duration>,
        now: Duration,
        servers: &mut impl Servers,
    ) -> Option<u32> {
        if !self.wanted || !self.turns.handed_over(burst, now) {
            return None;
        }
        if !self.turns.shares {
            servers.unbind_from_core();
            return Some(0);
        }
        let bound = servers.bind_to_core();
        if bound.is_none() {
            // Not allowed here: then it never is.
            (self.wanted, self.turns.shares) = (false, false);
        }
        bound
    }

    /// Ends the bound phase if it has lasted long enough. A server that is always busy when it gets work is never woken.
    #[must_use]
    pub fn is_over(&self, now: Duration) -> bool {
        self.turns.shares && self.turns.late(now)
    }

    /// Both may run anywhere. Answers whether that is a change: then the server must be told.
    pub fn part(&mut self, servers: &mut impl Servers) -> bool {
        let shared = self.turns.shares;
        if shared {
            self.turns = Turns::default();
            servers.unbind_from_core();
        }
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIGHT: Option<Duration> = Some(Duration::from_micros(30));
    const HEAVY: Option<Duration> = Some(Duration::from_micros(300));
    const PAUSE: Duration = Duration::from_micros(100);

    /// After how many of `n` hand-overs, [`PAUSE`] apart, the turn changed.
    fn changes(turns: &mut Turns, burst: Option<Duration>, n: u32) -> Vec<u32> {
        let begin = turns.since;
        (1..=n).filter(|&i| turns.handed_over(burst, begin + PAUSE * i)).collect()
    }

    #[test]
    fn light_servers_share_in_turns_and_heavy_ones_never() {
        let mut turns = Turns::default();
        assert_eq!(changes(&mut turns, None, 1000), [0; 0], "nothing is known yet");
        assert_eq!(changes(&mut turns, HEAVY, 1000), [0; 0]);
        let mut turns = Turns::default();
        let cycle = STAYS + ROAMS;
        let expected = [ROAMS, cycle, cycle + ROAMS, 2 * cycle];
        assert_eq!(changes(&mut turns, LIGHT, 2 * cycle), expected);
    }

    #[test]
    fn a_server_that_has_become_heavy_is_let_go() {
        let mut turns = Turns::default();
        assert_eq!(changes(&mut turns, LIGHT, ROAMS), [ROAMS]);
        assert_eq!(changes(&mut turns, HEAVY, 2 * STAYS), [STAYS]);
        assert!(!turns.shares);
    }

    #[test]
    fn rare_hand_overs_are_not_worth_it() {
        let mut turns = Turns::default();
        for i in 1..200 {
            assert!(!turns.handed_over(LIGHT, LONGEST / 4 * i));
        }
        let mut turns = Turns::default();
        assert_eq!(changes(&mut turns, LIGHT, ROAMS), [ROAMS]);
        assert!(turns.handed_over(LIGHT, LONGEST * 2), "bound for too long");
        assert!(!turns.shares);
    }
}
