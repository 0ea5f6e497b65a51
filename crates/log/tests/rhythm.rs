//! The slow rhythm of heartbeats while nobody waits: followers know it before their leader keeps to it, and nothing but silence takes longer.

mod cluster;

use cluster::Cluster;
use skein_log::{Durability, Role};
use skein_model::ReplicaId;

const SLOW: u32 = 10;
/// A follower's longest timeout, in the shortest ticks.
const TIMEOUT: u64 = 2 * 10;

/// A leader for which nobody waits, with its followers, all of them slow.
fn calm(cluster: &mut Cluster) -> u64 {
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    (0..10).for_each(|_| cluster.tick());
    cluster.at(leader).consensus.set_calm(true);
    for _ in 0..10 {
        cluster.tick();
        check(cluster, leader);
    }
    assert!(cluster.replicas.values().all(|replica| replica.consensus.pace() == SLOW));
    cluster.events.clear();
    leader
}

/// No follower is quicker than its leader.
fn check(cluster: &Cluster, leader: u64) {
    let pace = |id: &u64| cluster.replicas[id].consensus.pace();
    assert!(cluster.replicas.keys().all(|id| pace(id) >= pace(&leader)), "{:?}", cluster.events);
}

fn lose(cluster: &mut Cluster, gone: u64) {
    for replica in cluster.replicas.values_mut().filter(|replica| replica.alive) {
        replica.consensus.peer_lost(ReplicaId(gone));
    }
    cluster.settle();
}

#[test]
fn heartbeats_are_rare_while_nobody_waits_and_nobody_is_elected() {
    for durability in [Durability::Fsync, Durability::Memory] {
        let mut cluster = Cluster::new(3, durability);
        let leader = calm(&mut cluster);
        cluster.trace = true;
        for _ in 0..600 {
            cluster.tick();
            check(&cluster, leader);
        }
        let strange = |event: &&String| !event.contains(": Heartbeat");
        assert_eq!(cluster.events.iter().find(strange), None);
        // To two followers, every thirtieth tick, and their answers.
        assert_eq!(cluster.events.len(), 2 * 2 * 20);
    }
}

#[test]
fn all_are_quick_at_once_when_somebody_waits_and_slow_again_later() {
    let mut cluster = Cluster::new(5, Durability::Fsync);
    let leader = calm(&mut cluster);
    for _ in 0..5 {
        cluster.at(leader).consensus.set_calm(false);
        cluster.settle();
        assert!(cluster.replicas.values().all(|replica| replica.consensus.pace() == 1));
        (0..7).for_each(|_| cluster.tick());
        cluster.at(leader).consensus.set_calm(true);
        for _ in 0..10 {
            cluster.tick();
            check(&cluster, leader);
        }
        assert!(cluster.replicas.values().all(|replica| replica.consensus.pace() == SLOW));
    }
}

#[test]
fn a_leader_is_quick_while_a_follower_does_not_know_or_does_not_answer() {
    for to_follower in [false, true] {
        let mut cluster = Cluster::new(3, Durability::Fsync);
        let leader = cluster.elect();
        let follower = leader % 3 + 1;
        cluster.cut.insert(if to_follower { (leader, follower) } else { (follower, leader) });
        cluster.at(leader).consensus.set_calm(true);
        for _ in 0..8 {
            cluster.tick();
            assert_eq!(cluster.at(leader).consensus.pace(), 1);
        }
        cluster.cut.clear();
        (0..20).for_each(|_| cluster.tick());
        assert_eq!(cluster.at(leader).consensus.pace(), SLOW);
    }
}

