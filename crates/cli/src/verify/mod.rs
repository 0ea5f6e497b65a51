//! `skein verify`: whether the replicas' servers have equal memory and files, and where they differ; with `--repair`, they are made equal.
//!
//! ```text
//! all servers stand at one entry ([`crate::standstill`])
//! root      one hash of all memory and one of all files, of each replica
//! groups    if they differ: processes, mappings, a hash for each 512 pages           (tree.rs)
//! pages     of groups that differ, a hash for each; of files that differ, one         (compare.rs)
//! look      pages that only some have in their page tables, again: they may hold the same
//! look      the first pages that differ: their bytes, and what lies there            (report.rs)
//! repair    those that differ, from the one that has what a majority has             (repair.rs)
//! root      and the rest again
//! all go on
//! rebuild   servers that still differ; when they are in step, all of it once more
//! ```
//!
//! Exit codes: 0 the same, or repaired; 1 it differs; 2 it cannot be told; 3 no such cluster.

mod compare;
mod keep;
mod repair;
mod report;
mod tree;

use std::thread;
use std::time::{Duration, Instant};

use skein_node::memory::{MAX_LOOKED_AT, MAX_SHOWN, Page, PageAt, Question, Survey};
use skein_node::{MemoryRoot, NodeStatus, ReplicaState};

use crate::admin::{AdminError, Asked};
use crate::args::VerifyArgs;
use crate::failure::{EXIT_USAGE, Failure};
use crate::instance;
use crate::output;
use crate::standstill::{self, Answer, Verdict};
use crate::status::state_of;
use compare::{Comparison, Place};
use repair::Repair;
use report::Report;
use tree::{Told, Tree};

/// The longest time of a node to come to an entry and to read all memory, or some pages.
const LIMIT: Duration = Duration::from_secs(60);
/// How long servers that are rebuilt are waited for,
const REBUILT_WITHIN: Duration = Duration::from_secs(300);
/// and how often they are asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The most pages that are read again because only some replicas have them in their page tables.
const MAX_DOUBTFUL: usize = 4 * MAX_LOOKED_AT;

/// The result of one standstill.
struct Outcome {
    answers: Vec<Answer<MemoryRoot>>,
    verdict: Verdict,
    found: Comparison,
    /// The first replica's processes and mappings, if its memory differs from another's.
    mapped: Survey,
    /// For the first pages that differ, each replica's bytes.
    shown: Vec<Vec<Page>>,
    repairs: Vec<Repair>,
}

/// Compares and prints; answers the exit code.
pub fn verify(args: &VerifyArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let (nodes, others) = standstill::by_servers(&state.nodes);
    if nodes.len() < 2 {
        let why = "fewer than two of its replicas have a server: there is nothing to compare with";
        let what = format!("cluster {}", state.name);
        let hint = "verify a cluster with two active replicas";
        return Err(Failure::new(what, why, hint).with_code(EXIT_USAGE));
    }
    let mut outcome = at_a_standstill(&nodes, args.repair);
    if let Some(Ok(first)) = outcome.answers.first().filter(|_| !outcome.repairs.is_empty()) {
        // Their images are those of the others. One that does not hear it learns nothing of it.
        let repaired = format!("/repaired/{}", first.index);
        standstill::ask_all(&others, |node| node.post(&repaired, LIMIT));
    }
    if rebuild(&nodes, &outcome.repairs) {
        // Nothing is repaired twice: a server that differs when it was rebuilt would again.
        outcome.verdict = match at_a_standstill(&nodes, false).verdict {
            Verdict::Agree => Verdict::Repaired,
            other => other,
        };
    }
    let report = Report::new(&state.name, &nodes, &outcome);
    let text = if args.json { output::json(&report) } else { report.text() };
    output::print(&text);
    Ok(outcome.verdict.code())
}

