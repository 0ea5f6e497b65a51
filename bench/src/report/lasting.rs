//! The goals of images, restores, restarts and idle clusters, and how far the points of `bench/reports/growth.md` are from them.

use super::judged::{Row, reasons, shown};
use super::text::number;
use crate::about;
use crate::growth::{self, Growth, Point};
use skein_testkit::Outcome;

/// A goal for some points; the one that is furthest from its goal is told.
struct Goal {
    what: &'static str,
    topic: &'static str,
    /// The begin of the curves' names, and their end.
    curves: (&'static str, &'static str),
    /// What is compared with the goal.
    found: fn(&Point) -> Option<f64>,
    /// At most so much at this point; nothing where it has no goal.
    at_most: fn(&Point) -> Option<f64>,
    digits: usize,
    /// What the horizontal axis has.
    unit: &'static str,
}

/// A leader, for whose server clients wait, may stand so long [ms].
const LEADER_MS: f64 = 3.0;
/// The longest that a server stands in RRC (0.5 to 3.5 ms of four servers, `bench/papers/rrc.json`) [ms].
const RRC_MS: f64 = 3.5;
/// Pages of 4 KiB in a MiB.
const PAGES_IN_A_MIB: f64 = 256.0;

const GOALS: &[Goal] = &[
    Goal {
        what: "A follower stands for an image, ms",
        topic: "images",
        curves: ("redis, 3 replicas", "changed"),
        found: |at| value(at, "stood_ms"),
        at_most: |point| Some(pause(changed_pages(point)?)),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "The same with an append-only file, ms",
        topic: "images",
        curves: ("redis, 3 replicas", "append-only file"),
        found: |at| value(at, "stood_ms"),
        // The file has as many new ones.
        at_most: |point| Some(pause(2.0 * changed_pages(point)?)),
        digits: 1,
        unit: "MiB",
    },
    postgresql("A lone PostgreSQL stands, ms", "PostgreSQL, 1 replica"),
    postgresql("A follower's PostgreSQL stands, ms", "PostgreSQL, 3 replicas"),
    Goal {
        what: "A leader stands for an image after its first, ms",
        topic: "images",
        curves: ("redis, 1 replica", "changed"),
        found: |at| value(at, "stood_ms"),
        at_most: |point| (point.x == 256.0).then_some(LEADER_MS),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "A leader's server forks for an image, ms",
        topic: "forks",
        curves: ("redis, 1 replica", ""),
        found: |at| value(at, "stood_ms"),
        at_most: |point| (point.x == 256.0).then_some(LEADER_MS),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "A leader stands for its first image, ms",
        topic: "images",
        curves: ("redis, 1 replica", "its first image"),
        found: |at| value(at, "stood_ms"),
        at_most: |point| (point.x == 256.0).then_some(LEADER_MS),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "A standby's leader stands under load, ms",
        topic: "standby",
        curves: ("", ""),
        found: |at| value(at, "stood_ms"),
        at_most: |_| Some(RRC_MS),
        digits: 1,
        unit: "clients",
    },
    Goal {
        what: "A follower stands under load, ms",
        topic: "beside",
        curves: ("redis", ""),
        found: |at| value(at, "stood_ms"),
        // How much was written since the image before is not known: the strictest.
        at_most: |_| Some(pause(0.0)),
        digits: 1,
        unit: "images a second",
    },
    Goal {
        what: "Written for an image, MiB",
        topic: "changed",
        curves: ("redis", ""),
        found: |at| value(at, "new_mib"),
        // What changed, uncompressed.
        at_most: |point| Some(point.x / PAGES_IN_A_MIB),
        digits: 2,
        unit: "pages changed",
    },
    Goal {
        what: "1 % of a database's rows written: MiB of the image, % of all",
        topic: "files",
        curves: ("PostgreSQL, 1 replica", "1 % of rows"),
        found: |at| Some(100.0 * value(at, "new_mib")? / value(at, "all_mib")?),
        at_most: |point| (point.x == 2_048.0).then_some(1.0),
        digits: 1,
        unit: "MiB",
    },
    Goal {
        what: "From `kill -9` until in step, ms",
        topic: "restores",
        curves: ("redis", ""),
        found: |at| value(at, "back_ms"),
        at_most: |point| Some(100.0 + point.x * f64::from(1 << 20) / 1e6),
        digits: 0,
        unit: "MiB",
    },
    Goal {
        what: "All killed after 10 million requests, s",
        topic: "restarts",
        curves: ("redis", ""),
        found: |at| value(at, "back_s"),
        at_most: |point| (point.x == 1e7).then_some(2.0),
        digits: 1,
        unit: "requests",
    },
    Goal {
        what: "Idle: the leader's node, % of a core",
        topic: "idle",
        curves: ("", ""),
        found: |at| value(at, "leader_percent"),
        at_most: |_| Some(0.2),
        digits: 2,
        unit: "replicas",
    },
    Goal {
        what: "Idle: a follower's node, % of a core",
        topic: "idle",
        curves: ("", ""),
        found: |at| value(at, "follower_percent"),
        at_most: |_| Some(0.2),
        digits: 2,
        unit: "replicas",
    },
    Goal {
        what: "Idle: syncs a second",
        topic: "idle",
        curves: ("", ""),
        found: |at| value(at, "syncs"),
        at_most: |_| Some(1.0),
        digits: 2,
        unit: "replicas",
    },
];

