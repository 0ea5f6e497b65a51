//! How figures grow with connections, replicas, the size of values, the server's memory, the length of the log, and threads.
//!
//! A topic is one file and one line in [`TOPICS`]; its points go to `bench/results/growth.json`, and from there to tables and plots.
//! Bounded: no point is begun after `--budget-s`, and each takes a few seconds.

mod beside;
mod changed;
mod connections;
pub mod criu;
mod files;
mod forks;
mod idle;
mod images;
mod log_length;
mod memory;
mod replicas;
mod restarts;
mod restores;
mod standby;
mod threads;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::about::{self, About};
use super::load::{self, Throughput};
use super::process::interrupts;
use super::servers::Server;
use super::target::{Running, Way};
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// How long a point is measured.
const POINT: Duration = Duration::from_millis(1_500);

/// The arrangements that most topics compare.
const WAYS: &[(&str, Way)] = &[
    ("native", Way::Native),
    ("1 replica, memory", Way::Skein { replicas: 1, durability: "memory" }),
    ("3 replicas, memory", Way::Skein { replicas: 3, durability: "memory" }),
];

/// A topic: the quantity that grows.
pub struct Topic {
    /// Its name on the command line, in results and in the names of plots.
    pub name: &'static str,
    /// The heading.
    pub title: &'static str,
    /// The quantity on the horizontal axis, with its unit.
    pub x: &'static str,
    /// The figures of each point, in the order of the table's columns.
    pub figures: &'static [Figure],
    /// Measures all points.
    measure: fn(&mut Recorder) -> Outcome,
    /// Where a curve bends, and why.
    pub reading: &'static str,
}

/// One figure of a point.
pub struct Figure {
    /// Its name in results.
    pub key: &'static str,
    /// Its name in tables and at axes, with its unit.
    pub label: &'static str,
    /// Digits behind the point.
    pub digits: usize,
    /// Whether it has a plot.
    pub plotted: bool,
}

const THROUGHPUT: Figure =
    Figure { key: "per_second", label: "requests a second", digits: 0, plotted: true };
const P50: Figure = Figure { key: "p50_us", label: "p50 us", digits: 0, plotted: false };
const P99: Figure = Figure { key: "p99_us", label: "p99 us", digits: 0, plotted: true };
const NODE: Figure =
    Figure { key: "node_mib", label: "leader's node MiB", digits: 1, plotted: true };
const SERVER: Figure = Figure { key: "server_mib", label: "server MiB", digits: 1, plotted: false };

/// All topics, in the order of the document.
pub const TOPICS: &[&Topic] = &[
    &connections::TOPIC,
    &replicas::TOPIC,
    &values::TOPIC,
    &memory::TOPIC,
    &log_length::TOPIC,
    &images::TOPIC,
    &forks::TOPIC,
    &changed::TOPIC,
    &files::TOPIC,
    &beside::TOPIC,
    &restores::TOPIC,
    &criu::TOPIC,
    &restarts::TOPIC,
    &standby::TOPIC,
    &threads::TOPIC,
    &idle::TOPIC,
];

/// One run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Growth {
    /// Time, machine and programs.
    #[serde(flatten)]
    pub about: About,
    /// Every point.
    pub points: Vec<Point>,
    /// Points that could not be measured, and why.
    pub failures: Vec<String>,
}

/// One point of one curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// [`Topic::name`].
    pub topic: String,
    /// The server and its arrangement.
    pub curve: String,
    /// Position on the horizontal axis.
    pub x: f64,
    /// By [`Figure::key`].
    pub values: BTreeMap<String, f64>,
    /// As [`About::commit`], when it was measured,
    #[serde(default)]
    pub commit: String,
    /// and the processor, which points of before lack.
    #[serde(default)]
    pub cpu: String,
}

impl Growth {
    /// The points of a topic, and the names of its curves, each once, in the order in which they were measured.
    pub fn of(&self, topic: &Topic) -> (Vec<&Point>, Vec<&str>) {
        let points: Vec<&Point> = self.points.iter().filter(|at| at.topic == topic.name).collect();
        let mut curves: Vec<&str> = Vec::new();
        for point in &points {
            if !curves.contains(&point.curve.as_str()) {
                curves.push(&point.curve);
            }
        }
        (points, curves)
    }

    /// The commits at which the points of a topic were measured, with the processors that are known, each once.
    pub fn commits(&self, topic: &Topic) -> Vec<String> {
        let (points, _) = self.of(topic);
        let at = |point: &&Point| match point.cpu.as_str() {
            "" => point.commit.clone(),
            cpu => format!("{} on {cpu}", point.commit),
        };
        let mut commits: Vec<String> = points.iter().map(at).collect();
        commits.sort_unstable();
        commits.dedup();
        commits
    }
}

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// Which topics; all when none is named
    #[arg(value_parser = topic)]
    topics: Vec<&'static str>,
    /// No point is begun after this many seconds
    #[arg(long, default_value_t = 560)]
    budget_s: u64,
    /// Where results go [default: bench/results/growth.json]
    #[arg(long)]
    output: Option<PathBuf>,
}

fn topic(name: &str) -> Result<&'static str, String> {
    let known: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    let found = known.iter().find(|known| **known == name);
    found.copied().ok_or_else(|| format!("no such topic; there are {}", known.join(", ")))
}

