//! `bench/reports/life.md`, a cluster's life: what happened to it, and what clients, disk and memory showed of that.

use std::fmt::Write as _;

use super::Page;
use super::plots::{Axes, Lines};
use super::text::{number, table};
use crate::about;
use crate::life::{self, Life, Lives, Sample};
use crate::stats::Spread;
use skein_testkit::Outcome;

/// Answers count as usual again at this share of the run's median.
const USUAL: f64 = 0.8;

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
         Three, at times five, replicas of a redis with an append-only file on one machine, each a `skein node` with directories, a configuration and addresses of its\n\
         own; 16 clients write values of 1 KiB to 20,000 keys, and one counts up, and each tries the hosts in turn. Meanwhile nodes, servers, disks and hosts are lost and\n\
         replaced, members come and go, memory gets wrong and is repaired, and server, files and Skein are upgraded. After each event all replicas are in step again, and the\n\
         members, the edition, the program, the Skein that servers run with and a setting of redis are those that are wanted. No acknowledged count was lost, none came\n\
         twice, and all replicas were equal at the end (digests, and `skein verify`), or the run fails. Upright lines in the plots are events.\n"
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
    let log = match life.durability.as_str() {
        // Results of before there were hosts.
        "" => "nodes of one `skein run`",
        "memory" => "logs in memory",
        _ => "logs on the disk",
    };
    let last = life.samples.last().map_or(0.0, |at| at.at_s);
    // Infallible: a string.
    let _ = write!(
        text,
        "\n## {} minutes, {load}, {log}\n\n`{}`, {} at commit {}; {} counts were acknowledged.\n\n",
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
    if run == "full" {
        text.push_str(&beside_rex(life).unwrap_or_default());
    }
}

/// What Figure 10 of the Rex paper shows, in this run; nothing where no leader's node was killed.
fn beside_rex(life: &Life) -> Option<String> {
    let wide = |values: Vec<f64>, digits| super::text::wide(Spread::of(values), digits);
    let usual = Spread::of(life.samples.iter().map(|at| at.per_second).collect())?.median;
    let between = life.samples.windows(2).map(|two| two[1].at_s - two[0].at_s).collect();
    let of = |what: &str| {
        let all: Vec<_> = life.events.iter().filter(|event| event.what == what).collect();
        let back = all.iter().filter_map(|event| dip_s(life, event.at_s, usual));
        let longest = back.reduce(f64::max)?;
        let silent_ms = wide(all.iter().map(|event| event.silent_ms).collect(), 0);
        let took_s = wide(all.iter().map(|event| event.took_s).collect(), 1);
        Some((all.len(), silent_ms, took_s, number(longest, 0)))
    };
    let (kills, silent_ms, took_s, longest) = of(life::LEADER_KILLED)?;
    let mut text = format!(
        "\nBeside Figure 10 of [Rex](comparison.md), §6.6 (no answers for 5 s when the primary dies, and a dip of 30 s when it comes back): kills of the leader's node here: {kills};\n\
         there was no answer for {silent_ms} ms, and all replicas were in step again after {took_s} s, the killed one among them. At most {longest} s after a kill the answers in an\n\
         interval of {} s were at {} % of the run's median again.\n",
        number(Spread::of(between)?.median, 0),
        number(USUAL * 100.0, 0),
    );
    if let Some((images, silent_ms, took_s, longest)) = of(life::IMAGE_TAKEN) {
        let _ = write!(
            text,
            "The same figure has fewer answers for about 2 s at each checkpoint, which a secondary takes. Images of a follower here: {images}; there was no answer for {silent_ms} ms, and\n\
             all were in step after {took_s} s. At most {longest} s after one was begun the answers were at that share again.\n",
        );
    }
    Some(text)
}

/// The time from `at_s` to the end of the first interval with about as many answers as usual [s].
fn dip_s(life: &Life, at_s: f64, usual: f64) -> Option<f64> {
    let mut after = life.samples.iter().filter(|sample| sample.at_s > at_s);
    after.find(|sample| sample.per_second >= USUAL * usual).map(|sample| sample.at_s - at_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about::About;
    use crate::life::Event;

    /// A second each; the leader's node dies at 2.5 s.
    fn life(answers: &[f64]) -> Life {
        let sample = |(at, per_second): (usize, &f64)| Sample {
            at_s: at as f64 + 1.0,
            per_second: *per_second,
            disk_mib: 0.0,
            nodes_mib: 0.0,
            servers_mib: 0.0,
        };
        let what = life::LEADER_KILLED.to_owned();
        Life {
            about: About::default(),
            durability: "fsync".to_owned(),
            per_second: 0,
            acknowledged: 0,
            events: vec![Event { what, at_s: 2.5, took_s: 1.5, silent_ms: 60.0 }],
            samples: answers.iter().enumerate().map(sample).collect(),
        }
    }

    #[test]
    fn a_dip_lasts_until_answers_are_as_usual() {
        let life = life(&[100.0, 100.0, 10.0, 50.0, 90.0, 100.0]);
        assert_eq!(dip_s(&life, 2.5, 95.0), Some(2.5));
        let text = beside_rex(&life).expect("a kill");
        for part in ["leader's node here: 1;", "for 60 ms", "after 1.5 s", "80 %"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("checkpoint"), "there was none: {text}");
    }

    #[test]
    fn an_image_is_compared_with_a_checkpoint() {
        let mut life = life(&[100.0, 100.0, 10.0, 100.0, 100.0, 50.0, 95.0]);
        let what = life::IMAGE_TAKEN.to_owned();
        life.events.push(Event { what, at_s: 5.5, took_s: 0.2, silent_ms: 9.0 });
        let text = beside_rex(&life).expect("a kill");
        for part in ["a follower here: 1;", "for 9 ms", "after 0.2 s", "At most 2 s after one"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_run_without_a_kill_is_not_compared() {
        let mut life = life(&[100.0, 100.0]);
        life.events.clear();
        assert_eq!(beside_rex(&life), None);
    }
}
