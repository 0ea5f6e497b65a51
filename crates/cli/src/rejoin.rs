//! `skein found`, `skein join` and `skein rejoin`: the start of a replica's log, which a node never decides by itself ([`skein_node::begin`]).
//!
//! They only leave a mark in the replica's data directory. A node that finds no log, or a damaged one, ends and says so; a node that is
//! restarted again and again, as by `skein run`, finds the mark at its next start.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use skein_node::founding::Beginnings;
use skein_node::{NodeConfig, NodeError, begin};

use crate::args::{FoundArgs, JoinArgs, RejoinArgs};
use crate::config;
use crate::failure::Failure;
use crate::{instance, paths};

/// A node that restarts in a loop holds its directory for a moment each time.
const IN_USE_LIMIT: Duration = Duration::from_secs(3);

/// Lets the node of a new cluster begin its log.
pub fn found(args: &FoundArgs) -> Result<u8, Failure> {
    let config = config::read(&args.config)?;
    if let Some(file) = args.import.as_ref().filter(|from| from.is_file())
        && config.peers.len() > 1
    {
        let why = "a cluster that begins with an image begins on one host";
        let fix =
            "name this replica alone in `peers`, and take the others in by 'skein members add'";
        return Err(Failure::new(format!("--import {}", file.display()), why, fix));
    }
    let dir = &config.data_dir;
    // Asked for once more, it begins with what it was to begin with.
    let is_asked = args.import.is_none() && begin::answered_nobody(dir);
    let founded = if begin::has_log(dir) || is_asked {
        begin::found(dir)
    } else {
        Beginnings::take(args.import.as_deref(), dir).and_then(|taken| taken.found_anew(dir))
    };
    founded.map_err(|error| failure(&config, &error))?;
    println!(
        "skein: {}: replica {} begins a new cluster when its node is started; found all {} of them",
        config.name,
        config.id,
        config.peers.len()
    );
    Ok(0)
}

/// Lets the node of a new host begin its log.
pub fn join(args: &JoinArgs) -> Result<u8, Failure> {
    let config = config::read(&args.config)?;
    if config.cluster_id.is_none() {
        let why = "a replica that joins must know the id of the cluster";
        let fix = "write cluster_id = \"...\", as 'skein members' on a host of a member shows it";
        return Err(Failure::new(format!("config {}", args.config.display()), why, fix));
    }
    begin::join(&config).map_err(|error| failure(&config, &error))?;
    println!(
        "skein: {}: replica {} joins when its node is started and a member's host says 'skein members add {}={}', or replace",
        config.name,
        config.id,
        config.id,
        config.own_address().map(|address| address.to_string()).unwrap_or_default()
    );
    Ok(0)
}

/// Lets a replica begin its log as a new member.
pub fn rejoin(args: &RejoinArgs) -> Result<u8, Failure> {
    let config = match (&args.config, args.replica) {
        (Some(file), _) => config::read(file)?,
        (None, replica) => of_run(args, replica.unwrap_or_default())?,
    };
    let limit = Instant::now() + IN_USE_LIMIT;
    let aside = loop {
        match begin::rejoin(&config) {
            Err(error) if error.is_in_use() && Instant::now() < limit => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => break result.map_err(|error| failure(&config, &error))?,
        }
    };
    let name = format!("skein: {}: replica {}", config.name, config.id);
    if let Some(aside) = aside {
        println!("{name}: the remains of its log are in {}", aside.display());
    }
    println!(
        "{name}: at its next start it is filled from the others; it votes again when it has everything"
    );
    Ok(0)
}

fn failure(config: &NodeConfig, error: &NodeError) -> Failure {
    Failure::new(format!("{}: replica {}", config.name, config.id), error, "")
}

/// The configuration of a replica of a running or stopped `skein run`.
fn of_run(args: &RejoinArgs, replica: u64) -> Result<NodeConfig, Failure> {
    let dir = data_dir(args)?;
    let file = |id: u64| dir.join(format!("node-{id}")).join("node.toml");
    if file(replica).exists() {
        return config::read(&file(replica));
    }
    // Its directory is gone: the others' files differ from its own by a few words.
    let other = (1..=9).map(file).find(|file| file.exists()).ok_or_else(|| {
        let what = format!("data directory {}", dir.display());
        Failure::new(what, "no replica of 'skein run' is there", "say where with --data DIR")
    })?;
    let mut config = config::read(&other)?;
    if config.peers.iter().all(|peer| peer.id != replica) {
        let why = format!("the cluster has {} of them", config.peers.len());
        return Err(Failure::new(format!("replica {replica}"), why, "say which with --replica N"));
    }
    config.id = replica;
    config.data_dir = dir.join(format!("node-{replica}"));
    Ok(config)
}

fn data_dir(args: &RejoinArgs) -> Result<PathBuf, Failure> {
    if let Some(dir) = &args.data {
        return Ok(dir.clone());
    }
    let running = instance::find(args.name.as_deref());
    let state = running.as_ref().ok().and_then(|instance| instance.state.as_ref());
    let printed = state.and_then(|state| state.nodes.first()).map(|node| &node.output);
    match (printed.and_then(|file| file.ancestors().nth(2)), &args.name) {
        (Some(dir), _) => Ok(Path::new(dir).to_owned()),
        (None, Some(name)) => paths::data_dir(name),
        (None, None) => Err(running.err().unwrap_or_else(|| {
            Failure::new("cluster", "it is just being started", "ask again in a moment")
        })),
    }
}
