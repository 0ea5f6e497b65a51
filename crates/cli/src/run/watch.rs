//! Decides which changes are worth a line: follows the nodes' lives and answers. Pure: time is an argument.
//!
//! Time is a duration since `skein run` started.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use skein_node::{NodeStatus, ReplicaState};
use skein_replica::health::SERVER_ENDED;
use skein_replica::majority;

/// A node that owes an answer for this long is named.
pub const SILENT: Duration = Duration::from_secs(2);
/// A deposed leader that owes an answer for this long is killed, so that its clients need not hang on.
pub const HUNG: Duration = Duration::from_secs(10);
/// How long a cluster with a serving leader may wait for the other replicas before it counts as ready.
const STRAGGLERS: Duration = Duration::from_secs(10);
/// How long a server may run without listening before the cluster counts as ready.
const NO_LISTENER: Duration = Duration::from_secs(10);
/// After this time a server that listens only where nothing is published is reported,
const WRONG_PORT: Duration = Duration::from_secs(2);
/// and after this time given up, counted from when it last opened a port or used something of the host: a slow start opens others later.
const NO_SUCH_PORT: Duration = Duration::from_secs(30);
/// The most remembered notes: a note of all replicas is printed once.
const NOTES: usize = 64;

/// The start of a node's note of its own divergence; the state itself may have passed between two looks.
const DIFFERED: &str = "output differed";

/// Prefixes of faults that say that another replica is silent.
const SILENT_FAULT: &str = "silent_";

/// Whether a fault is worth a line: missing nodes and ended servers are known here already.
fn tells(fault: &str) -> bool {
    !fault.starts_with(SILENT_FAULT) && fault != SERVER_ENDED
}

/// The start of a node's note of a refused call; the call's name follows.
const REFUSED: &str = "call_refused: ";

/// How often nodes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Something is going on.
    Hurry,
    /// All is well, or known: often enough to report changes.
    Calm,
    /// Nobody uses the cluster either: seldom enough that a question is a tenth of what a node costs.
    Idle,
}

impl Pace {
    /// The pause between two questions.
    pub const fn pause_ms(self) -> u64 {
        match self {
            Self::Hurry => 10,
            Self::Calm => 1_000,
            Self::Idle => 5_000,
        }
    }
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Say this.
    Say(String),
    /// The cluster is ready, with the text to print.
    Ready(String),
    /// Kill this node, which hangs.
    Kill(u64),
    /// End it all: no client will ever reach the server. Problem, reason and remedy.
    Fail(String, String, String),
}

#[derive(Debug, Default)]
struct Node {
    alive: bool,
    status: Option<NodeStatus>,
    /// The time of its last answer or start.
    heard: Duration,
    /// The time of the first question since then that has no answer.
    asked: Option<Duration>,
    silent: bool,
    /// Its server was seen to have ended, and no other one yet.
    ended: bool,
    killed: bool,
    /// The time since which it, or its server, has been restarting.
    recovering: Option<Duration>,
    /// Its faults that were reported.
    faults: Vec<String>,
    /// The number of its starts.
    starts: u32,
    /// It has been in step since its last start, so it holds the committed entries.
    in_step: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leader {
    id: u64,
    term: u64,
}

/// The last seen state of the nodes.
#[derive(Debug)]
pub struct Watch {
    nodes: BTreeMap<u64, Node>,
    leader: Option<Leader>,
    /// The time of the leader's death, while there is no new leader.
    outage: Option<Duration>,
    ready: bool,
    /// The time since which a leader has been there while the cluster was not ready.
    leading: Option<Duration>,
    notes: VecDeque<String>,
    /// Ports of the server that are not on the user's list, with their would-be addresses.
    unnamed: Vec<(u16, String)>,
    /// The time since which no further port came and the server used nothing new of the host, while the cluster was not ready.
    still: Option<(Duration, u64)>,
    /// The report was made.
    told_unnamed: bool,
}

fn list(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    let word = if ids.len() == 1 { "replica" } else { "replicas" };
    format!("{word} {}", ids.join(", "))
}

fn took(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{} s", time.as_secs())
    }
}

