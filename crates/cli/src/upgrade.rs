//! `skein upgrade`: gives the server another program, other arguments, another environment or the host's newer files, and keeps its data.
//!
//! Has images of all servers taken, asks the leader, or a node here that makes the new base and passes the request on, and follows what the replicas' logs say until the new server is up, or the former one is back. Ctrl-C ends the command, not the upgrade.
//!
//! Exit codes: 0 the new server is up, or there was nothing to change; 1 undone or given up: the server is as before; 2 refused, or it cannot be told; 3 no such
//! cluster.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use skein_node::NodeStatus;
use skein_node::admin::upgrade::{Begun, Question};
use skein_node::base::stage::Change;
use skein_replica::editions::Outcome;

use crate::admin::{self, AdminError};
use crate::args::UpgradeArgs;
use crate::failure::Failure;
use crate::instance::{self, NodeFiles, State};
use crate::run::poll;
use crate::run::setup::text;
use crate::status::state_of;
use crate::{output, signal, standstill};

/// The server is as before.
const EXIT_UNDONE: u8 = 1;
/// How long a node may take to answer about its state,
const LIMIT: Duration = Duration::from_secs(2);
/// and to make the new edition: it copies files, and sends them.
const MAKES: Duration = Duration::from_secs(180);
/// The longest time for an image of one server.
const TAKES: Duration = Duration::from_secs(60);
/// How long to look for a leader.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// Of a server that did not come up, so many last lines are shown,
const LINES: usize = 5;
/// from so many bytes.
const TAIL_BYTES: u64 = 4096;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// The edition that was wanted; none: there was nothing to change.
    edition: Option<u64>,
    /// The entry that asked the servers to end.
    entry: Option<u64>,
    /// `unchanged`, `kept`, `undone` or `given_up`.
    outcome: &'static str,
    /// Why it was undone.
    why: Option<String>,
    /// The command of that edition.
    command: String,
    /// The paths that were taken over from the host.
    files: Vec<String>,
}

/// Upgrades; answers the exit code.
pub fn upgrade(args: &UpgradeArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let question =
        Question { change: change(args)?, wait_ms: args.wait * 1000, signal: args.signal };
    take_images(&state);
    let begun = begin(&state, &question)?;
    let Some((number, entry)) = begun.edition else {
        let line = format!("nothing to change: the server is {}\n", begun.command);
        let report = Report {
            edition: None,
            entry: None,
            outcome: "unchanged",
            why: None,
            command: begun.command,
            files: Vec::new(),
        };
        output::print(&if args.json { output::json(&report) } else { line });
        return Ok(0);
    };
    // Ending and coming up, and all replicas' work in between.
    let limit = Instant::now() + Duration::from_secs(2 * args.wait + 60);
    let (outcome, said) = follow(&state, (number, entry), limit)?;
    let (name, why, code) = match outcome {
        Outcome::Kept => ("kept", None, 0),
        Outcome::Undone(why) => ("undone", Some(why), EXIT_UNDONE),
        _ => ("given_up", None, EXIT_UNDONE),
    };
    let Begun { command, files, .. } = begun;
    if args.json {
        let (edition, entry) = (Some(number), Some(entry));
        let report = Report { edition, entry, outcome: name, why, command, files };
        output::print(&output::json(&report));
        return Ok(code);
    }
    let what = format!("cluster {}", state.name);
    match (name, why) {
        ("kept", _) => {
            let taken: String = files.iter().map(|path| format!("taken over: {path}\n")).collect();
            output::print(&format!("{taken}edition {number} is up: {command}\n"));
            Ok(0)
        }
        (_, Some(why)) => {
            for line in said {
                eprintln!("server: {line}");
            }
            let why = format!(
                "edition {number} did not come up, and the server is as before with all its data: {why}"
            );
            Err(Failure::new(what, why, "see 'skein logs --server'").with_code(code))
        }
        _ => {
            let why =
                format!("the server did not end within {} s, and goes on as before", args.wait);
            let fix = "give another --signal (PostgreSQL: INT), or a longer --wait";
            Err(Failure::new(what, why, fix).with_code(code))
        }
    }
}

fn change(args: &UpgradeArgs) -> Result<Change, Failure> {
    let texts = |words: &[std::ffi::OsString]| {
        words.iter().map(|word| text(word)).collect::<Result<Vec<_>, _>>()
    };
    let mut change = Change { files: args.files, skein: args.skein, ..Change::default() };
    for (name, value) in &args.env {
        match value {
            Some(value) => change.env.push((name.clone(), value.clone())),
            None => change.unset.push(name.clone()),
        }
    }
    if let Some((program, words)) = args.program.split_first() {
        (change.program, change.args) = (Some(text(program)?), Some(texts(words)?));
    } else if let Some(words) = &args.args {
        change.args = Some(texts(words)?);
    }
    Ok(change)
}

