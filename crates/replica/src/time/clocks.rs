//! The replicas' wall clocks, as nodes report them to each other, and the time that a majority of them agrees on.
//!
//! A clock is represented by its distance from this node's steady clock. A message that was under way for long makes a clock look slow, never fast:
//! of the last few readings the greatest distance counts. Clocks agree if they are within [`TOLERANCE_NS`] of each other.
//!
//! A clock that a majority contradicts is not used, not even by its own node, and is reported until it agrees again. Pure: the caller
//! reads the clocks.

use super::virtual_time::WallClocks;
use skein_log::majority;
use skein_model::{ReplicaId, WallNs};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How often nodes report their clocks to each other.
pub const TELL_EVERY: Duration = Duration::from_millis(500);
/// Clocks that are less than 1 s apart agree.
const TOLERANCE_NS: i128 = 1_000_000_000;
/// The best of this many readings counts,
const READINGS: usize = 4;
/// and none older than this.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// A wall clock that begins or ceases to contradict a majority's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its error: positive when it is ahead.
    Contradicts(ReplicaId, i64),
    /// It agrees again, or is unknown now.
    Ends(ReplicaId),
}

/// The last readings of every replica's wall clock.
#[derive(Clone, Debug)]
pub struct Clocks {
    own: ReplicaId,
    replicas: usize,
    /// The distance of each reading of others' clocks from this node's steady clock, with the time of the reading.
    heard: BTreeMap<ReplicaId, VecDeque<(i128, Duration)>>,
    /// Clocks that contradict a majority's, with their errors.
    contradict: BTreeMap<ReplicaId, i64>,
}

impl Clocks {
    /// Those of `replicas` replicas, of which this one is `own`.
    #[must_use]
    pub const fn new(own: ReplicaId, replicas: usize) -> Self {
        Self { own, replicas, heard: BTreeMap::new(), contradict: BTreeMap::new() }
    }

    /// From now on there are so many replicas.
    pub const fn count(&mut self, replicas: usize) {
        self.replicas = replicas;
    }

    /// Another replica's clock shows `wall`; this node's steady clock shows `at`.
    pub fn heard(&mut self, replica: ReplicaId, wall: WallNs, at: Duration) {
        let readings = self.heard.entry(replica).or_default();
        if readings.len() == READINGS {
            readings.pop_front();
        }
        readings.push_back((distance(wall, at), at));
    }

    /// Another replica is not connected any more.
    pub fn lost(&mut self, replica: ReplicaId) {
        self.heard.remove(&replica);
    }

    /// The reading of all clocks when this node's wall clock shows `wall` and its steady clock `at`.
    #[must_use]
    pub fn read(&self, wall: WallNs, at: Duration) -> WallClocks {
        let known = self.known(wall, at);
        let reading = |distance: i128| {
            WallNs(u64::try_from(distance.saturating_add(nanoseconds(at))).unwrap_or(0))
        };
        let earliest = known.iter().map(|(distance, _)| *distance).min().unwrap_or_default();
        let agreed = agreed(&known, self.replicas, distance(wall, at));
        WallClocks { agreed: agreed.map(reading), earliest: reading(earliest) }
    }

