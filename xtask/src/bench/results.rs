//! What a run found: every sample and all that is needed to judge or repeat it, as JSON.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::load::{Alone, Throughput, percentile};
use super::process;
use super::servers::Server;
use super::target::{Target, data_root};
use crate::report::{Failure, Outcome};
use crate::workspace;

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// Seconds since 1970 when it ended.
    pub unix_time_s: u64,
    /// The commit that was measured, `+` when files of the crates are changed now.
    pub commit: String,
    /// The command line that repeats it.
    pub command: String,
    /// Where it ran.
    pub machine: Machine,
    /// What was measured and with what, as the programs call themselves.
    pub versions: Vec<String>,
    /// Requests an operation.
    pub requests: u32,
    /// Connections of the crowd.
    pub clients: u32,
    /// Every measurement.
    pub samples: Vec<Sample>,
    /// Outages after a kill of the leader [ms].
    pub outages_ms: Vec<f64>,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
}

/// The machine and how quiet it was.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// How many of them this process may use.
    pub cores: usize,
    /// Memory [MiB].
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// 512 bytes appended and made durable where the logs are: the median, once a round [us].
    pub sync_us: Vec<f64>,
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
    /// One client alone.
    pub alone: Alone,
}

/// Where the results that the documents show are kept.
pub fn latest() -> PathBuf {
    workspace::root().join("bench/results/latest.json")
}

impl Results {
    /// Reads what `write` wrote.
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read(path).map_err(|error| Failure::of(path.display(), error))?;
        serde_json::from_slice(&text).map_err(|error| Failure::of(path.display(), error))
    }

    /// Writes all as JSON.
    pub fn write(&self, path: &Path) -> Outcome {
        let failed = |error: std::io::Error| Failure::of(path.display(), error);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::of("cannot write results", error))?;
        text.push('\n');
        std::fs::write(path, text).map_err(failed)
    }

    /// The samples of one target of one server.
    pub fn of(&self, server: Server, target: Target) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |at| at.server == server && at.target == target)
    }

    /// `measure` of a target's samples.
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

/// A median between the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The median: the lower of the two in the middle.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`, if there are any.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        let median = percentile(&mut values, 50.0);
        Some(Self { min: *values.first()?, median, max: *values.last()? })
    }
}

/// Looks at the machine.
pub fn machine() -> Outcome<Machine> {
    let cpuinfo = read("/proc/cpuinfo")?;
    let meminfo = read("/proc/meminfo")?;
    let value = |text: &str, key: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let memory = value(&meminfo, "MemTotal");
    let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
    Ok(Machine {
        cpu: value(&cpuinfo, "model name"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: memory_kib / 1024,
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        sync_us: Vec::new(),
    })
}

/// How many processes wanted a core in the last minute.
pub fn load_average() -> Outcome<f64> {
    let text = read("/proc/loadavg")?;
    Ok(text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default())
}

/// The first line of what each program says about itself.
pub fn versions(skein: &Path, servers: &[Server]) -> Outcome<Vec<String>> {
    let skein = skein.display().to_string();
    let mut all = Vec::new();
    let programs = servers.iter().map(|server| server.workload().version().to_vec());
    for words in [vec![skein.as_str(), "--version"]].into_iter().chain(programs) {
        // Some say it on standard error.
        let output = Command::new(words[0])
            .args(&words[1..])
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|error| Failure::of(format!("cannot run {}", words[0]), error))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        all.push(text.lines().next().unwrap_or_default().trim().to_owned());
    }
    Ok(all)
}

/// The commit that `skein` was built from: the newest one that is not newer than the file.
pub fn commit(skein: &Path) -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(workspace::root()).args(arguments);
        process::output(&mut command, Duration::from_secs(10)).unwrap_or_default()
    };
    let built = skein.metadata().and_then(|data| data.modified()).ok();
    let built_s = built.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let before = format!("--before={}", built_s.unwrap_or_default().as_secs());
    let hash = git(&["rev-list", "-1", "--abbrev-commit", "--abbrev=12", &before, "HEAD"]);
    if hash.trim().is_empty() {
        return "unknown".to_owned();
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "crates"]);
    format!("{}{}", hash.trim(), if changed.is_empty() { "" } else { "+" })
}

/// Seconds since 1970.
pub fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read(path: &str) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| Failure::of(path, error))
}

/// How long the disk under the logs takes to make an append durable: the median of 100 [us].
pub fn sync_us() -> Outcome<f64> {
    time_sync().map_err(|error| Failure::of("cannot try out the disk", error))
}

fn time_sync() -> std::io::Result<f64> {
    let mut file = tempfile::tempfile_in(data_root())?;
    // As a log has it: the room is there before.
    file.write_all(&[0; 64 << 10])?;
    file.sync_all()?;
    let mut times_us = Vec::new();
    for number in 0..100 {
        let start = Instant::now();
        file.write_all_at(&[1; 512], number * 512)?;
        file.sync_data()?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(percentile(&mut times_us, 50.0))
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
            alone: Alone { p50_us: 1.0, p99_us: 1.0, requests: 1 },
        };
        let results = Results {
            unix_time_s: 0,
            commit: String::new(),
            command: String::new(),
            machine: Machine {
                cpu: String::new(),
                cores: 1,
                memory_mib: 1,
                kernel: String::new(),
                sync_us: Vec::new(),
            },
            versions: Vec::new(),
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
}
