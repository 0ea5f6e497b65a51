//! A node's metrics for Prometheus: prefix `skein_`, base units.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// A call of the server that Skein does not support.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Call {
    /// Its name.
    pub call: String,
}

/// A metric with its value at the start.
trait Fresh {
    fn fresh() -> Self;
}

impl Fresh for Gauge {
    fn fresh() -> Self {
        Self::default()
    }
}

impl Fresh for Counter {
    fn fresh() -> Self {
        Self::default()
    }
}

/// From 10 us to 1.3 s.
impl Fresh for Histogram {
    fn fresh() -> Self {
        Self::new(exponential_buckets(10e-6, 2.0, 18))
    }
}

/// Declares the metrics: field, type, name without prefix, unit if it has one, help text.
macro_rules! metrics {
    ($($field:ident: $kind:ident = $name:literal $(in $unit:ident)?, $help:literal;)*) => {
        /// All metrics of a node. Counters are counted where events happen, gauges are set when they are read.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $(#[doc = $help] pub $field: $kind,)*
            unsupported: Family<Call, Counter>,
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("skein");
                $(
                    let $field = $kind::fresh();
                    metrics!(@register registry, $name $(in $unit)?, $help, $field);
                )*
                let unsupported = Family::default();
                let help = "Calls answered with an error, by name";
                registry.register("unsupported_calls", help, unsupported.clone());
                Self { registry, $($field,)* unsupported }
            }
        }
    };
    (@register $registry:ident, $name:literal, $help:literal, $field:ident) => {
        $registry.register($name, $help, $field.clone())
    };
    (@register $registry:ident, $name:literal in $unit:ident, $help:literal, $field:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $field.clone())
    };
}

metrics! {
    leads: Gauge = "leader", "1 while this replica leads";
    shares_core: Gauge = "shared_core", "1 while this node's loop and its server keep to one core";
    term: Gauge = "term", "Consensus term";
    commit_index: Gauge = "commit_index", "Newest committed entry";
    applied_index: Gauge = "applied_index", "Newest executed entry";
    lag_milliseconds: Gauge = "lag_milliseconds", "How far the server is behind the leader's in time";
    held_back: Gauge = "held_back", "1 while this leader admits nothing as its followers' servers are too far behind";
    connections: Gauge = "connections", "Client connections";
    held_bytes: Gauge = "held" in Bytes, "Bytes that wait for the server or for clients";
    cut_connections: Gauge = "cut_connections", "Connections cut for want of memory";
    client_in_bytes: Gauge = "client_in" in Bytes, "Bytes read from clients";
    client_out_bytes: Gauge = "client_out" in Bytes, "Bytes written to clients";
    peer_in_bytes: Gauge = "peer_in" in Bytes, "Bytes that came from other nodes";
    peer_out_bytes: Gauge = "peer_out" in Bytes, "Bytes sent to other nodes";
    outgoing_total: Counter = "outgoing_connections", "Connections begun for the server";
    connections_total: Counter = "accepted_connections", "Client connections accepted";
    refused_clients: Counter = "refused_connections", "Client connections refused for a limit";
    entries_proposed: Counter = "proposed_entries", "Entries proposed";
    bubbles: Counter = "bubbles", "Time bubbles proposed";
    clock_entries: Counter = "clock_entries", "Entries proposed for a timer";
    planned_entries: Counter = "planned_entries", "Of these, entries that the server took by itself while its node slept";
    fact_entries: Counter = "fact_entries", "Entries proposed for files of the host that the server used for the first time";
    elections: Counter = "elections", "Elections that this replica stood in";
    failovers: Counter = "failovers", "Leaderships taken over from another leader";
    divergences: Counter = "divergences", "Times that this replica's server differed and was rebuilt";
    repairs: Counter = "repairs", "Times that this replica's server differed and was repaired from another one";
    rebuilds: Counter = "rebuilds", "Servers rebuilt from the log";
    spins: Counter = "spins", "Reports of a thread that spins while others wait";
    log_bytes: Counter = "log" in Bytes, "Payload handed to the log on disk";
    log_writes: Counter = "log_writes", "Writes of the log to disk, with a sync each or fewer";
    commit_seconds: Histogram = "commit_latency" in Seconds, "From proposal to commit";
    output_hold_seconds: Histogram = "output_hold" in Seconds, "From the moment when the server gets an entry until its output for it leaves, which is after the commit";
    entries_ahead: Counter = "entries_ahead", "Entries that the server got before they were committed";
    rebuilds_ahead: Counter = "rebuilds_ahead", "Times that the server had executed entries that were then not committed, and was rebuilt";
}

/// The most names of calls; the rest is `other`.
const MAX_CALLS: usize = 128;

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

    /// All metrics in Prometheus' text format.
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
