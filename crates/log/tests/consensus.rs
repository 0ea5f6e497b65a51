//! Consensus over an in-memory network: the properties that a caller of `Consensus` relies on.

mod cluster;

use cluster::Cluster;
use skein_log::{
    Config, Consensus, ConsensusError, Durability, OldEntries, ProposeError, Recovered, Role,
    StepError,
};
use skein_model::{LogIndex, ReplicaId};

#[test]
fn one_replica_with_a_memory_log_commits_in_the_same_turn() {
    let mut cluster = Cluster::new(1, Durability::Memory);
    let leader = cluster.elect();
    let consensus = &mut cluster.at(leader).consensus;
    while consensus.take_ready().is_some() {}
    let index = consensus.propose(b"x".to_vec()).unwrap();
    let batch = consensus.take_ready().unwrap();
    assert_eq!(batch.committed.len(), 1);
    assert_eq!(batch.applied, index);
    assert_eq!(batch.persist, None);
    assert_eq!(consensus.take_ready(), None);
}

#[test]
fn one_replica_with_a_log_on_disk_commits_when_it_is_durable() {
    let mut cluster = Cluster::new(1, Durability::Fsync);
    let leader = cluster.elect();
    let consensus = &mut cluster.at(leader).consensus;
    consensus.propose(b"x".to_vec()).unwrap();
    let batch = consensus.take_ready().unwrap();
    assert!(batch.committed.is_empty());
    assert_eq!(consensus.take_ready(), None);
    let persist = batch.persist.unwrap();
    assert_eq!(persist.entries.len(), 1);
    consensus.persisted(persist.ticket);
    assert_eq!(consensus.take_ready().unwrap().committed, persist.entries);
}

#[test]
fn entries_are_executed_everywhere_in_order() {
    for durability in [Durability::Fsync, Durability::Memory] {
        for count in [1, 2, 3, 5] {
            let mut cluster = Cluster::new(count, durability);
            let leader = cluster.elect();
            for payload in ["a", "b", "c"] {
                cluster.propose(leader, payload);
            }
            for _ in 0..5 {
                cluster.tick();
            }
            cluster.assert_executed(&["a", "b", "c"]);
        }
    }
}

#[test]
fn a_leader_executes_what_the_others_have_durable_before_its_own_disk_is_done() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.at(leader).slow_disk = true;
    cluster.propose(leader, "a");
    cluster.propose(leader, "b");
    let status = cluster.at(leader).consensus.status();
    assert_eq!(status.commit, status.last_index, "two followers are a majority");
    assert!(status.persisted < status.last_index);
    assert_eq!(cluster.at(leader).executed.len(), 2);
    cluster.at(leader).slow_disk = false;
    cluster.propose(leader, "c");
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a", "b", "c"]);
    let status = cluster.at(leader).consensus.status();
    assert_eq!(status.persisted, status.last_index);
}

#[test]
fn what_a_leader_executed_before_its_own_disk_was_done_survives_its_crash() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.at(leader).slow_disk = true;
    cluster.propose(leader, "a");
    assert_eq!(cluster.at(leader).executed.len(), 1);
    cluster.crash(leader, 1);
    // It comes back before the others miss it, has fewer entries than they, and cannot win.
    cluster.restart(leader);
    cluster.at(leader).consensus.campaign_now();
    cluster.settle();
    let next = cluster.elect();
    assert_ne!(next, leader);
    cluster.propose(next, "b");
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a", "b"]);
}

#[test]
fn a_leader_whose_own_disk_hangs_goes_on_for_as_long_as_the_others_do() {
    let mut cluster =
        Cluster::with(3, Durability::Fsync, |config| config.max_uncommitted_bytes = 512 << 10);
    let leader = cluster.elect();
    cluster.at(leader).slow_disk = true;
    let payload = "x".repeat(100_000);
    for count in 1..=20 {
        cluster.propose(leader, &payload);
        assert_eq!(cluster.at(leader).executed.len(), count);
    }
    cluster.at(leader).slow_disk = false;
    cluster.run(leader);
    cluster.propose(leader, "and on");
    cluster.tick_until("all to have it", |cluster| {
        cluster.replicas.values().all(|replica| replica.executed.len() == 21)
    });
}

