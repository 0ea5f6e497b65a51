//! When a leader's heartbeats are slow: after nobody has waited for anything for a while, and until somebody does. How its followers learn of that is consensus' business
//! ([`skein_log::Consensus::pace`]); here is when, and what else replicas do less often then.
//!
//! A tick is so many times as long: a node that has nothing to do wakes for heartbeats and for its server's timers. What it tells others all the time goes with these.

use super::agree::LATE;
use super::{Environment, Replica, TICK};
use crate::agreement::regular::Expected;
use crate::modes::Waiting;
use skein_model::ReplicaId;
use std::time::Duration;

/// A connection is silent after so many election timeouts while the rhythm is quick.
const SILENT_TIMEOUTS: u32 = 4;

/// What is to be remembered of it.
#[derive(Debug)]
pub(super) struct Rhythm {
    /// How many times as long a tick is as the shortest,
    pace: u32,
    /// and since when.
    since: Duration,
    /// After so long a connection is silent.
    silence: Duration,
    /// When somebody waited for something last.
    busy: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        let zero = Duration::ZERO;
        Self { pace: 1, since: zero, silence: zero, busy: zero }
    }
}

/// A timer of the server that its leader's node waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited {
    pub expected: Expected,
    /// When its entry is to come at the latest.
    pub by: Duration,
}

impl Awaited {
    /// Whether the server, which waits for this, may wait for that timer.
    pub fn may_be(&self, waiting: Waiting) -> bool {
        let Expected { not_before_ns, by_ns } = self.expected;
        match waiting {
            Waiting::Quiescent(due_ns) => (not_before_ns..=by_ns).contains(&due_ns),
            _ => true,
        }
    }
}

impl<E: Environment> Replica<E> {
    /// The length of a tick.
    pub(super) fn tick_length(&self) -> Duration {
        TICK * self.rhythm.pace
    }

    /// Whether heartbeats are slow here.
    pub(super) const fn is_slow(&self) -> bool {
        self.rhythm.pace > 1
    }

    /// Somebody waits for something: an input, an operator's request, another replica.
    pub(super) const fn is_waited_for(&mut self) {
        self.rhythm.busy = self.now;
    }

    /// Decides whether this leader may be slow; to be called when a turn has proposed what it does, and before its messages are sent.
    pub(super) fn tend_rhythm(&mut self) {
        let after = Duration::from_millis(self.config.tuning.idle_after_ms);
        if self.lead.is_some() && !after.is_zero() {
            if self.now >= self.rhythm.busy + after && self.somebody_waits() {
                self.is_waited_for();
            }
            self.consensus.set_calm(self.now >= self.rhythm.busy + after);
        }
        self.follow_pace();
    }

    /// Follows the rhythm of the leader.
    pub(super) fn follow_pace(&mut self) {
        let pace = self.consensus.pace();
        if pace != self.rhythm.pace {
            tracing::debug!(event = "rhythm", pace);
            self.rhythm.pace = pace;
            self.rhythm.since = self.now;
            self.next_tick = self.next_tick.min(self.now + self.tick_length());
            self.health.next = self.now;
        }
        let timeout = Duration::from_millis(self.config.tuning.election_timeout_ms);
        let silence = timeout * pace.max(SILENT_TIMEOUTS);
        // What a peer said last may be older than the shorter time: it counts when it has passed once.
        let passed = self.now >= self.rhythm.since + silence;
        if silence > self.rhythm.silence || silence < self.rhythm.silence && passed {
            self.rhythm.silence = silence;
            self.env.silent_after(silence);
        }
    }

    /// Whether somebody waits for this leader, or a replica for what it lacks.
    fn somebody_waits(&self) -> bool {
        let lead = self.lead.as_ref();
        !self.serves()
            || lead.is_some_and(|lead| lead.in_flight_entries() > 0)
            || self.unsent.is_some()
            || self.has_inputs()
            || self.pulse.holds()
            || self.standstill.is_some()
            || self.images.taking.is_some()
            || self.images.fetch.is_some()
            || !self.slot.is_in_step()
            || self.is_handing_over()
            || !self.signals.is_empty()
            || !self.upgrade_asked.is_empty()
            || self.upgrade_is_under_way().is_some()
            || self.members.connected + 1 < self.replicas
            || !self.consensus.all_keep_up()
    }

    /// When the server's next timer is expected, if its node need not know more: it executes something and tells when it is earlier, or waits for this one.
    pub(super) fn expected_timer(&mut self) -> Option<Awaited> {
        if !self.is_slow() || self.asks_more() {
            return None;
        }
        let waiting = self.waiting();
        if !matches!(waiting, Waiting::Quiescent(_)) && !self.server_is_beyond() {
            return None;
        }
        let server = self.server().filter(|server| !server.owes())?;
        let quiet = server.header().news.is_known();
        let mut expected = self.regular.expected().filter(|_| quiet)?;
        let now_ns = self.pulse.now(&self.env).0;
        let soonest = expected.not_before_ns.checked_sub(now_ns).filter(|left| *left > 0)?;
        // Within the time that peers may wait a timer's slack ends with it, or their answers woke the node.
        let late_ns = now_ns.saturating_add(LATE.as_nanos() as u64);
        if Duration::from_nanos(soonest) < LATE {
            expected.by_ns = expected.by_ns.min(late_ns);
        }
        let by = self.now + Duration::from_nanos(expected.by_ns - now_ns);
        let awaited = Awaited { expected, by };
        awaited.may_be(waiting).then_some(awaited)
    }

    /// How much longer a leader's heartbeats wait: while the rhythm is slow they go with a timer of its server, if one comes within a tick.
    pub(super) fn heartbeats_wait(&self) -> Duration {
        let waits = self.is_slow() && self.lead.is_some();
        if waits { self.tick_length() } else { Duration::ZERO }
    }

    /// Tells another replica what it is told all the time: while the rhythm is slow, with the next heartbeat or its answer, so that it is not woken for that alone.
    pub(super) fn tell_routinely(&mut self, peer: ReplicaId, kind: u8, bytes: &[u8]) {
        // Two followers send each other nothing else.
        let beats = self.lead.is_some() || self.consensus.leader() == Some(peer);
        if self.is_slow() && beats {
            self.env.send_later(peer, kind, bytes);
        } else {
            self.env.send(peer, kind, bytes);
        }
    }

    /// As [`tell_routinely`](Self::tell_routinely), all of them.
    pub(super) fn tell_all_routinely(&mut self, kind: u8, bytes: &[u8]) {
        let peers: Vec<_> = self.env.connected().collect();
        peers.into_iter().for_each(|peer| self.tell_routinely(peer, kind, bytes));
    }
}
