//! A replica that lost its log: it does not come back by itself; on request it comes back without a vote, and then it counts.

mod common;

use common::{Cluster, wait_for};
use skein_log::wal::WalError;
use skein_node::config::DurabilityMode::{Fsync, Memory};
use skein_node::{NodeError, ReplicaState, begin};
use std::path::{Path, PathBuf};

fn data_dir(cluster: &Cluster, id: u64) -> PathBuf {
    cluster.configs[id as usize - 1].data_dir.clone()
}

fn in_step(cluster: &Cluster, id: u64) {
    wait_for("it to be a voter again", || {
        let voter = cluster.status(id)?.replica.role == "follower";
        let status = cluster.status(cluster.leader())?;
        let running = cluster.status(id)?.replica.state == ReplicaState::Running;
        (voter && running && status.voters_complete).then_some(())
    });
    cluster.agree();
}

/// Sets twenty values, and reads them back.
fn fill(cluster: &Cluster) {
    let mut client = cluster.client();
    assert!((0..20).all(|i| client.ask(&format!("set k{i} {i}")) == "ok"));
}

fn check(cluster: &Cluster) {
    let mut client = cluster.client();
    assert!((0..20).all(|i| client.ask(&format!("get k{i}")) == i.to_string()));
}

fn remove_log(dir: &Path) {
    std::fs::remove_dir_all(dir.join("log")).unwrap();
}

#[test]
fn a_replica_whose_disk_was_lost_rejoins_when_it_is_asked_to_and_then_counts() {
    for durability in [Fsync, Memory] {
        let mut cluster = Cluster::new(3, durability);
        fill(&cluster);
        let leader = cluster.leader();
        let lost = (1..=3).find(|id| *id != leader).unwrap();
        // Twice: the second loss is that of a replica that has rejoined.
        for round in 0..2 {
            cluster.stop(lost).unwrap();
            let dir = data_dir(&cluster, lost);
            if round == 0 {
                // All of it: also the files that tell that there was a log.
                std::fs::remove_dir_all(&dir).unwrap();
            } else {
                remove_log(&dir);
            }
            let refused = cluster.start(lost).expect_err("it must not begin by itself");
            assert!(matches!(refused, NodeError::Log(WalError::NoLog { .. })), "{refused}");
            begin::rejoin(&cluster.configs[lost as usize - 1]).unwrap();
            cluster.start(lost).unwrap();
            in_step(&cluster, lost);
            assert_eq!(cluster.leader(), leader, "the leader was not disturbed");
        }
        // With it, and without the old leader, a majority has everything.
        cluster.stop(leader).unwrap();
        check(&cluster);
    }
}

#[test]
fn what_is_left_of_a_damaged_log_is_moved_aside() {
    let mut cluster = Cluster::new(3, Fsync);
    fill(&cluster);
    let lost = (1..=3).find(|id| *id != cluster.leader()).unwrap();
    let config = cluster.configs[lost as usize - 1].clone();
    let in_use = begin::rejoin(&config).unwrap_err();
    assert!(matches!(in_use, NodeError::Log(WalError::InUse { .. })), "{in_use}");
    cluster.agree();
    cluster.stop(lost).unwrap();
    // One bit of the last group.
    let segment = config.data_dir.join("log/0000000000000001.wal");
    let mut bytes = std::fs::read(&segment).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[last] ^= 4;
    std::fs::write(&segment, &bytes).unwrap();
    let refused = cluster.start(lost).expect_err("it is damaged");
    assert!(matches!(refused, NodeError::Log(WalError::Damaged { .. })), "{refused}");
    assert!(refused.to_string().contains("'skein rejoin' fills this one anew"), "{refused}");
    let aside = begin::rejoin(&config).unwrap().expect("there was a log");
    assert_eq!(std::fs::read(aside.join("0000000000000001.wal")).unwrap(), bytes);
    cluster.start(lost).unwrap();
    in_step(&cluster, lost);
    check(&cluster);
}

#[test]
fn who_lost_more_than_a_minority_is_told_nothing_wrong() {
    let mut cluster = Cluster::new(3, Fsync);
    fill(&cluster);
    cluster.agree();
    let kept = cluster.leader();
    for id in (1..=3).filter(|id| *id != kept) {
        cluster.stop(id).unwrap();
        std::fs::remove_dir_all(data_dir(&cluster, id)).unwrap();
        begin::rejoin(&cluster.configs[id as usize - 1]).unwrap();
        cluster.start(id).unwrap();
    }
    // One of three remembers: it is no majority, and no replica serves from an emptied log.
    wait_for("the leader to step down", || {
        (cluster.status(kept)?.replica.role != "leader").then_some(())
    });
    for id in (1..=3).filter(|id| *id != kept) {
        // It may have heard from the leader before that stepped down.
        let status = wait_for("a learner without a leader", || {
            cluster.status(id).filter(|status| status.leader.is_none())
        });
        assert_eq!(status.replica.role, "learner");
    }
}

#[test]
fn the_only_replica_has_nobody_to_rejoin() {
    let cluster = Cluster::new(1, Fsync);
    let error = begin::rejoin(&cluster.configs[0]).unwrap_err().to_string();
    assert!(error.contains("names no other replica"), "{error}");
}
