//! This build beside another one: the same work in the same rounds, and the ratio of each pair.
//!
//! Both builds run every server in every way under Skein, one right after the other and in another order each round, so a change of the
//! machine's speed affects both. The comparison decides whether a change made anything worse.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::about::{self, About};
use super::measure::{self, Load};
use super::outage;
use super::process;
use super::report::servers::{per_second, ratio};
use super::report::text;
use super::results::Sample;
use super::servers::{Choice, Server};
use super::stats::Spread;
use super::target::{Cluster, Target};
use super::wire::free_address;
use skein_testkit::cluster::find_command;
use skein_testkit::{Failure, Outcome};

const TARGETS: [Target; 3] = [Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync];

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// The directory of the other build: `skein` with `libskein.so` beside it
    other: PathBuf,
    /// Which servers to measure
    #[arg(value_enum, default_values_t = [Choice::One(Server::Redis), Choice::One(Server::Memcached)])]
    servers: Vec<Choice>,
    /// Rounds; medians of them count
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Requests an operation and round, all connections together
    #[arg(long, default_value_t = 30_000)]
    requests: u32,
    /// Connections of the crowd
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// How many times the leader of each build is killed
    #[arg(long, default_value_t = 15)]
    kills: u32,
    /// No measurement begins after this many seconds
    #[arg(long, default_value_t = 1200)]
    budget_s: u64,
    /// Where all samples go
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Results of one run.
#[derive(Serialize)]
struct Found {
    /// Time, machine and programs.
    #[serde(flatten)]
    about: About,
    pairs: Vec<Pair>,
    /// Outage after a kill of the leader: this build, the other [ms].
    outages_ms: [Vec<f64>; 2],
}

/// Both builds in one round.
#[derive(Serialize)]
struct Pair {
    this: Sample,
    other: Sample,
}

/// Measures both and prints the ratios.
pub fn run(options: &Options) -> Outcome {
    let other = options.other.join("skein");
    if !other.is_file() || !options.other.join("libskein.so").is_file() {
        let say = format!("{} has no skein with libskein.so beside it", options.other.display());
        return Err(Failure(say));
    }
    let other = other.canonicalize().map_err(|error| Failure::of("cannot find skein", error))?;
    let builds = [find_command()?, other];
    let interrupt = process::interrupts()?;
    let until = Instant::now() + Duration::from_secs(options.budget_s);
    let servers = Choice::servers(&options.servers);
    let command = format!(
        "cargo xtask bench builds OTHER --rounds {} --requests {} --clients {} --kills {}",
        options.rounds, options.requests, options.clients, options.kills
    );
    let programs = servers.iter().map(|server| server.workload().version());
    let about = About::look(command, programs)?;
    let mut found = Found { about, pairs: Vec::new(), outages_ms: Default::default() };
    let load = Load { requests: options.requests, clients: options.clients };
    let all = (0..options.rounds)
        .flat_map(|round| servers.iter().map(move |server| (round, *server)))
        .flat_map(|(round, server)| TARGETS.map(|target| (round, server, target)));
    for (round, server, target) in all {
        if interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Failure("interrupted".to_owned()));
        }
        if Instant::now() > until {
            println!("out of time in round {}: --budget-s {}", round + 1, options.budget_s);
            break;
        }
        found.pairs.push(pair(&builds, server, target, round, load)?);
    }
    // In two halves, so that neither build gets a quieter hour.
    for kills in [options.kills / 2, options.kills - options.kills / 2] {
        for (skein, outages_ms) in builds.iter().zip(&mut found.outages_ms) {
            let workload = Server::Redis.workload();
            let cluster = Cluster::by(Some(skein), workload, free_address()?, 3, "fsync")?;
            let until = Instant::now() + Duration::from_secs(options.budget_s);
            outages_ms.extend(outage::of(&cluster, kills, until)?);
        }
    }
    println!("{}", report(&found, &servers));
    found.about.unix_time_s = about::unix_time_s();
    options.output.as_ref().map_or(Ok(()), |path| about::write(path, &found))
}

fn pair(
    builds: &[PathBuf; 2],
    server: Server,
    target: Target,
    round: u32,
    load: Load,
) -> Outcome<Pair> {
    let one = |skein: &Path| {
        measure::measure_running(server, target, round, load, || target.start_by(skein, server))
    };
    let [this, other] = builds;
    // Another order each round.
    if round.is_multiple_of(2) {
        Ok(Pair { this: one(this)?, other: one(other)? })
    } else {
        let other = one(other)?;
        Ok(Pair { this: one(this)?, other })
    }
}

/// A table: this build's figures as ratios to the other's: the median of the rounds with the least and the most.
fn report(found: &Found, servers: &[Server]) -> String {
    let heads = ["this build / the other", "requests/s", "leader's CPU", "all CPU", "p50 of one"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (server, target) in servers.iter().flat_map(|server| TARGETS.map(|at| (*server, at))) {
        let pairs = found
            .pairs
            .iter()
            .filter(|pair| pair.this.server == server && pair.this.target == target);
        let of = |measure: &dyn Fn(&Sample) -> Option<f64>| {
            let both = pairs
                .clone()
                .filter_map(|pair| Some(ratio(measure(&pair.this)?, measure(&pair.other)?)));
            text::wide(Spread::of(both.collect()), 3)
        };
        for (at, operation) in server.workload().operations().iter().enumerate() {
            let mut row = vec![format!("{} {operation}, {}", server.name(), target.name())];
            row.push(of(&|sample| per_second(sample, operation)));
            if at == 0 {
                row.push(of(&|sample| Some(sample.cpu_us)));
                row.push(of(&|sample| Some(sample.cpu_all_us)));
                row.push(of(&|sample| Some(sample.alone.p50_us)));
            } else {
                row.extend([const { String::new() }; 3]);
            }
            rows.push(row);
        }
    }
    let outages = found.outages_ms.each_ref().map(|ms| text::wide(Spread::of(ms.clone()), 1));
    let [this, other] = outages;
    format!(
        "{}\n\nwithout an answer after kill -9 of the leader [ms]: this build {this}, the other {other}",
        text::table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_directory_without_a_build_is_refused_by_name() {
        let empty = tempfile::tempdir().expect("a directory");
        let line = Line::parse_from(["builds", empty.path().to_str().expect("its name")]);
        let refused = run(&line.options).expect_err("there is nothing in it");
        assert!(refused.to_string().contains("has no skein with libskein.so beside it"));
    }
}
