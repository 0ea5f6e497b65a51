//! Members that come, go and are replaced, at an operator's request that is repeated until it is done.

mod cluster;

use cluster::{Cluster, address};
use skein_log::{
    Change, ChangeError, Config, Durability, Kind, MAX_REPLICAS, Place, Progress, Role, StepError,
};
use skein_model::{LogIndex, ReplicaId};

fn add(id: u64) -> Change {
    Change::Add(ReplicaId(id), address(id), Kind::Active)
}

fn remove(id: u64) -> Change {
    Change::Remove(ReplicaId(id))
}

fn replace(old: u64, id: u64) -> Change {
    Change::Replace(ReplicaId(old), ReplicaId(id), address(id), None)
}

/// One request to the leader. All hear the hello of who has joined, and of those that are cut off nobody is connected.
fn ask(cluster: &mut Cluster, change: &Change, first: bool) -> Result<Progress, ChangeError> {
    let leader = cluster.leader().ok_or(ChangeError::NotLeader(None))?;
    let there: Vec<u64> = cluster
        .replicas
        .iter()
        .filter(|(id, replica)| replica.alive && !cluster.cut.contains(&(leader, **id)))
        .map(|(id, _)| *id)
        .collect();
    let progress = cluster.at(leader).consensus.change(change, first, |id| there.contains(&id.0));
    for id in there {
        let incarnation = cluster.at(id).incarnation;
        cluster.at(leader).consensus.request_rejoin(ReplicaId(id), incarnation);
    }
    progress
}

/// As an operator does it, with all that may be in its way.
fn carry_out(cluster: &mut Cluster, change: &Change) {
    go_on(cluster, change, true);
}

/// `first`: nobody has asked for it yet.
fn go_on(cluster: &mut Cluster, change: &Change, mut first: bool) {
    cluster.tick_until(&format!("{change:?}"), |cluster| match ask(cluster, change, first) {
        Ok(progress) => {
            first = false;
            progress == Progress::Done
        }
        Err(ChangeError::Leads) => {
            let leader = cluster.leader().unwrap();
            let heir = cluster.replicas.keys().find(|id| {
                **id != leader
                    && cluster.replicas[&leader].consensus.voters().contains(&ReplicaId(**id))
            });
            let heir = ReplicaId(*heir.unwrap());
            cluster.at(leader).consensus.transfer_leadership(heir);
            false
        }
        Err(ChangeError::NotLeader(_) | ChangeError::Busy) => false,
        Err(error) => panic!("{change:?}: {error}"),
    });
}

fn voters(cluster: &mut Cluster, id: u64) -> Vec<u64> {
    cluster.at(id).consensus.voters().into_iter().map(|id| id.0).collect()
}

/// All members know these members, at these places.
fn assert_members(cluster: &mut Cluster, ids: &[u64]) {
    let what = format!("members {ids:?}");
    cluster.tick_until(&what, |cluster| {
        ids.iter().all(|id| !cluster.at(*id).alive || voters(cluster, *id) == ids)
    });
    for id in ids {
        for member in cluster.at(*id).consensus.members() {
            assert_eq!(member.place.address, address(member.id.0));
            assert!(member.votes && !member.learns && member.place.replaces.is_none());
        }
    }
}

/// All of these come to execute these entries.
fn assert_executes(cluster: &mut Cluster, ids: &[u64], payloads: &[&str]) {
    cluster.tick_until(&format!("all have executed {payloads:?}"), |cluster| {
        ids.iter().all(|id| {
            let executed = &cluster.replicas[id].executed;
            executed.iter().map(|(_, _, payload)| payload.as_str()).eq(payloads.iter().copied())
        })
    });
}

fn refusal(cluster: &mut Cluster, change: &Change) -> String {
    ask(cluster, change, true).unwrap_err().to_string()
}

#[test]
fn a_cluster_of_one_grows_to_five_and_shrinks_again() {
    let mut cluster = Cluster::new(1, Durability::Fsync);
    let leader = cluster.elect();
    cluster.propose(leader, "alone");
    for id in 2..=5 {
        assert_eq!(cluster.join(), id);
        carry_out(&mut cluster, &add(id));
        let leader = cluster.elect();
        cluster.propose(leader, &format!("with {id}"));
    }
    assert_members(&mut cluster, &[1, 2, 3, 4, 5]);
    for id in 1..=4 {
        carry_out(&mut cluster, &remove(id));
        cluster.kill(id, true);
        let leader = cluster.elect();
        cluster.propose(leader, &format!("without {id}"));
    }
    assert_members(&mut cluster, &[5]);
    cluster.assert_executed(&[
        "alone",
        "with 2",
        "with 3",
        "with 4",
        "with 5",
        "without 1",
        "without 2",
        "without 3",
        "without 4",
    ]);
}

