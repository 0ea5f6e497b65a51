//! Connections that name a replica which is connected already.
//!
//! Mostly its node has noticed a break before this one: the first connection ends, or is silent for long. So a second one waits for that, unread; consensus takes what two
//! nodes with one id acknowledge for what one has, and could count an entry as durable that the first has not. If the first one goes on to speak for [`TWIN_AFTER`] or longer, both are
//! alive: the second is refused, and told so, as often as it comes, while the first one stays.
//!
//! Pure: times are given.

use skein_log::frame::Hello;
use skein_model::ReplicaId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A replica that has ended closes its connection, and what was on its way is read within this; one that was cut off is silent.
const TWIN_AFTER: Duration = Duration::from_secs(2);
/// A node that is refused comes again within this, and the time that it waits.
const COMES_AGAIN: Duration = Duration::from_secs(5);

/// A connection that waits for the end of its replica's first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The connection.
    pub serial: usize,
    /// What it said.
    pub hello: Hello,
}

/// What becomes of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Judged {
    /// It waits, in place of this connection.
    Waits(Option<usize>),
    /// Its node is a second one with the same id.
    Twin,
}

/// Claims, one a replica.
#[derive(Debug)]
pub struct Claims {
    twin_after: Duration,
    comes_again: Duration,
    waiting: BTreeMap<ReplicaId, Claim>,
    /// Since when others have claimed to be the replica of a connection, and when last.
    contested: BTreeMap<ReplicaId, Contest>,
}

#[derive(Debug)]
struct Contest {
    first: usize,
    since: Duration,
    last: Duration,
}

impl Claims {
    /// None; a connection ends that is silent for as long.
    pub fn new(silence: Duration) -> Self {
        let mut claims = Self {
            twin_after: Duration::ZERO,
            comes_again: Duration::ZERO,
            waiting: BTreeMap::new(),
            contested: BTreeMap::new(),
        };
        claims.silent_after(silence);
        claims
    }

    /// From now on a connection ends that is silent for as long.
    pub fn silent_after(&mut self, silence: Duration) {
        self.twin_after = TWIN_AFTER.max(2 * silence);
        self.comes_again = COMES_AGAIN + silence;
    }

    /// Whether this connection waits.
    pub fn has(&self, serial: usize) -> bool {
        self.waiting.values().any(|claim| claim.serial == serial)
    }

    /// A connection names the replica of the connection `first`.
    pub fn make(&mut self, claim: Claim, first: usize, now: Duration) -> Judged {
        let new = Contest { first, since: now, last: now };
        let contest = self.contested.entry(claim.hello.replica).or_insert(new);
        if contest.first != first || now.saturating_sub(contest.last) > self.comes_again {
            *contest = Contest { first, since: now, last: now };
        }
        contest.last = now;
        if now.saturating_sub(contest.since) >= self.twin_after {
            return Judged::Twin;
        }
        let before = self.waiting.insert(claim.hello.replica, claim);
        Judged::Waits(before.map(|claim| claim.serial))
    }

    /// A connection is over that may have waited.
    pub fn withdraw(&mut self, serial: usize) {
        self.waiting.retain(|_, claim| claim.serial != serial);
    }

    /// The replica's first connection is over: answers the one that has waited for that.
    pub fn free(&mut self, replica: ReplicaId) -> Option<Claim> {
        self.contested.remove(&replica);
        self.waiting.remove(&replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_log::{Durability, ProgramHash};
    use skein_model::LogIndex;

    const MS: Duration = Duration::from_millis(1);

    fn claim(serial: usize) -> Claim {
        let (durability, program) = (Durability::Fsync, ProgramHash([0; 32]));
        let (replica, membership) = (ReplicaId(2), LogIndex(0));
        Claim {
            serial,
            hello: Hello { replica, incarnation: 0, durability, program, membership, levels: None },
        }
    }

    #[test]
    fn one_that_reconnects_waits_for_its_first_connections_end() {
        let mut claims = Claims::new(600 * MS);
        assert_eq!(claims.make(claim(7), 3, Duration::ZERO), Judged::Waits(None));
        assert!(claims.has(7) && !claims.has(3));
        assert_eq!(claims.make(claim(8), 3, 600 * MS), Judged::Waits(Some(7)));
        assert_eq!(claims.free(ReplicaId(2)), Some(claim(8)));
        assert_eq!(claims.free(ReplicaId(2)), None);
        // The same again and again, of a replica whose connections break: each break begins anew.
        for n in 1..10 {
            assert_eq!(claims.make(claim(9), 8, n * 1000 * MS), Judged::Waits(None));
            assert_eq!(claims.free(ReplicaId(2)), Some(claim(9)));
        }
        assert_eq!(claims.make(claim(10), 9, 20_000 * MS), Judged::Waits(None));
        claims.withdraw(10);
        assert_eq!(claims.free(ReplicaId(2)), None);
    }

    #[test]
    fn one_that_was_cut_off_is_no_twin_while_its_first_connection_may_still_be_silent() {
        let mut claims = Claims::new(600 * MS);
        claims.silent_after(3000 * MS);
        for at in [0, 2500, 5900] {
            assert!(matches!(claims.make(claim(7), 3, at * MS), Judged::Waits(_)), "{at}");
        }
        assert_eq!(claims.make(claim(8), 3, 6000 * MS), Judged::Twin);
    }

    #[test]
    fn one_that_comes_again_and_again_while_the_first_speaks_is_another_node() {
        let mut claims = Claims::new(600 * MS);
        for (serial, at) in [(7, 0), (8, 620), (9, 1240), (10, 1860)] {
            assert!(matches!(claims.make(claim(serial), 3, at * MS), Judged::Waits(_)));
            claims.withdraw(serial);
        }
        for at in [2480, 3500, 8000, 12_000] {
            assert_eq!(claims.make(claim(11), 3, at * MS), Judged::Twin);
            assert!(!claims.has(11));
        }
        // After a pause nothing is known of it.
        assert_eq!(claims.make(claim(12), 3, 18_000 * MS), Judged::Waits(None));
        claims.withdraw(12);
        // With the end of the first connection it may be the only one.
        assert_eq!(claims.make(claim(13), 4, 20_500 * MS), Judged::Waits(None));
    }

    #[test]
    fn a_connection_that_is_silent_late_is_waited_for() {
        let mut claims = Claims::new(4000 * MS);
        for (serial, at) in [(7, 0), (8, 4000), (9, 7900)] {
            assert!(matches!(claims.make(claim(serial), 3, at * MS), Judged::Waits(_)));
            claims.withdraw(serial);
        }
        assert_eq!(claims.make(claim(10), 3, 8000 * MS), Judged::Twin);
    }
}
