//! An operator who adds, removes and replaces replicas, and moves leadership, in the middle of all faults.
//!
//! One request at a time, repeated to any node that runs until it is done or refused; a replica that does not come in within some seconds is withdrawn. The operator gives
//! up a machine only when its removal is wanted, and removes none of three members.

use super::{Event, World};
use crate::machine::{Machine, address};
use crate::options::{Asks, Scenario};
use oneshot::TryRecvError;
use skein_log::PeerStatus;
use skein_log::disk::sim::SimRng;
use skein_replica::config::Kind;
use skein_replica::members::{Answer, Request, Step, Wanted};
use skein_replica::replica::{Command, Inbox};
use std::collections::BTreeSet;

/// None of so few members is removed.
pub(super) const LEAST: usize = 3;
const MOST: usize = 6;
/// More machines than this are never made.
const MAX_MACHINES: u64 = 12;
/// The pause between two requests.
const AGAIN_US: u64 = 100_000;
/// A replica that has not come in for so long is withdrawn.
const PATIENCE_US: u64 = 6_000_000;

/// The additional time of a sync of a disk that was replaced by a slow one.
const SLOW_DISK_US: u64 = 100_000;

/// What the operator is at.
#[derive(Debug, Default)]
pub(super) struct Operator {
    at: Option<Task>,
    /// Those that may have been removed, or were withdrawn.
    pub going: BTreeSet<u64>,
    /// Requests that came to their end.
    pub done: usize,
    /// No node has died since all members of three or more had their votes, and what the operator does since leaves no fewer.
    pub spare: bool,
}

#[derive(Debug)]
struct Task {
    wanted: Wanted,
    since_us: u64,
    first: bool,
    reply: Option<oneshot::Receiver<Answer>>,
}

impl Operator {
    pub(super) const fn rests(&self) -> bool {
        self.at.is_none()
    }
}

impl World {
    /// The replicas of machines that are there, members or not.
    pub(super) fn ids(&self) -> Vec<u64> {
        let there = self.machines.values().filter(|machine| !machine.retired);
        there.map(|machine| machine.id.0).collect()
    }

    /// One of them.
    pub(super) fn any(&mut self) -> u64 {
        let ids = self.ids();
        ids[self.rng.below(ids.len() as u64) as usize]
    }

    /// The one after it.
    pub(super) fn next_to(&self, id: u64) -> u64 {
        let ids = self.ids();
        ids.iter().find(|other| **other > id).copied().unwrap_or(ids[0])
    }

    /// The members, as the leader knows them; all that are there without one.
    pub(super) fn members(&self) -> BTreeSet<u64> {
        let leads = self.leader().and_then(|leader| self.machines[&leader].process.as_ref());
        match leads {
            Some(process) => {
                process.replica.consensus().members().iter().map(|member| member.id.0).collect()
            }
            None => self.ids().into_iter().collect(),
        }
    }

    pub(super) fn operate(&mut self) -> Result<(), String> {
        self.schedule(AGAIN_US, Event::Operator);
        self.operator.spare |= self.is_whole();
        if !self.operator.rests() {
            return self.go_on_with_it();
        }
        if self.now_us < self.plan.faults_until_us && self.rng.chance(40) {
            self.begin_one();
        }
        Ok(())
    }

    /// The one request of a scenario.
    pub(super) fn ask_for(&mut self, asks: Asks, leader: u64) {
        const ACTIVE: u64 = 1;
        const PASSIVE: [u64; 2] = [2, 4];
        let serves = self.machines[&leader].process.as_ref().is_some_and(|p| p.replica.serves());
        match asks {
            Asks::PassiveToLead if leader == ACTIVE => {
                self.want(Wanted::Transfer { to: PASSIVE[0] });
            }
            Asks::LeaderReplaced | Asks::ReplacedByWitness | Asks::ReplacedOutOfReach
                if leader == ACTIVE =>
            {
                let (id, _) = self.new_machine(&self.members());
                let others = self.ids().into_iter().filter(|other| ![ACTIVE, id].contains(other));
                if asks == Asks::ReplacedOutOfReach {
                    let pairs = others.flat_map(|other| [(id, other), (other, id)]);
                    self.network.cut.extend(pairs);
                }
                let (address, kind) = (address(id), Some(Kind::Active));
                self.want(Wanted::Replace { old: leader, id, address, kind });
            }
            Asks::ForgetfulToLead if PASSIVE.contains(&leader) && serves => {
                let to = PASSIVE[usize::from(leader == PASSIVE[0])];
                self.kill(to, true);
                self.begin_anew(to);
                // It is filled slowly.
                self.at(to).slow_disk_us = SLOW_DISK_US;
                self.want(Wanted::Transfer { to });
            }
            _ => {
                if asks == Asks::ForgetfulToLead && leader == ACTIVE {
                    self.at(leader).lost = true;
                    self.kill(leader, true);
                }
                return self.schedule(10_000, Event::Break);
            }
        }
        self.schedule(AGAIN_US, Event::Operator);
    }

