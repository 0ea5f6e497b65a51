//! Faults, and their ends.

use super::operator::LEAST;
use super::{Event, Life, World};
use crate::machine::{Machine, Process};
use crate::options::{Break, YEAR_US};
use crate::server::{BROKEN, ENDS, REFUSED, SILENT};
use crate::shelf::{Shelf, Shelved};
use skein_log::disk::Disk;
use skein_log::disk::sim::{Faults, SimDisk, SimRng};
use skein_log::{Durability, Role};
use skein_model::LogIndex;
use skein_replica::config::Kind;
use skein_replica::majority;
use skein_replica::replica::upgrade::Wanted;
use skein_replica::replica::{Command, Inbox};
use skein_replica::status::ReplicaState;
use std::collections::BTreeSet;
use std::time::Duration;

const SEGFAULT: i32 = 11;

impl World {
    pub(super) fn end_faults(&mut self) {
        self.trace(|| "faults end".to_owned());
        self.heal();
        let starts_at = 1000;
        for id in self.ids() {
            if self.machines[&id].lost {
                continue;
            }
            if self.options.broken != Some(Break::LyingDisk) {
                self.at(id).disk.set_faults(Faults::default());
            }
            if let Some(process) = &mut self.at(id).process {
                process.replica.env.refuses = 0;
            }
            self.schedule(starts_at, Event::Start(id));
            self.schedule(starts_at, Event::Continue(id));
            self.schedule(starts_at, Event::ServerGoesOn(id));
            self.schedule(starts_at, Event::Room(id));
            self.schedule(starts_at, Event::DiskWorks(id));
        }
    }

    /// A memory-only log promises to survive a minority: no node may die before the last dead one has its vote back. One of three may while the operator changes the members.
    pub(super) fn may_die(&self) -> bool {
        self.plan.durability == Durability::Fsync || self.is_whole() || self.operator.spare
    }

    /// Nor one that alone has what a witness has forgotten.
    fn may_forget(&self, id: u64) -> bool {
        self.plan.durability == Durability::Fsync || self.can_do_without(id)
    }

    /// A majority is left without any one of the members, and of their servers.
    fn are_enough(&self) -> bool {
        self.members().len() >= LEAST
    }

    /// Everyone runs, has its vote, and the leader knows it; and one can be lost.
    pub(super) fn is_whole(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let process = self.machines[&leader].process.as_ref().expect("it leads");
        let status = process.replica.consensus().status();
        // The broken rule hides the replica that forgot.
        let forgets = self.options.broken == Some(Break::ForgetIncarnation);
        let is_known = |machine: &Machine| {
            let incarnation = if forgets { 0 } else { machine.incarnation };
            status.peers.iter().any(|peer| (peer.id, peer.incarnation) == (machine.id, incarnation))
        };
        // One that was withdrawn, or does not know yet that it was removed, is not waited for.
        let members = self.members();
        let goes = |id: &u64| self.operator.going.contains(id) && !members.contains(id);
        status.is_whole()
            && self.are_enough()
            && self.operator.rests()
            && self
                .machines
                .values()
                .filter(|machine| !machine.retired && !goes(&machine.id.0))
                .all(|machine| machine.process.is_some() && machine.is_sound() && is_known(machine))
    }

    /// All servers but this one's run and are in step, or will when they are needed: its end is then its own.
    fn others_servers_run(&self, id: u64) -> bool {
        let other = |machine: &&Machine| !machine.retired && machine.id.0 != id;
        self.machines.values().filter(other).all(|machine| {
            machine.process.as_ref().is_some_and(|process| {
                match process.replica.snapshot().replica.state {
                    ReplicaState::Running => process.server_lives,
                    ReplicaState::Passive | ReplicaState::Witness => true,
                    _ => false,
                }
            })
        })
    }

    pub(super) fn first_leader_dies(&mut self, life: Life) {
        let id = life.replica;
        if self.lives(life) && self.may_die() && self.may_forget(id) {
            self.kill(id, false);
        }
    }

