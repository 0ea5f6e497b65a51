//! Idle servers: what nodes do while nobody asks. Timers are all that happens: ten a second of redis, more of a JVM.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::{Figure, Recorder, Topic, curve, images, mib};
use crate::process;
use crate::servers::http::JVM;
use crate::servers::{Workload, redis};
use crate::target::{Cluster, Running, Way};
use skein_testkit::cluster::status::Replica;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "idle",
    title: "While nobody asks",
    x: "replicas",
    figures: &[
        LEADER,
        LEADER_WAKES,
        LEADER_SERVER,
        FOLLOWER,
        FOLLOWER_WAKES,
        FOLLOWER_SERVER,
        SYNCS,
        DISK,
        IMAGE,
    ],
    measure,
    reading: "CPU time of a node's process in percent of a core, and how often its threads are woken: of three times 20 s those in which all nodes together took a median time. Of followers\n\
         the largest. The time of the server itself is counted by itself; redis' timers wake the leader's node seven times a second\n\
         ([decision 43](../../docs/decisions/0043-a-slow-rhythm-while-idle.md)). What comes to a disk is the log: that of the replica that wrote most in the same 20 s, in a day. An image, at most one\n\
         in 600 s, comes on top: one that was taken behind another, with nobody asking in between.",
};

const LEADER: Figure =
    Figure { key: "leader_percent", label: "leader's node, % of a core", digits: 2, plotted: true };
const LEADER_WAKES: Figure =
    Figure { key: "leader_wakes", label: "its wake-ups a second", digits: 1, plotted: false };
const FOLLOWER: Figure =
    Figure { key: "follower_percent", label: "a follower's node", digits: 2, plotted: true };
const FOLLOWER_WAKES: Figure =
    Figure { key: "follower_wakes", label: "its wake-ups", digits: 1, plotted: false };
const LEADER_SERVER: Figure =
    Figure { key: "leader_server_percent", label: "its server, %", digits: 2, plotted: false };
const FOLLOWER_SERVER: Figure =
    Figure { key: "follower_server_percent", label: "its server, %", digits: 2, plotted: false };
const SYNCS: Figure =
    Figure { key: "syncs", label: "syncs of a log a second", digits: 2, plotted: false };
const DISK: Figure =
    Figure { key: "disk_mib_a_day", label: "MiB a day to a disk", digits: 0, plotted: false };
const IMAGE: Figure =
    Figure { key: "image_mib", label: "MiB of an image", digits: 2, plotted: false };

const DAY_S: f64 = 86_400.0;

/// How long nobody asks before it is measured: what a start leaves to be done is done.
const SETTLES: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(20);
const WINDOWS: usize = 3;

fn measure(recorder: &mut Recorder) -> Outcome {
    let redis: &dyn Workload = &redis::Redis::PLAIN;
    for (name, server, replicas) in [("redis", redis, 3), ("redis", redis, 5), ("JVM", &JVM, 3)] {
        recorder.point(&curve(name, "fsync"), replicas as f64, || {
            let running = Way::Skein { replicas, durability: "fsync" }.start(server)?;
            thread::sleep(SETTLES);
            let mut windows = Vec::new();
            for _ in 0..WINDOWS {
                windows.push(Window::look(&running)?);
            }
            windows.sort_by(|a, b| a.percent.total_cmp(&b.percent));
            let mut figures = windows.swap_remove(WINDOWS / 2).figures;
            figures.push((IMAGE.key, image(cluster(&running)?)?));
            Ok(figures)
        });
    }
    Ok(())
}

