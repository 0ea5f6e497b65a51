//! What goes wrong, and when it ends.

use super::{Event, World, YEAR_US};
use crate::{options::Break, replica::Replica};
use skein_log::{
    Durability,
    disk::sim::{Faults, SimDisk, SimRng},
    wal::WalError,
};
use skein_model::ReplicaId;
use std::collections::BTreeSet;

impl World {
    pub(super) fn end_faults(&mut self) {
        self.trace(|| "faults end".to_owned());
        self.cut.clear();
        let starts_at = 1000;
        for id in 1..=self.plan.replicas {
            if self.options.broken != Some(Break::LyingDisk) {
                self.at(id).disk.set_faults(Faults::default());
            }
            self.schedule(starts_at, Event::Start(id));
            self.schedule(starts_at, Event::Continue(id));
            self.schedule(starts_at, Event::CatchUp(id));
        }
    }

    /// A memory-only log promises to survive a minority: nobody may die before the last one that did has its vote back.
    pub(super) fn may_die(&self) -> bool {
        self.plan.durability == Durability::Fsync || self.is_whole()
    }

    /// Everyone runs, has its vote, and the leader knows it.
    fn is_whole(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let process = self.replicas[&leader].process.as_ref().expect("it leads");
        let status = process.consensus.status();
        // The broken rule hides who forgot.
        let forgets = self.options.broken == Some(Break::ForgetIncarnation);
        let is_known = |replica: &Replica| {
            let incarnation = if forgets { 0 } else { replica.incarnation };
            status.peers.iter().any(|peer| (peer.id, peer.incarnation) == (replica.id, incarnation))
        };
        status.is_whole()
            && self.replicas.values().all(|replica| replica.process.is_some() && is_known(replica))
    }

    pub(super) fn fault(&mut self) -> Result<(), String> {
        if self.now_us >= self.plan.faults_until_us {
            return Ok(());
        }
        let next = 1000 + self.rng.below(2 * self.plan.fault_every_us);
        self.schedule(next, Event::Fault);
        self.faults += 1;
        let any = 1 + self.rng.below(self.plan.replicas);
        // Leaders are where it hurts.
        let id = if self.rng.chance(50) { self.leader().unwrap_or(any) } else { any };
        match self.rng.below(11) {
            0 => self.partition(),
            1 => {
                let other = 1 + self.rng.below(self.plan.replicas);
                self.trace(|| format!("{id} -> {other}: cut"));
                self.cut.insert((id, other));
            }
            2 => self.cut.clear(),
            3 | 4 if self.may_die() => {
                let noticed = self.rng.chance(70);
                self.kill(id, noticed);
            }
            5 | 6 if self.may_die() => {
                self.kill(id, false);
                let mut chance = SimRng::new(self.rng.next_u64());
                self.at(id).disk.crash(&mut chance);
                self.trace(|| format!("{id}: loses power"));
            }
            7 if self.rng.chance(30) && self.is_whole() => {
                // The machine dies with its disk; another one takes its place.
                self.kill(id, true);
                let replica = self.at(id);
                replica.disk = SimDisk::new();
                replica.begin = Some(replica.incarnation + 1);
                self.trace(|| format!("{id}: loses its disk"));
            }
            7 => {
                self.at(id).stopped = true;
                let delay = 10_000 + self.rng.below(700_000);
                self.trace(|| format!("{id}: stopped"));
                self.schedule(delay, Event::Continue(id));
            }
            8 => return self.break_link(id),
            9 => {
                if let Some(process) = self.process(id) {
                    process.consensus.transfer_leadership(ReplicaId(any));
                }
                return self.turn(id);
            }
            _ => self.annoy(id),
        }
        Ok(())
    }

    /// A write or a sync failed: the node stops. It starts again on a disk that works, with what can be read; or the machine does, with what was
    /// durable.
    pub(super) fn disk_failed(&mut self, id: u64, error: &WalError) {
        self.trace(|| format!("{id}: stops: {error}"));
        self.kill(id, true);
        if self.rng.chance(50) {
            let mut chance = SimRng::new(self.rng.next_u64());
            self.at(id).disk.crash(&mut chance);
        }
    }

    fn partition(&mut self) {
        let side: BTreeSet<u64> =
            (1..=self.plan.replicas).filter(|_| self.rng.chance(50)).collect();
        self.trace(|| format!("partition: {side:?} alone"));
        for from in 1..=self.plan.replicas {
            for to in 1..=self.plan.replicas {
                if side.contains(&from) != side.contains(&to) {
                    self.cut.insert((from, to));
                }
            }
        }
        let delay = 50_000 + self.rng.below(1_000_000);
        self.schedule(delay, Event::Heal);
    }

    /// A connection between two nodes closes, and both notice; neither is dead.
    fn break_link(&mut self, id: u64) -> Result<(), String> {
        let other = id % self.plan.replicas + 1;
        self.trace(|| format!("{id} and {other}: connection closes"));
        for (replica, peer) in [(id, other), (other, id)] {
            let (delay, life) = (self.delay(), self.at(replica).life);
            self.schedule(delay, Event::PeerLost { replica, life, peer });
        }
        Ok(())
    }

    /// Smaller things.
    fn annoy(&mut self, id: u64) {
        if self.options.broken == Some(Break::WrongServer) {
            if let Some(process) = self.process(id) {
                process.server.lies = true;
            }
            return;
        }
        match self.rng.below(3) {
            0 => {
                // The clock jumps, forwards or back; that of the first replica by a year.
                let reach = if id == 1 { YEAR_US } else { 2_500_000 };
                let off = self.rng.below(2 * reach);
                self.at(id).clock_offset_us = off as i64 - reach as i64;
            }
            1 => {
                if let Some(process) = self.process(id) {
                    process.lagging = true;
                    self.schedule(200_000, Event::CatchUp(id));
                }
            }
            _ if self.plan.durability == Durability::Fsync && self.options.broken.is_none() => {
                // The next sync fails, and the process stops by it.
                let drop_dirty = self.rng.chance(50);
                let faults = Faults { fail_sync: true, drop_dirty, ..Faults::default() };
                self.at(id).disk.set_faults(faults);
            }
            _ => {}
        }
    }
}
