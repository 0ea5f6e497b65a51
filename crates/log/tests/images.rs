//! Logs in memory and on disk that forget what images hold, and replicas that are filled from images: the rules one by one, and then random histories.

mod cluster;

use cluster::{Cluster, Executed, Replica};
use skein_log::{
    Base, Config, Consensus, Durability, NewBase, Recovered, Role, StepError, disk::sim::SimRng,
};
use skein_model::{LogIndex, ReplicaId, Term};
use std::collections::BTreeMap;

const BOTH: [Durability; 2] = [Durability::Fsync, Durability::Memory];

fn propose_some(cluster: &mut Cluster, leader: u64, count: usize) {
    (0..count).for_each(|n| cluster.propose(leader, &format!("some {n:020}")));
}

/// A follower that was away while the others forgot what it needs; the leader, it, and the base.
fn left_behind(durability: Durability) -> (Cluster, u64, u64, LogIndex) {
    let mut cluster = Cluster::new(5, durability);
    let leader = cluster.elect();
    let away = leader % 5 + 1;
    propose_some(&mut cluster, leader, 3);
    cluster.isolate(away);
    propose_some(&mut cluster, leader, 5);
    cluster.tick();
    for id in (1..=5).filter(|id| *id != away) {
        let image = cluster.at(id).take_image();
        cluster.at(id).consensus.compact(image, 0).expect("a base");
    }
    let base = LogIndex(cluster.at(leader).consensus.first_index().0 - 1);
    cluster.settle();
    (cluster, leader, away, base)
}

fn is_filled(replica: &Replica, leader: &Replica) -> bool {
    replica.executed == leader.executed
}

fn agree(cluster: &Cluster, one: u64, other: u64) -> bool {
    is_filled(&cluster.replicas[&one], &cluster.replicas[&other])
}

#[test]
fn only_what_is_applied_and_durable_here_is_forgotten() {
    for durability in BOTH {
        let mut cluster = Cluster::new(3, durability);
        let leader = cluster.elect();
        propose_some(&mut cluster, leader, 4);
        cluster.at(leader).slow_disk = true;
        propose_some(&mut cluster, leader, 4);
        let consensus = &mut cluster.at(leader).consensus;
        let (applied, persisted) = (consensus.applied(), consensus.status().persisted);
        assert_eq!(applied > persisted, durability == Durability::Fsync);
        assert_eq!(consensus.base_at(applied.next()), None);
        let whole = consensus.base_at(LogIndex(3)).unwrap();
        assert_eq!(consensus.compact(applied.next(), 0), None, "it is not applied");
        if applied > persisted {
            assert_eq!(consensus.compact(applied, 5), None, "a crash would leave a shorter log");
        }
        let base = consensus.compact(persisted, 1).unwrap();
        assert_eq!((base.index, base.term), (LogIndex(persisted.0 - 1), Term(1)));
        assert_eq!(base.members, whole.members);
        assert_eq!(consensus.first_index(), base.first_index());
        assert_eq!(consensus.base_at(LogIndex(3)), None, "it is before the base");
        assert_eq!(consensus.base_at(base.index), Some(base.clone()));
        assert_eq!(consensus.compact(persisted, 1), None);
        assert_eq!(consensus.compact(persisted, 99), None);
        let refused = consensus.entries(base.index, 100).unwrap_err();
        assert!(refused.to_string().contains("is no longer in it"), "{refused}");
        let bytes = Base::from_bytes(&base.to_bytes());
        assert_eq!(bytes, Some(base.clone()));
        assert_eq!(Base::from_bytes(&base.to_bytes()[1..]), None);
        // The log on disk learns of it by the next batch.
        let persist = consensus.take_ready().and_then(|batch| batch.persist);
        assert_eq!(persist.is_some(), durability == Durability::Fsync);
        if let Some(persist) = persist {
            assert_eq!(persist.base, Some(NewBase::Forget(Box::new(base))));
            assert_eq!(persist.hard_state.map(|state| state.commit), Some(applied));
        }
    }
}

#[test]
fn a_log_in_memory_is_bounded_by_what_it_forgets() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    let mut most = 0;
    for round in 0..20 {
        propose_some(&mut cluster, leader, 50);
        for id in 1..=3 {
            let image = cluster.at(id).take_image();
            cluster.at(id).images.retain(|index, _| *index == image.0);
            cluster.at(id).consensus.compact(image, 10).expect("a base");
            let bytes = cluster.at(id).consensus.status().recent_bytes;
            most = most.max(bytes);
            assert!(bytes <= 11 * 25, "round {round}, replica {id}: {bytes} bytes");
        }
    }
    assert!(most > 0);
    cluster.elect();
}

