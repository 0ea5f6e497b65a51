//! `bench/reports/life.md`, a cluster's life: what happened to it, and what clients, disk and memory showed of that.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Page;
use super::plots::{Axes, Lines};
use super::text::{number, table};
use crate::about;
use crate::life::{self, Around, Event, HALF_S, Life, Lives, Sample};
use crate::stats::Spread;
use skein_testkit::Outcome;

/// Answers count as usual again at this share of the run's median.
const USUAL: f64 = 0.8;

/// The plot of [`around_kills`].
const AROUND: &str = "kills";

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
        if let Some(text) = around_kills(life)? {
            pages.push(Page { path: format!("bench/reports/{}", plot(run, AROUND)), text });
        }
    }
    Ok(pages)
}

/// The plot of answers around kills of the leader's node; nothing where there are none, or none so fine.
fn around_kills(life: &Life) -> Outcome<Option<String>> {
    let kills = life.events.iter().filter(|event| event.what == life::LEADER_KILLED);
    // The half seconds of a run begin anywhere before a kill.
    let mut halves: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (at, rate) in kills.filter_map(|kill| kill.answers.as_ref()).flat_map(Around::points) {
        halves.entry((at / HALF_S).ceil() as i64).or_default().push(rate);
    }
    let Some(first) = halves.keys().next().copied() else { return Ok(None) };
    let x = |half: i64| (half - first + 1) as f64 * HALF_S;
    let of = |value: fn(Spread) -> f64| {
        let halves = halves.iter();
        halves
            .filter_map(|(half, rates)| Some((x(*half), value(Spread::of(rates.clone())?))))
            .collect()
    };
    let curves = vec![
        ("most", of(|spread| spread.max)),
        ("median", of(|spread| spread.median)),
        ("least", of(|spread| spread.min)),
    ];
    let kill = [x(0)];
    let axes = Axes::Linear(&kill);
    let title = "Requests answered, each half second, when the leader's node is killed";
    Lines { title, x: "seconds", y: "a second", curves, axes }.svg().map(Some)
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
    // Results of before do not have it.
    let is_fine = life.events.iter().any(|event| event.quiet_ms.is_some());
    let head = [
        "",
        "times",
        "until all are in step again, s",
        "longest time without an answer, ms",
        "to any client, until the next event, ms",
    ];
    let columns = if is_fine { head.len() } else { head.len() - 1 };
    let mut rows = vec![head[..columns].iter().map(|title| (*title).to_owned()).collect()];
    let mut seen = Vec::new();
    for event in &life.events {
        if seen.contains(&&event.what) {
            continue;
        }
        seen.push(&event.what);
        let same = || life.events.iter().filter(|other| other.what == event.what);
        let spread = |values: Vec<f64>, digits| super::text::wide(Spread::of(values), digits);
        let mut row = vec![
            event.what.clone(),
            same().count().to_string(),
            spread(same().map(|at| at.took_s).collect(), 1),
            spread(same().map(|at| at.silent_ms).collect(), 0),
            spread(same().filter_map(|at| at.quiet_ms).collect(), 0),
        ];
        row.truncate(columns);
        rows.push(row);
    }
    let _ = write!(text, "{}\nMedians, with the least and the most.", table(&rows));
    if is_fine {
        text.push_str(" The first time without an answer is that of the client that counts, until all are in step.");
    }
    text.push('\n');
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
    if life.events.iter().any(|event| event.what == life::LEADER_KILLED && event.answers.is_some())
    {
        let _ = writeln!(text, "![Requests answered around kills]({})", plot(run, AROUND));
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
    let between_s = Spread::of(between)?.median;
    let of = |what: &str| {
        let all: Vec<_> = life.events.iter().filter(|event| event.what == what).collect();
        let is_fine = all.iter().all(|event| event.answers.is_some());
        let dip_s = |event: &&Event| {
            if is_fine { fine_dip_s(event, usual) } else { dip_s(life, event.at_s, usual) }
        };
        let longest = all.iter().filter_map(dip_s).reduce(f64::max)?;
        let silent_ms = all.iter().map(|event| event.quiet_ms.unwrap_or(event.silent_ms));
        let silent_ms = wide(silent_ms.collect(), 0);
        let took_s = wide(all.iter().map(|event| event.took_s).collect(), 1);
        let (each_s, digits) = if is_fine { (HALF_S, 1) } else { (between_s, 0) };
        Some((all.len(), silent_ms, took_s, number(longest, digits), number(each_s, digits)))
    };
    let (kills, silent_ms, took_s, longest, each_s) = of(life::LEADER_KILLED)?;
    let mut text = format!(
        "\nBeside Figure 10 of [Rex](comparison.md), §6.6 (no answers for 5 s when the primary dies, and a dip of 30 s when it comes back): kills of the leader's node here: {kills};\n\
         there was no answer for {silent_ms} ms, and all replicas were in step again after {took_s} s, the killed one among them. At most {longest} s after a kill the answers in an\n\
         interval of {each_s} s were at {} % of the run's median again.\n",
        number(USUAL * 100.0, 0),
    );
    if let Some((images, silent_ms, took_s, longest, _)) = of(life::IMAGE_TAKEN) {
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

/// The same by half seconds.
fn fine_dip_s(event: &Event, usual: f64) -> Option<f64> {
    // The half second that the event is in has answers from before it.
    let mut behind = event.answers.as_ref()?.points().filter(|(at, _)| *at >= HALF_S);
    behind.find(|(_, rate)| *rate >= USUAL * usual).map(|(at, _)| at)
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
            events: vec![Event {
                what,
                at_s: 2.5,
                took_s: 1.5,
                silent_ms: 60.0,
                quiet_ms: None,
                answers: None,
            }],
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
    fn half_seconds_count_where_there_are_any() {
        let mut life = life(&[100.0, 100.0, 10.0, 50.0, 90.0, 100.0]);
        assert!(around_kills(&life).expect("a plot").is_none());
        life.events[0].quiet_ms = Some(75.0);
        let per_second = vec![100.0, 95.0, 20.0, 50.0, 90.0];
        life.events[0].answers = Some(Around { first_s: -0.3, per_second });
        let mut text = String::new();
        one(&mut text, "full", &life);
        // The one that ends 0.2 s behind it has answers of before.
        for part in
            ["| 75 ", "life-full-kills.svg", "for 75 ms", "At most 1.7 s after", "0.5 s were"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(around_kills(&life).expect("a plot").is_some());
    }

    #[test]
    fn an_image_is_compared_with_a_checkpoint() {
        let mut life = life(&[100.0, 100.0, 10.0, 100.0, 100.0, 50.0, 95.0]);
        let what = life::IMAGE_TAKEN.to_owned();
        life.events.push(Event {
            what,
            at_s: 5.5,
            took_s: 0.2,
            silent_ms: 9.0,
            quiet_ms: None,
            answers: None,
        });
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
