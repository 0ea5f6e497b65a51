//! The level that all members know: when they agree on it, where it is kept, and what an older program gets.

mod cluster;

use cluster::{Cluster, address, wal_options};
use skein_log::{
    Base, Change, Config, Consensus, ConsensusError, Durability, HeldBack, Kind, Level, Place,
    Progress, Recovered, StepError, TooNew,
    disk::{Disk, sim::SimDisk},
    wal::Wal,
    wire,
};
use skein_model::{LogIndex, ReplicaId};
use std::sync::Arc;

const NEW: Level = Level::NEWEST;
const NEWER: Level = Level(9);

/// Every replica says to every other one which level it knows.
fn all_say(cluster: &mut Cluster, level: Level) {
    let ids: Vec<u64> = cluster.replicas.keys().copied().collect();
    for (at, peer) in ids.iter().flat_map(|at| ids.iter().map(move |peer| (*at, *peer))) {
        if at != peer {
            cluster.at(at).consensus.hear_level(ReplicaId(peer), level);
        }
    }
}

fn raise(cluster: &mut Cluster) -> u64 {
    let leader = cluster.elect();
    cluster.at(leader).consensus.raise_level();
    cluster.settle();
    cluster.tick_until("all know it", |cluster| {
        let applied = cluster.at(leader).consensus.applied();
        cluster.replicas.values().all(|r| !r.alive || r.consensus.applied() == applied)
    });
    leader
}

fn agreed(cluster: &Cluster) -> Vec<u16> {
    cluster.replicas.values().map(|replica| replica.consensus.agreed_level().0).collect()
}

fn recovered(disk: &SimDisk) -> Recovered {
    Wal::open(Arc::new(disk.clone()), wal_options()).unwrap().recovered
}

/// What a program of this level says to this log.
fn start(recovered: Recovered, level: Level) -> Result<Consensus, ConsensusError> {
    let config = Config::new(ReplicaId(1), (1..=3).map(ReplicaId).collect());
    Consensus::new(Config { level, ..config }, recovered, None)
}

#[test]
fn members_agree_when_all_have_said_that_they_know_it() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let back = |cluster: &mut Cluster| cluster.at(leader).consensus.held_back();
    let by = |by: &[u64]| {
        let by = by.iter().copied().map(ReplicaId).collect();
        Some(HeldBack { agreed: Level::FIRST, known: NEW, by })
    };
    let last = cluster.at(leader).consensus.last_index();
    assert_eq!(back(&mut cluster), by(&others));
    // One says it, the other one is older: nothing is proposed.
    cluster.at(leader).consensus.hear_level(ReplicaId(others[0]), NEW);
    cluster.at(leader).consensus.hear_level(ReplicaId(others[1]), Level::FIRST);
    raise(&mut cluster);
    assert_eq!((back(&mut cluster), agreed(&cluster)), (by(&others[1..]), vec![1; 3]));
    // Behind another connection there may be another program.
    cluster.at(leader).consensus.hear_level(ReplicaId(others[1]), NEW);
    cluster.at(leader).consensus.peer_lost(ReplicaId(others[0]));
    raise(&mut cluster);
    assert_eq!(back(&mut cluster), by(&others[..1]));
    assert_eq!(cluster.at(leader).consensus.last_index(), last);
    all_say(&mut cluster, NEWER);
    raise(&mut cluster);
    assert_eq!((back(&mut cluster), agreed(&cluster)), (None, vec![NEW.0; 3]));
    assert_eq!(cluster.at(leader).consensus.last_index(), last.next(), "one entry");
    raise(&mut cluster);
    assert_eq!(cluster.at(leader).consensus.last_index(), last.next(), "and no other");
    assert_eq!(cluster.at(leader).consensus.members().len(), 3);
}

