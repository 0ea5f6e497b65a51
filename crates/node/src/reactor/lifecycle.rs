//! The server's life: started, ended, rebuilt from the log.
//!
//! A server that ends on this replica alone (it crashed, was killed, differed, or broke the arena) is started afresh and
//! executes the log from entry 1. One that ends on a majority of the replicas after the same entry has ended: `on_exit`
//! decides. The replicas tell each other how their servers ended.

use super::{Door, Inbox, Reactor, SERVER};
use crate::config::{NodeConfig, OnExit};
use crate::error::{ExitReason, NodeError};
use crate::order::lead::Lead;
use crate::server::launch::Keeper;
use crate::server::{Broken, Launcher, Link, ServerEvent};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use skein_arena::layout::state;
use skein_log::Role;
use skein_model::limits::SPIN_SIGNAL;
use skein_model::{LogIndex, ReplicaId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the others may take to report the same end.
const EXIT_WAIT: Duration = Duration::from_secs(1);
/// A leader whose server ended alone lets another lead after this.
const HAND_OVER_AFTER: Duration = Duration::from_millis(200);
/// The pause before the second rebuild in a row; doubled each time.
const REBUILD_PAUSE: Duration = Duration::from_millis(200);
/// A server that ran this long has not failed in a row.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// A server that does no operation for this long while others wait is asked where it is.
const SPIN_AFTER: Duration = Duration::from_secs(1);
const SPIN_AGAIN: Duration = Duration::from_secs(10);

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

/// The process side of the server, generation after generation.
pub struct Lifecycle {
    launcher: Arc<dyn Launcher>,
    door: Door,
    keeper: Option<Keeper>,
    former: Vec<Keeper>,
    phase: Phase,
    begun: Duration,
    /// Rebuilds in a row,
    rebuilds: u32,
    /// which the next one is not of.
    forgiven: bool,
    /// It has executed all that was committed once.
    pub caught_up: bool,
    /// The entry after which it has, once that is known.
    goal: Option<LogIndex>,
    /// It differed from the others and is not running again yet.
    pub diverged: bool,
    /// How the replicas' servers ended.
    exits: BTreeMap<ReplicaId, (LogIndex, i32)>,
    last_end: Option<LogIndex>,
    /// It ended with this status after an entry that is not committed yet.
    ended_ahead: Option<i32>,
    spin: Spin,
}

#[derive(Debug, Default)]
struct Spin {
    operations: u64,
    since: Duration,
    asked: Option<Duration>,
}

impl Lifecycle {
    /// Starts the first generation.
    pub fn begin(
        config: &NodeConfig,
        launcher: Arc<dyn Launcher>,
        door: &Door,
        registry: &Registry,
    ) -> Result<(Link, Self), NodeError> {
        let mut life = Self {
            launcher,
            door: door.clone(),
            keeper: None,
            former: Vec::new(),
            phase: Phase::Starting,
            begun: Duration::ZERO,
            rebuilds: 0,
            forgiven: false,
            caught_up: false,
            goal: None,
            diverged: false,
            exits: BTreeMap::new(),
            last_end: None,
            ended_ahead: None,
            spin: Spin::default(),
        };
        let corrupt_at = config.corrupt_digest_at.map(LogIndex);
        let link = Link::new(config.tuning.sizes(), 1, corrupt_at)?;
        life.start(&link, registry)?;
        Ok((link, life))
    }

    fn start(&mut self, link: &Link, registry: &Registry) -> Result<(), NodeError> {
        let generation = link.generation;
        let token = Token(SERVER + generation as usize);
        registry
            .register(&mut SourceFd(&link.wake_fd()), token, Interest::READABLE)
            .map_err(NodeError::system("watch the server"))?;
        let (arena, wake) = link.descriptors().map_err(NodeError::system("copy a descriptor"))?;
        let door = self.door.clone();
        let tell = move |event| {
            // The reactor is gone when the node ends.
            let _ = door.tell(Inbox::Server(generation, event));
        };
        let keeper = Keeper::start(self.launcher.clone(), arena, wake, tell)
            .map_err(NodeError::system("start a thread for the server"))?;
        self.keeper = Some(keeper);
        self.phase = Phase::Starting;
        Ok(())
    }

    /// Kills the server and waits for its end.
    pub fn finish(&mut self) {
        self.former.extend(self.keeper.take());
        self.former.drain(..).for_each(Keeper::finish);
    }

    /// Whether entries may be put into the ring: the server is there or comes.
    #[must_use]
    pub const fn can_be_fed(&self) -> bool {
        !matches!(self.phase, Phase::Ended { .. })
    }

    /// Whether it may be given what is not committed yet.
    #[must_use]
    pub fn can_go_ahead(&self) -> bool {
        self.phase == Phase::Running && self.ended_ahead.is_none()
    }

    /// The next rebuild is nobody's fault.
    pub const fn forgive(&mut self) {
        self.forgiven = true;
    }

    /// Whether its process is being started.
    #[must_use]
    pub const fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting)
    }

    /// A replica's node has started again, so its server has, too.
    pub fn forget_exit(&mut self, replica: ReplicaId) {
        self.exits.remove(&replica);
    }

    /// When to look again, if ever.
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        match self.phase {
            Phase::Ended { since, again, handed_over: false } => {
                Some(again.min(since + HAND_OVER_AFTER))
            }
            Phase::Ended { again, .. } => Some(again),
            _ => None,
        }
    }
}

