//! How far the servers of followers are behind the leader's, as the bound counts it (`skein_replica::health::lag`): in time in which the leader
//! does not wait for them. A leader that never waits has a clock that never stands still.

use super::World;
use crate::options::Scenario;
use skein_model::LogIndex;

/// The first execution of entries, and the longest lag.
#[derive(Debug, Default)]
pub(super) struct Lag {
    /// Entries, with the time when a server first had executed them.
    executed: Vec<(LogIndex, u64)>,
    /// The leader waits; the total time in which it did, up to the last look.
    holds: bool,
    waited_us: u64,
    looked_us: u64,
    pub(super) longest_us: u64,
}

impl Lag {
    /// The time in which the leader did not wait.
    fn clock(&self, now_us: u64) -> u64 {
        let waits_us = if self.holds { now_us - self.looked_us } else { 0 };
        now_us - self.waited_us - waits_us
    }

    /// A server has executed this entry.
    pub(super) fn executed(&mut self, index: LogIndex, now_us: u64) {
        if self.executed.last().is_none_or(|(last, _)| *last < index) {
            self.executed.push((index, self.clock(now_us)));
        }
    }

    /// The time when a server first had executed this entry, by a clock that stands still while the leader waits.
    pub(super) fn executed_at(&self, index: LogIndex) -> Option<u64> {
        let at = self.executed.partition_point(|(executed, _)| *executed < index);
        self.executed.get(at).map(|(_, at)| *at)
    }

    /// The time by which a server is behind the first one.
    fn of(&self, executed: LogIndex, now_us: u64) -> u64 {
        let next = self.executed.partition_point(|(index, _)| *index <= executed);
        self.executed.get(next).map_or(0, |(_, at)| self.clock(now_us) - at)
    }

    fn look(&mut self, holds: bool, now_us: u64) {
        self.waited_us = now_us - self.clock(now_us);
        (self.holds, self.looked_us) = (holds, now_us);
    }
}

impl World {
    /// Notes after a step of the leader's node whether it waits, and by how much the fastest server of a follower is behind, while clients ask.
    pub(super) fn look_at_lag(&mut self, id: u64) {
        if self.options.scenario != Scenario::SlowFollowers || self.leader() != Some(id) {
            return;
        }
        let Some(process) = &self.machines[&id].process else { return };
        self.lag.look(process.metrics.held_back.get() != 0, self.now_us);
        let followers = self.machines.values().filter(|machine| machine.id.0 != id);
        let executed = followers.filter_map(|machine| Some(machine.process.as_ref()?.executed));
        if let Some(foremost) = executed.max().filter(|_| self.is_asked()) {
            let lag_us = self.lag.of(foremost, self.now_us);
            self.lag.longest_us = self.lag.longest_us.max(lag_us);
        }
    }
}
