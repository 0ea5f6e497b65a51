//! `bench/reports/comparison.md`: every comparison with its contenders' promises, and the papers' figures.

use std::fmt::Write as _;

use super::papers::{self, Papers};
use super::text::{cell, table, wide};
use super::{Page, latest};
use crate::about;
use crate::load::Throughput;
use crate::peers::sample::{self, Comparison, Fault, Kind, Peers, Sample};
use crate::peers::{ALL, Contender, Peer};
use crate::stats::Spread;
use skein_testkit::Outcome;

/// Path of the page.
const PATH: &str = "bench/reports/comparison.md";

/// The longest line of the page's prose.
const LINE: usize = 140;

/// The page made from the results.
pub fn pages() -> Outcome<Vec<Page>> {
    let peers: Peers = about::read(&sample::latest())?.unwrap_or_default();
    let papers = papers::section(&Papers::read()?, &latest()?);
    let mut text = HEAD.to_owned();
    for peer in ALL {
        let _ = writeln!(text, "\n## {}\n", peer.heading());
        match peers.comparisons.iter().find(|at| at.name == peer.name()) {
            Some(found) => text.push_str(&section(*peer, found)),
            None => {
                let _ =
                    writeln!(text, "Not measured yet: `cargo xtask bench peers {}`.", peer.name());
            }
        }
    }
    text.push('\n');
    text.push_str(&papers);
    Ok(vec![Page { path: PATH.to_owned(), text }])
}

/// The constant part of the page.
const HEAD: &str = "# Skein beside others

Written by `cargo xtask bench --report` from `bench/results/peers.json`, `bench/results/latest.json` and `bench/papers`. Don't edit it by
hand. To measure all peers again in one bounded run (ten minutes; `scripts/setup.sh bench` installs what is needed, and a
peer whose program is missing is left out with a line that says so):

    cargo xtask bench peers && cargo xtask bench --report

- Each contender is started afresh, measured and ended, one after the other and in another order each round, with the same
  clients, on one machine. **All replicas, sentinels and clients share its cores**: what a second and a third replica cost shows in
  throughput here, where three machines would share it.
- A figure is the median of the rounds, in brackets the least and the most; \"of first\" is the ratio to the first row in the same round.
- CPU: user and system time of all processes of all replicas, a request. Disk: bytes a request that they caused to be written
  (`/proc/PID/io`, whole pages each time). Under Skein a server's own files are in memory, and the log is what is on disk.
- \"One\": a client alone. \"Crowd\": all connections, each waits for its reply before it asks again.
- Lost: writes that were acknowledged to a client and cannot be read afterwards.
";

/// The tables of one comparison, for the terminal.
pub fn comparison(found: &Comparison) -> String {
    ALL.iter()
        .find(|peer| peer.name() == found.name)
        .map_or(String::new(), |peer| format!("## {}\n\n{}", peer.heading(), tables(*peer, found)))
}

fn section(peer: &dyn Peer, found: &Comparison) -> String {
    let mut text = wrapped("", peer.work());
    text.push('\n');
    let about = &found.about;
    let loads = found.samples.iter().map(|sample| sample.load_average).collect();
    let rounds = found.samples.iter().map(|sample| sample.round + 1).max().unwrap_or(0);
    let how = format!(
        "Measured on {} in {rounds} {}, commit {}: `{}`; {}; {}, {} cores; an append of 512 bytes made durable: {} us; load average {}.",
        about.day(),
        if rounds == 1 { "round" } else { "rounds" },
        about.commit,
        about.command,
        about.versions.join("; "),
        about.machine.cpu,
        about.machine.cores,
        wide(Spread::of(about.machine.sync_us.clone()), 0),
        wide(Spread::of(loads), 1),
    );
    text.push_str(&wrapped("", &how));
    text.push('\n');
    text.push_str(&tables(peer, found));
    text.push_str("What each promises:\n\n");
    for contender in peer.contenders() {
        text.push_str(&wrapped("- ", &format!("**{}**: {}", contender.name, contender.promise)));
    }
    text
}

