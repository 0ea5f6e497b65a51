//! What a node counts, for Prometheus: prefix `skein_`, base units.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Which call of the server Skein does not support.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Call {
    /// Its name.
    pub call: String,
}

/// All metrics of a node. Counters are counted where things happen, gauges are set when somebody asks.
#[derive(Debug)]
#[allow(missing_docs)] // Each one's help text says what it is.
pub struct Metrics {
    registry: Registry,
    pub leads: Gauge,
    pub shares_core: Gauge,
    pub term: Gauge,
    pub commit_index: Gauge,
    pub applied_index: Gauge,
    pub lag_milliseconds: Gauge,
    pub held_back: Gauge,
    pub connections: Gauge,
    pub held_bytes: Gauge,
    pub cut_connections: Gauge,
    pub client_in_bytes: Gauge,
    pub client_out_bytes: Gauge,
    pub peer_in_bytes: Gauge,
    pub peer_out_bytes: Gauge,
    pub connections_total: Counter,
    pub outgoing_total: Counter,
    pub refused_clients: Counter,
    pub entries_proposed: Counter,
    pub bubbles: Counter,
    pub clock_entries: Counter,
    pub fact_entries: Counter,
    pub elections: Counter,
    pub failovers: Counter,
    pub divergences: Counter,
    pub rebuilds: Counter,
    pub spins: Counter,
    pub log_bytes: Counter,
    pub commit_seconds: Histogram,
    pub output_hold_seconds: Histogram,
    pub entries_ahead: Counter,
    pub rebuilds_ahead: Counter,
    unsupported: Family<Call, Counter>,
}

/// Names of calls that are told apart; the rest is `other`.
const MAX_CALLS: usize = 128;

impl Default for Metrics {
    fn default() -> Self {
        let buckets = || exponential_buckets(10e-6, 2.0, 18);
        let mut m = Self {
            registry: Registry::with_prefix("skein"),
            leads: Gauge::default(),
            shares_core: Gauge::default(),
            term: Gauge::default(),
            commit_index: Gauge::default(),
            applied_index: Gauge::default(),
            lag_milliseconds: Gauge::default(),
            held_back: Gauge::default(),
            connections: Gauge::default(),
            held_bytes: Gauge::default(),
            cut_connections: Gauge::default(),
            client_in_bytes: Gauge::default(),
            client_out_bytes: Gauge::default(),
            peer_in_bytes: Gauge::default(),
            peer_out_bytes: Gauge::default(),
            connections_total: Counter::default(),
            outgoing_total: Counter::default(),
            refused_clients: Counter::default(),
            entries_proposed: Counter::default(),
            bubbles: Counter::default(),
            clock_entries: Counter::default(),
            fact_entries: Counter::default(),
            elections: Counter::default(),
            failovers: Counter::default(),
            divergences: Counter::default(),
            rebuilds: Counter::default(),
            spins: Counter::default(),
            log_bytes: Counter::default(),
            commit_seconds: Histogram::new(buckets()),
            output_hold_seconds: Histogram::new(buckets()),
            entries_ahead: Counter::default(),
            rebuilds_ahead: Counter::default(),
            unsupported: Family::default(),
        };
        let r = &mut m.registry;
        r.register("leader", "1 while this replica leads", m.leads.clone());
        r.register(
            "shared_core",
            "1 while this node's loop and its server keep to one core",
            m.shares_core.clone(),
        );
        r.register("term", "Consensus term", m.term.clone());
        r.register("commit_index", "Newest committed entry", m.commit_index.clone());
        r.register("applied_index", "Newest executed entry", m.applied_index.clone());
        r.register(
            "lag_milliseconds",
            "How far the server is behind the leader's in time",
            m.lag_milliseconds.clone(),
        );
        r.register(
            "held_back",
            "1 while this leader admits nothing as its followers' servers are too far behind",
            m.held_back.clone(),
        );
        r.register("connections", "Client connections", m.connections.clone());
        r.register_with_unit(
            "held",
            "Bytes that wait for the server or for clients",
            Unit::Bytes,
            m.held_bytes.clone(),
        );
        r.register(
            "cut_connections",
            "Connections cut for want of memory",
            m.cut_connections.clone(),
        );
        r.register_with_unit(
            "client_in",
            "Bytes read from clients",
            Unit::Bytes,
            m.client_in_bytes.clone(),
        );
        r.register_with_unit(
            "client_out",
            "Bytes written to clients",
            Unit::Bytes,
            m.client_out_bytes.clone(),
        );
        r.register_with_unit(
            "peer_in",
            "Bytes that came from other nodes",
            Unit::Bytes,
            m.peer_in_bytes.clone(),
        );
        r.register_with_unit(
            "peer_out",
            "Bytes sent to other nodes",
            Unit::Bytes,
            m.peer_out_bytes.clone(),
        );
        r.register(
            "outgoing_connections",
            "Connections begun for the server",
            m.outgoing_total.clone(),
        );
        r.register(
            "accepted_connections",
            "Client connections accepted",
            m.connections_total.clone(),
        );
        r.register(
            "refused_connections",
            "Client connections refused for a limit",
            m.refused_clients.clone(),
        );
        r.register("proposed_entries", "Entries proposed", m.entries_proposed.clone());
        r.register("bubbles", "Time bubbles proposed", m.bubbles.clone());
        r.register("clock_entries", "Entries proposed for a timer", m.clock_entries.clone());
        r.register(
            "fact_entries",
            "Entries proposed for what the server used of its host for the first time",
            m.fact_entries.clone(),
        );
        r.register("elections", "Elections that this replica stood in", m.elections.clone());
        r.register("failovers", "Leaderships taken over from another leader", m.failovers.clone());
        r.register(
            "divergences",
            "Times that this replica's output differed",
            m.divergences.clone(),
        );
        r.register("rebuilds", "Servers rebuilt from the log", m.rebuilds.clone());
        r.register("spins", "Reports of a thread that spins while others wait", m.spins.clone());
        r.register_with_unit(
            "log",
            "Payload handed to the log on disk",
            Unit::Bytes,
            m.log_bytes.clone(),
        );
        r.register_with_unit(
            "commit_latency",
            "From proposal to commit",
            Unit::Seconds,
            m.commit_seconds.clone(),
        );
        r.register_with_unit(
            "output_hold",
            "From when the server gets an entry until what it sent for it leaves, which is after the entry's commit",
            Unit::Seconds,
            m.output_hold_seconds.clone(),
        );
        r.register(
            "entries_ahead",
            "Entries that the server got before they were committed",
            m.entries_ahead.clone(),
        );
        r.register(
            "rebuilds_ahead",
            "Times that the server had executed what was then not committed, and was rebuilt",
            m.rebuilds_ahead.clone(),
        );
        r.register(
            "unsupported_calls",
            "Calls answered with an error, by name",
            m.unsupported.clone(),
        );
        m
    }
}

impl Metrics {
    /// The server made a call that Skein does not support.
    pub fn unsupported_call(&self, name: &str) {
        let known =
            name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let name = if known { name } else { "other" };
        let call = Call { call: name.into() };
        if self.unsupported.get(&call).is_none()
            && self.text().matches("unsupported_calls_total{").count() >= MAX_CALLS
        {
            self.unsupported.get_or_create(&Call { call: "other".into() }).inc();
            return;
        }
        self.unsupported.get_or_create(&call).inc();
    }

    /// All of it in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to a string does not fail.
            Err(_) => String::new(),
        }
    }
}
