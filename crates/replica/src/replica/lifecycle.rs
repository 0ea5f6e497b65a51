//! The server's life: started, ended, rebuilt from the log.
//!
//! A server that ends on this replica alone (it crashed, was killed, differed, or broke the arena) is restarted and
//! executes the log from entry 1. One that ends on a majority of the replicas after the same entry, in the same way, has ended: `on_exit`
//! decides. The replicas tell each other their servers' ends, and which servers live on after that entry ([`crate::verdicts::exits`]).
//!
//! An arena is thousands of pages: making or unmapping one takes a busy machine longer than an election timeout. So both are done beside the
//! replica, the next server's from the end of the one before on.

use super::rebuilds::Rebuilds;
use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::config::{Member, OnExit};
use crate::error::{ExitReason, ReplicaError};
use crate::health::spin::Spin;
use crate::health::{Fault, SERVER_ENDED};
use crate::server::{Broken, Link, ServerEvent};
use crate::verdicts::exits::Exits;
use skein_arena::layout::state;
use skein_log::Role;
use skein_model::{LogIndex, ReplicaId};
use std::time::Duration;

/// The longest wait for the others to report the same end.
const EXIT_WAIT: Duration = Duration::from_secs(1);
/// A leader whose server ended alone hands leadership over after this.
const HAND_OVER_AFTER: Duration = Duration::from_millis(200);
/// The status of a server that damaged its arena: as if the runtime had ended it.
const DAMAGED: i32 = 125 << 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    /// Ended or killed; the rebuild is due at `again`, unless a majority ended too.
    Ended {
        since: Duration,
        again: Duration,
        handed_over: bool,
    },
}

/// The arena of the next generation.
enum Next {
    /// No thread makes one.
    None,
    /// A thread makes it, and reports it.
    Coming,
    Made(Box<Link>),
}

/// The process side of the server, generation after generation.
pub struct Lifecycle {
    next: Next,
    phase: Phase,
    begun: Duration,
    rebuilds: Rebuilds,
    /// It has executed all committed entries once.
    pub caught_up: bool,
    /// The entry after which it has, once that is known.
    goal: Option<LogIndex>,
    /// It differed from the others and is not running again yet.
    pub diverged: bool,
    /// The ends of the replicas' servers.
    exits: Exits,
    /// The time since when a majority's ends are the same.
    common_since: Option<Duration>,
    last_end: Option<LogIndex>,
    /// It ended with this status after an entry that is not committed yet.
    ended_ahead: Option<i32>,
    /// Its last end with its status, until it has caught up again.
    ended: Option<(LogIndex, i32)>,
    /// Whether it spins.
    pub spin: Spin,
}

impl Lifecycle {
    /// The first generation is being started.
    pub fn new() -> Self {
        Self {
            next: Next::None,
            phase: Phase::Starting,
            begun: Duration::ZERO,
            rebuilds: Rebuilds::default(),
            caught_up: false,
            goal: None,
            diverged: false,
            exits: Exits::default(),
            common_since: None,
            last_end: None,
            ended_ahead: None,
            ended: None,
            spin: Spin::default(),
        }
    }

    /// Whether entries may be put into the ring: the server runs or starts.
    #[must_use]
    pub const fn can_be_fed(&self) -> bool {
        !matches!(self.phase, Phase::Ended { .. })
    }

    /// Whether it may be given uncommitted entries.
    #[must_use]
    pub fn can_go_ahead(&self) -> bool {
        self.phase == Phase::Running && self.ended_ahead.is_none()
    }

    /// The next rebuild does not count.
    pub const fn forgive(&mut self) {
        self.rebuilds.forgive();
    }

    /// Whether its process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// The number of rebuilds in a row.
    #[must_use]
    pub const fn rebuilds_in_a_row(&self) -> u32 {
        self.rebuilds.count()
    }

    /// The fault that it has ended, until it is back.
    #[must_use]
    pub fn ended_fault(&self) -> Option<Fault> {
        let (index, status) = self.ended?;
        let how = how(status);
        let why =
            format!("its server ended after entry {index} ({how}) and is rebuilt from the log");
        Some(Fault::new(SERVER_ENDED, why))
    }

    /// Whether its process is being started.
    #[must_use]
    pub const fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting)
    }

    /// A replica's node has started again, so its server has, too.
    pub fn forget_exit(&mut self, replica: ReplicaId) {
        self.exits.started(replica);
    }

    /// When to look again, if ever.
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        let phase = match self.phase {
            Phase::Ended { since, handed_over: false, .. } => Some(since + HAND_OVER_AFTER),
            _ => None,
        };
        let rebuild = match self.phase {
            Phase::Ended { again, .. } if !matches!(self.next, Next::Coming) => Some(again),
            _ => None,
        };
        let judged = self.common_since.map(|since| since + EXIT_WAIT);
        phase.into_iter().chain(rebuild).chain(judged).min()
    }
}

