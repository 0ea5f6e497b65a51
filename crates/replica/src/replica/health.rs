//! Watches this replica's disk, server and links ([`crate::health`]), tells the others, and hands leadership over when this
//! replica is not fit to lead.

use super::{Environment, Replica};
use crate::health::disk::Disk;
use crate::health::peers::Neighbours;
use crate::health::progress::Progress;
use crate::health::spin::Spin;
use crate::health::{Fault, PULSE_EVERY, PULSE_UNCHANGED_EVERY};
use skein_log::frame::KIND_APP;
use skein_log::{Kind, Level, PeerStatus};
use skein_model::{LogIndex, ReplicaId};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// "My server has executed this entry; I am not fit to lead (1) or am (0); answer with this": index u64, u64, stamp u64. Behind that the newest [`Level`] that its sender
/// knows, u16; not from a node from before levels, which reads no more than the three numbers. Behind that, while it fetches an image, how many KiB of it it has, [`KIB_BYTES`]:
/// nodes with levels read the two bytes and no more, as long as fewer than eight follow the numbers.
pub(super) const STATE: u8 = KIND_APP + 10;
/// The answer: stamp u64.
pub(super) const ANSWER: u8 = KIND_APP + 11;

/// The bytes of a number of KiB: enough for a PiB.
const KIB_BYTES: usize = 5;

/// A server that must still execute the log, or begin it, has this many times the patience,
const CATCHING_UP: u32 = 10;
/// and one that is stuck this many times as long is rebuilt: no work takes one replica so much longer than another. Each rebuild in a
/// row has twice as long.
const REBUILD_AFTER: u32 = 30;

/// The watched state.
#[derive(Debug, Default)]
pub(super) struct Health {
    pub disk: Disk,
    pub neighbours: Neighbours,
    pub progress: Progress,
    pub spin: Spin,
    /// What its server's runtime said of the disk of the private layer, until the server is in step again.
    pub layer: Option<String>,
    /// When it is looked at next.
    pub next: Duration,
    /// What the others were told last, and when.
    told: Option<((u64, bool), Duration)>,
    /// Peers that await the answer to their pulse: its stamp, and when it came.
    unanswered: Vec<(ReplicaId, u64, Duration)>,
    /// Since when this replica has led.
    pub led_since: Option<Duration>,
    /// The last time that leadership was handed over, or that this was tried.
    pub handed_over: Option<Duration>,
    /// The logged faults.
    known: BTreeSet<String>,
}

impl Health {
    /// Watches nothing yet; these are the others.
    pub fn new(others: impl Iterator<Item = ReplicaId>) -> Self {
        Self { neighbours: Neighbours::new(others), ..Self::default() }
    }
}

/// What [`STATE`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    executed: u64,
    unfit: bool,
    stamp: u64,
    /// None from before levels.
    level: Option<Level>,
    /// KiB of an image that its sender fetches. Not said without a level.
    kib: Option<u64>,
}

impl State {
    fn to_bytes(self) -> Vec<u8> {
        let Self { executed, unfit, stamp, level, kib } = self;
        let mut bytes = [executed, u64::from(unfit), stamp].map(u64::to_le_bytes).concat();
        if let Some(level) = level {
            bytes.extend_from_slice(&level.0.to_le_bytes());
            let kib = kib.map(|kib| kib.min((1 << (8 * KIB_BYTES)) - 1).to_le_bytes());
            bytes.extend(kib.into_iter().flat_map(|kib| kib.into_iter().take(KIB_BYTES)));
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let words = bytes.chunks_exact(8);
        let (level, rest) = match words.remainder().split_first_chunk() {
            Some((level, rest)) => (Some(Level(u16::from_le_bytes(*level))), rest),
            None => (None, &[][..]),
        };
        let kib = rest.first_chunk::<KIB_BYTES>().map(|kib| {
            let mut word = [0; 8];
            word[..KIB_BYTES].copy_from_slice(kib);
            u64::from_le_bytes(word)
        });
        let words: Vec<u64> =
            words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
        let &[executed, unfit, stamp] = words.as_slice() else { return None };
        Some(Self { executed, unfit: unfit != 0, stamp, level, kib })
    }
}

impl<E: Environment> Replica<E> {
    /// The current faults of this replica.
    pub(super) fn faults(&self) -> Vec<Fault> {
        // A leader that has nothing to do hears what peers say a heartbeat later.
        let tuning = &self.config.tuning;
        let slow = Duration::from_millis(tuning.election_timeout_ms / 2 + tuning.heartbeat_ms);
        let links = self.health.neighbours.faults(slow, self.now);
        let full = self.disk_is_full().then(|| Fault::new("disk_full", self.full_disk()));
        let disk = full.or_else(|| self.health.disk.fault(self.now));
        let ended = self.ended_fault();
        let server = self.health.progress.fault(self.server_patience(), self.now);
        let spins = self.health.spin.fault(self.now);
        let clock = self.pulse.clock_fault();
        let waits = self.witness_fault();
        let layer = self.health.layer.as_ref().map(|why| Fault::new("layer_fails", why.clone()));
        let own = disk.into_iter().chain(layer).chain(self.images_fault()).chain(ended);
        let own = own.chain(self.left_out_fault());
        let own = own.chain(server).chain(spins).chain(clock).chain(waits).chain(self.twin_fault());
        own.chain(links).collect()
    }

