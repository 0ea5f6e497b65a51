//! `skein files --export DIR`: the files that the server has written, as they were at one entry.
//!
//! They come from an image, which a replica of this machine takes now: a follower, if one is here, so no client waits. It contains all that clients were told before,
//! and is used once its server was compared with the others', or a later one is: what is exported is what a majority has.
//!
//! Exit codes: 0 done; 2 it cannot be done; 3 no such cluster.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use skein_node::images::export::export_files;
use skein_replica::replica::Checkpointed;
use skein_sandbox::Amount;

use crate::admin::{self, AdminError};
use crate::args::FilesArgs;
use crate::checkpoint::{LIMIT, LONG, failure, follower, images_of, of_replica, parsed};
use crate::failure::Failure;
use crate::instance::{self, NodeFiles, State};
use crate::run::poll;
use crate::status::state_of;
use crate::words::{bytes, number};

/// The servers are compared at least this often; a busy machine takes longer.
const COMPARED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Several heartbeats of a leader.
const HEARD_WITHIN: Duration = Duration::from_millis(250);

/// Exports; answers the exit code.
pub fn export(args: &FilesArgs, dir: &Path) -> Result<u8, Failure> {
    let state = state_of(&instance::find(args.name.as_deref())?)?;
    if let Some(relative) = args.paths.iter().find(|path| path.is_relative()) {
        let what = relative.display().to_string();
        return Err(Failure::new(what, "it does not begin with a slash", "name the server's path"));
    }
    check_free(dir)?;
    let nodes: Vec<&NodeFiles> = state.nodes.iter().collect();
    let node = follower(&nodes)
        .ok_or_else(|| failure(&state, "no replica here answers", "see 'skein status'"))?;
    let (index, image) = fresh_image(&state, node)?;
    let amount = write(&image, dir, &args.paths)?;
    println!(
        "skein: {}: {}: {} files of replica {} as of entry {}: {}",
        state.name,
        dir.display(),
        number(amount.files),
        node.id,
        number(index),
        bytes(amount.bytes)
    );
    Ok(0)
}

fn unusable(dir: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("--export {}", dir.display()), error, "nothing was written")
}

/// The directory is new, or empty.
fn check_free(dir: &Path) -> Result<(), Failure> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(dir, error)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(unusable(dir, "the directory is not empty")),
        },
    }
}

/// An image that has all that was acknowledged before this request, compared: its entry and file.
fn fresh_image(state: &State, node: &NodeFiles) -> Result<(u64, PathBuf), Failure> {
    let told = |error: &AdminError| {
        let fix = "nothing was written; see 'skein status'";
        failure(state, of_replica(node, error), fix)
    };
    let limit = Instant::now() + COMPARED_WITHIN;
    let index = take(state, node, limit).map_err(|error| told(&error))?;
    loop {
        let there = images_of(node).map_err(|error| told(&error))?;
        let fits = |image: &&skein_node::status::ImageStatus| {
            image.confirmed && image.problem.is_none() && image.index >= index
        };
        if let Some(image) = there.images.iter().rfind(fits) {
            return Ok((image.index, there.dir.join(format!("image-{}", image.index))));
        }
        if Instant::now() >= limit {
            let why = format!(
                "replica {} has an image of entry {}, but its server was not compared with the others' since",
                node.id,
                number(index)
            );
            return Err(failure(state, why, "nothing was written; see 'skein status'"));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The newest entry that can have been acknowledged to a client by now.
fn acknowledged(state: &State) -> Option<u64> {
    let told = || state.nodes.iter().filter_map(|node| poll::status(&node.admin, LIMIT));
    let commit = |status: skein_node::NodeStatus| status.replica.commit_index;
    if let Some(leader) = told().find(|status| status.replica.role == "leader") {
        return Some(commit(leader));
    }
    // The leader is on another machine: followers hear of its commits with its next heartbeats.
    thread::sleep(HEARD_WITHIN);
    told().map(commit).max()
}

/// Has an image taken that contains all that was acknowledged, unless there is one; answers its entry.
fn take(state: &State, node: &NodeFiles, limit: Instant) -> Result<u64, AdminError> {
    let silent = || AdminError::Silent;
    let least = acknowledged(state).ok_or_else(silent)?;
    let executed = || poll::status(&node.admin, LIMIT).map(|status| status.replica.applied_index);
    while executed().ok_or_else(silent)? < least {
        if Instant::now() >= limit {
            let why = format!("its server has not executed entry {} yet", number(least));
            return Err(AdminError::Refused(why));
        }
        thread::sleep(LOOK_EVERY);
    }
    let there = || {
        let images = images_of(node)?.images;
        Ok(images.iter().map(|image| image.index).filter(|index| *index >= least).max())
    };
    if let Some(index) = there()? {
        return Ok(index);
    }
    match admin::post(&node.admin, "/images", LONG).and_then(|body| parsed(&body)) {
        Ok(Checkpointed { index, .. }) => Ok(index),
        // One may have been taken meanwhile.
        Err(error) => there()?.ok_or(error),
    }
}

/// Writes the files of an image to `dir`, which has its name when it is whole.
fn write(image: &Path, dir: &Path, paths: &[PathBuf]) -> Result<Amount, Failure> {
    let failed = |error: io::Error| unusable(dir, error);
    let name = dir.file_name().ok_or_else(|| unusable(dir, "it has no name"))?;
    let mut part_name = std::ffi::OsString::from(".");
    part_name.push(name);
    part_name.push(".part");
    let part = dir.with_file_name(part_name);
    let made = fs::DirBuilder::new().mode(0o700).create(&part);
    made.map_err(|error| unusable(&part, error))?;
    let exported = export_files(image, &part, paths).map_err(|error| unusable(dir, error));
    let written = exported.and_then(|amount| {
        fs::rename(&part, dir).map_err(failed)?;
        Ok(amount)
    });
    if written.is_err() {
        // The error of the export is the one that matters.
        let _ = fs::remove_dir_all(&part);
    }
    written
}
