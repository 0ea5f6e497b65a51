//! One replica's disk, server or link fails: the others serve on, the status names the fault and its end.

mod common;

use common::{Client, Cluster, wait_for};
use skein_node::config::DurabilityMode::Fsync;
use std::sync::atomic::Ordering;

/// Writes until `done`; no acknowledged write may be lost. Connects again when it is reset.
fn load_until(cluster: &Cluster, writes: &mut u64, mut done: impl FnMut() -> bool) {
    let mut client: Option<Client> = None;
    wait_for("what is waited for under load", || {
        let c = client.get_or_insert_with(|| cluster.client());
        match c.try_ask(&format!("set k {}", *writes + 1)) {
            Ok(answer) => {
                assert_eq!(answer, "ok");
                *writes += 1;
            }
            Err(_) => client = None,
        }
        done().then_some(())
    });
}

fn has_fault(cluster: &Cluster, id: u64, name: &str) -> bool {
    let faults = cluster.status(id).map(|status| status.replica.faults).unwrap_or_default();
    faults.iter().any(|fault| fault.name == name)
}

/// All are well, agree, and have the last acknowledged write, or one that was under way.
fn assert_whole(cluster: &Cluster, writes: u64) {
    cluster.wait_well();
    cluster.agree();
    let value: u64 = cluster.client().ask("get k").parse().unwrap();
    assert!((writes..=writes + 1).contains(&value), "{writes} writes, {value}");
}

fn follower(cluster: &Cluster) -> u64 {
    let leader = cluster.leader();
    (1..=3).find(|id| *id != leader).unwrap()
}

#[test]
fn a_leader_whose_disk_hangs_hands_over() {
    let cluster = Cluster::new(3, Fsync);
    let mut writes = 0;
    load_until(&cluster, &mut writes, || true);
    let leader = cluster.leader();
    cluster.disk(leader).begin();
    load_until(&cluster, &mut writes, || cluster.leader() != leader);
    load_until(&cluster, &mut writes, || has_fault(&cluster, leader, "disk_hangs"));
    // It serves on while the fault lasts.
    let before = writes;
    let mut more = 0;
    load_until(&cluster, &mut writes, || {
        more += 1;
        more > 20
    });
    assert!(writes > before);
    assert!(has_fault(&cluster, leader, "disk_hangs"));
    cluster.disk(leader).end();
    assert_whole(&cluster, writes);
}

#[test]
fn a_follower_whose_disk_hangs_is_named_and_nobody_waits_for_it() {
    // A host that is busy with other tests must not cause an election meanwhile.
    let cluster = Cluster::with(3, Fsync, |config| config.tuning.election_timeout_ms = 2000);
    let (leader, follower) = (cluster.leader(), follower(&cluster));
    let term = cluster.status(leader).unwrap().term;
    let mut client = cluster.client();
    cluster.disk(follower).begin();
    let mut writes = 0;
    wait_for("the fault", || {
        writes += 1;
        assert_eq!(client.ask(&format!("set k {writes}")), "ok");
        has_fault(&cluster, follower, "disk_hangs").then_some(())
    });
    cluster.disk(follower).end();
    assert_whole(&cluster, writes);
    assert_eq!(cluster.status(leader).unwrap().term, term, "nobody else was elected");
}

#[test]
fn a_slow_disk_is_named() {
    let cluster = Cluster::new(3, Fsync);
    let leader = cluster.leader();
    for id in [leader, follower(&cluster)] {
        let mut writes = 0;
        cluster.disk(id).delay_ms.store(50, Ordering::SeqCst);
        load_until(&cluster, &mut writes, || has_fault(&cluster, id, "disk_slow"));
        cluster.disk(id).delay_ms.store(0, Ordering::SeqCst);
        load_until(&cluster, &mut writes, || !has_fault(&cluster, id, "disk_slow"));
        assert_whole(&cluster, writes);
    }
}

fn hung_server(of_leader: bool, caught_up: bool) {
    let cluster = Cluster::with(3, Fsync, |config| config.tuning.server_patience_ms = 200);
    let leader = cluster.leader();
    let id = if of_leader { leader } else { follower(&cluster) };
    let mut writes = 0;
    load_until(&cluster, &mut writes, || true);
    if caught_up {
        cluster.agree();
    }
    // The replica whose server hangs may be the one that would answer.
    let mut client = cluster.client();
    client.send(&format!("hang-on {id}"));
    load_until(&cluster, &mut writes, || has_fault(&cluster, id, "server_stuck"));
    assert_eq!(cluster.node(id).seen.lives.load(Ordering::SeqCst), 1, "it still hangs");
    if of_leader {
        load_until(&cluster, &mut writes, || cluster.leader() != leader);
    }
    let lives = &cluster.node(id).seen.lives;
    wait_for("it to be rebuilt", || (lives.load(Ordering::SeqCst) == 2).then_some(()));
    assert_whole(&cluster, writes);
}

#[test]
fn a_leader_whose_server_hangs_hands_over_and_rebuilds_it() {
    hung_server(true, true);
}

#[test]
fn a_follower_whose_server_hangs_rebuilds_it() {
    hung_server(false, true);
}

#[test]
fn so_does_one_that_has_hardly_begun() {
    hung_server(false, false);
}

#[test]
fn nobody_waits_for_the_old_entries_that_a_laggard_needs() {
    // A host that is busy with other tests must not cause an election meanwhile.
    let mut cluster = Cluster::with(3, Fsync, |config| config.tuning.election_timeout_ms = 2000);
    let (leader, away) = (cluster.leader(), follower(&cluster));
    cluster.stop(away).unwrap();
    let mut client = cluster.client();
    // More than the leader keeps in memory (32 MiB).
    let value = "x".repeat(256 << 10);
    for _ in 0..160 {
        assert_eq!(client.ask(&format!("set k {value}")), "ok");
    }
    let disk = cluster.disk(leader).clone();
    disk.begin_reads();
    cluster.start(away).unwrap();
    wait_for("an old entry to be read", || (disk.waiting() > 0).then_some(()));
    for write in 0..100 {
        assert_eq!(client.ask(&format!("set a {write}")), "ok");
    }
    assert!(disk.waiting() > 0, "it is still being read");
    disk.end_reads();
    cluster.agree();
    assert_eq!(cluster.leader(), leader);
}
