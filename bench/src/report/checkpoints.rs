//! `bench/reports/checkpoints.md`: checkpoints and standbys of others beside Skein's images and `--mode standby`.
//!
//! Their figures are data (`bench/papers`), ours are points of `bench/results/growth.json`.

use std::fmt::Write as _;

use super::Page;
use super::papers::{Checkpoint, Paper, Papers, Standby, Told, ratio_of};
use super::peers::wrapped;
use super::text::{number, table};
use crate::about;
use crate::growth::{self, Growth, criu};
use skein_testkit::Outcome;

const PATH: &str = "bench/reports/checkpoints.md";

/// Clients of the standbys' rows: the most that are measured, and one for latencies.
const CROWD: f64 = 50.0;
const ALONE: f64 = 1.0;

/// The document; nothing without measurements.
pub fn pages() -> Outcome<Vec<Page>> {
    let Some(growth) = about::read::<Growth>(&growth::stored())? else { return Ok(Vec::new()) };
    let text = text(&growth, &Papers::read()?);
    Ok(vec![Page { path: PATH.to_owned(), text }])
}

fn text(growth: &Growth, papers: &Papers) -> String {
    let mut text = "# Checkpoints and standbys\n\n\
         Written by `cargo xtask bench --report` from `bench/results/growth.json` and `bench/papers`. Don't edit it by hand.\n\n"
        .to_owned();
    text.push_str(&wrapped("", INTRODUCTION));
    text.push_str("\n## How long a server stands, and how long it takes to continue\n\n");
    text.push_str(&checkpoints(growth, &papers.0));
    text.push('\n');
    text.push_str(&wrapped("", CHECKPOINTS));
    text.push('\n');
    for paper in papers.0.iter().filter(|paper| !paper.checkpoints.is_empty()) {
        let item = format!("**{}** ({}): {}", paper.name, paper.title, paper.setting);
        text.push_str(&wrapped("- ", &item));
    }
    for paper in papers.0.iter().filter(|paper| !paper.standbys.is_empty()) {
        let _ =
            write!(text, "\n## A standby beside {}\n\n{}\n", paper.name, standbys(growth, paper));
        text.push_str(&wrapped("", STANDBYS));
    }
    text
}

const INTRODUCTION: &str = "Theirs by their own account, but for CRIU; each on other machines, so that only the order of magnitude compares. Ours: \
    [how it grows](growth.md), which says how each is measured.";

const CHECKPOINTS: &str = "Ours: of a follower's image and a lone replica's what changed since the one before is read, most of it before the server \
    stands, and clients wait for a lone replica's only; restored is a killed node, from `kill -9` until it is in step (`cargo xtask bench growth images forks restores`). \
    A standby's leader under load: the median, and the most, one image a second; its passive replica answers a single client so long after a kill \
    (`cargo xtask bench growth standby`). A dash: nothing of it was measured, or is told. RRC's restore: \
    its whole recovery, after 90 ms of detection.";

const STANDBYS: &str = "Requests: a ratio to the same server without replication by throughput, theirs with as many clients as load the server fully, ours with 50; \
    RRC with ten checkpoints a second and with one, Skein with one image. CPU: times what the stock server takes for the same work, which includes that work itself \
    at the primary and the leader; RRC's of Table 3 with ten checkpoints a second, at its backup a part for packets in the kernel (86 % of 141 % for Redis); Skein's \
    is of all processes below a node. Latency: theirs average at half load over a network, ours median of one client on the same machine. \
    RRC has two hosts; the third of Skein's has the witness. `cargo xtask bench growth standby` measures ours.";

/// A figure of a point, if it was measured.
fn figure(growth: &Growth, topic: &str, curve: &str, x: f64, key: &str) -> Option<f64> {
    let mut points = growth.points.iter();
    let is_it = |at: &&growth::Point| at.topic == topic && at.curve == curve && at.x == x;
    points.find(is_it)?.values.get(key).copied()
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| number(value, digits))
}

fn told(told: &Told) -> String {
    match told {
        Told::Number(value) => number(*value, usize::from(value.fract() != 0.0)),
        Told::Words(words) => words.clone(),
    }
}