struct Window {
    /// Of all nodes.
    percent: f64,
    figures: Vec<(&'static str, f64)>,
}

impl Window {
    fn look(running: &Running) -> Outcome<Self> {
        let cluster = cluster(running)?;
        let before = cluster.whole()?;
        let look = || before.replicas().iter().map(Of::replica).collect::<Outcome<Vec<Of>>>();
        let used = look()?;
        let start = Instant::now();
        thread::sleep(WINDOW);
        let passed = start.elapsed().as_secs_f64();
        let spent: Vec<Of> = look()?.iter().zip(&used).map(|(now, then)| now.less(then)).collect();
        let after = cluster.whole()?;
        let leader = after.leader()?.node_pid;
        if leader != before.leader()?.node_pid {
            return Err(Failure("the leader changed".to_owned()));
        }
        let logs = before.replicas().iter().zip(after.replicas());
        let syncs = logs.map(|(then, now)| now.counts.log_writes - then.counts.log_writes).max();
        let percent = |cpu_ns: u64| cpu_ns as f64 / 1e7 / passed;
        let most = |leads: bool, of: fn(&Of) -> u64| {
            let all = before.replicas().iter().zip(&spent);
            let them = all.filter(|(replica, _)| (replica.node_pid == leader) == leads);
            them.map(|(_, spent)| of(spent)).max().unwrap_or_default()
        };
        let written = spent.iter().map(|of| of.disk_bytes).max().unwrap_or_default();
        let figures = vec![
            (LEADER.key, percent(most(true, |of| of.node.cpu_ns))),
            (LEADER_WAKES.key, most(true, |of| of.node.wakes) as f64 / passed),
            (LEADER_SERVER.key, percent(most(true, |of| of.server.cpu_ns))),
            (FOLLOWER.key, percent(most(false, |of| of.node.cpu_ns))),
            (FOLLOWER_WAKES.key, most(false, |of| of.node.wakes) as f64 / passed),
            (FOLLOWER_SERVER.key, percent(most(false, |of| of.server.cpu_ns))),
            (SYNCS.key, syncs.unwrap_or_default() as f64 / passed),
            (DISK.key, mib(written) / passed * DAY_S),
        ];
        Ok(Self { percent: spent.iter().map(|of| percent(of.node.cpu_ns)).sum(), figures })
    }
}

fn cluster(running: &Running) -> Outcome<&Cluster> {
    match running {
        Running::Skein(cluster) => Ok(cluster),
        Running::Processes { .. } => Err(Failure("no cluster".to_owned())),
    }
}

/// What a follower writes for an image when little has happened since the one before [MiB].
fn image(cluster: &Cluster) -> Outcome<f64> {
    let follower = images::follower(cluster)?;
    images::written_for_one(cluster, follower)?;
    Ok(mib(images::written_for_one(cluster, follower)?))
}

/// What a replica has used so far.
struct Of {
    node: Used,
    /// With all its processes.
    server: Used,
    disk_bytes: u64,
}

impl Of {
    fn replica(replica: &Replica) -> Outcome<Self> {
        let all = process::trees([replica.node_pid]);
        let mut server = Used::default();
        for pid in process::trees([replica.server_pid]) {
            let Used { cpu_ns, wakes } = Used::by(pid)?;
            server = Used { cpu_ns: server.cpu_ns + cpu_ns, wakes: server.wakes + wakes };
        }
        let disk_bytes = process::disk_written(&all);
        Ok(Self { node: Used::by(replica.node_pid)?, server, disk_bytes })
    }

    fn less(&self, then: &Self) -> Self {
        let less = |now: &Used, then: &Used| Used {
            cpu_ns: now.cpu_ns.saturating_sub(then.cpu_ns),
            wakes: now.wakes.saturating_sub(then.wakes),
        };
        Self {
            node: less(&self.node, &then.node),
            server: less(&self.server, &then.server),
            disk_bytes: self.disk_bytes.saturating_sub(then.disk_bytes),
        }
    }
}

/// What a process has used so far.
#[derive(Default)]
struct Used {
    cpu_ns: u64,
    wakes: u64,
}

impl Used {
    fn by(pid: i32) -> Outcome<Self> {
        let mut used = Self { cpu_ns: 0, wakes: 0 };
        let tasks = format!("/proc/{pid}/task");
        let failed = |error| Failure::of(&tasks, error);
        for task in fs::read_dir(&tasks).map_err(failed)?.flatten() {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let cpu = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            let status = read("status");
            let voluntary = |line: &str| {
                line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok()
            };
            used.cpu_ns += cpu.unwrap_or_default();
            used.wakes += status.lines().find_map(voluntary).unwrap_or_default();
        }
        Ok(used)
    }
}