#[test]
fn one_that_hears_of_the_agreement_and_is_asked_to_lead_at_once_leads() {
    for durability in [Durability::Memory, Durability::Fsync] {
        let mut cluster = Cluster::new(3, durability);
        all_say(&mut cluster, NEW);
        let leader = cluster.elect();
        let (heir, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
        let busy = |cluster: &mut Cluster, busy: &[u64]| {
            cluster.replicas.iter_mut().for_each(|(id, r)| r.busy = busy.contains(id));
            cluster.settle();
        };
        cluster.at(leader).consensus.raise_level();
        let level = cluster.at(leader).consensus.last_index();
        busy(&mut cluster, &[heir, other]);
        busy(&mut cluster, &[leader]);
        assert!(cluster.at(leader).consensus.transfer_leadership(ReplicaId(heir)));
        busy(&mut cluster, &[heir]);
        assert!(cluster.at(heir).consensus.applied() < level, "it would campaign at once");
        busy(&mut cluster, &[]);
        assert_eq!((cluster.leader(), agreed(&cluster)), (Some(heir), vec![NEW.0; 3]));
    }
}

#[test]
fn the_log_keeps_it_and_an_older_program_is_refused_by_a_line() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    all_say(&mut cluster, NEW);
    let leader = raise(&mut cluster);
    cluster.propose(leader, "entry");
    let refused = |recovered: Recovered| start(recovered, Level::FIRST).err().unwrap().to_string();
    let line = "the members have agreed on level 3 of what nodes say and keep, and this Skein knows no more than level 1: \
                install the version of Skein that the other nodes have, or a later one";
    for id in 1..=3 {
        cluster.kill(id, false);
        let disk = cluster.at(id).disk.clone();
        assert_eq!(refused(recovered(&disk)), line);
        assert_eq!(start(recovered(&disk), NEW).unwrap().agreed_level(), NEW);
        cluster.restart(id);
    }
    let place =
        |cluster: &mut Cluster, id| cluster.at(id).consensus.members()[0].place.address.clone();
    assert_eq!(place(&mut cluster, 1), address(1), "from the configuration");
    // The same where only the base says it, in a segment that programs from before refuse by its version.
    all_say(&mut cluster, NEW);
    let leader = cluster.elect();
    cluster.propose(leader, "another");
    cluster.tick_until("all have it", |c| c.replicas.values().all(|r| r.executed.len() == 2));
    let image = cluster.at(leader).take_image();
    let base = cluster.at(leader).consensus.compact(image, 0).expect("a base");
    assert_eq!(Base::from_bytes(&base.to_bytes()), Some(base));
    cluster.settle();
    cluster.propose(leader, "a third");
    cluster.kill(leader, false);
    let disk = cluster.at(leader).disk.clone();
    let names = disk.list().unwrap();
    let first = names.iter().filter(|name| name.ends_with(".wal")).min().unwrap();
    let mut head = [0; 12];
    disk.open(first, false).unwrap().read_at(&mut head, 0).unwrap();
    assert_eq!(head[8], 7, "{first}");
    assert_eq!(recovered(&disk).base().index, image);
    assert_eq!(refused(recovered(&disk)), line);
    let mut config = Config::new(ReplicaId(1), (1..=3).map(ReplicaId).collect());
    config.places.insert(ReplicaId(1), Place::at("moved"));
    let moved = Consensus::new(config, recovered(&disk), None).unwrap();
    assert_eq!(moved.members()[0].place.address, "moved", "the agreement is on the level alone");
    cluster.restart(leader);
    assert_eq!(agreed(&cluster), vec![NEW.0; 3]);
}

#[test]
fn a_member_that_is_older_gets_nothing_and_one_that_says_its_level_is_filled() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    all_say(&mut cluster, NEW);
    let leader = raise(&mut cluster);
    let old = 1 + leader % 3;
    let sent = |cluster: &mut Cluster| {
        cluster.trace = true;
        cluster.events.clear();
        cluster.propose(leader, "entry");
        (0..5).for_each(|_| cluster.tick());
        let to = format!("{leader} -> {old}:");
        cluster.events.iter().filter(|event| event.trim().starts_with(&to)).count()
    };
    assert!(sent(&mut cluster) > 0);
    cluster.kill(old, true);
    cluster.restart(old);
    assert_eq!(sent(&mut cluster), 0, "it has said nothing");
    cluster.at(leader).consensus.hear_level(ReplicaId(old), Level::FIRST);
    assert_eq!(sent(&mut cluster), 0, "it is older");
    cluster.at(leader).consensus.hear_level(ReplicaId(old), NEW);
    let third = 6 - leader - old;
    let peers = [(old, leader), (old, third), (third, old)];
    for (at, peer) in peers {
        cluster.at(at).consensus.hear_level(ReplicaId(peer), NEW);
    }
    cluster.tick_until("it has all", |cluster| cluster.at(old).executed.len() == 3);
}

