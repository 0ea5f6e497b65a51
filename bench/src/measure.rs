//! The run: rounds of every server in every way, one fresh start each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::about::{self, About};
use super::results::{Busy, Results, Sample};
use super::servers::{Choice, Server};
use super::target::{Counts, Running, Target};
use super::{outage, process, report, results};
use skein_testkit::{Failure, Outcome};

/// Part of the budget that is reserved for kills of the leader, if there are any.
const OUTAGES_SHARE: f64 = 0.2;

/// Before a measurement the crowd warms up with a tenth of it.
const WARM_SHARE: u32 = 10;

/// Options of the measurement.
#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Which servers to measure
    #[arg(value_enum, default_values_t = [Choice::One(Server::Redis), Choice::One(Server::Memcached)])]
    servers: Vec<Choice>,
    /// Rounds, three in each where there are goals; medians of them count
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
}

/// Measures, writes the results and shows them.
pub fn run(options: &Options) -> Outcome {
    let output = options.output.clone().unwrap_or_else(results::latest);
    if options.requests < options.clients || options.clients == 0 || options.rounds == 0 {
        return Err(Failure(
            "--requests below --clients, or none at all, measure nothing".to_owned(),
        ));
    }
    let results = measure(options)?;
    about::write(&output, &results)?;
    println!("\n{}", report::tables(&results));
    println!("all samples: {}", output.display());
    match results.failures.first() {
        Some(first) => Err(Failure::of("not everything could be measured", first)),
        None => Ok(()),
    }
}

fn measure(options: &Options) -> Outcome<Results> {
    let interrupt = process::interrupts()?;
    let start = Instant::now();
    let budget = Duration::from_secs(options.budget_s);
    let share = if options.kills > 0 { 1.0 - OUTAGES_SHARE } else { 1.0 };
    let crowds_until = start + budget.mul_f64(share);
    let servers = Choice::servers(&options.servers);
    let names: Vec<&str> = servers.iter().map(|server| server.name()).collect();
    let named = if names.len() == Server::ALL.len() { "all".to_owned() } else { names.join(" ") };
    let command = format!(
        "cargo xtask bench {named} --rounds {} --requests {} --clients {} --kills {} --budget-s {}",
        options.rounds, options.requests, options.clients, options.kills, options.budget_s
    );
    let programs = servers.iter().map(|server| server.workload().version());
    let mut results = Results {
        about: About::look(command, programs)?,
        requests: options.requests,
        clients: options.clients,
        samples: Vec::new(),
        outages_ms: Vec::new(),
        failures: Vec::new(),
    };
    let parts = |round: u32| {
        servers.iter().flat_map(move |server| {
            let more = server.workload().rounds();
            (0..more).map(move |part| (round * more + part, *server))
        })
    };
    for (round, server) in (0..options.rounds).flat_map(parts) {
        results.about.machine.sync_us.push(about::sync_us()?);
        let targets: Vec<Target> = Target::of(server).collect();
        for turn in 0..targets.len() {
            if interrupt.load(Ordering::Relaxed) {
                return Err(Failure("interrupted".to_owned()));
            }
            if Instant::now() > crowds_until {
                println!("out of time in round {}: --budget-s {}", round + 1, options.budget_s);
                break;
            }
            // Another order each round, so that the order has no effect on the median.
            let target = targets[(turn + round as usize) % targets.len()];
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
    results.about.unix_time_s = about::unix_time_s();
    Ok(results)
}

fn measure_one(server: Server, target: Target, round: u32, options: &Options) -> Outcome<Sample> {
    let load = Load { requests: options.requests, clients: options.clients };
    measure_running(server, target, round, load, || target.start(server))
}

/// The crowd's parameters.
#[derive(Clone, Copy)]
pub struct Load {
    /// Requests an operation.
    pub requests: u32,
    /// Connections.
    pub clients: u32,
}

/// Measures the target that `start` starts, once.
pub fn measure_running(
    server: Server,
    target: Target,
    round: u32,
    load: Load,
    start: impl FnOnce() -> Outcome<Running>,
) -> Outcome<Sample> {
    let load_average = about::load_average()?;
    let running = start()?;
    let service = running.service();
    // One client first: it also writes the keys that GETs read.
    let workload = server.workload();
    let requests = workload.requests(load.requests);
    let alone = workload.alone(service, requests)?;
    let clients = workload.clients(load.clients);
    workload.crowd(service, (requests / WARM_SHARE).max(clients), clients)?;
    let on_way = running.pids_on_the_way()?;
    let all = running.pids()?;
    let used = || -> Outcome<[Duration; 3]> {
        Ok([process::cpu_used(&on_way)?, process::cpu_used(&all)?, super::load::cpu_used()?])
    };
    let first = running.counts()?;
    let written = process::disk_written(&all);
    let before = used()?;
    let start = Instant::now();
    let throughput = workload.crowd(service, requests, clients)?;
    let seconds = start.elapsed().as_secs_f64();
    let after = used()?;
    let written = process::disk_written(&all).saturating_sub(written);
    let last = running.counts()?;
    let requests = f64::from(requests) * throughput.len() as f64;
    let counted = first.zip(last);
    let a_request = |of: fn(&Counts) -> u64| {
        let (first, last) = counted.as_ref()?;
        Some(of(last).saturating_sub(of(first)) as f64 / requests)
    };
    let trapped_calls: Option<BTreeMap<String, f64>> = counted.as_ref().map(|(first, last)| {
        let traps = last.traps_since(first).into_iter();
        traps.map(|(name, count)| (name, count as f64 / requests)).collect()
    });
    let of_entries = |of: fn(&Counts) -> u64| {
        let (part, all) = (a_request(of)?, a_request(|counts| counts.proposed)?);
        (all > 0.0).then(|| 100.0 * part / all)
    };
    let cores =
        [0, 1, 2].map(|at: usize| after[at].saturating_sub(before[at]).as_secs_f64() / seconds);
    let [cpu_us, cpu_all_us, cpu_load_us] = cores.map(|cores| cores * seconds * 1e6 / requests);
    Ok(Sample {
        server,
        target,
        round,
        load_average,
        throughput,
        cpu_us,
        cpu_all_us,
        cpu_load_us,
        requests_per_entry: a_request(|counts| counts.entries)
            .map(|entries| 1.0 / entries.max(1.0 / requests)),
        traps_per_request: a_request(|counts| counts.traps.values().sum()),
        trapped_calls,
        busy: Busy { clients: cores[2], target: cores[1] },
        wire_bytes: a_request(|counts| counts.wire_bytes),
        disk_bytes: Some(written as f64 / requests),
        bubbles_percent: of_entries(|counts| counts.bubbles),
        clocks_percent: of_entries(|counts| counts.clocks),
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
