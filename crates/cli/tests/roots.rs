//! Replicas on several hosts compare their memory and files at images, without a command: one that differs is found and rebuilt while clients go on.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;

use common::cluster::wait_for_or;
use common::load::Load;
use common::nodes::{Nodes, wait_redis};
use common::planted::{Planted, found, found_in_arena};
use common::real::Real;
use common::resp::Reply;
use serde_json::Value;

const ALL: [u64; 3] = [1, 2, 3];

/// A node's events of this name, oldest first.
fn events(nodes: &Nodes, id: u64, name: &str) -> Vec<Value> {
    let log = fs::read_to_string(nodes.place.path(&format!("node-{id}.log"))).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["event"] == name).collect()
}

/// Waits for a comparison of so many replicas behind `index` in which all were equal; answers its entry.
#[track_caller]
fn wait_equal(nodes: &Nodes, replicas: u64, index: u64) -> u64 {
    let equal = |event: &Value| {
        event["equal"] == true
            && event["replicas"] == replicas
            && event["index"].as_u64() > Some(index)
    };
    let compared = || {
        let found = events(nodes, 1, "roots").into_iter().rfind(equal)?;
        found["index"].as_u64()
    };
    wait_for_or("equal servers", || nodes.evidence(), compared)
}

fn server_pid(nodes: &Nodes, id: u64) -> i64 {
    nodes.status(id)["replicas"][0]["server_pid"].as_i64().unwrap()
}

/// Flips a byte of a value in a replica's server, and waits until that was found and another server is in its place.
#[track_caller]
fn flip_and_wait(nodes: &Nodes, id: u64, value: &str) {
    let before = server_pid(nodes, id);
    let places = found(before, value.as_bytes());
    assert!(!places.is_empty(), "the value is in its memory");
    let pid = damage_and_wait(nodes, id, || {
        // They end with their server.
        places.iter().for_each(|at| std::mem::forget(Planted::at(before, at + 50)));
    });
    assert!(!found(pid, value.as_bytes()).is_empty(), "it has the value as it was");
}

/// Damages a replica's server, and waits until that was found and another server is in its place; answers its process.
#[track_caller]
fn damage_and_wait(nodes: &Nodes, id: u64, damage: impl FnOnce()) -> i64 {
    let before = server_pid(nodes, id);
    let differed = events(nodes, id, "differs").len();
    damage();
    let rebuilt = || {
        let pid = server_pid(nodes, id);
        let runs = nodes.status(id)["replicas"][0]["state"] == "running";
        (events(nodes, id, "differs").len() > differed && runs && pid != before).then_some(pid)
    };
    let pid = wait_for_or("another server", || nodes.evidence(), rebuilt);
    for other in ALL.into_iter().filter(|other| *other != id) {
        assert!(events(nodes, other, "differs").is_empty(), "{}", nodes.evidence());
    }
    pid
}

fn start(nodes: &mut Nodes) -> (Load, String) {
    for id in ALL {
        nodes.begin(id, "found", &ALL);
    }
    let value = "a value that no other place has ".repeat(20);
    let mut redis = wait_redis(nodes.ports[0]);
    redis.set("marker", &value).unwrap();
    (Load::start(3, nodes.clients(), || {}), value)
}

/// `skein run` has the settings by an option.
#[test]
fn replicas_of_skein_run_are_compared_when_it_is_told() {
    let options = ["--set", "checkpoint.interval_s=1", "--set", "checkpoint.leader_intervals=1"];
    let redis = Real::redis(&options, &["--save", ""]);
    let mut client = wait_redis(redis.port());
    let log = redis.cluster.place.path("data/node-1/node.log");
    let mut keys = 0..;
    let compared = || {
        client.set(&format!("key:{}", keys.next()?), "value").unwrap();
        let events = fs::read_to_string(&log).unwrap();
        let mut events = events.lines().filter_map(|line| serde_json::from_str(line).ok());
        let all_equal = |event: Value| {
            event["event"] == "roots" && event["replicas"] == 3 && event["equal"] == true
        };
        events.any(all_equal).then_some(())
    };
    wait_for_or("three equal servers", || redis.cluster.evidence(), compared);
    redis.end();
}