#[test]
fn all_three_are_replaced_in_turn_and_the_new_ones_know_each_other_after_a_restart() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    cluster.propose(leader, "before");
    for old in 1..=3 {
        // It is dead: its disk is lost, and there is no other for its id.
        cluster.kill(old, true);
        cluster.elect();
        let new = cluster.join();
        carry_out(&mut cluster, &replace(old, new));
        let leader = cluster.elect();
        cluster.propose(leader, &format!("{new} for {old}"));
    }
    assert_members(&mut cluster, &[4, 5, 6]);
    for id in 4..=6 {
        cluster.crash(id, id);
    }
    (4..=6).for_each(|id| cluster.restart(id));
    let leader = cluster.elect();
    cluster.propose(leader, "after");
    assert_members(&mut cluster, &[4, 5, 6]);
    assert_executes(
        &mut cluster,
        &[4, 5, 6],
        &["before", "4 for 1", "5 for 2", "6 for 3", "after"],
    );
}

#[test]
fn a_leader_is_replaced_by_way_of_another() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    assert_eq!(ask(&mut cluster, &remove(leader), true), Err(ChangeError::Leads));
    let new = cluster.join();
    carry_out(&mut cluster, &replace(leader, new));
    let next = cluster.elect();
    assert_ne!(next, leader);
    let rest: Vec<u64> = (1..=4).filter(|id| *id != leader).collect();
    assert_members(&mut cluster, &rest);
}

/// A new replica gets the members with the image that it begins with.
#[test]
fn a_replica_that_begins_with_an_image_knows_the_members() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    cluster.brings_images = true;
    cluster.elect();
    let fourth = cluster.join();
    carry_out(&mut cluster, &add(fourth));
    let leader = cluster.elect();
    for n in 0..5 {
        cluster.propose(leader, &format!("{n}"));
    }
    assert_members(&mut cluster, &[1, 2, 3, 4]);
    for id in 1..=4 {
        let image = cluster.at(id).take_image();
        cluster.at(id).consensus.compact(image, 0).expect("a base");
        cluster.run(id);
    }
    let fifth = cluster.join();
    carry_out(&mut cluster, &add(fifth));
    assert_members(&mut cluster, &[1, 2, 3, 4, 5]);
    assert!(cluster.at(fifth).consensus.first_index() > LogIndex(5));
    for id in 1..=5 {
        cluster.crash(id, id);
    }
    (1..=5).for_each(|id| cluster.restart(id));
    cluster.elect();
    assert_members(&mut cluster, &[1, 2, 3, 4, 5]);
}

#[test]
fn what_would_do_harm_is_refused_with_the_reason() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let (other, third) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let refused = |cluster: &mut Cluster, change: &Change, why: &str| {
        let line = refusal(cluster, change);
        assert!(line.contains(why), "{change:?}: {line}");
    };
    refused(&mut cluster, &add(2), "replica 2 is a member already");
    refused(
        &mut cluster,
        &Change::Add(ReplicaId(9), address(2), Kind::Active),
        "replica 2 is at this address",
    );
    refused(
        &mut cluster,
        &Change::Add(ReplicaId(9), String::new(), Kind::Active),
        "an address must",
    );
    refused(
        &mut cluster,
        &Change::Add(ReplicaId(9), "x".repeat(129), Kind::Active),
        "an address must",
    );
    refused(
        &mut cluster,
        &Change::Add(ReplicaId(70_000), "a:1".into(), Kind::Active),
        "from 1 to 65535",
    );
    refused(&mut cluster, &remove(9), "replica 9 is not a member");
    refused(&mut cluster, &replace(9, 8), "replica 9 is not a member");
    refused(&mut cluster, &replace(2, 3), "replica 3 is a member already");
    refused(&mut cluster, &Change::Withdraw(ReplicaId(2)), "with a vote by now");
    // One is on its way in.
    assert_eq!(ask(&mut cluster, &add(7), true), Ok(Progress::Unreached));
    assert_eq!(ask(&mut cluster, &add(7), false), Ok(Progress::Unreached));
    refused(&mut cluster, &add(8), "another change is under way: replica 7");
    refused(&mut cluster, &remove(other), "another change is under way: replica 7");
    assert_eq!(ask(&mut cluster, &Change::Withdraw(ReplicaId(7)), true), Ok(Progress::Done));
    // Nobody asks any more: it is forgotten.
    assert_eq!(ask(&mut cluster, &add(7), true), Ok(Progress::Unreached));
    cluster.tick_until("it is forgotten", |c| c.at(leader).consensus.candidate().is_none());
    // Two of three are left, and one of them is to go.
    cluster.kill(third, true);
    refused(&mut cluster, &remove(other), "only 1 of 2 replicas would be connected, and 2");
    refused(&mut cluster, &remove(leader), "only 1 of 2 replicas would be connected, and 2");
    carry_out(&mut cluster, &remove(third));
    assert_members(&mut cluster, &if other < leader { [other, leader] } else { [leader, other] });
    carry_out(&mut cluster, &remove(other));
    refused(&mut cluster, &remove(leader), "is the last one");
    let mut crowd = Cluster::new(MAX_REPLICAS as u64, Durability::Fsync);
    crowd.elect();
    refused(&mut crowd, &add(10), "at most 9 replicas");
}