fn checkpoints(growth: &Growth, papers: &[Paper]) -> String {
    let head =
        ["by", "of", "the server stands, ms", "until it is stored, ms", "restored after, ms", "in"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut ours = |of: String, stands, stored, restored| {
        let place = "[growth](growth.md)".to_owned();
        rows.push(vec!["Skein".to_owned(), of, stands, stored, restored, place]);
    };
    for mib in [16.0, 256.0, 512.0] {
        let image = |key| figure(growth, "images", "redis, 3 replicas, 1 % changed", mib, key);
        let back = figure(growth, "restores", "redis, 3 replicas, fsync", mib, "back_ms");
        let of = format!("a follower's redis with {mib} MiB, 1 % changed");
        ours(of, shown(image("stood_ms"), 1), shown(image("took_ms"), 0), shown(back, 0));
    }
    for percent in [1, 10] {
        let curve = format!("redis, 1 replica, {percent} % changed");
        let image = |key| figure(growth, "images", &curve, 256.0, key);
        let of = format!("a lone redis with 256 MiB, {percent} % changed");
        ours(of, shown(image("stood_ms"), 1), shown(image("took_ms"), 0), shown(None, 0));
    }
    for (topic, curve, of) in [
        ("images", "redis, 1 replica, its first image", "its first image"),
        ("forks", "redis, 1 replica, written meanwhile", "written meanwhile: it forks"),
    ] {
        let image = |key| figure(growth, topic, curve, 256.0, key);
        let of = format!("a lone redis with 256 MiB, {of}");
        ours(of, shown(image("stood_ms"), 1), shown(image("took_ms"), 0), shown(None, 0));
    }
    for server in ["redis", "memcached", "lighttpd"] {
        let curve = format!("{server}, standby, memory");
        let of = |curve: &str, x, keys: [&str; 2], digits| {
            let [median, most] = keys.map(|key| figure(growth, "standby", curve, x, key));
            most.map_or(shown(median, digits), |most| {
                format!("{} ({})", shown(median, digits), number(most, digits))
            })
        };
        let stood = of(&curve, CROWD, ["stood_ms", "stood_max_ms"], 1);
        let killed = format!("{curve}, leader killed");
        let restored = of(&killed, ALONE, ["recovered_ms", "recovered_max_ms"], 0);
        ours(format!("a standby's {server} under load"), stood, shown(None, 0), restored);
    }
    // What was measured by hand has a place where nothing else was.
    let mut by_criu = Vec::new();
    for mib in [16.0, 256.0] {
        let of = |key| figure(growth, criu::TOPIC.name, criu::CRIU, mib, key);
        if let (Some(stands), Some(back)) = (of("stood_ms"), of("back_ms")) {
            let what = format!("redis with {mib} MiB: all of it");
            let [stands, back] = [stands, back].map(|ms| number(ms, 0));
            let place = "[growth](growth.md)".to_owned();
            by_criu.push(vec!["CRIU".to_owned(), what, stands.clone(), stands, back, place]);
        }
    }
    let papers = papers.iter().filter(|paper| by_criu.is_empty() || paper.name != "CRIU");
    rows.extend(by_criu.iter().cloned());
    for paper in papers {
        for Checkpoint { place, what, pause_ms, stored_ms, restore_ms } in &paper.checkpoints {
            let stored = stored_ms.as_ref().map_or("-".to_owned(), told);
            let (pause, restore) = (told(pause_ms), told(restore_ms));
            let name = paper.name.clone();
            rows.push(vec![name, what.clone(), pause, stored, restore, place.clone()]);
        }
    }
    table(&rows)
}

fn standbys(growth: &Growth, paper: &Paper) -> String {
    let name = &paper.name;
    let head = [
        "".to_owned(),
        format!("in {name}"),
        format!("requests: {name}, ten a second"),
        "one a second".to_owned(),
        "Skein, memory".to_owned(),
        "fsync".to_owned(),
        format!("CPU: {name}'s primary"),
        "Skein's leader, memory".to_owned(),
        format!("{name}'s backup"),
        "Skein's passive, memory".to_owned(),
        "witness".to_owned(),
        format!("latency: {name}"),
        "Skein, memory".to_owned(),
        "fsync".to_owned(),
    ];
    let mut rows = vec![head.to_vec()];
    for at in &paper.standbys {
        let Standby { place, server, ours, overhead_percent, .. } = at;
        let of = |way: &str, clients, key: (&str, &str)| {
            let native = figure(growth, "standby", &format!("{ours}, native"), clients, key.1)?;
            let curve = format!("{ours}, standby, {way}");
            Some(figure(growth, "standby", &curve, clients, key.0)? / native)
        };
        let requests = |way| shown(of(way, CROWD, ("per_second", "per_second")), 2);
        let cpu = |key| shown(of("memory", CROWD, (key, "leader_us")), 2);
        let latency = |way| shown(of(way, ALONE, ("p50_us", "p50_us")), 2);
        let theirs = |at: usize| shown(overhead_percent.get(at).map(|more| ratio_of(*more)), 2);
        let mut latencies = paper.latencies.iter();
        let same = latencies.find(|latency| latency.ours.as_ref() == Some(ours));
        rows.push(vec![
            server.clone(),
            place.clone(),
            theirs(0),
            theirs(1),
            requests("memory"),
            requests("fsync"),
            number(1.0 + at.primary_cpu_percent / 100.0, 2),
            cpu("leader_us"),
            number(at.backup_cpu_percent / 100.0, 2),
            cpu("passive_us"),
            cpu("witness_us"),
            shown(same.map(|latency| latency.replicated_us / latency.stock_us), 2),
            latency("memory"),
            latency("fsync"),
        ]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::Point;

    fn point(topic: &str, curve: &str, x: f64, values: &[(&str, f64)]) -> Point {
        let values = values.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        let (topic, curve) = (topic.to_owned(), curve.to_owned());
        Point { topic, curve, x, values, commit: String::new(), cpu: String::new() }
    }

    fn row(text: &str, start: &str) -> Vec<String> {
        let found = text.lines().find(|line| line.starts_with(start));
        let cells = found.unwrap_or_else(|| panic!("{start} in {text}")).split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn theirs_and_ours_stand_in_one_table() {
        let points = vec![
            point(
                "images",
                "redis, 3 replicas, 1 % changed",
                256.0,
                &[("stood_ms", 3.5), ("took_ms", 59.0)],
            ),
            point("restores", "redis, 3 replicas, fsync", 256.0, &[("back_ms", 333.0)]),
            point("standby", "redis, native", 50.0, &[("per_second", 200.0), ("leader_us", 5.0)]),
            point(
                "standby",
                "redis, standby, memory",
                50.0,
                &[
                    ("per_second", 100.0),
                    ("leader_us", 10.0),
                    ("passive_us", 1.0),
                    ("stood_ms", 4.6),
                    ("stood_max_ms", 30.0),
                ],
            ),
            point(
                "standby",
                "redis, standby, memory, leader killed",
                1.0,
                &[("recovered_ms", 80.0), ("recovered_max_ms", 95.4)],
            ),
            point("standby", "redis, native", 1.0, &[("p50_us", 60.0)]),
            point("standby", "redis, standby, memory", 1.0, &[("p50_us", 150.0)]),
        ];
        let growth = Growth { points, ..Growth::default() };
        let text = text(&growth, &Papers::read().expect("the repository's own"));
        let ours = row(&text, "| Skein       | a follower's redis with 256 MiB");
        assert_eq!(ours[3..6], ["3.5", "59", "333"]);
        let none = row(&text, "| Skein       | a follower's redis with 16 MiB");
        assert_eq!(none[3..6], ["-", "-", "-"]);
        let standby = row(&text, "| Skein       | a standby's redis");
        assert_eq!(standby[3..6], ["4.6 (30.0)", "-", "80 (95)"]);
        assert_eq!(row(&text, "| Skein       | a standby's lighttpd")[3..6], ["-", "-", "-"]);
        let theirs = row(&text, "| CRANE       | MySQL: its process");
        assert_eq!(theirs[3..7], ["88", "-", "81", "Table 2, §7.6"]);
        assert_eq!(row(&text, "| gVisor ")[3], "no figures");
        let rrc = row(&text, "| Redis ");
        assert_eq!(rrc[2..7], ["Figure 3, Tables 3 to 5", "0.68", "0.76", "0.50", "-"]);
        assert_eq!(rrc[7..12], ["1.77", "2.00", "1.41", "0.20", "-"]);
        assert_eq!(rrc[12..15], ["1.49", "2.50", "-"]);
    }

    #[test]
    fn what_was_measured_stands_instead_of_what_was_by_hand() {
        let papers = Papers::read().expect("the repository's own");
        let mut growth = Growth::default();
        let by_hand = row(&checkpoints(&growth, &papers.0), "| CRIU        | redis with 256 MiB");
        assert_eq!(by_hand[3..7], ["466", "466", "281", "measured here"]);
        let values = [("stood_ms", 400.0), ("took_ms", 400.0), ("back_ms", 300.0)];
        growth.points.push(point("criu", criu::CRIU, 256.0, &values));
        let values = [("stood_ms", 2.9), ("took_ms", 70.0)];
        growth.points.push(point("forks", "redis, 1 replica, written meanwhile", 256.0, &values));
        let text = checkpoints(&growth, &papers.0);
        let measured = row(&text, "| CRIU        | redis with 256 MiB");
        assert_eq!(measured[3..7], ["400", "400", "300", "[growth](growth.md)"]);
        assert!(!text.contains("redis with 512 MiB: all"), "it is of the same table: {text}");
        let forks = row(&text, "| Skein       | a lone redis with 256 MiB, written meanwhile");
        assert_eq!(forks[3..5], ["2.9", "70"]);
    }
}
