//! The end of a simulation: clients stop asking, everything comes to rest, and is checked; finally an input may end the server on all replicas.

use super::{Event, OPERATIONS_PER_KEY, World};
use crate::client::Client;
use crate::history::{self, Operation};
use crate::machine::{Machine, Process};
use crate::options::Finale;
use crate::scripted::Scripted;
use skein_log::Role;
use skein_model::{ConnId, LogIndex};
use skein_replica::agreement::unhurried::LONGEST_UNASKED;
use skein_replica::config::Kind;
use skein_replica::editions::Outcome;
use skein_replica::error::ExitReason;
use std::collections::BTreeSet;

/// Within this time after the last fault a client must have been answered: a server of the leader that hangs for good is given up after a second, and so is one
/// of the next leader.
const SERVED_WITHIN_US: u64 = 10_000_000;
/// And within this time all remaining replicas must agree.
const CONVERGED_WITHIN_US: u64 = 30_000_000;
/// Then no client asks for this long.
const QUIET_US: u64 = 800_000;
/// Connections that end in that time cause looks at most this often.
const LOOKS: u32 = 6;
/// Meanwhile timers that are due every tenth of a second or sooner are served within this,
const LATE_TIMER_US: u64 = 600_000;
/// on followers within this: their disks sync for silent timers now and then only, and a second more.
const LATE_ON_FOLLOWERS_US: u64 = LONGEST_UNASKED.as_micros() as u64 + 1_000_000;
/// All nodes learn of an end that all servers meet within this: they wait a second for each other.
const ENDED_WITHIN_US: u64 = 10_000_000;
/// The time for a client that asks for it.
const ASK_AGAIN_US: u64 = 500_000;

/// Whether an upgrade is under way, as far as this replica knows.
fn upgrades(process: &Process) -> bool {
    let upgrades = process.replica.snapshot().replica.edition.upgrades;
    upgrades.iter().any(|(_, outcome)| matches!(outcome, Outcome::Ending | Outcome::Starting))
}

impl World {
    /// Whether it is over: after the last fault.
    pub(super) fn is_at_end(&mut self) -> Result<bool, String> {
        let since = self.now_us - self.plan.faults_until_us;
        if let Some(began) = self.finale_since_us {
            let ended = |machine: &Machine| machine.lost || self.ends.contains_key(&machine.id.0);
            if self.machines.values().all(ended) {
                return Ok(true);
            }
            if self.now_us > began + ENDED_WITHIN_US {
                return Err(format!(
                    "the server ends by {:?} on all replicas, and nodes go on: {}",
                    self.plan.finale,
                    self.describe()
                ));
            }
            return Ok(false);
        }
        if since > SERVED_WITHIN_US && self.served_after_us().is_none() {
            return Err(format!("nobody is served after the last fault: {}", self.describe()));
        }
        if since > self.plan.calm_us + CONVERGED_WITHIN_US {
            return Err(format!("no agreement after the last fault: {}", self.describe()));
        }
        if !self.is_done() {
            self.quiet_since_us = None;
            self.nobody_asks(None);
            return Ok(false);
        }
        let since = *self.quiet_since_us.get_or_insert(self.now_us);
        self.nobody_asks(Some(since));
        if self.now_us < since + self.quiet_us(QUIET_US) {
            return Ok(false);
        }
        if let Err(why) = self.check_rest() {
            self.unquiet += 1;
            self.quiet_since_us = None;
            return if self.unquiet < LOOKS { Ok(false) } else { Err(why) };
        }
        history::check(&self.history)?;
        let members = self.members();
        // A replica that is alone tries again, up to six times, and then fails.
        let gives_up = self.plan.finale == Finale::Raves && members.len() < 2;
        if self.plan.finale == Finale::None || gives_up {
            return Ok(true);
        }
        for id in self.ids().into_iter().filter(|id| !members.contains(id)) {
            self.retire(id);
        }
        self.finale_since_us = Some(self.now_us);
        self.schedule(0, Event::Finale);
        Ok(false)
    }

    /// Invariants while no client asks.
    fn check_rest(&self) -> Result<(), String> {
        let Some(leader) = self.leader() else { return Err("nobody leads".to_owned()) };
        let leads = self.machines[&leader].process.as_ref().expect("it leads");
        let open = open_connections(leads);
        let members = self.members();
        let there = |m: &&Machine| !m.lost && members.contains(&m.id.0);
        for machine in self.machines.values().filter(there) {
            let Some(process) = &machine.process else { continue };
            let id = machine.id;
            // Virtual time never stands still: a server with a timer has executed something recently.
            let idle_us = self.now_us - process.executed_us;
            let leads = id.0 == leader;
            let late_us = if leads { LATE_TIMER_US } else { LATE_ON_FOLLOWERS_US };
            if self.plan.timer_ns > 0 && process.server_lives && idle_us > late_us {
                return Err(format!(
                    "the timer of replica {id}'s server has not been heard of for {} ms",
                    idle_us / 1000
                ));
            }
            let Some(server) = &process.server else { continue };
            let has: BTreeSet<ConnId> = server.program.connections().collect();
            if has != open {
                return Err(format!(
                    "the server of replica {id} has connections {has:x?}, and open are {open:x?}"
                ));
            }
        }
        Ok(())
    }

    /// The time of the first answer after the last fault, if there was one.
    pub(super) fn served_after_us(&self) -> Option<u64> {
        let after = |op: &Operation| op.returned_us?.checked_sub(self.plan.faults_until_us);
        self.history.iter().filter_map(after).min()
    }

