//! An operator who gives nodes a newer Skein one after the other, and sometimes an older one, in the middle of all faults.
//!
//! A node of an older level says so, or says nothing of levels if it is from before them, and refuses what is newer as that version would: a hello with levels, or a log
//! that needs more. Its operator then reads the line, and installs the newest version. Always true: no node is sent what it does not know, and none is refused that was
//! not newer before, or never a member. In the end all agree on the newest level.

use super::{Event, World};
use crate::machine::Machine;
use crate::options::Levels;
use skein_log::frame::{self, Hello};
use skein_log::{Level, wire};

/// The newest level in clusters that are upgraded: newer than this program's, which sends nothing of it.
const LAST: Level = Level(Level::NEWEST.0 + 1);
/// How long a node is away for it, at most.
const RESTART_US: u64 = 300_000;
/// The longest time until an operator has read a line.
const READ_US: u64 = 500_000;
/// And until the next node is upgraded.
const NEXT_US: u64 = 600_000;

impl Levels {
    /// The level that a founder begins with.
    pub fn first(self) -> Level {
        match self {
            Self::Before => Level::FIRST,
            Self::Newest => Level::NEWEST,
            Self::Grow(first) => first,
        }
    }

    /// What all agree on in the end.
    fn last(self) -> Level {
        match self {
            Self::Grow(_) => LAST,
            other => other.first(),
        }
    }
}

impl World {
    /// The level of a new machine.
    pub(super) fn level_of_new(&mut self) -> Level {
        match self.plan.levels {
            Levels::Grow(_) => Level(1 + self.rng.below(LAST.0.into()) as u16),
            levels => levels.first(),
        }
    }

    /// An operator installs another version somewhere.
    pub(super) fn install(&mut self) {
        let over = self.now_us >= self.plan.faults_until_us;
        let delay = 1000 + self.rng.below(NEXT_US);
        let old = |m: &&Machine| !m.retired && !m.lost && m.level < LAST;
        if over && !self.machines.values().any(|machine| old(&machine)) {
            return;
        }
        self.schedule(delay, Event::Install);
        let any = self.any();
        let id = match over {
            true => self.machines.values().find(old).map_or(any, |machine| machine.id.0),
            false => any,
        };
        let machine = &self.machines[&id];
        if machine.lost || machine.process.is_some() && !self.may_die() {
            return;
        }
        let level = match self.rng.below(4) {
            _ if over => LAST,
            0 => Level(machine.level.0.max(2) - 1),
            1 => LAST,
            _ => Level(machine.level.0 + 1).min(LAST),
        };
        self.give(id, level);
    }

    /// A node is stopped, and begins again with a version of this level.
    fn give(&mut self, id: u64, level: Level) {
        if level == self.machines[&id].level {
            return;
        }
        self.trace(|| format!("{id}: gets a version of level {level}"));
        self.kill(id, true);
        // One that could not start waits for that.
        self.schedule(RESTART_US, Event::Start(id));
        let machine = self.at(id);
        machine.level = level;
        machine.newest = machine.newest.max(level);
    }

    /// An operator has read why a node does not take part.
    pub(super) fn renew(&mut self, id: u64) {
        self.at(id).refused = false;
        if !self.machines[&id].lost && self.machines[&id].level < LAST {
            self.give(id, LAST);
        }
    }

    /// A node's version is too old for its cluster.
    ///
    /// # Errors
    /// It is a member that was never newer: the others agreed too early.
    pub(super) fn is_too_old(&mut self, id: u64, needed: Level) -> Result<(), String> {
        let machine = &self.machines[&id];
        self.trace(|| format!("{id}: knows no more than level {}, not {needed}", machine.level));
        let is_member = self.leader().is_some() && self.members().contains(&id);
        if machine.newest < needed && is_member {
            return Err(format!(
                "replica {id} is a member, and was never newer than level {}, but the others need level {needed}",
                machine.newest
            ));
        }
        if !std::mem::replace(&mut self.at(id).refused, true) {
            let delay = 1000 + self.rng.below(READ_US);
            self.schedule(delay, Event::Renew(id));
        }
        Ok(())
    }

    /// A version from before levels ends a connection with such a hello.
    pub(super) fn cannot_read(&self, at: u64, hello: &Hello) -> Option<Level> {
        let levels = hello.levels.filter(|_| self.machines[&at].level == Level::FIRST)?;
        Some(levels.needed)
    }

    /// A message arrives: it may need no more than the node knows.
    pub(super) fn check_level(&self, to: u64, kind: u8, payload: &[u8]) -> Result<(), String> {
        let known = self.machines[&to].level;
        match wire::level(payload) {
            Ok(level) if kind == frame::KIND_RAFT && level > known => {
                Err(format!("replica {to} knows no more than level {known}, and is sent {level}"))
            }
            _ => Ok(()),
        }
    }

    /// Whether all agree on what all know.
    pub(super) fn have_agreed(&self) -> bool {
        let (members, last) = (self.members(), self.plan.levels.last());
        let of_members = || self.machines.values().filter(|m| members.contains(&m.id.0));
        // One that is lost for good holds them back.
        of_members().any(|machine| machine.lost)
            || of_members().all(|machine| {
                let process = machine.process.as_ref();
                process.is_some_and(|p| p.replica.consensus().agreed_level() == last)
            })
    }
}