impl<E: Environment> Replica<E> {
    pub(super) fn server_event(
        &mut self,
        generation: u64,
        event: ServerEvent,
    ) -> Result<(), ReplicaError> {
        if generation != self.server.generation {
            return Ok(());
        }
        match event {
            ServerEvent::Launched { pid, init, files } => {
                tracing::info!(event = "server_started", pid, generation);
                self.server.launched(pid, init, files);
                self.life.phase = Phase::Running;
                self.life.begun = self.now;
                self.life.diverged = false;
            }
            ServerEvent::Failed(error) => return Err(error),
            ServerEvent::Ended { status } => {
                self.fetch_output()?;
                Self::check_files(self.server.last_words())?;
                if self.life.can_be_fed() {
                    self.life.ended_ahead = Some(status);
                    self.end_in_order()?;
                }
            }
        }
        Ok(())
    }

    /// The server has ended; the others are told when the entry after which it ended is committed.
    fn end_in_order(&mut self) -> Result<(), ReplicaError> {
        if self.life.ended_ahead.is_some() && self.server.ahead.is_empty() {
            self.fetch_output()?;
            if let Some(status) = self.life.ended_ahead.take() {
                self.server_ended(self.server.exit.unwrap_or(status));
            }
        }
        Ok(())
    }

    fn server_ended(&mut self, status: i32) {
        let index = self.server.admitted;
        let how = how(status);
        self.life.ended = Some((index, status));
        tracing::warn!(event = "server_ended", index = index.0, status, how, pid = self.server.pid);
        self.server.pid = 0;
        self.report_end(status);
    }

    /// Tells the others its end, which their servers may share.
    fn report_end(&mut self, status: i32) {
        let index = self.server.admitted;
        self.end_phase(EXIT_WAIT);
        self.life.exits.ended(self.own, (index, status));
        self.tell_exit(index, status);
        self.judge_exits();
    }

    /// A peer joined that may not know that this replica's server has ended.
    pub(super) fn repeat_exit(&mut self) {
        if let Some((index, status)) = self.life.exits.of(self.own) {
            self.tell_exit(index, status);
        }
    }

    fn end_phase(&mut self, wait: Duration) {
        let again = self.now + wait.max(self.life.rebuilds.ended(self.now));
        self.life.phase = Phase::Ended { since: self.now, again, handed_over: false };
        self.life.caught_up = false;
        self.life.goal = None;
        self.life.ended_ahead = None;
        self.make_next();
    }

    /// Begins to make the arena of the next generation.
    fn make_next(&mut self) {
        if !matches!(self.life.next, Next::None) {
            return;
        }
        self.life.next = Next::Coming;
        self.env.make_arena(self.config.tuning.sizes(), self.server.generation + 1);
    }

    /// The next generation's arena is made.
    pub(super) fn next_made(&mut self, link: Box<Link>) {
        self.life.next = Next::Made(link);
    }

    /// Another replica's server ended.
    pub(super) fn peer_exit(&mut self, peer: ReplicaId, index: LogIndex, status: i32) {
        self.life.exits.ended(peer, (index, status));
        self.judge_exits();
    }

    /// Another replica's living server has executed this entry.
    pub(super) fn peer_survived(&mut self, index: LogIndex) {
        self.life.exits.survived(index);
    }

    /// Tells the others when this replica's server lives on where one ended.
    fn tell_survival(&mut self) {
        let survived = self.server.survived();
        if self.life.exits.newest().is_some_and(|newest| newest <= survived) {
            self.life.exits.survived(survived);
            self.tell_survived(survived);
        }
    }

    /// Ends the node, or restarts the server, when a majority's servers ended in the same way. Other
    /// replicas have until `EXIT_WAIT` or the rebuild to report that their servers live on.
    fn judge_exits(&mut self) {
        let Some(common) = self.life.exits.common(self.replicas) else {
            self.life.common_since = None;
            return;
        };
        let (end @ (index, status), replicas) = (common.end, common.count);
        let since = *self.life.common_since.get_or_insert(self.now);
        // A disconnected replica may have a living server.
        let ended = |member: &Member| self.life.exits.of(member.id) == Some(end);
        let all = self.config.members.iter().all(ended);
        let rebuilds = matches!(self.life.phase, Phase::Ended { again, .. } if self.now >= again);
        if !all && !rebuilds && self.now < since + EXIT_WAIT {
            return;
        }
        self.life.common_since = None;
        let repeated = self.life.last_end == Some(index);
        self.life.last_end = Some(index);
        let how = how(status);
        tracing::warn!(event = "server_end", index = index.0, status, how, replicas);
        if self.config.on_exit == OnExit::Restart && !repeated {
            self.life.exits.clear();
            return;
        }
        self.ending = Some(ExitReason::ServerEnded { index, status });
    }

