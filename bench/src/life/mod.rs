//! The life of a cluster: three replicas of a redis with an append-only file, on hosts of their own as far as nodes can tell, under load. Nodes, servers, disks and hosts
//! are lost and replaced, members come and go, and the server, its files and Skein are upgraded, again and again.
//!
//! A client counts up and notices a count that was acknowledged and is lost, or comes twice; another set of clients writes values to a bounded number of keys, so that a bounded
//! log, bounded images and bounded memory are to be seen, and asserted ([`bounds`]). At the end all replicas are compared, digests and pages. Whatever goes wrong ends the run with
//! an error, after the results were written.

mod answers;
mod bounds;
mod clients;
mod cluster;
mod events;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::about::{self, About};
use super::process::{self, interrupts};
use super::servers::Server;
use answers::Answers;
pub use answers::{Around, HALF_S};
use clients::Clients;
use cluster::Cluster;
pub use events::{IMAGE_TAKEN, LEADER_KILLED};
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// So many samples are as many as a plot shows.
const SAMPLES: u64 = 720;
const LOOK_AFTER: Duration = Duration::from_millis(20);
/// How long the service runs before the first event.
const FIRST_AFTER: Duration = Duration::from_secs(5);
/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// How long
    #[arg(long, default_value_t = 2)]
    minutes: u64,
    /// Requests a second; 0: as many as the cluster answers
    #[arg(long, default_value_t = 0)]
    per_second: u64,
    /// Time between two events [s]
    #[arg(long, default_value_t = 12)]
    event_every_s: u64,
    /// What an acknowledged write survives; with memory, members do not change, and some nodes are always up
    #[arg(long, default_value = "fsync", value_parser = ["fsync", "memory"])]
    durability: String,
    /// Where results go [default: bench/results/life.json]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Results: a run for each way of loading.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Lives {
    /// `full`, `paced` or `memory`.
    pub runs: BTreeMap<String, Life>,
}

/// A run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Life {
    /// Time, machine and programs.
    #[serde(flatten)]
    pub about: About,
    /// `fsync` or `memory`.
    #[serde(default)]
    pub durability: String,
    /// Requests a second that were wanted; 0: as many as were answered.
    pub per_second: u64,
    /// Counts that were acknowledged, none of which is lost.
    pub acknowledged: u64,
    /// What was done, in order.
    pub events: Vec<Event>,
    /// At equal intervals.
    pub samples: Vec<Sample>,
}

/// What was done to the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// What.
    pub what: String,
    /// When [s since the start].
    pub at_s: f64,
    /// Until all replicas were in step again [s].
    pub took_s: f64,
    /// The longest time meanwhile without an answer to the client that counts [ms].
    pub silent_ms: f64,
    /// The longest time without an answer to any client until the next event, to 2 ms [ms]. Results of before lack it,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<f64>,
    /// and answers around losses and images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Around>,
}

/// An interval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Its end [s since the start].
    pub at_s: f64,
    /// Requests answered a second.
    pub per_second: f64,
    /// What the data directories take [MiB].
    pub disk_mib: f64,
    /// Resident memory of all nodes [MiB],
    pub nodes_mib: f64,
    /// and of all servers.
    pub servers_mib: f64,
}

/// Directory of the results that the documents show.
pub fn stored() -> PathBuf {
    workspace::root().join("bench/results/life.json")
}

/// Measures and stores.
pub fn run(options: &Options) -> Outcome {
    let Options { minutes, per_second, event_every_s, durability, .. } = options;
    let command = format!(
        "cargo xtask bench life --minutes {minutes} --per-second {per_second} --event-every-s {event_every_s} --durability {durability}"
    );
    let about = About::look(command, [Server::Redis.workload().version()])?;
    let (events, samples) = (Vec::new(), Vec::new());
    let (durability, per_second) = (durability.clone(), *per_second);
    let mut life = Life { about, durability, per_second, acknowledged: 0, events, samples };
    let lived = live(options, &mut life);
    life.about.unix_time_s = about::unix_time_s();
    let output = options.output.clone().unwrap_or_else(stored);
    let mut all: Lives = about::read(&output)?.unwrap_or_default();
    let name = match per_second {
        _ if life.in_memory() => "memory",
        0 => "full",
        _ => "paced",
    };
    all.runs.insert(name.to_owned(), life);
    about::write(&output, &all)?;
    lived
}

impl Life {
    /// Whether logs were in memory.
    pub fn in_memory(&self) -> bool {
        self.durability == "memory"
    }
}

fn live(options: &Options, life: &mut Life) -> Outcome {
    let interrupt = interrupts()?;
    let cluster = Cluster::start(if life.in_memory() { "memory" } else { "fsync" })?;
    let lived = live_in(&cluster, options, life, &interrupt);
    lived.map_err(|failure| {
        let kept = cluster.keep();
        Failure(format!("{failure}; what the nodes wrote is in {}", kept.display()))
    })
}

