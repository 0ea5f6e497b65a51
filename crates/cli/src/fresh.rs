//! An image that has all that clients were told before: a replica of this machine takes it now, a follower, if one is here, so no client waits.
//!
//! It is used once its server was compared with the others', or a later one is: what is exported is what a majority has.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use skein_replica::replica::Checkpointed;

use crate::admin::{self, AdminError};
use crate::checkpoint::{LIMIT, LONG, failure, images_of, of_replica, parsed};
use crate::failure::Failure;
use crate::instance::{NodeFiles, State};
use crate::run::poll;
use crate::words::number;

/// The servers are compared at least this often; a busy machine takes longer.
const COMPARED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Several heartbeats of a leader.
const HEARD_WITHIN: Duration = Duration::from_millis(250);

/// An image that has all that was acknowledged before this request, compared: its entry and file.
pub fn image(state: &State, node: &NodeFiles) -> Result<(u64, PathBuf), Failure> {
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