#[test]
fn a_leader_whose_disk_is_needed_waits_for_it() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    cluster.at(leader).slow_disk = true;
    cluster.at(follower).slow_disk = true;
    cluster.propose(leader, "a");
    cluster.tick();
    assert!(cluster.at(leader).executed.is_empty(), "one of three has it durable");
    cluster.at(leader).slow_disk = false;
    cluster.tick();
    assert_eq!(cluster.at(leader).executed.len(), 1);
}

#[test]
fn a_follower_acknowledges_nothing_before_it_is_durable() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    for id in 1..=3 {
        cluster.at(id).slow_disk = id != leader;
    }
    cluster.propose(leader, "a");
    // The same entry again, as after a lost message: still no acknowledgement.
    for _ in 0..5 {
        cluster.tick();
    }
    let status = cluster.at(leader).consensus.status();
    assert!(status.commit < status.last_index);
    let matched = status.peers.iter().filter(|peer| peer.matched == status.last_index);
    assert_eq!(matched.count(), 1, "the leader alone");
    for id in 1..=3 {
        cluster.at(id).slow_disk = false;
    }
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a"]);
}

#[test]
fn disks_that_stall_for_long_do_not_depose_a_leader() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let term = cluster.at(leader).consensus.term();
    (1..=3).for_each(|id| cluster.at(id).slow_disk = true);
    cluster.propose(leader, "a");
    // Many election timeouts.
    for _ in 0..200 {
        cluster.tick();
        assert_eq!(cluster.leader(), Some(leader));
    }
    assert_eq!(cluster.at(leader).consensus.term(), term);
    (1..=3).for_each(|id| cluster.at(id).slow_disk = false);
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a"]);
}

#[test]
fn a_closed_connection_elects_a_leader_in_a_few_ticks() {
    for durability in [Durability::Fsync, Durability::Memory] {
        let mut cluster = Cluster::new(3, durability);
        let leader = cluster.elect();
        cluster.propose(leader, "a");
        cluster.kill(leader, true);
        let ticks = cluster.tick_until("a new leader", |cluster| cluster.leader().is_some());
        assert!(ticks <= 2, "took {ticks} ticks");
        let next = cluster.elect();
        cluster.propose(next, "b");
        for _ in 0..5 {
            cluster.tick();
        }
        cluster.assert_executed(&["a", "b"]);
    }
}

#[test]
fn a_peer_that_notices_the_closed_connection_late_does_not_cost_an_election_timeout() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    cluster.kill(leader, false);
    let survivors: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    cluster.at(survivors[0]).consensus.peer_lost(ReplicaId(leader));
    cluster.settle();
    assert_eq!(cluster.leader(), None, "the other one still holds on to the lease");
    cluster.at(survivors[1]).consensus.peer_lost(ReplicaId(leader));
    let ticks = cluster.tick_until("a new leader", |cluster| cluster.leader().is_some());
    assert!(ticks <= 4, "took {ticks} ticks");
}

#[test]
fn one_broken_link_does_not_depose_a_leader() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    let term = cluster.at(leader).consensus.term();
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    cluster.cut.extend([(leader, follower), (follower, leader)]);
    cluster.at(follower).consensus.peer_lost(ReplicaId(leader));
    for _ in 0..100 {
        cluster.tick();
    }
    assert_eq!(cluster.leader(), Some(leader));
    assert_eq!(cluster.at(leader).consensus.term(), term);
    cluster.cut.clear();
    for _ in 0..30 {
        cluster.tick();
    }
    assert_eq!(cluster.leader(), Some(leader));
    assert_eq!(cluster.at(follower).consensus.leader(), Some(ReplicaId(leader)));
}

#[test]
fn leadership_is_handed_over() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let next = leader % 3 + 1;
    assert!(cluster.at(leader).consensus.transfer_leadership(ReplicaId(next)));
    cluster.settle();
    assert_eq!(cluster.leader(), Some(next));
    assert!(!cluster.at(leader).consensus.transfer_leadership(ReplicaId(next)));
}

