//! The goals of images, restores, restarts and idle clusters, and how far the points of `bench/reports/growth.md` are from them.

use super::goals::verdict;
use super::text::{number, table};
use crate::about;
use crate::growth::{self, Growth, Point};
use skein_testkit::Outcome;

/// A goal for some points; the one that is furthest from its goal is told.
struct Goal {
    what: &'static str,
    topic: &'static str,
    /// The begin of the curves' names, and their end.
    curves: (&'static str, &'static str),
    key: &'static str,
    /// At most so much at this point.
    at_most: fn(&Point) -> Option<f64>,
    digits: usize,
    /// What the horizontal axis has.
    unit: &'static str,
}

/// Pages of 4 KiB in a MiB.
const PAGES_IN_A_MIB: f64 = 256.0;

const GOALS: &[Goal] = &[
    Goal {
        what: "A follower stands for an image, ms",
        topic: "images",
        curves: ("redis, 3 replicas", "changed"),
        key: "stood_ms",
        at_most: |point| Some(pause(changed_pages(point)?)),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "The same with an append-only file, ms",
        topic: "images",
        curves: ("redis, 3 replicas", "append-only file"),
        key: "stood_ms",
        // The file has as many new ones.
        at_most: |point| Some(pause(2.0 * changed_pages(point)?)),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "A lone PostgreSQL stands, ms",
        topic: "files",
        curves: ("PostgreSQL", ""),
        key: "stood_ms",
        // New rows, and the log before them: how many pages that is shows by what was copied only.
        at_most: |point| Some(pause(*point.values.get("pages")?)),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "A leader stands for an image after its first, ms",
        topic: "images",
        curves: ("redis, 1 replica", "changed"),
        key: "stood_ms",
        at_most: |point| (point.x == 256.0).then_some(3.0),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "From `kill -9` until in step, ms",
        topic: "restores",
        curves: ("redis", ""),
        key: "back_ms",
        at_most: |point| Some(100.0 + point.x * f64::from(1 << 20) / 1e6),
        digits: 0,
        unit: "MiB",
    },
    Goal {
        what: "All killed after 10 million requests, s",
        topic: "restarts",
        curves: ("redis", ""),
        key: "back_s",
        at_most: |point| (point.x == 1e7).then_some(2.0),
        digits: 1,
        unit: "requests",
    },
    Goal {
        what: "Idle: the leader's node, % of a core",
        topic: "idle",
        curves: ("", ""),
        key: "leader_percent",
        at_most: |_| Some(0.2),
        digits: 2,
        unit: "replicas",
    },
    Goal {
        what: "Idle: a follower's node, % of a core",
        topic: "idle",
        curves: ("", ""),
        key: "follower_percent",
        at_most: |_| Some(0.2),
        digits: 2,
        unit: "replicas",
    },
    Goal {
        what: "Idle: syncs a second",
        topic: "idle",
        curves: ("", ""),
        key: "syncs",
        at_most: |_| Some(1.0),
        digits: 2,
        unit: "replicas",
    },
];

/// The most that an image each second may cost [%].
const FOLLOWER_PERCENT: f64 = 10.0;
const CLIENTS_PERCENT: f64 = 2.0;

/// How long a server may stand for so many pages [ms].
fn pause(pages: f64) -> f64 {
    5.0 + pages / 1_000.0
}

/// The pages of the values that were written, by the curve's name: `..., 1 % changed`. A goal that is counted from what was copied would grow with that.
fn changed_pages(point: &Point) -> Option<f64> {
    let (head, _) = point.curve.split_once(" % changed")?;
    let percent: f64 = head.rsplit(' ').next()?.parse().ok()?;
    Some(point.x * PAGES_IN_A_MIB * percent / 100.0)
}

/// The section of `docs/performance.md`; empty without measurements.
pub fn section() -> Outcome<String> {
    let stored: Option<Growth> = about::read(&growth::stored())?;
    Ok(stored.map(|growth| text(&growth)).unwrap_or_default())
}

