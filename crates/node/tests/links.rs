//! Links between nodes fail in every way: the others serve on, the status names it, and all is well as soon as the links are.

mod common;

use common::wires::Wires;
use common::{Cluster, wait_for};
use skein_node::config::DurabilityMode::Fsync;

fn cluster(wires: &Wires) -> Cluster {
    let cluster = Cluster::with(3, Fsync, |config| wires.lay(config));
    assert_eq!(cluster.client().ask("set k 0"), "ok");
    cluster.wait_well();
    cluster
}

/// The leader among these replicas, once it serves.
fn leader_of(cluster: &Cluster, ids: &[u64]) -> u64 {
    let serves = |id: &u64| cluster.status(*id).is_some_and(|status| status.serving);
    wait_for("a leader on this side", || ids.iter().copied().find(serves))
}

fn ask(cluster: &Cluster, at: u64, line: &str) -> String {
    let service = cluster.service[at as usize - 1];
    let stream = wait_for("a connection", || std::net::TcpStream::connect(service).ok());
    common::Client::new(stream).ask(line)
}

fn others(id: u64) -> Vec<u64> {
    (1..=3).filter(|other| *other != id).collect()
}

/// One replica hears nothing from the others, nor they from it; `cut` does it.
fn one_is_cut_off(of_leader: bool, cut: impl Fn(&Wires, u64, bool)) {
    let wires = Wires::default();
    let cluster = cluster(&wires);
    let leader = cluster.leader();
    let alone = if of_leader { leader } else { others(leader)[0] };
    cut(&wires, alone, true);
    let rest = others(alone);
    for id in &rest {
        cluster.wait_fault(*id, &format!("silent_{alone}"));
        cluster.wait_fault(alone, &format!("silent_{id}"));
    }
    let serving = leader_of(&cluster, &rest);
    assert_eq!(ask(&cluster, serving, "set k 1"), "ok");
    cut(&wires, alone, false);
    cluster.wait_well();
    cluster.agree();
    assert_eq!(cluster.client().ask("get k"), "1");
}

#[test]
fn a_leader_that_is_cut_off() {
    one_is_cut_off(true, Wires::cut);
}

#[test]
fn a_follower_that_is_cut_off() {
    one_is_cut_off(false, Wires::cut);
}

#[test]
fn a_leader_that_hears_nobody() {
    one_is_cut_off(true, |wires, id, cut| {
        others(id).iter().for_each(|other| wires.cut_way(*other, id, cut));
    });
}

#[test]
fn a_leader_that_nobody_hears() {
    one_is_cut_off(true, |wires, id, cut| {
        others(id).iter().for_each(|other| wires.cut_way(id, *other, cut));
    });
}

#[test]
fn a_follower_that_hears_nobody() {
    one_is_cut_off(false, |wires, id, cut| {
        others(id).iter().for_each(|other| wires.cut_way(*other, id, cut));
    });
}

#[test]
fn a_follower_that_nobody_hears() {
    one_is_cut_off(false, |wires, id, cut| {
        others(id).iter().for_each(|other| wires.cut_way(id, *other, cut));
    });
}

#[test]
fn one_link_of_the_leader_is_cut() {
    let wires = Wires::default();
    let cluster = cluster(&wires);
    let leader = cluster.leader();
    let other = others(leader)[0];
    wires.cut_way(leader, other, true);
    cluster.wait_fault(leader, &format!("silent_{other}"));
    cluster.wait_fault(other, &format!("silent_{leader}"));
    let serving = leader_of(&cluster, &[1, 2, 3]);
    assert_eq!(ask(&cluster, serving, "set k 1"), "ok");
    wires.cut_way(leader, other, false);
    cluster.wait_well();
    cluster.agree();
}

#[test]
fn all_links_are_cut_at_once_and_mended() {
    let wires = Wires::default();
    let cluster = cluster(&wires);
    (1..=3).for_each(|id| wires.cut(id, true));
    for id in 1..=3 {
        others(id).iter().for_each(|other| cluster.wait_fault(id, &format!("silent_{other}")));
        wait_for("nobody to serve", || (!cluster.status(id)?.serving).then_some(()));
    }
    (1..=3).for_each(|id| wires.cut(id, false));
    assert_eq!(cluster.client().ask("set k 1"), "ok");
    cluster.wait_well();
    cluster.agree();
}

#[test]
fn a_slow_link_is_named() {
    let wires = Wires::default();
    let cluster = cluster(&wires);
    for id in [cluster.leader(), others(cluster.leader())[0]] {
        wires.delay(id, 60);
        let (other, fault) = (others(id)[0], format!("slow_link_{id}"));
        // Links are judged while somebody asks.
        wait_for("the fault", || {
            assert_eq!(cluster.client().ask("set k 1"), "ok");
            let status = cluster.status(other)?;
            status.replica.faults.iter().any(|known| known.name == fault).then_some(())
        });
        wires.delay(id, 0);
        cluster.wait_well();
        cluster.agree();
    }
}
