//! A server that spins while others wait is asked where it is, and named.

mod common;

use common::{Cluster, wait_for};
use skein_node::config::DurabilityMode::Memory;

#[test]
fn a_spinning_server_is_named_with_its_place() {
    let cluster = Cluster::new(1, Memory);
    let mut client = cluster.client();
    client.send("spin");
    let note = wait_for("the spin to be named", || {
        cluster.status(1)?.notes.into_iter().find(|n| n.contains("spins at"))
    });
    // The address lies in this test's executable.
    assert!(note.starts_with("thread 3 spins at spin-") && note.contains("+0x"), "{note}");
    assert!(cluster.node(1).metrics.text().contains("skein_spins_total 1\n"));
}
