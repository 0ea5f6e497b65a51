//! What happens to a cluster in its life.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Event;
use super::clients::Clients;
use crate::target::{Cluster, await_some};
use crate::wire::Client;
use skein_testkit::cluster::status::{Replica, Status};
use skein_testkit::{Failure, Outcome, memory};

const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A kind of events.
pub struct Kind {
    what: &'static str,
    /// Answers the process that it ended.
    does: fn(&Cluster, &Status) -> Outcome<Option<i32>>,
}

/// All, in their order.
pub const KINDS: &[Kind] = &[
    Kind { what: "an image of a follower", does: image },
    Kind { what: "a follower's node killed", does: |_, status| end(follower(status)?.node_pid) },
    Kind {
        what: "a follower's server killed",
        does: |_, status| end(follower(status)?.server_pid),
    },
    Kind { what: "the leader's node killed", does: |_, status| end(status.leader()?.node_pid) },
    Kind { what: "a follower's disk lost, and filled anew", does: lose_disk },
    Kind { what: "the leader's server killed", does: |_, status| end(status.leader()?.server_pid) },
    Kind { what: "a byte of memory flipped, and repaired", does: flip },
    Kind { what: "upgraded to another environment", does: upgrade },
    Kind { what: "all compared", does: |cluster, _| cluster.skein(&["verify"]).map(|_| None) },
];

/// Does one, and waits until all replicas are in step.
pub fn one(kind: &Kind, cluster: &Cluster, clients: &Clients, begun: Instant) -> Outcome<Event> {
    let status = cluster.whole()?;
    let start = Instant::now();
    clients.silence();
    let failed = |failure| Failure::of(kind.what, failure);
    let ended = (kind.does)(cluster, &status).map_err(failed)?;
    await_some("all replicas to be in step", || {
        let status = cluster.whole()?;
        Ok(status.pids().all(|pid| Some(pid) != ended).then_some(()))
    })
    .map_err(failed)?;
    Ok(Event {
        what: kind.what.to_owned(),
        at_s: (start - begun).as_secs_f64(),
        took_s: start.elapsed().as_secs_f64(),
        silent_ms: clients.silence().as_secs_f64() * 1e3,
    })
}

fn follower(status: &Status) -> Outcome<&Replica> {
    let leader = status.leader()?.id;
    let other = status.replicas().iter().find(|replica| replica.id != leader);
    other.ok_or_else(|| Failure("the cluster has no follower".to_owned()))
}

fn end(pid: i32) -> Outcome<Option<i32>> {
    if pid <= 1 {
        return Err(Failure("skein status has no process to end".to_owned()));
    }
    let killed = kill(Pid::from_raw(pid), Signal::SIGKILL);
    killed.map(|()| Some(pid)).map_err(|error| Failure::of("cannot kill", error))
}

fn image(cluster: &Cluster, status: &Status) -> Outcome<Option<i32>> {
    let id = follower(status)?.id.to_string();
    cluster.skein(&["checkpoint", "create", "--replica", &id]).map(|_| None)
}

/// Each time another value.
fn upgrade(cluster: &Cluster, status: &Status) -> Outcome<Option<i32>> {
    let server = status.leader()?.server_pid;
    cluster.skein(&["upgrade", "--env", &format!("SERVER_BEFORE={server}")])?;
    Ok(Some(server))
}

/// The directory goes first: a node that was started again meanwhile would use it.
fn lose_disk(cluster: &Cluster, status: &Status) -> Outcome<Option<i32>> {
    let replica = follower(status)?;
    let dir = cluster.data().join(format!("node-{}", replica.id));
    let lost = dir.with_extension("lost");
    let failed = |error| Failure::of(dir.display(), error);
    fs::rename(&dir, &lost).map_err(failed)?;
    let ended = end(replica.node_pid)?;
    await_some("the node without a disk to rejoin", || {
        Ok(cluster.skein(&["rejoin", "--replica", &replica.id.to_string()]).ok())
    })?;
    fs::remove_dir_all(&lost).map_err(failed)?;
    Ok(ended)
}

fn flip(cluster: &Cluster, status: &Status) -> Outcome<Option<i32>> {
    let value = "a value that no other place has ".repeat(8);
    let failed = |error| Failure::of("redis' client", error);
    let mut client =
        await_some("a connection", || Ok(Client::connect(cluster.service, ANSWER_MAX).ok()))?;
    let length = value.len();
    let set = format!("*3\r\n$3\r\nSET\r\n$6\r\nmarker\r\n${length}\r\n{value}\r\n");
    client.exchange(&crate::wire::Exchange::line(set, "+OK")).map_err(failed)?;
    drop(client);
    let pid = follower(status)?.server_pid;
    let at = await_some("the value in a follower's memory", || {
        let found = memory::found(pid.into(), value.as_bytes());
        Ok(found.map_err(|error| Failure::of("a server's memory", error))?.first().copied())
    })?;
    let memory = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem"));
    let written = memory.and_then(|memory| memory.write_all_at(b"A", at));
    written.map_err(|error| Failure::of("a server's memory", error))?;
    cluster.skein(&["verify", "--repair"])?;
    cluster.skein(&["verify"]).map(|_| None)
}
