//! The tables of each server: throughput, CPU time, latency, bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Page;
use super::plots::Bars;
use super::text::{cell, table, wide};
use crate::results::{Results, Sample};
use crate::servers::Server;
use crate::stats::Spread;
use crate::target::Target;
use skein_testkit::Outcome;

/// Calls that trap less often than this per request have no row.
pub const TRAPS_SHOWN: f64 = 0.001;

/// Marks a figure that the load generator limits.
const LIMITED: &str = " *";

/// All tables of all servers that were measured.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    for server in Server::ALL.iter().copied().filter(|server| has(results, *server)) {
        let _ = writeln!(text, "## {}\n", heading(server, results.clients));
        for part in [throughput, cpu, bytes, traps, latency] {
            let part = part(results, server);
            if !part.is_empty() {
                let _ = writeln!(text, "{part}");
            }
        }
        if Target::ALL.iter().any(|target| limited(results, server, *target)) {
            text.push_str(
                "\\* The load generator had a core to itself in most rounds while there was room beside it: it could not ask faster.\n\n",
            );
        }
    }
    for failure in &results.failures {
        let _ = writeln!(text, "Not measured: {failure}\n");
    }
    text
}

/// The plots of all servers: (name of the file, title, axis, how it is measured).
type Measure = fn(&Results, Server, Target) -> Option<Spread>;
const PLOTS: &[(&str, &str, &str, Measure)] = &[
    ("throughput", "Requests a second, of native", "of native", |results, server, target| {
        let operation = server.workload().operations()[0];
        results.against_native(server, target, |sample| per_second(sample, operation), ratio)
    }),
    (
        "cpu",
        "CPU time a request on its way (the leader's), of native",
        "of native",
        |results, server, target| {
            results.against_native(server, target, |sample| Some(sample.cpu_us), ratio)
        },
    ),
    ("latency", "One client: median latency, of native", "of native", |results, server, target| {
        results.against_native(server, target, |sample| Some(sample.alone.p50_us), ratio)
    }),
];

fn plot_path(name: &str) -> String {
    format!("bench/reports/plots/servers-{name}.svg")
}

/// The plots of all servers.
pub fn plots() -> Outcome<Vec<Page>> {
    let results = super::latest()?;
    let all: Vec<Server> =
        Server::ALL.iter().copied().filter(|server| has(&results, *server)).collect();
    PLOTS
        .iter()
        .map(|(name, title, y, measure)| {
            let series = |target: &Target| {
                let values = all.iter().map(|server| measure(&results, *server, *target));
                (target.name(), values.map(|spread| Some(spread?.median)).collect())
            };
            let bars = Bars {
                title,
                y,
                groups: all.iter().map(|server| server.name().to_owned()).collect(),
                series: Target::ALL[1..]
                    .iter()
                    .filter(|at| **at != Target::Bare)
                    .map(series)
                    .collect(),
            };
            Ok(Page { path: plot_path(name), text: bars.svg()? })
        })
        .collect()
}

/// Links to the plots in a document.
pub fn plot_links(_: &Results) -> String {
    let link = |(name, title, ..): &(&str, &str, &str, Measure)| {
        format!("![{title}]({})\n", plot_path(name).trim_start_matches("bench/reports/"))
    };
    PLOTS.iter().map(link).collect::<String>() + "\n"
}

/// Whether there is a sample of it.
pub fn has(results: &Results, server: Server) -> bool {
    results.samples.iter().any(|sample| sample.server == server)
}

fn heading(server: Server, clients: u32) -> String {
    let workload = server.workload();
    format!("{}: {} connections and one", workload.heading(), workload.clients(clients))
}

/// Requests of one kind a second.
pub fn per_second(sample: &Sample, operation: &str) -> Option<f64> {
    sample.throughput.iter().find(|at| at.operation == operation).map(|at| at.per_second)
}

/// Relative to native.
pub fn ratio(sample: f64, native: f64) -> f64 {
    sample / native
}

