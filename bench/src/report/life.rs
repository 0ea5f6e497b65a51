//! `bench/reports/life.md`, a cluster's life: what happened to it, and what clients, disk and memory showed of that.

use std::fmt::Write as _;

use super::Page;
use super::plots::{Axes, Lines};
use super::text::{number, table};
use crate::about;
use crate::life::{self, Life, Lives, Sample};
use crate::stats::Spread;
use skein_testkit::Outcome;

type Curve = (&'static str, fn(&Sample) -> f64);

/// A plot: its name in files, its title, its vertical axis, its curves.
type Plot = (&'static str, &'static str, &'static str, &'static [Curve]);

const PLOTS: &[Plot] = &[
    ("answers", "Requests answered", "a second", &[("redis SET", |at| at.per_second)]),
    (
        "bounds",
        "Disk and memory",
        "MiB",
        &[
            ("data directories", |at| at.disk_mib),
            ("nodes' memory", |at| at.nodes_mib),
            ("servers' memory", |at| at.servers_mib),
        ],
    ),
];

/// The document and its plots; nothing without measurements.
pub fn pages() -> Outcome<Vec<Page>> {
    let Some(lives) = about::read::<Lives>(&life::stored())? else { return Ok(Vec::new()) };
    let mut pages = vec![Page { path: "bench/reports/life.md".to_owned(), text: text(&lives) }];
    for (run, life) in &lives.runs {
        let marks: Vec<f64> = life.events.iter().map(|event| event.at_s).collect();
        for (name, title, y, curves) in PLOTS {
            let of = |value: fn(&Sample) -> f64| {
                life.samples.iter().map(|at| (at.at_s, value(at))).collect()
            };
            let curves = curves.iter().map(|(name, value)| (*name, of(*value))).collect();
            let axes = Axes::Linear(&marks);
            let lines = Lines { title, x: "seconds", y, curves, axes };
            pages.push(Page {
                path: format!("bench/reports/{}", plot(run, name)),
                text: lines.svg()?,
            });
        }
    }
    Ok(pages)
}

fn plot(run: &str, name: &str) -> String {
    format!("plots/life-{run}-{name}.svg")
}

fn text(lives: &Lives) -> String {
    let mut text = "# A cluster's life\n\n\
         Written by `cargo xtask bench --report` from `bench/results/life.json`. Don't edit it by hand.\n\n\
         Three replicas of a redis with an append-only file, with fsync, on one machine; 16 clients write values of 1 KiB to 20,000 keys, and one counts up.\n\
         Meanwhile replicas are killed, lose their disks, and get wrong memory, which is repaired. No acknowledged count was lost, none came twice, and all\n\
         replicas were equal at the end (`skein verify`), or the run fails.\n"
        .to_owned();
    for (run, life) in &lives.runs {
        one(&mut text, run, life);
    }
    text
}

fn one(text: &mut String, run: &str, life: &Life) {
    let about = &life.about;
    let load = match life.per_second {
        0 => "as many requests as are answered".to_owned(),
        paced => format!("{} requests a second", number(paced as f64, 0)),
    };
    let last = life.samples.last().map_or(0.0, |at| at.at_s);
    // Infallible: a string.
    let _ = write!(
        text,
        "\n## {} minutes, {load}\n\n`{}`, {} at commit {}; {} counts were acknowledged.\n\n",
        number(last / 60.0, 0),
        about.command,
        about.day(),
        about.commit,
        number(life.acknowledged as f64, 0),
    );
    let head =
        ["", "times", "until all are in step again, s", "longest time without an answer, ms"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut seen = Vec::new();
    for event in &life.events {
        if seen.contains(&&event.what) {
            continue;
        }
        seen.push(&event.what);
        let same = || life.events.iter().filter(|other| other.what == event.what);
        let spread = |values: Vec<f64>, digits| super::text::wide(Spread::of(values), digits);
        rows.push(vec![
            event.what.clone(),
            same().count().to_string(),
            spread(same().map(|at| at.took_s).collect(), 1),
            spread(same().map(|at| at.silent_ms).collect(), 0),
        ]);
    }
    let _ = write!(text, "{}\nMedians, with the least and the most.\n", table(&rows));
    // The beginning fills logs, images and memory.
    let (first, second) = life.samples.split_at(life.samples.len() / 2);
    let most = |of: &[Sample], value: fn(&Sample) -> f64| {
        number(of.iter().map(value).fold(0.0, f64::max), 0)
    };
    let mut rows = vec![["most, MiB", "first half", "second half"].map(str::to_owned).to_vec()];
    for (name, value) in PLOTS[1].3 {
        rows.push(vec![(*name).to_owned(), most(first, *value), most(second, *value)]);
    }
    let _ = write!(text, "\n{}\n", table(&rows));
    for (name, title, ..) in PLOTS {
        let _ = writeln!(text, "![{title}]({})", plot(run, name));
    }
}
