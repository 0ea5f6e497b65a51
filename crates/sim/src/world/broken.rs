//! One fault, chosen by a test: a replica that is broken for good while the others are well, or a damaged disk.

use super::{Event, Life, World};
use crate::machine::{Process, Servers};
use crate::options::{Brokenness, Damage, DamageKind, Scenario, Whose, YEAR_US};
use skein_log::disk::Disk;
use skein_model::LogIndex;
use skein_replica::status::ReplicaState;

const SECTOR_BYTES: usize = 512;
/// The additional time of a sync of a slow disk.
const SLOW_DISK_US: u64 = 50_000;
const ABORTED: i32 = 6;
/// A node is started again after so long without clients and more,
const QUIET_US: u64 = 5_000_000;
const ANY_US: u64 = 4_000_000;
/// and away for this long.
const AWAY_US: u64 = 50_000;
/// Servers that differ on purpose begin with that after so many entries.
const DIFFERS_AFTER: u64 = 30;

/// A node that was started again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Return {
    /// When,
    since_us: u64,
    /// and how long it took until its server was in step; 0: it is not yet.
    in_step_us: u64,
}

impl World {
    pub(super) fn break_one(&mut self) -> Result<(), String> {
        let Some(leader) = self.leader() else {
            self.schedule(10_000, Event::Break);
            return Ok(());
        };
        match self.options.scenario {
            Scenario::Random | Scenario::SlowFollowers | Scenario::Idle(_) | Scenario::Turns => {
                Ok(())
            }
            Scenario::Returns if self.returns.is_none() => {
                // When nobody has asked for a while, at any time between two syncs.
                self.returns = Some(Return::default());
                let delay = QUIET_US + self.rng.below(ANY_US);
                self.schedule(delay, Event::Break);
                Ok(())
            }
            Scenario::Returns => {
                self.broken = leader % self.plan.replicas + 1;
                self.kill(self.broken, true);
                self.schedule(AWAY_US, Event::Start(self.broken));
                self.returns = Some(Return { since_us: self.now_us + AWAY_US, in_step_us: 0 });
                Ok(())
            }
            Scenario::Refuted => {
                self.refute(leader);
                Ok(())
            }
            Scenario::Behind => {
                self.faults += 1;
                for id in self.ids() {
                    self.kill(id, true);
                    self.schedule(AWAY_US, Event::Start(id));
                }
                Ok(())
            }
            Scenario::Broken(how, whose) => {
                let id = match whose {
                    Whose::Leader => leader,
                    Whose::Follower => leader % self.plan.replicas + 1,
                };
                self.broken = id;
                self.break_for_good(id, how)
            }
            Scenario::Asks(asks) => {
                self.ask_for(asks, leader);
                Ok(())
            }
            Scenario::Damaged(damage) => {
                let id = leader % self.plan.replicas + 1;
                self.broken = id;
                self.damage(id, damage)
            }
        }
    }

    /// All servers but one begin to differ, alike; and when that one was found to be another, their nodes are started again.
    fn refute(&mut self, leader: u64) {
        if self.broken == 0 {
            self.broken = leader % self.plan.replicas + 1;
            let process = self.machines[&leader].process.as_ref().expect("it leads");
            let from = LogIndex(process.replica.consensus().last_index().0 + DIFFERS_AFTER);
            self.trace(|| format!("all but {}: servers answer otherwise from {from}", self.broken));
            for id in self.others() {
                let process = self.at(id).process.as_mut().expect("it runs");
                let server = process.server.as_mut().expect("it runs");
                server.program.differs_from = Some(from);
                process.differs = server.generation;
            }
        }
        let process = self.machines[&self.broken].process.as_ref().expect("it runs");
        if process.metrics.divergences.get() == 0 {
            return self.schedule(10_000, Event::Break);
        }
        for id in self.others() {
            self.kill(id, true);
        }
        self.faults += 1;
    }

    /// All but the broken one.
    fn others(&self) -> Vec<u64> {
        self.ids().into_iter().filter(|id| *id != self.broken).collect()
    }

    /// A node has done something: it may be the one that was started again.
    pub(super) fn note_return(&mut self, id: u64) {
        let Some(Return { since_us, in_step_us }) = &mut self.returns else { return };
        if id == self.broken && *in_step_us == 0 && self.now_us >= *since_us {
            let process = self.machines[&id].process.as_ref();
            let runs = |p: &Process| p.replica.snapshot().replica.state == ReplicaState::Running;
            *in_step_us = if process.is_some_and(runs) { self.now_us - *since_us } else { 0 };
        }
    }

    /// After how long the server of a node that was started again was in step.
    pub(super) fn in_step_after_us(&self) -> u64 {
        self.returns.map_or(0, |returns| returns.in_step_us)
    }

