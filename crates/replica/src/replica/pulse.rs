//! Messages between nodes a few times a second, and their use: wall clocks, from which virtual time is
//! kept ([`crate::time::virtual_time`]), and the servers' progress, for which a leader may wait ([`crate::health::lag`]).

use super::Replica;
use crate::environment::{Clock, Environment};
use crate::health::Fault;
use crate::health::lag::{self, Followers, Marks};
use crate::server::slot::Slot;
use crate::time::clocks::{Change, Clocks, TELL_EVERY};
use crate::time::virtual_time::VirtualTime;
use skein_log::Kind;
use skein_log::frame::KIND_APP;
use skein_model::{LogIndex, ReplicaId, WallNs};
use std::collections::VecDeque;
use std::time::Duration;

/// "My wall clock shows this, my server is here (0: it has no process), this is whether it is in step, and if I lead, yours is so far behind mine": ns u64,
/// index u64, u8, ms u32.
pub(super) const PULSE: u8 = KIND_APP + 7;

/// It does not lead.
const NOT_LEADING: u32 = u32::MAX;
/// How often a running server's progress is reported.
const MOVED_EVERY: Duration = Duration::from_millis(50);
/// How often a leader decides whether it waits.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// All clocks, virtual time, and the servers' progress.
#[derive(Debug)]
pub(super) struct Pulse {
    pub(super) time: VirtualTime,
    /// When entries came whose sync is deferred, by the steady clock: their stamps were of about then.
    arrived: VecDeque<(LogIndex, Duration)>,
    clocks: Clocks,
    /// The last reported progress of this server, and its time.
    told: (LogIndex, Duration),
    next: Duration,
    /// The committed index.
    committed: Marks,
    followers: Followers,
    looked: Duration,
    bound: Duration,
    /// The server's lag behind its leader's, as that leader reported it.
    behind: (ReplicaId, Duration),
}

impl Pulse {
    pub(super) fn new(own: ReplicaId, replicas: usize, bound: Duration) -> Self {
        Self {
            time: VirtualTime::new(),
            arrived: VecDeque::new(),
            clocks: Clocks::new(own, replicas),
            told: (LogIndex(0), Duration::ZERO),
            next: Duration::ZERO,
            committed: Marks::default(),
            followers: Followers::new(replicas, bound),
            looked: Duration::ZERO,
            bound,
            behind: (own, Duration::ZERO),
        }
    }

    /// From now on so many replicas have a vote, and so many of them a server.
    pub(super) const fn count(&mut self, replicas: usize, servers: usize) {
        self.clocks.count(replicas);
        self.followers.count(servers);
    }

    /// Whether another replica's server is in step, as it said last.
    pub(super) fn is_in_step(&self, replica: ReplicaId) -> bool {
        self.followers.is_ready(replica)
    }

    /// Whether a follower's server is in step, and behind this leader's by no more than this.
    pub(super) fn is_close(&self, replica: ReplicaId, within: Duration, now: Duration) -> bool {
        self.followers.is_ready(replica) && self.followers.lag(replica, now) <= within
    }

    /// Whether a replica's server has executed an entry. One that says to be beyond `committed` went astray while it led.
    fn has_executed(&self, replica: ReplicaId, index: LogIndex, committed: LogIndex) -> bool {
        self.followers.at(replica).is_some_and(|at| (index..=committed).contains(&at))
    }

    /// This node leads from now on.
    pub(super) fn begin_term(&mut self, now: Duration) {
        self.time.begin_term();
        self.followers.begin(now);
    }

    /// Whether a leader waits for its followers' servers.
    pub(super) const fn holds(&self) -> bool {
        self.followers.holds()
    }

    /// The lag of the server, which has executed all up to `applied`: as `leader` reports it, or, until it does, behind
    /// the committed entries.
    pub(super) fn lag(
        &self,
        applied: LogIndex,
        leader: Option<ReplicaId>,
        now: Duration,
    ) -> Duration {
        match self.behind {
            (said_by, behind) if leader == Some(said_by) => behind,
            _ => self.committed.lag(applied, now),
        }
    }

    /// Virtual time now.
    pub(super) fn now(&mut self, clock: &impl Clock) -> WallNs {
        let (clocks, at) = (&self.clocks, clock.steady());
        self.time.now(at, || clocks.read(clock.wall(), at))
    }

    /// A stamp for an entry made now.
    pub(super) fn stamp(&mut self, clock: &impl Clock) -> WallNs {
        let (clocks, at) = (&self.clocks, clock.steady());
        self.time.stamp(at, || clocks.read(clock.wall(), at))
    }

    /// An entry of the log has this stamp: virtual time goes on from there.
    pub(super) fn observe(&mut self, stamp: WallNs, clock: &impl Clock) {
        if stamp > self.time.last() {
            self.time.observe(stamp, clock.steady());
        }
    }

    /// An entry came at this time, which may be committed much later.
    pub(super) fn arrived(&mut self, index: LogIndex, steady: Duration) {
        self.arrived.push_back((index, steady));
    }

