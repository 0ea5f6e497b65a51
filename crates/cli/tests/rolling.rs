//! Another version of Skein comes to one host after the other, while clients write; the servers go on with the runtime that they began with, until an upgrade.
//!
//! `SKEIN_OTHER_BUILD` names a directory with `skein` and `libskein.so` of another build to begin with; without it both are of the same build, and differ in
//! bytes behind the end that is loaded.

mod common;

use std::fs;
use std::path::PathBuf;

use common::assert_line;
use common::cluster::wait_for_or;
use common::load::Load;
use common::nodes::{Nodes, wait_redis};
use skein_testkit::nodes::Skein;

const ALL: [u64; 3] = [1, 2, 3];
/// What stands before the digits of a runtime's interface.
const INTERFACE: &[u8] = b"\0Skein runtime, interface \0";

/// The Skein in a directory of that name, whose runtime `change` has changed.
fn install(nodes: &Nodes, name: &str, from: Option<PathBuf>, change: fn(&mut Vec<u8>)) -> Skein {
    let from = from.map_or_else(|| nodes.hosts.setup.skein.clone(), |dir| Skein::within(&dir));
    from.copy(&nodes.place.path(name), change).unwrap()
}

fn another(bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(b"another version");
}

fn later_interface(bytes: &mut [u8]) {
    let is_name = |part: &[u8]| part == INTERFACE;
    let at = bytes.windows(INTERFACE.len()).position(is_name).unwrap() + INTERFACE.len();
    bytes[at..at + 4].copy_from_slice(b"9999");
}

/// Three nodes with the Skein that `install` makes, whose redis keeps its data when it ends.
fn three(install: impl FnOnce(&Nodes) -> Skein) -> Nodes {
    let mut nodes = Nodes::new();
    nodes.keep_data();
    let skein = install(&nodes);
    for id in ALL {
        nodes.hosts.install(id, skein.clone()).unwrap();
        nodes.begin(id, "found", &ALL);
    }
    wait_redis(nodes.ports[0]);
    nodes.wait_members(&ALL);
    nodes
}

/// Another Skein on this host.
fn renew(nodes: &mut Nodes, id: u64, skein: &Skein) {
    nodes.stop(id);
    nodes.hosts.install(id, skein.clone()).unwrap();
    nodes.start(id);
    wait_in_step(nodes, id);
}

fn wait_in_step(nodes: &Nodes, id: u64) {
    let runs = || {
        let replica = nodes.status(id)["replicas"][0].clone();
        let is_in_step = replica["state"] == "running" && replica["role"] != "learner";
        is_in_step.then_some(())
    };
    wait_for_or(&format!("replica {id} to be in step"), || nodes.evidence(), runs);
}

/// Whether each replica's server has the runtime of another Skein than its host.
fn have_other_runtimes(nodes: &Nodes) -> [bool; 3] {
    ALL.map(|id| nodes.status(id)["replicas"][0]["other_runtime"] == true)
}

#[test]
fn a_new_version_comes_to_one_host_after_the_other_under_load() {
    let other = std::env::var_os("SKEIN_OTHER_BUILD").map(PathBuf::from);
    let mut nodes = three(|nodes| install(nodes, "one", other, |_| ()));
    let two = install(&nodes, "two", None, another);
    let load = Load::start(3, nodes.clients(), || {});
    // The leader comes last, and hands over.
    let leader = nodes.leader(&ALL);
    let mut order = ALL.to_vec();
    order.sort_by_key(|id| *id == leader);
    for (at, id) in order.into_iter().enumerate() {
        let answered = load.last_answer();
        renew(&mut nodes, id, &two);
        wait_for_or(
            "an answer",
            || nodes.evidence(),
            || (load.last_answer() > answered).then_some(()),
        );
        let renewed = have_other_runtimes(&nodes).into_iter().filter(|other| *other).count();
        assert_eq!(renewed, at + 1, "{}", nodes.evidence());
        // Whatever versions the nodes are.
        ALL.into_iter().for_each(|id| nodes.compare_all(id, &ALL));
    }
    load.pause();
    nodes.wait_equal(&ALL);
    load.resume();
    let said = nodes.skein(1, &["status"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("skein upgrade --skein"), "{said}");

    // A host without the old version anywhere: it gets the runtime from the others.
    fs::remove_dir_all(nodes.place.path("one")).unwrap();
    let leader = nodes.leader(&ALL);
    let lost = ALL.into_iter().find(|id| *id != leader).unwrap();
    nodes.kill(lost);
    fs::remove_dir_all(nodes.place.path(&format!("data-{lost}"))).unwrap();
    let config = nodes.config(lost, &ALL);
    nodes.does(lost, &["rejoin", "--config", config.to_str().unwrap()]);
    nodes.start(lost);
    wait_in_step(&nodes, lost);
    assert_eq!(have_other_runtimes(&nodes), [true; 3]);

    // Then the servers get the new one.
    let leader = nodes.leader(&ALL);
    let said = nodes.does(leader, &["upgrade", "--skein"]);
    let library = two.runtime.canonicalize().unwrap();
    assert!(said.contains(&format!("taken over: {}", library.display())), "{said}");
    let all_new = || (have_other_runtimes(&nodes) == [false; 3]).then_some(());
    wait_for_or("the new runtime", || nodes.evidence(), all_new);
    let nothing = nodes.does(leader, &["upgrade", "--skein"]);
    assert!(nothing.contains("nothing to change"), "{nothing}");
    load.pause();
    nodes.wait_equal(&ALL);
    load.resume();
    // And again from an image and the log.
    for id in ALL {
        nodes.kill(id);
        nodes.start(id);
        wait_in_step(&nodes, id);
    }
    let leader = nodes.leader(&ALL);
    nodes.check(load, leader);
    assert_eq!(have_other_runtimes(&nodes), [false; 3]);
}

#[test]
fn a_runtime_that_not_all_can_drive_is_not_taken_over() {
    let mut nodes = three(|nodes| install(nodes, "one", None, |_| ()));
    let later = install(&nodes, "later", None, |bytes| later_interface(bytes));
    let leader = nodes.leader(&ALL);
    // Only the library is there: this node goes on with what is pinned, and does not take what it cannot drive.
    renew(&mut nodes, leader, &later);
    wait_redis(nodes.ports[leader as usize - 1]);
    let heir = nodes.leader(&ALL);
    if heir != leader {
        nodes.does(heir, &["members", "transfer", &leader.to_string()]);
        assert_eq!(nodes.leader(&ALL), leader);
    }
    let library = later.runtime.canonicalize().unwrap();
    let refused = nodes.skein(leader, &["upgrade", "--skein"]);
    assert_line(&refused, 2, &[library.to_str().unwrap(), "it is of a later Skein"]);
    wait_redis(nodes.ports[leader as usize - 1]);
}
