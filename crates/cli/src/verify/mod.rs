//! `skein verify`: whether the replicas' servers have equal memory, and where it differs.
//!
//! ```text
//! all servers stand at one entry ([`crate::standstill`])
//! survey    a hash for each page, of each replica                                    (compare.rs)
//! look      pages that only some have in their page tables, again: they may hold the same
//! look      the first pages that differ: their bytes, and what lies there            (report.rs)
//! all go on
//! ```
//!
//! Exit codes: 0 the same; 1 it differs; 2 it cannot be told; 3 no such cluster.

mod compare;
mod report;

use std::io::{self, Write};
use std::time::Duration;

use skein_node::MemoryStatus;
use skein_node::memory::{MAX_LOOKED_AT, MAX_SHOWN, Page, PageAt, Question, Survey};

use crate::admin::{self, AdminError};
use crate::args::VerifyArgs;
use crate::failure::{EXIT_USAGE, Failure};
use crate::instance::{self, NodeFiles};
use crate::standstill::{self, Answer, Verdict};
use crate::status::state_of;
use compare::{Comparison, Structure};
use report::Report;

/// The longest time of a node to come to an entry and to read all memory, or some pages.
const LIMIT: Duration = Duration::from_secs(60);
/// The most pages that are read again because only some replicas have them in their page tables.
const MAX_DOUBTFUL: usize = 4 * MAX_LOOKED_AT;

/// The result of one standstill.
struct Outcome {
    answers: Vec<Answer<MemoryStatus>>,
    verdict: Verdict,
    structure: Vec<Structure>,
    differing: Vec<PageAt>,
    /// For the first of these, each replica's bytes.
    shown: Vec<Vec<Page>>,
}

/// Compares and prints; answers the exit code.
pub fn verify(args: &VerifyArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let nodes = standstill::with_servers(&state.nodes);
    if nodes.len() < 2 {
        let why = "fewer than two of its replicas on this machine have a server: there is nothing to compare with";
        let what = format!("cluster {}", state.name);
        let hint = "verify a cluster with two active replicas on one machine";
        return Err(Failure::new(what, why, hint).with_code(EXIT_USAGE));
    }
    let outcome = standstill::patiently(
        || {
            let outcome = compare(&nodes);
            standstill::go_on(&nodes);
            outcome
        },
        |outcome| outcome.verdict == Verdict::Incomparable,
    );
    let report = Report::new(&state.name, &nodes, &outcome);
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("plain structs are valid JSON") + "\n"
    } else {
        report.text()
    };
    // A reader that closed the pipe wants no more.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(outcome.verdict.code())
}

fn compare(nodes: &[NodeFiles]) -> Outcome {
    let answers = standstill::at_one_entry(nodes, |node, index| {
        let body = admin::get(&node.admin, &format!("/memory/{index}"), LIMIT)?;
        parsed::<MemoryStatus>(&body)
    });
    let mut outcome = Outcome {
        answers,
        verdict: Verdict::Incomparable,
        structure: Vec::new(),
        differing: Vec::new(),
        shown: Vec::new(),
    };
    let Some(surveys) = comparable(&outcome.answers) else { return outcome };
    let compared = compare::compare(&surveys);
    match look_closer(nodes, compared) {
        Ok((structure, differing, shown)) => {
            let same = structure.is_empty() && differing.is_empty();
            outcome.verdict = if same { Verdict::Agree } else { Verdict::Differ };
            (outcome.structure, outcome.differing, outcome.shown) = (structure, differing, shown);
        }
        Err(failed) => {
            for (answer, why) in outcome.answers.iter_mut().zip(failed) {
                if let Some(why) = why {
                    *answer = Err(why);
                }
            }
        }
    }
    outcome
}

/// The surveys, if all are there and of one entry.
fn comparable(answers: &[Answer<MemoryStatus>]) -> Option<Vec<&Survey>> {
    let all: Vec<&MemoryStatus> = answers.iter().map(|a| a.as_ref().ok()).collect::<Option<_>>()?;
    let same = all.iter().all(|status| status.index == all[0].index);
    same.then(|| all.iter().map(|status| &status.survey).collect())
}

/// The rest of a comparison, and its first pages; or why a node did not answer.
type Closer = Result<(Vec<Structure>, Vec<PageAt>, Vec<Vec<Page>>), Vec<Option<String>>>;

fn look_closer(nodes: &[NodeFiles], compared: Comparison) -> Closer {
    let Comparison { structure, mut differing, mut doubtful } = compared;
    let unlooked = doubtful.split_off(doubtful.len().min(MAX_DOUBTFUL));
    for pages in doubtful.chunks(MAX_LOOKED_AT) {
        let looked = look(nodes, false, pages)?;
        let unlike =
            |(_, seen): &(&PageAt, &Vec<Page>)| seen.iter().any(|p| p.hash != seen[0].hash);
        differing.extend(pages.iter().zip(&looked).filter(unlike).map(|(at, _)| *at));
    }
    differing.extend(unlooked);
    differing.sort_unstable();
    let first = &differing[..differing.len().min(MAX_SHOWN)];
    let shown = if first.is_empty() { Vec::new() } else { look(nodes, true, first)? };
    Ok((structure, differing, shown))
}

/// For each page, each replica's bytes.
fn look(
    nodes: &[NodeFiles],
    contents: bool,
    pages: &[PageAt],
) -> Result<Vec<Vec<Page>>, Vec<Option<String>>> {
    let question = Question { contents, pages: pages.to_vec() };
    let question = serde_json::to_string(&question).expect("plain structs are valid JSON");
    let answers = standstill::ask_all(nodes, |node| {
        let body = admin::post_json(&node.admin, "/memory/look", &question, LIMIT)?;
        let found = parsed::<Vec<Page>>(&body)?;
        match found.len() == pages.len() {
            true => Ok(found),
            false => Err(AdminError::Wrong(format!("{} of {} pages", found.len(), pages.len()))),
        }
    });
    if answers.iter().any(Result::is_err) {
        return Err(answers.into_iter().map(Result::err).collect());
    }
    let mut all: Vec<_> = answers.into_iter().flatten().map(Vec::into_iter).collect();
    Ok(pages.iter().map(|_| all.iter_mut().filter_map(Iterator::next).collect()).collect())
}

fn parsed<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, AdminError> {
    serde_json::from_slice(body).map_err(|error| AdminError::Wrong(error.to_string()))
}
