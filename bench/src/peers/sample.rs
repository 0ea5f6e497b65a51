//! Results of comparisons as JSON: each with its own machine, versions and command.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::about::About;
use crate::load::{Alone, Throughput};
use skein_testkit::workspace;

/// All results.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Peers {
    /// The newest run of each comparison.
    pub comparisons: Vec<Comparison>,
}

/// One comparison, measured in one run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// [`super::Peer::name`].
    pub name: String,
    /// Time, machine and programs.
    #[serde(flatten)]
    pub about: About,
    /// Connections of the crowd.
    pub clients: u32,
    /// Every measurement.
    pub samples: Vec<Sample>,
    /// Contenders that could not be measured, and why.
    pub failures: Vec<String>,
}

/// One contender, measured in one round.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// [`super::Contender::id`].
    pub contender: String,
    /// From 0.
    pub round: u32,
    /// Processes that wanted a core in the minute before.
    pub load_average: f64,
    /// The figures.
    #[serde(flatten)]
    pub found: Finding,
}

/// The figures of one contender.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Finding {
    /// The crowd, one item an operation.
    #[serde(default)]
    pub operations: Vec<Throughput>,
    /// CPU time a request, of all processes of all replicas [us].
    pub cpu_us: Option<f64>,
    /// CPU time a request of the load generator [us].
    pub cpu_load_us: Option<f64>,
    /// Bytes a request that all processes wrote to disks.
    pub disk_bytes: Option<f64>,
    /// One client alone.
    pub alone: Option<Lone>,
    /// The outcome when the serving process was killed or stopped.
    #[serde(default)]
    pub faults: Vec<Fault>,
}

/// The latency of a single client.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Lone {
    /// Median latency [us].
    pub p50_us: f64,
    /// 99th percentile of the same [us].
    pub p99_us: f64,
}

/// A fault of the serving process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `kill -9`.
    Kill,
    /// `kill -STOP`, and `kill -CONT` when another process serves.
    Pause,
}

/// One fault under load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// The kind of fault.
    pub kind: Kind,
    /// The longest outage of a client: from its last acknowledgement before to the first on a new connection [ms].
    pub outage_ms: f64,
    /// Acknowledged writes, from before the fault until service was normal again.
    pub acknowledged: u64,
    /// Those of them that could not be read afterwards.
    pub lost: u64,
}

impl Lone {
    /// As the client gives it.
    pub fn of(alone: &Alone) -> Self {
        Self { p50_us: alone.p50_us, p99_us: alone.p99_us }
    }
}

impl Finding {
    /// One line for the terminal.
    pub fn summary(&self) -> String {
        let mut parts: Vec<String> = self
            .operations
            .iter()
            .map(|at| format!("{} {:.0}/s", at.operation, at.per_second))
            .collect();
        parts.extend(self.alone.map(|alone| format!("one client p50 {:.0} us", alone.p50_us)));
        parts.extend(self.faults.iter().map(|at| {
            let kind = if at.kind == Kind::Kill { "kill" } else { "pause" };
            format!("{kind} {:.0} ms, {} of {} lost", at.outage_ms, at.lost, at.acknowledged)
        }));
        parts.join("  ")
    }
}

impl Comparison {
    /// The samples of one contender.
    pub fn of(&self, id: &str) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.contender == id)
    }
}

/// Path of the results that the page shows.
pub fn latest() -> PathBuf {
    workspace::root().join("bench/results/peers.json")
}

impl Peers {
    /// Takes newer runs in the place of older ones of the same name.
    pub fn replace(&mut self, newer: Vec<Comparison>) {
        self.comparisons.retain(|old| newer.iter().all(|new| new.name != old.name));
        self.comparisons.extend(newer);
    }
}
