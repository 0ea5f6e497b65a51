//! Replicas: 1, 3 and 5 on one machine.

use super::{NODE, P50, P99, POINT, Recorder, SERVER, THROUGHPUT, Topic, curve, figures};
use crate::load;
use crate::servers::redis;
use crate::target::Way;
use skein_testkit::Outcome;

pub const TOPIC: Topic = Topic {
    name: "replicas",
    title: "Replicas",
    x: "replicas",
    figures: &[THROUGHPUT, P50, P99, NODE, SERVER],
    measure,
    reading: "Every further replica executes everything and takes its part of the same two cores: so the curve falls with their number here,\n\
         where on a machine each the leader would only send each entry once more.",
};

const CLIENTS: u32 = 50;

fn measure(recorder: &mut Recorder) -> Outcome {
    for durability in ["memory", "fsync"] {
        for replicas in [1, 3, 5] {
            recorder.point(&curve("redis SET", durability), replicas as f64, || {
                let running = Way::Skein { replicas, durability }.start(&redis::Redis::PLAIN)?;
                let asked = load::exchanges(redis::set);
                let crowd =
                    load::crowd_for("redis", "set", running.service(), &asked, POINT, CLIENTS)?;
                figures(&running, &crowd)
            });
        }
    }
    Ok(())
}