/// Directory of the results that the documents show.
pub fn stored() -> PathBuf {
    workspace::root().join("bench/results/growth.json")
}

/// Measures and stores.
pub fn run(options: &Options) -> Outcome {
    load::raise_open_files()?;
    let output = options.output.clone().unwrap_or_else(stored);
    let named = options.topics.join(" ");
    let servers = [Server::Redis, Server::Memcached];
    let command = format!("cargo xtask bench growth {named} --budget-s {}", options.budget_s);
    let about = About::look(
        command.replace("  ", " "),
        servers.iter().map(|server| server.workload().version()),
    )?;
    // Topics that are not selected keep their earlier results.
    let mut growth: Growth = about::read(&output)?.unwrap_or_default();
    let before = std::mem::replace(&mut growth.about, about).command;
    if !named.is_empty() && !before.is_empty() {
        growth.about.command = format!("{before}; {}", growth.about.command);
    }
    growth.failures.clear();
    let mut recorder = Recorder {
        growth,
        topic: "",
        until: Instant::now() + Duration::from_secs(options.budget_s),
        interrupt: interrupts()?,
    };
    for topic in
        TOPICS.iter().filter(|topic| named.is_empty() || options.topics.contains(&topic.name))
    {
        recorder.growth.points.retain(|point| point.topic != topic.name);
        recorder.topic = topic.name;
        if let Err(failure) = (topic.measure)(&mut recorder) {
            recorder.failed(topic.name, &failure);
        }
        if recorder.interrupt.load(Ordering::Relaxed) {
            return Err(Failure("interrupted".to_owned()));
        }
    }
    let mut growth = recorder.growth;
    growth.about.machine.sync_us.push(about::sync_us()?);
    growth.about.unix_time_s = about::unix_time_s();
    about::write(&output, &growth)?;
    println!("all points: {}", output.display());
    match growth.failures.first() {
        Some(first) => Err(Failure::of("not everything could be measured", first)),
        None => Ok(()),
    }
}

/// Takes the points.
pub struct Recorder {
    growth: Growth,
    topic: &'static str,
    until: Instant,
    interrupt: Arc<AtomicBool>,
}

impl Recorder {
    /// Measures a point, unless time is over; a failure is noted, and the curve ends there.
    fn point(
        &mut self,
        curve: &str,
        x: f64,
        measure: impl FnOnce() -> Outcome<Vec<(&'static str, f64)>>,
    ) -> bool {
        if Instant::now() > self.until || self.interrupt.load(Ordering::Relaxed) {
            self.failed(
                &format!("{}: {curve} at {x}", self.topic),
                &Failure("out of time".to_owned()),
            );
            return false;
        }
        match measure() {
            Ok(values) => {
                let shown: Vec<String> =
                    values.iter().map(|(key, value)| format!("{key} {value:.1}")).collect();
                println!("{:<12} {curve:<32} {x:>10} {}", self.topic, shown.join("  "));
                let values = values.into_iter().map(|(key, value)| (key.to_owned(), value));
                self.growth.points.push(Point {
                    topic: self.topic.to_owned(),
                    curve: curve.to_owned(),
                    x,
                    values: values.collect(),
                    commit: self.growth.about.commit.clone(),
                    cpu: self.growth.about.machine.cpu.clone(),
                });
                true
            }
            Err(failure) => {
                self.failed(&format!("{}: {curve} at {x}", self.topic), &failure);
                false
            }
        }
    }

    fn failed(&mut self, what: &str, failure: &Failure) {
        let say = format!("{what}: {failure}");
        eprintln!("{say}");
        self.growth.failures.push(say);
    }
}

/// A crowd's throughput and memory.
fn figures(running: &Running, crowd: &Throughput) -> Outcome<Vec<(&'static str, f64)>> {
    let (node, server) = running.resident()?;
    let mut values = vec![
        (THROUGHPUT.key, crowd.per_second),
        (P50.key, crowd.p50_us),
        (P99.key, crowd.p99_us),
        (SERVER.key, mib(server)),
    ];
    values.extend(node.map(|node| (NODE.key, mib(node))));
    Ok(values)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The name of a curve.
fn curve(server: &str, way: &str) -> String {
    format!("{server}, {way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = TOPICS.iter().map(|topic| topic.name).collect();
        assert_eq!(names.len(), TOPICS.len());
        assert_eq!(topic("connections"), Ok("connections"));
        assert!(topic("shoes").is_err());
    }

    #[test]
    fn curves_are_named_once() {
        let point = |topic: &str, curve: &str| Point {
            topic: topic.to_owned(),
            curve: curve.to_owned(),
            x: 1.0,
            values: BTreeMap::new(),
            commit: String::new(),
            cpu: "C".to_owned(),
        };
        let points = vec![
            point("threads", "b"),
            point("threads", "a"),
            point("threads", "b"),
            point("log", "c"),
        ];
        let growth = Growth { points, ..Growth::default() };
        let (points, curves) = growth.of(&threads::TOPIC);
        assert_eq!((points.len(), curves), (3, vec!["b", "a"]));
        assert_eq!(growth.commits(&threads::TOPIC), [" on C"]);
    }
}