    fn break_for_good(&mut self, id: u64, how: Brokenness) -> Result<(), String> {
        self.trace(|| format!("{id}: is broken for good: {how:?}"));
        let others: Vec<u64> = (1..=self.plan.replicas).filter(|other| *other != id).collect();
        let machine = self.at(id);
        machine.lost = true;
        match how {
            Brokenness::Dead => self.kill(id, true),
            Brokenness::Gone => self.kill(id, false),
            Brokenness::Stopped => machine.stopped = true,
            Brokenness::CutOff => {
                self.network
                    .cut
                    .extend(others.iter().flat_map(|other| [(id, *other), (*other, id)]));
            }
            Brokenness::Deaf => self.network.cut.extend(others.iter().map(|other| (*other, id))),
            Brokenness::Mute => self.network.cut.extend(others.iter().map(|other| (id, *other))),
            Brokenness::DiskHangs => {
                machine.process.as_mut().expect("it runs").disk_hangs = true;
            }
            Brokenness::DiskSlow => machine.slow_disk_us = SLOW_DISK_US,
            Brokenness::DiskFull => {
                machine.process.as_mut().expect("it runs").replica.env.full = true;
            }
            Brokenness::ServerHangs => self.spoil_servers(id, Servers::Hang),
            Brokenness::ServerEnds => self.spoil_servers(id, Servers::End),
            Brokenness::ServerRaves => self.spoil_servers(id, Servers::Rave),
            Brokenness::ClockAhead => machine.clock_offset_us = YEAR_US,
        }
        self.round(id)
    }

    fn spoil_servers(&mut self, id: u64, how: Servers) {
        self.at(id).servers = how;
        let life = self.life(id);
        let process = self.at(id).process.as_mut().expect("it runs");
        if let Some(server) = &process.server {
            let generation = server.generation;
            self.schedule(0, Event::Spoil(life, generation));
        }
    }

    /// A server of a machine on which none works.
    pub(super) fn spoil(&mut self, life: Life, generation: u64) {
        let id = life.replica;
        if !self.lives(life) {
            return;
        }
        let how = self.machines[&id].servers;
        let process = self.at(id).process.as_mut().expect("it lives");
        let Some(server) = process.server.as_mut().filter(|s| s.generation == generation) else {
            return;
        };
        match how {
            Servers::Work => {}
            Servers::Hang => process.server_hangs = true,
            Servers::Rave => server.program.raves = true,
            Servers::End if process.server_lives => self.end_server(id, ABORTED),
            Servers::End => {}
        }
    }

    /// A machine dies, and comes back with this damage.
    fn damage(&mut self, id: u64, damage: Damage) -> Result<(), String> {
        let process = self.at(id).process.as_mut().expect("it runs");
        if process.writing.is_some() {
            // Unsynced data promise nothing: they would hide the damage.
            self.schedule(100, Event::Break);
            return Ok(());
        }
        process.witness().map_err(|error| format!("the witness cannot be written: {error}"))?;
        self.kill(id, true);
        let disk = self.machines[&id].disk.clone();
        let mut names = Disk::list(&disk).expect("a disk that works");
        names.retain(|name| name != "lock");
        let Some(name) = names.get(damage.file) else { return Ok(()) };
        let mut bytes = disk.bytes(name).expect("it is listed");
        let start = damage.sector * SECTOR_BYTES;
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        if start >= written {
            return Ok(());
        }
        let end = bytes.len().min(start + SECTOR_BYTES);
        self.trace(|| format!("{id}: {damage:?} in {name}, from {start} of {written}"));
        self.at(id).rotten = true;
        self.faults += 1;
        match damage.kind {
            DamageKind::FlipFirst => bytes[start] ^= 1,
            DamageKind::FlipMiddle => bytes[(start + end.min(written)) / 2] ^= 0x10,
            DamageKind::FlipLast => bytes[end.min(written) - 1] ^= 0x80,
            DamageKind::Zeroed => bytes[start..end].fill(0),
            DamageKind::Garbage => bytes[start..end].fill(0xa5),
            DamageKind::Misdirected => {
                let before = start.saturating_sub(SECTOR_BYTES);
                bytes.copy_within(before..before + (end - start), start);
            }
            DamageKind::Cut => bytes.truncate(start),
            DamageKind::Unreadable => {
                disk.break_sector(name, start);
                return Ok(());
            }
            DamageKind::Missing => {
                Disk::remove(&disk, name).expect("it is there");
                Disk::sync_dir(&disk).expect("a disk that works");
                return Ok(());
            }
            DamageKind::Swapped => {
                let other = &names[(damage.file + 1) % names.len()];
                let theirs = disk.bytes(other).expect("it is listed");
                disk.set_bytes(other, bytes);
                bytes = theirs;
            }
        }
        disk.set_bytes(name, bytes);
        Ok(())
    }
}