/// Holds all servers, compares them, repairs if that is wanted, and lets them go on.
fn at_a_standstill(nodes: &[Asked], repairs: bool) -> Outcome {
    standstill::patiently(
        || {
            let leader = if repairs { leader(nodes) } else { 0 };
            keep::standing(nodes, || {
                let first = |node: &Asked, index| tree::first(node, index, "");
                let mut outcome = judged(nodes, standstill::at_one_entry(nodes, first));
                if repairs && outcome.verdict == Verdict::Differ {
                    repair(nodes, &mut outcome, leader);
                }
                if let (Verdict::Agree | Verdict::Repaired, Some(Ok(first))) =
                    (outcome.verdict, outcome.answers.first())
                {
                    let equal = format!("/equal/{}", first.index);
                    // One that does not hear it gives up more images at the next difference.
                    standstill::ask_all(nodes, |node| node.post(&equal, LIMIT));
                }
                standstill::go_on(nodes);
                outcome
            })
        },
        |outcome| outcome.verdict == Verdict::Incomparable && outcome.repairs.is_empty(),
    )
}

/// Which one of these leads; the first if that is unknown.
fn leader(nodes: &[Asked]) -> usize {
    let leads =
        |node: &Asked| status(node).is_some_and(|status| status.leader == Some(status.replica.id));
    nodes.iter().position(leads).unwrap_or(0)
}

fn status(node: &Asked) -> Option<NodeStatus> {
    node.status(LIMIT).ok()
}

/// Repairs what can be while all stand, and compares once more.
fn repair(nodes: &[Asked], outcome: &mut Outcome, leader: usize) {
    let Some(Ok(first)) = outcome.answers.first() else { return };
    let index = first.index;
    let model = outcome.found.model(nodes.len(), leader);
    let mut repairs = repair::repair(nodes, &outcome.found, model);
    let answers = standstill::ask_all(nodes, |node| tree::first(node, index, "/again"));
    let after = judged(nodes, answers);
    // What was written into a server is told even when it is to be rebuilt: images of it are not to be trusted.
    for node in nodes {
        let what = repairs.iter().find(|r| r.id == node.id).map(Repair::what).unwrap_or_default();
        let told = node.post_text(&format!("/repaired/{index}"), &what, LIMIT);
        let repair = repairs.iter_mut().find(|repair| repair.id == node.id);
        if let (Err(error), Some(repair)) = (told, repair) {
            repair.rebuilt.get_or_insert(error.to_string());
        }
    }
    for (n, node) in nodes.iter().enumerate() {
        let differs = after.verdict == Verdict::Differ && repair::differs(&after.found, model, n);
        if !differs {
            continue;
        }
        let why = || "it still differs when its pages and files were repaired".to_owned();
        match repairs.iter_mut().find(|repair| repair.id == node.id) {
            Some(repair) => drop(repair.rebuilt.get_or_insert_with(why)),
            None => {
                let (id, from) = (node.id, nodes[model].id);
                repairs.push(Repair { id, from, rebuilt: Some(why()), ..Repair::default() });
            }
        }
    }
    outcome.verdict = match after.verdict {
        Verdict::Agree => Verdict::Repaired,
        other => other,
    };
    outcome.repairs = repairs;
}

