//! How far servers are behind, in time, and when a leader waits for those of its followers.
//!
//! Followers execute entries that the leader's server has executed before. A follower must make up for its lag before it serves as the
//! next leader: the outage is longer by that. A leader admits nothing more while too few followers are within a bound.
//!
//! The rule: of the followers that a failover could use, the fastest must be within the bound, as many as make a majority with the leader. A follower
//! counts while it is connected and in step, and is *left out* when its server is stuck for as long as the bound ([`Progress`]: an entry that takes the leader
//! long may take it longer), or delays the leader nine tenths of the time: a follower that is stopped, or hopeless, must not stop the service.
//! It counts again when it has caught up. A leader that stood still itself has heard from no replica, and begins to watch anew.
//!
//! The clock of a lag stands still while the leader waits: a follower that executes half as fast as the leader catches up
//! meanwhile, although the age of its entries grows. It stands still, too, while heartbeats are slow, as followers hear of commits later then, and are heard later.
//!
//! Pure: times are given.

use crate::health::progress::Progress;
use skein_log::majority;
use skein_model::{LogIndex, ReplicaId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The least distance between marks, which is the error of a lag, unless it is long.
const SPACING: Duration = Duration::from_millis(10);
/// The most marks; further ones are merged.
const MARKS: usize = 512;
/// A follower is judged hopeless over this many times the bound.
const WINDOW: u32 = 10;

/// The entries that a server has reached, and the times.
#[derive(Clone, Debug, Default)]
pub struct Marks(VecDeque<(LogIndex, Duration)>);

impl Marks {
    /// It is at `index` now.
    pub fn mark(&mut self, index: LogIndex, now: Duration) {
        match self.0.back_mut() {
            Some((last, _)) if *last >= index => {}
            Some((last, since)) if now.saturating_sub(*since) < SPACING => *last = index,
            _ => {
                if self.0.len() == MARKS {
                    self.merge();
                }
                self.0.push_back((index, now));
            }
        }
    }

    /// Merges two marks: the later entry with the earlier time.
    fn merge(&mut self) {
        let marks: Vec<_> = self.0.drain(..).collect();
        self.0.extend(marks.chunks(2).map(|pair| (pair[pair.len() - 1].0, pair[0].1)));
    }

    /// The lag of another server that is at `index`.
    #[must_use]
    pub fn lag(&self, index: LogIndex, now: Duration) -> Duration {
        let next = self.0.iter().find(|(reached, _)| *reached > index);
        next.map_or(Duration::ZERO, |(_, since)| now.saturating_sub(*since))
    }

    /// No server is behind `index`.
    pub fn forget_up_to(&mut self, index: LogIndex) {
        while self.0.front().is_some_and(|(reached, _)| *reached <= index) {
            self.0.pop_front();
        }
    }
}

#[derive(Clone, Debug)]
struct Follower {
    at: LogIndex,
    /// It is in step: not being rebuilt, or catching up after a start.
    ready: bool,
    progress: Progress,
    left_out: bool,
}

/// A follower that begins to be left out, or counts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The leader waits for it no more.
    LeftOut(ReplicaId),
    /// It has caught up.
    Counts(ReplicaId),
}

/// A leader's followers; see the [module](self).
#[derive(Clone, Debug)]
pub struct Followers {
    /// 0: no bound.
    bound: Duration,
    /// The number that makes a majority with the leader.
    needed: usize,
    executed: Marks,
    /// The progress of the leader's server.
    at: LogIndex,
    known: BTreeMap<ReplicaId, Follower>,
    holds: bool,
    /// The total time for which the clock of lags stood still, up to the last look.
    waited: Duration,
    looked: Duration,
    /// The start of the period for which delays are counted, and their sum.
    window: (Duration, Duration),
}

