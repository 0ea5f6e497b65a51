//! `skein files`: the files that the server has written, on each replica of this machine, and whether they agree.
//!
//! All servers stand at one entry while their files are read ([`crate::standstill`]), so all files are results of the same entries.
//!
//! With `--export` they are written to a directory instead ([`crate::export`]).
//!
//! Exit codes: 0 the replicas agree; 1 they differ; 2 they cannot be compared; 3 no such cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use skein_node::FilesStatus;
use skein_sandbox::WrittenFile;

use crate::admin::{AdminError, Asked};
use crate::args::FilesArgs;
use crate::export::export;
use crate::failure::Failure;
use crate::instance;
use crate::output;
use crate::standstill::{self, Verdict};
use crate::status::state_of;

/// The longest time of a node to come to an entry and to read all files.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest time of a node to say that it is there.
const ANSWERS: Duration = Duration::from_secs(3);
/// The most files shown to a reader.
const SHOWN: usize = 50;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    verdict: Verdict,
    replicas: Vec<ReplicaFiles>,
    /// Paths with different entries on some replicas.
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

type Answer = standstill::Answer<FilesStatus>;

/// Prints the written files; answers the exit code.
pub fn files(args: &FilesArgs) -> Result<u8, Failure> {
    if let Some(dir) = &args.export {
        return export(args, dir);
    }
    let instance = instance::find(args.name.as_deref())?;
    let state = state_of(&instance)?;
    let nodes = standstill::with_servers(&state.nodes);
    let compared = || {
        let answers = compare(&nodes);
        let verdict = judge(&answers);
        (answers, verdict)
    };
    let (mut answers, verdict) =
        standstill::patiently(compared, |(_, verdict)| *verdict == Verdict::Incomparable);
    if verdict == Verdict::Incomparable {
        list_some(&nodes, &mut answers);
    }
    let report = Report {
        name: state.name.clone(),
        verdict,
        differing: differing(&answers),
        replicas: nodes.iter().zip(answers).map(replica).collect(),
    };
    let text = if args.json { output::json(&report) } else { text(&report) };
    output::print(&text);
    Ok(verdict.code())
}

/// Where not all can be compared, those that answer are listed.
fn list_some(nodes: &[Asked], answers: &mut [Answer]) {
    let there: Vec<usize> =
        (0..nodes.len()).filter(|n| nodes[*n].status(ANSWERS).is_ok()).collect();
    let some: Vec<Asked> = there.iter().map(|n| nodes[*n].clone()).collect();
    for (n, answer) in there.into_iter().zip(compare(&some)) {
        answers[n] = answer;
    }
}

/// Has the files of all servers read at one entry.
fn compare(nodes: &[Asked]) -> Vec<Answer> {
    standstill::at_one_entry(nodes, |node, index| {
        let body = node.get(&format!("/files/{index}"), LIMIT)?;
        serde_json::from_slice(&body).map_err(|error| AdminError::Wrong(error.to_string()))
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

/// Paths that differ between the replicas that answered.
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

fn replica((node, answer): (&Asked, Answer)) -> ReplicaFiles {
    let (index, problem, written) = match answer {
        Ok(status) => (Some(status.index), None, status.written),
        Err(why) => (None, Some(why), skein_sandbox::Written::default()),
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
        Verdict::Agree | Verdict::Repaired => "all replicas have written the same",
        Verdict::Differ => "the replicas' files differ",
        Verdict::Incomparable => "the replicas cannot be compared now",
    };
    let mut text = format!("{}: {verdict}\n\n", report.name);
    for replica in &report.replicas {
        let ReplicaFiles { id, index, problem, digest, count, bytes, .. } = replica;
        let has = format!("{count} files, {bytes} bytes  {digest}");
        text += &standstill::line(*id, *index, problem.as_deref(), &has);
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
    use skein_sandbox::Written;

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