#[test]
fn the_members_of_a_base_are_those_of_its_entry() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    let leader = cluster.elect();
    propose_some(&mut cluster, leader, 2);
    let before = cluster.at(leader).consensus.base();
    let lost = leader % 3 + 1;
    cluster.kill(lost, true);
    cluster.restart(lost);
    cluster.at(leader).consensus.request_rejoin(ReplicaId(lost), 1);
    cluster.tick_until("it has a vote", |c| c.at(lost).consensus.role() == Role::Follower);
    cluster.tick_until("all know", |c| c.at(leader).consensus.status().is_whole());
    let consensus = &mut cluster.at(leader).consensus;
    let after = consensus.base();
    assert_ne!(before.members, after.members);
    assert_eq!(consensus.base_at(before.index), Some(before.clone()));
    assert_eq!(consensus.compact(before.index, 0), Some(before.clone()));
    assert_eq!(consensus.base_at(after.index), Some(after.clone()));
    assert_eq!(consensus.compact(after.index, 0), Some(after));
}

#[test]
fn impossible_members_are_no_log() {
    let mut cluster = Cluster::new(3, Durability::Memory);
    cluster.elect();
    propose_some(&mut cluster, 1, 0);
    let base = cluster.at(1).consensus.base();
    let mut bytes = base.to_bytes();
    // The last voter is the first one again.
    let voters = 8 + 8 + 1 + 2;
    bytes.copy_within(voters..voters + 8, voters + 16);
    let base = Base::from_bytes(&bytes).unwrap();
    let config = Config::new(ReplicaId(1), (1..=3).map(ReplicaId).collect());
    let refused = Consensus::new(config, Recovered::after(base), None).err().unwrap();
    assert!(refused.to_string().contains("its members are impossible"), "{refused}");
}

#[test]
fn a_follower_that_was_left_behind_is_filled_from_an_image() {
    for durability in BOTH {
        let (mut cluster, leader, away, base) = left_behind(durability);
        cluster.cut.clear();
        cluster.tick_until("it is named", |c| !c.at(away).refused.is_empty());
        let below = cluster.at(leader).consensus.take_below_base();
        assert_eq!(below, [(ReplicaId(away), 0)]);
        let refused = cluster.at(away).refused[0];
        assert!(matches!(refused, StepError::BelowBase { first, .. } if first == base.next()));
        // An image from before the base is of no use.
        cluster.at(away).take_image();
        (0..5).for_each(|_| cluster.tick());
        assert!(!agree(&cluster, away, leader));
        cluster.bring_image(leader, away, base.0);
        cluster.tick_until("it is filled", |c| agree(c, away, leader));
        propose_some(&mut cluster, leader, 3);
        (0..5).for_each(|_| cluster.tick());
        assert!(agree(&cluster, away, leader));
        assert!(cluster.at(away).consensus.first_index() > base);
        // It has its vote and its log as ever.
        cluster.kill(leader, true);
        let next = cluster.elect();
        propose_some(&mut cluster, next, 1);
        cluster.tick_until("all have it", |c| agree(c, away, next));
    }
}

#[test]
fn an_image_that_a_follower_lost_again_is_not_continued_from() {
    let (mut cluster, leader, away, base) = left_behind(Durability::Fsync);
    cluster.cut.clear();
    cluster.bring_image(leader, away, base.0);
    // Its word arrives, and the leader's snapshot is on its way.
    let mut snapshot = None;
    for _ in 0..20 {
        (1..=5).for_each(|id| cluster.at(id).consensus.tick());
        (1..=5).for_each(|id| cluster.run(id));
        for (from, message) in std::mem::take(&mut cluster.network) {
            let to = message.to.0;
            let what = skein_log::wire::describe(&message.bytes).unwrap();
            if what.starts_with("Snapshot") {
                assert_eq!((from, to), (leader, away));
                snapshot = Some(message);
            } else {
                // BelowBase and others are answered.
                let _ = cluster.at(to).consensus.step(ReplicaId(from), &message.bytes);
                cluster.run(to);
            }
        }
        if snapshot.is_some() {
            break;
        }
    }
    let snapshot = snapshot.expect("the leader sends it");
    let image = std::mem::take(&mut cluster.at(away).images);
    cluster.at(away).hold_images();
    let last = cluster.at(away).consensus.last_index();
    let error = cluster.at(away).consensus.step(ReplicaId(leader), &snapshot.bytes).unwrap_err();
    assert_eq!(error, StepError::NoImage { from: ReplicaId(leader), index: base });
    cluster.settle();
    (0..9).for_each(|_| cluster.tick());
    assert_eq!(cluster.at(away).consensus.last_index(), last, "the log is as it was");
    assert_eq!(cluster.at(leader).consensus.take_below_base(), [(ReplicaId(away), 0)]);
    cluster.at(away).images = image;
    cluster.at(away).hold_images();
    cluster.tick_until("it is filled", |c| agree(c, away, leader));
    // The same once more, long after: nothing happens.
    let filled = cluster.at(away).consensus.status();
    assert_eq!(cluster.at(away).consensus.step(ReplicaId(leader), &snapshot.bytes), Ok(()));
    cluster.settle();
    assert_eq!(cluster.at(away).consensus.status(), filled);
}