#[test]
fn a_follower_that_was_away_catches_up_from_the_files() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let away = leader % 3 + 1;
    cluster.kill(away, true);
    let payloads: Vec<String> = (0..100).map(|n| format!("payload {n:050}")).collect();
    for payload in &payloads {
        cluster.propose(leader, payload);
    }
    assert!(cluster.at(leader).consensus.status().recent_bytes < 200, "old entries left memory");
    cluster.restart(away);
    cluster.tick_until("it caught up", |cluster| cluster.at(away).executed.len() == 100);
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    cluster.assert_executed(&payloads);
}

#[test]
fn old_entries_are_only_asked_for_by_a_leader_that_may_not_wait() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let away = leader % 3 + 1;
    cluster.kill(away, true);
    let mut payloads: Vec<String> = (0..100).map(|n| format!("payload {n:050}")).collect();
    for payload in &payloads {
        cluster.propose(leader, payload);
    }
    cluster.at(leader).consensus.read_aside();
    cluster.restart(away);
    for _ in 0..50 {
        cluster.tick();
    }
    assert!(cluster.at(away).executed.len() < 100);
    payloads.push("meanwhile".into());
    cluster.propose(leader, "meanwhile");
    assert_eq!(cluster.at(leader).executed.len(), 101, "the others go on");
    let mut most = 0;
    cluster.tick_until("it caught up", |cluster| {
        let replica = cluster.at(leader);
        let wanted = replica.consensus.take_wanted();
        most = most.max(wanted.len());
        let reader = replica.wal.as_ref().unwrap().reader();
        for OldEntries { from, to, max_bytes } in wanted {
            replica.consensus.give_old(from, reader.read(from, to, max_bytes));
        }
        cluster.at(away).executed.len() == 101
    });
    assert_eq!(most, 1, "one at a time for each follower");
    for _ in 0..10 {
        cluster.tick();
    }
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    cluster.assert_executed(&payloads);
}

#[test]
fn all_killed_and_restarted_lose_nothing() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    for n in 0..50 {
        cluster.propose(leader, &format!("{n}"));
    }
    for id in 1..=3 {
        cluster.crash(id, id);
    }
    for id in 1..=3 {
        cluster.restart(id);
    }
    cluster.network.clear();
    let leader = cluster.elect();
    cluster.propose(leader, "after");
    for _ in 0..10 {
        cluster.tick();
    }
    let mut payloads: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    payloads.push("after".to_owned());
    cluster.assert_executed(&payloads.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn who_lost_a_memory_log_has_no_vote_until_it_caught_up() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    let lost = leader % 3 + 1;
    cluster.kill(lost, true);
    cluster.propose(leader, "b");
    cluster.restart(lost);
    for _ in 0..50 {
        cluster.tick();
    }
    assert_eq!(cluster.at(lost).consensus.role(), Role::Learner);
    assert!(cluster.at(lost).executed.is_empty(), "nobody knows of it yet");
    for id in 1..=3 {
        cluster.at(id).consensus.request_rejoin(ReplicaId(lost), 1);
    }
    cluster
        .tick_until("it has a vote", |cluster| cluster.at(lost).consensus.role() == Role::Follower);
    for _ in 0..5 {
        cluster.tick();
    }
    let peers = cluster.at(leader).consensus.status().peers;
    let voters: Vec<_> =
        peers.iter().map(|peer| (peer.id.0, peer.incarnation, peer.voter)).collect();
    let expected: Vec<_> = (1..=3).map(|id| (id, u64::from(id == lost), true)).collect();
    assert_eq!(voters, expected);
    // It counts: with the third one gone, the cluster goes on.
    let third = (1..=3).find(|id| *id != leader && *id != lost).unwrap();
    cluster.kill(third, true);
    cluster.propose(leader, "c");
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a", "b", "c"]);
}

