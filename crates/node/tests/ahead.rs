//! A leader's server executes entries that are being agreed on: no client sees any of their effects before the commit, and none stays if they are never committed.

mod common;

use common::wires::Wires;
use common::{Client, Cluster, wait_for};
use skein_node::config::DurabilityMode::{self, Fsync, Memory};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

fn sets(cluster: &Cluster, id: u64) -> u64 {
    cluster.node(id).seen.sets.load(Ordering::SeqCst)
}

fn count(cluster: &Cluster, id: u64, name: &str) -> u64 {
    let text = cluster.node(id).metrics.text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("skein_{name}_total ")));
    line.unwrap_or_else(|| panic!("{name} is counted")).parse().unwrap()
}

/// Whether nothing has come for a client yet.
fn has_nothing(client: &Client) -> bool {
    let stream = client.stream.get_ref();
    stream.set_nonblocking(true).unwrap();
    let came = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    client.stream.buffer().is_empty() && matches!(came, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

#[test]
fn what_is_executed_leaves_when_it_is_committed() {
    let cluster = Cluster::new(3, Fsync);
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 0"), "ok");
    let leader = cluster.leader();
    cluster.agree();
    for round in 1..4 {
        cluster.disks.begin();
        client.send(&format!("set a {round}"));
        wait_for("the leader's server", || (sets(&cluster, leader) == round + 1).then_some(()));
        wait_for("all three logs", || (cluster.disks.waiting() >= 3).then_some(()));
        assert!(has_nothing(&client), "round {round}: answered before the commit");
        assert!((1..=3).all(|id| id == leader || sets(&cluster, id) == round), "round {round}");
        let status = cluster.status(leader).unwrap().replica;
        assert!(status.applied_index <= status.commit_index, "{status:?}");
        cluster.disks.end();
        assert_eq!(client.line(), "ok");
        cluster.agree();
    }
    assert!(count(&cluster, leader, "entries_ahead") >= 4);
    assert_eq!(count(&cluster, leader, "rebuilds_ahead"), 0);
}

#[test]
fn whoever_does_not_want_it_waits() {
    let cluster = Cluster::with(3, Fsync, |config| config.tuning.execute_ahead = false);
    let mut client = cluster.client();
    for i in 0..20 {
        assert_eq!(client.ask(&format!("set a {i}")), "ok");
    }
    cluster.agree();
    assert!((1..=3).all(|id| count(&cluster, id, "entries_ahead") == 0));
}

/// A cluster whose leader has been cut off after it answered `value`, with a client that sent `lost` to it afterwards.
struct CutOff {
    cluster: Cluster,
    wires: Wires,
    leader: u64,
    forlorn: Client,
}

fn cut_off(durability: DurabilityMode, lost: &str) -> CutOff {
    let wires = Wires::default();
    let cluster = Cluster::with(3, durability, |config| wires.lay(config));
    let mut forlorn = cluster.client();
    assert_eq!(forlorn.ask("set a kept"), "ok");
    let leader = cluster.leader();
    cluster.agree();
    let before = count(&cluster, leader, "entries_ahead");
    wires.cut(leader, true);
    forlorn.send(lost);
    wait_for("the leader's server to get it", || {
        (count(&cluster, leader, "entries_ahead") > before).then_some(())
    });
    CutOff { cluster, wires, leader, forlorn }
}

impl CutOff {
    /// Another one leads, and the old leader joins it again with a new server.
    fn goes_on(mut self) {
        let Self { cluster, wires, leader, forlorn } = &mut self;
        let leader = *leader;
        wait_for("another leader", || {
            let others = cluster.running().into_iter().filter(|id| *id != leader);
            others.into_iter().find(|id| cluster.status(*id).is_some_and(|s| s.serving))
        });
        wait_for("the old one to give up", || (!cluster.status(leader)?.serving).then_some(()));
        assert!(!matches!(forlorn.end(), Ok(1)), "an answer to what was never committed");
        let mut client = cluster.client();
        assert_eq!(client.ask("get a"), "kept");
        assert_eq!(client.ask("set b 1"), "ok");
        wires.cut(leader, false);
        let old = cluster.node(leader);
        wait_for("its second server", || {
            (old.seen.lives.load(Ordering::SeqCst) == 2).then_some(())
        });
        cluster.agree();
        assert_eq!(count(cluster, leader, "rebuilds_ahead"), 1);
        let notes = cluster.status(leader).unwrap().notes;
        assert!(notes.iter().any(|note| note.contains("another leader replaced")), "{notes:?}");
        assert!((1..=3).all(|id| count(cluster, id, "divergences") == 0));
        // Its state now equals the others': with it there is a majority.
        let now = cluster.leader();
        let heir = (1..=3).find(|id| *id != now && *id != leader);
        if now != leader {
            cluster.stop(now).unwrap();
            cluster.stop(heir.unwrap()).unwrap();
            cluster.start(now).unwrap();
        }
        let mut client = cluster.client();
        assert_eq!(client.ask("get a"), "kept");
        assert_eq!(client.ask("get b"), "1");
    }
}

#[test]
fn a_leader_that_was_cut_off_forgets_what_it_alone_executed() {
    cut_off(Fsync, "set a lost").goes_on();
}

#[test]
fn so_does_one_with_its_log_in_memory() {
    let CutOff { cluster, wires, leader, .. } = cut_off(Memory, "set a lost");
    wait_for("another leader", || {
        let others = cluster.running().into_iter().filter(|id| *id != leader);
        others.into_iter().find(|id| cluster.status(*id).is_some_and(|s| s.serving))
    });
    wires.cut(leader, false);
    cluster.agree();
    assert_eq!(cluster.client().ask("get a"), "kept");
    assert_eq!(count(&cluster, leader, "rebuilds_ahead"), 1);
}

#[test]
fn a_server_that_died_of_what_was_never_committed_lives_again() {
    let probe = cut_off(Fsync, "crash-on 0");
    let crash = format!("crash-on {}", probe.leader);
    let CutOff { cluster, wires, leader, mut forlorn } = probe;
    let before = count(&cluster, leader, "entries_ahead");
    forlorn.send(&crash);
    wait_for("the leader's server to get that", || {
        (count(&cluster, leader, "entries_ahead") > before).then_some(())
    });
    CutOff { cluster, wires, leader, forlorn }.goes_on();
}