/// Whether the load generator was the bottleneck in most rounds.
fn limited(results: &Results, server: Server, target: Target) -> bool {
    let cores = results.about.machine.cores;
    let all = results.of(server, target).count();
    let by_clients =
        results.of(server, target).filter(|sample| sample.busy.is_limited_by_clients(cores));
    2 * by_clients.count() > all
}

fn throughput(results: &Results, server: Server) -> String {
    let operations = server.workload().operations();
    let mut head = vec![String::new()];
    for operation in operations {
        head.extend([format!("{}/s", label(operation)), "of native".to_owned()]);
    }
    let mut rows = vec![head];
    for target in Target::of(server) {
        let mut row = vec![target.name().to_owned()];
        for operation in operations {
            let measure = |sample: &Sample| per_second(sample, operation);
            let mark = if limited(results, server, target) { LIMITED } else { "" };
            row.push(cell(results.spread(server, target, measure), 0) + mark);
            row.push(wide(results.against_native(server, target, measure, ratio), 2));
        }
        rows.push(row);
    }
    table(&rows)
}

/// `SET` and `GET` are commands; all other names are words.
pub fn label(operation: &str) -> String {
    match operation {
        "set" | "get" => operation.to_uppercase(),
        word => word.to_owned(),
    }
}

fn cpu(results: &Results, server: Server) -> String {
    let head = [
        "CPU time a request",
        "on its way us",
        "of native",
        "all replicas us",
        "clients us",
        "clients' cores",
        "target's cores",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for target in Target::of(server) {
        let on_way = |sample: &Sample| Some(sample.cpu_us);
        rows.push(vec![
            target.name().to_owned(),
            cell(results.spread(server, target, on_way), 1),
            wide(results.against_native(server, target, on_way, ratio), 2),
            cell(results.spread(server, target, |sample| Some(sample.cpu_all_us)), 1),
            cell(results.spread(server, target, |sample| Some(sample.cpu_load_us)), 1),
            cell(results.spread(server, target, |sample| known(sample.busy.clients)), 2),
            cell(results.spread(server, target, |sample| known(sample.busy.target)), 2),
        ]);
    }
    table(&rows)
}

/// Earlier results lack it.
fn known(cores: f64) -> Option<f64> {
    (cores > 0.0).then_some(cores)
}

fn bytes(results: &Results, server: Server) -> String {
    let head = [
        "A request",
        "bytes between nodes",
        "bytes to disks",
        "requests an entry",
        "trapped calls a request",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for target in Target::of(server) {
        rows.push(vec![
            target.name().to_owned(),
            cell(results.spread(server, target, |sample| sample.wire_bytes), 0),
            cell(results.spread(server, target, |sample| sample.disk_bytes), 0),
            cell(results.spread(server, target, |sample| sample.requests_per_entry), 1),
            cell(results.spread(server, target, |sample| sample.traps_per_request), 3),
        ]);
    }
    table(&rows)
}

/// The trapped calls, the most frequent ones first; nothing where there are hardly any.
fn traps(results: &Results, server: Server) -> String {
    let targets: Vec<Target> =
        Target::of(server).filter(|target| names_traps(results, server, *target)).collect();
    let samples = results.samples.iter().filter(|sample| sample.server == server);
    let names: BTreeSet<&String> =
        samples.flat_map(|sample| &sample.trapped_calls).flat_map(BTreeMap::keys).collect();
    let mut calls: Vec<(f64, &String, Vec<String>)> = Vec::new();
    for name in names {
        let of = |target: &Target| {
            results.spread(server, *target, |sample| {
                Some(sample.trapped_calls.as_ref()?.get(name).copied().unwrap_or(0.0))
            })
        };
        let found: Vec<Option<Spread>> = targets.iter().map(of).collect();
        let most = found.iter().flatten().map(|at| at.median).fold(0.0, f64::max);
        if most >= TRAPS_SHOWN {
            calls.push((most, name, found.into_iter().map(|at| cell(at, 3)).collect()));
        }
    }
    if calls.is_empty() {
        return String::new();
    }
    calls.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut head = vec!["Trapped calls a request".to_owned()];
    head.extend(targets.iter().map(|target| target.name().to_owned()));
    let mut rows = vec![head];
    for (_, name, mut numbers) in calls {
        numbers.insert(0, format!("`{name}`"));
        rows.push(numbers);
    }
    table(&rows)
}

/// Whether the names of the trapped calls are known.
fn names_traps(results: &Results, server: Server, target: Target) -> bool {
    results.of(server, target).any(|sample| sample.trapped_calls.is_some())
}

fn latency(results: &Results, server: Server) -> String {
    let what = format!("Latency of {}", label(server.workload().alone_operation()));
    let head = [
        what.as_str(),
        "one: p50 us",
        "added",
        "p99 us",
        "p999 us",
        "crowd: p50 us",
        "p99 us",
        "p999 us",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for target in Target::of(server) {
        let p50 = |sample: &Sample| Some(sample.alone.p50_us);
        let median =
            |measure: fn(&Sample) -> Option<f64>| cell(results.spread(server, target, measure), 0);
        rows.push(vec![
            target.name().to_owned(),
            median(p50),
            wide(results.against_native(server, target, p50, added), 0),
            median(|sample| Some(sample.alone.p99_us)),
            median(|sample| sample.alone.p999_us),
            median(|sample| sample.throughput.first().map(|at| at.p50_us)),
            median(|sample| sample.throughput.first().map(|at| at.p99_us)),
            median(|sample| sample.throughput.first().and_then(|at| at.p999_us)),
        ]);
    }
    table(&rows)
}

/// More than native.
pub fn added(sample: f64, native: f64) -> f64 {
    sample - native
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A sample as it was stored before calls had names.
    fn sample(target: &str, round: u32) -> Value {
        json!({
            "server": "redis", "target": target, "round": round, "load_average": 0.5, "throughput": [],
            "cpu_us": 1.0, "cpu_all_us": 1.0, "cpu_load_us": 1.0, "requests_per_entry": 2.0,
            "traps_per_request": 0.5, "alone": {"p50_us": 1.0, "p99_us": 2.0, "requests": 1},
        })
    }

    fn named(target: &str, round: u32, calls: &Value) -> Value {
        let mut sample = sample(target, round);
        sample["trapped_calls"] = calls.clone();
        sample
    }

    fn results(samples: &[Value]) -> Results {
        let about = serde_json::to_value(crate::about::About::default()).expect("a head");
        let mut all = json!({"requests": 1, "clients": 1, "outages_ms": [], "failures": []});
        for (key, value) in about.as_object().expect("fields") {
            all[key] = value.clone();
        }
        all["samples"] = samples.into();
        serde_json::from_value(all).expect("a file of results")
    }

    #[test]
    fn calls_that_are_trapped_are_named_with_the_most_frequent_first() {
        let text = tables(&results(&[
            named("native", 0, &Value::Null),
            named("skein-1-memory", 0, &json!({"clone": 0.25, "rdtsc": 2.0, "uname": 0.000_5})),
            named("skein-3-memory", 0, &json!({"clone": 0.001})),
            named("skein-3-memory", 1, &json!({"clone": 0.001})),
            // A call that occurs once in one round is no cost of a request.
            named("skein-3-memory", 2, &json!({"write": 0.3})),
        ]));
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.starts_with("| Trapped calls"))
            .take_while(|line| !line.is_empty())
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows[0][1..], ["Skein, 1 replica, memory", "Skein, 3 replicas, memory"]);
        assert_eq!(rows[2], ["`rdtsc`", "2.000", "0.000"]);
        assert_eq!(rows[3], ["`clone`", "0.250", "0.001"]);
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn without_trapped_calls_there_is_no_table_of_them() {
        let none = results(&[named("skein-1-memory", 0, &json!({}))]);
        let earlier = results(&[sample("skein-1-memory", 0)]);
        for text in [tables(&none), tables(&earlier)] {
            assert!(text.contains("trapped calls a request") && !text.contains("| Trapped calls"));
            assert!(!text.contains("\n\n\n"), "{text}");
        }
    }
}