    /// The longest time without an answer after the last fault, while a client waited for one. Clients that ask for work, whose answers are not counted here, may all do so at once.
    pub(super) fn silence_us(&self) -> u64 {
        let (from, to) = (self.plan.faults_until_us, self.plan.faults_until_us + self.plan.calm_us);
        let answers = self.history.iter().filter_map(|op| op.returned_us);
        let mut times: Vec<u64> = answers.filter(|at| (from..to).contains(at)).collect();
        times.extend([from, to]);
        times.sort_unstable();
        let waited = |pair: &[u64]| {
            // Who gave up, or lost the connection, still wants an answer.
            let open =
                self.history.iter().filter(|op| op.returned_us.is_none_or(|at| at >= pair[1]));
            let asked = open.map(|op| op.invoked_us).filter(|at| *at < pair[1]).min();
            asked.map_or(0, |asked| pair[1] - asked.max(pair[0]))
        };
        times.windows(2).map(waited).max().unwrap_or_default()
    }

    /// Whether clients still ask: until a while after the last fault, and until one is answered.
    pub(super) fn is_asked(&self) -> bool {
        let calm_until = self.plan.faults_until_us + self.plan.calm_us;
        self.now_us <= calm_until || self.served_after_us().is_none()
    }

    /// All remaining replicas have executed every entry of the time when clients ended, and no client waits.
    fn is_done(&mut self) -> bool {
        if self.is_asked()
            || !self.operator.rests()
            || !self.have_agreed()
            || self
                .clients
                .iter()
                .any(|client| client.waiting.is_some() || client.working.is_some())
        {
            return false;
        }
        let extent = self.checker.extent().1;
        let goal = *self.goal.get_or_insert(extent);
        let has_come = |machine: &Machine| {
            let Some(process) = &machine.process else { return false };
            let server = process.server.as_ref().filter(|_| process.server_lives);
            let rests = |server: &Scripted| !server.program.is_busy() && !server.program.differed;
            let leads = process.replica.consensus().role() == Role::Leader;
            let as_it_should = match machine.kind() {
                Kind::Active => server.is_some_and(rests),
                Kind::Passive if leads => server.is_some_and(rests),
                Kind::Passive => !process.server_lives,
                Kind::Witness => !process.server_lives && !leads,
            };
            as_it_should
                && !upgrades(process)
                && process.replica.applied() >= goal
                && process.replica.consensus().role() != Role::Learner
        };
        let members = self.members();
        let mut left = self
            .machines
            .values()
            .filter(|machine| !machine.lost && members.contains(&machine.id.0));
        left.all(has_come)
    }

    /// A client asks for the server's end until it happens.
    pub(super) fn ask_for_the_end(&mut self) -> Result<(), String> {
        if !self.ends.is_empty() {
            return Ok(());
        }
        self.schedule(ASK_AGAIN_US, Event::Finale);
        let Some(leader) = self.leader() else { return Ok(()) };
        let is_served = |client: &Client| {
            let wire = client.wire.as_ref().filter(|_| client.target == leader);
            wire.is_some_and(|wire| wire.borrow().conn.is_some())
        };
        let Some(n) = self.clients.iter().position(is_served) else {
            // Another client may have the last allowed connection.
            (0..self.clients.len()).try_for_each(|n| self.leave(n))?;
            self.clients[0].target = leader;
            self.schedule(1000, Event::Connect(0, leader));
            return Ok(());
        };
        if self.clients[n].working.is_some() {
            // It was asked on this connection: once.
            return Ok(());
        }
        let request = self.plan.finale.request();
        self.trace(|| format!("client {n} asks for the end: {request:?}"));
        self.clients[n].working = Some("OK".len());
        self.say(n, request.into_bytes());
        Ok(())
    }

    /// A node ends, with its reason.
    pub(super) fn node_ends(&mut self, id: u64, reason: ExitReason) -> Result<(), String> {
        if reason == ExitReason::Removed && self.operator.going.contains(&id) {
            self.trace(|| format!("{id}: ends, as it was removed"));
            self.carry_frames(id)?;
            self.retire(id);
            return Ok(());
        }
        let ExitReason::ServerEnded { index, status } = reason else {
            return Err(format!("replica {id} ends: {reason:?}"));
        };
        let expected = self.plan.finale.status();
        let others: Vec<LogIndex> = self.ends.values().map(|(index, _)| *index).collect();
        if self.finale_since_us.is_none()
            || status != expected
            || others.iter().any(|other| *other != index)
        {
            return Err(format!(
                "replica {id} ends: {reason:?}; by {:?} the others end at {others:?}: {}",
                self.plan.finale,
                self.describe()
            ));
        }
        self.trace(|| format!("{id}: ends, as the server did after entry {index}"));
        self.ends.insert(id, (index, status));
        // Its last words arrive before the end of its connections.
        self.carry_frames(id)?;
        let at = self.network.last_arrival_us(id).max(self.now_us);
        self.schedule_at(at + 1, Event::Gone(id));
        Ok(())
    }

    /// The most operations per register.
    pub(super) fn allowance(&self) -> usize {
        // Some are kept for after the faults.
        let late = self.now_us > self.plan.faults_until_us;
        if late { OPERATIONS_PER_KEY } else { OPERATIONS_PER_KEY - 20 }
    }
}

/// A leader's connections with clients and with hosts outside, as those see it.
fn open_connections(process: &Process) -> BTreeSet<ConnId> {
    let clients = process.clients.iter().map(|client| &client.wire);
    let wires = clients.chain(process.calls.iter().map(|call| &call.wire));
    let open = wires.filter_map(|wire| {
        let wire = wire.borrow();
        wire.conn.filter(|_| !wire.ended && !wire.reset && !wire.shut)
    });
    open.collect()
}
