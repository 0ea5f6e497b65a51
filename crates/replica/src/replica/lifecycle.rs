//! The server's life: started, ended, rebuilt from the log. [`crate::server::slot`] knows what there is; here is what is done about it.
//!
//! A server that ends on this replica alone (it crashed, was killed, differed, or broke the arena) is restarted and
//! executes the log from its newest image on, or from entry 1. One that ends on a majority of the replicas after the same entry, in the same way, has ended: `on_exit`
//! decides. The replicas tell each other their servers' ends, and which servers live on after that entry ([`crate::verdicts::exits`]).
//!
//! An arena is thousands of pages: making or unmapping one takes a busy machine longer than an election timeout. So both are done beside the
//! replica, the next server's from the end of the one before on.

use super::upgrade::ENDS_WITHIN;
use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::config::OnExit;
use crate::error::{ExitReason, ReplicaError};
use crate::health::{Fault, SERVER_ENDED};
use crate::server::slot::State;
use crate::server::{Broken, Link, ServerEvent, Source};
use crate::verdicts::exits::{Common, End, Exits};
use crate::verdicts::rounds::Rounds;
use skein_arena::layout::state;
use skein_log::{Role, majority};
use skein_model::{LogIndex, ReplicaId};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest wait for the others to report the same end.
pub(super) const EXIT_WAIT: Duration = Duration::from_secs(1);
/// And the longest wait of a replica for the entries up to theirs.
const BEHIND_WAIT: Duration = Duration::from_secs(5);
/// How often the others are told of an end, as messages may be lost.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The status of a server that damaged its arena: as if the runtime had ended it.
const DAMAGED: i32 = 125 << 8;

/// The ends of the replicas' servers.
#[derive(Debug, Default)]
pub struct Ends {
    exits: Exits,
    /// The time since when a majority's ends are the same.
    common_since: Option<Duration>,
    /// and how long they are waited for.
    wait: Duration,
    last: Option<LogIndex>,
    /// The last end of this replica's server, whether the one before was the same, and whether the server said itself that it ends: one that is killed does not.
    own: Option<End>,
    again: bool,
    announced: bool,
    /// When the others were told of it.
    told: Duration,
}

impl Ends {
    /// A replica's node has started again, so its server has, too.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.exits.started(replica);
    }

    /// This replica's server has ended.
    fn note_own(&mut self, end: End, announced: bool) {
        self.again = self.own.replace(end) == Some(end);
        self.announced = announced;
    }

    /// Whether this is the last end of this replica's server, and no accident of it alone: the server said so itself, with a status that `expected` knows, or has
    /// ended so twice in a row.
    pub(super) fn is_meant(&self, end: End, expected: impl Fn(i32) -> bool) -> bool {
        self.own == Some(end) && (self.again || self.announced && expected(end.1))
    }

    /// When to judge them again, if ever.
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        self.common_since.map(|since| since + self.wait)
    }
}

impl<E: Environment> Replica<E> {
    pub(super) fn server_event(
        &mut self,
        generation: u64,
        event: ServerEvent,
    ) -> Result<(), ReplicaError> {
        if self.server().is_none_or(|server| server.generation != generation) {
            return Ok(());
        }
        match event {
            ServerEvent::Launched { pid, init, files } => {
                if self.slot.launched(self.now)
                    && let Some(server) = self.slot.link_mut()
                {
                    tracing::info!(event = "server_started", pid, generation);
                    server.launched(pid, init, files);
                    // One that continues from an image does not say again where it listens.
                    self.follow_ports()?;
                }
            }
            ServerEvent::Failed(error) => return Err(error),
            ServerEvent::NotRestored { why, damaged } => self.restore_failed(&why, damaged),
            ServerEvent::Ended { status } if self.is_restoring() => {
                self.fetch_output()?;
                Self::check_files(self.slot.link().and_then(|server| server.differs.clone()))?;
                let said = self.server().and_then(|server| server.fatal.clone());
                let why = said.unwrap_or_else(|| how(status));
                self.restore_failed(&why, false);
            }
            ServerEvent::Ended { status } => {
                self.fetch_output()?;
                Self::check_files(self.slot.link_mut().and_then(Link::last_words))?;
                self.slot.process_ended(status);
                self.end_in_order()?;
            }
        }
        Ok(())
    }

    /// Whether its server is on its way to where an image was taken.
    fn is_restoring(&self) -> bool {
        self.slot.can_be_fed() && self.server().is_some_and(Link::is_restoring)
    }

