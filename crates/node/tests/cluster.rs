//! Three replicas: agreement, failover, divergence, catching up.

mod common;

use common::{Cluster, wait_for};
use skein_node::config::DurabilityMode::{Fsync, Memory};
use skein_node::config::OnExit;
use skein_node::{ExitReason, ReplicaState};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn three_replicas_execute_the_same_log() {
    let cluster = Cluster::new(3, Fsync);
    let mut clients: Vec<_> = (0..20).map(|_| cluster.client()).collect();
    for round in 0..50 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.send(&format!("set k{i} {round}"));
        }
        assert!(clients.iter_mut().all(|c| c.line() == "ok"));
    }
    cluster.agree();
    let status: Vec<_> = (1..=3).map(|id| cluster.status(id).unwrap()).collect();
    assert_eq!(status.iter().filter(|s| s.replica.role == "leader").count(), 1);
    assert!(status.iter().all(|s| s.leader == status[0].leader && s.leader.is_some()));
}

#[test]
fn a_stopped_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::new(3, Fsync);
    for round in 0..3 {
        let mut client = cluster.client();
        for i in 0..20 {
            assert_eq!(client.ask(&format!("set r{round}k{i} {i}")), "ok");
        }
        let leader = cluster.leader();
        cluster.stop(leader).unwrap();
        assert!(client.try_ask("get x").is_err(), "the old leader's clients are reset");
        let mut client = cluster.client();
        assert_ne!(cluster.leader(), leader);
        for i in 0..20 {
            assert_eq!(client.ask(&format!("get r{round}k{i}")), i.to_string());
        }
        cluster.start(leader).unwrap();
        cluster.agree();
    }
}

#[test]
fn all_stopped_and_started_again_have_everything() {
    let mut cluster = Cluster::new(3, Fsync);
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    for id in 1..=3 {
        cluster.stop(id).unwrap();
    }
    for id in 1..=3 {
        cluster.start(id).unwrap();
    }
    assert_eq!(cluster.client().ask("get a"), "1");
    cluster.agree();
}

#[test]
fn a_replica_with_its_log_in_memory_comes_back_and_counts_again() {
    let mut cluster = Cluster::new(3, Memory);
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    for _ in 0..2 {
        let leader = cluster.leader();
        cluster.stop(leader).unwrap();
        assert_eq!(cluster.client().ask("get a"), "1");
        cluster.start(leader).unwrap();
        wait_for("its vote", || {
            let voter = cluster.status(leader)?.replica.role == "follower";
            (voter && cluster.status(cluster.leader())?.voters_complete).then_some(())
        });
        cluster.agree();
    }
}

#[test]
fn a_follower_whose_server_crashes_is_rebuilt() {
    let cluster = Cluster::new(3, Memory);
    let leader = cluster.leader();
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    assert_eq!(client.ask(&format!("crash-on {follower}")), "ok");
    assert_eq!(client.ask("set b 2"), "ok");
    wait_for("the second life", || {
        (cluster.node(follower).seen.lives.load(Ordering::SeqCst) == 2).then_some(())
    });
    cluster.agree();
    assert_eq!(cluster.leader(), leader);
}

#[test]
fn a_leader_whose_server_crashes_lets_another_lead() {
    let cluster = Cluster::new(3, Memory);
    let leader = cluster.leader();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    assert!(client.try_ask(&format!("crash-on {leader}")).is_err(), "the client is reset");
    wait_for("another leader", || (cluster.leader() != leader).then_some(()));
    assert_eq!(cluster.client().ask("get a"), "1");
    cluster.agree();
}

#[test]
fn an_end_on_all_replicas_is_the_servers_end() {
    let mut cluster = Cluster::new(3, Fsync);
    // One that has not joined yet would find the others gone.
    cluster.agree();
    cluster.client().send("exit 7");
    let reasons: Vec<_> = (1..=3).map(|id| cluster.ended(id).unwrap()).collect();
    assert!(matches!(reasons[0], ExitReason::ServerEnded { status: 0x700, .. }), "{reasons:?}");
    assert!(reasons.iter().all(|r| *r == reasons[0]), "{reasons:?}");
}