impl Followers {
    /// Those of a leader of `replicas` replicas.
    #[must_use]
    pub fn new(replicas: usize, bound: Duration) -> Self {
        Self {
            bound,
            needed: majority(replicas) - 1,
            executed: Marks::default(),
            at: LogIndex(0),
            known: BTreeMap::new(),
            holds: false,
            waited: Duration::ZERO,
            looked: Duration::ZERO,
            window: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// From now on there are so many replicas with a server, this one included.
    pub const fn count(&mut self, replicas: usize) {
        self.needed = majority(replicas) - 1;
    }

    /// A replica's server is at `at`.
    pub fn heard(&mut self, replica: ReplicaId, at: LogIndex, ready: bool) {
        let new = || Follower { at, ready, progress: Progress::default(), left_out: false };
        let follower = self.known.entry(replica).or_insert_with(new);
        (follower.at, follower.ready) = (at, ready);
    }

    /// A replica is not connected any more.
    pub fn lost(&mut self, replica: ReplicaId) {
        self.known.remove(&replica);
    }

    /// The leader's server has executed all up to `index`.
    pub fn executed(&mut self, index: LogIndex, now: Duration) {
        self.at = index;
        self.executed.mark(index, now.saturating_sub(self.waited));
    }

    /// This replica begins to lead, or ceases to.
    pub fn begin(&mut self, now: Duration) {
        self.executed = Marks::default();
        self.holds = false;
        (self.waited, self.looked) = (Duration::ZERO, now);
        self.window = (now, Duration::ZERO);
        for follower in self.known.values_mut() {
            follower.progress.forget();
            follower.left_out = false;
        }
    }

    /// Whether a follower's server is in step.
    #[must_use]
    pub fn is_ready(&self, replica: ReplicaId) -> bool {
        self.known.get(&replica).is_some_and(|follower| follower.ready)
    }

    /// A follower's lag, in time in which the leader did not wait.
    #[must_use]
    pub fn lag(&self, replica: ReplicaId, now: Duration) -> Duration {
        let at = self.known.get(&replica).map(|follower| follower.at);
        let lag = |at| self.executed.lag(at, now.saturating_sub(self.waited));
        at.map_or(Duration::ZERO, lag)
    }

    /// Where a replica's server is, in step or not, as it said last.
    #[must_use]
    pub fn at(&self, replica: ReplicaId) -> Option<LogIndex> {
        self.known.get(&replica).map(|follower| follower.at)
    }

    /// The replica with the least lag, of those that are in step.
    #[must_use]
    pub fn furthest(&self) -> Option<(ReplicaId, LogIndex)> {
        let ready = self.known.iter().filter(|(_, follower)| follower.ready);
        ready.map(|(replica, follower)| (*replica, follower.at)).max_by_key(|(_, at)| *at)
    }

    /// Whether the leader admits nothing now, as decided at the last [`look`](Self::look).
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.holds
    }

    /// Decides whether the leader waits, and answers the followers that are newly left out or count again. The log ends with `last`. `slow`: so were heartbeats
    /// since the last look.
    pub fn look(&mut self, last: LogIndex, slow: bool, now: Duration) -> Vec<Change> {
        if self.bound.is_zero() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if now.saturating_sub(self.looked) >= self.bound {
            self.known.values_mut().for_each(|follower| follower.progress.forget());
        }
        let passed = now.saturating_sub(self.looked);
        if self.holds || slow {
            self.waited += passed;
        }
        if self.holds {
            self.window.1 += passed;
        }
        self.looked = now;
        let whole = now.saturating_sub(self.window.0);
        let hopeless = self.window.1 * 10 >= whole * 9;
        let judged = whole >= self.bound * WINDOW;
        if judged {
            self.window = (now, Duration::ZERO);
        }
        let (mut within, mut counting) = (0, 0);
        for (replica, follower) in &mut self.known {
            let lag = self.executed.lag(follower.at, now.saturating_sub(self.waited));
            let waits = !follower.ready || follower.at >= last;
            follower.progress.look(follower.at, self.at, waits, now);
            let stopped = lag > self.bound && follower.progress.stuck(self.bound, now).is_some();
            // While the leader waits for it again and again, its lag is about at the bound.
            let far = lag > self.bound / 2;
            if follower.left_out && !far {
                follower.left_out = false;
                changes.push(Change::Counts(*replica));
            } else if follower.ready && !follower.left_out && (stopped || far && judged && hopeless)
            {
                follower.left_out = true;
                changes.push(Change::LeftOut(*replica));
            }
            if follower.ready && !follower.left_out {
                counting += 1;
                within += usize::from(lag <= self.bound);
            }
        }
        self.holds = within < self.needed.min(counting);
        let behind = self.known.values().map(|follower| follower.at).min();
        self.executed.forget_up_to(behind.unwrap_or(LogIndex(u64::MAX)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(1);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A leader that would execute an entry each millisecond, and followers that execute so many entries in 100 ms. For each 100 ms, how many it
    /// did, and who was left out in the end.
    fn run(replicas: usize, speeds: &[u64], rounds: u64) -> (Vec<u64>, Followers, Vec<Change>) {
        let mut followers = Followers::new(replicas, BOUND);
        followers.begin(ms(0));
        let (mut leader, mut at) = (0, vec![0; speeds.len()]);
        let (mut done, mut changes) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let before = leader;
            for step in 1..=100 {
                let now = ms(round * 100 + step);
                for (id, (at, speed)) in (2..).zip(at.iter_mut().zip(speeds)) {
                    let can = speed * step / 100 - speed * (step - 1) / 100;
                    *at = leader.min(*at + can);
                    followers.heard(ReplicaId(id), LogIndex(*at), true);
                }
                changes.extend(followers.look(LogIndex(leader), false, now));
                if !followers.holds() {
                    leader += 1;
                    followers.executed(LogIndex(leader), now);
                }
            }
            done.push(leader - before);
        }
        (done, followers, changes)
    }

    #[test]
    fn a_lag_is_the_time_since_the_next_entry_was_executed() {
        let mut marks = Marks::default();
        assert_eq!(marks.lag(LogIndex(0), ms(5)), ms(0));
        for (index, at) in [(3, 100), (5, 105), (9, 200), (9, 300)] {
            marks.mark(LogIndex(index), ms(at));
        }
        for (index, lag) in [(0, 300), (4, 300), (5, 200), (8, 200), (9, 0), (12, 0)] {
            assert_eq!(marks.lag(LogIndex(index), ms(400)), ms(lag), "{index}");
        }
        marks.forget_up_to(LogIndex(5));
        assert_eq!(marks.lag(LogIndex(0), ms(400)), ms(200));
    }

    #[test]
    fn many_marks_take_little_memory_and_never_understate() {
        let mut marks = Marks::default();
        for index in 1..100_000 {
            marks.mark(LogIndex(index), ms(index * 20));
        }
        assert!(marks.0.len() <= MARKS);
        for index in [0, 1, 50_000, 99_990] {
            assert!(marks.lag(LogIndex(index), ms(2_000_000)) >= ms(2_000_000 - (index + 1) * 20));
        }
    }

    #[test]
    fn followers_that_keep_up_cost_nothing() {
        let (done, ..) = run(3, &[100, 100], 50);
        assert!(done.iter().all(|n| *n == 100), "{done:?}");
    }

    #[test]
    fn one_that_is_slow_slows_nobody_while_another_keeps_up() {
        for slow in [0, 1, 50] {
            let (done, ..) = run(3, &[100, slow], 200);
            assert!(done.iter().all(|n| *n == 100), "{slow}: {done:?}");
        }
    }

    #[test]
    fn if_all_are_slow_the_leader_goes_as_fast_as_the_fastest_of_them() {
        let (done, followers, _) = run(3, &[50, 30], 300);
        let late: u64 = done[250..].iter().sum();
        assert!((48 * 50..=52 * 50).contains(&late), "{done:?}");
        let lag = followers.lag(ReplicaId(2), ms(30_000));
        assert!(lag <= BOUND + ms(50), "{lag:?}");
        assert!(done.iter().all(|n| *n > 30), "no long waits: {done:?}");
    }

    #[test]
    fn five_need_two() {
        let (done, ..) = run(5, &[100, 60, 40, 20], 300);
        let late: u64 = done[250..].iter().sum();
        assert!((58 * 50..=62 * 50).contains(&late), "{done:?}");
    }

    #[test]
    fn those_that_are_stopped_or_hopeless_are_left_out() {
        let (done, _, changes) = run(3, &[0], 100);
        assert!(done.iter().all(|n| *n >= 98), "{done:?}");
        assert_eq!(changes, [Change::LeftOut(ReplicaId(2))]);
        let (done, _, changes) = run(3, &[2], 300);
        assert!(done[250..].iter().all(|n| *n == 100), "{done:?}");
        assert_eq!(changes, [Change::LeftOut(ReplicaId(2))]);
    }

    #[test]
    fn one_that_was_left_out_counts_again_when_it_has_caught_up() {
        let (_, mut followers, _) = run(3, &[0], 30);
        let all = followers.executed.0.back().unwrap().0;
        followers.heard(ReplicaId(2), LogIndex(all.0 / 2), true);
        assert_eq!(followers.look(all, false, ms(3000)), []);
        followers.heard(ReplicaId(2), all, true);
        assert_eq!(followers.look(all, false, ms(3100)), [Change::Counts(ReplicaId(2))]);
    }

    /// A leader that executes one entry in `took`, and does not run in `pause`; its followers never do. When they are left out.
    fn left_out(took: u64, pause: std::ops::Range<u64>) -> Option<u64> {
        let mut followers = Followers::new(3, BOUND);
        followers.begin(ms(0));
        (2..=3).for_each(|id| followers.heard(ReplicaId(id), LogIndex(7), true));
        let mut looks = (0..60_000).step_by(10).filter(|now| !pause.contains(now));
        looks.find(|now| {
            followers.executed(LogIndex(if *now < took { 7 } else { 8 }), ms(*now));
            !followers.look(LogIndex(8), false, ms(*now)).is_empty()
        })
    }

    #[test]
    fn what_takes_the_leader_long_may_take_its_followers_longer() {
        assert_eq!(left_out(0, 0..0), Some(1010));
        assert_eq!(left_out(3000, 0..0), Some(9000));
    }

    #[test]
    fn a_leader_that_stood_still_blames_nobody_at_once() {
        assert_eq!(left_out(0, 500..5500), Some(6500));
        assert_eq!(left_out(0, 500..1400), Some(1400), "that was short");
    }

    #[test]
    fn what_is_lost_or_catches_up_does_not_count() {
        let mut followers = Followers::new(3, BOUND);
        followers.begin(ms(0));
        followers.heard(ReplicaId(2), LogIndex(1), false);
        followers.heard(ReplicaId(3), LogIndex(1), true);
        for index in 1..200 {
            followers.executed(LogIndex(index), ms(index * 10));
            followers.heard(ReplicaId(3), LogIndex(index / 10), true);
        }
        followers.look(LogIndex(199), false, ms(2000));
        assert!(followers.holds());
        followers.lost(ReplicaId(3));
        followers.look(LogIndex(199), false, ms(2001));
        assert!(!followers.holds());
    }

    /// A follower that is heard late while heartbeats are slow is not blamed; one that was behind before is when they are quick again.
    #[test]
    fn the_clock_of_a_lag_stands_still_while_heartbeats_are_slow() {
        let mut followers = Followers::new(3, BOUND);
        followers.begin(ms(0));
        (2..=3).for_each(|id| followers.heard(ReplicaId(id), LogIndex(7), true));
        followers.executed(LogIndex(8), ms(0));
        assert_eq!(followers.look(LogIndex(8), false, ms(600)), []);
        for now in (700..10_000).step_by(100) {
            followers.executed(LogIndex(8 + now / 1000), ms(now));
            assert_eq!(followers.look(LogIndex(20), true, ms(now)), []);
            assert!(!followers.holds(), "{now}");
        }
        assert_eq!(followers.lag(ReplicaId(2), ms(9900)), ms(600));
        assert_eq!(followers.look(LogIndex(20), false, ms(10_200)), []);
        assert_eq!(followers.lag(ReplicaId(2), ms(10_200)), ms(900));
        assert_eq!(followers.look(LogIndex(20), false, ms(10_600)).len(), 2, "they are stuck");
    }

    #[test]
    fn without_a_bound_nothing_is_held() {
        let mut followers = Followers::new(3, Duration::ZERO);
        followers.heard(ReplicaId(2), LogIndex(0), true);
        followers.executed(LogIndex(5), ms(0));
        assert_eq!(followers.look(LogIndex(5), false, ms(100_000)), []);
        assert!(!followers.holds());
    }
}
