//! An idle redis-server has ten timers a second; nobody waits for them, so the replicas' disks sync for many of them at once, and their nodes say little.

mod common;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place};
use serde_json::Value;

/// Entries of timers that are counted: four to six seconds' worth, or more on a busy machine.
const ENTRIES: u64 = 40;

fn entries(row: &Value) -> u64 {
    row["commit_index"].as_u64().unwrap()
}

/// The most bytes that a follower's node sends while so many entries come: 535 each at a quick rhythm, 240 to 285 at a slow one.
const SENT_BYTES: u64 = 350 * ENTRIES;

fn sent(row: &Value) -> u64 {
    row["counts"]["peer_out_bytes"].as_u64().unwrap()
}

fn writes(row: &Value) -> u64 {
    row["counts"]["log_writes"].as_u64().unwrap()
}

#[test]
fn an_idle_server_costs_few_syncs_and_answers_at_once() {
    let port = free_port();
    let server = ["/usr/bin/redis-server", "--port", &port.to_string(), "--save", ""];
    let cluster = Cluster::start_in(Place::new(), port, &[], &server);
    let before = cluster.wait_ready();
    let after = wait_for_or(
        "timers",
        || cluster.evidence(),
        || {
            let (status, code) = cluster.status();
            let passed = |id| {
                let [now, then] = [&status, &before].map(|all| entries(Cluster::replica(all, id)));
                now >= then + ENTRIES
            };
            (code == Some(0) && (1..=3).all(passed)).then_some(status)
        },
    );
    for id in 1..=3 {
        let (then, now) = (Cluster::replica(&before, id), Cluster::replica(&after, id));
        let (writes, entries) = (writes(now) - writes(then), entries(now) - entries(then));
        // One for some twenty entries; a sixth of them on a machine that is far too busy, and those of the start.
        assert!(writes <= entries / 6 + 6, "replica {id}: {writes} writes for {entries} entries");
    }
    // Heartbeats are slow soon. A machine that is far too busy may take several looks: entries come later, too.
    let mut before = after;
    wait_for_or(
        "a slow rhythm",
        || cluster.evidence(),
        || {
            let (status, _) = cluster.status();
            let both = |id| [&before, &status].map(|all| Cluster::replica(all, id));
            let passed = |id| {
                let [then, now] = both(id).map(entries);
                now >= then + ENTRIES
            };
            if !(1..=3).all(passed) {
                return None;
            }
            let lead = status["leader"].as_u64().unwrap();
            let says_little = |id| {
                let [then, now] = both(id);
                let passed = entries(now) - entries(then);
                (sent(now) - sent(then)) * ENTRIES <= SENT_BYTES * passed
            };
            let slow = (1..=3).filter(|id| *id != lead).all(says_little);
            before = status;
            slow.then_some(())
        },
    );
    // What a client asks commits the timers before it, too.
    let mut client = Redis::connect(port, PATIENCE).unwrap();
    assert_eq!(client.ask(&["SET", "a", "1"]).unwrap(), Reply::ok());
    cluster.wait_status(0);
}