/// Has images taken of all servers, in turn: of the files that they leave, only what was written since is read before the next ones begin. One that cannot be taken changes nothing but
/// that time.
fn take_images(state: &State) {
    for node in standstill::with_servers(&state.nodes) {
        let _ = node.post("/images", TAKES);
    }
}

/// Has it begun.
fn begin(state: &State, question: &Question) -> Result<Begun, Failure> {
    let fail = |why: String, fix: &str| Failure::new(format!("cluster {}", state.name), why, fix);
    let question = serde_json::to_string(question).expect("plain values have a JSON form");
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some((node, _)) = signal::asked(state) {
            match admin::post_json(&node.admin, "/upgrade", &question, MAKES) {
                Ok(answer) => {
                    return serde_json::from_slice(&answer).map_err(|error| {
                        fail(
                            format!("replica {}: its answer is not understood ({error})", node.id),
                            "",
                        )
                    });
                }
                Err(AdminError::Refused(why)) => return Err(fail(why, "")),
                // It leads no more, or does not serve yet.
                Err(AdminError::Wrong(_) | AdminError::Absent(_)) => {}
                Err(error @ (AdminError::Silent | AdminError::Ended)) => {
                    let why =
                        format!("replica {}: {error}: the upgrade may have begun or not", node.id);
                    return Err(fail(why, "see 'skein status'"));
                }
            }
        }
        if Instant::now() > limit {
            return Err(fail("no leader serves".into(), "see 'skein status'"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for the end of the upgrade to the edition with this number, which this entry asked for; answers the last lines of the new server, too, as far as they were seen.
fn follow(
    state: &State,
    (number, entry): (u64, u64),
    limit: Instant,
) -> Result<(Outcome, Vec<String>), Failure> {
    let mut said = Vec::new();
    let begin = state.nodes.first().map_or(0, |node| length(&node.output));
    loop {
        let told = |node: &NodeFiles| outcome(poll::status(&node.admin, LIMIT)?, number, entry);
        let found = state.nodes.iter().find_map(told);
        match found {
            Some(Outcome::Ending) | None => {}
            Some(Outcome::Starting) => {
                said =
                    state.nodes.first().map(|node| tail(&node.output, begin)).unwrap_or_default();
            }
            Some(outcome) => return Ok((outcome, said)),
        }
        if Instant::now() > limit {
            let why = format!(
                "what became of edition {number} cannot be told: no replica here answers, or it is still under way"
            );
            return Err(Failure::new(format!("cluster {}", state.name), why, "see 'skein status'"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// What a node says of it. One that does not have the entry yet may know of an earlier upgrade with this number, which was given up.
fn outcome(status: NodeStatus, number: u64, entry: u64) -> Option<Outcome> {
    let replica = status.replica;
    let has_it = replica.applied_index.min(replica.commit_index) >= entry;
    let upgrades = Some(replica.edition.upgrades).filter(|_| has_it)?;
    upgrades.into_iter().find(|(of, _)| *of == number).map(|(_, outcome)| outcome)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// The last lines of a server's output behind a position.
fn tail(path: &Path, begin: u64) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(begin.min(len).max(len.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // Without it the reason is there all the same.
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(LINES);
    lines[from..].iter().map(|line| line.chars().filter(|c| !c.is_control()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_not_heard_of_the_upgrade_says_nothing_of_it() {
        let told = |commit_index, applied_index, outcome| {
            let mut status = NodeStatus::default();
            (status.replica.commit_index, status.replica.applied_index) =
                (commit_index, applied_index);
            status.replica.edition.upgrades = vec![(2, outcome)];
            super::outcome(status, 2, 50)
        };
        // Given up at entry 20, and its number is used again.
        assert_eq!(told(49, 49, Outcome::GivenUp), None);
        assert_eq!(told(50, 49, Outcome::GivenUp), None, "it has not looked at the entry yet");
        assert_eq!(told(49, 51, Outcome::GivenUp), None, "it executed ahead");
        assert_eq!(told(50, 50, Outcome::Ending), Some(Outcome::Ending));
        assert_eq!(told(70, 70, Outcome::GivenUp), Some(Outcome::GivenUp));
    }
}
