//! `skein checkpoint`: images of the server, which replicas continue from when they start.
//!
//! Nodes take and remove images; this asks them. Only `export` reads a file itself: that of a node of this machine; `import` runs a cluster.
//!
//! Exit codes: 0 done; 2 it cannot be done, or told; 3 no such cluster. `verify`: 1 when an image is not whole.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use skein_node::archive;
use skein_node::status::{ImageStatus, ImagesListed};
use skein_replica::replica::Checkpointed;

use crate::admin::{self, AdminError};
use crate::args::{
    CheckpointArgs, CheckpointTask, CreateArgs, ExportArgs, ImportArgs, LsArgs, RmArgs, RunArgs,
};
use crate::failure::{EXIT_USAGE, Failure};
use crate::images::{self, LIMIT, LONG, ask_all, failure, follower, images_of, of_replica, parsed};
use crate::instance::{self, NodeFiles, State};
use crate::output;
use crate::run;
use crate::status::state_of;
use crate::words::{bytes, number};

/// An image is not whole.
const EXIT_DAMAGED: u8 = 1;

/// Does the task; answers the exit code.
pub fn checkpoint(args: &CheckpointArgs, words: &[OsString]) -> Result<u8, Failure> {
    match &args.task {
        CheckpointTask::Create(args) => create(args),
        CheckpointTask::Ls(args) => ls(args),
        CheckpointTask::Rm(args) => rm(args),
        CheckpointTask::Verify(args) => verify(args),
        CheckpointTask::Export(args) => export(args),
        CheckpointTask::Import(args) => import(args, words),
    }
}

/// Runs a cluster that begins with an export; `words` are the command's.
fn import(args: &ImportArgs, words: &[OsString]) -> Result<u8, Failure> {
    let refused = |what: &Path, why: &str, fix: &str| {
        Failure::new(what.display().to_string(), why, fix).with_code(EXIT_USAGE)
    };
    if let Some(other) = &args.run.import {
        return Err(refused(other, "a cluster begins with one file", "leave out --import"));
    }
    if args.file.is_dir() {
        let fix = "'skein run --import DIR' begins a cluster with files";
        return Err(refused(&args.file, "it is a directory, not what was exported", fix));
    }
    let run = RunArgs { import: Some(args.file.clone()), ..args.run.clone() };
    Ok(run::run(&run, words, 3))
}

fn state(name: Option<&str>) -> Result<State, Failure> {
    state_of(&instance::find(name)?)
}

/// The nodes of this replica, or of all of this machine.
fn chosen(state: &State, replica: Option<u64>) -> Result<Vec<&NodeFiles>, Failure> {
    let nodes: Vec<_> =
        state.nodes.iter().filter(|node| replica.is_none_or(|id| id == node.id)).collect();
    match (nodes.is_empty(), replica) {
        (true, Some(id)) => {
            let why = format!("replica {id} is not on this machine");
            Err(failure(state, why, "say which with --replica N; 'skein status' shows them"))
        }
        _ => Ok(nodes),
    }
}

fn create(args: &CreateArgs) -> Result<u8, Failure> {
    let state = state(args.name.as_deref())?;
    let nodes = chosen(&state, args.replica)?;
    let node = match args.replica {
        Some(_) => nodes.first().copied(),
        None => follower(&nodes),
    };
    let node =
        node.ok_or_else(|| failure(&state, "no replica here answers", "see 'skein status'"))?;
    let taken = admin::post(&node.admin, "/images", LONG).and_then(|body| parsed(&body));
    let taken: Checkpointed = taken.map_err(|error| {
        let fix = match error {
            AdminError::Ended => "see its log, and 'skein status'; the others go on as before",
            _ => "see 'skein status'; the server goes on as before",
        };
        failure(&state, of_replica(node, &error), fix)
    })?;
    if args.json {
        output::print(&output::json(&Created { replica: node.id, taken }));
        return Ok(0);
    }
    println!(
        "skein: {}: replica {} has an image of entry {}: {}, {} pages copied; its server stood for {} ms, written after {} ms",
        state.name,
        node.id,
        taken.index,
        bytes(taken.bytes),
        number(taken.pages),
        number(taken.stood_us.div_ceil(1000)),
        number(taken.took_us.div_ceil(1000))
    );
    Ok(0)
}

/// An image that was taken, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Created {
    replica: u64,
    #[serde(flatten)]
    taken: Checkpointed,
}