/// Every start is the loss of a log, and the new members' configurations are not the founders'.
#[test]
fn members_with_logs_in_memory_come_go_and_return_after_all_founders_were_replaced() {
    let mut cluster = Cluster::new(1, Durability::Memory);
    let leader = cluster.elect();
    cluster.propose(leader, "a");
    for _ in 2..=3 {
        let new = cluster.join();
        carry_out(&mut cluster, &add(new));
    }
    assert_members(&mut cluster, &[1, 2, 3]);
    // The founder, whose configuration names it alone, is one that lost its log.
    returns_empty(&mut cluster, 1);
    assert_members(&mut cluster, &[1, 2, 3]);
    for old in 1..=3 {
        let new = cluster.join();
        carry_out(&mut cluster, &replace(old, new));
        cluster.kill(old, true);
    }
    let leader = cluster.leader().unwrap();
    cluster.propose(leader, "b");
    for id in 4..=6 {
        returns_empty(&mut cluster, id);
        assert_members(&mut cluster, &[4, 5, 6]);
    }
    assert_executes(&mut cluster, &[4, 5, 6], &["a", "b"]);
    // One that was removed, and a founder, change nothing: nobody knows their new selves.
    for gone in [1, 2] {
        cluster.restart(gone);
        let incarnation = cluster.at(gone).incarnation;
        for _ in 0..60 {
            let leader = cluster.leader().unwrap();
            cluster.at(leader).consensus.request_rejoin(ReplicaId(gone), incarnation);
            cluster.tick();
            let status = cluster.at(gone).consensus.status();
            assert_eq!((status.role, status.term.0, status.last_index.0), (Role::Learner, 0, 0));
        }
    }
    assert_members(&mut cluster, &[4, 5, 6]);
}

/// It dies and comes back with nothing, and is a member with a vote again.
fn returns_empty(cluster: &mut Cluster, id: u64) {
    cluster.kill(id, true);
    cluster.restart(id);
    let incarnation = cluster.at(id).incarnation;
    assert!(incarnation > 0);
    assert_eq!(voters(cluster, id), []);
    cluster.tick_until("it has its vote back", |cluster| {
        let Some(leader) = cluster.leader() else { return false };
        cluster.at(leader).consensus.request_rejoin(ReplicaId(id), incarnation);
        let peers = cluster.at(leader).consensus.status();
        peers.is_whole() && peers.peers.iter().any(|p| (p.id.0, p.incarnation) == (id, incarnation))
    });
}

/// It says hello once, to one that does not know the members then, and leads later.
#[test]
fn one_that_lost_its_log_is_taken_in_by_a_leader_that_joined_after_its_hello() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    let lost = leader % 3 + 1;
    cluster.kill(lost, true);
    cluster.restart(lost);
    let new = cluster.join();
    cluster.at(new).consensus.request_rejoin(ReplicaId(lost), 1);
    // The others do not hear it.
    for id in (1..=3).filter(|id| *id != lost) {
        cluster.cut.extend([(id, lost), (lost, id)]);
    }
    carry_out(&mut cluster, &add(new));
    cluster.at(leader).consensus.transfer_leadership(ReplicaId(new));
    cluster.tick_until("it has its vote back", |cluster| {
        let status = cluster.at(new).consensus.status();
        status.role == Role::Leader
            && status.peers.iter().any(|p| (p.id.0, p.incarnation, p.voter) == (lost, 1, true))
    });
}

