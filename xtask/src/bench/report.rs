//! Results as tables: on the terminal, in `docs/performance.md` and, in short, in the README.
//!
//! Everything below is computed from the samples in the JSON, so that the documents cannot say
//! anything else than it does.

use std::fmt::Write as _;

use super::results::{Results, Sample, Spread};
use super::servers::Server;
use super::target::Target;
use crate::report::{Failure, Outcome};
use crate::workspace;

/// Between these lines the README's figures are replaced.
const README_BEGIN: &str = "<!-- figures: cargo xtask bench --report -->";
const README_END: &str = "<!-- end of figures -->";

/// Targets that have a leader.
const CLUSTERS: [Target; 3] = [Target::OneMemory, Target::ThreeMemory, Target::ThreeFsync];

/// Writes `docs/performance.md` and the README's figures.
pub fn write(results: &Results) -> Outcome {
    let put = |name: &str, text: String| {
        let path = workspace::root().join(name);
        std::fs::write(&path, text).map_err(|error| Failure::of(path.display(), error))
    };
    put("docs/performance.md", document(results))?;
    let readme = workspace::root().join("README.md");
    let text =
        std::fs::read_to_string(&readme).map_err(|error| Failure::of(readme.display(), error))?;
    let figures = format!("\n{}\n", goals(results));
    let replaced = replace_between(&text, README_BEGIN, README_END, &figures)
        .ok_or_else(|| Failure(format!("README.md has no line {README_BEGIN}")))?;
    put("README.md", replaced)
}

/// All tables.
pub fn tables(results: &Results) -> String {
    let mut text = String::new();
    for server in Server::ALL.into_iter().filter(|server| has(results, *server)) {
        let _ = writeln!(text, "## {}\n", heading(server, results.clients));
        let _ = writeln!(text, "{}", throughput(results, server));
        let _ = writeln!(text, "{}", cpu(results, server));
        let _ = writeln!(text, "{}", latency(results, server));
    }
    let _ = writeln!(text, "## Goals\n\n{}", goals(results));
    for failure in &results.failures {
        let _ = writeln!(text, "Not measured: {failure}\n");
    }
    text
}

fn document(results: &Results) -> String {
    let machine = &results.machine;
    let loads: Vec<f64> = results.samples.iter().map(|sample| sample.load_average).collect();
    let load = Spread::of(loads).map_or(String::new(), |load| {
        format!(
            "The load average beside the measurements was {:.1} ({:.1} to {:.1}); a part is the\n\
             benchmark's own, which keeps {} cores busy; what is above is other work on the machine, which makes the\n\
             figures worse and wider.\n",
            load.median, load.min, load.max, machine.cores
        )
    });
    let rounds = results.samples.iter().map(|sample| sample.round + 1).max().unwrap_or(0);
    format!(
        "# Performance\n\n\
         Written by `cargo xtask bench --report` from `bench/results/latest.json`, which holds every\n\
         sample. Don't edit it by hand. To measure again (some minutes; builds nothing, so `make build` first):\n\n    \
         {command}\n\n\
         ## How it was measured\n\n\
         - Commit {commit}, the newest when `skein` was built (`+`: the crates have been changed since, or were then); {versions}.\n\
         - {cpu}, {cores} cores for clients, servers and everything else; {memory} MiB; Linux {kernel}.\n\
         - One append of 512 bytes to the disk under the logs, made durable: {sync} us.\n\
         - Rounds: {rounds}. In each, every target is started fresh, measured and stopped, one after the\n  \
         other and in another order each time. Ratios are to native in the same round; a figure is the median\n  \
         of the rounds, in brackets the least and the most.\n\
         - Crowd: {clients} connections where a table says nothing else, each waits for its reply before it asks again, {requests}\n  \
         requests of each kind (MariaDB: 1,500 transactions; clamd: 4,000 files). redis: redis-benchmark, 3 byte values.\n  \
         memcached and the web servers: an own client of one thread, every reply compared with the right one.\n\
         - CPU time: user and system time from `/proc/PID/stat` of what a request passes through: the server with all\n  \
         its processes (and the proxy), or the leader's node and server.\n\
         - One client: requests one by one, nobody else there.\n\
         - Outage: three replicas with fsync, one client that writes without a pause and tries again every\n  \
         millisecond (a try is given up after 50 ms); the leader's node gets `kill -9`. From the last reply on the old\n  \
         connection to the first on a new one. {kills} kills.\n\n\
         {load}\n{tables}{reading}",
        command = results.command,
        commit = results.commit,
        versions = results.versions.join("; "),
        cpu = machine.cpu,
        cores = machine.cores,
        memory = machine.memory_mib,
        kernel = machine.kernel,
        sync = wide(Spread::of(machine.sync_us.clone()), 0),
        clients = results.clients,
        requests = results.requests,
        kills = results.outages_ms.len(),
        tables = tables(results),
        reading = READING,
    )
}