#[test]
fn a_replica_is_taken_in_when_it_says_its_level_and_knows_the_agreement_from_an_image() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    cluster.brings_images = true;
    all_say(&mut cluster, NEW);
    let leader = raise(&mut cluster);
    cluster.propose(leader, "entry");
    let image = cluster.at(leader).take_image();
    cluster.at(leader).consensus.compact(image, 0).expect("a base");
    cluster.settle();
    let new = cluster.join();
    let change = Change::Add(ReplicaId(new), address(new), Kind::Active);
    let go_on = |cluster: &mut Cluster| {
        let progress = cluster.at(leader).consensus.change(&change, false, |_| true).unwrap();
        // It said hello.
        cluster.at(leader).consensus.request_rejoin(ReplicaId(new), 1);
        cluster.tick();
        progress
    };
    for _ in 0..50 {
        assert_eq!(go_on(&mut cluster), Progress::Unreached, "it may be older");
    }
    all_say(&mut cluster, NEW);
    cluster.tick_until("it is a member", |cluster| go_on(cluster) == Progress::Done);
    assert_eq!(agreed(&cluster), vec![NEW.0; 4]);
    let consensus = &cluster.at(new).consensus;
    assert_eq!((consensus.first_index(), consensus.members().len()), (image.next(), 4));
}

#[test]
fn a_record_that_is_not_committed_is_needed_until_another_takes_its_place() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    all_say(&mut cluster, NEW);
    let leader = cluster.elect();
    let needed = |cluster: &mut Cluster| {
        let consensus = &cluster.at(leader).consensus;
        (consensus.needed_level(), consensus.agreed_level())
    };
    let version = cluster.at(leader).consensus.members_version();
    cluster.isolate(leader);
    cluster.at(leader).consensus.raise_level();
    cluster.settle();
    assert_eq!(needed(&mut cluster), (NEW, Level::FIRST));
    assert_ne!(cluster.at(leader).consensus.members_version(), version, "hellos say it");
    // On its disk, too.
    cluster.kill(leader, false);
    cluster.restart(leader);
    assert_eq!(needed(&mut cluster), (NEW, Level::FIRST));
    let next = cluster.elect();
    cluster.propose(next, "instead of it");
    cluster.cut.clear();
    all_say(&mut cluster, NEW);
    cluster.tick_until("it has that", |cluster| cluster.at(leader).executed.len() == 1);
    assert_eq!(needed(&mut cluster), (Level::FIRST, Level::FIRST));
}

#[test]
fn what_a_program_does_not_know_is_not_taken() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    all_say(&mut cluster, NEW);
    let leader = cluster.elect();
    let other = 1 + leader % 3;
    cluster.at(leader).consensus.raise_level();
    cluster.run(leader);
    let mut appends = cluster.network.iter().map(|(_, message)| message.bytes.clone());
    let append = appends.find(|bytes| wire::level(bytes) == Ok(NEW)).expect("the record");
    let mut old = start(Recovered::default(), Level::FIRST).unwrap();
    let to_old = {
        // To the member with that number, whose log is empty.
        let mut bytes = append.clone();
        bytes[12..20].copy_from_slice(&1_u64.to_le_bytes());
        bytes
    };
    let from = if leader == 1 { other } else { leader };
    let mut bytes = to_old;
    bytes[4..12].copy_from_slice(&from.to_le_bytes());
    let too_new = TooNew { needed: NEW, known: Level::FIRST };
    assert_eq!(old.step(ReplicaId(from), &bytes), Err(StepError::TooNew(too_new)));
    assert_eq!((old.last_index(), old.term().0), (LogIndex(0), 0), "nothing of it");
    let mut new = start(Recovered::default(), NEW).unwrap();
    assert_eq!(new.step(ReplicaId(from), &bytes), Ok(()));
}