impl Watch {
    /// An empty state.
    pub fn new(ids: impl Iterator<Item = u64>) -> Self {
        Self {
            nodes: ids.map(|id| (id, Node::default())).collect(),
            leader: None,
            outage: None,
            ready: false,
            leading: None,
            notes: VecDeque::new(),
            unnamed: Vec::new(),
            still: None,
            told_unnamed: false,
        }
    }

    /// The server has a port that is not named, and is published at this address.
    pub fn unnamed(&mut self, server_port: u16, fix: String) {
        self.unnamed.push((server_port, fix));
        self.still = None;
    }

    /// A node's process was started.
    pub fn started(&mut self, now: Duration, id: u64) {
        let again = self.ready;
        if let Some(node) = self.nodes.get_mut(&id) {
            *node = Node {
                alive: true,
                heard: now,
                recovering: again.then_some(now),
                starts: node.starts + 1,
                ..Node::default()
            };
        }
    }

    /// A node's process ended.
    pub fn died(&mut self, now: Duration, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            *node = Node { heard: now, starts: node.starts, ..Node::default() };
        }
        if self.leader.is_some_and(|leader| leader.id == id) {
            self.outage.get_or_insert(now);
        }
    }

    /// Whether so many nodes are dead, or restarted and not in step yet, that data held only in memory are lost.
    pub fn lost_majority(&self) -> bool {
        let lost = |node: &&Node| match node.alive {
            true => node.starts > 1 && !node.in_step,
            false => node.starts > 0,
        };
        self.nodes.values().filter(lost).count() >= majority(self.nodes.len())
    }

    /// Living nodes that restarted and are not known to be in step.
    pub fn not_in_step(&self) -> Vec<u64> {
        let catching_up =
            |(_, node): &(&u64, &Node)| node.alive && node.starts > 1 && !node.in_step;
        self.nodes.iter().filter(catching_up).map(|(id, _)| *id).collect()
    }

    /// How often to ask.
    pub fn pace(&self) -> Pace {
        if !self.ready || self.serving().is_none() {
            return Pace::Hurry;
        }
        let is_idle = |node: &Node| {
            let status = node.status.as_ref().filter(|_| node.alive && node.asked.is_none());
            status.is_some_and(|status| {
                status.idle && status.replica.state.is_well() && status.replica.faults.is_empty()
            })
        };
        if self.nodes.values().all(is_idle) { Pace::Idle } else { Pace::Calm }
    }

    /// The leader that serves, as far as is known.
    pub fn leader(&self) -> Option<u64> {
        self.leader.map(|leader| leader.id)
    }

    /// A node answered.
    pub fn answered(&mut self, now: Duration, id: u64, status: NodeStatus) -> Vec<Act> {
        let mut acts = Vec::new();
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.alive) else { return acts };
        let mut say = |text: String| acts.push(Act::Say(text));
        if std::mem::take(&mut node.silent) {
            say(format!("node {id} answers again"));
        }
        (node.heard, node.asked) = (now, None);
        let was = node.status.as_ref().map(|status| status.replica.state);
        let is = status.replica.state;
        let in_step = [Some(ReplicaState::Running), Some(ReplicaState::Stuck)];
        let server =
            |status: &NodeStatus| (status.replica.server_pid, status.replica.edition.number);
        let old_server = node.status.as_ref().map(server).filter(|(pid, _)| *pid > 0);
        // It may be in step again by the next answer.
        let is_another = old_server.is_some_and(|(pid, edition)| {
            let (new_pid, new_edition) = server(&status);
            new_pid > 0 && new_pid != pid && new_edition == edition
        });
        if in_step.contains(&was) && (is == ReplicaState::CatchingUp || is_another) {
            node.ended = true;
        }
        // Reported only when a new server is there: a server that ends on all replicas is not rebuilt.
        let rebuilt = status.replica.server_pid > 0 && std::mem::take(&mut node.ended);
        if rebuilt {
            say(format!("the server of node {id} ended and is rebuilt from the log"));
        }
        if self.ready && (rebuilt || is == ReplicaState::Diverged) {
            node.recovering.get_or_insert(now);
        }
        let ailing: Vec<_> = status.replica.faults.iter().map(|fault| fault.name.clone()).collect();
        if self.ready {
            for fault in &status.replica.faults {
                if tells(&fault.name) && !node.faults.contains(&fault.name) {
                    say(format!("node {id}: {}", fault.why));
                }
            }
            let some_tell = |names: &[String]| names.iter().any(|name| tells(name));
            if !some_tell(&ailing) && some_tell(&node.faults) {
                say(format!("node {id} is well again"));
            }
        }
        node.faults = ailing;
        node.in_step |= is.is_well();
        if is.is_well()
            && let Some(since) = node.recovering.take()
        {
            let (index, time) = (status.replica.applied_index, took(now.saturating_sub(since)));
            say(format!("node {id} caught up with entry {index} after {time}"));
        }
        let fresh: Vec<String> =
            status.notes.iter().filter(|note| !self.notes.contains(note)).cloned().collect();
        let differed = |note: &String| note.contains(DIFFERED);
        let newly = is == ReplicaState::Diverged && was != Some(ReplicaState::Diverged);
        if newly && !status.notes.iter().any(differed) {
            say(format!("node {id} diverged: it is rebuilt from the log"));
        }
        for note in fresh {
            match note.strip_prefix(REFUSED) {
                Some(call) => say(format!(
                    "the server's call {call} is not supported and was answered with an error"
                )),
                None if differed(&note) => say(format!("node {id} diverged: {note}")),
                None => say(format!("node {id}: {note}")),
            }
            self.notes.push_back(note);
            if self.notes.len() > NOTES {
                self.notes.pop_front();
            }
        }
        node.status = Some(status);
        self.follow_leader(now, &mut acts);
        self.become_ready(now, &mut acts);
        acts
    }

    /// A node did not answer what it was asked then.
    pub fn unanswered(&mut self, asked: Duration, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.alive && node.heard <= asked)
        {
            node.asked.get_or_insert(asked);
        }
    }

    /// Time passed: names silent nodes.
    pub fn tick(&mut self, now: Duration, may_kill: bool) -> Vec<Act> {
        let mut acts = Vec::new();
        let leader = self.serving().map(|leader| leader.id);
        for (&id, node) in self.nodes.iter_mut().filter(|(_, node)| node.alive) {
            let silence = node.asked.map_or(Duration::ZERO, |asked| now.saturating_sub(asked));
            // A leader that was replaced: its last answer still said that it leads.
            let deposed = leader.is_some_and(|leader| leader != id)
                && node.status.as_ref().is_some_and(|status| status.replica.role == "leader");
            if silence >= SILENT && !node.silent && node.status.is_some() {
                node.silent = true;
                let consequence = match leader {
                    Some(leader) if deposed => format!(
                        "; node {leader} leads, but clients that are connected to node {id} hang until \
                         it goes on or dies"
                    ),
                    Some(leader) if leader != id => format!("; node {leader} leads"),
                    _ => String::new(),
                };
                acts.push(Act::Say(format!(
                    "node {id} does not answer for {} s{consequence}",
                    SILENT.as_secs()
                )));
            }
            if silence >= HUNG && deposed && may_kill && !node.killed {
                node.killed = true;
                acts.push(Act::Say(format!(
                    "node {id} was replaced as leader and does not answer for {} s: it is killed",
                    HUNG.as_secs()
                )));
                acts.push(Act::Kill(id));
            }
        }
        self.become_ready(now, &mut acts);
        acts
    }

    /// The leader with the highest term among the nodes that say they serve and answered recently.
    fn serving(&self) -> Option<Leader> {
        let lead = |(&id, node): (&u64, &Node)| {
            let status = node.status.as_ref().filter(|_| node.alive && !node.silent)?;
            (status.replica.role == "leader" && status.serving)
                .then_some(Leader { id, term: status.term })
        };
        self.nodes.iter().filter_map(lead).max_by_key(|leader| leader.term)
    }

    fn follow_leader(&mut self, now: Duration, acts: &mut Vec<Act>) {
        let newest =
            self.serving().filter(|new| self.leader.is_none_or(|old| new.term >= old.term));
        let Some(new) = newest else { return };
        if self.leader == Some(new) {
            self.outage = None;
            return;
        }
        let Leader { id, term } = new;
        let text = match (self.leader, self.outage.take()) {
            (None, _) => format!("node {id} leads (term {term})"),
            (Some(_), Some(since)) => {
                let time = took(now.saturating_sub(since));
                format!("node {id} leads (term {term}); there was no service for {time}")
            }
            (Some(old), None) if old.id == id => format!("node {id} leads again (term {term})"),
            (Some(old), None) => {
                let heard = self.nodes.get(&old.id).map_or(now, |node| node.heard);
                let time = took(now.saturating_sub(heard));
                format!(
                    "node {id} leads (term {term}) instead of node {}; there was no service \
                         for at most {time}",
                    old.id
                )
            }
        };
        self.leader = Some(new);
        acts.push(Act::Say(text));
    }

    fn become_ready(&mut self, now: Duration, acts: &mut Vec<Act>) {
        if self.ready {
            return;
        }
        let states = || self.nodes.iter().map(|(id, node)| (*id, node.status.as_ref()));
        let leads = |status: &NodeStatus| {
            status.replica.role == "leader" && status.replica.state == ReplicaState::Running
        };
        if !states().any(|(_, status)| status.is_some_and(leads)) {
            self.leading = None;
            return;
        }
        let since = now.saturating_sub(*self.leading.get_or_insert(now));
        let missing: Vec<u64> = states()
            .filter(|(_, status)| status.is_none_or(|status| !status.replica.state.is_well()))
            .map(|(id, _)| id)
            .collect();
        let service: Vec<String> = self
            .serving()
            .and_then(|leader| self.nodes.get(&leader.id)?.status.as_ref())
            .map(|status| status.service.clone())
            .unwrap_or_default();
        if let Some((port, fix)) = self.unnamed.first().filter(|_| service.is_empty()) {
            let ports: Vec<String> =
                self.unnamed.iter().map(|(port, _)| port.to_string()).collect();
            let what = format!("the server listens at port {}", ports.join(", "));
            let why = "no --publish names that, so no client can reach it";
            let known = states().filter_map(|(_, status)| status);
            let facts: u64 = known.map(|status| status.replica.counts.fact_entries).sum();
            let begin = match self.still {
                Some((begin, known)) if known == facts => begin,
                _ => now,
            };
            self.still = Some((begin, facts));
            let still = now.saturating_sub(begin);
            if since.min(still) >= NO_SUCH_PORT {
                let fix = format!("publish port {port} with {fix}");
                acts.push(Act::Fail(what, why.into(), fix));
                self.ready = true;
            } else if since >= WRONG_PORT && !std::mem::replace(&mut self.told_unnamed, true) {
                acts.push(Act::Say(format!("{what}: {why}; {fix} would")));
            }
            return;
        }
        let text = match (service.is_empty(), missing.is_empty()) {
            (false, true) => format!("ready at {}", service.join(", ")),
            (false, false) if since >= STRAGGLERS => {
                format!("ready at {}, but {} not yet running", service.join(", "), list(&missing))
            }
            (true, _) if since >= NO_LISTENER => {
                "running, but the server listens nowhere yet".into()
            }
            _ => return,
        };
        self.ready = true;
        acts.push(Act::Ready(text));
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
