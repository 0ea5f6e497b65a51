//! What the nodes of this machine tell of images, and an image that has all that clients were told before.
//!
//! That one a replica takes now: a follower, if one is here, so no client waits. It is used once its server was compared with the others', or a later one is: what is exported is what a majority has.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use skein_node::NodeStatus;
use skein_node::status::{ImageStatus, ImagesListed};
use skein_replica::replica::Checkpointed;

use crate::admin::{self, AdminError, Asked};
use crate::failure::Failure;
use crate::instance::{NodeFiles, State};
use crate::run::poll;
use crate::words::number;

/// How long a node may take to answer what it knows.
pub const LIMIT: Duration = Duration::from_secs(2);
/// To write an image of a large server, or to read all of one.
pub const LONG: Duration = Duration::from_secs(600);
/// The servers are compared at least this often; a busy machine takes longer.
const COMPARED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A leader is waited for as long: a majority elects one in less.
const LEADS_WITHIN: Duration = Duration::from_secs(10);

pub fn failure(state: &State, why: impl std::fmt::Display, fix: &str) -> Failure {
    Failure::new(format!("cluster {}", state.name), why, fix)
}

pub fn of_replica(node: &NodeFiles, error: &AdminError) -> String {
    format!("replica {}: {error}", node.id)
}

/// A follower whose server is in step, or else whoever answers.
pub fn follower<'a>(nodes: &[&'a NodeFiles]) -> Option<&'a NodeFiles> {
    let told = ask_all(nodes, |node| poll::status(&node.admin, LIMIT));
    let rank = |(_, status): &(&&NodeFiles, skein_node::NodeStatus)| {
        let own = &status.replica;
        (own.has_no_server(), own.role != "follower", own.lag_entries)
    };
    let answers = nodes.iter().zip(told).filter_map(|(node, status)| Some((node, status?)));
    answers.min_by_key(rank).map(|(node, _)| *node)
}

/// Asks all nodes at a time.
pub fn ask_all<T: Send>(nodes: &[&NodeFiles], ask: impl Fn(&NodeFiles) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = nodes.iter().map(|node| scope.spawn(move || ask(node))).collect();
        asked.into_iter().map(|answer| answer.join().expect("asking does not panic")).collect()
    })
}

pub fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, AdminError> {
    serde_json::from_slice(body).map_err(|error| AdminError::Wrong(error.to_string()))
}

pub fn images_of(node: &NodeFiles) -> Result<ImagesListed, AdminError> {
    parsed(&admin::get(&node.admin, "/images", LIMIT)?)
}

/// Which images there is a use for.
pub type Use = fn(&ImageStatus) -> bool;

/// A server can go on from it: what one has left that ended for an upgrade has files only.
pub const fn has_server(image: &ImageStatus) -> bool {
    image.processes > 0
}

/// An image that has all that was acknowledged before this request, compared, and that there is a use for: its entry and file.
pub fn fresh(state: &State, node: &NodeFiles, is_of_use: Use) -> Result<(u64, PathBuf), Failure> {
    let told = |error: &AdminError| {
        let fix = "nothing was written; see 'skein status'";
        failure(state, of_replica(node, error), fix)
    };
    let index = take(state, node, is_of_use).map_err(|error| told(&error))?;
    let limit = Instant::now() + COMPARED_WITHIN;
    loop {
        let there = images_of(node).map_err(|error| told(&error))?;
        let fits = |image: &&ImageStatus| {
            let is_whole = image.confirmed && image.problem.is_none();
            is_whole && image.index >= index && is_of_use(image)
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

/// The newest entry that can have been acknowledged to a client by now: the leader knows, here or on another machine.
fn acknowledged(state: &State) -> Result<u64, AdminError> {
    let status = |node| Some((node, Asked::here(node).status(LIMIT).ok()?));
    let told: Vec<(&NodeFiles, NodeStatus)> = state.nodes.iter().filter_map(status).collect();
    if let Some((_, leader)) = told.iter().find(|(_, status)| status.replica.role == "leader") {
        return Ok(leader.replica.commit_index);
    }
    let elsewhere = told.iter().find_map(|(node, status)| Some((node, status.leader?)));
    let Some((node, leader)) = elsewhere else {
        let why = "it knows of no leader, so what it has may be old";
        return Err(AdminError::Refused(why.into()));
    };
    Ok(Asked::through(node, leader).status(LIMIT)?.replica.commit_index)
}

/// Has an image taken that contains all that was acknowledged, unless there is one; answers its entry.
fn take(state: &State, node: &NodeFiles, is_of_use: Use) -> Result<u64, AdminError> {
    let limit = Instant::now() + LEADS_WITHIN;
    let least = loop {
        match acknowledged(state) {
            Ok(least) => break least,
            Err(error) if Instant::now() >= limit => return Err(error),
            // An election, say.
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    };
    let limit = Instant::now() + COMPARED_WITHIN;
    while Asked::here(node).status(LIMIT)?.replica.applied_index < least {
        if Instant::now() >= limit {
            let why = format!("its server has not executed entry {} yet", number(least));
            return Err(AdminError::Refused(why));
        }
        thread::sleep(LOOK_EVERY);
    }
    let there = || {
        let images = images_of(node)?.images;
        let whole = images.iter().filter(|image| image.problem.is_none() && is_of_use(image));
        Ok(whole.map(|image| image.index).filter(|index| *index >= least).max())
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
