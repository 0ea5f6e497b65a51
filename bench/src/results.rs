//! The results of a run: every sample, and the data needed to judge or repeat it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::about::About;
use super::load::{Alone, Throughput};
use super::servers::Server;
use super::stats::Spread;
use super::target::Target;
use skein_testkit::workspace;

/// A core counts as busy above this.
const BUSY: f64 = 0.9;

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Time, machine and programs.
    #[serde(flatten)]
    pub about: About,
    /// Requests an operation.
    pub requests: u32,
    /// Connections of the crowd.
    pub clients: u32,
    /// Every measurement.
    pub samples: Vec<Sample>,
    /// Outages after a kill of the leader [ms].
    pub outages_ms: Vec<f64>,
    /// Targets that could not be measured, and why.
    pub failures: Vec<String>,
}

/// One target, measured in one round.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The server.
    pub server: Server,
    /// The way it ran.
    pub target: Target,
    /// From 0: samples of one round were taken right after each other.
    pub round: u32,
    /// Processes that wanted a core in the minute before: other work shows here.
    pub load_average: f64,
    /// The crowd, one item an operation.
    pub throughput: Vec<Throughput>,
    /// CPU time a request of the processes on its way (see `Running::pids_on_the_way`) [us].
    pub cpu_us: f64,
    /// CPU time a request of all processes of the target [us].
    pub cpu_all_us: f64,
    /// CPU time a request of the load generator [us].
    pub cpu_load_us: f64,
    /// Requests of the crowd in one log entry, where there is a log.
    pub requests_per_entry: Option<f64>,
    /// Calls of the leader's server that the safety net caught, a request.
    #[serde(default)]
    pub traps_per_request: Option<f64>,
    /// The names of these calls and how many of each a request made. Earlier results lack them.
    #[serde(default)]
    pub trapped_calls: Option<BTreeMap<String, f64>>,
    /// Busy cores during the crowd's requests.
    #[serde(default)]
    pub busy: Busy,
    /// Bytes between nodes, a request.
    #[serde(default)]
    pub wire_bytes: Option<f64>,
    /// Bytes that all processes of the target wrote to disks, a request.
    #[serde(default)]
    pub disk_bytes: Option<f64>,
    /// Share of time bubbles in the entries that the leader proposed [%].
    #[serde(default)]
    pub bubbles_percent: Option<f64>,
    /// Share of entries for a timer of the server's [%].
    #[serde(default)]
    pub clocks_percent: Option<f64>,
    /// One client alone.
    pub alone: Alone,
}

/// Busy cores of the machine.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Busy {
    /// By the load generator.
    pub clients: f64,
    /// By all processes of the target.
    pub target: f64,
}

impl Busy {
    /// Whether the load generator was the bottleneck: it had a core to itself, and there was room beside it.
    pub fn is_limited_by_clients(&self, cores: usize) -> bool {
        self.clients >= BUSY && self.clients + self.target < BUSY * cores as f64
    }
}

/// Path of the results that the documents show.
pub fn latest() -> PathBuf {
    workspace::root().join("bench/results/latest.json")
}

impl Results {
    /// The samples of one target of one server.
    pub fn of(&self, server: Server, target: Target) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |at| at.server == server && at.target == target)
    }

    /// A figure of a target's samples.
    pub fn spread(
        &self,
        server: Server,
        target: Target,
        measure: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(self.of(server, target).filter_map(measure).collect())
    }

    /// `combine(sample, native)` of a target's samples, each with the native one of its round.
    pub fn against_native(
        &self,
        server: Server,
        target: Target,
        measure: impl Fn(&Sample) -> Option<f64>,
        combine: impl Fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        let values = self.of(server, target).filter_map(|sample| {
            let native = self.of(server, Target::Native).find(|at| at.round == sample.round)?;
            Some(combine(measure(sample)?, measure(native)?))
        });
        Spread::of(values.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |target, round, cpu_us| Sample {
            server: Server::Redis,
            target,
            round,
            load_average: 0.0,
            throughput: Vec::new(),
            cpu_us,
            cpu_all_us: cpu_us,
            cpu_load_us: 0.0,
            requests_per_entry: None,
            traps_per_request: None,
            trapped_calls: None,
            busy: Busy::default(),
            wire_bytes: None,
            disk_bytes: None,
            bubbles_percent: None,
            clocks_percent: None,
            alone: Alone::default(),
        };
        let results = Results {
            about: About::default(),
            requests: 1,
            clients: 1,
            samples: vec![
                sample(Target::Native, 0, 1.0),
                sample(Target::Proxy, 0, 2.0),
                sample(Target::Native, 1, 10.0),
                sample(Target::Proxy, 1, 30.0),
                sample(Target::Proxy, 2, 99.0),
            ],
            outages_ms: Vec::new(),
            failures: Vec::new(),
        };
        let ratio = |sample: f64, native: f64| sample / native;
        let found =
            results.against_native(Server::Redis, Target::Proxy, |at| Some(at.cpu_us), ratio);
        assert_eq!(found, Some(Spread { min: 2.0, median: 2.0, max: 3.0 }));
        let none = results.spread(Server::Memcached, Target::Proxy, |at| Some(at.cpu_us));
        assert_eq!(none, None);
    }

    #[test]
    fn a_busy_generator_beside_an_idle_core_is_the_limit() {
        assert!(Busy { clients: 0.97, target: 0.7 }.is_limited_by_clients(2));
        assert!(!Busy { clients: 0.97, target: 0.95 }.is_limited_by_clients(2));
        assert!(!Busy { clients: 0.5, target: 0.5 }.is_limited_by_clients(2));
    }
}