    fn begin_one(&mut self) {
        let members = self.members();
        // Where one without a vote is, another request is refused.
        if self.leader().is_none() {
            return;
        }
        let chosen: Vec<u64> = members.iter().copied().collect();
        let old = chosen[self.rng.below(chosen.len() as u64) as usize];
        let room = (self.machines.values().count() as u64) < MAX_MACHINES;
        // A new leader may not know yet who has gone.
        let stays = |machine: &&Machine| !machine.retired && !machine.lost;
        let there = members.len().min(self.machines.values().filter(stays).count());
        let wanted = match self.rng.below(4) {
            0 if members.len() < MOST && room => {
                let (id, kind) = self.new_machine(&members);
                Wanted::Add { id, address: address(id), kind }
            }
            1 if there > LEAST => Wanted::Remove { id: old },
            2 if room => {
                if self.rng.chance(40)
                    && self.is_whole()
                    && self.can_do_without(old)
                    && there >= LEAST
                {
                    // Its machine is broken: that is why.
                    self.kill(old, true);
                    self.at(old).lost = true;
                    self.trace(|| format!("{old}: breaks, and is to be replaced"));
                }
                let (id, kind) = self.new_machine(&members);
                let kind = self.rng.chance(50).then_some(kind);
                Wanted::Replace { old, id, address: address(id), kind }
            }
            3 => Wanted::Transfer { to: old },
            _ => return,
        };
        self.want(wanted);
    }

    fn want(&mut self, wanted: Wanted) {
        self.trace(|| format!("the operator begins {wanted:?}"));
        match wanted {
            Wanted::Remove { id } | Wanted::Replace { old: id, .. } | Wanted::Withdraw { id } => {
                self.operator.going.insert(id);
            }
            Wanted::Add { .. } | Wanted::Transfer { .. } => {}
        }
        let since_us = self.now_us;
        self.operator.at = Some(Task { wanted, since_us, first: true, reply: None });
    }

    /// Its id, and what it is to do. In its configuration it may do something else: the members in the log count.
    fn new_machine(&mut self, members: &BTreeSet<u64>) -> (u64, Kind) {
        let used_again = self.used_again();
        let id = used_again.unwrap_or(self.machines.values().count() as u64 + 1);
        let kind = self.drawn_kind();
        let configured = if self.rng.chance(80) { kind } else { self.drawn_kind() };
        let others = members.iter().map(|id| (*id, self.machines[id].kind()));
        let peers = others.chain([(id, configured)]).collect();
        let level = self.level_of_new();
        let mut machine = Machine::new(id, peers, id as i64 * 1000, level);
        machine.begin = Some(1 + used_again.map_or(0, |id| self.machines[&id].incarnation));
        if let Some(former) = used_again.map(|id| &self.machines[&id]) {
            (machine.incarnation, machine.life) = (former.incarnation, former.life);
        }
        for other in self.ids() {
            let delay = 1 + self.rng.below(100_000);
            self.schedule(delay, Event::Dial(other.min(id), other.max(id)));
        }
        match used_again {
            Some(id) => *self.at(id) = machine,
            None => self.machines.push(machine),
        }
        self.operator.going.remove(&id);
        let delay = self.rng.below(500_000);
        self.schedule(delay, Event::Start(id));
        (id, kind)
    }

    /// In a share of the clusters: the id of one that is gone, which comes back with an empty disk. Drawn aside, so that the others' runs stay.
    fn used_again(&self) -> Option<u64> {
        let reuses = SimRng::new(self.seed.rotate_left(36)).chance(30);
        let is_gone = |machine: &&Machine| machine.retired && machine.process.is_none();
        let gone = self.machines.values().filter(is_gone).map(|machine| machine.id.0).max();
        gone.filter(|id| reuses && !self.members().contains(id))
    }

    fn drawn_kind(&mut self) -> Kind {
        match self.rng.below(4) {
            0 if !self.plan.all_are_active() => Kind::Passive,
            1 if !self.plan.all_are_active() => Kind::Witness,
            _ => Kind::Active,
        }
    }

