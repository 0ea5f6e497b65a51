//! One server, a passive replica and a witness: what clients, the leader and the other two pay, and how long the server stands for the leader's images.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::images::{self, until_ended};
use super::{Figure, P50, P99, Recorder, THROUGHPUT, Topic, curve};
use crate::load;
use crate::outage;
use crate::process;
use crate::servers::{Workload, http, memcached, redis};
use crate::stats::Spread;
use crate::target::{Running, Way, await_some};
use crate::wire::Exchange;
use skein_testkit::cluster::status::Replica;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "standby",
    title: "A standby",
    x: "clients",
    figures: &[
        THROUGHPUT,
        P50,
        P99,
        LEADER,
        PASSIVE,
        WITNESS,
        STOOD,
        STOOD_MAX,
        RECOVERED,
        RECOVERED_MAX,
    ],
    measure,
    reading: "`--mode standby`; clients write (of lighttpd: read a page of 4 KiB) over connections that stay open, 3 s a point. The leader takes an image of its own server each second;\n\
         where little was written since the last, as here, the server stands for it instead of forking. CPU of all processes below a node: the leader's with its server's; the others run\n\
         none. Clients and all nodes share two cores.\n\
         Kills: the leader takes an image, which the passive replica fetches, and one client writes 200 times; then the leader's node and server are killed: the time from the last answer to the\n\
         first one of the passive replica, which continues from that image; ten times.\n\
         Its figures beside those of RRC: [checkpoints and standbys](checkpoints.md#a-standby-beside-rrc).",
};

const LEADER: Figure =
    Figure { key: "leader_us", label: "CPU us a request: leader", digits: 1, plotted: true };
const PASSIVE: Figure = Figure { key: "passive_us", label: "passive", digits: 1, plotted: true };
const WITNESS: Figure = Figure { key: "witness_us", label: "witness", digits: 1, plotted: false };
const STOOD: Figure =
    Figure { key: "stood_ms", label: "ms the server stood, median", digits: 1, plotted: true };
const STOOD_MAX: Figure = Figure { key: "stood_max_ms", label: "most", digits: 1, plotted: false };
const RECOVERED: Figure = Figure {
    key: "recovered_ms",
    label: "ms without an answer after a kill, median",
    digits: 0,
    plotted: false,
};
const RECOVERED_MAX: Figure =
    Figure { key: "recovered_max_ms", label: "most", digits: 0, plotted: false };

const CLIENTS: [u32; 3] = [1, 10, 50];
const TIME: Duration = Duration::from_secs(3);
const BETWEEN: Duration = Duration::from_secs(1);
const KILLS: u32 = 10;
/// Their numbers in a standby.
const ACTIVE: u64 = 1;
const PASSIVES: u64 = 2;
const KILLS_MAX: Duration = Duration::from_secs(300);

/// How the server is run, and whether it takes images meanwhile.
const WAYS: [(&str, Way, bool); 4] = [
    ("native", Way::Native, false),
    ("standby, memory, no image", Way::Standby { durability: "memory" }, false),
    ("standby, memory", Way::Standby { durability: "memory" }, true),
    ("standby, fsync", Way::Standby { durability: "fsync" }, true),
];

fn measure(recorder: &mut Recorder) -> Outcome {
    let servers: [(&str, &dyn Workload, Vec<Exchange>); 3] = [
        ("redis", &redis::Redis::PLAIN, load::exchanges(redis::set)),
        ("memcached", &memcached::Memcached::PLAIN, load::exchanges(memcached::set)),
        ("lighttpd", &http::LIGHTTPD, vec![http::get()]),
    ];
    for (name, server, asked) in servers {
        for (way, how, images) in WAYS {
            let running = how.start(server)?;
            for clients in CLIENTS {
                let point = || one(&running, name, &asked, clients, images);
                if !recorder.point(&curve(name, way), clients.into(), point) {
                    break;
                }
            }
        }
    }
    for durability in ["memory", "fsync"] {
        let name = curve("redis", &format!("standby, {durability}, leader killed"));
        recorder.point(&name, 1.0, || killed(durability));
    }
    Ok(())
}