    fn server_patience(&self) -> Duration {
        let times = if self.slot.is_in_step() { 1 } else { CATCHING_UP };
        times * self.patience(self.config.tuning.server_patience_ms)
    }

    fn patience(&self, ms: u64) -> Duration {
        Duration::from_millis(ms.max(self.config.tuning.election_timeout_ms))
    }

    fn disk_is_full(&self) -> bool {
        self.env.is_full()
    }

    fn full_disk(&self) -> String {
        let dir = self.config.data_dir.display();
        format!("the disk below {dir} is full: its log waits until there is room")
    }

    /// The reason why this replica should not lead, if there is one.
    pub(super) fn unfit(&self) -> Option<&'static str> {
        if !self.members.kind.can_serve() {
            return Some("it is a witness");
        }
        if !self.slot.can_be_fed() && self.begins_nowhere() {
            return Some("its server can begin nowhere without another replica's image");
        }
        if self.disk_is_full() {
            return Some("its disk is full");
        }
        let disk = self.patience(self.config.tuning.disk_patience_ms);
        if self.health.disk.waits(self.now).is_some_and(|waits| waits >= disk) {
            return Some("its disk hangs");
        }
        let stuck = self.health.progress.stuck(self.server_patience(), self.now);
        stuck.map(|_| "its server is stuck")
    }

    /// A better leader: a connected and fit voter, an active one if its log is complete; else the one with the longest log. One whose server has just ended comes last.
    pub(super) fn heir(&self) -> Option<ReplicaId> {
        self.heir_of(|_| true)
    }

    /// The same, of those that `may`.
    pub(super) fn heir_of(&self, may: impl Fn(ReplicaId) -> bool) -> Option<ReplicaId> {
        let status = self.consensus.status();
        let fit = status.peers.iter().filter(|peer| {
            let id = peer.id;
            id != self.own
                && self.votes(peer)
                && self.members.kind_of(id).can_serve()
                && self.health.neighbours.is_fit(id)
                && may(id)
        });
        let worth = |peer: &&PeerStatus| {
            let complete = peer.matched >= status.commit;
            // One whose server has ended as well would hand leadership back.
            let ended = self.has_ended(peer.id);
            (!ended, complete, Reverse(self.members.kind_of(peer.id)), peer.matched)
        };
        fit.max_by_key(worth).map(|peer| peer.id)
    }

    /// To be called when members or fitness change: whom consensus makes lead when this leader must go, as another one takes its place.
    pub(super) fn choose_successor(&mut self) {
        let goes = self.lead.is_some() && self.members.is_replaced(self.own);
        let heir = goes.then(|| self.heir_of(|id| !self.members.is_replaced(id))).flatten();
        self.consensus.leave_to(heir);
    }

    /// Any connected replica that could lead, fit or not.
    pub(super) fn any_heir(&self) -> Option<ReplicaId> {
        self.env.connected().find(|id| self.members.that_can_serve().any(|other| other == *id))
    }

    /// Tells the others this replica's state, and acts on it.
    pub(super) fn tend_health(&mut self) {
        if self.now < self.health.next {
            return;
        }
        let every = if self.is_slow() { PULSE_UNCHANGED_EVERY } else { PULSE_EVERY };
        self.health.next = self.now + every;
        self.health.disk.beside(self.env.answering_since());
        self.watch_server();
        let unfit = self.unfit();
        let executed = self.survived().0;
        let state = (executed, unfit.is_some());
        // It goes with the next heartbeat then: more than one would say no more.
        let slow = self.is_slow();
        let changed = |(at, was_unfit)| was_unfit != state.1 || at != executed && !slow;
        if self
            .health
            .told
            .is_none_or(|(told, at)| changed(told) || self.now >= at + PULSE_UNCHANGED_EVERY)
        {
            self.health.told = Some((state, self.now));
            self.tell_all_routinely(STATE, &self.state_message(executed, unfit.is_some()));
        }
        if let Some(why) = unfit
            && self.lead.is_some()
        {
            self.hand_over_for(why);
        }
        self.choose_successor();
        self.hand_to_an_active();
        self.leave_to_one_that_could_serve();
        self.log_faults();
        self.consensus.raise_level();
    }

    /// Tells one of the others, before it is time to tell all.
    pub(super) fn tell_state(&mut self, peer: ReplicaId) {
        let message = self.state_message(self.survived().0, self.unfit().is_some());
        self.env.send(peer, STATE, &message);
    }

