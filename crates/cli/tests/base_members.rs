//! What replicas pin of their hosts when they were away, joined later, or were killed: as much as the others.

mod common;

use std::fs;

use common::cluster::wait_for_or;
use common::nodes::{Nodes, wait_redis};
use common::resp::Reply;

/// The server uses a file of its host: answers what it says to that.
#[track_caller]
fn uses(nodes: &Nodes, at: u64, name: &str) -> Reply {
    let path = nodes.place.path(name);
    // A connection ends where leadership moves.
    let ask = || {
        let mut client = wait_redis(nodes.ports[at as usize - 1]);
        client.ask(&["MODULE", "LOAD", path.to_str().unwrap()]).ok()
    };
    wait_for_or("an answer", || nodes.evidence(), ask)
}

fn pins(nodes: &Nodes, id: u64, name: &str) -> bool {
    let path = nodes.place.path(name);
    nodes.does(id, &["base", "ls"]).contains(&format!("  {}\n", path.display()))
}

#[track_caller]
fn wait_pinned(nodes: &Nodes, ids: &[u64], name: &str) {
    for id in ids {
        let has = || pins(nodes, *id, name).then_some(());
        wait_for_or(&format!("node {id} to pin {name}"), || nodes.evidence(), has);
    }
}

/// The others have forgotten the entries that a replica lacks, so it continues from an image of theirs: what the server used first meanwhile is pinned there, too, and an edit on
/// its host changes nothing.
#[test]
fn what_was_used_while_a_replica_was_away() {
    let mut nodes = Nodes::new();
    // `MODULE LOAD` opens any file that a client names, and says that it is no module.
    nodes.hosts.setup.server.extend(["--enable-module-command", "yes"].map(String::from));
    let file = nodes.place.path("late");
    fs::write(&file, "no module").unwrap();
    for id in 1..=3 {
        nodes.begin(id, "found", &[1, 2, 3]);
    }
    nodes.wait_members(&[1, 2, 3]);
    wait_redis(nodes.ports[0]).set("first", "value").unwrap();
    nodes.wait_equal(&[1, 2, 3]);
    let last = nodes.own(3, "commit_index");
    nodes.kill(3);
    let said = uses(&nodes, 1, "late");
    assert!(matches!(said, Reply::Error(_)), "{said:?}");
    wait_pinned(&nodes, &[1, 2], "late");
    nodes.write_until_forgotten(&[1, 2], last);
    nodes.start(3);
    nodes.wait_equal(&[1, 2, 3]);
    let log = fs::read_to_string(nodes.hosts.log(3)).unwrap();
    assert!(log.contains("\"event\":\"log_reset\""), "{}", nodes.evidence());
    wait_pinned(&nodes, &[3], "late");

    // Servers see what is pinned when they are started.
    (1..=3).for_each(|id| nodes.kill(id));
    fs::write(&file, "another one").unwrap();
    (1..=3).for_each(|id| nodes.start(id));
    nodes.wait_equal(&[1, 2, 3]);
    assert_eq!(uses(&nodes, 1, "late"), said);
    nodes.wait_equal(&[1, 2, 3]);
    nodes.compare_all(1, &[1, 2, 3]);
}

/// An upgrade is given up as a file of its host is wrong. The file is mended, and the same upgrade is given again: no replica has the file as it was.
#[test]
fn an_upgrade_that_is_repeated_with_a_mended_file() {
    let mut nodes = Nodes::new();
    nodes.keep_data();
    let file = nodes.place.path("more.conf");
    fs::write(&file, "no-such-directive yes\n").unwrap();
    for id in 1..=3 {
        nodes.begin(id, "found", &[1, 2, 3]);
    }
    nodes.wait_members(&[1, 2, 3]);
    wait_redis(nodes.ports[0]).set("first", "value").unwrap();
    nodes.wait_equal(&[1, 2, 3]);
    let args = nodes.hosts.setup.server[1..].to_vec();
    let mut words = vec!["upgrade", "--wait", "15", "--args", file.to_str().unwrap()];
    words.extend(args.iter().map(String::as_str));
    // What the first try leaves pinned differs from what the second begins with, unless the one before has pinned nothing new in the edition that goes on.
    for _ in 0..2 {
        let refused = nodes.skein(1, &words);
        assert!(!refused.status.success(), "{}", nodes.evidence());
        let set = || wait_redis(nodes.ports[0]).set("again", "value").ok();
        wait_for_or("the server before to go on", || nodes.evidence(), set);
        nodes.wait_equal(&[1, 2, 3]);
    }
    fs::write(&file, "maxmemory 77mb\n").unwrap();
    let said = nodes.does(1, &words);
    assert!(said.contains("is up"), "{said}");
    nodes.wait_equal(&[1, 2, 3]);
    let most = wait_redis(nodes.ports[1]).say("CONFIG GET maxmemory");
    assert!(format!("{most:?}").contains(&format!("{:?}", b"80740352")), "{most:?}");
    nodes.compare_all(1, &[1, 2, 3]);
}