    fn go_on_with_it(&mut self) -> Result<(), String> {
        let now = self.now_us;
        let Some(task) = &mut self.operator.at else { return Ok(()) };
        let answer = match task.reply.as_mut().map(|reply| reply.try_recv()) {
            Some(Ok(answer)) => Some(answer),
            // A node that died or has no leader does not answer: another one is asked.
            Some(Err(TryRecvError::Empty | TryRecvError::Disconnected)) | None => None,
        };
        let asked = task.reply.take().is_some();
        // What was asked without an answer may have been accepted.
        task.first &= !asked || answer.as_ref().is_some_and(|answer| answer.step == Step::Later);
        let late = now - task.since_us > PATIENCE_US;
        let wanted = task.wanted.clone();
        if let (Wanted::Transfer { to }, Some(Step::Goes)) =
            (&wanted, answer.as_ref().map(|a| a.step))
        {
            self.check_vote(*to)?;
        }
        match answer.as_ref().map(|answer| answer.step) {
            Some(Step::Done) => return self.did(&wanted),
            Some(Step::Refused) => {
                let line = answer.expect("as above").line;
                return self.refused_to(&wanted, &line);
            }
            _ => {}
        }
        if late {
            match wanted {
                Wanted::Add { id, .. } | Wanted::Replace { id, .. } => {
                    self.want(Wanted::Withdraw { id });
                }
                Wanted::Transfer { .. } => self.operator.at = None,
                Wanted::Remove { .. } | Wanted::Withdraw { .. } => {}
            }
        }
        self.request()
    }

    /// Leadership goes to this replica.
    ///
    /// # Errors
    /// It has lost its log, and with that its vote. Where it may have done so just after the answer nothing is said.
    fn check_vote(&self, to: u64) -> Result<(), String> {
        let asks = matches!(self.options.scenario, Scenario::Asks(_));
        let Some(leader) = self.leader().filter(|_| asks) else { return Ok(()) };
        let process = self.machines[&leader].process.as_ref().expect("it leads");
        let votes = |peer: &PeerStatus| {
            (peer.id.0, peer.incarnation) == (to, self.machines[&to].incarnation) && peer.voter
        };
        match process.replica.consensus().status().peers.iter().any(votes) {
            true => Ok(()),
            false => Err(format!("leadership goes to replica {to}, which has no vote")),
        }
    }

    /// Asks any node that runs.
    fn request(&mut self) -> Result<(), String> {
        let id = self.any();
        let runs = self.machines[&id].process.is_some() && !self.machines[&id].stopped;
        let Some(task) = self.operator.at.as_mut().filter(|_| runs) else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        task.reply = Some(answer);
        let request = Request { wanted: task.wanted.clone(), first: task.first };
        let life = self.life(id);
        self.tell(life, Inbox::Command(Command::Members(request, reply)))
    }

    fn did(&mut self, wanted: &Wanted) -> Result<(), String> {
        self.trace(|| format!("the operator has done {wanted:?}"));
        self.operator.done += 1;
        self.operator.at = None;
        match wanted {
            Wanted::Remove { id } | Wanted::Replace { old: id, .. } | Wanted::Withdraw { id } => {
                self.gone_for_good(*id);
            }
            Wanted::Add { .. } | Wanted::Transfer { .. } => {}
        }
        Ok(())
    }

    /// The members do without this machine.
    fn gone_for_good(&mut self, id: u64) {
        if self.rng.chance(50) && self.machines[&id].process.is_some() {
            // Its node finds out by itself.
            return;
        }
        self.retire(id);
    }

    pub(super) fn retire(&mut self, id: u64) {
        let machine = self.at(id);
        machine.lost = true;
        machine.retired = true;
        self.kill(id, true);
    }

    fn refused_to(&mut self, wanted: &Wanted, line: &str) -> Result<(), String> {
        self.trace(|| format!("the operator is refused {wanted:?}: {line}"));
        self.operator.at = None;
        match wanted {
            // It may have become a learner, or a member by now.
            Wanted::Add { id, .. } | Wanted::Replace { id, .. } => {
                self.want(Wanted::Withdraw { id: *id });
            }
            Wanted::Withdraw { id } => {
                if !line.contains("has its vote") && !line.contains("with a vote by now") {
                    // Something else must end before.
                    self.want(Wanted::Withdraw { id: *id });
                    return Ok(());
                }
                self.operator.going.remove(id);
            }
            Wanted::Remove { .. } | Wanted::Transfer { .. } => {}
        }
        Ok(())
    }
}