/// A vote that died with its log counts in no majority of those that would be left.
#[test]
fn a_vote_that_is_lost_with_a_log_in_memory_is_not_counted_for_a_removal() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    let (lost, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.kill(lost, true);
    let refused = |cluster: &mut Cluster, expected| {
        let found = refusal(cluster, &remove(other));
        assert!(found.contains(expected), "{found}");
    };
    refused(&mut cluster, "only 1 of 2 replicas would be connected");
    cluster.restart(lost);
    cluster.at(leader).consensus.request_rejoin(ReplicaId(lost), 1);
    refused(&mut cluster, "another change is under way");
}

#[test]
fn a_learner_that_does_not_come_is_withdrawn_and_one_that_died_can_be() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let fourth = cluster.join();
    ask(&mut cluster, &add(4), true).unwrap();
    ask(&mut cluster, &add(4), false).unwrap();
    cluster.kill(fourth, true);
    cluster.tick_until("a learner", |c| c.at(leader).consensus.members().len() == 4);
    assert!(matches!(ask(&mut cluster, &add(4), false), Ok(Progress::Fills(..))));
    let other = refusal(&mut cluster, &remove(leader % 3 + 1));
    assert!(other.contains("replica 4 is being taken in"), "{other}");
    carry_out(&mut cluster, &Change::Withdraw(ReplicaId(4)));
    assert_members(&mut cluster, &[1, 2, 3]);
}

/// Leadership goes to this replica.
fn lead(cluster: &mut Cluster, id: u64) {
    cluster.tick_until("it leads", |cluster| {
        let leader = cluster.elect();
        cluster.at(leader).consensus.transfer_leadership(ReplicaId(id));
        leader == id
    });
}

#[test]
fn a_hello_of_one_that_was_withdrawn_counts_no_more_when_its_id_is_used_again() {
    for (earlier, later) in [(1, 2), (2, 1)] {
        let mut cluster = Cluster::new(3, Durability::Fsync);
        let leader = cluster.elect();
        let fourth = ReplicaId(cluster.join());
        cluster.kill(4, false);
        cluster.at(leader).consensus.change(&add(4), true, |_| true).unwrap();
        cluster.at(leader).consensus.request_rejoin(fourth, earlier);
        cluster.at(leader).consensus.change(&Change::Withdraw(fourth), true, |_| true).unwrap();
        assert!(cluster.at(leader).consensus.all_keep_up(), "nobody is missed");
        // Another leader takes it in, with a log that was begun anew.
        lead(&mut cluster, leader % 3 + 1);
        cluster.at(4).incarnation = later;
        cluster.restart(4);
        carry_out(&mut cluster, &add(4));
        lead(&mut cluster, leader);
        cluster.join();
        carry_out(&mut cluster, &add(5));
        (0..20).for_each(|_| cluster.tick());
        assert_members(&mut cluster, &[1, 2, 3, 4, 5]);
        let of_fourth = cluster.at(leader).consensus.status().peers;
        let of_fourth: Vec<_> = of_fourth.iter().filter(|peer| peer.id == fourth).collect();
        assert!(matches!(of_fourth[..], [peer] if peer.incarnation == later), "{of_fourth:?}");
    }
}

#[test]
fn a_hello_counts_no_more_when_its_replica_is_a_learner_or_is_gone() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let lost = leader % 3 + 1;
    cluster.kill(lost, true);
    (1..=3).for_each(|id| cluster.at(id).consensus.request_rejoin(ReplicaId(lost), 1));
    let is_learner = |c: &mut Cluster| c.at(leader).consensus.members().iter().any(|m| m.learns);
    cluster.tick_until("a learner", is_learner);
    carry_out(&mut cluster, &remove(lost));
    assert!(cluster.at(leader).consensus.all_keep_up(), "nobody is missed");
    // And is taken in again.
    cluster.replace_disk(lost);
    cluster.restart(lost);
    carry_out(&mut cluster, &add(lost));
    assert_members(&mut cluster, &[1, 2, 3]);
}