/// A replica's images, as `--json` prints them.
#[derive(Debug, Serialize)]
struct Listed {
    replica: u64,
    /// Why the node gave no answer.
    problem: Option<String>,
    images: Vec<ImageStatus>,
}

fn listed(state: &State) -> Vec<Listed> {
    let nodes: Vec<_> = state.nodes.iter().collect();
    let answers = ask_all(&nodes, images_of);
    let one = |(node, answer): (&&NodeFiles, Result<ImagesListed, AdminError>)| match answer {
        Ok(found) => Listed { replica: node.id, problem: None, images: found.images },
        Err(error) => {
            Listed { replica: node.id, problem: Some(error.to_string()), images: Vec::new() }
        }
    };
    nodes.iter().zip(answers).map(one).collect()
}

fn ls(args: &LsArgs) -> Result<u8, Failure> {
    let state = state(args.name.as_deref())?;
    let listed = listed(&state);
    let silent = listed.iter().any(|one| one.problem.is_some());
    output::print(&if args.json { output::json(&listed) } else { table(&listed, now_ms()) });
    Ok(if silent { EXIT_USAGE } else { 0 })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn table(listed: &[Listed], now_ms: u64) -> String {
    let mut text = format!(
        "{:<8} {:>12} {:>10} {:>12} {:>12} {:>12} {:>12}  {}\n",
        "REPLICA", "ENTRY", "AGE", "ON DISK", "ALONE", "MEMORY", "FILES", "STATE"
    );
    for Listed { replica, problem, images } in listed {
        if let Some(problem) = problem {
            text.push_str(&format!("{replica:<8} {problem}\n"));
        } else if images.is_empty() {
            text.push_str(&format!("{replica:<8} {:>12}\n", "none"));
        }
        for image in images {
            let index = number(image.index);
            text.push_str(&match &image.problem {
                Some(problem) => format!("{replica:<8} {index:>12} {problem}\n"),
                None => format!(
                    "{replica:<8} {index:>12} {:>10} {:>12} {:>12} {:>12} {:>12}  {}\n",
                    age(now_ms.saturating_sub(image.taken_ms)),
                    bytes(image.bytes),
                    bytes(image.total_bytes),
                    bytes(image.memory_bytes),
                    bytes(image.files_bytes),
                    if image.confirmed { "counts" } else { "to be compared" }
                ),
            });
        }
    }
    text
}

/// `42 s`, `17 min`, `5 h`, `3 d`.
fn age(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

fn rm(args: &RmArgs) -> Result<u8, Failure> {
    let state = state(args.name.as_deref())?;
    let mut removed = 0;
    for node in chosen(&state, args.replica)? {
        let told = |error: &AdminError| {
            failure(&state, of_replica(node, error), "see 'skein checkpoint ls'")
        };
        let there = images_of(node).map_err(|error| told(&error))?;
        if there.images.iter().any(|image| image.index == args.entry) {
            let target = format!("/images/{}/remove", args.entry);
            admin::post(&node.admin, &target, LIMIT).map_err(|error| told(&error))?;
            println!(
                "skein: {}: replica {} has removed its image of entry {}",
                state.name, node.id, args.entry
            );
            removed += 1;
        }
    }
    if removed == 0 {
        let why = format!("there is no image of entry {}", args.entry);
        return Err(failure(&state, why, "see 'skein checkpoint ls'"));
    }
    Ok(0)
}

fn verify(args: &LsArgs) -> Result<u8, Failure> {
    let state = state(args.name.as_deref())?;
    let mut listed = listed(&state);
    let mut code = 0;
    for (one, node) in listed.iter_mut().zip(&state.nodes) {
        if one.problem.is_some() {
            code = EXIT_USAGE;
        }
        // One that does not count yet may be removed at any time.
        one.images.retain_mut(|image| {
            if !image.confirmed {
                return true;
            }
            let target = format!("/images/{}/verified", image.index);
            match admin::get(&node.admin, &target, LONG) {
                // Newer ones have taken its place.
                Ok(told) if told == b"false" => return false,
                Ok(_) => image.problem = None,
                Err(AdminError::Refused(why)) => {
                    image.problem = Some(why);
                    code = code.max(EXIT_DAMAGED);
                }
                Err(error) => {
                    image.problem = Some(error.to_string());
                    code = EXIT_USAGE;
                }
            }
            true
        });
    }
    output::print(&if args.json { output::json(&listed) } else { verified(&listed) });
    Ok(code)
}

fn verified(listed: &[Listed]) -> String {
    let mut text = String::new();
    for Listed { replica, problem, images } in listed {
        match problem {
            Some(problem) => text.push_str(&format!("replica {replica}: {problem}\n")),
            None if images.is_empty() => text.push_str(&format!("replica {replica}: no images\n")),
            None => {}
        }
        for image in images.iter().filter(|image| image.confirmed) {
            let state = image.problem.as_deref().unwrap_or("whole");
            text.push_str(&format!("replica {replica}: entry {}: {state}\n", image.index));
        }
    }
    text
}

fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let state = state(args.name.as_deref())?;
    let nodes = chosen(&state, args.replica)?;
    let failed = |why: &str| Failure::new("export", why, "nothing was written");
    if args.file.symlink_metadata().is_ok() {
        return Err(failed(&format!("{}: there is such a file", args.file.display())));
    }
    let (node, index, image) = if args.kept {
        newest(&state, &nodes)?
    } else {
        let node = follower(&nodes)
            .ok_or_else(|| failure(&state, "no replica here answers", "see 'skein status'"))?;
        let (index, image) = images::fresh(&state, node, images::has_server)?;
        (node, index, image)
    };
    let copied = archive::export(&image, &node.data, &args.file)
        .map_err(|error| failed(&error.to_string()))?;
    println!(
        "skein: {}: the image of entry {index} of replica {} is in {}, with the files of its host that the server has used: {}",
        state.name,
        node.id,
        args.file.display(),
        bytes(copied)
    );
    Ok(0)
}

/// The newest image that counts, of whichever of these has it: its entry and file.
fn newest<'a>(
    state: &State,
    nodes: &[&'a NodeFiles],
) -> Result<(&'a NodeFiles, u64, PathBuf), Failure> {
    let answers = ask_all(nodes, images_of);
    let mut newest = None;
    for (node, answer) in nodes.iter().zip(answers) {
        let Ok(there) = answer else { continue };
        let last = last_of(&there.images);
        if let Some(image) = last
            && newest.as_ref().is_none_or(|(_, index, _)| *index < image.index)
        {
            newest = Some((*node, image.index, there.dir));
        }
    }
    let (node, index, dir) = newest.ok_or_else(|| {
        failure(state, "no replica here has an image", "leave out --kept: one is taken then")
    })?;
    Ok((node, index, dir.join(format!("image-{index}"))))
}

/// The last one that counts, and that a server can go on from.
fn last_of(images: &[ImageStatus]) -> Option<&ImageStatus> {
    let counts = |image: &&ImageStatus| image.confirmed && image.problem.is_none();
    images.iter().filter(counts).rfind(|image| images::has_server(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_what_there_is_and_who_does_not_answer() {
        let image = ImageStatus {
            index: 12_345,
            confirmed: true,
            taken_ms: 1_000,
            bytes: 123_456,
            total_bytes: 1_234_567,
            memory_bytes: 12_345_678,
            files_bytes: 9,
            processes: 1,
            problem: None,
        };
        let bad =
            ImageStatus { index: 7, problem: Some("image-7: damaged".into()), ..image.clone() };
        let left = ImageStatus { index: 20_000, processes: 0, ..image.clone() };
        let all = [bad.clone(), image.clone(), left];
        assert_eq!(last_of(&all).map(|image| image.index), Some(12_345));
        let listed = [
            Listed { replica: 1, problem: None, images: vec![bad, image] },
            Listed { replica: 2, problem: Some("it does not answer".into()), images: vec![] },
            Listed { replica: 3, problem: None, images: vec![] },
        ];
        let text = table(&listed, 301_000);
        let rows: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            rows[1..],
            [
                "1 7 image-7: damaged",
                "1 12,345 5 min 123 KB 1,234 KB 12 MB 9 bytes counts",
                "2 it does not answer",
                "3 none"
            ]
        );
        assert!(verified(&listed).contains("replica 1: entry 7: image-7: damaged\n"));
        assert!(verified(&listed).contains("replica 1: entry 12345: whole\n"));
    }

    #[test]
    fn ages_are_short() {
        let ms = [0, 119, 120, 7199, 7200, 200_000].map(|s| age(s * 1000));
        assert_eq!(ms, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }
}