#[test]
fn an_answer_of_an_earlier_round_does_not_count() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let [one, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    cluster.at(leader).consensus.set_calm(true);
    while !cluster.network.iter().any(|(from, _)| *from == leader) {
        cluster.at(leader).consensus.tick();
        cluster.run(leader);
    }
    // The answer of one is long on its way.
    let asked = cluster.network.iter().position(|(_, message)| message.to.0 == one).unwrap();
    let (_, message) = cluster.network.remove(asked).unwrap();
    cluster.at(one).consensus.step(ReplicaId(leader), &message.bytes).unwrap();
    cluster.run(one);
    let late = cluster.network.iter().position(|(from, _)| *from == one).unwrap();
    let late = cluster.network.remove(late).unwrap().1;
    cluster.settle();
    cluster.at(leader).consensus.set_calm(false);
    cluster.settle();
    cluster.cut.insert((leader, one));
    cluster.at(leader).consensus.set_calm(true);
    cluster.at(leader).consensus.step(ReplicaId(one), &late.bytes).unwrap();
    (0..6).for_each(|_| cluster.tick());
    assert_eq!(cluster.at(other).consensus.pace(), SLOW, "it was told");
    assert_eq!(cluster.at(leader).consensus.pace(), 1, "one was not");
}

/// A node of a version without rhythms answers a heartbeat with the context as it came.
#[test]
fn a_leader_stays_quick_for_a_member_from_before() {
    /// Where a message has the length of its context, and the context of a heartbeat.
    const LENGTH: usize = 3;
    const CONTEXT: usize = 4 + 8 * 8;
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let [old, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    cluster.at(leader).consensus.set_calm(true);
    let mut answers = 0;
    for _ in 0..60 {
        for id in 1..=3 {
            cluster.at(id).consensus.tick();
            cluster.run(id);
        }
        while let Some((from, mut message)) = cluster.network.pop_front() {
            if from == old && message.bytes[LENGTH] == 9 {
                assert_eq!(message.bytes[CONTEXT], 2, "it agrees");
                message.bytes[CONTEXT] = 1;
                answers += 1;
            }
            let to = message.to.0;
            cluster.at(to).consensus.step(ReplicaId(from), &message.bytes).unwrap();
            cluster.run(to);
        }
        assert_eq!(cluster.at(leader).consensus.pace(), 1);
    }
    assert!(answers >= 10);
    assert_eq!(cluster.at(other).consensus.pace(), SLOW);
}

#[test]
fn a_leader_that_died_is_replaced_at_once() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = calm(&mut cluster);
    cluster.kill(leader, false);
    lose(&mut cluster, leader);
    (0..3).for_each(|_| cluster.tick());
    let leads = |replica: &&cluster::Replica| {
        replica.alive && replica.consensus.role() == Role::Leader && replica.consensus.pace() == 1
    };
    assert_eq!(cluster.replicas.values().filter(leads).count(), 1, "{:?}", cluster.events);
}

#[test]
fn a_silent_leader_is_replaced_and_steps_down_within_its_slow_timeout() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = calm(&mut cluster);
    cluster.isolate(leader);
    let mut ticks = 0;
    let leads = |cluster: &Cluster, id: u64| {
        let replica = &cluster.replicas[&id];
        replica.consensus.role() == Role::Leader
    };
    while !(1..=3).any(|id| id != leader && leads(&cluster, id)) || leads(&cluster, leader) {
        cluster.tick();
        ticks += 1;
    }
    assert!(ticks > TIMEOUT, "it was not taken for silent before");
    assert!(ticks <= u64::from(SLOW) * TIMEOUT + 10, "{ticks}");
}

#[test]
fn a_follower_that_comes_back_makes_its_leader_quick() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = calm(&mut cluster);
    let follower = leader % 3 + 1;
    cluster.kill(follower, false);
    cluster.at(leader).consensus.peer_lost(ReplicaId(follower));
    cluster.settle();
    assert_eq!(cluster.at(leader).consensus.pace(), 1);
    cluster.at(leader).consensus.set_calm(true);
    (0..30).for_each(|_| cluster.tick());
    assert_eq!(cluster.at(leader).consensus.pace(), 1, "one does not answer");
    cluster.restart(follower);
    (0..30).for_each(|_| cluster.tick());
    assert!(cluster.replicas.values().all(|replica| replica.consensus.pace() == SLOW));
    let role = |event: &&String| event.contains("candidate");
    assert_eq!(cluster.events.iter().find(role), None);
}