#[test]
fn who_loses_a_memory_log_twice_rejoins_too() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    let lost = leader % 3 + 1;
    for incarnation in 1..=3 {
        cluster.kill(lost, true);
        cluster.restart(lost);
        for id in 1..=3 {
            cluster.at(id).consensus.request_rejoin(ReplicaId(lost), incarnation);
        }
        if incarnation == 1 {
            // It dies again while it is a learner.
            cluster.isolate(lost);
            for _ in 0..5 {
                cluster.tick();
            }
            cluster.cut.clear();
            continue;
        }
        cluster.tick_until("it has a vote", |cluster| {
            cluster.at(lost).consensus.role() == Role::Follower
        });
    }
    cluster.propose(leader, "a");
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a"]);
    let peers = cluster.at(leader).consensus.status().peers;
    assert_eq!(peers.len(), 3, "former selves are gone: {peers:?}");
}

#[test]
fn an_answer_to_what_a_leader_sent_before_it_lost_power_is_harmless() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.at(leader).slow_disk = true;
    cluster.at(leader).consensus.propose(b"a".to_vec()).unwrap();
    cluster.run(leader);
    // The followers write it; their answers are on the way when the leader loses power.
    let sent: Vec<_> = cluster.network.drain(..).collect();
    for (from, message) in sent {
        let to = message.to.0;
        cluster.at(to).consensus.step(ReplicaId(from), &message.bytes).unwrap();
        cluster.run(to);
    }
    let answers: Vec<_> = cluster.network.drain(..).collect();
    cluster.crash(leader, 1);
    cluster.restart(leader);
    cluster.network.extend(answers);
    cluster.settle();
    assert_eq!(cluster.at(leader).refused, []);
}

#[test]
fn a_replica_with_a_new_disk_rejoins_and_keeps_its_life_over_restarts() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    let lost = leader % 3 + 1;
    cluster.kill(lost, true);
    assert!(!cluster.at(leader).consensus.status().peers.is_empty());
    cluster.replace_disk(lost);
    cluster.restart(lost);
    for id in 1..=3 {
        cluster.at(id).consensus.request_rejoin(ReplicaId(lost), 1);
    }
    assert_eq!(cluster.at(lost).consensus.role(), Role::Learner);
    cluster.tick_until("it is whole", |cluster| cluster.at(leader).consensus.status().is_whole());
    for _ in 0..2 {
        cluster.crash(lost, 5);
        cluster.restart(lost);
        cluster.tick_until("it is back", |cluster| {
            cluster.at(lost).consensus.leader() == Some(ReplicaId(leader))
        });
        assert_eq!(cluster.at(lost).consensus.role(), Role::Follower);
        assert_eq!(cluster.at(lost).incarnation, 1);
    }
    cluster.propose(leader, "b");
    for _ in 0..5 {
        cluster.tick();
    }
    cluster.assert_executed(&["a", "b"]);
}

#[test]
fn one_replica_that_forgot_everything_begins_anew() {
    let mut cluster = Cluster::new(1, Durability::Memory);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    cluster.kill(1, false);
    cluster.restart(1);
    let leader = cluster.elect();
    cluster.propose(leader, "b");
    cluster.assert_executed(&["b"]);
}

#[test]
fn a_replaced_data_directory_is_noticed() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    let wiped = leader % 3 + 1;
    cluster.kill(wiped, false);
    cluster.at(wiped).disk = Default::default();
    cluster.restart(wiped);
    for _ in 0..4 {
        cluster.tick();
    }
    assert!(matches!(cluster.at(wiped).refused[0], StepError::LogLost { .. }));
}

#[test]
fn bad_proposals_and_messages_are_refused() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let follower = leader % 3 + 1;
    let known = Some(ReplicaId(leader));
    let consensus = &mut cluster.at(follower).consensus;
    assert_eq!(consensus.propose(vec![1]), Err(ProposeError::NotLeader { leader: known }));
    assert!(matches!(consensus.step(ReplicaId(leader), b"junk"), Err(StepError::Wire(_))));
    let consensus = &mut cluster.at(leader).consensus;
    assert_eq!(consensus.propose(Vec::new()), Err(ProposeError::Empty));
    let max = 4 << 20;
    let bytes = max + 1;
    assert_eq!(consensus.propose(vec![0; bytes]), Err(ProposeError::TooLong { bytes, max }));
    consensus.propose(vec![0; max]).unwrap();
    cluster.settle();
    let last = cluster.at(leader).consensus.status().last_index;
    assert_eq!(cluster.at(leader).executed.last().unwrap().0, last);
    // A message under another replica's name.
    cluster.at(leader).consensus.propose(vec![1]).unwrap();
    cluster.run(leader);
    let (_, message) = cluster.network.pop_front().unwrap();
    let to = message.to.0;
    let result = cluster.at(to).consensus.step(ReplicaId(6 - leader - to), &message.bytes);
    assert!(matches!(result, Err(StepError::Sender(..))));
}

