//! Nodes: the work of their event loops and their logs' threads.

use super::{Event, Life, World, us, wall};
use crate::client::End;
use crate::machine::Process;
use crate::options::{Break, Scenario};
use oneshot::TryRecvError;
use skein_log::disk::sim::{Faults, SimDisk, SimRng};
use skein_log::{Durability, OldEntries, Role};
use skein_model::{EntryRef, LogIndex};
use skein_replica::ReplicaError;
use skein_replica::config::Noted;
use skein_replica::replica::Inbox;
use skein_replica::status::ReplicaState;

/// The interval of the log's witness.
const WITNESS_EVERY_US: u64 = 500_000;
/// The most turns without a rest.
const MAX_ROUNDS: usize = 2_000;
/// The duration of a turn.
const TURN_NS: u64 = 5_000;

impl World {
    pub(super) fn start(&mut self, id: u64) -> Result<(), String> {
        let machine = &self.machines[&id];
        if machine.process.is_some() || machine.lost {
            return Ok(());
        }
        self.at(id).images.restart();
        let machine = &self.machines[&id];
        let rng = SimRng::new(self.rng.next_u64());
        let broken = self.options.broken;
        // An operator repaired every fault of the disk.
        let lie_about_sync = broken == Some(Break::LyingDisk);
        machine.disk.set_faults(Faults { lie_about_sync, ..Faults::default() });
        let started = Process::start(machine, &self.plan, broken, rng, self.now_us);
        let (mut process, incarnation, kept) = match started {
            Ok(started) => started,
            Err(ReplicaError::TooNew(error)) => {
                self.at(id).disk.kill_process();
                return self.is_too_old(id, error.needed);
            }
            Err(error) if machine.rotten => {
                self.replace_log(id, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(format!("replica {id} cannot start again: {error}")),
        };
        let machine = &self.machines[&id];
        if machine.begin.is_none() && self.plan.durability == Durability::Fsync {
            // No promise is forgotten, and no damage passes for the truth.
            let known = machine.kept.is_in(&kept, machine.in_flight);
            known.map_err(|why| format!("replica {id} {why}"))?;
        }
        if self.now_us >= self.plan.faults_until_us {
            process.replica.env.refuses = 0;
        }
        let machine = self.at(id);
        machine.kept = kept;
        machine.in_flight = false;
        machine.process = Some(process);
        machine.begin = None;
        machine.disk_fails = false;
        machine.incarnation = incarnation;
        machine.life += 1;
        machine.stopped = false;
        self.trace(|| format!("{id}: starts as incarnation {incarnation}"));
        let life = self.life(id);
        self.schedule(WITNESS_EVERY_US, Event::Witness(life));
        self.schedule(1000, Event::LookAtPeers(life));
        self.round(id)
    }

    /// An operator does what the message suggests: `skein rejoin`.
    fn replace_log(&mut self, id: u64, error: &str) {
        self.trace(|| format!("{id}: is refused and rejoins: {error}"));
        self.refused = true;
        self.begin_anew(id);
    }

    /// Its disk is another one now.
    pub(super) fn begin_anew(&mut self, id: u64) {
        let machine = self.at(id);
        machine.rotten = false;
        machine.disk = SimDisk::new();
        machine.noted = Noted::default();
        machine.begin = Some(machine.incarnation + 1);
        self.schedule(10_000, Event::Start(id));
    }

    /// The process dies; `noticed` if its peers' and clients' connections close with it.
    pub(super) fn kill(&mut self, id: u64, noticed: bool) {
        let machine = self.at(id);
        let Some(process) = machine.process.take() else { return };
        machine.in_flight = process.writing.is_some();
        if let Some(noted) = &process.replica.env.noted {
            machine.noted.clone_from(noted);
        }
        machine.life += 1;
        machine.stopped = false;
        machine.disk.kill_process();
        self.operator.spare = false;
        self.backlog.remove(&id);
        self.trace(|| format!("{id}: dies"));
        for of in process.clients.iter().filter(|_| noticed) {
            let delay = self.delay();
            let (client, epoch) = (of.client, of.epoch);
            self.schedule(
                delay,
                Event::FromNode { client, epoch, bytes: Vec::new(), ended: End::Reset },
            );
        }
        drop(process);
        self.close_all(id, noticed);
        let delay = 50_000 + self.rng.below(700_000);
        self.schedule(delay, Event::Start(id));
    }

    pub(super) fn go_on(&mut self, id: u64) -> Result<(), String> {
        if self.machines[&id].lost || !std::mem::take(&mut self.at(id).stopped) {
            return Ok(());
        }
        self.trace(|| format!("{id}: goes on"));
        self.hears_again(id);
        let backlog = self.backlog.remove(&id).unwrap_or_default();
        if let Some(process) = &mut self.at(id).process {
            let conns: Vec<_> =
                process.clients.iter().filter_map(|of| of.wire.borrow().conn).collect();
            conns.iter().for_each(|conn| process.replica.readable(conn.0 as u32, true));
        }
        // Its own pending work comes first, then the waiting events; or the other way round.
        if self.rng.chance(50) {
            self.round(id)?;
        }
        for event in backlog {
            self.dispatch(event)?;
        }
        self.round(id)
    }

    pub(super) fn wake(&mut self, life: Life) -> Result<(), String> {
        let due = |process: &Process| process.wakes_at.is_some_and(|at| at <= self.now_us);
        if !self.lives(life) || !self.machines[&life.replica].process.as_ref().is_some_and(due) {
            return Ok(());
        }
        self.round(life.replica)
    }

    /// Delivers a result to a node, and lets it take turns.
    pub(super) fn tell(&mut self, life: Life, what: Inbox) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        self.read_clock(life.replica);
        let process = self.at(life.replica).process.as_mut().expect("it lives");
        process.replica.awake();
        match process.replica.hear(what) {
            Ok(()) => self.round(life.replica),
            Err(error) => self.node_failed(life.replica, &error),
        }
    }

    fn read_clock(&mut self, id: u64) {
        let now_us = self.now_us;
        let machine = self.at(id);
        let shown = wall(now_us, machine.clock_offset_us);
        let Some(process) = &machine.process else { return };
        let elapsed = machine.shows(now_us - us(process.began));
        let env = &mut machine.process.as_mut().expect("as above").replica.env;
        env.elapsed = env.elapsed.max(elapsed);
        env.wall = shown;
    }

    /// What the steady clock of a node that runs shows, which its server reads, too.
    pub(super) fn steady(&self, id: u64) -> std::time::Duration {
        let machine = &self.machines[&id];
        let process = machine.process.as_ref().expect("it runs");
        machine.shows(self.now_us - us(process.began)).max(process.replica.env.elapsed)
    }

    /// An event loop wakes: turns until there is nothing left to do, and all their effects.
    pub(super) fn round(&mut self, id: u64) -> Result<(), String> {
        let machine = &self.machines[&id];
        if machine.stopped || machine.process.is_none() || self.ends.contains_key(&id) {
            return Ok(());
        }
        self.read_clock(id);
        self.idle.woke(id, self.now_us);
        let mut rounds = 0;
        let rest = loop {
            rounds += 1;
            let process = self.at(id).process.as_mut().expect("it runs");
            process.replica.awake();
            if let Err(error) = process.replica.turn() {
                return self.node_failed(id, &error);
            }
            if let Some(reason) = process.replica.ending() {
                return self.node_ends(id, reason);
            }
            process.replica.hand_over_own_writes();
            let ready = std::mem::take(&mut process.replica.env.ready);
            for (conn, ended) in &ready {
                process.replica.readable(conn.0 as u32, *ended);
            }
            let wait = process.replica.take_wait();
            process.replica.env.elapsed += std::time::Duration::from_nanos(TURN_NS);
            self.execute_at_once(id);
            let process = self.at(id).process.as_mut().expect("it runs");
            let rest = process.replica.rest();
            self.do_wishes(id);
            self.look(id)?;
            self.note_return(id);
            if let Some(wait) = wait {
                break Some((wait, false));
            }
            let peers_wait = rest.is_some_and(|rest| rest.peers_wait) && wait.is_none();
            self.at(id).process.as_mut().expect("it runs").peers_wait = peers_wait;
            if let Some(rest) = rest.filter(|_| ready.is_empty()) {
                break rest
                    .until
                    .map(|at| (at, true))
                    .into_iter()
                    .chain(rest.precise.map(|at| (at, true)))
                    .min();
            }
            if rounds > MAX_ROUNDS {
                return Err(format!("replica {id} does not come to rest: {}", self.describe()));
            }
        };
        if let Some((when, absolute)) = rest {
            self.wake_later(id, when, absolute);
        }
        self.look_at_lag(id);
        self.carry_frames(id)?;
        self.write(id)?;
        self.carry_answers(id)?;
        self.carry_calls(id)?;
        self.wake_server(id);
        Ok(())
    }

    fn wake_later(&mut self, id: u64, when: std::time::Duration, absolute: bool) {
        let machine = &self.machines[&id];
        let process = machine.process.as_ref().expect("it runs");
        let left = match absolute {
            true => when.saturating_sub(process.replica.env.elapsed),
            false => when,
        };
        let at = self.now_us + machine.takes(left).max(1);
        let life = self.life(id);
        let process = self.at(id).process.as_mut().expect("it runs");
        if process.wakes_at != Some(at) {
            process.wakes_at = Some(at);
            self.schedule_at(at, Event::Wake(life));
        }
    }

    /// Checks a node's actions.
    fn look(&mut self, id: u64) -> Result<(), String> {
        let true_time = wall(self.now_us, 0);
        let machine = self.machines.get_mut(id);
        let process = machine.process.as_mut().expect("it runs");
        let env = &mut process.replica.env;
        let (own, mut led) = (machine.id, Vec::new());
        for term in env.led.drain(..) {
            self.checker.leads(own, term)?;
            led.push(term);
        }
        for (index, term, payload) in env.committed.drain(..) {
            self.checker.committed(own, index, term, &payload)?;
            let entry = EntryRef::parse(&payload)
                .map_err(|error| format!("entry {index} is damaged: {error}"))?;
            self.checker.stamped(index, entry.wall(), true_time)?;
        }
        if process.replica.serves() && process.replica.server().is_none() {
            return Err(format!("replica {own} serves without a server"));
        }
        let server = process.replica.server();
        let differs = server.is_some_and(|server| process.differs == server.generation);
        if let Some((index, digest)) = server.and_then(|server| server.digest.latest())
            && !differs
        {
            self.checker.digest(own, index, digest)?;
        }
        let applied = process.replica.consensus().applied();
        if let Some(server) = &mut process.server {
            let after = server.executed.partition_point(|(index, _)| *index <= applied);
            for (index, payload) in server.executed.drain(..after) {
                self.checker.executed(own, index, &payload)?;
            }
            if let Some(value) = server.program.twice {
                return Err(format!("{value} was written twice"));
            }
            if server.program.starts > 1 {
                return Err(format!("replica {own}: the log starts its server a second time"));
            }
        }
        self.look_outside(id)?;
        self.hear_of_signals()?;
        for term in led {
            self.trace(|| format!("{id}: leads in term {term}"));
            self.mix(id << 32 | term.0);
            if self.options.scenario == Scenario::Behind && self.faults > 0 && self.broken == 0 {
                self.broken = id;
            }
            match std::mem::take(&mut self.plan.first_leader_dies_us) {
                0 => {}
                dies_us => self.schedule(dies_us, Event::FirstLeaderDies(self.life(id))),
            }
        }
        Ok(())
    }

    /// A leader holds no more bytes for its clients than allowed.
    pub(super) fn check_memory(&self, id: u64) -> Result<(), String> {
        let process = self.machines[&id].process.as_ref().expect("it lives");
        if !process.replica.serves() {
            return Ok(());
        }
        // Updates the counts.
        let _ = process.replica.snapshot();
        let (held, limit) = (process.metrics.held_bytes.get(), self.plan.tuning.max_memory_bytes);
        if held <= limit as i64 {
            return Ok(());
        }
        Err(format!("replica {id} holds {held} bytes for its clients, and may hold {limit}"))
    }

    /// A replica without a server counts as well only if it votes, and a passive one if a server could begin there.
    fn check_state(&self, id: u64) -> Result<(), String> {
        let process = self.machines[&id].process.as_ref().expect("it lives");
        let consensus = process.replica.consensus();
        let status = process.replica.snapshot().replica;
        let first = consensus.first_index().0;
        let could_begin = first == 1 || status.images.index + 1 >= first;
        let lacks = match status.state {
            ReplicaState::Passive if !could_begin => "nothing to begin a server with",
            ReplicaState::Passive | ReplicaState::Witness if consensus.role() == Role::Learner => {
                "no vote"
            }
            _ => return Ok(()),
        };
        Err(format!("replica {id} is said to be well, and has {lacks}"))
    }

    /// An operator is told that a signal was sent only when it surely was.
    fn hear_of_signals(&mut self) -> Result<(), String> {
        let mut told = Vec::new();
        self.signals.retain_mut(|signal| match signal.try_recv() {
            Ok(answer) => {
                told.extend(answer.ok());
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => false,
        });
        told.into_iter().try_for_each(|index| self.checker.signalled(LogIndex(index)))
    }

    /// Makes the log's thread begin a write, if it is idle.
    fn write(&mut self, id: u64) -> Result<(), String> {
        let early = self.options.broken == Some(Break::AckBeforeSync);
        let life = self.life(id);
        let process = self.at(id).process.as_mut().expect("it runs");
        match process.begin_write() {
            Ok(true) if early => {
                let ticket = process.writing.take().expect("it began");
                self.tell(life, Inbox::Durable(Ok(ticket)))
            }
            Ok(true) => {
                let slow = self.machines[&id].slow_disk_us;
                let delay = 50 + self.rng.below(self.plan.sync_us) + slow;
                self.schedule(delay, Event::Synced(life));
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => self.tell(life, Inbox::Durable(Err(error))),
        }
    }

    pub(super) fn synced(&mut self, life: Life) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let process = self.at(life.replica).process.as_mut().expect("it lives");
        if process.disk_hangs {
            // Until it is mended.
            return Ok(());
        }
        let machine = self.at(life.replica);
        let process = machine.process.as_mut().expect("as above");
        match process.end_write(&mut machine.kept) {
            Ok(None) => Ok(()),
            Ok(Some(ticket)) => {
                self.idle.synced(life.replica);
                self.tell(life, Inbox::Durable(Ok(ticket)))
            }
            Err(error) => self.tell(life, Inbox::Durable(Err(error))),
        }
    }

    pub(super) fn disk_works(&mut self, id: u64) -> Result<(), String> {
        let life = self.life(id);
        let Some(process) = &mut self.at(id).process else { return Ok(()) };
        if std::mem::take(&mut process.disk_hangs) { self.synced(life) } else { Ok(()) }
    }

    pub(super) fn make_room(&mut self, id: u64) -> Result<(), String> {
        if let Some(process) = &mut self.at(id).process {
            process.replica.env.full = false;
        }
        self.round(id)
    }

    pub(super) fn witness(&mut self, life: Life) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        self.check_state(life.replica)?;
        self.schedule(WITNESS_EVERY_US, Event::Witness(life));
        let process = self.at(life.replica).process.as_mut().expect("it lives");
        if let Err(error) = process.witness() {
            let error = ReplicaError::from(error);
            // As the log's thread would report it: it is a failure of the disk, and no other.
            let _ = self.node_failed(life.replica, &error);
        }
        Ok(())
    }

    pub(super) fn old_read(&mut self, life: Life, wanted: &OldEntries) -> Result<(), String> {
        if !self.lives(life) {
            return Ok(());
        }
        let process = self.machines[&life.replica].process.as_ref().expect("it lives");
        let entries = process.read_old(wanted);
        self.tell(life, Inbox::Old(wanted.from, entries))
    }

    /// The node cannot continue. Its disk failed: it restarts on a working one, with the readable data; or the machine does, with the
    /// durable data.
    fn node_failed(&mut self, id: u64, error: &ReplicaError) -> Result<(), String> {
        let refused = matches!(error, ReplicaError::Log(_) | ReplicaError::LogLost(_));
        if refused && self.machines[&id].rotten && !self.machines[&id].disk_fails {
            self.kill(id, true);
            self.replace_log(id, &error.to_string());
            return Ok(());
        }
        if let ReplicaError::TooNew(error) = error {
            self.kill(id, true);
            return self.is_too_old(id, error.needed);
        }
        if matches!(error, ReplicaError::KeepsEnding { .. }) && self.machines[&id].lost {
            self.kill(id, true);
            return Ok(());
        }
        let disk_failed = matches!(error, ReplicaError::Log(_)) && self.machines[&id].disk_fails;
        if !disk_failed {
            return Err(format!("replica {id} fails: {error}"));
        }
        self.trace(|| format!("{id}: stops: {error}"));
        self.at(id).disk_fails = false;
        self.kill(id, true);
        if self.rng.chance(50) {
            let mut chance = SimRng::new(self.rng.next_u64());
            self.at(id).disk.crash(&mut chance);
        }
        Ok(())
    }
}