    /// Entries from `index` on take the place of others, if there are any.
    pub(super) fn replaced(&mut self, index: LogIndex) {
        while self.arrived.pop_back_if(|(at, _)| *at >= index).is_some() {}
    }

    /// The entry at `index`, with this stamp, is committed.
    pub(super) fn committed(&mut self, index: LogIndex, stamp: WallNs, clock: &impl Clock) {
        self.inherited(index, stamp, clock);
        while self.arrived.pop_front_if(|(at, _)| *at <= index).is_some() {}
    }

    /// The entry at `index`, with this stamp, is the newest one that a new leader found.
    pub(super) fn inherited(&mut self, index: LogIndex, stamp: WallNs, clock: &impl Clock) {
        match self.arrived.binary_search_by_key(&index, |(at, _)| *at) {
            Ok(found) if stamp > self.time.last() => {
                self.time.observe(stamp, self.arrived[found].1)
            }
            _ => self.observe(stamp, clock),
        }
    }

    pub(super) fn lost(&mut self, peer: ReplicaId) {
        self.clocks.lost(peer);
        self.followers.lost(peer);
    }

    /// The error of this host's wall clock against a majority's; 0 when it agrees.
    pub(super) fn clock_offset_ms(&self) -> i64 {
        self.clocks.own_offset_ns() / 1_000_000
    }

    /// The fault of a wrong clock, if it is wrong.
    pub(super) fn clock_fault(&self) -> Option<Fault> {
        let ms = self.clock_offset_ms();
        let seconds = ms.unsigned_abs() as f64 / 1e3;
        let side = if ms > 0 { "ahead of" } else { "behind" };
        let why =
            format!("its wall clock is {seconds:.1} s {side} the majority's and not used: set it");
        (ms != 0).then(|| Fault::new("clock_is_off", why))
    }

    /// The error of virtual time against a majority's clocks, if these agree; negative when it is ahead.
    pub(super) fn behind_ms(&self, clock: &impl Clock) -> Option<i64> {
        let at = clock.steady();
        let agreed = self.clocks.read(clock.wall(), at).agreed?;
        let reads = self.time.reading(at);
        Some(((i128::from(agreed.0) - i128::from(reads.0)) / 1_000_000) as i64)
    }
}

/// Where a server is, for others, which has executed all up to `applied`. What one has executed that has ended helps nobody: the next one begins anew, and may be far from where it
/// could serve. A replica whose slot rests is where its log is.
const fn progress(slot: &Slot, applied: LogIndex) -> LogIndex {
    let ended = slot.link().is_some() && !slot.has_process();
    if ended { LogIndex(0) } else { applied }
}

impl<E: Environment> Replica<E> {
    /// Tells all peers everything due.
    pub(super) fn beat(&mut self) {
        let applied = self.applied();
        self.pulse.committed.forget_up_to(applied);
        self.pulse.committed.mark(self.handed, self.now);
        let (told, when) = self.pulse.told;
        let progress = progress(&self.slot, applied);
        let moved = progress != told && self.now.saturating_sub(when) >= MOVED_EVERY;
        if !moved && self.now < self.pulse.next {
            return;
        }
        let peers: Vec<_> = self.env.connected().collect();
        for peer in peers {
            self.pulse_for(peer);
        }
        self.pulse.told = (progress, self.now);
        if self.now >= self.pulse.next {
            self.pulse.next = self.now + TELL_EVERY;
            for change in self.pulse.clocks.changes(self.env.wall(), self.env.steady()) {
                Self::clock_changed(change);
            }
        }
    }

    /// Tells one peer.
    pub(super) fn pulse_for(&mut self, peer: ReplicaId) {
        let mut bytes = [0; 21];
        bytes[..8].copy_from_slice(&self.env.wall().0.to_le_bytes());
        bytes[8..16].copy_from_slice(&progress(&self.slot, self.applied()).0.to_le_bytes());
        bytes[16] = u8::from(self.slot.is_in_step());
        let behind = self.lead.as_ref().map(|_| self.pulse.followers.lag(peer, self.now));
        let ms = behind
            .map_or(NOT_LEADING, |lag| lag.as_millis().min(u128::from(NOT_LEADING - 1)) as u32);
        bytes[17..].copy_from_slice(&ms.to_le_bytes());
        self.tell_routinely(peer, PULSE, &bytes);
    }

    /// A peer's report.
    pub(super) fn pulse_heard(&mut self, peer: ReplicaId, bytes: &[u8]) {
        let Ok(bytes) = <[u8; 21]>::try_from(bytes) else {
            self.distrust(peer, &format!("a malformed message ({PULSE})"));
            return;
        };
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let votes = self.members.voters.contains(&peer);
        if votes {
            self.pulse.clocks.heard(peer, WallNs(number(0)), self.env.steady());
        }
        let ms = u32::from_le_bytes(bytes[17..].try_into().expect("4 bytes"));
        if ms != NOT_LEADING {
            self.pulse.behind = (peer, Duration::from_millis(ms.into()));
        }
        self.pulse.followers.heard(peer, LogIndex(number(8)), votes && bytes[16] != 0);
    }

