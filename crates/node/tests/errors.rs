//! Errors that prevent a node's start or end it: one clear line each.

mod common;

use common::Cluster;
use skein_node::NodeError;
use skein_node::config::DurabilityMode::{Fsync, Memory};
use std::io::{Seek, SeekFrom, Write};
use std::net::TcpListener;

fn line(error: &NodeError) -> String {
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn a_data_directory_of_another_program_or_cluster_is_refused() {
    let mut cluster = Cluster::new(1, Fsync);
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    let taken = line(&cluster.start(1).expect_err("the directory is in use"));
    assert!(taken.contains("in use by another node"), "{taken}");
    cluster.stop(1).unwrap();
    let other = line(&cluster.start_program(1, [9; 32]).unwrap_err());
    assert!(other.contains("was made for a program with hash 07070707"), "{other}");
    cluster.configs[0].name = "another".into();
    let other = line(&cluster.start(1).unwrap_err());
    assert!(other.contains("belongs to cluster"), "{other}");
    cluster.configs[0].name = "test".into();
    cluster.configs[0].durability = Memory;
    let other = line(&cluster.start(1).unwrap_err());
    assert!(other.contains("--durability fsync"), "{other}");
    cluster.configs[0].durability = Fsync;
    cluster.start(1).unwrap();
    assert_eq!(cluster.client().ask("get a"), "1");
}

#[test]
fn a_damaged_log_is_refused_with_the_place() {
    let mut cluster = Cluster::new(1, Fsync);
    let mut client = cluster.client();
    for i in 0..10 {
        assert_eq!(client.ask(&format!("set a {i}")), "ok");
    }
    drop(client);
    cluster.stop(1).unwrap();
    let log = cluster.configs[0].data_dir.join("log");
    let segment = std::fs::read_dir(log)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "wal"));
    let mut file = std::fs::OpenOptions::new().write(true).open(segment.unwrap()).unwrap();
    file.seek(SeekFrom::Start(300)).unwrap();
    file.write_all(&[0x5a; 8]).unwrap();
    let refused = line(&cluster.start(1).unwrap_err());
    assert!(refused.contains(".wal: damaged at byte"), "{refused}");
}

#[test]
fn taken_ports_are_named() {
    let mut cluster = Cluster::new(1, Memory);
    cluster.leader();
    cluster.stop(1).unwrap();
    let address = cluster.configs[0].peers[0].address.tcp().unwrap();
    let taken = TcpListener::bind(address).unwrap();
    let refused = line(&cluster.start(1).unwrap_err());
    assert!(refused.contains(&format!("cannot listen for other nodes at {address}")), "{refused}");
    drop(taken);
    let _taken = TcpListener::bind(cluster.service[0]).unwrap();
    cluster.start(1).unwrap();
    let refused = line(&cluster.ended(1).unwrap_err());
    assert!(refused.contains(&format!("cannot publish {}", cluster.service[0])), "{refused}");
}

#[test]
fn numbers_that_cannot_be_are_named() {
    let cluster = Cluster::new(1, Memory);
    let mut config = cluster.configs[0].clone();
    config.tuning.arena_heap_bytes = 1 << 20;
    let refused = config.check().unwrap_err().to_string();
    assert!(refused.starts_with("tuning.arena_heap_bytes: arena too small"), "{refused}");
    let mut config = cluster.configs[0].clone();
    config.tuning.heartbeat_ms = 100;
    let refused = config.check().unwrap_err().to_string();
    assert!(refused.starts_with("tuning.heartbeat_ms: is 100 ms"), "{refused}");
}