#[test]
fn a_snapshot_that_is_lost_is_sent_again() {
    let (mut cluster, leader, away, base) = left_behind(Durability::Memory);
    cluster.bring_image(leader, away, base.0);
    cluster.cut.clear();
    let mut lost = 0;
    for _ in 0..400 {
        (1..=5).for_each(|id| cluster.at(id).consensus.tick());
        (1..=5).for_each(|id| cluster.run(id));
        while let Some((from, message)) = cluster.network.pop_front() {
            let what = skein_log::wire::describe(&message.bytes).unwrap();
            if what.starts_with("Snapshot") && lost < 3 {
                lost += 1;
                continue;
            }
            let to = message.to.0;
            cluster.at(to).consensus.step(ReplicaId(from), &message.bytes).unwrap();
            cluster.run(to);
        }
    }
    assert_eq!(lost, 3);
    assert!(agree(&cluster, away, leader));
    assert_eq!(cluster.leader(), Some(leader));
}

/// Its answers were lost, and the leader has forgotten what it takes the follower not to have.
#[test]
fn a_follower_that_has_more_than_the_leader_knows_needs_no_image() {
    for durability in BOTH {
        let mut cluster = Cluster::new(3, durability);
        let leader = cluster.elect();
        let silent = leader % 3 + 1;
        cluster.cut.insert((silent, leader));
        propose_some(&mut cluster, leader, 5);
        let last = cluster.at(leader).consensus.last_index();
        assert_eq!(cluster.at(silent).consensus.last_index(), last);
        let image = cluster.at(leader).take_image();
        cluster.at(leader).consensus.compact(image, 0).unwrap();
        cluster.at(leader).consensus.peer_lost(ReplicaId(silent));
        cluster.cut.clear();
        cluster.settle();
        (0..20).for_each(|_| cluster.tick());
        propose_some(&mut cluster, leader, 1);
        cluster.tick_until("it goes on", |c| agree(c, silent, leader));
        assert_eq!(cluster.at(silent).refused, []);
    }
}

/// Its log is as long as the leader's base, but other entries are in it.
#[test]
fn a_follower_whose_last_entries_are_others_is_filled() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let former = cluster.elect();
    propose_some(&mut cluster, former, 3);
    cluster.isolate(former);
    propose_some(&mut cluster, former, 8);
    cluster.tick_until("another leads", |c| c.leader().is_some_and(|leader| leader != former));
    let leader = cluster.elect();
    propose_some(&mut cluster, leader, 4);
    let image = cluster.at(leader).take_image();
    cluster.at(leader).consensus.compact(image, 0).unwrap();
    cluster.settle();
    assert!(cluster.at(former).consensus.last_index() > image);
    cluster.cut.clear();
    cluster.brings_images = true;
    cluster.tick_until("it is filled", |c| agree(c, former, leader));
}

