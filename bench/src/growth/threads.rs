//! Threads of the server: memcached with 1 to 16.

use super::{NODE, P50, P99, POINT, Recorder, SERVER, THROUGHPUT, Topic, WAYS, curve, figures};
use crate::load;
use crate::servers::memcached::{self, Memcached};
use skein_testkit::Outcome;

pub const TOPIC: Topic = Topic {
    name: "threads",
    title: "Threads of the server",
    x: "threads that serve",
    figures: &[THROUGHPUT, P50, P99, NODE, SERVER],
    measure,
    reading: "Threads of the server take turns under Skein (`serial`): more of them bring nothing, and each request may be another thread's, so\n\
         that there are more switches. Natively more than two have no core here either.",
};

const CLIENTS: u32 = 50;

fn measure(recorder: &mut Recorder) -> Outcome {
    for (way, how) in WAYS {
        for threads in [1, 2, 4, 8, 16] {
            recorder.point(&curve("memcached SET", way), threads.into(), || {
                let running = how.start(&Memcached { threads, ..Memcached::PLAIN })?;
                let asked = load::exchanges(memcached::set);
                let crowd =
                    load::crowd_for("memcached", "set", running.service(), &asked, POINT, CLIENTS)?;
                figures(&running, &crowd)
            });
        }
    }
    Ok(())
}