    pub(super) fn fault(&mut self) -> Result<(), String> {
        if self.now_us >= self.plan.faults_until_us {
            return Ok(());
        }
        let next = 1000 + self.rng.below(2 * self.plan.fault_every_us);
        self.schedule(next, Event::Fault);
        self.faults += 1;
        let any = self.any();
        // Faults of leaders have the largest effect.
        let id = if self.rng.chance(50) { self.leader().unwrap_or(any) } else { any };
        if self.machines[&id].lost {
            return Ok(());
        }
        let kind = self.rng.below(20);
        if self.plan.faults & 1 << kind == 0 {
            return Ok(());
        }
        match kind {
            0 => self.partition(),
            1 => {
                let other = self.any();
                self.trace(|| format!("{id} -> {other}: cut"));
                self.network.cut.insert((id, other));
            }
            2 => self.heal(),
            3 | 4 if self.may_die() && self.may_forget(id) => {
                let noticed = self.rng.chance(70);
                self.kill(id, noticed);
            }
            5 | 6 if self.may_die() && self.may_forget(id) => {
                self.kill(id, false);
                let mut chance = SimRng::new(self.rng.next_u64());
                self.at(id).disk.crash(&mut chance);
                self.trace(|| format!("{id}: loses power"));
            }
            7 if self.rng.chance(30) && self.is_whole() && self.can_do_without(id) => {
                // The machine dies with its disk; another one takes its place.
                self.kill(id, true);
                let machine = self.at(id);
                machine.disk = SimDisk::new();
                machine.images = Shelf::default();
                machine.begin = Some(machine.incarnation + 1);
                self.trace(|| format!("{id}: loses its disk"));
            }
            7 => {
                self.at(id).stopped = true;
                let delay = 10_000 + self.rng.below(700_000);
                self.trace(|| format!("{id}: stopped"));
                self.schedule(delay, Event::Continue(id));
            }
            8 => {
                let other = self.next_to(id);
                self.trace(|| format!("{id} and {other}: connection closes"));
                self.break_connection(id, other);
            }
            9 => return self.transfer(id, any),
            10 => {
                // The clock jumps, forwards or back; that of the first replica by a year, where it has two others.
                let far = id == 1 && self.plan.replicas >= LEAST as u64;
                let reach = if far { YEAR_US as u64 } else { 2_500_000 };
                let off = self.rng.below(2 * reach);
                self.at(id).clock_offset_us = off as i64 - reach as i64;
                self.trace(|| {
                    format!(
                        "{id}: its clock is off by {} s",
                        (off as i64 - reach as i64) / 1_000_000
                    )
                });
            }
            11 => self.hang_server(id),
            12 if self.others_servers_run(id) && self.can_do_without(id) => {
                if self.machines[&id].process.as_ref().is_some_and(|p| p.server_lives) {
                    self.end_server(id, SEGFAULT);
                }
            }
            13 => self.lose_some(),
            14 if self.others_servers_run(id) && self.can_do_without(id) => self.rave(id),
            15 if self.is_whole() && self.can_do_without(id) => self.rot(id),
            16 if self.rng.chance(50) => return self.upgrade(id),
            16 => return self.signal(id),
            17 => self.differ(id),
            18 if self.may_rot(id) => self.rot_image(id),
            _ => self.hurt_disk(id),
        }
        Ok(())
    }