    /// The server wrote impossible data into the arena.
    pub(super) fn server_broke(&mut self, broken: &Broken) {
        if !self.life.can_be_fed() {
            return;
        }
        tracing::error!(event = "server_broken", why = broken.0, index = self.server.admitted.0);
        self.note(format!("the server damaged its arena: {}", broken.0));
        self.kill_server();
        if self.replicas > 1 {
            // If it happens on all replicas, it is an end like any other.
            self.report_end(DAMAGED);
        }
    }

    /// Ends this replica's server, to be rebuilt soon.
    pub(super) fn kill_server(&mut self) {
        self.env.kill();
        self.server.pid = 0;
        self.end_phase(Duration::ZERO);
    }

    /// Rebuilds, hands over, watches for spinning.
    pub(super) fn tend_server(&mut self) -> Result<(), ReplicaError> {
        self.end_in_order()?;
        if self.life.phase == Phase::Running {
            self.tell_survival();
        }
        self.judge_exits();
        match self.life.phase {
            Phase::Ended { since, again, handed_over } => {
                if !handed_over && self.now >= since + HAND_OVER_AFTER {
                    self.life.phase = Phase::Ended { since, again, handed_over: true };
                    let heir = self.heir().or_else(|| self.env.connected().next());
                    if let Some(to) = heir.filter(|_| self.lead.is_some()) {
                        tracing::info!(event = "handing_over", to = to.0);
                        self.consensus.transfer_leadership(to);
                    }
                }
                if self.now >= again && self.ending.is_none() {
                    match std::mem::replace(&mut self.life.next, Next::None) {
                        Next::Made(link) => self.rebuild(*link)?,
                        Next::Coming => self.life.next = Next::Coming,
                        Next::None => self.make_next(),
                    }
                }
            }
            Phase::Running => {
                self.watch_spin();
                self.watch_progress();
            }
            Phase::Starting => {}
        }
        Ok(())
    }

    fn rebuild(&mut self, link: Link) -> Result<(), ReplicaError> {
        let times = self.life.rebuilds.begin();
        let index = self.server.admitted;
        if times > self.config.tuning.max_rebuilds {
            let how = match self.life.exits.of(self.own) {
                Some((_, status)) => how(status),
                None => "a divergence or a damaged arena".into(),
            };
            let output = self.config.output.clone();
            return Err(ReplicaError::KeepsEnding { times, index, how, output });
        }
        self.life.exits.started(self.own);
        let generation = link.generation;
        assert_eq!(generation, self.server.generation + 1, "an arena for another generation");
        tracing::info!(event = "rebuilding", generation, entries = self.handed.0);
        // A server that this thread starts may run anywhere.
        self.leave_core();
        let old = std::mem::replace(&mut self.server, link);
        self.env.retire(old);
        self.env.start(&self.server)?;
        self.life.phase = Phase::Starting;
        self.life.caught_up = false;
        self.life.goal = None;
        self.health.progress.forget();
        self.compare.held.clear();
        self.compare.dispute.rebuilt();
        self.metrics.rebuilds.inc();
        if self.lead.is_some() {
            // Alone, or no replica took over: the clients' connections end, in order.
            self.gateway.reset_all_in_order();
            let last = self.consensus.last_index();
            self.lead = Some(Lead::new(self.consensus.term(), last, self.started));
        }
        self.follow_ports()
    }

    fn watch_progress(&mut self) {
        if self.life.caught_up {
            return;
        }
        if self.life.goal.is_none() && self.server.feed.next() > self.handed && self.knows_the_log()
        {
            self.life.goal = Some(self.server.feed.given());
        }
        if self.life.goal.is_some_and(|goal| self.server.admitted >= goal) {
            self.life.caught_up = true;
            self.life.rebuilds.in_step(self.now);
            self.life.ended = None;
            let ms = self.now.saturating_sub(self.life.begun).as_millis() as u64;
            tracing::info!(event = "caught_up", index = self.server.admitted.0, ms);
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

    pub(super) fn server_is_busy(&self) -> bool {
        let behind = self.server.admitted != self.server.feed.given();
        self.life.phase == Phase::Running && (behind || self.server.state() == state::RUNNING)
    }
}

/// A wait status in words.
fn how(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit status {}", status >> 8 & 0xff),
        signal => format!("signal {signal}"),
    }
}