    /// Clocks that have begun or ceased to contradict a majority's since the last call.
    pub fn changes(&mut self, wall: WallNs, at: Duration) -> Vec<Change> {
        let known = self.known(wall, at);
        let agreed = agreed(&known, self.replicas, distance(wall, at));
        let mut off: BTreeMap<ReplicaId, i64> = BTreeMap::new();
        if let Some(agreed) = agreed {
            let by = known.iter().map(|(distance, replica)| (*replica, *distance - agreed));
            off.extend(
                by.filter(|(_, by)| by.abs() > TOLERANCE_NS).map(|(replica, by)| {
                    (replica, by.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
                }),
            );
        }
        let begin = off.iter().filter(|(replica, _)| !self.contradict.contains_key(replica));
        let end = self.contradict.keys().filter(|replica| !off.contains_key(replica));
        let changes = end
            .map(|replica| Change::Ends(*replica))
            .chain(begin.map(|(replica, by)| Change::Contradicts(*replica, *by)))
            .collect();
        self.contradict = off;
        changes
    }

    /// The error of this replica's clock at the last call of [`changes`](Self::changes); 0 when it agreed.
    #[must_use]
    pub fn own_offset_ns(&self) -> i64 {
        self.contradict.get(&self.own).copied().unwrap_or_default()
    }

    /// The distances of all known clocks, least first.
    fn known(&self, wall: WallNs, at: Duration) -> Vec<(i128, ReplicaId)> {
        let fresh = |(distance, heard): &(i128, Duration)| {
            (at.saturating_sub(*heard) < KNOWN_FOR).then_some(*distance)
        };
        let others = self.heard.iter().filter_map(|(replica, readings)| {
            readings.iter().filter_map(fresh).max().map(|distance| (distance, *replica))
        });
        let mut known: Vec<_> = others.chain([(distance(wall, at), self.own)]).collect();
        known.sort_unstable();
        known
    }
}

/// The distance of the clocks of a majority of `replicas`, or nearly: this node's `own` if it is among them.
fn agreed(known: &[(i128, ReplicaId)], replicas: usize, own: i128) -> Option<i128> {
    let majority = majority(replicas);
    let together =
        |clocks: &&[(i128, ReplicaId)]| clocks[majority - 1].0 - clocks[0].0 <= TOLERANCE_NS;
    let mut found = known.windows(majority).filter(together);
    let first = found.next()?;
    let holds_own =
        |clocks: &[(i128, ReplicaId)]| clocks[0].0 <= own && own <= clocks[majority - 1].0;
    if holds_own(first) || found.any(holds_own) {
        return Some(own);
    }
    Some(first[majority / 2].0)
}

fn distance(wall: WallNs, at: Duration) -> i128 {
    i128::from(wall.0) - nanoseconds(at)
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 24 * 3600 * S;
    const TRUE: u64 = 56 * YEAR;
    const AT: Duration = Duration::from_secs(1000);

    /// Replica 1 of `replicas`, whose own clock is off by the first of `off` seconds; the others' are by the following ones.
    fn clocks(replicas: usize, off: &[i64]) -> (Clocks, WallNs) {
        let wall = |off: i64| WallNs(TRUE.wrapping_add_signed(off * S as i64));
        let mut clocks = Clocks::new(ReplicaId(1), replicas);
        for (id, off) in (2..).zip(&off[1..]) {
            clocks.heard(ReplicaId(id), wall(*off), AT);
        }
        (clocks, wall(off[0]))
    }

    fn agreed_offset(replicas: usize, off: &[i64]) -> Option<i64> {
        let (clocks, wall) = clocks(replicas, off);
        clocks.read(wall, AT).agreed.map(|agreed| agreed.0.wrapping_sub(TRUE) as i64 / S as i64)
    }

    #[test]
    fn a_majority_decides() {
        const Y: i64 = 365 * 24 * 3600;
        for (replicas, off, agreed) in [
            (1, &[7][..], Some(7)),
            (2, &[0, 0], Some(0)),
            (2, &[0, Y], None),
            (2, &[0], None),
            (3, &[0, 0, 0], Some(0)),
            (3, &[Y, 0, 0], Some(0)),
            (3, &[-Y, 0, 0], Some(0)),
            (3, &[0, Y, 0], Some(0)),
            (3, &[0, 0, -Y], Some(0)),
            (3, &[0, Y], None),
            (3, &[0, 0], Some(0)),
            (3, &[0], None),
            (3, &[0, Y, -Y], None),
            (5, &[Y, Y, 0, 0, 0], Some(0)),
            (5, &[Y, Y, 0, 0], None),
            (5, &[0, 0, 0, Y, -Y], Some(0)),
        ] {
            assert_eq!(agreed_offset(replicas, off), agreed, "{off:?} of {replicas}");
        }
    }

    #[test]
    fn ones_own_clock_is_used_as_it_is_when_it_is_among_the_majority() {
        let (mut clocks, wall) = clocks(3, &[0]);
        clocks.heard(ReplicaId(2), WallNs(wall.0 - S / 2), AT);
        clocks.heard(ReplicaId(3), WallNs(wall.0 + S / 4), AT);
        assert_eq!(clocks.read(wall, AT).agreed, Some(wall));
        let later = AT + Duration::from_secs(1);
        assert_eq!(clocks.read(WallNs(wall.0 + S), later).agreed, Some(WallNs(wall.0 + S)));
    }

    #[test]
    fn messages_that_were_late_do_not_make_a_clock_slow() {
        let (mut clocks, wall) = clocks(3, &[0, 0, 0]);
        for second in 1..4 {
            // Their readings of the last 3 s arrive only now.
            let late = AT + Duration::from_secs(3);
            clocks.heard(ReplicaId(2), WallNs(wall.0 + second * S), late);
        }
        let (now, at) = (WallNs(wall.0 + 3 * S), AT + Duration::from_secs(3));
        assert_eq!(clocks.changes(now, at), []);
    }

    #[test]
    fn what_was_heard_long_ago_or_of_a_lost_replica_is_not_known() {
        let (mut clocks, wall) = clocks(3, &[0, 0, 0]);
        assert!(clocks.read(wall, AT).agreed.is_some());
        clocks.lost(ReplicaId(2));
        assert!(clocks.read(wall, AT).agreed.is_some());
        let late = AT + KNOWN_FOR;
        assert_eq!(clocks.read(WallNs(wall.0 + 5 * S), late).agreed, None);
    }

    #[test]
    fn a_clock_that_is_contradicted_is_named_until_it_agrees() {
        let (mut clocks, wall) = clocks(3, &[0, 0, 0]);
        assert_eq!(clocks.changes(wall, AT), []);
        let ahead = WallNs(wall.0 + YEAR);
        assert_eq!(clocks.changes(ahead, AT), [Change::Contradicts(ReplicaId(1), YEAR as i64)]);
        assert_eq!((clocks.changes(ahead, AT), clocks.own_offset_ns()), (vec![], YEAR as i64));
        assert_eq!(clocks.changes(wall, AT), [Change::Ends(ReplicaId(1))]);
        let at = AT + Duration::from_secs(1);
        clocks.lost(ReplicaId(3));
        clocks.heard(ReplicaId(3), WallNs(wall.0 - YEAR), at);
        let now = WallNs(wall.0 + S);
        assert!(
            matches!(clocks.changes(now, at)[..], [Change::Contradicts(ReplicaId(3), by)] if by < 0)
        );
        clocks.lost(ReplicaId(3));
        assert_eq!(clocks.changes(now, at), [Change::Ends(ReplicaId(3))]);
    }

    #[test]
    fn no_reading_is_too_strange() {
        let mut clocks = Clocks::new(ReplicaId(1), 3);
        clocks.heard(ReplicaId(2), WallNs(u64::MAX), Duration::MAX);
        clocks.heard(ReplicaId(3), WallNs(0), Duration::ZERO);
        for (wall, at) in [(0, Duration::ZERO), (u64::MAX, Duration::MAX), (u64::MAX, AT)] {
            let _ = clocks.read(WallNs(wall), at);
            clocks.changes(WallNs(wall), at);
        }
    }
}