/// How long there is no answer when the leader is killed behind an image.
fn killed(durability: &'static str) -> Outcome<Vec<(&'static str, f64)>> {
    let running = Way::Standby { durability }.start(&redis::Redis::PLAIN)?;
    let Running::Skein(cluster) = &running else {
        return Err(Failure("a standby is no cluster".to_owned()));
    };
    let until = Instant::now() + KILLS_MAX;
    let mut silent = Vec::new();
    for _ in 0..KILLS {
        // The passive one has led meanwhile, and hands over.
        await_some("the active replica to lead", || {
            Ok((cluster.whole()?.leader()?.id == ACTIVE).then_some(()))
        })?;
        images::handed_on(cluster, ACTIVE, PASSIVES)?;
        silent.extend(outage::of(cluster, 1, until)?);
    }
    let most = silent.iter().copied().reduce(f64::max);
    let most = most.ok_or_else(|| Failure("no time for a kill".to_owned()))?;
    let median = Spread::of(silent).map_or(0.0, |spread| spread.median);
    Ok(vec![(RECOVERED.key, median), (RECOVERED_MAX.key, most)])
}

fn one(
    running: &Running,
    name: &str,
    asked: &[Exchange],
    clients: u32,
    images: bool,
) -> Outcome<Vec<(&'static str, f64)>> {
    let parts = parts(running)?;
    let used = || -> Outcome<Vec<Duration>> {
        parts.iter().map(|(_, pid)| process::cpu_used(&process::trees([*pid]))).collect()
    };
    let ended = AtomicBool::new(false);
    let before = used()?;
    let (crowd, stood) = std::thread::scope(|scope| {
        let images = scope.spawn(|| match running {
            Running::Skein(cluster) if images => {
                let leader = cluster.whole()?.leader()?.id;
                until_ended(cluster, leader, BETWEEN, &ended)
            }
            _ => Ok(Vec::new()),
        });
        let crowd = load::crowd_for(name, "requests", running.service(), asked, TIME, clients);
        ended.store(true, Ordering::Relaxed);
        (crowd, images.join().unwrap_or_else(|_| Err(Failure("a thread panicked".to_owned()))))
    });
    let (crowd, stood, after) = (crowd?, stood?, used()?);
    let requests = crowd.per_second * TIME.as_secs_f64();
    let mut values =
        vec![(THROUGHPUT.key, crowd.per_second), (P50.key, crowd.p50_us), (P99.key, crowd.p99_us)];
    for ((key, _), (before, after)) in parts.iter().zip(before.iter().zip(&after)) {
        values.push((key, after.saturating_sub(*before).as_secs_f64() * 1e6 / requests));
    }
    if let Some(most) = stood.iter().copied().reduce(f64::max) {
        values.push((STOOD.key, Spread::of(stood).map_or(0.0, |spread| spread.median)));
        values.push((STOOD_MAX.key, most));
    }
    Ok(values)
}

/// The roots of the processes whose CPU time is told, by figure.
fn parts(running: &Running) -> Outcome<Vec<(&'static str, i32)>> {
    match running {
        Running::Processes { kept, .. } => {
            Ok(kept.first().map(|server| (LEADER.key, server.pid())).into_iter().collect())
        }
        Running::Skein(cluster) => {
            let status = cluster.whole()?;
            let leader = status.leader()?.id;
            let key = |replica: &Replica| match &*replica.state {
                _ if replica.id == leader => LEADER.key,
                "witness" => WITNESS.key,
                _ => PASSIVE.key,
            };
            Ok(status.replicas().iter().map(|at| (key(at), at.node_pid)).collect())
        }
    }
}
