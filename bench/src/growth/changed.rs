//! Images of a redis of one size: how long it stands, what is written, and what crosses to another host, by what changed since the image before.

use std::time::Duration;

use super::images::{
    NEW, PAGES, STOOD, TOOK, Taken, fill, filled, follower, has_image, series, take, taken,
};
use super::{Figure, Recorder, Topic, curve, mib};
use crate::servers::redis;
use crate::stats::Spread;
use crate::target::{Cluster, Running, Way, await_within};
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "changed",
    title: "Images by what changed",
    x: "pages of 4 KiB written",
    figures: &[STOOD, PAGES, TOOK, NEW, CROSSED],
    measure,
    reading: "256 MiB of data, fsync; of these 0.1, 1, 5 and 20 % are written again side by side before each image, four values a page; what redis writes beside its values is not in the\n\
         number of pages. Medians of three images behind the first two. Of three active replicas each takes images of its own, so nothing crosses: a standby's passive replica fetches what\n\
         its leader took, and the last column is all that the leader's node has sent meanwhile.",
};

const CROSSED: Figure =
    Figure { key: "crossed_mib", label: "MiB to another host", digits: 2, plotted: true };

const SERVER: redis::Redis = redis::Redis { more: &["--enable-debug-command", "yes"] };
const MIB: u64 = 256;
const PERCENT: [f64; 4] = [0.1, 1.0, 5.0, 20.0];
const PAGES_OF_ALL: f64 = (MIB << 20) as f64 / 4_096.0;
/// Behind one that took long, a passive replica fetches the next image after a pause of twenty times as long.
const FETCHED_WITHIN: Duration = Duration::from_secs(300);
/// The one that is passive of a standby.
const PASSIVE: u64 = 2;

fn measure(recorder: &mut Recorder) -> Outcome {
    for (name, replicas) in [("3 replicas", 3), ("1 replica", 1)] {
        let (cluster, mut client) = filled(&SERVER, replicas, MIB)?;
        let replica = follower(&cluster)?;
        for percent in PERCENT {
            let pages = (PAGES_OF_ALL * percent / 100.0).round();
            recorder.point(&curve("redis", name), pages, || {
                series(&mut client, MIB, percent, |client| take(&cluster, replica, client))
            });
        }
    }
    let Running::Skein(cluster) = (Way::Standby { durability: "fsync" }).start(&SERVER)? else {
        return Err(Failure("no cluster".to_owned()));
    };
    let mut client = fill(cluster.service, &SERVER, MIB)?;
    for percent in PERCENT {
        let pages = (PAGES_OF_ALL * percent / 100.0).round();
        recorder.point(&curve("redis", "standby"), pages, || {
            let mut crossed = Vec::new();
            let mut values = series(&mut client, MIB, percent, |_| {
                let before = sent(&cluster)?;
                let taken = fetched(&cluster)?;
                crossed.push(mib(sent(&cluster)? - before));
                Ok(taken)
            })?;
            // Those whose other figures count.
            let last = crossed.split_off(crossed.len() / 2);
            values.push((CROSSED.key, Spread::of(last).map_or(0.0, |spread| spread.median)));
            Ok(values)
        });
    }
    Ok(())
}

/// Bytes that the leader's node has sent to others so far.
fn sent(cluster: &Cluster) -> Outcome<u64> {
    Ok(cluster.whole()?.leader()?.counts.peer_out_bytes)
}

/// An image of the leader's server that the passive replica has, too. No other server confirms it, so nobody has to ask for anything meanwhile.
fn fetched(cluster: &Cluster) -> Outcome<Taken> {
    let taken = taken(cluster, cluster.whole()?.leader()?.id, &mut || Ok(()))?;
    await_within(FETCHED_WITHIN, "the passive replica to have the image", || {
        Ok(has_image(cluster, PASSIVE, taken.index)?.then_some(()))
    })?;
    Ok(taken)
}
