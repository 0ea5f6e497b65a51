//! `skein base`: the files that replicas keep of their hosts, and what the host has by now instead.
//!
//! Reads a replica's data directory on this machine, whether or not its node runs: an index is replaced as a whole.
//!
//! Exit codes: 0 shown, and nothing differs; 1 (`diff`) something differs; 2 it cannot be told; 3 no such cluster.

use std::path::PathBuf;

use skein_node::base::Base;

use crate::args::{BaseArgs, BaseListArgs, BaseTask};
use crate::failure::Failure;
use crate::{cluster, instance, output, paths};

/// Something differs.
const EXIT_DIFFERS: u8 = 1;

/// Does the task; answers the exit code.
pub fn base(args: &BaseArgs) -> Result<u8, Failure> {
    match &args.task {
        BaseTask::Ls(args) => ls(args),
        BaseTask::Diff(args) => diff(args),
    }
}

fn ls(args: &BaseListArgs) -> Result<u8, Failure> {
    let listed = open(args)?.list();
    let table = || {
        let mut text = format!("{:<10} {:>12} {:<64}  {}\n", "KIND", "SIZE", "DIGEST", "PATH");
        for one in &listed {
            let size = if one.kind == "file" { one.size.to_string() } else { "-".into() };
            let digest = if one.digest.is_empty() { "-" } else { &one.digest };
            text.push_str(&format!("{:<10} {size:>12} {digest:<64}  {}\n", one.kind, one.path));
        }
        text
    };
    output::print(&if args.json { output::json(&listed) } else { table() });
    Ok(0)
}

fn diff(args: &BaseListArgs) -> Result<u8, Failure> {
    let differences = open(args)?.differences().map_err(|error| {
        Failure::new("host's file", error, "make it readable, or ask as the cluster's user")
    })?;
    let lines = || {
        let line = |one: &skein_node::base::diff::Difference| {
            format!("{}: was {}, host has {}\n", one.path, one.was, one.is)
        };
        differences.iter().map(line).collect()
    };
    output::print(&if args.json { output::json(&differences) } else { lines() });
    Ok(if differences.is_empty() { 0 } else { EXIT_DIFFERS })
}

/// The base of the replica that is asked for.
fn open(args: &BaseListArgs) -> Result<Base, Failure> {
    let dirs = directories(args)?;
    let failed = |error| Failure::new("base", error, "");
    for dir in &dirs {
        let base = Base::current(dir).map_err(failed)?;
        if !base.index().files.is_empty() {
            return Ok(base);
        }
    }
    let places = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
    let what = if places.is_empty() { "data directory".into() } else { places };
    Err(Failure::new(
        what,
        "nothing is pinned there",
        "a replica pins files when its server uses them; name another --replica or --data",
    ))
}

/// Data directories of replicas of this machine.
fn directories(args: &BaseListArgs) -> Result<Vec<PathBuf>, Failure> {
    let dir = match (&args.data, &args.name) {
        (Some(dir), _) => dir.clone(),
        (None, name) => match instance::find(name.as_deref()) {
            Ok(running) => return Ok(of_running(&running, args.replica)),
            // One that has stopped has its directory in the usual place.
            Err(failure) => match name {
                Some(name) if paths::data_dir(name)?.exists() => paths::data_dir(name)?,
                _ => return Err(failure),
            },
        },
    };
    let nodes = cluster::nodes_in(&dir);
    let is_chosen = |(id, _): &(u64, PathBuf)| args.replica.is_none_or(|replica| replica == *id);
    Ok(if nodes.is_empty() {
        vec![dir]
    } else {
        nodes.into_iter().filter(is_chosen).map(|(_, node)| node).collect()
    })
}

fn of_running(running: &instance::Instance, replica: Option<u64>) -> Vec<PathBuf> {
    let nodes = running.state.iter().flat_map(|state| &state.nodes);
    let chosen = nodes.filter(|node| replica.is_none_or(|id| id == node.id));
    chosen.map(|node| node.data.clone()).collect()
}