/// What does not change with the samples.
const READING: &str = "## Where the time goes\n\n\
    Measured: with one replica, more than half of the samples of the node are in `send`, one a reply, and some per cent in\n\
    `recv`, one a request; its own code is less than a tenth (`perf record -e cpu-clock -g -p NODE_PID` under\n\
    `redis-benchmark -t set -c 50`). With three replicas and fsync, a fifth of the leader's node and a third of a follower's is\n\
    `fdatasync`. The tables say the rest: the column of all replicas' CPU time how much of the two cores the other\n\
    replicas take, which on three machines would be elsewhere; the last column how few requests share what an entry costs:\n\
    with three replicas messages to and from two others, three wakes of a server and, with fsync, three durable writes.\n\n\
    Not proven, to be tried next: holding back an entry while one is on its way. A first try with fsync made three to\n\
    five times fewer entries; what that does for requests a second was less than the machine's noise. And a log\n\
    that is written ahead: about a quarter of the time in `fdatasync` is writing the inode of a file that grows.\n\n\
    The outage is that of a dead *process*, whose closed connections its peers see at once. A machine that falls silent is\n\
    noticed by missed heartbeats, which takes the election timeout; that is not measured here.\n";

fn has(results: &Results, server: Server) -> bool {
    results.samples.iter().any(|sample| sample.server == server)
}

fn heading(server: Server, clients: u32) -> String {
    let workload = server.workload();
    format!("{}: {} connections and one", workload.heading(), workload.clients(clients))
}

/// Servers with goals that were measured.
fn with_goals(results: &Results) -> Vec<Server> {
    let all = Server::ALL.into_iter();
    all.filter(|server| server.workload().has_goals() && has(results, *server)).collect()
}

fn per_second(sample: &Sample, operation: &str) -> Option<f64> {
    sample.throughput.iter().find(|at| at.operation == operation).map(|at| at.per_second)
}

fn ratio(sample: f64, native: f64) -> f64 {
    sample / native
}

fn throughput(results: &Results, server: Server) -> String {
    let operations = server.workload().operations();
    let mut head = vec![String::new()];
    for operation in operations {
        head.extend([format!("{}/s", label(operation)), "of native".to_owned()]);
    }
    let mut rows = vec![head];
    for target in Target::ALL {
        let mut row = vec![target.name().to_owned()];
        for operation in operations {
            let measure = |sample: &Sample| per_second(sample, operation);
            row.push(cell(results.spread(server, target, measure), 0));
            row.push(wide(results.against_native(server, target, measure, ratio), 2));
        }
        rows.push(row);
    }
    table(&rows)
}

/// `SET` and `GET` are commands; everything else is a word.
fn label(operation: &str) -> String {
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
        "requests an entry",
        "trapped calls a request",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for target in Target::ALL {
        let on_way = |sample: &Sample| Some(sample.cpu_us);
        rows.push(vec![
            target.name().to_owned(),
            cell(results.spread(server, target, on_way), 1),
            wide(results.against_native(server, target, on_way, ratio), 2),
            cell(results.spread(server, target, |sample| Some(sample.cpu_all_us)), 1),
            cell(results.spread(server, target, |sample| Some(sample.cpu_load_us)), 1),
            cell(results.spread(server, target, |sample| sample.requests_per_entry), 1),
            cell(results.spread(server, target, |sample| sample.traps_per_request), 3),
        ]);
    }
    table(&rows)
}

