//! The figures: a server alone, behind a plain proxy, and under Skein, in one interleaved run.
//!
//! Each round starts every target afresh, measures it and stops it; ratios are taken within a
//! round, so that a change of the machine's speed meets all targets. Results go to a JSON file
//! with every sample, and from there to the terminal and the documents.
//! Bounded: no measurement begins after `--budget-s`, and every wait has a deadline. Processes are
//! stopped when their owner is dropped; native ones also die with this process. A benchmark that is killed
//! leaves a cluster: `skein stop --name bench-...` ends it.

mod load;
mod outage;
mod process;
pub mod proxy;
mod report;
mod results;
mod servers;
mod target;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use self::results::{Results, Sample};
use self::servers::Server;
use self::target::Target;
use crate::demo::find_command;
use crate::report::{Failure, Outcome};

/// Part of the budget that is kept for kills of the leader, if there are any.
const OUTAGES_SHARE: f64 = 0.2;

/// How the figures are taken.
#[derive(clap::Args)]
pub struct Options {
    /// Which servers to measure
    #[arg(value_enum, default_values_t = [Server::Redis, Server::Memcached])]
    servers: Vec<Server>,
    /// Rounds; medians of them count
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Requests an operation (SET and GET) and round, all connections together
    #[arg(long, default_value_t = 40_000)]
    requests: u32,
    /// Connections of the crowd
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// How many times the leader is killed
    #[arg(long, default_value_t = 7)]
    kills: u32,
    /// No measurement begins after this many seconds
    #[arg(long, default_value_t = 220)]
    budget_s: u64,
    /// Where results go [default: bench/results/latest.json]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Measure nothing: write docs/performance.md and the README's figures from the results
    #[arg(long)]
    report: bool,
}

/// Measures, or reports what was measured.
pub fn run(options: &Options) -> Outcome {
    let output = options.output.clone().unwrap_or_else(results::latest);
    if options.report {
        return report::write(&Results::read(&output)?);
    }
    if options.requests < options.clients || options.clients == 0 || options.rounds == 0 {
        return Err(Failure(
            "--requests below --clients, or none at all, measure nothing".to_owned(),
        ));
    }
    let results = measure(options)?;
    results.write(&output)?;
    println!("\n{}", report::tables(&results));
    println!("all samples: {}", output.display());
    match results.failures.first() {
        Some(first) => Err(Failure::of("not everything could be measured", first)),
        None => Ok(()),
    }
}

fn measure(options: &Options) -> Outcome<Results> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupt))
            .map_err(|error| Failure::of("cannot catch signals", error))?;
    }
    let start = Instant::now();
    let budget = Duration::from_secs(options.budget_s);
    let share = if options.kills > 0 { 1.0 - OUTAGES_SHARE } else { 1.0 };
    let crowds_until = start + budget.mul_f64(share);
    let servers: Vec<&str> = options.servers.iter().map(|server| server.name()).collect();
    let skein = find_command()?;
    let mut results = Results {
        unix_time_s: 0,
        commit: results::commit(&skein),
        command: format!(
            "cargo xtask bench {} --rounds {} --requests {} --clients {} --kills {} --budget-s {}",
            servers.join(" "),
            options.rounds,
            options.requests,
            options.clients,
            options.kills,
            options.budget_s
        ),
        machine: results::machine()?,
        versions: results::versions(&skein, &options.servers)?,
        requests: options.requests,
        clients: options.clients,
        samples: Vec::new(),
        outages_ms: Vec::new(),
        failures: Vec::new(),
    };
    for (round, server) in
        (0..options.rounds).flat_map(|round| options.servers.iter().map(move |at| (round, *at)))
    {
        results.machine.sync_us.push(results::sync_us()?);
        for turn in 0..Target::ALL.len() {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Failure("interrupted".to_owned()));
            }
            if Instant::now() > crowds_until {
                println!("out of time in round {}: --budget-s {}", round + 1, options.budget_s);
                break;
            }
            // Another order each round: who runs after whom has no part in the median.
            let target = Target::ALL[(turn + round as usize) % Target::ALL.len()];
            match measure_one(server, target, round, options) {
                Ok(sample) => {
                    show(&sample);
                    results.samples.push(sample);
                }
                Err(failure) => {
                    let say = format!("{}, {}: {failure}", server.name(), target.name());
                    eprintln!("{say}");
                    results.failures.push(say);
                }
            }
        }
    }
    if options.kills > 0 {
        match outage::measure(options.kills, start + budget) {
            Ok(outages_ms) => results.outages_ms = outages_ms,
            Err(failure) => results.failures.push(format!("outage: {failure}")),
        }
    }
    results.unix_time_s = results::unix_time_s();
    Ok(results)
}

fn measure_one(server: Server, target: Target, round: u32, options: &Options) -> Outcome<Sample> {
    let load_average = results::load_average()?;
    let running = target.start(server)?;
    let service = running.service();
    // One client first: it also writes the keys that GETs read.
    let workload = server.workload();
    let requests = workload.requests(options.requests);
    let alone = workload.alone(service, requests)?;
    let on_way = running.pids_on_the_way()?;
    let all = running.pids()?;
    let used = || -> Outcome<[Duration; 3]> {
        Ok([process::cpu_used(&on_way)?, process::cpu_used(&all)?, load::cpu_used()?])
    };
    let first = running.counts()?;
    let before = used()?;
    let throughput = workload.crowd(service, requests, workload.clients(options.clients))?;
    let after = used()?;
    let last = running.counts()?;
    let requests = f64::from(requests) * throughput.len() as f64;
    let (entries, traps) = last
        .zip(first)
        .map(|(last, first)| (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1)))
        .unzip();
    let [cpu_us, cpu_all_us, cpu_load_us] = std::array::from_fn(|at| {
        after[at].saturating_sub(before[at]).as_secs_f64() * 1e6 / requests
    });
    Ok(Sample {
        server,
        target,
        round,
        load_average,
        throughput,
        cpu_us,
        cpu_all_us,
        cpu_load_us,
        requests_per_entry: entries.map(|entries| requests / entries.max(1) as f64),
        traps_per_request: traps.map(|traps| traps as f64 / requests),
        alone,
    })
}

fn show(sample: &Sample) {
    let crowd: Vec<String> = sample
        .throughput
        .iter()
        .map(|at| format!("{} {:>7.0}/s", at.operation, at.per_second))
        .collect();
    println!(
        "round {} {:<9} {:<25} {}  CPU {:>5.1} us  one client p50 {:>5.0} us",
        sample.round + 1,
        sample.server.name(),
        sample.target.name(),
        crowd.join("  "),
        sample.cpu_us,
        sample.alone.p50_us
    );
}