fn text(growth: &Growth) -> String {
    let mut rows = vec![["Figure", "goal", "found", ""].map(str::to_owned).to_vec()];
    rows.extend(GOALS.iter().filter_map(|goal| row(growth, goal)));
    let beside = |key| {
        Some((beside(growth, 0.0, key).filter(|none| *none > 0.0)?, beside(growth, 1.0, key)?))
    };
    if let Some((none, each)) = beside("follower_cpu") {
        rows.push(percent(
            "An image each second: a follower's CPU, % more",
            FOLLOWER_PERCENT,
            (each / none - 1.0) * 100.0,
        ));
    }
    if let Some((none, each)) = beside("per_second") {
        rows.push(percent(
            "An image each second: clients' requests, % less",
            CLIENTS_PERCENT,
            (1.0 - each / none) * 100.0,
        ));
    }
    format!(
        "## Goals of images, restarts and idle clusters\n\n{}\n\
         Of each row the point that is furthest from its goal, or nearest to it; [all points, and how they are measured](../bench/reports/growth.md). An image may cost 5 ms, and 1 ms for each 1,000\n\
         pages that changed (those of the values; with the file, twice as many; of PostgreSQL those that were copied), a restore 100 ms, and the time for its memory at 1 GB/s. What clients and a follower pay for images differs by some percent from run to run.\n\n",
        table(&rows)
    )
}

/// The row of the worst point; none if none was measured.
fn row(growth: &Growth, goal: &Goal) -> Option<Vec<String>> {
    let is_one = |point: &&Point| {
        let (begin, end) = goal.curves;
        point.topic == goal.topic && point.curve.starts_with(begin) && point.curve.ends_with(end)
    };
    let found =
        growth.points.iter().filter(is_one).filter_map(|point| {
            Some((point, (goal.at_most)(point)?, *point.values.get(goal.key)?))
        });
    let (point, at_most, found) = found.max_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)))?;
    let x = number(point.x, 0);
    // Servers differ in some topics only.
    let server = point.curve.split(", ").next().filter(|_| goal.curves.0.is_empty());
    let server = server.map_or(String::new(), |server| format!("{server}, "));
    let changed =
        point.curve.split_once(" % changed").and_then(|(head, _)| head.rsplit(' ').next());
    let changed = changed.map_or(String::new(), |percent| format!(", {percent} % changed"));
    Some(vec![
        format!("{} ({server}{x} {}{changed})", goal.what, goal.unit),
        format!("<= {}", number(at_most, if at_most.fract() == 0.0 { 0 } else { 1 })),
        number(found, goal.digits),
        verdict(false, at_most, found, goal.digits),
    ])
}

fn percent(what: &str, at_most: f64, found: f64) -> Vec<String> {
    vec![
        what.to_owned(),
        format!("<= {at_most}"),
        number(found, 1),
        verdict(false, at_most, found, 1),
    ]
}

/// A figure at so many images a second.
fn beside(growth: &Growth, rate: f64, key: &str) -> Option<f64> {
    let is_one = |point: &&Point| point.topic == "beside" && point.x == rate;
    growth.points.iter().find(is_one)?.values.get(key).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn point(topic: &str, curve: &str, x: f64, key: &str, value: f64) -> Point {
        let values = BTreeMap::from([(key.to_owned(), value)]);
        Point {
            topic: topic.to_owned(),
            curve: curve.to_owned(),
            x,
            values,
            commit: String::new(),
            cpu: String::new(),
        }
    }

    #[test]
    fn the_point_furthest_from_its_goal_counts() {
        let curve = "redis, 3 replicas, 10 % changed";
        let points = vec![
            // 16 MiB: 410 pages, 5.4 ms. 512 MiB: 13,107 pages, 18.1 ms.
            point("images", curve, 16.0, "stood_ms", 6.0),
            point("images", curve, 512.0, "stood_ms", 17.0),
            point("images", "redis, 1 replica, 10 % changed", 16.0, "stood_ms", 99.0),
        ];
        let growth = Growth { points, ..Growth::default() };
        let row = row(&growth, &GOALS[0]).expect("it was measured");
        assert_eq!(row[0], "A follower stands for an image, ms (16 MiB, 10 % changed)");
        assert_eq!(row[1..], ["<= 5.4", "6.0", "missed by 0.6 (11 %)"]);
        let leads = GOALS.iter().find(|goal| goal.what.contains("A leader stands")).unwrap();
        assert!(super::row(&growth, leads).is_none(), "256 MiB alone has a goal");
    }

    #[test]
    fn an_image_each_second_costs_a_part() {
        let curve = "redis SET, 3 replicas, fsync";
        let points = vec![
            point("beside", curve, 0.0, "per_second", 1_000.0),
            point("beside", curve, 1.0, "per_second", 970.0),
        ];
        let text = text(&Growth { points, ..Growth::default() });
        assert!(text.contains("| <= 2 | 3.0   | missed by 1.0 (50 %) |"), "{text}");
        assert!(!text.contains("CPU"), "it was not measured");
    }
}