/// The base becomes durable, or the old log stays; the replica's promises are kept either way.
#[test]
fn a_follower_that_loses_power_while_its_log_is_replaced_is_filled_again() {
    for seed in 0..20 {
        let (mut cluster, leader, away, base) = left_behind(Durability::Fsync);
        cluster.cut.clear();
        cluster.at(away).slow_disk = true;
        cluster.bring_image(leader, away, base.0);
        let last = cluster.at(away).consensus.last_index();
        cluster.tick_until("it continues", |c| c.at(away).consensus.first_index() > base);
        (0..30).for_each(|_| cluster.tick());
        let matched = |c: &mut Cluster| {
            let peers = c.at(leader).consensus.status().peers;
            peers.iter().find(|peer| peer.id.0 == away).unwrap().matched
        };
        assert!(matched(&mut cluster) <= last, "it is not durable, so it is not said");
        cluster.crash(away, seed);
        cluster.restart(away);
        assert_eq!(cluster.at(away).consensus.first_index(), LogIndex(1));
        cluster.tick_until("it is filled", |c| agree(c, away, leader));
        cluster.crash(away, seed);
        cluster.restart(away);
        assert_eq!(cluster.at(away).consensus.first_index(), base.next());
        propose_some(&mut cluster, leader, 2);
        cluster.tick_until("it is filled again", |c| agree(c, away, leader));
    }
}

/// While the new base is not durable, the library takes part in elections with a log that it has not applied.
#[test]
fn a_follower_whose_new_base_is_not_durable_may_campaign() {
    let (mut cluster, leader, away, base) = left_behind(Durability::Fsync);
    cluster.cut.clear();
    cluster.at(away).slow_disk = true;
    cluster.bring_image(leader, away, base.0);
    cluster.tick_until("it continues", |c| c.at(away).consensus.first_index() > base);
    cluster.kill(leader, true);
    cluster.at(away).consensus.campaign_now();
    cluster.settle();
    let next = cluster.elect();
    assert_ne!(next, away);
    cluster.at(away).slow_disk = false;
    propose_some(&mut cluster, next, 2);
    cluster.tick_until("it is filled", |c| agree(c, away, next));
}

#[test]
fn old_entries_that_were_forgotten_while_they_were_read_are_no_error() {
    let mut cluster = Cluster::new(3, Durability::Fsync);
    let leader = cluster.elect();
    let away = leader % 3 + 1;
    cluster.kill(away, true);
    propose_some(&mut cluster, leader, 50);
    cluster.at(leader).consensus.read_aside();
    cluster.restart(away);
    let mut wanted = Vec::new();
    cluster.tick_until("old entries are wanted", |c| {
        wanted = c.at(leader).consensus.take_wanted();
        !wanted.is_empty()
    });
    let image = cluster.at(leader).take_image();
    cluster.at(leader).consensus.compact(image, 0).unwrap();
    cluster.settle();
    for old in wanted {
        let reader = cluster.at(leader).wal.as_ref().unwrap().reader();
        let read = reader.read(old.from, old.to, old.max_bytes);
        assert!(read.is_err());
        cluster.at(leader).consensus.give_old(old.from, read);
    }
    assert!(cluster.at(leader).consensus.take_read_error().is_none());
    cluster.brings_images = true;
    cluster.tick_until("it is filled", |c| agree(c, away, leader));
}

/// A cluster whose history a seed decides.
struct Random {
    cluster: Cluster,
    rng: SimRng,
    durability: Durability,
    proposed: u64,
    /// Who executed what, ever: nothing else may be executed there.
    known: BTreeMap<LogIndex, Executed>,
    resets: usize,
}

impl Random {
    fn new(durability: Durability, seed: u64) -> Self {
        let mut cluster = Cluster::new(3, durability);
        cluster.brings_images = true;
        cluster.loses = Some(SimRng::new(seed));
        let (rng, known) = (SimRng::new(seed), BTreeMap::new());
        Self { cluster, rng, durability, proposed: 0, known, resets: 0 }
    }

    fn any(&mut self) -> u64 {
        1 + self.rng.below(3)
    }

    /// All replicas run and have their votes, in their present lives.
    fn is_whole(&mut self) -> bool {
        let replicas = &self.cluster.replicas;
        let Some(leader) = self.cluster.leader() else { return false };
        let status = replicas[&leader].consensus.status();
        let lives = status.peers.iter().map(|peer| (peer.id.0, peer.incarnation));
        status.is_whole()
            && replicas.values().all(|replica| replica.alive)
            && lives.eq(replicas.iter().map(|(id, replica)| (*id, replica.incarnation)))
    }

    fn rejoin_all(&mut self) {
        let all: Vec<_> =
            self.cluster.replicas.iter().map(|(id, r)| (*id, r.incarnation)).collect();
        for id in 1..=3 {
            for (peer, incarnation) in &all {
                self.cluster.at(id).consensus.request_rejoin(ReplicaId(*peer), *incarnation);
            }
        }
    }

