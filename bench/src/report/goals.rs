//! The goals on two cores for everything, the results, and the distance between them.

use super::judged::{Row, shown};
use super::servers::{added, has, label, per_second, ratio};
use super::text::wide;
use crate::results::{Results, Sample};
use crate::servers::Server;
use crate::stats::Spread;
use crate::target::Target;

/// Requests a second, of native, at least.
const THROUGHPUT: [(Target, f64); 2] = [(Target::OneMemory, 0.95), (Target::ThreeFsync, 0.50)];
/// The leader's CPU time a request, of native, at most.
const CPU: f64 = 1.3;
/// Added latency of one client at most [us].
const ADDED_US: f64 = 150.0;
/// From the last answer of a killed leader to the first one of the next, at most [ms].
const OUTAGE_MS: f64 = 200.0;

/// Targets that have a leader.
const CLUSTERS: [Target; 3] = [Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync];

/// Servers with goals that were measured.
pub fn with_goals(results: &Results) -> Vec<Server> {
    let all = Server::ALL.iter().copied();
    all.filter(|server| server.workload().has_goals() && has(results, *server)).collect()
}

/// The table.
pub fn goals(results: &Results) -> String {
    let rows = rows(results);
    shown(&rows) + &bare(results)
}

/// All goals.
pub fn rows(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row =
        |name: String, at_least: bool, goal: f64, digits: usize, found: Option<Spread>| {
            rows.push(Row {
                name,
                at: String::new(),
                at_least,
                goal,
                goal_shown: goal.to_string(),
                found: found.map(|found| found.median),
                found_shown: wide(found, digits),
                digits,
            });
        };
    for (target, goal) in THROUGHPUT {
        for server in &with_goals(results) {
            for operation in server.workload().operations() {
                let measure = |sample: &Sample| per_second(sample, operation);
                let found = results.against_native(*server, target, measure, ratio);
                let (name, server) = (target.name(), server.name());
                let what = format!("{name}: {server} {}, of native", label(operation));
                row(what, true, goal, 2, found);
            }
        }
    }
    for target in CLUSTERS {
        for server in with_goals(results) {
            let cpu = |sample: &Sample| Some(sample.cpu_us);
            let found = results.against_native(server, target, cpu, ratio);
            let what = format!("{}: {} leader's CPU, of native", target.name(), server.name());
            row(what, false, CPU, 2, found);
        }
    }
    for server in with_goals(results) {
        let p50 = |sample: &Sample| Some(sample.alone.p50_us);
        let found = results.against_native(server, Target::ThreeMemory, p50, added);
        let name = Target::ThreeMemory.name();
        row(
            format!("{name}: {}, one client, added p50 us", server.name()),
            false,
            ADDED_US,
            0,
            found,
        );
    }
    let outage = Spread::of(results.outages_ms.clone());
    row("Outage after kill -9 of the leader, ms".to_owned(), false, OUTAGE_MS, 0, outage);
    rows
}

/// The result of bare replication; nothing where it was not measured.
fn bare(results: &Results) -> String {
    let found: Vec<String> = with_goals(results)
        .into_iter()
        .filter_map(|server| {
            let of = |measure: &dyn Fn(&Sample) -> Option<f64>| {
                let found = results.against_native(server, Target::Bare, measure, ratio)?;
                Some(wide(Some(found), 2))
            };
            let operations = server.workload().operations();
            let rates: Option<Vec<String>> = operations
                .iter()
                .map(|operation| {
                    let rate = of(&|sample| per_second(sample, operation))?;
                    Some(format!("{} {rate}", label(operation)))
                })
                .collect();
            let cpu = of(&|sample| Some(sample.cpu_us))?;
            Some(format!("{}: {}, leader's CPU {cpu}", server.name(), rates?.join(", ")))
        })
        .collect();
    if found.is_empty() {
        return String::new();
    }
    format!(
        "\nBeside the rows with fsync, what a simple store reaches that replicates and does nothing else (\"bare replication\"), of native:\n{}.\n",
        found.join(";\n")
    )
}
