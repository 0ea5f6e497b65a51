//! The size of values: 16 bytes to 16 MiB, set and got.

use super::{Figure, NODE, P99, POINT, Recorder, SERVER, THROUGHPUT, Topic, WAYS, curve, figures};
use crate::load;
use crate::servers::redis;
use crate::wire::Exchange;
use skein_testkit::Outcome;

pub const TOPIC: Topic = Topic {
    name: "values",
    title: "The size of values",
    x: "bytes of a value",
    figures: &[THROUGHPUT, MOVED, P99, NODE, SERVER],
    measure,
    reading: "Up to some KiB a request costs the same whatever its size; beyond, bytes are copied once into the entry, once to each\n\
         follower and once into the ring, so Skein's curve bends earlier than native's. A value above 1 MiB, the largest entry, is several\n\
         entries, agreed on one after the other. The node's memory is that of the entries that it keeps in memory.\n\
         Each of them takes pages that were not used before: for values of a MiB that is the largest part of the node's work, and as fast as the\n\
         host of this machine hands memory out. Those figures vary most; huge pages (`GLIBC_TUNABLES=glibc.malloc.hugetlb=1`) made them worse.",
};

/// The total size of the requests.
const MOVED: Figure = Figure { key: "moved_mib", label: "MiB a second", digits: 1, plotted: true };

const BYTES: [usize; 6] = [16, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
const CLIENTS: u32 = 8;

fn measure(recorder: &mut Recorder) -> Outcome {
    for (way, how) in WAYS {
        let running = how.start(&redis::Redis::PLAIN)?;
        for bytes in BYTES {
            let pairs: Vec<[Exchange; 2]> =
                (0..CLIENTS).map(|key| redis::sized(key, bytes)).collect();
            for (at, operation) in ["SET", "GET"].into_iter().enumerate() {
                let asked: Vec<Exchange> = pairs.iter().map(|pair| pair[at].clone()).collect();
                let name = curve(&format!("redis {operation}"), way);
                recorder.point(&name, bytes as f64, || {
                    let service = running.service();
                    let crowd =
                        load::crowd_for("redis", operation, service, &asked, POINT, CLIENTS)?;
                    let mut values = figures(&running, &crowd)?;
                    let moved = crowd.per_second * bytes as f64 / f64::from(1 << 20);
                    values.push((MOVED.key, moved));
                    Ok(values)
                });
            }
        }
    }
    Ok(())
}
