//! Members whose logs are in memory come, go and are replaced while clients write; each start of a node is the loss of its log.

mod common;

use std::fs;

use common::cluster::wait_for_or;
use common::load::Load;
use common::nodes::{Nodes, wait_redis};
use common::resp::Redis;
use common::{PATIENCE, assert_line};

fn in_memory() -> Nodes {
    let mut nodes = Nodes::new();
    nodes.hosts.setup.durability = "memory";
    nodes
}

/// A node dies and comes back with nothing; it is filled and has its vote again, and all members know that: what is compared is from after that.
fn returns_empty(nodes: &mut Nodes, load: &Load, id: u64, members: &[u64]) {
    nodes.kill(id);
    returns(nodes, load, id, members);
}

fn returns(nodes: &mut Nodes, load: &Load, id: u64, members: &[u64]) {
    nodes.start(id);
    load.pause();
    nodes.wait_members(members);
    nodes.wait_equal(members);
    nodes.compare_all(id, members);
    load.resume();
}

#[test]
fn one_grows_to_three_all_are_replaced_and_those_that_start_again_are_filled_under_load() {
    let mut nodes = in_memory();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]);
    let load = Load::start(3, nodes.clients(), || {});
    for id in 2..=3 {
        nodes.begin(id, "join", &[1]);
        let said = nodes.does(1, &["members", "add", &format!("{id}={}", nodes.address(id))]);
        assert!(said.contains("is a member and votes"), "{said}");
    }
    let three = [1, 2, 3];
    // The configuration of the first one names nobody else: it does not found another cluster.
    returns_empty(&mut nodes, &load, 1, &three);

    // With one of three down no other may go.
    nodes.kill(2);
    let silent = || {
        let faults = nodes.status(nodes.leader(&[1, 3]))["replicas"][0]["faults"].to_string();
        faults.contains("silent_2").then_some(())
    };
    wait_for_or("the leader to miss it", || nodes.evidence(), silent);
    for gone in ["1", "3"] {
        let refused = nodes.skein(1, &["members", "remove", gone]);
        assert_line(&refused, 2, &["only 1 of 2 replicas would be connected, and 2 are needed"]);
    }
    returns(&mut nodes, &load, 2, &three);

    let mut members = three.to_vec();
    for (old, new) in [(1, 4), (2, 5), (3, 6)] {
        nodes.begin(new, "join", &members);
        members.retain(|id| *id != old);
        let place = format!("{new}={}", nodes.address(new));
        let said = nodes.does(members[0], &["members", "replace", &old.to_string(), &place]);
        assert!(said.contains(&format!("votes instead of replica {old}")), "{said}");
        members.push(new);
        nodes.wait_removed(old);
        nodes.wait_members(&members);
        // It has no log that names its cluster, but asks those that it knew.
        fs::remove_file(nodes.place.path(&format!("said-{old}"))).unwrap();
        nodes.start(old);
        nodes.wait_removed(old);
    }
    // No founder is left, and no configuration names all that are there.
    for id in [4, 5, 6] {
        returns_empty(&mut nodes, &load, id, &members);
    }
    nodes.does(5, &["members", "remove", "6"]);
    nodes.wait_removed(6);
    nodes.wait_members(&[4, 5]);
    nodes.check(load, 4);
    nodes.compare_all(5, &[4, 5]);
}

/// Nobody has any of its log, so it begins a new one. Images of the server before do not belong to that.
#[test]
fn one_that_is_alone_begins_anew_without_images_of_its_former_life() {
    let mut nodes = in_memory();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]).set("key", "value").unwrap();
    nodes.does(1, &["checkpoint", "create"]);
    let images = |nodes: &Nodes| nodes.does(1, &["checkpoint", "ls", "--json"]);
    assert!(images(&nodes).contains("\"index\""), "{}", images(&nodes));
    nodes.kill(1);
    nodes.start(1);
    let port = nodes.ports[0];
    let answers = || Redis::connect(port, PATIENCE).ok()?.get("key").ok();
    let found = wait_for_or("redis to answer", || nodes.evidence(), answers);
    assert_eq!(found, None);
    assert!(!images(&nodes).contains("\"index\""), "{}", images(&nodes));
    // It can still grow.
    nodes.begin(2, "join", &[1]);
    nodes.does(1, &["members", "add", &format!("2={}", nodes.address(2))]);
    wait_redis(port).set("key", "other").unwrap();
    nodes.wait_equal(&[1, 2]);
    nodes.compare_all(2, &[1, 2]);
}