#[test]
fn damage_on_all_replicas_at_one_entry_is_the_servers_end() {
    let mut cluster = Cluster::new(3, Fsync);
    // One that has not joined yet would find the others gone.
    cluster.agree();
    cluster.client().send("garbage");
    let reasons: Vec<_> = (1..=3).map(|id| cluster.ended(id).unwrap()).collect();
    assert!(reasons.iter().all(|r| *r == reasons[0] && r.code() == 125), "{reasons:?}");
}

#[test]
fn an_end_that_repeats_is_the_end_even_with_restart() {
    let mut cluster = Cluster::with(1, Fsync, |c| c.on_exit = OnExit::Restart);
    cluster.client().send("exit 7");
    assert_eq!(cluster.ended(1).unwrap().code(), 7);
}

#[test]
fn servers_that_died_one_after_the_other_are_mended_one_after_the_other() {
    let cluster = Cluster::new(3, Fsync);
    let leader = cluster.leader();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    cluster.agree();
    let admitted = || cluster.node(leader).seen.admitted.load(Ordering::SeqCst);
    let last = admitted();
    for follower in (1..=3).filter(|id| *id != leader) {
        let node = cluster.node(follower);
        node.seen.kill();
        wait_for("the second life", || (node.seen.lives.load(Ordering::SeqCst) == 2).then_some(()));
        cluster.agree();
        assert_eq!(admitted(), last, "both died at the same entry");
    }
    assert_eq!(client.ask("get a"), "1", "its client noticed nothing");
}

#[test]
fn a_majority_that_is_killed_at_once_is_no_end_while_a_server_lives() {
    let cluster = Cluster::new(3, Fsync);
    let leader = cluster.leader();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    cluster.agree();
    let followers: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    followers.iter().for_each(|id| cluster.node(*id).seen.kill());
    for id in followers {
        let seen = &cluster.node(id).seen;
        wait_for("the second life", || (seen.lives.load(Ordering::SeqCst) == 2).then_some(()));
    }
    cluster.agree();
    assert_eq!(client.ask("get a"), "1");
}

#[test]
fn a_replica_whose_output_differs_is_rebuilt() {
    let cluster = Cluster::new(3, Memory);
    let leader = cluster.leader();
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    assert_eq!(client.ask(&format!("differ-on {follower}")), "ok");
    let node = cluster.node(follower);
    wait_for("the second life", || (node.seen.lives.load(Ordering::SeqCst) == 2).then_some(()));
    cluster.agree();
    assert!(node.metrics.text().contains("skein_divergences_total 1\n"));
    assert!(cluster.status(follower).unwrap().notes.iter().any(|n| n.contains("differed")));
    assert_eq!(cluster.leader(), leader);
    assert_eq!(client.ask("get a"), "1", "the clients notice nothing");
}

#[test]
fn a_leader_whose_output_differs_lets_another_lead() {
    let cluster = Cluster::new(3, Memory);
    let leader = cluster.leader();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    client.send(&format!("differ-on {leader}"));
    wait_for("another leader", || (cluster.leader() != leader).then_some(()));
    cluster.agree();
    assert!(cluster.node(leader).metrics.text().contains("skein_divergences_total 1\n"));
}

/// A cluster of three, one of which is away, whose leader's output once differs; and that leader and the other one.
fn two_that_differ() -> (Cluster, u64, u64) {
    let mut cluster = Cluster::new(3, Fsync);
    let leader = cluster.leader();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    cluster.stop(others[1]).unwrap();
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    client.send(&format!("differ-on {leader}"));
    (cluster, leader, others[0])
}

