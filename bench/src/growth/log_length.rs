//! The length of the log: how long a killed replica takes until it is in step again.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use super::{Figure, Recorder, Topic, curve};
use crate::servers::{Server, redis};
use crate::target::{Cluster, await_some};
use crate::wire::{Client, free_address};
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "log",
    title: "The length of the log",
    x: "entries in the log",
    figures: &[RESTART, APPEND],
    measure,
    reading: "A replica that returns executes its log again, as no images are taken (`checkpoint.enabled = false`).",
};

const RESTART: Figure = Figure {
    key: "restart_s",
    label: "seconds from `kill -9` until in step",
    digits: 2,
    plotted: true,
};
const APPEND: Figure =
    Figure { key: "entry_us", label: "us an entry while it grew", digits: 0, plotted: false };

/// One client makes an entry with each request.
const LENGTHS: [u64; 4] = [1_000, 4_000, 16_000, 64_000];
const ANSWER_MAX: Duration = Duration::from_secs(5);

fn measure(recorder: &mut Recorder) -> Outcome {
    for (name, durability) in [("3 replicas, memory", "memory"), ("3 replicas, fsync", "fsync")] {
        let options = ["--durability", durability, "--set", "checkpoint.enabled=false"];
        let cluster = Cluster::with(None, Server::Redis.workload(), free_address()?, 3, &options)?;
        let mut client = None;
        for length in LENGTHS {
            let point = || one(&cluster, &mut client, length);
            if !recorder.point(&curve("redis", name), length as f64, point) {
                break;
            }
        }
    }
    Ok(())
}

/// Lets the log grow to `length` entries, kills a follower and waits until all replicas run again.
fn one(
    cluster: &Cluster,
    client: &mut Option<Client>,
    length: u64,
) -> Outcome<Vec<(&'static str, f64)>> {
    let failed = |error| Failure::of("the client that makes the log longer", error);
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(cluster.service, ANSWER_MAX).map_err(failed)?),
    };
    let before = cluster.whole()?.leader()?.applied_index;
    let start = Instant::now();
    let asked = length.saturating_sub(before);
    for key in 0..asked {
        client.exchange(&redis::set((key % 1_000) as u32)).map_err(failed)?;
    }
    let entry_us = start.elapsed().as_secs_f64() * 1e6 / asked.max(1) as f64;
    let status = cluster.whole()?;
    let leader = status.leader()?;
    let follower = status
        .replicas()
        .iter()
        .find(|replica| replica.id != leader.id)
        .ok_or_else(|| Failure("the cluster has no follower".to_owned()))?;
    let (id, pid) = (follower.id, follower.pid()?);
    let start = Instant::now();
    kill(pid, Signal::SIGKILL).map_err(|error| Failure::of("cannot kill a follower", error))?;
    await_some("the follower to be in step again", || {
        let status = cluster.whole()?;
        let back = status.replicas().iter().any(|at| at.id == id && at.node_pid != pid.as_raw());
        Ok(back.then_some(()))
    })?;
    Ok(vec![(RESTART.key, start.elapsed().as_secs_f64()), (APPEND.key, entry_us)])
}