impl Reactor {
    pub(super) fn server_event(
        &mut self,
        generation: u64,
        event: ServerEvent,
    ) -> Result<(), NodeError> {
        if generation != self.server.generation {
            return Ok(());
        }
        match event {
            ServerEvent::Launched { pid, layer } => {
                tracing::info!(event = "server_started", pid, generation);
                self.server.launched(pid, layer);
                self.life.phase = Phase::Running;
                self.life.begun = self.now;
                self.life.diverged = false;
            }
            ServerEvent::Failed(error) => return Err(error),
            ServerEvent::Ended { status } => {
                self.fetch_output()?;
                if self.life.can_be_fed() {
                    self.life.ended_ahead = Some(status);
                    self.end_in_order()?;
                }
            }
        }
        Ok(())
    }

    /// The server has ended; so it has for the others to know when the entry is committed after which it did.
    fn end_in_order(&mut self) -> Result<(), NodeError> {
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
        tracing::warn!(event = "server_ended", index = index.0, status, how, pid = self.server.pid);
        self.server.pid = 0;
        self.end_phase(EXIT_WAIT);
        self.life.exits.insert(self.own, (index, status));
        self.tell_exit(index, status);
        self.judge_exits();
    }

    /// Somebody joined who may not know that this replica's server has ended.
    pub(super) fn repeat_exit(&mut self) {
        if let Some(&(index, status)) = self.life.exits.get(&self.own) {
            self.tell_exit(index, status);
        }
    }

    fn end_phase(&mut self, wait: Duration) {
        if self.now.saturating_sub(self.life.begun) > STABLE_AFTER {
            self.life.rebuilds = 0;
        }
        let pause = REBUILD_PAUSE * (1 << self.life.rebuilds.min(6)) / 2;
        let again = self.now + wait.max(pause);
        self.life.phase = Phase::Ended { since: self.now, again, handed_over: false };
        self.life.caught_up = false;
        self.life.goal = None;
        self.life.ended_ahead = None;
    }

    /// Another replica's server ended.
    pub(super) fn peer_exit(&mut self, peer: ReplicaId, index: LogIndex, status: i32) {
        self.life.exits.insert(peer, (index, status));
        self.judge_exits();
    }

    fn judge_exits(&mut self) {
        let exits = &self.life.exits;
        let same = |index: LogIndex| exits.values().filter(|(i, _)| *i == index).count();
        let Some(&(index, status)) = exits.values().find(|(i, _)| same(*i) * 2 > self.replicas)
        else {
            return;
        };
        let again = self.life.last_end == Some(index);
        self.life.last_end = Some(index);
        let how = how(status);
        tracing::warn!(event = "server_end", index = index.0, status, how, replicas = same(index));
        if self.config.on_exit == OnExit::Restart && !again {
            self.life.exits.clear();
            return;
        }
        self.ending = Some(ExitReason::ServerEnded { index, status });
    }

    /// The server wrote into the arena what no server writes.
    pub(super) fn server_broke(&mut self, broken: &Broken) {
        if !self.life.can_be_fed() {
            return;
        }
        tracing::error!(event = "server_broken", why = broken.0, index = self.server.admitted.0);
        self.note(format!("the server damaged its arena: {}", broken.0));
        self.kill_server();
    }

    /// Ends this replica's server, to be rebuilt soon.
    pub(super) fn kill_server(&mut self) {
        if let Some(keeper) = &mut self.life.keeper {
            keeper.kill();
        }
        self.server.pid = 0;
        self.end_phase(Duration::ZERO);
    }