fn live_in(
    cluster: &Cluster,
    options: &Options,
    life: &mut Life,
    interrupt: &AtomicBool,
) -> Outcome {
    let tended = AtomicBool::new(true);
    thread::scope(|scope| {
        let manager = scope.spawn(|| {
            while tended.load(Ordering::Relaxed) {
                cluster.tend()?;
                thread::sleep(LOOK_AFTER);
            }
            Ok(())
        });
        let lived = under_load(cluster, options, life, interrupt);
        tended.store(false, Ordering::Relaxed);
        let managed = manager.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        lived.and(managed)
    })
}

fn under_load(
    cluster: &Cluster,
    options: &Options,
    life: &mut Life,
    interrupt: &AtomicBool,
) -> Outcome {
    cluster.whole()?;
    let clients = Clients::new(cluster, options.per_second);
    let begun = Instant::now();
    let every = Duration::from_secs(options.event_every_s);
    let times = Times { begun, end: begun + Duration::from_secs(60 * options.minutes), every };
    let kinds = events::KINDS.iter().filter(|kind| !life.in_memory() || !kind.needs_disk);
    let kinds: Vec<_> = kinds.collect();
    let (events, samples, answers) = thread::scope(|scope| {
        clients.start(scope);
        let samples = scope.spawn(|| samples(cluster, &clients, &times));
        let answers = scope.spawn(|| Answers::look(&clients, begun));
        let events = events_until(&times, &kinds, &clients, interrupt, &mut life.events);
        clients.end();
        let samples = samples.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let answers = answers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (events, samples, answers)
    });
    answers.tell(&mut life.events);
    life.acknowledged = clients.acknowledged();
    life.samples = samples;
    events?;
    clients.failure().map_or(Ok(()), Err)?;
    clients.counted(clients.acknowledged())?;
    let digest = cluster.equal_digests()?;
    let pages = cluster.verify()?;
    println!("at the end all replicas are equal: digest {digest}; {pages}");
    println!("{}", bounds::check(&life.events, &life.samples, kinds.len())?);
    Ok(())
}

/// When events are.
struct Times {
    begun: Instant,
    end: Instant,
    every: Duration,
}

/// One event after the other.
fn events_until(
    times: &Times,
    kinds: &[&events::Kind],
    clients: &Clients<'_>,
    interrupt: &AtomicBool,
    done: &mut Vec<Event>,
) -> Outcome {
    let Times { begun, end, every } = *times;
    let mut next = begun + FIRST_AFTER;
    for kind in kinds.iter().cycle() {
        while Instant::now() < next {
            if let Some(failure) = clients.failure() {
                return Err(failure);
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(Failure("interrupted".to_owned()));
            }
            thread::sleep(LOOK_AFTER);
        }
        if next + every > end {
            break;
        }
        let event = events::one(kind, clients, begun)?;
        println!(
            "{:>7.1} s  {:<54} {:>6.1} s until all are in step, at most {:>5.0} ms without an answer",
            event.at_s, event.what, event.took_s, event.silent_ms
        );
        done.push(event);
        next = (next + every).max(Instant::now());
    }
    Ok(())
}

/// Looks until the clients end.
fn samples(cluster: &Cluster, clients: &Clients<'_>, times: &Times) -> Vec<Sample> {
    let Times { begun, end, .. } = *times;
    let every = Duration::from_secs((end - begun).as_secs().div_ceil(SAMPLES).max(1));
    let mut all = Vec::new();
    let (mut before, mut next) = (clients.answered(), begun + every);
    let mut last = begun;
    while !clients.have_ended() {
        if Instant::now() < next {
            thread::sleep(LOOK_AFTER);
            continue;
        }
        let (now, answered) = (Instant::now(), clients.answered());
        let per_second = (answered - before) as f64 / (now - last).as_secs_f64();
        (before, last) = (answered, now);
        next += every;
        // A node or a server may be gone for a moment; one that is there is counted.
        let [nodes, servers] = cluster.processes();
        let mib = |bytes: u64| rounded(bytes as f64 / f64::from(1 << 20));
        all.push(Sample {
            at_s: rounded((now - begun).as_secs_f64()),
            per_second: rounded(per_second),
            disk_mib: mib(occupied(&cluster.hosts())),
            nodes_mib: mib(process::resident(&nodes)),
            servers_mib: mib(process::resident(&servers)),
        });
    }
    all
}

/// To one digit behind the point: more is noise.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// What the files below a directory take on the disk [bytes]; files that go meanwhile count nothing.
fn occupied(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let one = |entry: fs::DirEntry| match entry.metadata() {
        Ok(is) if is.is_dir() => occupied(&entry.path()),
        Ok(is) => is.blocks() * 512 / is.nlink().max(1),
        Err(_) => 0,
    };
    entries.flatten().map(one).sum()
}
