//! Two nodes with one id, as after a configuration or a data directory that was copied to another host: the second is refused by name, the first one and the service go on,
//! and nothing is lost.

mod common;

use std::fs;
use std::process::Command;
use std::time::Instant;

use common::assert_line;
use common::cluster::wait_for_or;
use common::load::Load;
use common::nodes::{Nodes, wait_redis};
use serde_json::Value;

/// Where the second node has its directories and ports: that of an id that is not used.
const SLOT: u64 = 5;

/// A copy of a replica's configuration, with the directories and ports of [`SLOT`]; with `listen`, other nodes find it there, too.
fn copy_config(nodes: &Nodes, of: u64, listen: bool) {
    let text = fs::read_to_string(nodes.place.path(&format!("skein-{of}.toml"))).unwrap();
    let port =
        |id: u64| format!("address = \"127.0.0.1:{}\", server", nodes.ports[id as usize - 1]);
    let mut text = text
        .replace(&format!("data-{of}\""), &format!("data-{SLOT}\""))
        .replace(&format!("node-{of}.log"), &format!("node-{SLOT}.log"))
        .replace(&port(of), &port(SLOT));
    if listen {
        text = format!("listen = \"{}\"\n{text}", nodes.address(SLOT));
    }
    nodes.place.file(&format!("skein-{SLOT}.toml"), &text, 0o600);
}

/// How the second node came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Founded as a member, with an empty log.
    Founded,
    /// Joined, with an empty log that is younger than the first node's.
    Joined,
    /// With a copy of the first one's data.
    Copied,
}

fn begin(nodes: &mut Nodes, of: u64, how: How, load: &Load) {
    let data = |id: u64| nodes.place.path(&format!("data-{id}"));
    for old in [data(SLOT), nodes.place.path(&format!("run-{SLOT}"))] {
        let _ = fs::remove_dir_all(old);
    }
    copy_config(nodes, of, true);
    let config = nodes.place.path(&format!("skein-{SLOT}.toml"));
    let config = config.to_str().unwrap();
    match how {
        How::Founded => drop(nodes.does(SLOT, &["found", "--config", config])),
        How::Joined => drop(nodes.does(SLOT, &["join", "--config", config])),
        How::Copied => {
            load.pause();
            nodes.wait_equal(&[1, 2, 3]);
            // Not the sockets.
            let copied = Command::new("cp").arg("-a").args([data(of), data(SLOT)]).status();
            assert!(copied.unwrap().success());
            let _ = fs::remove_file(data(SLOT).join("admin.sock"));
            load.resume();
        }
    }
    nodes.start(SLOT);
}

fn log(nodes: &Nodes, id: u64) -> String {
    fs::read_to_string(nodes.place.path(&format!("node-{id}.log"))).unwrap_or_default()
}

fn own(status: &Value) -> &Value {
    &status["replicas"][0]
}

/// What the node says of another one with its id, if it does.
fn fault(status: &Value) -> Option<String> {
    let faults = own(status)["faults"].as_array()?;
    let fault = faults.iter().find(|fault| fault["name"] == "same_id")?;
    Some(fault["why"].as_str().unwrap().to_owned())
}

#[test]
fn a_second_node_with_an_id_is_refused_by_name_while_the_first_one_serves() {
    let mut nodes = Nodes::three();
    nodes.wait_members(&[1, 2, 3]);
    let leader = nodes.leader(&[1, 2, 3]);
    let term = nodes.status(leader)["term"].clone();
    let load = Load::start(3, nodes.clients()[..3].to_vec(), || {});
    let follower = leader % 3 + 1;
    let cases = [How::Founded, How::Joined, How::Copied];
    let cases = cases.into_iter().flat_map(|how| [(follower, how), (leader, how)]);
    for (of, how) in cases {
        begin(&mut nodes, of, how, &load);
        let what = format!("a second replica {of}: {how:?}");
        let said = wait_for_or(&what, || nodes.evidence(), || fault(&nodes.status(SLOT)));
        let words = [
            format!("another node is replica {of}, too, and replica "),
            " is connected to it: stop one of the two; each node has its own id".into(),
        ];
        words.iter().for_each(|words| assert!(said.contains(words), "{what}: {said}"));
        // It has had nothing to say in the cluster, nor heard anything.
        if how != How::Copied {
            assert_eq!(own(&nodes.status(SLOT))["applied_index"], 0, "{}", nodes.evidence());
        }
        if how == How::Joined {
            // An operator who takes it for a new one is told.
            let place = format!("{of}={}", nodes.address(SLOT));
            let refused = nodes.skein(follower, &["members", "add", &place]);
            assert_line(&refused, 2, &[&format!("replica {of} is a member already")]);
        }
        for id in 1..=3 {
            assert_eq!(fault(&nodes.status(id)), None, "{what}: replica {id} is the first one");
        }
        nodes.kill(SLOT);
        load.pause();
        nodes.wait_equal(&[1, 2, 3]);
        load.resume();
        assert_eq!(nodes.leader(&[1, 2, 3]), leader, "{what}");
        assert_eq!(nodes.status(leader)["term"], term, "{what}: an election");
        let killed = Instant::now();
        wait_for_or(
            "clients to be answered",
            || nodes.evidence(),
            || (load.last_answer() > killed).then_some(()),
        );
    }
    // Who refused it says so, and not each time that it came.
    for of in [leader, follower] {
        let words = format!("a second node on 127.0.0.1 is replica {of}, too, and the first one");
        let lines = |id: &u64| log(&nodes, *id).lines().filter(|l| l.contains(&words)).count();
        let lines: Vec<usize> = [1, 2, 3].iter().map(lines).collect();
        assert!(lines.iter().all(|lines| *lines <= 3) && lines.iter().sum::<usize>() > 0);
        assert_eq!(lines[of as usize - 1], 0, "the first one does not know: {lines:?}");
    }
    load.pause();
    nodes.wait_equal(&[1, 2, 3]);
    nodes.check(load, 1);
    nodes.compare_all(1, &[1, 2, 3]);
}

/// On the host of the first one there is no address for it.
#[test]
fn a_second_node_at_the_same_address_ends_with_one_line() {
    let mut nodes = Nodes::new();
    nodes.begin(1, "found", &[1]);
    wait_redis(nodes.ports[0]);
    copy_config(&nodes, 1, false);
    let config = nodes.place.path(&format!("skein-{SLOT}.toml"));
    let config = config.to_str().unwrap();
    nodes.does(SLOT, &["found", "--config", config]);
    let ended = nodes.skein(SLOT, &["node", "--config", config]);
    let words = ["cannot listen for other nodes at", "stop the program that uses the port"];
    assert_line(&ended, 2, &words);
    // Nor may it have the data directory.
    let again = nodes.place.path("skein-1.toml");
    let ended = nodes.skein(SLOT, &["node", "--config", again.to_str().unwrap()]);
    assert_line(&ended, 2, &["is in use by another node"]);
    wait_redis(nodes.ports[0]);
}
