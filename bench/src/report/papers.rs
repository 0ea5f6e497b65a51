//! The papers' figures beside Skein's, for servers that both ran.
//!
//! Their figures are data (`bench/papers/*.json`: figure, server, number, place in the paper, differences); ours
//! are the newest results of the servers. Only ratios to native stand in one row: machines differ.

use std::fmt::Write as _;

use serde::Deserialize;

use super::peers::wrapped;
use super::text::{cell, number, table, wide};
use crate::results::{Results, Sample};
use crate::servers::Server;
use crate::stats::Spread;
use crate::target::Target;
use skein_testkit::workspace;
use skein_testkit::{Failure, Outcome};

/// Directory of the data.
const FOLDER: &str = "bench/papers";

/// All papers.
pub struct Papers(pub(super) Vec<Paper>);

/// The figures of one paper, or of a program's own document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    pub(super) name: String,
    pub(super) title: String,
    /// Machines, versions, clients, and differences to Skein.
    pub(super) setting: String,
    #[serde(default)]
    overheads: Vec<Overhead>,
    #[serde(default)]
    pub(super) latencies: Vec<Latency>,
    #[serde(default)]
    bubbles: Vec<Bubbles>,
    #[serde(default)]
    outages: Vec<Outage>,
    /// Those of [`super::checkpoints`].
    #[serde(default)]
    pub(super) checkpoints: Vec<Checkpoint>,
    #[serde(default)]
    pub(super) standbys: Vec<Standby>,
}

/// How much longer the same work takes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overhead {
    place: String,
    server: String,
    /// Absent where the paper has a bar without a number.
    overhead_percent: Option<f64>,
    /// The paper's words where it gives no such percentage: bounds, or another baseline.
    says: Option<String>,
    ours: Option<String>,
    note: String,
}

/// Latency of a request, alone and replicated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Latency {
    place: String,
    server: String,
    pub(super) stock_us: f64,
    pub(super) replicated_us: f64,
    stock_p99_us: Option<f64>,
    replicated_p99_us: Option<f64>,
    pub(super) ours: Option<String>,
    note: String,
}

/// The number of agreed time bubbles beside the clients' inputs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bubbles {
    place: String,
    server: String,
    calls: f64,
    bubbles: f64,
    ours: Option<String>,
}

/// The outage when the primary is killed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outage {
    place: String,
    server: String,
    outage_ms: f64,
    note: String,
}

/// How long a server stands for a checkpoint, and how long it takes to continue from one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checkpoint {
    pub(super) place: String,
    /// The server, and how much of it.
    pub(super) what: String,
    pub(super) pause_ms: Told,
    pub(super) stored_ms: Option<Told>,
    pub(super) restore_ms: Told,
}

/// A number, or the source's words where it has none.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Told {
    Number(f64),
    Words(String),
}

/// A backup without a running server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Standby {
    pub(super) place: String,
    pub(super) server: String,
    pub(super) ours: String,
    /// How much longer the same work takes: with ten checkpoints a second, and with one where there is a number.
    pub(super) overhead_percent: Vec<f64>,
    /// CPU time for the same work that comes to the stock server's, at the primary
    pub(super) primary_cpu_percent: f64,
    /// and at the backup.
    pub(super) backup_cpu_percent: f64,
}

impl Papers {
    /// Reads all files, in the order of their names.
    pub fn read() -> Outcome<Self> {
        let folder = workspace::root().join(FOLDER);
        let failed = |error: std::io::Error| Failure::of(folder.display(), error);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        let one = |path: &std::path::PathBuf| {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::of(path.display(), error))?;
            serde_json::from_str(&text).map_err(|error| Failure::of(path.display(), error))
        };
        Ok(Self(paths.iter().map(one).collect::<Outcome<_>>()?))
    }
}

impl Paper {
    /// Whether it has figures of requests; others have some of checkpoints only.
    fn is_compared_here(&self) -> bool {
        let tables = [self.overheads.len(), self.latencies.len(), self.bubbles.len()];
        tables.into_iter().chain([self.outages.len()]).any(|rows| rows > 0)
    }
}

/// Our targets that stand beside theirs.
const TARGETS: [Target; 3] = [Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync];