    /// An operator sends the server a signal.
    fn signal(&mut self, id: u64) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        if self.machines[&id].stopped {
            return Ok(());
        }
        self.signals.push(answer);
        let life = self.life(id);
        self.tell(life, Inbox::Command(Command::Signal(1, reply)))
    }

    /// An operator upgrades the server, perhaps to one that does not come up, or by a signal that does not end it.
    fn upgrade(&mut self, id: u64) -> Result<(), String> {
        if self.machines[&id].stopped {
            return Ok(());
        }
        let about = ["", "second", "another", "some other", BROKEN, SILENT];
        let mut about = about[self.rng.below(about.len() as u64) as usize].to_owned();
        if about == BROKEN && self.now_us.is_multiple_of(2) {
            about = REFUSED.to_owned();
        }
        let signal = if self.rng.chance(80) { ENDS } else { 1 };
        let wait = Duration::from_millis(200 + self.rng.below(1300));
        self.trace(|| format!("{id}: upgrade to '{about}' by signal {signal}"));
        let (reply, _) = oneshot::channel();
        let life = self.life(id);
        let Some(process) = &self.machines[&id].process else { return Ok(()) };
        let from = process.replica.snapshot().replica.edition.number;
        let wanted = Wanted { about, wait, signal, from };
        self.tell(life, Inbox::Command(Command::Upgrade(wanted, reply)))
    }

    fn transfer(&mut self, id: u64, to: u64) -> Result<(), String> {
        let (reply, _) = oneshot::channel();
        let life = self.life(id);
        if self.machines[&id].stopped {
            return Ok(());
        }
        self.tell(life, Inbox::Command(Command::Transfer(Some(to), reply)))
    }

    fn partition(&mut self) {
        let ids = self.ids();
        let side: BTreeSet<u64> = ids.iter().copied().filter(|_| self.rng.chance(50)).collect();
        self.trace(|| format!("partition: {side:?} alone"));
        for from in &ids {
            for to in &ids {
                if side.contains(from) != side.contains(to) {
                    self.network.cut.insert((*from, *to));
                }
            }
        }
        let delay = 50_000 + self.rng.below(2_000_000);
        self.schedule(delay, Event::Heal);
    }

    /// A server does nothing for a while, or answers wrongly.
    fn hang_server(&mut self, id: u64) {
        let lies = self.options.broken == Some(Break::WrongServer);
        let reach = if self.rng.chance(20) { 8_000_000 } else { 300_000 };
        let delay = 1000 + self.rng.below(reach);
        let Some(process) = &mut self.at(id).process else { return };
        if lies {
            if let Some(server) = &mut process.server {
                server.program.lies = true;
            }
            return;
        }
        process.server_hangs = true;
        self.trace(|| format!("{id}: its server hangs"));
        self.schedule(delay, Event::ServerGoesOn(id));
    }

    /// A server answers from now on with other bytes, which mean the same: it is to be found and rebuilt, also when a majority of servers does not
    /// run. Or its memory alone differs, which images show. One at a time: two that differ alike would be right.
    fn differ(&mut self, id: u64) {
        // Digests are compared when a server rests, or after many entries.
        let often_quiet = self.plan.timer_ns == 0 || self.plan.timer_ns < 50_000_000;
        // Where one replica has no server and another is gone, nobody is left to compare with.
        let comparable = self.plan.all_are_active();
        if !often_quiet || !comparable || !self.are_enough() || self.someone_differs() {
            return;
        }
        // Memory is looked at where images are compared: in few clusters, so it is mostly that there.
        let looked_at = self.plan.checkpoint.leader_intervals > 0;
        let silently = looked_at && !self.now_us.is_multiple_of(8);
        let Some(process) = &mut self.at(id).process else { return };
        let (lives, Some(server)) = (process.server_lives, &mut process.server) else { return };
        if lives && silently {
            server.program.flipped = true;
            self.flips += 1;
            self.trace(|| format!("{id}: its server holds something else"));
        } else if lives {
            server.program.differs = true;
            process.differs = server.generation;
            let generation = server.generation;
            self.different += 1;
            self.trace(|| format!("{id}: its server {generation} answers otherwise"));
        }
    }

    /// Whether a server that answered otherwise than others lives, or may come back.
    pub(super) fn someone_differs(&self) -> bool {
        self.machines
            .values()
            .filter_map(|machine| machine.process.as_ref())
            .filter_map(|process| process.server.as_ref())
            .any(|server| server.program.differs || server.program.flipped)
    }

    /// A server writes impossible data into its arena.
    fn rave(&mut self, id: u64) {
        let Some(process) = &mut self.at(id).process else { return };
        let (lives, Some(server)) = (process.server_lives, &mut process.server) else { return };
        if lives {
            server.program.raves = true;
            self.trace(|| format!("{id}: its server raves"));
        }
    }

    /// A machine dies, and durable bytes have changed when it comes back: flipped, zeroed, cut off, or unreadable. The last synced data have
    /// their witness by then: bytes do not rot within moments.
    fn rot(&mut self, id: u64) {
        let Some(process) = &mut self.at(id).process else { return };
        if process.writing.is_some() || process.witness().is_err() {
            return;
        }
        self.kill(id, true);
        let disk = self.machines[&id].disk.clone();
        let names = Disk::list(&disk).expect("a disk that works");
        let names: Vec<String> = names.into_iter().filter(|name| name != "lock").collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.rng.below(names.len() as u64) as usize];
        let mut bytes = disk.bytes(name).expect("it is listed");
        if bytes.is_empty() {
            return;
        }
        // Preferably where data are, not in the part that is filled ahead.
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let at = self.rng.below(written as u64) as usize;
        match self.rng.below(4) {
            0 => bytes[at] ^= 1 << self.rng.below(8),
            1 => {
                let start = at / 512 * 512;
                let end = bytes.len().min(start + 512);
                bytes[start..end].fill(0);
            }
            2 => bytes.truncate(at),
            _ => {
                disk.break_sector(name, at);
                self.trace(|| format!("{id}: {name} cannot be read at {at}"));
                self.at(id).rotten = true;
                return;
            }
        }
        disk.set_bytes(name, bytes);
        self.trace(|| format!("{id}: {name} rots at {at}"));
        self.at(id).rotten = true;
    }

    /// The disk fails, hangs, or is full.
    fn hurt_disk(&mut self, id: u64) {
        if self.plan.durability != Durability::Fsync || self.options.broken.is_some() {
            return;
        }
        let reach = if self.rng.chance(20) { 4_000_000 } else { 300_000 };
        let delay = 1000 + self.rng.below(reach);
        match self.rng.below(3) {
            0 => {
                // The next sync fails, and the process stops by it.
                let drop_dirty = self.rng.chance(50);
                let faults = Faults { fail_sync: true, drop_dirty, ..Faults::default() };
                self.trace(|| format!("{id}: its next sync fails"));
                self.at(id).disk.set_faults(faults);
                self.at(id).disk_fails = true;
            }
            1 => {
                let Some(process) = &mut self.at(id).process else { return };
                process.disk_hangs = true;
                self.trace(|| format!("{id}: its disk hangs"));
                self.schedule(delay, Event::DiskWorks(id));
            }
            _ => {
                let Some(process) = &mut self.at(id).process else { return };
                process.replica.env.full = true;
                self.trace(|| format!("{id}: its disk is full"));
                self.schedule(delay, Event::Room(id));
            }
        }
    }

    /// Another replica can serve, as it has where its server can begin.
    pub(super) fn can_do_without(&self, id: u64) -> bool {
        self.another_serves(id, false)
    }

    /// Another replica can serve, though this one may lead with its log, if that `stays`.
    fn another_serves(&self, id: u64, stays: bool) -> bool {
        let counts = |m: &&Machine| (stays || m.id.0 != id) && !m.lost && !m.retired;
        let live = self.machines.values().filter(counts);
        let of = |m: &Machine| Some(m.process.as_ref()?.replica.consensus().first_index());
        let bases: Vec<_> = live.filter_map(of).collect();
        let can = |m: &Machine| {
            let Some(process) = &m.process else { return false };
            let consensus = process.replica.consensus();
            let first = consensus.first_index();
            let mut images = m.images.images.values();
            let reaches = |image: &Shelved| !image.rotten && image.file.index.next() >= first;
            let begins = first <= LogIndex(1) || images.any(reaches);
            // A witness cannot send an image of what it has forgotten.
            let goes_on = bases.iter().all(|first| *first <= consensus.applied().next());
            // One that is taken in may be sent away again.
            let votes = consensus.role() != Role::Learner;
            let stays = m.id.0 != id && !m.lost && !m.retired && votes;
            stays && m.kind().can_serve() && begins && goes_on
        };
        self.machines.values().any(can)
    }

    /// Its image may be damaged. Where logs are in memory a replica that starts again has no image, too; that are two faults. So it is while the operator sends a member
    /// away, which may be the only other one with entries that a third needs.
    fn may_rot(&self, id: u64) -> bool {
        let gone = |id: &u64| self.machines[id].retired || self.machines[id].lost;
        self.another_serves(id, true)
            && self.operator.going.iter().all(gone)
            && (self.plan.durability == Durability::Fsync || self.plan.all_are_active())
    }

    /// So many machines have a server while another leads.
    fn servers(&self) -> usize {
        let has = |m: &&Machine| !m.lost && !m.retired && m.kind() == Kind::Active;
        self.machines.values().filter(has).count()
    }

    /// A minority breaks for good; the others must go on without it.
    fn lose_some(&mut self) {
        let some_are = self.machines.values().any(|machine| machine.lost);
        if !self.plan.loses_some || some_are || !self.is_whole() {
            return;
        }
        for _ in 0..self.plan.replicas - majority(self.plan.replicas as usize) as u64 {
            let id = 1 + self.rng.below(self.plan.replicas);
            if self.machines[&id].lost || !self.can_do_without(id) {
                continue;
            }
            self.at(id).lost = true;
            let mut how = self.rng.below(5);
            let in_step = |process: &Process| {
                process.replica.snapshot().replica.state == ReplicaState::Running
            };
            let runs = self.machines[&id].process.as_ref().is_some_and(in_step);
            if how == 4 && (self.servers() == 0 || !runs) {
                // A server that hangs is found out by others that do not, ten times later while it still executes the log.
                how = 3;
            }
            self.trace(|| format!("{id}: lost for good, in way {how}"));
            let Some(process) = &mut self.at(id).process else { continue };
            match how {
                0 => self.kill(id, true),
                1 => self.kill(id, false),
                2 => self.at(id).stopped = true,
                3 => process.disk_hangs = true,
                _ => process.server_hangs = true,
            }
        }
    }
}