#[test]
fn two_replicas_that_differ_say_so_and_keep_what_they_did() {
    let (cluster, leader, other) = two_that_differ();
    for id in [leader, other] {
        let note = wait_for("a note of it", || {
            let notes = cluster.status(id)?.notes;
            notes.into_iter().find(|note| note.contains("no majority says which is right"))
        });
        let file = note.rsplit(' ').next().unwrap();
        let kept = std::fs::read_to_string(file).unwrap();
        assert!(kept.contains(&format!("replica {leader}: ")), "{kept}");
        assert!(kept.contains(&format!("replica {other}: ")), "{kept}");
    }
}

#[test]
fn a_rebuilt_follower_that_does_the_same_again_outvotes_the_leader() {
    let (mut cluster, leader, other) = two_that_differ();
    let lives = |cluster: &Cluster, id| cluster.node(id).seen.lives.load(Ordering::SeqCst);
    wait_for("the other one to lead", || (cluster.leader() == other).then_some(()));
    cluster.agree();
    assert_eq!((lives(&cluster, leader), lives(&cluster, other)), (2, 2), "each was rebuilt once");
    assert_eq!(cluster.client().ask("get a"), "1");
    // What was disputed is the past, for those that read of it again, too.
    let third = (1..=3).find(|id| ![leader, other].contains(id)).unwrap();
    cluster.start(third).unwrap();
    cluster.agree();
    cluster.stop(other).unwrap();
    cluster.start(other).unwrap();
    cluster.agree();
    assert_eq!(cluster.client().ask("set a 2"), "ok");
    cluster.agree();
    assert_eq!([leader, other, third].map(|id| lives(&cluster, id)), [2, 1, 1]);
}

#[test]
fn a_spoilt_digest_is_a_divergence_of_that_replica_only() {
    let cluster = Cluster::with(3, Memory, |c| c.corrupt_digest_at = (c.id == 2).then_some(4));
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    assert_eq!(cluster.client().ask("set a 2"), "ok");
    wait_for("the divergence", || {
        cluster.node(2).metrics.text().contains("skein_divergences_total 1\n").then_some(())
    });
    cluster.agree();
    for id in [1, 3] {
        assert!(cluster.node(id).metrics.text().contains("skein_divergences_total 0\n"));
    }
}

#[test]
fn no_quorum_serves_nobody() {
    let mut cluster = Cluster::new(3, Fsync);
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    let leader = cluster.leader();
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.stop(id).unwrap();
    }
    assert!(client.try_ask("set a 2").is_err(), "reset when the leader notices");
    wait_for("the leader to step down", || {
        (cluster.status(leader)?.replica.role != "leader").then_some(())
    });
    // A new client waits for a leader: nothing is answered, and nothing is lost when the others come back.
    let mut waiting =
        common::Client::new(TcpStream::connect(cluster.service[leader as usize - 1]).unwrap());
    waiting.send("set a 3");
    for id in (1..=3).filter(|id| *id != leader) {
        cluster.start(id).unwrap();
    }
    assert_eq!(waiting.line(), "ok");
    assert_eq!(cluster.client().ask("get a"), "3");
}

#[test]
fn a_signal_is_reported_when_it_is_committed() {
    use skein_replica::replica::{Command, Inbox};
    let cluster = Cluster::new(3, Fsync);
    let leader = cluster.leader();
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    cluster.disks.begin();
    let (reply, answer) = oneshot::channel();
    cluster.node(leader).mailbox.tell(Inbox::Command(Command::Signal(10, reply)));
    wait_for("all three logs to be written", || (cluster.disks.waiting() >= 3).then_some(()));
    assert!(cluster.status(leader).is_some(), "the signal was proposed before that was asked");
    assert!(answer.try_recv().is_err(), "nothing is committed yet");
    cluster.disks.end();
    answer.recv().unwrap().unwrap();
    cluster.agree();
}

