//! Images of a redis: how long it stands, and what is written, by the data's size and what changed since the image before.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Figure, Recorder, Topic, curve, mib};
use crate::servers::redis;
use crate::stats::Spread;
use crate::target::{Cluster, await_some};
use crate::wire::{Client, free_address};
use skein_testkit::{Failure, Outcome};

pub const TOPIC: Topic = Topic {
    name: "images",
    title: "Images of what changed",
    x: "MiB of data",
    figures: &[STOOD, PAGES, TOOK, NEW],
    measure,
    reading: "Fsync; `skein checkpoint create` after a part of the values was written again, side by side; medians of three images behind the first two.\n\
         Three replicas: a follower's image. Clients wait for none of it: the leader's server goes on. One replica: they wait as long as the server stands. What was written to memory is\n\
         read before.",
};

pub const STOOD: Figure =
    Figure { key: "stood_ms", label: "ms the server stood", digits: 1, plotted: true };
pub const PAGES: Figure =
    Figure { key: "pages", label: "pages of 4 KiB copied", digits: 0, plotted: false };
pub const TOOK: Figure =
    Figure { key: "took_ms", label: "ms until it was on disk", digits: 0, plotted: true };
pub const NEW: Figure = Figure { key: "new_mib", label: "MiB written", digits: 2, plotted: true };

const PLAIN: &[&str] = &["--enable-debug-command", "yes"];
const WITH_FILE: &[&str] = &["--appendonly", "yes", "--enable-debug-command", "yes"];
const MIB: [u64; 4] = [16, 64, 256, 512];
const IMAGES: usize = 3;
/// The first images of a server, which may read all memory.
const FIRST_IMAGES: usize = 2;
const VALUE_BYTES: u64 = 920;
const KEYS_IN_A_SCRIPT: usize = 20_000;
/// A redis command may stand behind an image, or fill gigabytes.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What is said of an image by `skein checkpoint create --json`.
#[derive(Deserialize)]
struct Created {
    index: u64,
    #[serde(default)]
    pages: u64,
    stood_us: u64,
    /// `fork` or `standstill`.
    how: String,
    took_us: u64,
}

/// What is said of images by `skein checkpoint ls --json`.
#[derive(Deserialize)]
struct Listed {
    replica: u64,
    images: Vec<Image>,
}

#[derive(Deserialize)]
struct Image {
    index: u64,
    bytes: u64,
    total_bytes: u64,
    confirmed: bool,
}

/// An image.
pub struct Taken {
    /// The last entry that its server had executed.
    pub index: u64,
    pub stood_ms: f64,
    /// Pages that were copied.
    pub pages: f64,
    /// Whether the server forked.
    pub forked: bool,
    pub took_ms: f64,
    pub new_mib: f64,
    /// Bytes that it would take alone.
    pub whole: u64,
}

fn measure(recorder: &mut Recorder) -> Outcome {
    for (name, replicas, more, percent) in [
        ("3 replicas, 0.1 % changed", 3, PLAIN, 0.1),
        ("3 replicas, 1 % changed", 3, PLAIN, 1.0),
        ("3 replicas, 10 % changed", 3, PLAIN, 10.0),
        ("3 replicas, 1 % changed, append-only file", 3, WITH_FILE, 1.0),
        ("1 replica, 1 % changed", 1, PLAIN, 1.0),
        ("1 replica, 10 % changed", 1, PLAIN, 10.0),
    ] {
        for size in MIB {
            let point = || one(&redis::Redis { more }, replicas, size, percent);
            if !recorder.point(&curve("redis", name), size as f64, point) {
                break;
            }
        }
    }
    for size in MIB {
        if !recorder
            .point(&curve("redis", "1 replica, its first image"), size as f64, || first(size))
        {
            break;
        }
    }
    Ok(())
}

/// Medians of the first images of servers that were just filled.
fn first(size: u64) -> Outcome<Vec<(&'static str, f64)>> {
    let one = |_| {
        let (cluster, mut client) = filled(&redis::Redis { more: PLAIN }, 1, size)?;
        take(&cluster, follower(&cluster)?, &mut client)
    };
    Ok(medians(&(0..IMAGES).map(one).collect::<Outcome<Vec<_>>>()?))
}

