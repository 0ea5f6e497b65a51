//! Goals beside what was found, and those that the stored results miss.
//!
//! A goal is missed by the stored results only if [`NOTED`] says so and why, and what is noted must be so: `cargo xtask bench --check`, and the
//! tests of this crate, fail otherwise. So no stored result makes a goal missed unseen, and no note outlives what it is about.

use super::servers::has;
use super::text::table;
use super::{goals, lasting};
use crate::about;
use crate::growth::{self, Growth};
use crate::servers::Server;
use skein_testkit::{Failure, Outcome};

/// What is the case of a goal that is not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// A result is worse.
    Missed,
    /// There is no result.
    NotMeasured,
    /// Nothing is noted of these.
    Reached,
}

/// A goal that is not reached, and why.
struct Noted {
    /// [`Row::name`].
    goal: &'static str,
    is: Is,
    why: &'static str,
}

/// All that are known.
const NOTED: &[Noted] = &[
    Noted {
        goal: "A lone PostgreSQL stands, ms",
        is: Is::Missed,
        why: "descriptors, mappings and files of its ten processes are read while it stands, and what it wrote to shared memory since it was read ([decision 44](decisions/0044-memory-is-read-before-a-server-stands.md))",
    },
    Noted {
        goal: "A follower's PostgreSQL stands, ms",
        is: Is::Missed,
        why: "as a lone one, while two others and their nodes share two cores with it",
    },
    Noted {
        goal: "A leader stands for its first image, ms",
        is: Is::Missed,
        why: "the kernel is asked of each page of its memory, and lists of processes, mappings and files are read while it stands ([decision 44](decisions/0044-memory-is-read-before-a-server-stands.md)); from 64 MiB down it is reached",
    },
    Noted {
        goal: "A leader's server forks for an image, ms",
        is: Is::Missed,
        why: "the kernel's fork of as much memory takes longer than that by itself, without Skein ([decision 38](decisions/0038-images-by-fork.md); \"Images by fork\")",
    },
    Noted {
        goal: "A follower stands under load, ms",
        is: Is::Missed,
        why: "clients, servers and three nodes share two cores; and what redis writes between two images, which would allow more, is not counted",
    },
    Noted {
        goal: "1 % of a database's rows written: MiB of the image, % of all",
        is: Is::Missed,
        why: "PostgreSQL itself writes more than the rows: a new row beside each old one, whose page it marks, and the log of both, with whole pages behind each of its checkpoints",
    },
];

/// A goal beside what was found.
pub struct Row {
    /// What it is about,
    pub name: String,
    /// and at which point; empty where there is one only.
    pub at: String,
    /// Whether more is better.
    pub at_least: bool,
    /// The goal,
    pub goal: f64,
    /// and for people.
    pub goal_shown: String,
    /// What is compared with it; nothing if it was not measured.
    pub found: Option<f64>,
    /// The same for people.
    pub found_shown: String,
    /// Digits behind the point.
    pub digits: usize,
}

impl Row {
    fn is(&self) -> Is {
        match self.found {
            None => Is::NotMeasured,
            Some(found) if short(self.at_least, self.goal, found) > 0.0 => Is::Missed,
            Some(_) => Is::Reached,
        }
    }

    fn what(&self) -> String {
        format!("{}{}", self.name, self.at)
    }

    fn sign(&self) -> &'static str {
        if self.at_least { ">=" } else { "<=" }
    }

    fn said(&self) -> String {
        self.found.map_or("not measured".to_owned(), |found| {
            verdict(self.at_least, self.goal, found, self.digits)
        })
    }
}

/// By how much a goal is missed; at most 0 where it is reached.
fn short(at_least: bool, goal: f64, found: f64) -> f64 {
    if at_least { goal - found } else { found - goal }
}

/// What is said of a figure beside its goal.
pub fn verdict(at_least: bool, goal: f64, found: f64, digits: usize) -> String {
    let short = short(at_least, goal, found);
    if short <= 0.0 {
        return "reached".to_owned();
    }
    // One digit more where the difference would vanish.
    let digits = if short < 0.5 * 0.1_f64.powi(digits as i32) { digits + 1 } else { digits };
    format!("missed by {short:.digits$} ({:.0} %)", short / goal * 100.0)
}

/// The table of goals, and why those that are not reached are not.
pub fn shown(rows: &[Row]) -> String {
    let head = ["Figure", "goal", "found", ""].map(str::to_owned).to_vec();
    let cells = rows.iter().map(|row| {
        let goal = format!("{} {}", row.sign(), row.goal_shown);
        vec![row.what(), goal, row.found_shown.clone(), row.said()]
    });
    table(&std::iter::once(head).chain(cells).collect::<Vec<_>>())
}