    /// Decides whether this leader waits for its followers' servers.
    pub(super) fn look_after_followers(&mut self) {
        if self.lead.is_none() || self.now.saturating_sub(self.pulse.looked) < LOOK_EVERY {
            return;
        }
        self.pulse.looked = self.now;
        let applied = self.applied();
        self.pulse.followers.executed(applied, self.now);
        let (last, slow) = (self.consensus.last_index(), self.is_slow());
        for change in self.pulse.followers.look(last, slow, self.now) {
            match change {
                lag::Change::LeftOut(replica) => {
                    let why = "its server stands still or is much too slow: the leader does not wait for it until it has caught up";
                    tracing::warn!(event = "left_out", replica = replica.0, why);
                    self.note(format!("replica {replica} is left out: {why}"));
                }
                lag::Change::Counts(replica) => {
                    tracing::info!(event = "counts_again", replica = replica.0);
                }
            }
        }
        self.metrics.held_back.set(i64::from(self.pulse.holds()));
    }

    /// When to decide it again, if ever.
    pub(super) fn followers_wake(&self) -> Option<Duration> {
        (self.lead.is_some() && self.pulse.holds()).then(|| self.now + MOVED_EVERY)
    }

    /// A new leader whose server is too far behind hands over to the replica that is furthest ahead.
    pub(super) fn leave_to_the_furthest(&mut self) {
        let (applied, bound) = (self.applied(), self.pulse.bound);
        if bound.is_zero() || self.pulse.committed.lag(applied, self.now) <= bound {
            return;
        }
        let Some((best, at)) = self.pulse.followers.furthest().filter(|(_, at)| *at > applied)
        else {
            return;
        };
        let (ours, theirs) = (applied.0, at.0);
        tracing::info!(
            event = "hands_over",
            to = best.0,
            ours,
            theirs,
            why = "its server is further"
        );
        self.hand_leadership_to(best);
    }

    /// A leader whose server has long to go until clients are served hands over to an active replica whose server has executed the entry with which it begins to
    /// serve, and so would at once.
    pub(super) fn leave_to_one_that_could_serve(&mut self) {
        let wait = Duration::from_millis(self.config.tuning.election_timeout_ms);
        let Some(start) = self.lead.as_ref().and_then(|lead| lead.overdue(wait, self.now)) else {
            return;
        };
        // In an upgrade all servers begin anew.
        let is_active = |id| self.members.kind_of(id) == Kind::Active;
        let is_upgrading = self.upgrade_is_under_way().is_some();
        if !self.members.kind.can_serve() || self.is_handing_over() || is_upgrading {
            return;
        }
        let could_serve = |id| {
            is_active(id)
                && !self.has_ended(id)
                && !self.members.is_replaced(id)
                && self.pulse.has_executed(id, start, self.handed)
        };
        let Some(to) = self.heir_of(could_serve) else { return };
        self.health.handed_over = Some(self.now);
        let ours = self.applied().0;
        let why = "its server could serve at once";
        tracing::info!(event = "hands_over", to = to.0, ours, start = start.0, why);
        self.hand_leadership_to(to);
    }

    fn clock_changed(change: Change) {
        match change {
            Change::Contradicts(replica, by_ns) => {
                let offset_ms = by_ns / 1_000_000;
                let why = "a majority of the replicas' wall clocks agree on another time";
                tracing::warn!(event = "clock_contradicts", replica = replica.0, offset_ms, why);
            }
            Change::Ends(replica) => {
                tracing::info!(event = "clock_agrees", replica = replica.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Link;
    use skein_arena::Sizes;

    #[test]
    fn one_whose_server_was_killed_is_not_said_to_have_executed_anything() {
        let sizes = Sizes { heap: Sizes::MIN_HEAP, ..Sizes::default() };
        let link = |generation| Link::sparse(sizes, generation).expect("memory");
        let now = Duration::ZERO;
        let mut slot = Slot::new(Some(link(1)));
        assert!(slot.launched(now));
        assert_eq!(progress(&slot, LogIndex(9)), LogIndex(9));
        slot.vacate(now, now);
        assert_eq!(progress(&slot, LogIndex(9)), LogIndex(0));
        let mut pulse = Pulse::new(ReplicaId(1), 3, now);
        pulse.followers.heard(ReplicaId(2), progress(&slot, LogIndex(9)), false);
        assert!(!pulse.has_executed(ReplicaId(2), LogIndex(8), LogIndex(10)));
        assert!(slot.refill(link(2)).is_some() && slot.launched(now));
        pulse.followers.heard(ReplicaId(2), progress(&slot, LogIndex(9)), false);
        assert!(pulse.has_executed(ReplicaId(2), LogIndex(8), LogIndex(10)));
        slot.rest();
        assert_eq!(progress(&slot, LogIndex(9)), LogIndex(9), "it has no server to wait for");
    }
}
