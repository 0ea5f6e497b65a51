//! An idle redis-server has ten timers a second; nobody waits for them, so the replicas' disks sync for many of them at once, and their nodes say little. A server whose timers come more
//! often than its leader's node wakes takes some by itself.

mod common;

use common::cluster::{Cluster, free_port, wait_for_or};
use common::own::{Lines, compiled};
use common::resp::{Redis, Reply};
use common::{PATIENCE, Place};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

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
    // Heartbeats are slow soon, and so are syncs. A machine that is far too busy may take several looks: entries come later, too.
    let mut before = (after, Instant::now());
    wait_for_or(
        "a slow rhythm",
        || cluster.evidence(),
        || {
            let asked = Instant::now();
            let (status, _) = cluster.status();
            let (then, since) = &before;
            let both = |id| [then, &status].map(|all| Cluster::replica(all, id));
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
            // One a second, and one more where the time ends.
            let most = since.elapsed().as_secs() + 1;
            let syncs_seldom = |id| {
                let [then, now] = both(id).map(writes);
                now - then <= most
            };
            let slow = (1..=3).all(syncs_seldom);
            let slow = slow && (1..=3).filter(|id| *id != lead).all(says_little);
            before = (status, asked);
            slow.then_some(())
        },
    );
    // What a client asks commits the timers before it, too.
    let mut client = Redis::connect(port, PATIENCE).unwrap();
    assert_eq!(client.ask(&["SET", "a", "1"]).unwrap(), Reply::ok());
    cluster.wait_status(0);
}

/// The last committed entry that a node knows of; the others are not asked.
fn committed(cluster: &Cluster, id: u64) -> Option<u64> {
    let mut node =
        UnixStream::connect(cluster.place.path(&format!("run/t/node-{id}.sock"))).ok()?;
    node.write_all(b"GET /status HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    node.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    serde_json::from_str::<Value>(body).ok()?["replica"]["commit_index"].as_u64()
}

/// How often the server's thread has woken.
fn ticks(cluster: &Cluster) -> u64 {
    common::wait_for("an answer", || {
        let answer = Lines::connect(cluster.port, PATIENCE).ok()?.ask("now").ok()?;
        answer.split(' ').next()?.parse().ok()
    })
}

/// Those that the servers take by themselves are entries like others: no answer is lost by them, nobody differs, and another leader goes on.
#[test]
fn an_idle_server_takes_entries_of_its_timer_by_itself() {
    let place = Place::new();
    let server = compiled(&place, "sleeper.c");
    let port = free_port();
    let server = [server.to_str().unwrap(), "50", &port.to_string()];
    let cluster = Cluster::start_in(place, port, &[], &server);
    cluster.wait_ready();
    let mut before = 0;
    for _leader in 0..2 {
        let status = wait_for_or(
            "entries that the server takes by itself",
            || cluster.evidence(),
            || {
                let (status, code) = cluster.status();
                let leader = status["leader"].as_u64().filter(|_| code == Some(0))?;
                // Who asks a node wakes it, and timers that are due then come at once: the leader is left alone meanwhile.
                let follower = (1..=3).find(|id| *id != leader).unwrap();
                let since = entries(Cluster::replica(&status, follower));
                let passed = || (committed(&cluster, follower)? >= since + ENTRIES).then_some(());
                wait_for_or("timers", || cluster.evidence(), passed);
                let (status, _) = cluster.status();
                let counts = &Cluster::replica(&status, leader)["counts"];
                (counts["planned_entries"].as_u64()? >= 20).then_some(status)
            },
        );
        let now = ticks(&cluster);
        assert!(now >= before + 20, "{now} ticks, {before} before");
        before = now;
        let output = cluster.place.run(&["verify", "--name", "t"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let (_, node) = Cluster::leader(&status);
        kill(Pid::from_raw(node), Signal::SIGKILL).unwrap();
    }
    cluster.wait_status(0);
    assert!(ticks(&cluster) >= before);
}
