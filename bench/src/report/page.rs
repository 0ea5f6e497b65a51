//! `docs/performance.md`, the results on one page, and `bench/reports/servers.md`: the method, and every table.

use super::servers::TRAPS_SHOWN;
use super::text::wide;
use super::{Page, failover, goals, lasting, latest, profile, room, servers};
use crate::results::Results;
use crate::stats::Spread;
use skein_testkit::Outcome;

type Part = fn(&Results) -> Outcome<String>;

/// The documents, part by part; a part that has no results is empty.
const DOCUMENTS: &[(&str, &[Part])] = &[
    ("docs/performance.md", &[summary, goals_part, lasting_part, failover_part, reading]),
    ("bench/reports/servers.md", &[head, plots, tables, profile_part, room_part]),
];

/// The documents.
pub fn pages() -> Outcome<Vec<Page>> {
    let results = latest()?;
    let document = |(path, parts): &(&str, &[Part])| {
        let text = parts.iter().map(|part| part(&results)).collect::<Outcome<String>>()?;
        Ok(Page { path: (*path).to_owned(), text })
    };
    DOCUMENTS.iter().map(document).collect()
}

/// The part that depends on no result.
fn summary(_: &Results) -> Outcome<String> {
    Ok("# Performance\n\n\
        The goals, the outage, and what stands in the way of native speed. `cargo xtask bench --report` writes this page from `bench/results`; the README has\n\
        a summary. More figures: [each server, and how it was measured](../bench/reports/servers.md), [how cost grows](../bench/reports/growth.md),\n\
        [a cluster that loses, replaces and repairs replicas under load](../bench/reports/life.md), [beside replication in use today, and the papers](../bench/reports/comparison.md),\n\
        [beside checkpoints and standbys of others](../bench/reports/checkpoints.md).\n\n"
        .to_owned())
}

fn tables(results: &Results) -> Outcome<String> {
    Ok(servers::tables(results))
}

fn goals_part(results: &Results) -> Outcome<String> {
    Ok(format!("## Goals\n\n{}\n", goals::goals(results)))
}

fn lasting_part(_: &Results) -> Outcome<String> {
    lasting::section()
}

fn plots(results: &Results) -> Outcome<String> {
    Ok(servers::plot_links(results))
}

fn failover_part(_: &Results) -> Outcome<String> {
    failover::section()
}

fn profile_part(_: &Results) -> Outcome<String> {
    profile::section()
}

fn reading(_: &Results) -> Outcome<String> {
    Ok(READING.to_owned())
}

fn room_part(results: &Results) -> Outcome<String> {
    Ok(room::room(results))
}

fn head(results: &Results) -> Outcome<String> {
    let about = &results.about;
    let machine = &about.machine;
    let loads: Vec<f64> = results.samples.iter().map(|sample| sample.load_average).collect();
    let load = Spread::of(loads).map_or(String::new(), |load| {
        format!(
            "The load average beside the measurements was {:.1} ({:.1} to {:.1}); a part is the\n\
             benchmark's own, which keeps {} cores busy; what is above is other work on the machine, which makes the\n\
             figures worse and wider.\n",
            load.median, load.min, load.max, machine.cores
        )
    });
    let rounds = rounds(results);
    let traps = if results.samples.iter().any(|sample| sample.trapped_calls.is_some()) {
        format!(
            "- Trapped calls: calls of the leader's server that came through the safety net while the crowd was there, each at the price of a\n  \
             signal (`trapped_calls` in `skein status --json`). Those that come {TRAPS_SHOWN} times a request or more often are named in a table.\n"
        )
    } else {
        // Earlier results have no names.
        String::new()
    };
    Ok(format!(
        "# Servers alone, behind a proxy and under Skein\n\n\
         Written by `cargo xtask bench --report` from `bench/results/latest.json`, which holds every\n\
         sample. Don't edit it by hand. To measure again (some minutes; builds nothing, so `make build` first):\n\n    \
         {command}\n\n\
         ## How it was measured\n\n\
         - Commit {commit}, the newest when `skein` was built (`+`: the crates have been changed since, or were then); {versions}.\n\
         - {cpu}, {cores} cores for clients, servers and everything else; {memory} MiB; Linux {kernel}.\n\
         - One append of 512 bytes to the disk under the logs, made durable: {sync} us.\n\
         - Rounds: {rounds}. In each, every target is started fresh, measured and stopped, one after the\n  \
         other and in another order each time. Ratios are to native in the same round; a figure is the median\n  \
         of the rounds, in brackets the least and the most.\n\
         - p999: the latency that 99.9 % of the requests do not exceed; one client alone is timed for one second at most.\n\
         - Crowd: {clients} connections where a table says nothing else, each waits for its reply before it asks again, {requests}\n  \
         requests of each kind (MariaDB: 1,500 transactions; PostgreSQL: 2,400; clamd: 4,000 files). redis: redis-benchmark, 3 byte values.\n  \
         memcached and the web servers: an own client of one thread, every reply compared with the right one.\n\
         - CPU time: user and system time from `/proc/PID/stat` of what a request passes through: the server with all\n  \
         its processes (and the proxy), or the leader's node and server.\n\
         - Before the crowd is measured, a tenth of its requests are made unmeasured; one client asks up to 1,000\n  \
         times before its requests count (ApacheBench, sysbench, pgbench and clamdscan count from the first).\n\
         - Cores: CPU time by wall clock time while the crowd was there, of the load generator and of all processes of the target.\n\
         - Bytes between nodes: the nodes' own count of what they sent (`skein_peer_out_bytes`), without TCP's and IP's heads. Bytes to\n  \
         disks: `write_bytes` in `/proc/PID/io` of all processes of the target, of logs and of the server's own files. An upper bound: where a file was filled in large pieces, as\n  \
         logs are, the kernel counts a piece of up to a MiB for each block of it that is written.\n\
         {traps}\
         - One client: requests one by one, nobody else there.\n\
         - Outage: three replicas with fsync, one client that writes without a pause and tries again every\n  \
         millisecond (a try is given up after 50 ms); the leader's node gets `kill -9`. From the last reply on the old\n  \
         connection to the first on a new one. {kills} kills.\n\n\
         {load}\n",
        command = about.command,
        commit = about.commit,
        versions = about.versions.join("; "),
        cpu = machine.cpu,
        cores = machine.cores,
        memory = machine.memory_mib,
        kernel = machine.kernel,
        sync = wide(Spread::of(machine.sync_us.clone()), 0),
        clients = results.clients,
        requests = results.requests,
        kills = results.outages_ms.len(),
    ))
}