/// The section of the page.
pub fn section(papers: &Papers, latest: &Results) -> String {
    let mut text = "## What the papers measured\n\n".to_owned();
    text.push_str(&wrapped(
        "",
        "Theirs are read from the papers' text; ours are the newest results of `cargo xtask bench` (commit and machine: \
         [servers](servers.md)). Ratios are to the same server without replication on the same machine, by throughput: an \
         overhead of 25 % more time is a ratio of 0.80. Theirs ran each replica on a machine of its own with many cores, ours \
         run all replicas and the clients on two; the column of one replica has what Skein costs without that.",
    ));
    for paper in papers.0.iter().filter(|paper| paper.is_compared_here()) {
        let _ = writeln!(text, "\n### {}: {}\n", paper.name, paper.title);
        text.push_str(&wrapped("", &paper.setting));
        if !paper.overheads.is_empty() {
            let _ = write!(text, "\n{}\n", overheads(paper, latest));
            for row in &paper.overheads {
                text.push_str(&wrapped("- ", &format!("**{}**: {}", row.server, row.note)));
            }
        }
        if !paper.latencies.is_empty() {
            let _ = write!(text, "\n{}\n", latencies(paper, latest));
            for row in &paper.latencies {
                text.push_str(&wrapped("- ", &format!("**{}**: {}", row.server, row.note)));
            }
        }
        if !paper.outages.is_empty() {
            let _ = write!(text, "\n{}\n", outages(paper, latest));
            for row in &paper.outages {
                text.push_str(&wrapped("- ", &format!("**{}**: {}", row.server, row.note)));
            }
        }
        if !paper.bubbles.is_empty() {
            let _ = write!(text, "\n{}\n", bubbles(paper, latest));
            text.push_str(&wrapped("", BUBBLES));
        }
    }
    text
}

/// An explanation of the table of bubbles.
const BUBBLES: &str = "CRANE agrees on each socket call of a client by itself; a time bubble stands for a stretch without any. Skein \
    gathers all that clients send in one turn of the leader's loop into one entry, and makes a bubble where a busy server gets \
    no input for a while, and an entry for the clock where a timer of the server is due. Shares are of all entries \
    that the leader proposed while the crowd was there (three replicas, memory).";

/// Our server that a row names, if it was measured.
fn ours(name: Option<&String>) -> Option<Server> {
    Server::ALL.iter().copied().find(|server| Some(server.name()) == name.map(String::as_str))
}

/// Requests a second of the first operation.
fn rate(sample: &Sample) -> Option<f64> {
    sample.throughput.first().map(|at| at.per_second)
}

/// `overhead_percent` more time as a ratio to native.
pub(super) fn ratio_of(overhead_percent: f64) -> f64 {
    1.0 / (1.0 + overhead_percent / 100.0)
}

fn overheads(paper: &Paper, latest: &Results) -> String {
    let mut head = vec!["Of native".to_owned(), "in".to_owned(), paper.name.clone()];
    head.extend(TARGETS.map(|target| target.name().to_owned()));
    let mut rows = vec![head];
    for at in &paper.overheads {
        let theirs = match (at.overhead_percent, &at.says) {
            (Some(percent), _) => {
                format!("{} (+{percent} % time)", number(ratio_of(percent), 2))
            }
            (None, Some(words)) => words.clone(),
            (None, None) => "no number".to_owned(),
        };
        let mut row = vec![at.server.clone(), at.place.clone(), theirs];
        for target in TARGETS {
            let found = ours(at.ours.as_ref()).and_then(|server| {
                latest.against_native(server, target, rate, |sample, native| sample / native)
            });
            row.push(wide(found, 2));
        }
        rows.push(row);
    }
    table(&rows)
}

