//! What clients and a follower pay for images that are taken beside a load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::images::{filled, follower, until_ended};
use super::{Figure, P99, Recorder, THROUGHPUT, Topic, curve};
use crate::load;
use crate::process;
use crate::servers::redis;
use crate::stats::Spread;
use crate::target::Cluster;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "beside",
    title: "Images beside a load",
    x: "images a second",
    figures: &[THROUGHPUT, P99, CPU, STOOD, STOOD_MAX],
    measure,
    reading: "64 MiB of data, three replicas with fsync, a follower takes images; in turns, medians of 25 times 3 s each: of five, the clients' requests differed by 9 % from run to run. On two cores what the follower does is taken from the leader\n\
         and the clients, too.",
};

const CPU: Figure =
    Figure { key: "follower_cpu", label: "follower's CPU, % of a core", digits: 1, plotted: true };

const STOOD: Figure =
    Figure { key: "stood_ms", label: "its server stood, ms", digits: 1, plotted: false };
const STOOD_MAX: Figure = Figure { key: "stood_max_ms", label: "most", digits: 1, plotted: false };

const SIZE: u64 = 64;
const CLIENTS: u32 = 50;
const ROUNDS: usize = 25;
const TIME: Duration = Duration::from_secs(3);
/// None, one in two seconds, one a second.
const WAIT: [Option<Duration>; 3] =
    [None, Some(Duration::from_secs(2)), Some(Duration::from_secs(1))];

#[derive(Default)]
struct Sums {
    per_second: Vec<f64>,
    p99_us: Vec<f64>,
    cpu: Vec<f64>,
    stood: Vec<f64>,
}

fn measure(recorder: &mut Recorder) -> Outcome {
    let server = redis::Redis { more: &["--enable-debug-command", "yes"] };
    let (cluster, _client) = filled(&server, 3, SIZE)?;
    let follower = follower(&cluster)?;
    let mut sums = WAIT.map(|_| Sums::default());
    for _ in 0..ROUNDS {
        for (wait, sums) in WAIT.iter().zip(&mut sums) {
            one(&cluster, follower, *wait, sums)?;
        }
    }
    for (wait, sums) in WAIT.iter().zip(sums) {
        let rate = wait.map_or(0.0, |wait| 1.0 / wait.as_secs_f64());
        let median = |of: Vec<f64>| Spread::of(of).map_or(0.0, |spread| spread.median);
        recorder.point(&curve("redis SET", "3 replicas, fsync"), rate, || {
            let most = sums.stood.iter().copied().reduce(f64::max);
            let mut values = vec![
                (THROUGHPUT.key, median(sums.per_second)),
                (P99.key, median(sums.p99_us)),
                (CPU.key, median(sums.cpu)),
            ];
            if let Some(most) = most {
                values.extend([(STOOD.key, median(sums.stood)), (STOOD_MAX.key, most)]);
            }
            Ok(values)
        });
    }
    Ok(())
}

fn one(cluster: &Cluster, follower: u64, wait: Option<Duration>, sums: &mut Sums) -> Outcome {
    let status = cluster.whole()?;
    let row = status.replicas().iter().find(|replica| replica.id == follower);
    let node = row.ok_or_else(|| Failure("the follower is gone".to_owned()))?.node_pid;
    let ended = AtomicBool::new(false);
    let asked = load::exchanges(redis::set);
    let before = process::cpu_used(&process::trees([node]))?;
    let (crowd, images) = std::thread::scope(|scope| {
        let images = scope.spawn(|| match wait {
            Some(wait) => until_ended(cluster, follower, wait, &ended),
            None => Ok(Vec::new()),
        });
        let crowd = load::crowd_for("redis", "set", cluster.service, &asked, TIME, CLIENTS);
        ended.store(true, Ordering::Relaxed);
        (crowd, images.join().unwrap_or_else(|_| Err(Failure("a thread panicked".to_owned()))))
    });
    let (crowd, images) = (crowd?, images?);
    sums.stood.extend(images);
    let used = process::cpu_used(&process::trees([node]))?.saturating_sub(before);
    sums.per_second.push(crowd.per_second);
    sums.p99_us.push(crowd.p99_us);
    sums.cpu.push(100.0 * used.as_secs_f64() / TIME.as_secs_f64());
    Ok(())
}