    /// Its server could not be restored from an image: it begins again, from another one if that repeats.
    fn restore_failed(&mut self, why: &str, damaged: bool) {
        let index = self.server().map_or_else(Default::default, |server| server.admitted);
        self.not_restored(index, why, damaged);
        self.kill_server();
    }

    /// The server has ended; the others are told when the entry after which it ended is committed.
    fn end_in_order(&mut self) -> Result<(), ReplicaError> {
        if let Some(status) = self.slot.take_end() {
            self.fetch_output()?;
            let announced = self.server().and_then(|server| server.exit);
            self.server_ended(announced.unwrap_or(status));
        }
        Ok(())
    }

    fn server_ended(&mut self, status: i32) {
        let (index, pid) = self.server().map_or_else(Default::default, |s| (s.ended_at(), s.pid));
        let how = how(status);
        tracing::warn!(event = "server_ended", index = index.0, status, how, pid);
        let announced = self.server().is_some_and(|server| server.exit.is_some());
        self.ends.note_own((index, status), announced);
        if let Some(wait) = self.ended_for_upgrade((index, status)) {
            self.tell_end((index, status), wait);
            if wait == ENDS_WITHIN {
                self.slot.keeps_leadership();
            } else {
                self.forget_images_of_server();
            }
            return;
        }
        self.forget_images_of_server();
        self.slot.note_end(index, status);
        self.tell_end((index, status), EXIT_WAIT);
    }

    /// Tells the others its end, which their servers may share; the next server is due after `wait`.
    fn tell_end(&mut self, end: End, wait: Duration) {
        self.vacate(wait);
        if self.members.voters.contains(&self.own) {
            self.ends.exits.ended(self.own, end);
        }
        self.repeat_exit();
        self.judge_exits();
    }

    /// Tells all that this replica's server has ended, if nothing explains that yet: a peer that has joined may not know.
    pub(super) fn repeat_exit(&mut self) {
        if let Some((index, status)) = self.ends.exits.of(self.own) {
            self.ends.told = self.now;
            self.tell_exit(index, status);
        }
    }

    /// Has no server, and cannot have one but on what others' left at this end.
    pub(super) fn adopt_end(&mut self, end: End) {
        if self.members.voters.contains(&self.own) && self.ends.exits.of(self.own) != Some(end) {
            self.ends.exits.ended(self.own, end);
            self.repeat_exit();
        }
    }

    /// There is no server for a while.
    fn vacate(&mut self, wait: Duration) {
        self.slot.vacate(wait, self.now);
        self.make_next();
    }

    /// Begins to make the arena of the next generation.
    pub(super) fn make_next(&mut self) {
        if let Some(generation) = self.slot.wants_arena() {
            self.env.make_arena(self.config.tuning.sizes(), generation);
        }
    }

    /// Another replica's server ended.
    pub(super) fn peer_exit(&mut self, peer: ReplicaId, index: LogIndex, status: i32) {
        // One without a vote decides nothing for the others.
        if self.members.voters.contains(&peer) {
            let end = (index, status);
            let repeats = index > self.handed && self.ends.exits.of(peer) == Some(end);
            if repeats && self.common_end().is_some_and(|common| common.end == end) {
                // Its node is still there: it has not ended by that, and an upgrade may follow.
                self.ends.common_since = None;
            }
            self.ends.exits.ended(peer, end);
            self.judge_exits();
        }
    }

    /// Another replica's living server has executed this entry.
    pub(super) fn peer_survived(&mut self, index: LogIndex) {
        self.ends.exits.survived(index);
    }

    /// Servers' ends before this entry are explained: another edition begins with it.
    pub(super) fn ends_before(&mut self, index: LogIndex) {
        self.ends.exits.survived(LogIndex(index.0.saturating_sub(1)));
        self.ends.again = false;
    }

    /// Tells the others when this replica's server lives on where one ended.
    fn tell_survival(&mut self) {
        let survived = self.survived();
        if self.ends.exits.newest().is_some_and(|newest| newest <= survived) {
            self.ends.exits.survived(survived);
            self.tell_survived(survived);
        }
    }

    /// The last entry that its server has executed and lived on; 0 without a server.
    pub(super) fn survived(&self) -> LogIndex {
        self.server().map_or_else(Default::default, Link::survived)
    }