    fn state_message(&self, executed: u64, unfit: bool) -> Vec<u8> {
        let stamp = self.now.as_micros() as u64;
        let level = Some(self.consensus.known_level()).filter(|level| *level > Level::FIRST);
        State { executed, unfit, stamp, level, kib: self.images.fetched_kib() }.to_bytes()
    }

    fn watch_server(&mut self) {
        let standing = self.standstill.is_some() || self.images.is_copying();
        let Some(server) = self.slot.link().filter(|_| self.slot.has_process() && !standing) else {
            self.health.progress.forget();
            return;
        };
        let (executed, pid) = (server.survived(), server.pid);
        let waits = executed >= server.feed.given();
        let health = &mut self.health;
        health.progress.look(executed, health.neighbours.foremost(), waits, self.now);
        let limit = self.patience(self.config.tuning.server_patience_ms)
            * (REBUILD_AFTER << self.slot.rebuilds_in_a_row().min(6));
        if self.health.progress.stuck(limit, self.now).is_some() {
            tracing::warn!(event = "server_stuck", index = executed.0, pid);
            self.note(format!(
                "the server did not get past entry {executed} while others' did: it is rebuilt from the log"
            ));
            self.health.progress.forget();
            self.kill_server();
        }
    }

    /// Whether leadership was handed over so recently that it may still be on its way.
    pub(super) fn is_handing_over(&self) -> bool {
        let pause = Duration::from_millis(2 * self.config.tuning.election_timeout_ms);
        self.health.handed_over.is_some_and(|at| self.now.saturating_sub(at) < pause)
    }

    pub(super) fn hand_over_for(&mut self, why: &'static str) {
        if self.is_handing_over() {
            return;
        }
        let to = match self.members.kind {
            Kind::Witness => self.heir_of_witness(),
            _ => self.heir(),
        };
        if let Some(to) = to {
            self.health.handed_over = Some(self.now);
            tracing::warn!(event = "handing_over", to = to.0, why);
            self.hand_leadership_to(to);
        }
    }

    /// A line in the node's log for each fault that begins or ends.
    fn log_faults(&mut self) {
        let faults = self.faults();
        let known = &mut self.health.known;
        for fault in &faults {
            if known.insert(fault.name.clone()) {
                tracing::warn!(event = "fault", fault = fault.name, why = fault.why);
            }
        }
        known.retain(|name| {
            let lasts = faults.iter().any(|fault| fault.name == *name);
            if !lasts {
                tracing::info!(event = "fault_ended", fault = name);
            }
            lasts
        });
    }

    /// The state of another replica.
    pub(super) fn peer_is(&mut self, peer: ReplicaId, bytes: &[u8]) {
        let Some(State { executed, unfit, stamp, level, kib }) = State::from_bytes(bytes) else {
            self.distrust(peer, &format!("a malformed message ({STATE})"));
            return;
        };
        self.peer_knows(peer, level);
        self.images.another_has(peer, kib);
        self.health.neighbours.pulse(peer, LogIndex(executed), unfit);
        self.health.unanswered.push((peer, stamp, self.now));
    }

    /// Answers the peers' pulses: together with what is sent at a tick anyway, as no answer is worth a wake-up of its own on the other side. The time that one has
    /// waited here is added to its stamp, so the other side does not count it.
    pub(super) fn answer_states(&mut self) {
        for (peer, stamp, came) in std::mem::take(&mut self.health.unanswered) {
            let waited_us = self.now.saturating_sub(came).as_micros() as u64;
            self.tell_routinely(peer, ANSWER, &stamp.saturating_add(waited_us).to_le_bytes());
        }
    }

    /// Another replica answered the pulse of `stamp`.
    pub(super) fn peer_answered(&mut self, peer: ReplicaId, stamp: u64) {
        if self.is_slow() {
            // It has waited for heartbeats on both sides.
            return;
        }
        let took = self.now.saturating_sub(Duration::from_micros(stamp));
        self.health.neighbours.answered(peer, took, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written_and_by_earlier_versions() {
        let most = (1 << 40) - 1;
        for (level, kib) in
            [(None, None), (Some(3), None), (Some(3), Some(0)), (Some(3), Some(most))]
        {
            let state = State { executed: 7, unfit: true, stamp: 9, level: level.map(Level), kib };
            let bytes = state.to_bytes();
            assert_eq!(State::from_bytes(&bytes), Some(state));
            // Those from before levels read three numbers, and others two bytes behind them.
            let words = bytes.chunks_exact(8);
            let behind = words.remainder().first_chunk().map(|level| u16::from_le_bytes(*level));
            assert_eq!((words.len(), behind), (3, level));
        }
        let state = State {
            executed: 7,
            unfit: false,
            stamp: 9,
            level: Some(Level(3)),
            kib: Some(u64::MAX),
        };
        assert_eq!(State::from_bytes(&state.to_bytes()).unwrap().kib, Some(most));
        assert_eq!(State::from_bytes(&[0; 16]), None);
    }
}