#[test]
fn a_leader_without_a_majority_refuses_when_its_memory_is_full_and_steps_down() {
    let mut cluster = Cluster::with(3, Durability::Memory, |config| {
        config.max_uncommitted_bytes = 1 << 20;
    });
    let leader = cluster.elect();
    cluster.isolate(leader);
    let consensus = &mut cluster.at(leader).consensus;
    let refused = (0..20).find_map(|_| consensus.propose(vec![7; 100 << 10]).err());
    assert_eq!(refused, Some(ProposeError::Busy));
    cluster
        .tick_until("it steps down", |cluster| cluster.at(leader).consensus.role() != Role::Leader);
}

#[test]
fn an_idle_cluster_sends_heartbeats_only_and_writes_nothing() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    for _ in 0..10 {
        cluster.tick();
    }
    let written: Vec<u64> = cluster.replicas.values().map(|r| r.disk.operations()).collect();
    let last = cluster.at(leader).consensus.status().last_index;
    cluster.events.clear();
    cluster.trace = true;
    for _ in 0..300 {
        cluster.tick();
    }
    let strange: Vec<_> =
        cluster.events.iter().filter(|event| !event.contains(": Heartbeat")).collect();
    assert!(strange.is_empty(), "{strange:?}");
    // Two followers, every third tick, and their answers.
    assert_eq!(cluster.events.len(), 2 * 2 * 100);
    assert_eq!(written, cluster.replicas.values().map(|r| r.disk.operations()).collect::<Vec<_>>());
    assert_eq!(cluster.at(leader).consensus.status().last_index, last);
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut cluster = Cluster::new(5, Durability::Fsync);
        let mut leaders = Vec::new();
        for _ in 0..5 {
            let leader = cluster.elect();
            cluster.propose(leader, "x");
            leaders.push((leader, cluster.at(leader).consensus.term()));
            cluster.kill(leader, false);
            cluster.elect();
            cluster.restart(leader);
        }
        leaders
    };
    assert_eq!(run(), run());
}

#[test]
fn entries_reads_back_all_that_was_handed_out() {
    let mut cluster = Cluster::new(1, Durability::Fsync);
    let leader = cluster.elect();
    let payloads: Vec<String> = (0..40).map(|n| format!("{n:030}")).collect();
    for payload in &payloads {
        cluster.propose(leader, payload);
    }
    cluster.at(leader).refill();
    cluster.assert_executed(&payloads.iter().map(String::as_str).collect::<Vec<_>>());
    let consensus = &cluster.at(leader).consensus;
    let end = consensus.applied().next();
    assert_eq!(consensus.entries(end, 100).unwrap().next, end);
    let first = consensus.entries(LogIndex(0), 1).unwrap();
    assert_eq!(first.next, LogIndex(2), "one entry at least");
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let config = |id: u64, voters: &[u64]| {
        Config::new(ReplicaId(id), voters.iter().copied().map(ReplicaId).collect())
    };
    let refused = [
        config(0, &[0]),
        config(1, &[2, 3]),
        config(1, &[1, 1]),
        config(70000, &[70000]),
        Config { heartbeat_ticks: 0, ..config(1, &[1]) },
        Config { heartbeat_ticks: 20, ..config(1, &[1]) },
        Config { max_entry_bytes: 9 << 20, ..config(1, &[1]) },
        Config { incarnation: 1 << 48, ..config(1, &[1]) },
    ];
    for config in refused {
        let result = Consensus::new(config, Recovered::default(), None);
        assert!(matches!(result.err(), Some(ConsensusError::Config(_))));
    }
}