#[test]
fn garbage_and_strangers_are_refused_and_harm_nobody() {
    let mut cluster = Cluster::new(3, Memory);
    let mut client = cluster.client();
    for config in cluster.configs.clone() {
        let address = config.listen_address().unwrap().tcp().unwrap();
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(b"SKNP\x63\x00\x01\x00 then nonsense of more than a header").unwrap();
        assert_eq!(client.ask("set a 1"), "ok");
    }
    // A replica with another program is not taken in.
    let leader = cluster.leader();
    let other = (1..=3).find(|id| *id != leader).unwrap();
    cluster.stop(other).unwrap();
    std::fs::remove_dir_all(&cluster.configs[other as usize - 1].data_dir).unwrap();
    cluster.found(other);
    cluster.start_program(other, [8; 32]).unwrap();
    assert_eq!(client.ask("get a"), "1");
    let status = wait_for("its server to start", || {
        cluster.status(other).filter(|s| s.replica.state != ReplicaState::Starting)
    });
    assert_eq!((status.leader, status.replica.state), (None, ReplicaState::CatchingUp));
}

#[test]
fn a_follower_passes_clients_on_to_the_leader() {
    let cluster = Cluster::new(3, Memory);
    let mut client = cluster.client();
    assert_eq!(client.ask("set a 1"), "ok");
    cluster.agree();
    let leader = cluster.leader();
    for id in (1..=3).filter(|id| *id != leader) {
        let connect = || {
            let service = cluster.service[id as usize - 1];
            let port = || TcpStream::connect(service).ok();
            common::Client::new(wait_for("the follower's port", port))
        };
        let mut aborted = connect();
        aborted.send("abort");
        let end = aborted.end().expect_err("a reset stays a reset");
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
        let mut client = connect();
        assert_eq!(client.ask("get a"), "1");
        assert_eq!(client.ask(&format!("set b {id}")), "ok");
        client.send("big 3000000");
        let mut bytes = vec![0; 3_000_000];
        std::io::Read::read_exact(&mut client.stream, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
    }
    assert_eq!(client.ask("get b"), if leader == 3 { "2" } else { "3" });
}

#[test]
fn disks_that_stall_cost_an_answer_its_time_and_nothing_else() {
    // A disk that is slow for other reasons is not the subject here.
    let patience_ms = 60_000;
    let cluster = Cluster::with(3, Fsync, |config| config.tuning.disk_patience_ms = patience_ms);
    let mut client = cluster.client();
    for i in 0..20 {
        assert_eq!(client.ask(&format!("set a {i}")), "ok");
    }
    let leader = cluster.leader();
    let term = cluster.status(leader).unwrap().replica.term;
    for round in 0..3 {
        cluster.disks.begin();
        client.send(&format!("set b {round}"));
        wait_for("all three logs to be written", || (cluster.disks.waiting() >= 3).then_some(()));
        let stalled = Instant::now();
        let election = Duration::from_millis(cluster.configs[0].tuning.election_timeout_ms);
        while stalled.elapsed() < 4 * election {
            for id in 1..=3 {
                let status = cluster.status(id).expect("it answers");
                assert_eq!((status.leader, status.replica.term), (Some(leader), term));
            }
        }
        cluster.disks.end();
        assert_eq!(client.line(), "ok", "the connection is the same");
    }
    assert_eq!(client.ask("get b"), "2");
    cluster.agree();
    assert_eq!(cluster.status(leader).unwrap().replica.term, term);
}

#[test]
fn a_log_that_cannot_be_written_ends_the_node_and_the_others_go_on() {
    use skein_log::wal::WalError;
    use skein_node::NodeError;
    use skein_replica::replica::Inbox;
    let mut cluster = Cluster::new(3, Fsync);
    assert_eq!(cluster.client().ask("set a 1"), "ok");
    let leader = cluster.leader();
    cluster
        .node(leader)
        .mailbox
        .tell(Inbox::Durable(Err(WalError::DiskFull { file: "the log".into() })));
    let error = cluster.ended(leader).unwrap_err();
    assert!(matches!(error, NodeError::Log(WalError::DiskFull { .. })), "{error}");
    assert_eq!(cluster.client().ask("get a"), "1");
}
