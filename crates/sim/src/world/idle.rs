//! What a cluster does while nobody asks: how often its disks sync, and how soon it is heard what a timer says.

use super::World;
use crate::options::Scenario;
use skein_model::LogIndex;
use std::collections::BTreeMap;

/// Counts from the moment on when nobody asks any more.
#[derive(Debug, Default)]
pub(super) struct Idle {
    since_us: Option<u64>,
    /// The syncs of each replica's log.
    syncs: BTreeMap<u64, u64>,
    /// The wake-ups of each node.
    wakes: BTreeMap<u64, u64>,
    /// Since when something waits that peers said to a node.
    waits_us: BTreeMap<u64, u64>,
    /// The longest such time.
    pub(super) heard_after_us: u64,
    /// The terms that had a leader then,
    terms: usize,
    /// and the entries that the log had.
    entries: u64,
    pub(super) said_after_us: u64,
}

impl Idle {
    /// Whether nobody asks at this time, since when, with the terms and entries up to now.
    fn looked(&mut self, since_us: Option<u64>, terms: usize, entries: u64) {
        if since_us != self.since_us {
            *self = Self { since_us, terms, entries, ..Self::default() };
        }
    }

    /// The entries since, of so many up to now; none when the nodes have ended.
    pub(super) fn entries(&self, entries: u64) -> u64 {
        self.since_us.map_or(0, |_| entries.saturating_sub(self.entries))
    }

    /// The leaders that there were since, of so many terms up to now.
    pub(super) fn leaders(&self, terms: usize) -> usize {
        self.since_us.map_or(0, |_| terms - self.terms)
    }

    pub(super) fn synced(&mut self, id: u64) {
        if self.since_us.is_some() {
            *self.syncs.entry(id).or_default() += 1;
        }
    }

    pub(super) fn woke(&mut self, id: u64, now_us: u64) {
        if self.since_us.is_some() {
            *self.wakes.entry(id).or_default() += 1;
            let waited = self.waits_us.remove(&id).map_or(0, |since| now_us - since);
            self.heard_after_us = self.heard_after_us.max(waited);
        }
    }

    /// What a peer said waits for a node's next wake-up.
    pub(super) fn waits(&mut self, id: u64, now_us: u64) {
        if self.since_us.is_some() {
            self.waits_us.entry(id).or_insert(now_us);
        }
    }

    pub(super) fn most_wakes(&self) -> u64 {
        self.wakes.values().copied().max().unwrap_or_default()
    }

    pub(super) fn most_syncs(&self) -> u64 {
        self.syncs.values().copied().max().unwrap_or_default()
    }

    pub(super) fn took_us(&self, now_us: u64) -> u64 {
        self.since_us.map_or(0, |since| now_us - since)
    }
}

impl World {
    /// Whether nobody asks now, since when.
    pub(super) fn nobody_asks(&mut self, since_us: Option<u64>) {
        let (terms, entries) = (self.checker.terms(), self.entries());
        self.idle.looked(since_us, terms, entries);
    }

    /// The entries of the leader's log.
    pub(super) fn entries(&self) -> u64 {
        let process = self.leader().and_then(|id| self.machines[&id].process.as_ref());
        process.map_or(0, |process| process.replica.consensus().last_index().0)
    }

    /// How long nobody asks before a run ends.
    pub(super) const fn quiet_us(&self, otherwise: u64) -> u64 {
        match self.options.scenario {
            Scenario::Idle(_) | Scenario::Returns => 20_000_000,
            _ => otherwise,
        }
    }

    /// What a timer said for this entry leaves.
    pub(super) fn timer_is_heard(&mut self, index: LogIndex) {
        if let Some(at_us) = self.lag.executed_at(index)
            && self.idle.since_us.is_some_and(|since| at_us >= since)
        {
            self.idle.said_after_us = self.idle.said_after_us.max(self.now_us - at_us);
        }
    }
}
