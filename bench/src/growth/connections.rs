//! Connections: 1 to 10,000 active ones, one request at a time each.

use super::{NODE, P50, P99, POINT, Recorder, SERVER, THROUGHPUT, Topic, WAYS, curve, figures};
use crate::load;
use crate::servers::{Workload, memcached, redis};
use crate::wire::Exchange;
use skein_testkit::Outcome;

pub const TOPIC: Topic = Topic {
    name: "connections",
    title: "Connections",
    x: "connections",
    figures: &[THROUGHPUT, P50, P99, NODE, SERVER],
    measure,
    reading: "With few connections every request is an entry of its own, so what an entry costs (agreement, wakes) sets the pace; from some dozens\n\
         on requests share entries and the curves of Skein come near to native's. Memory grows in proportion: the server's by its own\n\
         buffers, the node's by some hundred bytes a connection. Beyond 1,000 connections all of them, native too, lose to the caches.",
};

/// The gateway's own limit is 10,000.
const CONNECTIONS: [u32; 5] = [1, 10, 100, 1_000, 10_000];

fn measure(recorder: &mut Recorder) -> Outcome {
    let redis = redis::Redis { more: &["--maxclients", "12000"] };
    let memcached = memcached::Memcached { threads: 4, connections: 12_000 };
    let servers: [(&str, &dyn Workload, Vec<Exchange>); 2] = [
        ("redis SET", &redis, load::exchanges(redis::set)),
        ("memcached SET", &memcached, load::exchanges(memcached::set)),
    ];
    for (name, server, asked) in servers {
        for (way, how) in WAYS {
            let running = how.start(server)?;
            for connections in CONNECTIONS {
                let measured = || {
                    let service = running.service();
                    let crowd = load::crowd_for(name, "set", service, &asked, POINT, connections)?;
                    figures(&running, &crowd)
                };
                if !recorder.point(&curve(name, way), connections.into(), measured) {
                    break;
                }
            }
        }
    }
    Ok(())
}