fn latency(results: &Results, server: Server) -> String {
    let what = format!("Latency of {}", label(server.workload().alone_operation()));
    let head =
        [what.as_str(), "one: p50 us", "added", "one: p99 us", "added", "crowd: p50 us", "p99 us"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let added = |sample: f64, native: f64| sample - native;
    for target in Target::ALL {
        let p50 = |sample: &Sample| Some(sample.alone.p50_us);
        let p99 = |sample: &Sample| Some(sample.alone.p99_us);
        let crowd_p50 = |sample: &Sample| sample.throughput.first().map(|at| at.p50_us);
        let crowd_p99 = |sample: &Sample| sample.throughput.first().map(|at| at.p99_us);
        rows.push(vec![
            target.name().to_owned(),
            cell(results.spread(server, target, p50), 0),
            wide(results.against_native(server, target, p50, added), 0),
            cell(results.spread(server, target, p99), 0),
            wide(results.against_native(server, target, p99, added), 0),
            cell(results.spread(server, target, crowd_p50), 0),
            cell(results.spread(server, target, crowd_p99), 0),
        ]);
    }
    table(&rows)
}

/// What was to be reached, what was, and by how much it is missed.
pub fn goals(results: &Results) -> String {
    let mut rows = vec![["Figure", "goal", "found", ""].map(str::to_owned).to_vec()];
    let mut row =
        |what: String, at_least: bool, goal: f64, digits: usize, found: Option<Spread>| {
            let sign = if at_least { ">=" } else { "<=" };
            let said = found.map_or("not measured".to_owned(), |found| {
                verdict(at_least, goal, found.median, digits)
            });
            rows.push(vec![what, format!("{sign} {goal}"), wide(found, digits), said]);
        };
    for (target, goal) in [(Target::OneMemory, 0.80), (Target::ThreeFsync, 0.40)] {
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
            row(what, false, 1.6, 2, found);
        }
    }
    for server in with_goals(results) {
        let p50 = |sample: &Sample| Some(sample.alone.p50_us);
        let added = |sample: f64, native: f64| sample - native;
        let found = results.against_native(server, Target::ThreeMemory, p50, added);
        let name = Target::ThreeMemory.name();
        row(format!("{name}: {}, one client, added p50 us", server.name()), false, 250.0, 0, found);
    }
    let outage = Spread::of(results.outages_ms.clone());
    row("Outage after kill -9 of the leader, ms".to_owned(), false, 200.0, 0, outage);
    table(&rows)
}

fn verdict(at_least: bool, goal: f64, found: f64, digits: usize) -> String {
    let short = if at_least { goal - found } else { found - goal };
    if short <= 0.0 {
        return "reached".to_owned();
    }
    // One digit more where the difference would vanish.
    let digits = if short < 0.5 * 0.1_f64.powi(digits as i32) { digits + 1 } else { digits };
    format!("missed by {short:.digits$} ({:.0} %)", short / goal * 100.0)
}

fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |spread| number(spread.median, digits))
}

fn wide(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |spread| {
        let [median, min, max] =
            [spread.median, spread.min, spread.max].map(|value| number(value, digits));
        if min == max { median } else { format!("{median} ({min} to {max})") }
    })
}

/// A number for people: thousands apart, no -0.
fn number(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    let (sign, plain) = plain.strip_prefix('-').map_or(("", plain.as_str()), |rest| ("-", rest));
    let sign = if plain.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) { sign } else { "" };
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut spaced = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            spaced.push(',');
        }
        spaced.push(digit);
    }
    format!("{sign}{spaced}{rest}")
}

/// A table that reads well as text and as Markdown; the first row is its head.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|-{:-<width$}-", "");
            }
            text.push_str("|\n");
        }
    }
    text
}

fn replace_between(text: &str, begin: &str, end: &str, new: &str) -> Option<String> {
    let from = text.find(begin)? + begin.len();
    let to = from + text[from..].find(end)?;
    Some(format!("{}\n{}{}", &text[..from], new.trim_start_matches('\n'), &text[to..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_says_by_how_much() {
        assert_eq!(verdict(true, 0.8, 0.8, 2), "reached");
        assert_eq!(verdict(true, 0.8, 0.6, 2), "missed by 0.20 (25 %)");
        assert_eq!(verdict(false, 200.0, 250.0, 0), "missed by 50 (25 %)");
        assert_eq!(verdict(false, 200.0, 20.0, 0), "reached");
        assert_eq!(verdict(true, 0.8, 0.797, 2), "missed by 0.003 (0 %)");
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(number(1_234_567.8, 0), "1,234,568");
        assert_eq!(number(-0.4, 0), "0");
        assert_eq!(number(-1_000.25, 1), "-1,000.2");
        assert_eq!(number(0.5, 2), "0.50");
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = "a\n<b>\nold\n<e>\nz\n";
        let new = replace_between(text, "<b>", "<e>", "\nnew\n").expect("both marks");
        assert_eq!(new, "a\n<b>\nnew\n<e>\nz\n");
        assert_eq!(replace_between(&new, "<b>", "<e>", "\nnew\n").as_deref(), Some(new.as_str()));
        assert_eq!(replace_between("a", "<b>", "<e>", ""), None);
    }
}
