//! Idle servers: what nodes do while nobody asks. Timers are all that happens: ten a second of redis, more of a JVM.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::{Figure, Recorder, Topic, curve};
use crate::servers::http::JVM;
use crate::servers::{Workload, redis};
use crate::target::{Running, Way};
use skein_testkit::cluster::status::Status;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "idle",
    title: "While nobody asks",
    x: "replicas",
    figures: &[LEADER, LEADER_WAKES, FOLLOWER, FOLLOWER_WAKES, SYNCS],
    measure,
    reading: "CPU time of a node's process in percent of a core, and how often its threads are woken: of three times 20 s those in which all nodes together took a median time. Of followers\n\
         the largest. The time of the server itself is not counted; redis' timers wake the leader's node seven times a second\n\
         ([decision 43](../../docs/decisions/0043-a-slow-rhythm-while-idle.md)).",
};

const LEADER: Figure =
    Figure { key: "leader_percent", label: "leader's node, % of a core", digits: 2, plotted: true };
const LEADER_WAKES: Figure =
    Figure { key: "leader_wakes", label: "its wake-ups a second", digits: 1, plotted: false };
const FOLLOWER: Figure =
    Figure { key: "follower_percent", label: "a follower's node", digits: 2, plotted: true };
const FOLLOWER_WAKES: Figure =
    Figure { key: "follower_wakes", label: "its wake-ups", digits: 1, plotted: false };
const SYNCS: Figure =
    Figure { key: "syncs", label: "syncs of a log a second", digits: 2, plotted: false };

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
            Ok(windows.swap_remove(WINDOWS / 2).figures)
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
        let Running::Skein(cluster) = running else {
            return Err(Failure("no cluster".to_owned()));
        };
        let before = cluster.whole()?;
        let used: Vec<Used> = nodes(&before).map(Used::by).collect::<Outcome<_>>()?;
        let start = Instant::now();
        thread::sleep(WINDOW);
        let passed = start.elapsed().as_secs_f64();
        let spent: Vec<(f64, f64)> = nodes(&before)
            .zip(&used)
            .map(|(pid, used)| {
                let now = Used::by(pid)?;
                let percent = (now.cpu_ns - used.cpu_ns) as f64 / 1e7 / passed;
                Ok((percent, (now.wakes - used.wakes) as f64 / passed))
            })
            .collect::<Outcome<_>>()?;
        let after = cluster.whole()?;
        let leader = after.leader()?.node_pid;
        if leader != before.leader()?.node_pid {
            return Err(Failure("the leader changed".to_owned()));
        }
        let logs = before.replicas().iter().zip(after.replicas());
        let syncs = logs.map(|(then, now)| now.counts.log_writes - then.counts.log_writes).max();
        let (mut lead, mut follow) = ((0.0, 0.0), (0.0, 0.0));
        for (pid, (percent, wakes)) in nodes(&before).zip(&spent) {
            let most = if pid == leader { &mut lead } else { &mut follow };
            *most = (percent.max(most.0), wakes.max(most.1));
        }
        let figures = vec![
            (LEADER.key, lead.0),
            (LEADER_WAKES.key, lead.1),
            (FOLLOWER.key, follow.0),
            (FOLLOWER_WAKES.key, follow.1),
            (SYNCS.key, syncs.unwrap_or_default() as f64 / passed),
        ];
        Ok(Self { percent: spent.iter().map(|(percent, _)| percent).sum(), figures })
    }
}

fn nodes(status: &Status) -> impl Iterator<Item = i32> + '_ {
    status.replicas().iter().map(|replica| replica.node_pid)
}

/// What a process has used so far.
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
