//! How long clients wait when all replicas are killed at once, by the number of requests before.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};

use super::{Figure, Recorder, Topic, curve};
use crate::load::LOAD_MAX;
use crate::process;
use crate::servers::Server;
use crate::target::{Cluster, await_some};
use crate::wire::{Client, Exchange, free_address};
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "restarts",
    title: "All replicas are killed after many requests",
    x: "requests",
    figures: &[BACK],
    measure,
    reading: "Three replicas with fsync. All nodes are killed at once behind so many INCR (redis-benchmark, 20 clients, 64 at a time); time until a client reads the count, which is right.\n\
         Of the requests an image has most; what came behind it is executed again.",
};

const BACK: Figure = Figure {
    key: "back_s",
    label: "seconds from `kill -9` of all until the count is read",
    digits: 2,
    plotted: true,
};

const REQUESTS: [u64; 3] = [100_000, 1_000_000, 10_000_000];
/// Requests that a client sends at a time.
const PIPELINE: u64 = 64;
const ANSWER_MAX: Duration = Duration::from_secs(5);

fn measure(recorder: &mut Recorder) -> Outcome {
    let cluster = Cluster::start(Server::Redis, free_address()?, 3, "fsync")?;
    let mut count = 0;
    for requests in REQUESTS {
        // Whole pipelines are sent.
        let more = (requests - count.min(requests)).next_multiple_of(PIPELINE);
        count += more;
        let point = || one(&cluster, more, count);
        if !recorder.point(&curve("redis", "3 replicas, fsync"), requests as f64, point) {
            break;
        }
    }
    Ok(())
}

/// Counts on to `count`, and kills all nodes.
fn one(cluster: &Cluster, more: u64, count: u64) -> Outcome<Vec<(&'static str, f64)>> {
    let numbers = [u64::from(cluster.service.port()), PIPELINE, more].map(|n| n.to_string());
    let [port, pipeline, more] = numbers.each_ref().map(String::as_str);
    let mut load = Command::new("redis-benchmark");
    load.args(["-p", port, "-q", "-c", "20", "-P", pipeline, "-n", more, "incr", "count"]);
    process::output(&mut load, LOAD_MAX)?;
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
    Ok(vec![(BACK.key, start.elapsed().as_secs_f64())])
}