#[test]
fn one_that_is_removed_knows_it_if_it_hears_of_it() {
    for hears in [true, false] {
        let mut cluster = Cluster::new(3, Durability::Fsync);
        let leader = cluster.elect();
        let other = leader % 3 + 1;
        assert!(cluster.at(other).consensus.takes_part());
        if !hears {
            cluster.isolate(other);
        }
        carry_out(&mut cluster, &remove(other));
        let removed = &cluster.replicas[&other].consensus;
        assert_eq!((removed.is_removed(), removed.takes_part()), (hears, !hears));
        // The others know of a later change than it does.
        let known = cluster.replicas[&leader].consensus.membership();
        assert_eq!(removed.membership() < known, !hears);
        // Also after a restart.
        cluster.kill(other, false);
        cluster.restart(other);
        assert_eq!(cluster.at(other).consensus.is_removed(), hears);
    }
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let joined = cluster.join();
    let joined = &cluster.at(joined).consensus;
    assert!(!joined.takes_part() && !joined.is_removed() && joined.members().is_empty());
}

/// Power is lost everywhere after each step of a write, on any disk, while one replica is replaced by another, and the replaced one's disk with it. What is left elects a
/// leader, and the operator comes to an end.
#[test]
fn a_loss_of_power_at_any_write_of_a_change_leaves_members_who_agree() {
    for steps in 0.. {
        assert!(steps < 400, "the change never ends");
        let mut cluster = Cluster::new(3, Durability::Fsync);
        let leader = cluster.elect();
        cluster.propose(leader, "before");
        cluster.tick();
        let old = leader % 3 + 1;
        let fourth = cluster.join();
        let change = replace(old, fourth);
        let mut first = true;
        cluster.steps_left = Some(steps);
        let mut ended = false;
        while cluster.steps_left != Some(0) && !ended {
            ended = ask(&mut cluster, &change, first) == Ok(Progress::Done);
            first = false;
            cluster.tick();
        }
        cluster.steps_left = None;
        (1..=4).for_each(|id| cluster.crash(id, steps * 4 + id));
        (1..=4).filter(|id| *id != old).for_each(|id| cluster.restart(id));
        go_on(&mut cluster, &change, false);
        let rest: Vec<u64> = (1..=4).filter(|id| *id != old).collect();
        assert_members(&mut cluster, &rest);
        let leader = cluster.elect();
        cluster.propose(leader, "after");
        assert_executes(&mut cluster, &rest, &["before", "after"]);
        if ended {
            assert!(steps > 20, "a change without writes");
            return;
        }
    }
}

/// Clients ask all the time, and what `slow` sends arrives so many calls of `settle` late, of which there are five in a tick.
fn tick_under_load(cluster: &mut Cluster, slow: u64, calls: usize) {
    cluster.slow = Some((slow, calls));
    let leader = cluster.leader().expect("a leader");
    for n in 0..4 {
        cluster.propose(leader, &format!("load {n}"));
    }
    cluster.tick();
}

fn learns(cluster: &mut Cluster, id: u64) -> bool {
    cluster.at(id).consensus.role() == Role::Learner
}

/// Without another one it and the leader are a majority.
fn assert_counts(cluster: &mut Cluster, new: u64) {
    cluster.slow = None;
    let leader = cluster.leader().expect("a leader");
    cluster.tick_until("the change has ended", |c| c.at(leader).consensus.status().is_whole());
    let mut voters = voters(cluster, leader).into_iter();
    let third = voters.find(|id| *id != leader && *id != new).expect("three");
    cluster.kill(third, true);
    cluster.propose(leader, "last");
    (0..5).for_each(|_| cluster.tick());
    for id in [leader, new] {
        let executed = &cluster.replicas[&id].executed;
        assert_eq!(executed.last().map(|(_, _, payload)| payload.as_str()), Some("last"));
    }
}