/// How long a PostgreSQL of these curves stands.
const fn postgresql(what: &'static str, begin: &'static str) -> Goal {
    Goal {
        what,
        topic: "files",
        curves: (begin, ""),
        found: |at| value(at, "stood_ms"),
        // New rows, and the log before them: how many pages that is shows by what was copied only.
        at_most: |point| Some(pause(value(point, "pages")?)),
        digits: 1,
        unit: "MiB",
    }
}

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
    let rows = rows(growth);
    let reasons = reasons(&rows);
    let measured: Vec<Row> = rows.into_iter().filter(|row| row.found.is_some()).collect();
    format!(
        "## Goals of images, restarts and idle clusters\n\n{}\n\
         Of each row the point that is furthest from its goal, or nearest to it; [all points, and how they are measured](../bench/reports/growth.md). An image may cost 5 ms, and 1 ms for each 1,000\n\
         pages that changed (those of the values; with the file, twice as many; of PostgreSQL those that were copied), a restore 100 ms, and the time for its memory at 1 GB/s. What clients and a follower pay for images differs by some percent from run to run.\n\
         A standby's leader may stand as long as the slowest server of [RRC](../bench/reports/checkpoints.md#a-standby-beside-rrc); an image may have as many MiB as changed, and of 2 GB of tables of which 1 % of the rows was written, about 1 % of all.\n\n{reasons}",
        shown(&measured)
    )
}

/// All goals, measured or not.
pub fn rows(growth: &Growth) -> Vec<Row> {
    let mut rows: Vec<Row> = GOALS.iter().map(|goal| row(growth, goal)).collect();
    let beside = |key| {
        Some((beside(growth, 0.0, key).filter(|none| *none > 0.0)?, beside(growth, 1.0, key)?))
    };
    rows.push(percent(
        "An image each second: a follower's CPU, % more",
        FOLLOWER_PERCENT,
        beside("follower_cpu").map(|(none, each)| (each / none - 1.0) * 100.0),
    ));
    rows.push(percent(
        "An image each second: clients' requests, % less",
        CLIENTS_PERCENT,
        beside("per_second").map(|(none, each)| (1.0 - each / none) * 100.0),
    ));
    rows
}

/// The row of the worst point, if one was measured.
fn row(growth: &Growth, goal: &Goal) -> Row {
    let is_one = |point: &&Point| {
        let (begin, end) = goal.curves;
        point.topic == goal.topic && point.curve.starts_with(begin) && point.curve.ends_with(end)
    };
    let found = growth
        .points
        .iter()
        .filter(is_one)
        .filter_map(|point| Some((point, (goal.at_most)(point)?, (goal.found)(point)?)));
    let Some((point, at_most, found)) = found.max_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)))
    else {
        return at_most_row(goal.what, String::new(), 0.0, None, goal.digits);
    };
    let x = number(point.x, usize::from(point.x.fract() != 0.0));
    // Servers differ in some topics only.
    let server = point.curve.split(", ").next().filter(|_| goal.curves.0.is_empty());
    let server = server.map_or(String::new(), |server| format!("{server}, "));
    let changed =
        point.curve.split_once(" % changed").and_then(|(head, _)| head.rsplit(' ').next());
    let changed = changed.map_or(String::new(), |percent| format!(", {percent} % changed"));
    let at = format!(" ({server}{x} {}{changed})", goal.unit);
    at_most_row(goal.what, at, at_most, Some(found), goal.digits)
}

fn percent(what: &str, goal: f64, found: Option<f64>) -> Row {
    at_most_row(what, String::new(), goal, found, 1)
}

fn at_most_row(what: &str, at: String, goal: f64, found: Option<f64>, digits: usize) -> Row {
    Row {
        name: what.to_owned(),
        at,
        at_least: false,
        goal,
        goal_shown: number(goal, usize::from(goal.fract() != 0.0)),
        found,
        found_shown: found.map_or("-".to_owned(), |found| number(found, digits)),
        digits,
    }
}

/// A figure of a point.
fn value(point: &Point, key: &str) -> Option<f64> {
    point.values.get(key).copied()
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
        let text = text(&growth);
        let row = text.lines().find(|line| line.contains("16 MiB")).expect("it was measured");
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1], "A follower stands for an image, ms (16 MiB, 10 % changed)");
        assert_eq!(cells[2..5], ["<= 5.4", "6.0", "missed by 0.6 (11 %)"]);
        let leads = GOALS.iter().find(|goal| goal.what.contains("A leader stands")).unwrap();
        assert!(super::row(&growth, leads).found.is_none(), "256 MiB alone has a goal");
        assert!(!text.contains(leads.what), "{text}");
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
