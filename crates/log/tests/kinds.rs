//! Active replicas, passive ones and witnesses: who is elected, and which members can form a cluster.

mod cluster;

use cluster::{Cluster, address};
use skein_log::{Change, ChangeError, Config, Durability, Kind, Place, Progress};
use skein_model::ReplicaId;
use std::cell::Cell;

fn of_kinds(config: &mut Config, kinds: &[Kind]) {
    for (id, kind) in (1..).zip(kinds) {
        config.places.insert(ReplicaId(id), Place::of(address(id), *kind));
    }
}

fn witness_first(config: &mut Config) {
    of_kinds(config, &[Kind::Witness, Kind::Passive, Kind::Active]);
}

fn passive_first(config: &mut Config) {
    of_kinds(config, &[Kind::Passive, Kind::Witness, Kind::Active]);
}

thread_local! {
    static DRAW: Cell<u64> = const { Cell::new(0) };
}

fn with_other_timeouts(config: &mut Config) {
    witness_first(config);
    config.seed += 100 * DRAW.get();
}

fn two_actives(config: &mut Config) {
    of_kinds(config, &[Kind::Witness, Kind::Active, Kind::Active]);
}

#[test]
fn the_one_that_would_lead_better_is_elected_while_it_is_there() {
    let mut cluster = Cluster::with(3, Durability::Fsync, witness_first);
    let leader = cluster.elect();
    assert_ne!(leader, 1, "a witness waits longest");
    // A closed connection is noticed by all at once: the witness has the lower number.
    cluster.kill(leader, true);
    let next = cluster.elect();
    assert_eq!(next, 5 - leader);
    cluster.propose(next, "served");
    cluster.restart(leader);
    cluster.tick_until("it has that", |cluster| cluster.at(leader).executed.len() == 1);
    cluster.kill(next, false);
    assert_eq!(cluster.elect(), leader, "nor after a silence");
    cluster.propose(leader, "again");
    // Whoever is left leads.
    cluster.kill(leader, true);
    cluster.restart(next);
    let last = cluster.elect();
    assert_ne!(last, leader);
}

#[test]
fn when_all_begin_at_once_an_active_one_leads_first() {
    for draw in 0..100 {
        DRAW.set(draw);
        let mut cluster = Cluster::with(3, Durability::Fsync, with_other_timeouts);
        assert_eq!(cluster.elect(), 3, "draw {draw}");
    }
}

#[test]
fn a_witness_with_the_newest_entries_is_elected_and_completes_another() {
    let mut cluster = Cluster::with(3, Durability::Fsync, two_actives);
    let leader = cluster.elect();
    let other = 5 - leader;
    cluster.isolate(other);
    cluster.propose(leader, "acknowledged");
    cluster.tick();
    cluster.kill(leader, true);
    cluster.cut.clear();
    assert_eq!(cluster.elect(), 1, "nobody else has it");
    assert!(cluster.at(1).consensus.transfer_leadership(ReplicaId(other)));
    cluster.tick_until("it leads", |cluster| cluster.leader() == Some(other));
    cluster.propose(other, "more");
    cluster.tick_until("all have that", |cluster| cluster.at(1).executed.len() == 2);
    cluster.assert_executed(&["acknowledged", "more"]);
}

#[test]
fn members_that_could_not_serve_after_a_loss_are_refused() {
    let mut cluster = Cluster::with(3, Durability::Fsync, witness_first);
    cluster.elect();
    let mut ask = |change: &Change| {
        let leader = cluster.elect();
        cluster.at(leader).consensus.change(change, true, |_| true)
    };
    let add = |id, kind| Change::Add(ReplicaId(id), address(id), kind);
    let replace = |old, id, kind| Change::Replace(ReplicaId(old), ReplicaId(id), address(id), kind);
    let kinds = |result: Result<Progress, ChangeError>| match result {
        Err(ChangeError::Kinds(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(kinds(ask(&Change::Remove(ReplicaId(3)))).contains("no replica would be active"));
    assert!(kinds(ask(&replace(3, 4, Some(Kind::Passive)))).contains("no replica would be active"));
    assert!(kinds(ask(&replace(2, 4, Some(Kind::Witness)))).contains("only 1 would be active"));
    // Two of four survive the loss of one of them; of five three must.
    assert_eq!(ask(&add(4, Kind::Witness)), Ok(Progress::Unreached));
    assert_eq!(ask(&Change::Withdraw(ReplicaId(4))), Ok(Progress::Done));
    assert_eq!(ask(&replace(3, 5, None)), Ok(Progress::Unreached), "active, as the old one");
    assert_eq!(ask(&Change::Withdraw(ReplicaId(5))), Ok(Progress::Done));
}

#[test]
fn a_leader_that_is_replaced_leaves_to_one_that_can_serve_or_whom_its_caller_names() {
    let [one, two] = [ReplicaId(1), ReplicaId(2)];
    for (kinds, named, next) in [
        (witness_first as fn(&mut Config), None, two),
        (passive_first, None, one),
        (witness_first, Some(one), one),
        (passive_first, Some(two), two),
    ] {
        let mut cluster = Cluster::with(3, Durability::Fsync, kinds);
        assert_eq!(cluster.elect(), 3, "the active one");
        cluster.propose(3, "a");
        let new = ReplicaId(cluster.join());
        let replace = Change::Replace(ReplicaId(3), new, address(new.0), None);
        cluster.tick_until("another one leads", |cluster| {
            let consensus = &mut cluster.at(3).consensus;
            consensus.leave_to(named);
            let asked = consensus.change(&replace, false, |_| true);
            consensus.request_rejoin(new, 1);
            asked.is_err_and(|error| matches!(error, ChangeError::NotLeader(Some(_))))
        });
        assert_eq!(cluster.at(3).consensus.leader(), Some(next), "named: {named:?}");
    }
}