/// The part that depends on no sample.
const READING: &str = "## What stands in the way of native\n\n\
    Natively and under Skein, sending replies costs most: one system call for each reply, as long as each client waits for its own. Under Skein the node pays it\n\
    instead of the server. Skein adds receiving and polling in the node, and the wake-ups between node and server, for which both keep to one core\n\
    ([decision 16](decisions/0016-a-leader-and-its-server-share-a-core.md)). The code of gateway, log, rings and runtime together costs less than that.\n\n\
    Three replicas add messages to and from two others and, with fsync, durable writes. On two cores the other replicas' work competes with the\n\
    leader's; on three machines it would not. The column of all replicas' CPU time shows how much that is. The more requests share an entry, the less each of them\n\
    costs. A leader therefore waits until half a crowd has sent its requests, or two thirds with fsync\n\
    ([decision 11](decisions/0011-a-leader-batches-returning-clients.md)). With one replica and its log in memory three tenths are enough; those figures vary most. Where they\n\
    are above 1, replies leave in bursts, and the load generator, whose core is the limit, takes less CPU time for a request than natively (the column of the clients').\n\n\
    Bare replication (`bench/src/bare.rs`) is a store of one thread. It receives, sends entries to two copies that make them durable, executes and replies, and\n\
    does nothing else. Skein's rows with fsync add consensus and the servers, which are processes of their own and are woken for entries. Bare replication is simple and not\n\
    tuned, and gathers requests by its own rule. It is no lower bound (its leader may take more CPU time than Skein's), but shows about how much could be gained.\n\n\
    The outage is that of a dead *process*, whose closed connections its peers see at once. A silent machine is\n\
    noticed by missed heartbeats, after the election timeout:\n\
    [the comparison](../bench/reports/comparison.md) has that figure (a stopped leader).\n\n\
    With three replicas and fsync the two cores are not full: the columns of cores add up to less than two. An entry takes some 13 changes of thread\n\
    (leader, two followers, server, clients). Waking another core takes about 30 us here, and the kernel may queue a woken thread behind a running one while\n\
    the other core is idle. A sync is two requests to the disk in sequence (the data, the disk's cache), and every 4 ms a third one: the time of\n\
    modification, as this machine's ext4 has no journal (`perf record -e sched:sched_switch,block:block_rq_issue` shows both).\n\n\
    What was tried: overlapping entries, replies in parts and shorter slices made no difference beyond noise\n\
    ([decision 13](decisions/0013-commits-do-not-wait-for-the-leaders-disk.md)). Larger entries made a small one\n\
    ([decision 11](decisions/0011-a-leader-batches-returning-clients.md)), and so did followers that write by themselves\n\
    ([decision 14](decisions/0014-a-follower-writes-by-itself.md)). Executing on the leader while the others write made one of a tenth\n\
    ([decision 15](decisions/0015-a-leader-executes-ahead-of-the-commit.md)).\n\n\
    clamd is faster under Skein than natively, among other reasons because its temporary files reach the disk natively (see the bytes to disks), while a replica's private\n\
    layer is in memory.\n";

/// The number of rounds.
fn rounds(results: &Results) -> String {
    let of = |goals: bool| {
        let those = results.samples.iter().filter(|at| at.server.workload().has_goals() == goals);
        those.map(|sample| sample.round + 1).max()
    };
    match (of(true), of(false)) {
        (Some(more), Some(others)) if more != others => {
            format!(
                "{more} of the servers that have goals (redis, memcached), {others} of the others"
            )
        }
        (more, others) => more.max(others).unwrap_or(0).to_string(),
    }
}