#[test]
fn a_follower_that_differs_is_found_at_an_image_and_rebuilt() {
    let mut nodes = Nodes::new();
    nodes.hosts.setup.checkpoint =
        "interval_s = 1\nlog_entries = 1000000\nleader_intervals = 1000000".into();
    let (load, value) = start(&mut nodes);
    let equal = wait_equal(&nodes, 2, 0);
    let leader = nodes.leader(&ALL);
    let follower = ALL.into_iter().find(|id| *id != leader).unwrap();
    flip_and_wait(&nodes, follower, &value);
    wait_equal(&nodes, 2, equal);
    assert_eq!(nodes.leader(&ALL), leader, "clients kept their leader");
    nodes.check(load, leader);
    nodes.wait_equal(&ALL);
}

#[test]
fn a_leader_that_differs_is_found_in_a_long_stretch_and_hands_over() {
    let mut nodes = Nodes::new();
    nodes.hosts.setup.checkpoint =
        "interval_s = 1\nlog_entries = 1000000\nleader_intervals = 6".into();
    let (load, value) = start(&mut nodes);
    let equal = wait_equal(&nodes, 3, 0);
    let leader = nodes.leader(&ALL);
    flip_and_wait(&nodes, leader, &value);
    wait_equal(&nodes, 3, equal);
    let now = nodes.leader(&ALL);
    assert_ne!(now, leader);
    let mut redis = wait_redis(nodes.ports[now as usize - 1]);
    assert_eq!(redis.get("marker").unwrap().unwrap(), value.as_bytes());
    nodes.check(load, now);
    nodes.wait_equal(&ALL);
}

/// Of a follower: a byte of a file that the server has written and does not read, and a name in the arena, which no output shows.
#[test]
fn a_byte_of_a_file_and_one_of_the_arena_are_found_at_images() {
    let mut nodes = Nodes::new();
    nodes.keep_data();
    nodes.hosts.setup.checkpoint =
        "interval_s = 1\nlog_entries = 1000000\nleader_intervals = 1000000".into();
    let (load, _) = start(&mut nodes);
    assert_eq!(wait_redis(nodes.ports[0]).say("SAVE"), Reply::ok());
    let saved = nodes.status(1)["replicas"][0]["commit_index"].as_u64().unwrap();
    // Images have the file from then on, and it is not written again.
    let equal = wait_equal(&nodes, 2, saved);
    let leader = nodes.leader(&ALL);
    let follower = ALL.into_iter().find(|id| *id != leader).unwrap();

    let dump = nodes.place.path("redis/dump.rdb");
    let dump = |pid: i64| format!("/proc/{pid}/root{}", dump.display());
    let file = dump(server_pid(&nodes, follower));
    let contents = fs::read(&file).unwrap();
    // Every image reads a file's end that is no whole page; other pages only when the server has written them.
    assert!(contents.len() < 4096, "{} bytes", contents.len());
    let middle = contents.len() / 2;
    let pid = damage_and_wait(&nodes, follower, || {
        let opened = fs::File::options().write(true).open(&file).unwrap();
        opened.write_all_at(&[contents[middle] ^ 0x5a], middle as u64).unwrap();
    });
    assert_eq!(fs::read(dump(pid)).unwrap(), contents, "the file is as it was");
    let equal = wait_equal(&nodes, 2, equal);

    // The name of a thread, and whatever else has it.
    let node = nodes.status(follower)["replicas"][0]["node_pid"].as_i64().unwrap();
    let named = || found_in_arena(node, b"bio_close_file\0");
    damage_and_wait(&nodes, follower, || {
        let (arena, places) = named();
        assert!(!places.is_empty(), "the thread has a name");
        places.iter().for_each(|at| arena.write_all_at(b"B", *at).unwrap());
    });
    assert!(!named().1.is_empty(), "the thread has its name again");
    wait_equal(&nodes, 2, equal);
    assert_eq!(nodes.leader(&ALL), leader, "clients kept their leader");
    nodes.check(load, leader);
    nodes.wait_equal(&ALL);
    nodes.compare_all(follower, &ALL);
}
