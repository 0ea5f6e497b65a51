//! `skein files`: what the server has written, on each replica of this machine, and whether they agree.
//!
//! A server that has timers never rests for long, and one that has got an entry may still be writing. So all are held for a moment, go on to one
//! entry, and stand there while their files are read: what is compared is what the same entries have written. Where that does not
//! succeed (a node does not answer, a replica is far behind) the command tries again until its patience ends.
//!
//! Exit codes: 0 the replicas agree; 1 they differ; 2 they cannot be compared; 3 no such cluster.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use skein_node::FilesStatus;
use skein_node::supervisor::WrittenFile;

use crate::admin::{self, AdminError};
use crate::args::FilesArgs;
use crate::failure::Failure;
use crate::instance::{self, NodeFiles};
use crate::status::state_of;

/// How long a node may take to come to an entry and to read all files.
const LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to answer that it holds its server.
const LIMIT_TO_HOLD: Duration = Duration::from_secs(3);
/// How long replicas that cannot be compared are asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(100);
/// Files shown to a reader.
const SHOWN: usize = 50;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    verdict: Verdict,
    replicas: Vec<ReplicaFiles>,
    /// Paths whose entries are not the same on all replicas.
    differing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ReplicaFiles {
    id: u64,
    /// The last entry that was executed; `null` when the node gave no answer, which `problem` explains.
    index: Option<u64>,
    problem: Option<String>,
    digest: String,
    count: u64,
    bytes: u64,
    files: Vec<WrittenFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Agree,
    Differ,
    Incomparable,
}

impl Verdict {
    const fn code(self) -> u8 {
        match self {
            Self::Agree => 0,
            Self::Differ => 1,
            Self::Incomparable => 2,
        }
    }
}

type Answer = Result<FilesStatus, String>;

/// Prints what the replicas have written; answers the exit code.
pub fn files(args: &FilesArgs) -> Result<u8, Failure> {
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let begun = Instant::now();
    let (answers, verdict) = loop {
        let answers = compare(&state.nodes);
        let verdict = judge(&answers);
        if verdict != Verdict::Incomparable || begun.elapsed() > PATIENCE {
            break (answers, verdict);
        }
        thread::sleep(PAUSE);
    };
    let report = Report {
        name: state.name.clone(),
        verdict,
        differing: differing(&answers),
        replicas: state.nodes.iter().zip(answers).map(replica).collect(),
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("plain structs are valid JSON") + "\n"
    } else {
        text(&report)
    };
    // A reader that closed the pipe wants no more.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(verdict.code())
}

/// Holds all servers, lets them go on to the entry that the foremost has, and has their files read there.
fn compare(nodes: &[NodeFiles]) -> Vec<Answer> {
    let held = ask_all(nodes, |node| {
        let index = admin::post(&node.admin, "/files/hold", LIMIT_TO_HOLD)?;
        let index = String::from_utf8_lossy(&index).trim().parse::<u64>();
        index.map_err(|error| AdminError::Wrong(error.to_string()))
    });
    let foremost = held.iter().flatten().max();
    if let Some(foremost) = foremost.filter(|_| held.iter().all(Result::is_ok)) {
        return ask_all(nodes, |node| {
            let body = admin::get(&node.admin, &format!("/files/{foremost}"), LIMIT)?;
            serde_json::from_slice(&body).map_err(|error| AdminError::Wrong(error.to_string()))
        });
    }
    // Those that were held are not to wait for the others.
    ask_all(nodes, |node| admin::post(&node.admin, "/files/go-on", LIMIT_TO_HOLD));
    let other = || "its server was not compared: another replica gave no answer".into();
    held.into_iter().map(|answer| answer.and_then(|_| Err(other()))).collect()
}

/// Asks all nodes at the same time.
fn ask_all<T: Send>(
    nodes: &[NodeFiles],
    ask: impl Fn(&NodeFiles) -> Result<T, AdminError> + Sync,
) -> Vec<Result<T, String>> {
    let ask = |node| ask(node).map_err(|error| error.to_string());
    thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = nodes.iter().map(|node| scope.spawn(move || ask(node))).collect();
        let lost = |_| Err("the question was lost".into());
        asked.into_iter().map(|answer| answer.join().unwrap_or_else(lost)).collect()
    })
}