fn tables(peer: &dyn Peer, found: &Comparison) -> String {
    let mut text = String::new();
    if !peer.operations().is_empty() {
        let _ = writeln!(text, "{}", throughput(peer, found));
        let _ = writeln!(text, "{}", latency(peer, found));
    }
    if found.samples.iter().any(|sample| !sample.found.faults.is_empty()) {
        let _ = writeln!(text, "{}", faults(peer, found));
    }
    for failure in &found.failures {
        let _ = writeln!(text, "Not measured: {failure}\n");
    }
    text
}

/// A figure of a contender's samples.
fn spread(
    found: &Comparison,
    contender: &Contender,
    measure: impl Fn(&Sample) -> Option<f64>,
) -> Option<Spread> {
    Spread::of(found.of(contender.id).filter_map(measure).collect())
}

/// The same, each divided by the first contender's of its round.
fn of_first(
    peer: &dyn Peer,
    found: &Comparison,
    contender: &Contender,
    measure: impl Fn(&Sample) -> Option<f64>,
) -> Option<Spread> {
    let first = peer.contenders().first()?;
    let ratio = |sample: &Sample| {
        let base = found.of(first.id).find(|at| at.round == sample.round)?;
        Some(measure(sample)? / measure(base)?)
    };
    Spread::of(found.of(contender.id).filter_map(ratio).collect())
}

fn operation<'a>(sample: &'a Sample, name: &str) -> Option<&'a Throughput> {
    sample.found.operations.iter().find(|at| at.operation == name)
}

/// `SET` is a command; all other names are words.
fn label(operation: &str) -> String {
    match operation {
        "set" | "get" | "put" => operation.to_uppercase(),
        word => word.to_owned(),
    }
}

fn throughput(peer: &dyn Peer, found: &Comparison) -> String {
    let mut head = vec![format!("{} connections", found.clients)];
    for name in peer.operations() {
        head.extend([format!("{}/s", label(name)), "of first".to_owned()]);
    }
    head.extend(["CPU us", "of first", "clients' CPU us", "disk B"].map(str::to_owned));
    let mut rows = vec![head];
    for contender in peer.contenders() {
        let mut row = vec![contender.name.to_owned()];
        for name in peer.operations() {
            let rate = |sample: &Sample| operation(sample, name).map(|at| at.per_second);
            row.push(cell(spread(found, contender, rate), 0));
            row.push(wide(of_first(peer, found, contender, rate), 2));
        }
        let cpu = |sample: &Sample| sample.found.cpu_us;
        row.push(cell(spread(found, contender, cpu), 0));
        row.push(wide(of_first(peer, found, contender, cpu), 1));
        row.push(cell(spread(found, contender, |at| at.found.cpu_load_us), 0));
        row.push(cell(spread(found, contender, |at| at.found.disk_bytes), 0));
        rows.push(row);
    }
    table(&rows)
}

fn latency(peer: &dyn Peer, found: &Comparison) -> String {
    let alone = peer.operations().first().map_or(String::new(), |name| label(name));
    let mut head = vec!["Latency [us]".to_owned(), format!("one: {alone} p50"), "p99".to_owned()];
    for name in peer.operations() {
        head.extend([format!("crowd: {} p50", label(name)), "p99".to_owned()]);
    }
    let mut rows = vec![head];
    for contender in peer.contenders() {
        let mut row = vec![contender.name.to_owned()];
        row.push(cell(spread(found, contender, |at| at.found.alone.map(|at| at.p50_us)), 0));
        row.push(cell(spread(found, contender, |at| at.found.alone.map(|at| at.p99_us)), 0));
        for name in peer.operations() {
            let p50 = |sample: &Sample| operation(sample, name).map(|at| at.p50_us);
            let p99 = |sample: &Sample| operation(sample, name).map(|at| at.p99_us);
            row.push(cell(spread(found, contender, p50), 0));
            row.push(cell(spread(found, contender, p99), 0));
        }
        rows.push(row);
    }
    table(&rows)
}