fn latencies(paper: &Paper, latest: &Results) -> String {
    let head = [
        "One request [us]",
        "in",
        "theirs: stock",
        &paper.name,
        "times",
        "p99: stock",
        &paper.name,
        "ours: native",
        "Skein, 3 replicas, memory",
        "times",
        "p99: native",
        "Skein, 3 replicas, memory",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for at in &paper.latencies {
        let us = |value: Option<f64>| cell(value.and_then(|value| Spread::of(vec![value])), 0);
        let mut row = vec![at.server.clone(), at.place.clone()];
        row.extend([us(Some(at.stock_us)), us(Some(at.replicated_us))]);
        row.push(number(at.replicated_us / at.stock_us, 2));
        row.extend([us(at.stock_p99_us), us(at.replicated_p99_us)]);
        let server = ours(at.ours.as_ref());
        let p50 = |sample: &Sample| Some(sample.alone.p50_us);
        let p99 = |sample: &Sample| Some(sample.alone.p99_us);
        let of = |target, measure: fn(&Sample) -> Option<f64>| {
            cell(server.and_then(|server| latest.spread(server, target, measure)), 0)
        };
        row.extend([of(Target::Native, p50), of(Target::ThreeMemory, p50)]);
        let times = server.and_then(|server| {
            latest
                .against_native(server, Target::ThreeMemory, p50, |sample, native| sample / native)
        });
        row.push(wide(times, 2));
        row.extend([of(Target::Native, p99), of(Target::ThreeMemory, p99)]);
        rows.push(row);
    }
    table(&rows)
}

/// Ours is the outage of the README and of the goals: one server stands for all.
fn outages(paper: &Paper, latest: &Results) -> String {
    let head =
        ["Primary killed, no answers for [ms]", "in", &paper.name, Target::ThreeFsync.name()];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for at in &paper.outages {
        let ours = Spread::of(latest.outages_ms.clone());
        let theirs = number(at.outage_ms, 0);
        rows.push(vec![at.server.clone(), at.place.clone(), theirs, wide(ours, 0)]);
    }
    table(&rows)
}

fn bubbles(paper: &Paper, latest: &Results) -> String {
    let theirs = format!("{}: socket calls", paper.name);
    let head = [
        theirs.as_str(),
        "in",
        "calls",
        "time bubbles",
        "share",
        "ours",
        "requests an entry",
        "bubbles",
        "clock entries",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for at in &paper.bubbles {
        let server = ours(at.ours.as_ref());
        let share = at.bubbles / (at.bubbles + at.calls) * 100.0;
        let of = |measure: fn(&Sample) -> Option<f64>| {
            server.and_then(|server| latest.spread(server, Target::ThreeMemory, measure))
        };
        let percent = |spread: Option<Spread>| match spread {
            Some(_) => format!("{} %", wide(spread, 2)),
            None => "-".to_owned(),
        };
        rows.push(vec![
            at.server.clone(),
            at.place.clone(),
            number(at.calls, 0),
            number(at.bubbles, 0),
            format!("{} %", number(share, 2)),
            server.map_or("-", Server::name).to_owned(),
            wide(of(|sample| sample.requests_per_entry), 1),
            percent(of(|sample| sample.bubbles_percent)),
            percent(of(|sample| sample.clocks_percent)),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::About;
    use crate::load::{Alone, Throughput};
    use crate::results::Busy;

    fn sample(target: Target, per_second: f64, p50_us: f64) -> Sample {
        let throughput = vec![Throughput {
            operation: "set".to_owned(),
            per_second,
            p50_us,
            p99_us: 1.0,
            p999_us: None,
        }];
        Sample {
            server: Server::Redis,
            target,
            round: 0,
            load_average: 0.0,
            throughput,
            cpu_us: 1.0,
            cpu_all_us: 1.0,
            cpu_load_us: 1.0,
            requests_per_entry: Some(4.0),
            traps_per_request: None,
            trapped_calls: None,
            busy: Busy::default(),
            wire_bytes: None,
            disk_bytes: None,
            bubbles_percent: Some(7.5),
            clocks_percent: Some(2.5),
            alone: Alone { p50_us, p99_us: 2.0 * p50_us, p999_us: None, requests: 1 },
        }
    }

    fn results() -> Results {
        Results {
            about: About::default(),
            requests: 1,
            clients: 1,
            samples: vec![
                sample(Target::Native, 100.0, 50.0),
                sample(Target::OneMemory, 90.0, 60.0),
                sample(Target::ThreeMemory, 50.0, 150.0),
            ],
            outages_ms: vec![9.0, 10.0, 5.0],
            failures: Vec::new(),
        }
    }

    const PAPER: &str = r#"{"name": "RRC", "title": "T", "setting": "Machines.",
        "overheads": [{"place": "Figure 3", "server": "Redis", "overhead_percent": 25, "ours": "redis", "note": "N"},
                      {"place": "Figure 3", "server": "SSDB", "note": "A bar."},
                      {"place": "Figure 7", "server": "SSDB 2", "says": "up to 25 % overhead", "note": "Words."}],
        "latencies": [{"place": "Table 4", "server": "Redis", "stock_us": 400, "replicated_us": 600, "ours": "redis", "note": "N"}],
        "bubbles": [{"place": "Table 1", "server": "Redis", "calls": 3000, "bubbles": 450, "ours": "redis"}],
        "outages": [{"place": "Figure 10", "server": "Redis", "outage_ms": 5000, "note": "N"}]}"#;

    #[test]
    fn theirs_and_ours_stand_in_one_row() {
        let paper: Paper = serde_json::from_str(PAPER).expect("its form");
        let text = section(&Papers(vec![paper]), &results());
        let rows: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| Redis") || line.starts_with("| SSDB"))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows[0][3..7], ["0.80 (+25 % time)", "0.90", "0.50", "-"]);
        assert_eq!(rows[1][3..7], ["no number", "-", "-", "-"]);
        assert_eq!(rows[2][3..7], ["up to 25 % overhead", "-", "-", "-"]);
        assert_eq!(rows[3][3..10], ["400", "600", "1.50", "-", "-", "50", "150"]);
        assert_eq!(rows[3][10..13], ["3.00", "100", "300"]);
        assert_eq!(rows[4][2..5], ["Figure 10", "5,000", "9 (5 to 10)"]);
        assert_eq!(rows[5][3..10], ["3,000", "450", "13.04 %", "redis", "4.0", "7.50 %", "2.50 %"]);
    }

    #[test]
    fn the_stored_papers_can_be_read() {
        let papers = Papers::read().expect("the repository's own");
        let names: Vec<&str> = papers.0.iter().map(|paper| paper.name.as_str()).collect();
        assert_eq!(names, ["CRANE", "CRIU", "Firecracker", "gVisor", "PLOVER", "Rex", "RRC"]);
        let compared = papers.0.iter().filter(|paper| paper.is_compared_here());
        let compared: Vec<&str> = compared.map(|paper| paper.name.as_str()).collect();
        assert_eq!(compared, ["CRANE", "Rex", "RRC"]);
    }
}
