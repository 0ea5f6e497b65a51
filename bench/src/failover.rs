//! The cost of a failover while the server is fully loaded: the followers' servers are behind then, and the next leader's must
//! catch up before it answers.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde::{Deserialize, Serialize};

use super::about::{self, About};
use super::servers::{Server, Workload};
use super::stats::Spread;
use super::target::{Cluster, Running, Target};
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

const SERVERS: [Server; 3] = [Server::Redis, Server::Mariadb, Server::Postgres];
const CLIENTS: u32 = 50;
const REQUESTS: u32 = 30_000;
/// How long the load runs before a kill.
const LOADED: Duration = Duration::from_secs(4);
/// Pause between two tries of the probe.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// After this long the service counts as lost.
const OUTAGE_MAX: Duration = Duration::from_secs(20);

/// Options.
#[derive(clap::Args)]
pub struct Options {
    /// How often the leader of each server is killed
    #[arg(long, default_value_t = 7)]
    kills: u32,
    /// Where results go [default: bench/results/failover.json]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Results.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Failovers {
    /// Time, machine and programs.
    #[serde(flatten)]
    pub about: About,
    /// Every kill.
    pub kills: Vec<Kill>,
}

/// A leader's death.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kill {
    /// The server.
    pub server: Server,
    /// The lag of the next leader's server just before the kill: the least of the followers' [ms].
    pub behind_ms: f64,
    /// Time until a new client had its first answer before the kill [ms].
    pub before_ms: f64,
    /// Time from the kill to the first answer to a client that asked after it [ms].
    pub outage_ms: f64,
}

impl Failovers {
    /// A figure of a server's kills.
    pub fn spread(&self, server: Server, measure: impl Fn(&Kill) -> f64) -> Option<Spread> {
        let own = self.kills.iter().filter(|kill| kill.server == server);
        Spread::of(own.map(measure).collect())
    }
}

/// Directory of the results that the documents show.
pub fn stored() -> PathBuf {
    workspace::root().join("bench/results/failover.json")
}

/// Measures and stores.
pub fn run(options: &Options) -> Outcome {
    let command = format!("cargo xtask bench failover --kills {}", options.kills);
    let about = About::look(command, SERVERS.iter().map(|at| at.workload().version()))?;
    let mut found = Failovers { about, kills: Vec::new() };
    for server in SERVERS {
        let Running::Skein(cluster) = Target::ThreeFsync.start(server)? else {
            return Err(Failure("a target with replicas has no cluster".to_owned()));
        };
        for _ in 0..options.kills {
            let kill = one(server, &cluster)?;
            println!(
                "{:<10} behind {:>6.0} ms, an answer took {:>6.1} ms, outage {:>7.1} ms",
                server.name(),
                kill.behind_ms,
                kill.before_ms,
                kill.outage_ms
            );
            found.kills.push(kill);
        }
    }
    found.about.unix_time_s = about::unix_time_s();
    about::write(&options.output.clone().unwrap_or_else(stored), &found)
}

fn one(server: Server, cluster: &Cluster) -> Outcome<Kill> {
    cluster.whole()?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| work(server, cluster, &ended));
        let kill = killed(server, cluster);
        ended.store(true, Ordering::Relaxed);
        kill
    })
}

/// Keeps the server busy; clients that lose their connections come back.
fn work(server: Server, cluster: &Cluster, ended: &AtomicBool) {
    let workload = server.workload();
    let (requests, clients) = (workload.requests(REQUESTS), workload.clients(CLIENTS));
    while !ended.load(Ordering::Relaxed) {
        // The clients' connections end by the leader's death, which is intended.
        if workload.crowd(cluster.service, requests, clients).is_err() {
            std::thread::sleep(RETRY_AFTER);
        }
    }
}

fn killed(server: Server, cluster: &Cluster) -> Outcome<Kill> {
    let workload = server.workload();
    std::thread::sleep(LOADED);
    let before = answered(workload, cluster)?;
    let status = cluster.whole()?;
    let leader = status.leader()?;
    let followers = status.replicas().iter().filter(|at| at.id != leader.id);
    let behind_ms = followers.map(|at| at.lag_ms).min().unwrap_or_default() as f64;
    let pid = leader.pid()?;
    kill(pid, Signal::SIGKILL).map_err(|error| Failure::of("cannot kill the leader", error))?;
    let outage = answered(workload, cluster)?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(Kill { server, behind_ms, before_ms: ms(before), outage_ms: ms(outage) })
}

/// Time from now until a probe is answered.
fn answered(workload: &dyn Workload, cluster: &Cluster) -> Outcome<Duration> {
    let began = Instant::now();
    loop {
        match workload.probe(cluster.service) {
            Ok(()) => return Ok(began.elapsed()),
            Err(error) if began.elapsed() > OUTAGE_MAX => {
                return Err(Failure::of("no answer for 20 s", error));
            }
            Err(_) => std::thread::sleep(RETRY_AFTER),
        }
    }
}
