//! How long a killed replica takes until it is in step again, by the size of the image that it continues from.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};

use super::images::{filled, follower, take};
use super::{Figure, Recorder, Topic, curve};
use crate::servers::redis;
use crate::target::await_some;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "restores",
    title: "A killed replica continues from its image",
    x: "MiB of data",
    figures: &[BACK],
    measure,
    reading: "Three replicas with fsync. A follower's node is killed right behind an image of its server; time until `skein status` shows it in step again, with the start of a new node and\n\
         server, and the looks of `skein run` at its nodes.",
};

const BACK: Figure =
    Figure { key: "back_ms", label: "ms from `kill -9` until in step", digits: 0, plotted: true };

const MIB: [u64; 4] = [16, 64, 256, 512];

fn measure(recorder: &mut Recorder) -> Outcome {
    for size in MIB {
        recorder.point(&curve("redis", "3 replicas, fsync"), size as f64, || one(size));
    }
    Ok(())
}

fn one(size: u64) -> Outcome<Vec<(&'static str, f64)>> {
    let server = redis::Redis { more: &["--enable-debug-command", "yes"] };
    let (cluster, mut client) = filled(&server, 3, size)?;
    let follower = follower(&cluster)?;
    take(&cluster, follower, &mut client)?;
    let status = cluster.whole()?;
    let row = status.replicas().iter().find(|replica| replica.id == follower);
    let pid = row.ok_or_else(|| Failure("the follower is gone".to_owned()))?.pid()?;
    let start = Instant::now();
    kill(pid, Signal::SIGKILL).map_err(|error| Failure::of("cannot kill a follower", error))?;
    await_some("the follower to be in step again", || {
        let status = cluster.whole()?;
        let back =
            status.replicas().iter().any(|at| at.id == follower && at.node_pid != pid.as_raw());
        Ok(back.then_some(()))
    })?;
    Ok(vec![(BACK.key, start.elapsed().as_secs_f64() * 1e3)])
}