/// Has the servers that could not be repaired rebuilt, and waits until they are in step; false if there are none, or they were not in time.
fn rebuild(nodes: &[Asked], repairs: &[Repair]) -> bool {
    let of = |node: &Asked| repairs.iter().find(|r| r.id == node.id)?.rebuilt.clone();
    let all: Vec<_> = nodes.iter().filter_map(|node| Some((node, of(node)?))).collect();
    let begun = Instant::now();
    for (node, why) in &all {
        if node.post_text("/rebuild", why, LIMIT).is_err() {
            return false;
        }
    }
    let runs = |node: &Asked| {
        status(node).is_some_and(|status| status.replica.state == ReplicaState::Running)
    };
    while !all.iter().all(|(node, _)| runs(node)) {
        if begun.elapsed() > REBUILT_WITHIN {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    !all.is_empty()
}

/// The result of these answers.
fn judged(nodes: &[Asked], told: Vec<Answer<Told>>) -> Outcome {
    let (tree, answers) = Tree::of(nodes, told);
    let (found, mapped, shown) = (Comparison::default(), Survey::default(), Vec::new());
    let (verdict, repairs) = (Verdict::Incomparable, Vec::new());
    let mut outcome = Outcome { answers, verdict, found, mapped, shown, repairs };
    let Some(all) = comparable(&outcome.answers) else { return outcome };
    let compared = tree::compare(&all, &tree).and_then(|(mut found, mapped)| {
        let shown = look_closer(nodes, &mut found)?;
        Ok((found, mapped, shown))
    });
    match compared {
        Ok((found, mapped, shown)) => {
            outcome.verdict = if found.is_empty() { Verdict::Agree } else { Verdict::Differ };
            (outcome.found, outcome.mapped, outcome.shown) = (found, mapped, shown);
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

/// What they have, if all are there and of one entry.
fn comparable(answers: &[Answer<MemoryRoot>]) -> Option<Vec<&MemoryRoot>> {
    let all: Vec<&MemoryRoot> = answers.iter().map(|a| a.as_ref().ok()).collect::<Option<_>>()?;
    all.iter().all(|status| status.index == all[0].index).then_some(all)
}

/// For each node, why it did not answer.
type Unanswered = Vec<Option<String>>;

/// Looks at the doubtful pages: they differ, or not. Answers the first pages that differ.
fn look_closer(nodes: &[Asked], found: &mut Comparison) -> Result<Vec<Vec<Page>>, Unanswered> {
    let mut doubtful = std::mem::take(&mut found.doubtful);
    let unlooked = doubtful.split_off(doubtful.len().min(MAX_DOUBTFUL));
    for pages in doubtful.chunks(MAX_LOOKED_AT) {
        for (at, seen) in pages.iter().zip(look(nodes, false, pages)?) {
            let hashes: Vec<_> = seen.iter().map(|page| compare::number(&page.hash)).collect();
            if hashes.iter().any(|hash| *hash != hashes[0]) {
                found.differing.push(Place { at: *at, hashes });
            }
        }
    }
    let unknown = vec![None; nodes.len()];
    let unlooked = unlooked.into_iter().map(|at| Place { at, hashes: unknown.clone() });
    found.differing.extend(unlooked);
    found.differing.sort_unstable_by_key(|place| place.at);
    let first = found.differing.iter().take(MAX_SHOWN).map(|place| place.at);
    let first: Vec<PageAt> = first.collect();
    if first.is_empty() { Ok(Vec::new()) } else { look(nodes, true, &first) }
}

/// For each page, each replica's bytes.
fn look(nodes: &[Asked], contents: bool, pages: &[PageAt]) -> Result<Vec<Vec<Page>>, Unanswered> {
    let question = Question { contents, pages: pages.to_vec() };
    let question = serde_json::to_string(&question).expect("plain structs are valid JSON");
    let answers = of_all(nodes, |node| {
        let body = node.post_json("/memory/look", &question, LIMIT)?;
        let found = parsed::<Vec<Page>>(&body)?;
        match found.len() == pages.len() {
            true => Ok(found),
            false => Err(AdminError::Wrong(format!("{} of {} pages", found.len(), pages.len()))),
        }
    })?;
    let mut all: Vec<_> = answers.into_iter().map(Vec::into_iter).collect();
    Ok(pages.iter().map(|_| all.iter_mut().filter_map(Iterator::next).collect()).collect())
}

/// The answers of all nodes.
fn of_all<T: Send>(
    nodes: &[Asked],
    ask: impl Fn(&Asked) -> Result<T, AdminError> + Sync,
) -> Result<Vec<T>, Unanswered> {
    let answers = standstill::ask_all(nodes, ask);
    if answers.iter().any(Result::is_err) {
        return Err(answers.into_iter().map(Result::err).collect());
    }
    Ok(answers.into_iter().flatten().collect())
}

fn parsed<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, AdminError> {
    serde_json::from_slice(body).map_err(|error| AdminError::Wrong(error.to_string()))
}