/// At each of its answers a later entry is committed already.
#[test]
fn a_learner_that_answers_late_gets_its_vote_under_load() {
    let until_it_votes = |cluster: &mut Cluster, id: u64, after: &dyn Fn(&mut Cluster)| {
        for _ in 0..60 {
            after(cluster);
            tick_under_load(cluster, id, 12);
            if !learns(cluster, id) {
                return;
            }
        }
        panic!("replica {id} is without its vote");
    };
    // One that replaces another.
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let (old, new) = (leader % 3 + 1, cluster.join());
    let change = replace(old, new);
    until_it_votes(&mut cluster, new, &|cluster| {
        let _ = ask(cluster, &change, false);
    });
    go_on(&mut cluster, &change, false);
    assert_counts(&mut cluster, new);
    // And one that lost its log in memory, or its disk.
    for durability in [Durability::Memory, Durability::Fsync] {
        let mut cluster = Cluster::new(3, durability);
        let leader = cluster.elect();
        let lost = leader % 3 + 1;
        cluster.kill(lost, true);
        if durability == Durability::Fsync {
            cluster.replace_disk(lost);
        }
        cluster.restart(lost);
        until_it_votes(&mut cluster, lost, &|cluster| {
            (1..=3).for_each(|id| cluster.at(id).consensus.request_rejoin(ReplicaId(lost), 1));
        });
        assert_counts(&mut cluster, lost);
    }
}

/// Commits could wait for it for as long as it is behind.
#[test]
fn a_learner_that_is_far_behind_gets_no_vote_before_it_is_not() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    let lost = leader % 3 + 1;
    cluster.kill(lost, true);
    cluster.restart(lost);
    (1..=3).for_each(|id| cluster.at(id).consensus.request_rejoin(ReplicaId(lost), 1));
    // Three election timeouts.
    for _ in 0..200 {
        tick_under_load(&mut cluster, lost, 150);
        assert!(learns(&mut cluster, lost));
    }
    let leader = cluster.leader().unwrap();
    let matched = cluster.at(leader).consensus.status().peers;
    let matched = matched.iter().find(|peer| peer.id.0 == lost && !peer.voter).unwrap().matched;
    assert!(matched > LogIndex(100), "it gets entries all the time");
    cluster.tick_until("it has its vote", |cluster| !learns(cluster, lost));
    assert_counts(&mut cluster, lost);
}

fn fourth_is_a_witness(config: &mut Config) {
    config.places.insert(ReplicaId(4), Place::of(address(4), Kind::Witness));
}

fn fourth_is_active(config: &mut Config) {
    config.places.insert(ReplicaId(4), Place::of(address(4), Kind::Active));
}

/// A cluster of three whose logs begin with a base, and a fourth that was taken in as of this kind, which its own configuration has otherwise, and has heard of
/// the base only.
fn told_of_the_base(configured: fn(&mut Config), kind: Kind) -> (Cluster, u64) {
    let mut cluster = Cluster::with(3, Durability::Fsync, configured);
    let leader = cluster.elect();
    cluster.propose(leader, "forgotten");
    cluster.tick();
    for id in 1..=3 {
        let image = cluster.at(id).take_image();
        cluster.at(id).consensus.compact(image, 0).expect("a base");
    }
    let new = cluster.join();
    let change = Change::Add(ReplicaId(new), address(new), kind);
    let mut first = true;
    cluster.tick_until("the leader to have heard of it", |cluster| {
        let progress = ask(cluster, &change, first).expect("it is taken in");
        first = false;
        progress != Progress::Unreached && {
            cluster.tick();
            true
        }
    });
    (cluster, leader)
}

#[test]
fn a_new_replica_is_what_the_log_says_before_it_has_any_of_it() {
    for kind in [Kind::Active, Kind::Passive] {
        let (mut cluster, leader) = told_of_the_base(fourth_is_a_witness, kind);
        (0..20).for_each(|_| cluster.tick());
        let new = &mut cluster.at(4).consensus;
        assert_eq!((new.kind_of(ReplicaId(4)), new.last_index()), (kind, LogIndex(0)));
        // A witness would have gone on without what its server must begin with.
        let asks = |error: &StepError| matches!(error, StepError::BelowBase { .. });
        assert!(cluster.at(4).refused.iter().any(asks), "it asks for an image");
        let image = cluster.at(leader).consensus.newest_image().unwrap();
        cluster.bring_image(leader, 4, image.0);
        go_on(&mut cluster, &Change::Add(ReplicaId(4), address(4), kind), false);
        assert_executes(&mut cluster, &[1, 2, 3, 4], &["forgotten"]);
    }
    // And a witness does not wait for one.
    let (mut cluster, _) = told_of_the_base(fourth_is_active, Kind::Witness);
    go_on(&mut cluster, &Change::Add(ReplicaId(4), address(4), Kind::Witness), false);
    let new = cluster.at(4);
    assert_eq!(new.consensus.kind_of(ReplicaId(4)), Kind::Witness);
    assert_eq!((&new.refused[..], new.images.len()), (&[][..], 0));
}
