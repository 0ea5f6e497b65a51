//! How long clients wait when all replicas are killed at once, by the number of requests before.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use super::images::newest_image;
use super::{Figure, Recorder, Topic, curve};
use crate::load::LOAD_MAX;
use crate::process;
use crate::servers::Server;
use crate::stats::Spread;
use crate::target::{Cluster, await_some};
use crate::wire::{Client, Exchange, free_address};
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "restarts",
    title: "All replicas are killed after many requests",
    x: "requests",
    figures: &[BACK, BACK_MAX, BEHIND, BEHIND_MAX],
    measure,
    reading: "Three replicas with fsync. All nodes are killed at once, three times, up to so many INCR; each time behind a third of them (redis-benchmark, 20 clients, 64 at a time; the last 50,000 of\n\
         50 clients, one at a time); time until a client reads the count, which is right: the median and the most. Nodes have lived for 31 s before, as one that ends again sooner is started after a pause.\n\
         Of the requests an image has most; what came behind it is executed again: entries of the log behind the newest image that counts, of the replica that has most of them.",
};

const BACK: Figure = Figure {
    key: "back_s",
    label: "seconds from `kill -9` of all until the count is read",
    digits: 2,
    plotted: true,
};
const BACK_MAX: Figure = Figure { key: "back_max_s", label: "most", digits: 2, plotted: false };
const BEHIND: Figure =
    Figure { key: "behind", label: "entries behind the image", digits: 0, plotted: false };
const BEHIND_MAX: Figure = Figure { key: "behind_max", label: "most", digits: 0, plotted: false };

const REQUESTS: [u64; 3] = [100_000, 1_000_000, 10_000_000];
const KILLS: u64 = 3;
/// How long nodes live before they are killed: `skein run` pauses before it starts one again that ends within 30 s of its start, up to 10 s.
const LIVED: Duration = Duration::from_secs(31);
/// Before each kill, as clients send them that wait for each answer.
const ALONE: Load = Load { requests: 50_000, clients: 50, at_a_time: 1 };
/// Those before are sent so many at a time, by so many clients.
const AT_A_TIME: u64 = 64;
const CLIENTS: u64 = 20;
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What redis-benchmark sends.
#[derive(Clone, Copy)]
struct Load {
    requests: u64,
    clients: u64,
    at_a_time: u64,
}

fn measure(recorder: &mut Recorder) -> Outcome {
    let cluster = Cluster::start(Server::Redis, free_address()?, 3, "fsync")?;
    let (mut count, mut started) = (0, Instant::now());
    for requests in REQUESTS {
        let point = || one(&cluster, requests, &mut count, &mut started);
        if !recorder.point(&curve("redis", "3 replicas, fsync"), requests as f64, point) {
            break;
        }
    }
    Ok(())
}

/// Counts on to `requests`, and kills all nodes meanwhile, which are `started` again.
fn one(
    cluster: &Cluster,
    requests: u64,
    count: &mut u64,
    started: &mut Instant,
) -> Outcome<Vec<(&'static str, f64)>> {
    let more = requests.saturating_sub(*count + KILLS * ALONE.requests) / KILLS;
    let (mut back, mut behind) = (Vec::new(), Vec::new());
    for _ in 0..KILLS {
        std::thread::sleep(LIVED.saturating_sub(started.elapsed()));
        if more > 0 {
            // Whole pipelines are sent.
            let requests = more.next_multiple_of(AT_A_TIME);
            increment(cluster, Load { requests, clients: CLIENTS, at_a_time: AT_A_TIME }, count)?;
        }
        increment(cluster, ALONE, count)?;
        behind.push(behind_images(cluster)?);
        back.push(killed(cluster, *count)?);
        *started = Instant::now();
    }
    let both = [(back, BACK, BACK_MAX), (behind, BEHIND, BEHIND_MAX)];
    let values = both.into_iter().filter_map(|(values, median, most)| {
        let spread = Spread::of(values)?;
        Some([(median.key, spread.median), (most.key, spread.max)])
    });
    Ok(values.flatten().collect())
}

fn increment(cluster: &Cluster, load: Load, count: &mut u64) -> Outcome {
    let Load { requests, clients, at_a_time } = load;
    let numbers = [u64::from(cluster.service.port()), clients, at_a_time, requests];
    let numbers = numbers.map(|number| number.to_string());
    let [port, clients, at_a_time, requests] = numbers.each_ref().map(String::as_str);
    let mut load = Command::new("redis-benchmark");
    load.args(["-p", port, "-q", "-c", clients, "-P", at_a_time, "-n", requests, "incr", "count"]);
    process::output(&mut load, LOAD_MAX)?;
    *count += requests.parse::<u64>().unwrap_or_default();
    Ok(())
}

/// Entries that the replica that has most of them executes again.
fn behind_images(cluster: &Cluster) -> Outcome<f64> {
    let status = cluster.whole()?;
    let mut most = 0;
    for replica in status.replicas() {
        let newest = newest_image(cluster, replica.id)?.unwrap_or(0);
        most = most.max(replica.applied_index.saturating_sub(newest));
    }
    Ok(most as f64)
}

/// Kills all nodes; seconds until the count is read.
fn killed(cluster: &Cluster, count: u64) -> Outcome<f64> {
    let digits = count.to_string();
    let count = Exchange::exact(
        "*2\r\n$3\r\nGET\r\n$5\r\ncount\r\n".to_owned(),
        format!("${}\r\n{digits}\r\n", digits.len()),
    );
    let status = cluster.whole()?;
    let start = Instant::now();
    for replica in status.replicas() {
        kill(replica.pid()?, Signal::SIGKILL)
            .map_err(|error| Failure::of("cannot kill a node", error))?;
    }
    await_some("the count to be read", || {
        let answer = Client::connect(cluster.service, ANSWER_MAX)
            .and_then(|mut client| client.exchange(&count));
        Ok(answer.ok().map(drop))
    })?;
    Ok(start.elapsed().as_secs_f64())
}