    /// Rebuilds, hands over, watches for spinning.
    pub(super) fn tend_server(&mut self) -> Result<(), NodeError> {
        self.end_in_order()?;
        match self.life.phase {
            Phase::Ended { since, again, handed_over } => {
                let other = self.peers.connected().next();
                if !handed_over && self.now >= since + HAND_OVER_AFTER {
                    self.life.phase = Phase::Ended { since, again, handed_over: true };
                    if let Some(to) = other.filter(|_| self.lead.is_some()) {
                        tracing::info!(event = "handing_over", to = to.0);
                        self.consensus.transfer_leadership(to);
                    }
                }
                if self.now >= again {
                    self.rebuild()?;
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

    fn rebuild(&mut self) -> Result<(), NodeError> {
        self.life.rebuilds += u32::from(!std::mem::take(&mut self.life.forgiven));
        let index = self.server.admitted;
        if self.life.rebuilds > self.config.tuning.max_rebuilds {
            let how = match self.life.exits.get(&self.own) {
                Some((_, status)) => how(*status),
                None => "a divergence or a damaged arena".into(),
            };
            let output = self.config.output_path();
            return Err(NodeError::KeepsEnding { times: self.life.rebuilds, index, how, output });
        }
        self.life.exits.remove(&self.own);
        if let Some(mut keeper) = self.life.keeper.take() {
            keeper.kill();
            self.life.former.push(keeper);
        }
        let generation = self.server.generation + 1;
        tracing::info!(event = "rebuilding", generation, entries = self.handed.0);
        // A server that this thread starts may run anywhere.
        self.leave_core();
        // Closing the old eventfd takes it out of the poll.
        self.server = Link::new(self.config.tuning.sizes(), generation, None)?;
        self.life.start(&self.server, self.sources.urgent())?;
        self.life.caught_up = false;
        self.life.goal = None;
        self.compare.held.clear();
        self.metrics.rebuilds.inc();
        if self.lead.is_some() {
            // Alone, or nobody took over: the clients' connections end, in order.
            self.gateway.reset_all_in_order();
            let last = self.consensus.status().last_index;
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
            let ms = self.now.saturating_sub(self.life.begun).as_millis() as u64;
            tracing::info!(event = "caught_up", index = self.server.admitted.0, ms);
        }
    }

    /// Whether this replica has all that was committed when it joined: what there is beyond what it was told only the
    /// leader knows.
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

    fn watch_spin(&mut self) {
        let header = self.server.header();
        let operations = header.operations.load(Ordering::Relaxed);
        let busy =
            self.server.state() == state::RUNNING && header.runnable.load(Ordering::Relaxed) > 0;
        let spin = &mut self.life.spin;
        if operations != spin.operations || !busy {
            *spin = Spin { operations, since: self.now, asked: None };
            return;
        }
        let how_long = self.now.saturating_sub(spin.since);
        let due = spin.asked.is_none_or(|at| self.now.saturating_sub(at) >= SPIN_AGAIN);
        if how_long >= SPIN_AFTER && due && self.server.pid != 0 {
            spin.asked = Some(self.now);
            header.spin_seen.store(0, Ordering::Relaxed);
            // SAFETY: takes no pointers. The process is ours and not reaped before its `Ended` event, which clears the pid.
            unsafe {
                libc::syscall(libc::SYS_tgkill, self.server.pid, self.server.pid, SPIN_SIGNAL)
            };
            return;
        }
        if spin.asked.is_some() && header.spin_seen.swap(0, Ordering::AcqRel) != 0 {
            let address = header.spin_address.load(Ordering::Relaxed);
            let thread = header.turn_holder.load(Ordering::Relaxed);
            let at = module_of(self.server.pid, address);
            let ms = how_long.as_millis() as u64;
            tracing::warn!(
                event = "spinning",
                thread,
                address = at,
                ms,
                why = "a thread runs without any operation while others wait"
            );
            self.metrics.spins.inc();
            self.note(format!("thread {thread} spins at {at} for {ms} ms while others wait"));
        }
    }
}

/// A wait status in words.
fn how(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit status {}", status >> 8 & 0xff),
        signal => format!("signal {signal}"),
    }
}

/// `libfoo.so+0x12ab`, or the bare address.
fn module_of(pid: u32, address: u64) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let found = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        if !(from..to).contains(&address) {
            return None;
        }
        let mut fields = rest.split_ascii_whitespace();
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let file = fields.nth(2)?.rsplit('/').next()?;
        Some(format!("{file}+{:#x}", address - from + offset))
    });
    found.unwrap_or_else(|| format!("{address:#x}"))
}