    /// Its server has ended where the one before did, and too few others that could tell whether theirs would are there: then the input is the cause.
    fn ended_again_alone(&self) -> Option<Common> {
        let end = self.ends.exits.of(self.own).filter(|_| self.ends.again)?;
        if self.is_of_upgrade(end) {
            return None;
        }
        let others: Vec<_> = self.members.that_can_serve().filter(|id| *id != self.own).collect();
        let there = 1 + self.env.connected().filter(|id| others.contains(id)).count();
        let few = there < majority(self.members.can_serve()) && self.consensus.leader().is_some();
        few.then_some(Common { end, count: 1 })
    }

    /// Whose ends count for this one, and how many are the least: of all that can have a server; in an upgrade, of those that have one.
    fn voices(&self, end: End) -> (BTreeSet<ReplicaId>, usize) {
        if self.is_of_upgrade(end) {
            return (self.with_servers(), 2);
        }
        (self.members.that_can_serve().collect(), 1)
    }

    /// The end that a majority's servers share.
    fn common_end(&self) -> Option<Common> {
        self.ends.exits.common(|end| self.voices(end))
    }

    /// The end of a replica's server, if nothing explains it yet.
    pub(super) fn end_of(&self, replica: ReplicaId) -> Option<End> {
        self.ends.exits.of(replica)
    }

    /// Whether a replica's server has ended, and nothing explains that yet.
    pub(super) fn has_ended(&self, replica: ReplicaId) -> bool {
        self.ends.exits.of(replica).is_some()
    }

    /// Ends the node, or restarts the server, when a majority's servers ended in the same way. Other
    /// replicas have until `EXIT_WAIT` or the rebuild to report that their servers live on.
    fn judge_exits(&mut self) {
        let common = self.common_end();
        let alone = || self.ended_again_alone().or_else(|| self.ended_for_all());
        let Some(common) = common.or_else(alone) else {
            self.ends.common_since = None;
            return;
        };
        let (end @ (index, status), replicas) = (common.end, common.count);
        let since = *self.ends.common_since.get_or_insert(self.now);
        // A disconnected replica may have a living server.
        let ended = |id: &ReplicaId| self.ends.exits.of(*id) == Some(end);
        let all = self.voices(end).0.iter().all(ended);
        // What the log says of this end may not be known here yet: an upgrade may follow.
        let behind = index > self.handed;
        self.ends.wait = if behind { BEHIND_WAIT } else { EXIT_WAIT };
        let hurries = !behind && (all || self.slot.is_due(self.now));
        if !hurries && self.now < since + self.ends.wait {
            return;
        }
        if behind && self.env.connected().any(|id| ended(&id)) {
            // A node that had ended by that would be gone: another edition's server runs there, say, and this one does not hear the leader.
            self.ends.common_since = Some(self.now);
            return;
        }
        self.ends.common_since = None;
        if self.upgrade_follows(end) {
            return;
        }
        let repeated = self.ends.last == Some(index);
        self.ends.last = Some(index);
        let how = how(status);
        tracing::warn!(event = "server_end", index = index.0, status, how, replicas);
        if self.config.on_exit == OnExit::Restart && !repeated {
            self.ends.exits.clear();
            return;
        }
        self.ending = Some(ExitReason::ServerEnded { index, status });
    }

    /// The server wrote impossible data into the arena.
    pub(super) fn server_broke(&mut self, broken: &Broken) {
        let Some(server) = self.server().filter(|_| self.slot.can_be_fed()) else { return };
        let index = server.admitted;
        tracing::error!(event = "server_broken", why = broken.0, index = index.0);
        self.note(format!("the server damaged its arena: {}", broken.0));
        self.kill_server();
        if self.replicas > 1 {
            // If it happens on all replicas, it is an end like any other.
            self.ends.note_own((index, DAMAGED), false);
            self.tell_end((index, DAMAGED), EXIT_WAIT);
        }
    }

    /// Ends this replica's server, to be rebuilt soon.
    pub(super) fn kill_server(&mut self) {
        self.forget_images_of_server();
        self.env.kill();
        self.vacate(Duration::ZERO);
    }

