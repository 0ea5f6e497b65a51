//! The node's status report.

use super::{Environment, Replica};
use crate::server::Link;
use crate::server::slot::{State, Vacancy};
use crate::status::{
    Counts, NodeStatus, ReplicaState, ReplicaStatus, trapped_by_name, trapped_places,
};
use skein_log::Role;
use skein_model::LogIndex;

impl<E: Environment> Replica<E> {
    /// The status now; also updates the gauges.
    #[must_use]
    pub fn snapshot(&self) -> NodeStatus {
        let consensus = self.consensus.status();
        let applied = self.applied();
        let server = self.server();
        let latest = server.and_then(|server| server.digest.latest());
        let (mut digest_index, digest) = latest.unwrap_or_default();
        // Entries that are not for the server change nothing: when it waits, its digest covers all applied entries.
        if server.is_some_and(|s| digest_index == s.admitted && s.waits().is_some()) {
            digest_index = applied;
        }
        let header = server.map(Link::header);
        let (compared_index, compared_same) = self.compare.last.unwrap_or_default();
        let state = self.replica_state();
        let lag_ms = self.pulse.lag(applied, consensus.leader, self.now).as_millis() as u64;
        let m = &self.metrics;
        m.term.set(consensus.term.0 as i64);
        m.commit_index.set(consensus.commit.0 as i64);
        m.applied_index.set(applied.0 as i64);
        m.lag_milliseconds.set(lag_ms as i64);
        m.leads.set(i64::from(self.lead.is_some()));
        m.shares_core.set(i64::from(self.core.is_shared()));
        m.connections.set(self.gateway.connections() as i64);
        m.held_bytes.set(self.gateway.held_bytes() as i64);
        m.cut_connections.set(self.gateway.cut_connections() as i64);
        m.client_in_bytes.set(self.gateway.bytes_in as i64);
        m.client_out_bytes.set(self.gateway.bytes_out as i64);
        let (peer_in_bytes, peer_out_bytes) = self.env.traffic();
        m.peer_in_bytes.set(peer_in_bytes as i64);
        m.peer_out_bytes.set(peer_out_bytes as i64);
        NodeStatus {
            name: self.config.name.clone(),
            mode: self.config.mode.into(),
            schedule: "serial".into(),
            service: self.env.addresses(),
            leader: consensus.leader.map(|l| l.0),
            term: consensus.term.0,
            levels: self.report_level(),
            voters_complete: self.voters_complete(&consensus),
            serving: self.serves() && server.is_some_and(|server| !server.listening.is_empty()),
            idle: self.is_slow(),
            has_trees: false,
            replica: ReplicaStatus {
                id: self.own.0,
                role: match consensus.role {
                    Role::PreCandidate => Role::Candidate.to_string(),
                    role => role.to_string(),
                },
                state,
                kind: self.members.kind,
                address: self.config.address.clone(),
                node_pid: self.config.process,
                server_pid: server.map_or(0, |server| server.pid),
                term: consensus.term.0,
                commit_index: consensus.commit.0,
                applied_index: applied.0,
                // The environment's to tell.
                skein: String::new(),
                other_runtime: false,
                faults: self.faults(),
                lag_entries: consensus.commit.0.saturating_sub(applied.0),
                lag_ms,
                clock_offset_ms: self.pulse.clock_offset_ms(),
                time_behind_ms: self.lead.as_ref().and_then(|_| self.pulse.behind_ms(&self.env)),
                digest_index: digest_index.0,
                digest: format!("{digest:016x}"),
                compared_index: compared_index.0,
                compared_same,
                trapped_calls: header
                    .map_or_else(Default::default, |h| trapped_by_name(h.trapped.counts())),
                patched_calls: header
                    .map_or_else(Default::default, |h| trapped_by_name(h.patched.counts())),
                trapped_places: header
                    .map_or_else(Default::default, |h| trapped_places(h.places.seen())),
                first_entry: self.consensus.first_index().0,
                edition: self.edition_status(),
                images: self.images.status(),
                counts: Counts {
                    peer_out_bytes,
                    peer_in_bytes,
                    log_bytes: m.log_bytes.get(),
                    log_writes: m.log_writes.get(),
                    proposed_entries: m.entries_proposed.get(),
                    bubbles: m.bubbles.get(),
                    clock_entries: m.clock_entries.get(),
                    planned_entries: m.planned_entries.get(),
                    fact_entries: m.fact_entries.get(),
                },
            },
            members: self.report_members(),
            notes: self.notes.iter().cloned().collect(),
        }
    }

    /// The last entry that the server has executed, including entries that are not for it. A replica without a server has none to execute.
    #[must_use]
    pub fn applied(&self) -> LogIndex {
        let Some(server) = self.server() else { return self.handed };
        if server.admitted == server.feed.given() {
            LogIndex(server.feed.next().0 - 1).min(self.handed)
        } else {
            server.admitted
        }
    }

    fn replica_state(&self) -> ReplicaState {
        let first = || self.server().is_some_and(|server| server.generation == 1);
        match self.slot.state() {
            _ if self.slot.has_diverged() => ReplicaState::Diverged,
            State::None(Vacancy::Rest) if self.lacks_its_part() => ReplicaState::CatchingUp,
            State::None(Vacancy::Rest) if self.members.kind.can_serve() => ReplicaState::Passive,
            State::None(Vacancy::Rest) => ReplicaState::Witness,
            State::Starting if first() => ReplicaState::Starting,
            State::None(_) | State::Starting | State::Restoring { .. } => ReplicaState::CatchingUp,
            State::Running if self.health.spin.lasts() => ReplicaState::Stuck,
            State::Running => ReplicaState::Running,
        }
    }

    /// Whether a replica without a server cannot do yet what it is there for: vote, or have a server when it is elected.
    fn lacks_its_part(&self) -> bool {
        self.consensus.role() == Role::Learner
            || self.members.kind.can_serve() && self.begins_nowhere()
    }
}
