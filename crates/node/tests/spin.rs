//! A server that makes no call while others wait is named, with its current function.

mod common;

use common::{Cluster, wait_for};
use skein_node::ReplicaState;
use skein_node::config::DurabilityMode::Memory;

#[test]
fn a_spinning_server_is_named_with_its_place() {
    let cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    client.send("spin");
    let status = wait_for("the spin to be named", || {
        cluster.status(1).filter(|status| status.replica.state == ReplicaState::Stuck)
    });
    // The address lies in this test's executable.
    let named = |text: &str| text.contains("spin-") && text.contains(" (a_place_that_spins)");
    let note = status.notes.iter().find(|note| note.contains("spins at")).unwrap();
    assert!(note.starts_with("thread 3 spins at spin-") && named(note), "{note}");
    let fault = &status.replica.faults[0];
    assert!(fault.name == "server_spins" && named(&fault.why), "{fault:?}");
    assert!(cluster.node(1).metrics.text().contains("skein_spins_total 1\n"));
}