fn faults(peer: &dyn Peer, found: &Comparison) -> String {
    let head = ["", "fault", "times", "outage ms", "acknowledged writes", "lost"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (kind, name) in [(Kind::Kill, "killed"), (Kind::Pause, "stopped, continued")] {
        for contender in peer.contenders() {
            let all: Vec<&Fault> = found
                .of(contender.id)
                .flat_map(|sample| &sample.found.faults)
                .filter(|fault| fault.kind == kind)
                .collect();
            if all.is_empty() {
                continue;
            }
            let sum = |of: fn(&Fault) -> u64| all.iter().map(|fault| of(fault)).sum::<u64>() as f64;
            let count = |value: f64| cell(Spread::of(vec![value]), 0);
            rows.push(vec![
                contender.name.to_owned(),
                name.to_owned(),
                all.len().to_string(),
                wide(Spread::of(all.iter().map(|fault| fault.outage_ms).collect()), 0),
                count(sum(|fault| fault.acknowledged)),
                count(sum(|fault| fault.lost)),
            ]);
        }
    }
    table(&rows)
}

/// `text` as a paragraph, or an item of a list, of lines that are not too long.
pub fn wrapped(bullet: &str, text: &str) -> String {
    let mut out = String::new();
    let mut line = bullet.to_owned();
    for word in text.split_whitespace() {
        if line.len() + word.len() >= LINE && !line.trim().is_empty() {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(bullet.len());
        }
        line.push_str(word);
        line.push(' ');
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::About;
    use crate::peers::sample::{Finding, Lone};

    fn find(name: &str) -> Option<&'static dyn Peer> {
        ALL.iter().copied().find(|peer| peer.name() == name)
    }

    fn sample(contender: &str, round: u32, per_second: f64) -> Sample {
        let operation = |name: &str| Throughput {
            operation: name.to_owned(),
            per_second,
            p50_us: 400.0,
            p99_us: 900.0,
            p999_us: None,
        };
        Sample {
            contender: contender.to_owned(),
            round,
            load_average: 1.0,
            found: Finding {
                operations: vec![operation("set"), operation("get")],
                cpu_us: Some(10.0),
                cpu_load_us: Some(5.0),
                disk_bytes: Some(120.0),
                alone: Some(Lone { p50_us: 60.0, p99_us: 90.0 }),
                faults: Vec::new(),
            },
        }
    }

    fn comparison_of(name: &str, samples: Vec<Sample>) -> Comparison {
        Comparison {
            name: name.to_owned(),
            about: About::default(),
            clients: 50,
            samples,
            failures: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_to_the_first_of_the_same_round() {
        let found = comparison_of(
            "redis",
            vec![
                sample("alone", 0, 100_000.0),
                sample("wait-1", 0, 50_000.0),
                sample("alone", 1, 10_000.0),
                sample("wait-1", 1, 2_500.0),
                sample("wait-2", 2, 2_500.0),
            ],
        );
        let text = section(find("redis").expect("it is there"), &found);
        let row = text.lines().find(|line| line.contains("WAIT 1")).expect("a row");
        assert!(row.contains("0.25 (0.25 to 0.50)"), "{row}");
        let row = text.lines().find(|line| line.contains("WAIT 2")).expect("a row");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[2..4], ["2,500", "-"]);
        assert!(text.contains("- **Skein, 3 replicas, fsync**: A reply"), "{text}");
        assert!(text.contains("in 3 rounds"), "{text}");
    }

    #[test]
    fn what_was_lost_is_added_up() {
        let fault = |kind, outage_ms, lost| Fault { kind, outage_ms, acknowledged: 1_000, lost };
        let mut one = sample("sentinel", 0, 1.0);
        one.found.faults = vec![
            fault(Kind::Kill, 1_500.0, 2),
            fault(Kind::Kill, 1_700.0, 3),
            fault(Kind::Pause, 1_600.0, 9),
        ];
        one.found.operations.clear();
        let text =
            tables(find("sentinel").expect("it is there"), &comparison_of("sentinel", vec![one]));
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("3 sentinels")).collect();
        assert!(
            rows[0].contains("| 2     | 1,500 (1,500 to 1,700) | 2,000               | 5    |"),
            "{}",
            rows[0]
        );
        assert!(rows[1].contains("| 1,000               | 9    |"), "{}", rows[1]);
    }

    #[test]
    fn prose_is_wrapped() {
        let text = wrapped("- ", &"word ".repeat(60));
        assert!(text.lines().all(|line| line.len() <= LINE));
        assert!(
            text.starts_with("- word")
                && text.lines().nth(1).is_some_and(|at| at.starts_with("  word"))
        );
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 60);
    }
}