    /// Rebuilds, hands over, watches for spinning.
    pub(super) fn tend_server(&mut self) -> Result<(), ReplicaError> {
        self.follow_kind();
        self.end_in_order()?;
        self.tend_upgrade();
        if self.slot.has_process() {
            self.tell_survival();
        }
        if self.now >= self.ends.told + TELL_EVERY {
            self.repeat_exit();
        }
        self.judge_exits();
        match self.slot.state() {
            State::None(_) => {
                if self.slot.hands_over(self.now) {
                    let heir = self.heir().or_else(|| self.any_heir());
                    if let Some(to) = heir.filter(|_| self.lead.is_some()) {
                        tracing::info!(event = "handing_over", to = to.0);
                        self.hand_leadership_to(to);
                    }
                }
                if self.slot.is_due(self.now)
                    && self.ending.is_none()
                    && !self.leaves_files()
                    && let Some(source) = self.source()
                {
                    match self.slot.take_next() {
                        Some(link) => self.rebuild(link, &source)?,
                        None => self.make_next(),
                    }
                }
            }
            State::Starting => {}
            State::Restoring { .. } | State::Running => {
                self.watch_spin();
                self.watch_restoring();
            }
        }
        Ok(())
    }

    fn rebuild(&mut self, mut link: Link, source: &Source) -> Result<(), ReplicaError> {
        let times = self.slot.count_rebuild();
        if times > self.config.tuning.max_rebuilds {
            let index = self.server().map_or_else(Default::default, |server| server.admitted);
            let how = match self.ends.exits.of(self.own) {
                Some((_, status)) => how(status),
                None => self.left_out().unwrap_or("a divergence or a damaged arena".into()),
            };
            let output = self.config.output.clone();
            return Err(ReplicaError::KeepsEnding { times, index, how, output });
        }
        self.ends.exits.started(self.own);
        tracing::info!(event = "rebuilding", generation = link.generation, entries = self.handed.0);
        // A server that this thread starts may run anywhere.
        self.leave_core();
        if let Some(stamp) = super::begin(&mut self.env, &mut link, source)? {
            self.pulse.observe(stamp, &self.env);
        }
        let former = self.slot.refill(link);
        // A passive replica's first one has served nobody.
        let succeeds = former.is_some();
        if let Some(former) = former {
            self.env.retire(former);
        }
        self.health.progress.forget();
        self.compare.held.clear();
        self.compare.dispute.rebuilt();
        self.roots.forget();
        if !matches!(source, Source::Files(..)) {
            self.metrics.rebuilds.inc();
        }
        if self.lead.is_some() && succeeds {
            // Alone, or no replica took over: the clients' connections end, in order.
            self.gateway.reset_all_in_order();
            if matches!(source, Source::Files(..)) {
                self.gateway.begin_edition();
            }
            let last = self.consensus.last_index();
            self.lead = Some(Lead::new(self.consensus.term(), last, self.started));
            // What the former one answered is no answer of this one's.
            self.rounds = Rounds::default();
        }
        self.follow_ports()
    }

    /// A server that is being restored is in step when it has executed all that was committed.
    fn watch_restoring(&mut self) {
        if self.slot.is_in_step() {
            return;
        }
        let (knows, handed) = (self.knows_the_log(), self.handed);
        let goal =
            |server: &Link| (server.feed.next() > handed && knows).then(|| server.feed.given());
        if let Some(took) = self.slot.look(self.now, goal) {
            let (index, ms) = (self.applied().0, took.as_millis() as u64);
            tracing::info!(event = "caught_up", index, ms);
            self.health.layer = None;
            self.restored_well();
        }
    }

    /// Whether this replica has all entries that were committed when it joined: only the leader knows
    /// about later ones.
    fn knows_the_log(&self) -> bool {
        let (leader, target) = self.compare.target;
        match &self.lead {
            Some(lead) => lead.serves(),
            None => {
                self.consensus.leader() == Some(leader)
                    && self.handed >= target
                    && self.consensus.role() == Role::Follower
            }
        }
    }

    /// The fault that its server has ended, until it is back.
    pub(super) fn ended_fault(&self) -> Option<Fault> {
        let (index, status) = self.slot.last_end()?;
        let how = how(status);
        let why =
            format!("its server ended after entry {index} ({how}) and is rebuilt from the log");
        Some(Fault::new(SERVER_ENDED, why))
    }

    pub(super) fn server_is_busy(&self) -> bool {
        let waits = self.beyond().is_some_and(|beyond| beyond.waits.is_some());
        self.slot.has_process()
            && !waits
            && self.server().is_some_and(|server| {
                server.admitted != server.feed.given()
                    || server.state() == state::RUNNING
                    || server.is_restoring()
            })
    }
}

/// A wait status in words.
pub(super) fn how(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit status {}", status >> 8 & 0xff),
        signal => format!("signal {signal}"),
    }
}
