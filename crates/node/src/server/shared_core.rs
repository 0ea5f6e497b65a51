//! A leader's loop and its server on one core.
//!
//! Loop and server wake each other thousands of times a second, and mostly wait for each other. The kernel prefers to wake a thread on
//! an idle core, which takes ten times as long as on the waker's own core. While the server is busy only briefly, the loop's thread therefore binds itself to
//! its current core, and the server follows it there. From time to time both are free for some hand-overs, so the kernel still decides where they run.
//!
//! A server with longer CPU bursts is not bound: it runs beside its node.
//!
//! Threads: the loop's, which must not start others, or the server, while it is bound: they would inherit that.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::time::Duration;

/// The server is busy for a moment only when it takes less CPU time than this from one time that it waits for the node to the next: about
/// what it costs to wake it on another core, and to be woken from there.
const MOMENT: Duration = Duration::from_micros(100);
/// They are bound for so many hand-overs,
const STAYS: u32 = 512;
/// and free for so many;
const ROAMS: u32 = 16;
/// neither for longer than this: hand-overs that are so rare need no care.
const LONGEST: Duration = Duration::from_millis(250);

/// When to share; knows no kernel.
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

    /// The server was woken, and takes about `burst` at a time, if that is known. Whether that ends this turn.
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

/// The core that the loop and its server share, if they share one.
#[derive(Debug)]
pub struct SharedCore {
    /// Where the thread may run; nothing where there is no choice, or none is to be made.
    allowed: Option<CpuSet>,
    turns: Turns,
}

impl SharedCore {
    /// For the thread that made it, and none other.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let this = Pid::from_raw(0);
        let cores = |set: &CpuSet| {
            (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).count()
        };
        let allowed = wanted.then(|| sched_getaffinity(this).ok()).flatten();
        Self { allowed: allowed.filter(|set| cores(set) > 1), turns: Turns::default() }
    }

    /// Whether thread and server are bound to one core.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.turns.shares
    }

    /// The thread has woken the server. Answers on which core that is to be from now on, from 1, and 0 for any, if that changes.
    pub fn handed_over(&mut self, burst: Option<Duration>, now: Duration) -> Option<u32> {
        self.allowed?;
        if !self.turns.handed_over(burst, now) {
            return None;
        }
        if !self.turns.shares {
            self.unbind();
            return Some(0);
        }
        let mut one = CpuSet::new();
        let bound = sched_getcpu().and_then(|core| {
            one.set(core)?;
            sched_setaffinity(Pid::from_raw(0), &one)?;
            Ok(core as u32 + 1)
        });
        if bound.is_err() {
            // Not allowed here: then it never is.
            (self.allowed, self.turns.shares) = (None, false);
        }
        bound.ok()
    }

    /// Whether they have been bound for long enough. A server that is always busy when the node has something for it is never woken.
    #[must_use]
    pub fn is_over(&self, now: Duration) -> bool {
        self.turns.shares && self.turns.late(now)
    }

    /// Both may run anywhere. Whether that changes anything: then the server is to be told.
    pub fn part(&mut self) -> bool {
        let shared = self.turns.shares;
        if shared {
            self.turns = Turns::default();
            self.unbind();
        }
        shared
    }

    fn unbind(&self) {
        if let Some(allowed) = &self.allowed {
            // What is not possible stays as it is: slower, nothing else.
            let _ = sched_setaffinity(Pid::from_raw(0), allowed);
        }
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

    #[test]
    fn a_thread_is_bound_and_let_go() {
        let of_this = || sched_getaffinity(Pid::from_raw(0)).unwrap();
        let all = of_this();
        let mut never = SharedCore::new(false);
        let mut core = SharedCore::new(true);
        let mut said: Vec<u32> = Vec::new();
        for i in 0..ROAMS {
            assert_eq!(never.handed_over(LIGHT, PAUSE * i), None);
            said.extend(core.handed_over(LIGHT, PAUSE * i));
        }
        if core.allowed.is_none() {
            assert!(said.is_empty(), "one core, no choice");
            return;
        }
        assert_eq!(said.len(), 1);
        let mut one = CpuSet::new();
        one.set(said[0] as usize - 1).unwrap();
        assert!(core.is_shared() && of_this() == one);
        assert!(core.part());
        assert!(!core.is_shared() && of_this() == all);
        assert!(!core.part());
    }
}