fn judge(answers: &[Answer]) -> Verdict {
    let mut all = answers.iter();
    let Some(Ok(first)) = all.next() else { return Verdict::Incomparable };
    let mut verdict = Verdict::Agree;
    for answer in all {
        match answer {
            Ok(status) if status.index == first.index => {
                if status.written.digest != first.written.digest {
                    verdict = Verdict::Differ;
                }
            }
            _ => return Verdict::Incomparable,
        }
    }
    verdict
}

/// Paths that are not told the same by all that answered.
fn differing(answers: &[Answer]) -> Vec<String> {
    let answers: Vec<&FilesStatus> = answers.iter().flatten().collect();
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for status in &answers {
        for file in &status.written.files {
            told.entry(&file.path).or_default().push(&file.digest);
        }
    }
    let differs = |digests: &Vec<&str>| {
        digests.len() != answers.len() || digests.iter().any(|digest| *digest != digests[0])
    };
    told.iter().filter(|(_, d)| differs(d)).map(|(path, _)| (*path).to_owned()).collect()
}

fn replica((node, answer): (&NodeFiles, Answer)) -> ReplicaFiles {
    let (index, problem, written) = match answer {
        Ok(status) => (Some(status.index), None, status.written),
        Err(why) => (None, Some(why), skein_node::supervisor::Written::default()),
    };
    ReplicaFiles {
        id: node.id,
        index,
        problem,
        digest: written.digest,
        count: written.count,
        bytes: written.bytes,
        files: written.files,
    }
}

fn text(report: &Report) -> String {
    let verdict = match report.verdict {
        Verdict::Agree => "all replicas have written the same",
        Verdict::Differ => "the replicas' files differ",
        Verdict::Incomparable => "the replicas cannot be compared now",
    };
    let mut text = format!("{}: {verdict}\n\n", report.name);
    for replica in &report.replicas {
        text += &match (replica.index, &replica.problem) {
            (Some(index), _) => format!(
                "replica {}  entry {index}  {} files, {} bytes  {}\n",
                replica.id, replica.count, replica.bytes, replica.digest
            ),
            (None, why) => {
                format!("replica {}  {}\n", replica.id, why.as_deref().unwrap_or_default())
            }
        };
    }
    let (head, shown): (_, Vec<String>) = if report.verdict == Verdict::Differ {
        ("differing", report.differing.clone())
    } else {
        let line = |file: &WrittenFile| format!("{:<9} {:>12} {}", file.kind, file.size, file.path);
        let first = report.replicas.iter().find(|replica| replica.index.is_some());
        (
            "written",
            first.map(|replica| replica.files.iter().map(line).collect()).unwrap_or_default(),
        )
    };
    if !shown.is_empty() {
        text += &format!("\n{head}:\n");
        for line in shown.iter().take(SHOWN) {
            text += &format!("  {line}\n");
        }
        if shown.len() > SHOWN {
            text += &format!("  ... and {} more; --json lists them\n", shown.len() - SHOWN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use skein_node::supervisor::Written;

    fn answer(index: u64, digest: &str, files: &[(&str, &str)]) -> Answer {
        let file = |(path, digest): &(&str, &str)| WrittenFile {
            path: (*path).into(),
            kind: "file".into(),
            mode: 0o644,
            size: 1,
            modified: None,
            digest: (*digest).into(),
        };
        let files = files.iter().map(file).collect();
        let written = Written { digest: digest.into(), count: 1, bytes: 1, files };
        Ok(FilesStatus { index, written })
    }

    #[test]
    fn judges_only_what_can_be_compared() {
        assert_eq!(judge(&[answer(7, "a", &[]), answer(7, "a", &[])]), Verdict::Agree);
        assert_eq!(judge(&[answer(7, "a", &[]), answer(7, "b", &[])]), Verdict::Differ);
        assert_eq!(judge(&[answer(7, "a", &[]), answer(8, "b", &[])]), Verdict::Incomparable);
        assert_eq!(judge(&[answer(7, "a", &[]), Err("gone".into())]), Verdict::Incomparable);
        assert_eq!(judge(&[]), Verdict::Incomparable);
    }

    #[test]
    fn names_what_differs() {
        let one = answer(7, "a", &[("/same", "1"), ("/other", "1"), ("/only", "1")]);
        let two = answer(7, "b", &[("/same", "1"), ("/other", "2")]);
        assert_eq!(differing(&[one, two]), ["/only", "/other"]);
    }
}