/// Why goals are not reached, a line each; empty where nothing is noted of any of them.
pub fn reasons(rows: &[Row]) -> String {
    let noted = NOTED.iter().filter(|noted| rows.iter().any(|row| row.name == noted.goal));
    let lines = noted.map(|Noted { goal, is, why }| match is {
        Is::NotMeasured => format!("- {goal}: not measured yet; {why}.\n"),
        _ => format!("- {goal}: {why}.\n"),
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("What is not reached, and why:\n\n{lines}\n") }
}

/// Fails unless the stored results miss the goals that are noted, and no others.
pub fn check() -> Outcome {
    let latest = super::latest()?;
    let mut rows = goals::rows(&latest);
    let growth: Growth = about::read(&growth::stored())?.unwrap_or_default();
    rows.extend(lasting::rows(&growth));
    let mut wrong = wrong(&rows, NOTED);
    let with_goals = Server::ALL.iter().filter(|server| server.workload().has_goals());
    let unmeasured = with_goals.filter(|server| !has(&latest, **server));
    wrong.extend(unmeasured.map(|server| format!("{} has goals and no results", server.name())));
    if wrong.is_empty() {
        println!(
            "of {} goals {} are not reached, as is noted with their reasons",
            rows.len(),
            NOTED.len()
        );
        return Ok(());
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    Err(Failure(format!(
        "{} goals are not what bench/src/report/judged.rs notes; the first: {}",
        wrong.len(),
        wrong[0]
    )))
}

/// A line for each goal that is not what is noted of it.
fn wrong(rows: &[Row], noted: &[Noted]) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        let is = row.is();
        let noted = noted.iter().find(|noted| noted.goal == row.name);
        let expected = noted.map_or(Is::Reached, |noted| noted.is);
        if is != expected {
            let found = match is {
                Is::NotMeasured => "is not measured".to_owned(),
                _ => format!(
                    "is {}, the goal {} {}: {}",
                    row.found_shown,
                    row.sign(),
                    row.goal_shown,
                    row.said()
                ),
            };
            let noted = match expected {
                Is::Reached => "and is not noted",
                Is::Missed => "but is noted as missed",
                Is::NotMeasured => "but is noted as not measured",
            };
            wrong.push(format!("{} {found}, {noted}", row.what()));
        }
    }
    let unknown = noted.iter().filter(|noted| rows.iter().all(|row| row.name != noted.goal));
    wrong.extend(unknown.map(|noted| format!("{} is noted, and is no goal", noted.goal)));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, at_least: bool, goal: f64, found: Option<f64>) -> Row {
        Row {
            name: name.to_owned(),
            at: " (3 replicas)".to_owned(),
            at_least,
            goal,
            goal_shown: goal.to_string(),
            found,
            found_shown: found.map_or("-".to_owned(), |found| found.to_string()),
            digits: 1,
        }
    }

    fn noted(goal: &'static str, is: Is) -> Noted {
        Noted { goal, is, why: "of a reason" }
    }

    #[test]
    fn a_missed_goal_says_by_how_much() {
        assert_eq!(verdict(true, 0.8, 0.8, 2), "reached");
        assert_eq!(verdict(true, 0.8, 0.6, 2), "missed by 0.20 (25 %)");
        assert_eq!(verdict(false, 200.0, 250.0, 0), "missed by 50 (25 %)");
        assert_eq!(verdict(false, 200.0, 20.0, 0), "reached");
        assert_eq!(verdict(true, 0.8, 0.797, 2), "missed by 0.003 (0 %)");
    }

    #[test]
    fn the_stored_results_miss_what_is_noted_only() {
        check().expect("the repository's own results and notes");
    }

    #[test]
    fn what_is_as_noted_is_right() {
        let rows = [
            row("pause", false, 3.0, Some(3.0)),
            row("rate", true, 0.5, Some(0.4)),
            row("fork", false, 3.0, None),
        ];
        let notes = [noted("rate", Is::Missed), noted("fork", Is::NotMeasured)];
        assert_eq!(wrong(&rows, &notes), Vec::<String>::new());
    }

    #[test]
    fn a_goal_that_nobody_noted_is_told() {
        let rows = [row("pause", false, 3.0, Some(4.0)), row("fork", false, 3.0, None)];
        let found = wrong(&rows, &[]);
        assert_eq!(
            found,
            [
                "pause (3 replicas) is 4, the goal <= 3: missed by 1.0 (33 %), and is not noted",
                "fork (3 replicas) is not measured, and is not noted"
            ]
        );
    }

    #[test]
    fn a_note_that_is_no_longer_true_is_told() {
        let rows = [
            row("pause", false, 3.0, Some(2.0)),
            row("fork", false, 3.0, Some(2.0)),
            row("rate", true, 0.5, None),
            row("late", false, 3.0, Some(4.0)),
        ];
        let notes = [
            noted("pause", Is::Missed),
            noted("fork", Is::NotMeasured),
            noted("rate", Is::Missed),
            noted("late", Is::NotMeasured),
            noted("shoes", Is::Missed),
        ];
        assert_eq!(
            wrong(&rows, &notes),
            [
                "pause (3 replicas) is 2, the goal <= 3: reached, but is noted as missed",
                "fork (3 replicas) is 2, the goal <= 3: reached, but is noted as not measured",
                "rate (3 replicas) is not measured, but is noted as missed",
                "late (3 replicas) is 4, the goal <= 3: missed by 1.0 (33 %), but is noted as not measured",
                "shoes is noted, and is no goal"
            ]
        );
    }

    #[test]
    fn reasons_are_told_of_goals_that_are_there() {
        assert_eq!(reasons(&[row("pause", false, 3.0, Some(4.0))]), "");
        let told = reasons(&[row(NOTED[0].goal, false, 3.0, Some(4.0))]);
        assert!(told.contains(NOTED[0].why) && !told.contains(NOTED[1].goal), "{told}");
    }
}