    fn step(&mut self) {
        let id = self.any();
        let alive = self.cluster.at(id).alive;
        match self.rng.below(40) {
            0..6 => {
                if let Some(leader) = self.cluster.leader() {
                    let payload = format!("{}", self.proposed);
                    let proposed = self.cluster.at(leader).consensus.propose(payload.into_bytes());
                    self.proposed += u64::from(proposed.is_ok());
                    self.cluster.settle();
                }
            }
            6..9 if alive => {
                let image = self.cluster.at(id).take_image();
                let keep = self.rng.below(6);
                self.cluster.at(id).consensus.compact(image, keep);
                self.cluster.settle();
                // Images that are not before the durable base are needed.
                let replica = self.cluster.at(id);
                let first = match &replica.wal {
                    Some(wal) => wal.first_index(),
                    None => replica.consensus.first_index(),
                };
                replica.images.retain(|index, _| index + 1 >= first.0);
                replica.hold_images();
            }
            9 if alive && self.is_whole() => {
                self.cluster.kill(id, self.proposed.is_multiple_of(2));
                if self.durability == Durability::Fsync && self.rng.chance(30) {
                    self.cluster.replace_disk(id);
                }
            }
            10 if alive && self.durability == Durability::Fsync => {
                let seed = self.rng.next_u64();
                self.cluster.crash(id, seed);
            }
            11..14 if !alive => {
                self.cluster.restart(id);
            }
            14 => self.cluster.isolate(id),
            15..17 => self.cluster.cut.clear(),
            17 if alive => self.cluster.at(id).slow_disk ^= true,
            18 if alive => self.cluster.at(id).consensus.campaign_now(),
            19 => {
                let peer = self.any();
                if peer != id && alive && !self.cluster.at(peer).alive {
                    self.cluster.at(id).consensus.peer_lost(ReplicaId(peer));
                }
            }
            _ => {
                self.rejoin_all();
                self.cluster.tick();
            }
        }
        self.check();
    }

    /// All executions are parts of one history.
    fn check(&mut self) {
        let continues = |event: &String| event.contains("continues from the image");
        self.resets += self.cluster.events.drain(..).filter(continues).count();
        for (id, replica) in &self.cluster.replicas {
            for executed in &replica.executed {
                let known = self.known.entry(executed.0).or_insert_with(|| executed.clone());
                assert_eq!(known, executed, "replica {id}");
            }
            let indexes: Vec<LogIndex> = replica.executed.iter().map(|e| e.0).collect();
            let all = self.known.keys().take(indexes.len()).copied();
            assert!(all.eq(indexes), "replica {id} left something out");
        }
    }

    fn end(&mut self) {
        self.cluster.cut.clear();
        self.cluster.loses = None;
        for id in 1..=3 {
            self.cluster.at(id).slow_disk = false;
            if !self.cluster.at(id).alive {
                self.cluster.restart(id);
            }
            self.cluster.run(id);
        }
        let mut whole = 0;
        for _ in 0..2000 {
            self.rejoin_all();
            self.cluster.tick();
            whole += u64::from(self.is_whole());
            if whole > 20 {
                break;
            }
        }
        assert!(whole > 20, "the cluster does not become whole");
        let leader = self.cluster.leader().unwrap();
        self.cluster.propose(leader, "the end");
        (0..10).for_each(|_| self.cluster.tick());
        self.check();
        for id in 1..=3 {
            let replica = self.cluster.at(id);
            assert_eq!(replica.executed.last().unwrap().2, "the end", "replica {id}");
            assert_ne!(replica.consensus.role(), Role::Learner);
        }
        assert!(agree(&self.cluster, 1, 2) && agree(&self.cluster, 2, 3));
    }
}

/// `SKEIN_SEED` runs one seed.
#[test]
fn random_histories_are_one_history() {
    let one = std::env::var("SKEIN_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    for durability in BOTH {
        let mut resets = 0;
        for seed in one.map_or(0..150, |seed| seed..seed + 1) {
            let run = std::panic::catch_unwind(|| {
                let mut random = Random::new(durability, seed);
                (0..600).for_each(|_| random.step());
                random.end();
                random.resets
            });
            match run {
                Ok(count) => resets += count,
                Err(panic) => {
                    eprintln!("SKEIN_SEED={seed}, {durability:?}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        assert!(one.is_some() || resets > 100, "{durability:?}: {resets} resets");
        eprintln!("{durability:?}: {resets} resets");
    }
}