/// A cluster whose redis has so much data.
pub fn filled(server: &redis::Redis, replicas: u64, size: u64) -> Outcome<(Cluster, Client)> {
    let cluster = Cluster::of(server, free_address()?, replicas, "fsync")?;
    let client = fill(cluster.service, server, size)?;
    Ok((cluster, client))
}

/// Gives redis so much data; answers the client that did.
pub fn fill(service: SocketAddr, server: &redis::Redis, size: u64) -> Outcome<Client> {
    let failed = |error| Failure::of("redis' client", error);
    let connected = || Ok(Client::connect(service, ANSWER_MAX).ok());
    let mut client = await_some("a connection", connected)?;
    let count = keys(size);
    let fill = ["DEBUG", "POPULATE", &count.to_string(), "filled", &VALUE_BYTES.to_string()];
    client.exchange(&redis::command(&fill, "+OK")).map_err(failed)?;
    change(&mut client, 0, count, IMAGES)?;
    // What DEBUG made is in no append-only file until it is written anew.
    if server.more.contains(&"--appendonly") {
        client.exchange(&redis::command(&["BGREWRITEAOF"], "+")).map_err(failed)?;
        let ask = "return tonumber(redis.call('INFO','persistence'):match('aof_rewrite_in_progress:(%d)'))";
        await_some("the append-only file", || {
            client.exchange(&redis::command(&["EVAL", ask, "0"], ":")).map_err(failed)?;
            Ok(client.got().starts_with(b":0").then_some(()))
        })?;
    }
    Ok(client)
}

/// How many values so much data has.
pub fn keys(size: u64) -> u64 {
    (size << 20) / 1_024
}

/// Writes some of the values again, from a number on, with digits that hardly compress.
pub fn change(client: &mut Client, from: u64, count: u64, round: usize) -> Outcome {
    let script = "for i=ARGV[1],ARGV[1]+ARGV[2]-1 do local t={} \
                  for j=1,20 do t[j]=redis.sha1hex(ARGV[3]..':'..i..':'..j) end \
                  redis.call('SETRANGE','filled:'..string.format('%d',i),0,table.concat(t)) end return 1";
    let failed = |error| Failure::of("redis' client", error);
    let round = round.to_string();
    for first in (from..from + count).step_by(KEYS_IN_A_SCRIPT) {
        let count = (from + count - first).min(KEYS_IN_A_SCRIPT as u64).to_string();
        let words = ["EVAL", script, "0", &first.to_string(), &count, &round];
        client.exchange(&redis::command(&words, ":1")).map_err(failed)?;
    }
    Ok(())
}

/// Has a replica take an image, and waits until the servers were compared behind it: images are pruned then.
pub fn take(cluster: &Cluster, replica: u64, client: &mut Client) -> Outcome<Taken> {
    taken(cluster, replica, &mut || change(client, 0, 1, 1))
}

/// The same of any server; `nudge` gives it something to do.
pub fn taken(
    cluster: &Cluster,
    replica: u64,
    nudge: &mut dyn FnMut() -> Outcome,
) -> Outcome<Taken> {
    let created = create(cluster, replica)?;
    let image = await_some("the image to count", || {
        nudge()?;
        let mut all = listed(cluster, replica)?.into_iter();
        Ok(all.find(|image| image.index == created.index && image.confirmed))
    })?;
    Ok(Taken {
        index: image.index,
        stood_ms: created.stood_us as f64 / 1e3,
        pages: created.pages as f64,
        forked: created.how == "fork",
        took_ms: created.took_us as f64 / 1e3,
        new_mib: mib(image.bytes),
        whole: image.total_bytes,
    })
}

/// Has a replica take an image, whether or not that counts later.
fn create(cluster: &Cluster, replica: u64) -> Outcome<Created> {
    let create = ["checkpoint", "create", "--json", "--replica", &replica.to_string()];
    let said = await_some("the server to stand", || match cluster.skein(&create) {
        Ok(said) => Ok(Some(said)),
        // It executes yet what was changed.
        Err(Failure(why)) if why.contains("executes a request") => Ok(None),
        Err(failed) => Err(failed),
    })?;
    serde_json::from_str(&said).map_err(|error| Failure::of("what skein checkpoint says", error))
}

