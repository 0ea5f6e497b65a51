//! Images of a PostgreSQL: what its files cost, by their size, when one in a hundred rows was written since the image before.

use super::images::{PAGES, TOOK, follower, taken};
use super::{Figure, Recorder, Topic, curve, mib};
use crate::servers::postgres::{Postgres, initialize, statement};
use crate::stats::Spread;
use crate::target::Cluster;
use crate::wire::free_address;
use skein_testkit::Outcome;

pub const TOPIC: Topic = Topic {
    name: "files",
    title: "Images of files",
    x: "MiB of tables",
    figures: &[STOOD, PAGES, TOOK, NEW, ALL],
    measure,
    reading: "Fsync; of the only replica, or of a follower; pgbench's tables are made, then `skein checkpoint create` after an UPDATE of one row in a hundred, side by side; medians of three images behind the first two.\n\
         What such an UPDATE writes, new rows and the log before them, is twice a hundredth of the tables and more. Where much was written to files, it is read while the server goes on. Of what its processes share\n\
         (`shared_buffers`, 128 MiB) what was written since it was read beside the running server is read again while it stands ([decision 44](../../docs/decisions/0044-memory-is-read-before-a-server-stands.md)).",
};

const STOOD: Figure =
    Figure { key: "stood_ms", label: "ms the server stood", digits: 1, plotted: true };
const NEW: Figure = Figure { key: "new_mib", label: "MiB written", digits: 1, plotted: true };
const ALL: Figure =
    Figure { key: "all_mib", label: "MiB of images in all", digits: 0, plotted: false };
/// pgbench's scale has 15 MiB.
const MIB: [u64; 3] = [256, 1024, 2048];
const MIB_OF_SCALE: u64 = 15;
const ROWS_OF_SCALE: u64 = 100_000;
const FIRST_IMAGES: u64 = 2;
const IMAGES: u64 = 3;

fn measure(recorder: &mut Recorder) -> Outcome {
    // Three on two cores take minutes for the largest.
    for (replicas, name, sizes) in
        [(1, "1 replica, 1 % of rows", &MIB[..]), (3, "3 replicas, 1 % of rows", &MIB[..2])]
    {
        for size in sizes.iter().copied() {
            let point = || one(replicas, size / MIB_OF_SCALE);
            if !recorder.point(&curve("PostgreSQL", name), size as f64, point) {
                break;
            }
        }
    }
    Ok(())
}

fn one(replicas: u64, scale: u64) -> Outcome<Vec<(&'static str, f64)>> {
    let cluster = Cluster::of(&Postgres, free_address()?, replicas, "fsync")?;
    let replica = follower(&cluster)?;
    initialize(cluster.service, scale)?;
    let rows = scale * ROWS_OF_SCALE / 100;
    let mut all = Vec::new();
    for round in 0..FIRST_IMAGES + IMAGES {
        let (from, to) = (round * rows + 1, (round + 1) * rows);
        statement(
            cluster.service,
            &format!(
                "UPDATE pgbench_accounts SET abalance = {round} WHERE aid BETWEEN {from} AND {to}"
            ),
        )?;
        let mut nudge = || statement(cluster.service, "UPDATE pgbench_branches SET bbalance = 1");
        all.push(taken(&cluster, replica, &mut nudge)?);
    }
    let whole = all.last().map_or(0, |taken| taken.whole);
    all.drain(..FIRST_IMAGES as usize);
    let median = |of: fn(&super::images::Taken) -> f64| {
        Spread::of(all.iter().map(of).collect()).map_or(0.0, |spread| spread.median)
    };
    Ok(vec![
        (STOOD.key, median(|taken| taken.stood_ms)),
        (PAGES.key, median(|taken| taken.pages)),
        (TOOK.key, median(|taken| taken.took_ms)),
        (NEW.key, median(|taken| taken.new_mib)),
        (ALL.key, mib(whole)),
    ])
}
