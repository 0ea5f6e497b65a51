//! The server's memory: redis filled with up to 4 GiB; its speed then, and the cost of a background save.

use std::time::Instant;

use super::{Figure, NODE, P99, POINT, Recorder, SERVER, THROUGHPUT, Topic, curve, figures};
use crate::load::{self, LOAD_MAX};
use crate::servers::redis;
use crate::target::Way;
use crate::wire::Client;
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "memory",
    title: "The server's memory",
    x: "MiB of data",
    figures: &[FILL, THROUGHPUT, P99, SAVE, SAVING, NODE, SERVER],
    measure,
    reading: "Filling takes time in proportion. Redis moves to a larger table of keys in steps of a millisecond; under Skein the clock moves on by the\n\
         number of looks at it ([limitations](../../docs/limitations.md)). Up to commit 6399aba a step was a thousand looks and more: with millions of keys a fifth of a\n\
         second, ten times a second, until the table was moved; so figures from then have a bend at 4 GiB. Since, it is 150 to 200. A background save forks under Skein as natively,\n\
         but its child takes turns with its parent, so requests wait for it instead of for the second core. Of 4 GiB no save is measured: it takes\n\
         longer than a point may.",
};

const FILL: Figure = Figure { key: "fill_s", label: "seconds to fill", digits: 2, plotted: true };
const SAVE: Figure =
    Figure { key: "save_s", label: "seconds of BGSAVE beside load", digits: 2, plotted: true };
const SAVING: Figure = Figure {
    key: "saving_per_second",
    label: "requests a second beside it",
    digits: 0,
    plotted: false,
};

const MIB: [u64; 4] = [64, 256, 1_024, 4_096];
/// Larger stores are not saved: the disk takes minutes.
const SAVED_MIB: u64 = 1_024;
/// Size of a value; redis' tables use about the rest of one KiB for each key.
const VALUE_BYTES: u64 = 920;
const CLIENTS: u32 = 50;

/// Memory that must be free beside the server's own: its fork, the saved file in its layer, everything else.
fn room_for(mib: u64) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free_kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free_kib = free_kib.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
    free_kib.is_none_or(|free: u64| free / 1024 > 2 * mib + 2_048)
}

fn measure(recorder: &mut Recorder) -> Outcome {
    let ways = [
        ("native", Way::Native),
        ("1 replica, memory", Way::Skein { replicas: 1, durability: "memory" }),
    ];
    for (way, how) in ways {
        for mib in MIB {
            recorder.point(&curve("redis SET", way), mib as f64, || one(how, mib));
        }
    }
    Ok(())
}

fn one(how: Way, mib: u64) -> Outcome<Vec<(&'static str, f64)>> {
    if !room_for(mib) {
        return Err(Failure(format!("less memory free than {} MiB", 2 * mib + 2_048)));
    }
    let server = redis::Redis { more: &["--enable-debug-command", "yes"] };
    let running = how.start(&server)?;
    let service = running.service();
    let failed = |error| Failure::of("redis' administrator", error);
    let mut client = Client::connect(service, 3 * LOAD_MAX).map_err(failed)?;
    let keys = (mib << 20) / 1_024;
    let start = Instant::now();
    let fill = ["DEBUG", "POPULATE", &keys.to_string(), "filled", &VALUE_BYTES.to_string()];
    client.exchange(&redis::command(&fill, "+OK")).map_err(failed)?;
    let fill_s = start.elapsed().as_secs_f64();
    let asked = load::exchanges(redis::set);
    let crowd = load::crowd_for("redis", "set", service, &asked, POINT, CLIENTS)?;
    let mut values = figures(&running, &crowd)?;
    values.push((FILL.key, fill_s));
    if mib > SAVED_MIB {
        return Ok(values);
    }
    let start = Instant::now();
    let begun = "+Background saving started";
    client.exchange(&redis::command(&["BGSAVE"], begun)).map_err(failed)?;
    let mut beside = Vec::new();
    while is_saving(&mut client).map_err(failed)? {
        if start.elapsed() > LOAD_MAX {
            return Err(Failure("BGSAVE has not ended after 60 s".to_owned()));
        }
        beside
            .push(load::crowd_for("redis", "set", service, &asked, POINT / 8, CLIENTS)?.per_second);
    }
    values.push((SAVE.key, start.elapsed().as_secs_f64()));
    if !beside.is_empty() {
        values.push((SAVING.key, beside.iter().sum::<f64>() / beside.len() as f64));
    }
    Ok(values)
}

fn is_saving(client: &mut Client) -> std::io::Result<bool> {
    let script =
        "return tonumber(redis.call('INFO','persistence'):match('rdb_bgsave_in_progress:(%d)'))";
    client.exchange(&redis::command(&["EVAL", script, "0"], ":"))?;
    Ok(client.got().starts_with(b":1"))
}