/// The images that a replica has.
fn listed(cluster: &Cluster, replica: u64) -> Outcome<Vec<Image>> {
    let said = cluster.skein(&["checkpoint", "ls", "--json"])?;
    let all: Vec<Listed> = serde_json::from_str(&said)
        .map_err(|error| Failure::of("what skein checkpoint says", error))?;
    let own = all.into_iter().filter(|one| one.replica == replica);
    Ok(own.flat_map(|one| one.images).collect())
}

/// Whether a replica has the image of this entry.
pub fn has_image(cluster: &Cluster, replica: u64, index: u64) -> Outcome<bool> {
    Ok(listed(cluster, replica)?.iter().any(|image| image.index == index))
}

/// The entry of a replica's newest image that counts.
pub fn newest_image(cluster: &Cluster, replica: u64) -> Outcome<Option<u64>> {
    let counts = listed(cluster, replica)?.into_iter().filter(|image| image.confirmed);
    Ok(counts.map(|image| image.index).max())
}

/// Has a replica take an image, and waits until another one has got it.
pub fn handed_on(cluster: &Cluster, replica: u64, to: u64) -> Outcome {
    let created = create(cluster, replica)?;
    await_some("the image to be fetched", || {
        Ok(has_image(cluster, to, created.index)?.then_some(()))
    })
}

/// Has a replica take an image; answers what that has written [bytes].
pub fn written_for_one(cluster: &Cluster, replica: u64) -> Outcome<u64> {
    let created = create(cluster, replica)?;
    let image = listed(cluster, replica)?.into_iter().find(|image| image.index == created.index);
    image.map(|image| image.bytes).ok_or_else(|| Failure("the new image is gone".to_owned()))
}

/// Has a replica take images, one in so long, until the load beside it ends; how long its server stood for each [ms].
pub fn until_ended(
    cluster: &Cluster,
    replica: u64,
    wait: Duration,
    ended: &AtomicBool,
) -> Outcome<Vec<f64>> {
    let replica = replica.to_string();
    let mut stood = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let said = cluster.skein(&["checkpoint", "create", "--json", "--replica", &replica])?;
        let created: Created = serde_json::from_str(&said)
            .map_err(|error| Failure::of("what skein checkpoint says", error))?;
        stood.push(created.stood_us as f64 / 1e3);
        await_some("the next image's time", || {
            Ok((begun.elapsed() >= wait || ended.load(Ordering::Relaxed)).then_some(()))
        })?;
    }
    Ok(stood)
}

/// The number of a follower, or of the only replica.
pub fn follower(cluster: &Cluster) -> Outcome<u64> {
    let status = cluster.whole()?;
    let leader = status.leader()?.id;
    let other = status.replicas().iter().find(|replica| replica.id != leader);
    Ok(other.map_or(leader, |found| found.id))
}

fn one(
    server: &redis::Redis,
    replicas: u64,
    size: u64,
    percent: f64,
) -> Outcome<Vec<(&'static str, f64)>> {
    let (cluster, mut client) = filled(server, replicas, size)?;
    let replica = follower(&cluster)?;
    series(&mut client, size, percent, |client| take(&cluster, replica, client))
}

/// Medians of images behind the first two; before each so much of the data is written again.
pub fn series(
    client: &mut Client,
    size: u64,
    percent: f64,
    mut take: impl FnMut(&mut Client) -> Outcome<Taken>,
) -> Outcome<Vec<(&'static str, f64)>> {
    let count = ((keys(size) as f64 * percent / 100.0) as u64).max(1);
    let mut all = Vec::new();
    for round in 0..FIRST_IMAGES + IMAGES {
        let from = (round as u64 * count * 3) % (keys(size) - count).max(1);
        change(client, from, count, round)?;
        all.push(take(client)?);
    }
    all.drain(..FIRST_IMAGES);
    Ok(medians(&all))
}

/// Of figures of images.
pub fn medians(all: &[Taken]) -> Vec<(&'static str, f64)> {
    let median = |of: fn(&Taken) -> f64| {
        Spread::of(all.iter().map(of).collect()).map_or(0.0, |spread| spread.median)
    };
    vec![
        (STOOD.key, median(|taken| taken.stood_ms)),
        (PAGES.key, median(|taken| taken.pages)),
        (TOOK.key, median(|taken| taken.took_ms)),
        (NEW.key, median(|taken| taken.new_mib)),
    ]
}
