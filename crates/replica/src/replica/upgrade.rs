//! Upgrades of the server; what they are is in [`crate::editions`].
//!
//! A replica whose server has ended for an upgrade keeps its files as an image without processes. When the log says that the next edition begins, each replica's server of that
//! edition begins on these files. A replica that is behind does the same at the same entries, from an earlier image; and one whose newest image is of a later edition
//! never hears of the ones before.
//!
//! The leader proposes each step: when a majority's servers have ended in the same way, when its own server of the new edition has come up, or when the time for one of these
//! is over. Times are each leader's own; what follows from them is in the log.

use super::elsewhere::Upgrader;
use super::lifecycle::EXIT_WAIT;
use super::{Environment, Replica};
use crate::agreement::lead::Lead;
use crate::editions::{Begun, Edition, Editions, Plan, UnderWay};
use crate::environment::Image;
use crate::error::ReplicaError;
use crate::modes::Proposal;
use crate::status::EditionStatus;
use crate::verdicts::exits::{Common, End};
use skein_log::{Consensus, LogEntry, Role};
use skein_model::entry::{Start, Upgrade, upgrades};
use skein_model::{EntryBuilder, EntryRef, LogIndex, Record, ReplicaId};
use std::time::Duration;

/// The longest wait for the others to end as this replica's server has.
pub(super) const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A requested upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// As [`Edition::about`].
    pub about: String,
    /// How long the servers may take to end, and the new ones to come up.
    pub wait: Duration,
    /// The signal that asks them to end.
    pub signal: u8,
    /// The number of the edition that it was made from.
    pub from: u64,
}

/// Its entry, and the number of the edition.
pub type Reply = oneshot::Sender<Result<(u64, u64), String>>;

/// An end of this replica's server for an upgrade.
#[derive(Debug)]
pub(super) struct Ended {
    pub end: End,
    /// Until when the next edition is waited for.
    pub until: Duration,
    /// Its files are being kept.
    pub keeps: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Upgrades {
    pub(super) editions: Editions,
    pub(super) ended: Option<Ended>,
    /// The step that this leader looks at: its entry, and since when.
    seen: Option<(LogIndex, Duration)>,
    /// The edition whose ports have been opened for clients, by its first entry.
    open: Option<u64>,
    /// What it has proposed that is not in the log yet: the step's entry, and the proposal's.
    proposed: Option<(LogIndex, LogIndex)>,
}

impl Upgrades {
    /// What is known at the start: the log is whole, or begins behind the first of these images.
    pub(super) fn new(kept: &[Image], first: LogIndex) -> Self {
        let mut upgrades = Self::default();
        if first > LogIndex(1) {
            upgrades.continue_behind(kept, LogIndex(first.0 - 1));
        }
        upgrades
    }

    /// The log begins behind this entry, and a server with the first of these images that reaches it. A witness has none: it knows what comes.
    pub(super) fn continue_behind(&mut self, kept: &[Image], base: LogIndex) {
        let image = kept.iter().find(|image| image.index() >= base);
        let known = image.map_or(base, Image::index);
        let edition = image.map(|image| image.state.edition.clone());
        let files = image.is_some_and(|image| image.state.ended.is_some());
        self.editions.continue_after(known, edition, files);
    }

    /// Reads what the log says, as far as it was known to be committed before: that is not handed out again.
    pub(super) fn read<E: Environment>(
        &mut self,
        consensus: &mut Consensus,
        env: &mut E,
    ) -> Result<(), ReplicaError> {
        for entry in consensus.take_marked() {
            let parsed = super::agree::parse(&entry)?;
            self.note(entry.index, &parsed, |_, _| ())?;
            env.committed(&entry);
        }
        Ok(())
    }

    /// Notes the steps in an entry; `each` gets the edition's number and the step.
    fn note(
        &mut self,
        index: LogIndex,
        entry: &EntryRef<'_>,
        mut each: impl FnMut(u64, Upgrade),
    ) -> Result<(), ReplicaError> {
        for record in entry.records() {
            match record {
                Record::Upgrade { edition, step, plan } => {
                    if !self.editions.note(index, edition, step, plan) {
                        return Err(ReplicaError::Upgrade { index });
                    }
                    each(edition, step);
                }
                Record::Signal { number } => self.editions.note_signal(index, number),
                _ => {}
            }
        }
        Ok(())
    }
}

impl<E: Environment> Replica<E> {
    /// Proposes that the servers end, for an edition to follow. Answers when that is committed.
    pub(super) fn begin_upgrade(&mut self, wanted: Wanted, asker: Upgrader) {
        let number = self.upgrades.editions.next_number();
        match self.propose_upgrade(wanted, number) {
            Ok(index) => self.upgrade_asked.push((index, number, asker)),
            Err(why) => self.answer_upgrade(asker, Err(why)),
        }
    }

    fn propose_upgrade(&mut self, wanted: Wanted, number: u64) -> Result<LogIndex, String> {
        if !self.serves() {
            return Err("this replica does not lead".into());
        }
        if self.unsent.is_some() || self.upgrades.proposed.is_some() {
            return Err("this replica is busy; try again".into());
        }
        if let Some(why) = self.upgrade_is_under_way() {
            return Err(why);
        }
        let current = self.upgrades.editions.current().number;
        if wanted.from != current {
            return Err(format!(
                "it was made from edition {}, and edition {current} is there by now: try again, or on the leader's host",
                wanted.from
            ));
        }
        if self.consensus.members().iter().any(|member| !member.votes) {
            return Err(
                "members change: wait until 'skein members ls' shows a vote for each".into()
            );
        }
        let Some(server) = self.slot.link().filter(|_| self.slot.is_in_step()) else {
            return Err("its server does not run yet; try again".into());
        };
        let plan = Plan {
            about: wanted.about,
            wait_ms: wanted.wait.as_millis() as u64,
            ports: server.listening.iter().map(|at| at.port).collect(),
            undoes: String::new(),
        };
        let mut entry = EntryBuilder::new(Vec::new());
        let plan = plan.encode();
        if plan.len() > entry.room() / 2 {
            return Err("arguments and environment are too long for an entry of the log".into());
        }
        entry.push(Record::Upgrade { edition: number, step: Upgrade::Asked, plan: &plan });
        entry.push(Record::Signal { number: wanted.signal });
        self.mode.proposed(Proposal::Input, self.now);
        self.propose(entry).ok_or_else(|| {
            // It must not be tried again without the caller's knowledge.
            self.unsent = None;
            "this replica is busy; try again".into()
        })
    }

    /// In words, if one is.
    pub(super) fn upgrade_is_under_way(&self) -> Option<String> {
        let number = match self.upgrades.editions.under_way()? {
            UnderWay::Ending(asked) => asked.number,
            UnderWay::Proving(begun) => begun.edition.number,
        };
        Some(format!("the upgrade to edition {number} is under way"))
    }

    /// Notes what a committed entry says of upgrades.
    pub(super) fn note_upgrade(
        &mut self,
        entry: &LogEntry,
        parsed: &EntryRef<'_>,
    ) -> Result<(), ReplicaError> {
        if !upgrades(&entry.payload) {
            return Ok(());
        }
        let mut steps = Vec::new();
        self.upgrades.note(entry.index, parsed, |edition, step| steps.push((edition, step)))?;
        for (edition, step) in steps {
            self.upgrades.proposed = None;
            tracing::info!(event = "upgrade", index = entry.index.0, edition, ?step);
            match step {
                Upgrade::Asked => {}
                // What ended before belongs to the edition before.
                Upgrade::Begun { .. } => self.ends_before(entry.index),
                Upgrade::Kept => {
                    self.note(format!("edition {edition} of the server stays"));
                    self.follow_ports()?;
                }
                Upgrade::GivenUp => self.note(format!(
                    "the server did not end in time for edition {edition}: that is given up"
                )),
            }
        }
        Ok(())
    }

    /// Whether the entry at `index` is not for this server, but for those of a later edition.
    pub(super) fn is_another_editions(&self, index: LogIndex) -> bool {
        self.server().is_some_and(|server| {
            let begun = self.upgrades.editions.begun_behind(server.edition.since);
            begun.is_some_and(|begun| index >= begun.at)
        })
    }

    /// Its server has ended: answers how long the next edition is waited for, if it was to end for one. One that was killed is built again soon.
    pub(super) fn ended_for_upgrade(&mut self, end: End) -> Option<Duration> {
        let since = self.server()?.edition.since;
        self.upgrades.editions.asked_before(since, end.0)?;
        let wait = if self.is_meant(end) { ENDS_WITHIN } else { EXIT_WAIT };
        self.upgrades.ended = Some(Ended { end, until: self.now + wait, keeps: false });
        Some(wait)
    }

    /// Its server is not needed any more.
    pub(super) fn no_server_ended(&mut self) {
        self.upgrades.ended = None;
    }

    /// Whether an upgrade follows when servers have ended in this way.
    pub(super) fn is_of_upgrade(&self, end: End) -> bool {
        let editions = &self.upgrades.editions;
        let since = editions.at(end.0).since;
        let proves = |step| matches!(step, UnderWay::Proving(begun) if begun.at.0 == since);
        // Of a log that begins behind the end, files say so that were left there.
        self.images.has_ended_at(end.0)
            || editions.begun_behind(since).is_some()
            || editions.asked_before(since, end.0).is_some()
            || editions.under_way().is_some_and(proves)
    }

    /// Whether its own server has ended in this way, and this is no accident of it alone. Files of one that was killed lack what a server writes when it
    /// ends. Nobody has been answered by one that does not come up, so any status of its own will do.
    pub(super) fn is_meant(&self, end: End) -> bool {
        let editions = &self.upgrades.editions;
        let asked = editions.asked_before(editions.at(end.0).since, end.0);
        let signal = asked.map(|asked| i32::from(asked.signal));
        let expected = |status| signal.is_none_or(|signal| status == 0 || status == signal);
        self.ends.is_meant(end, expected) || self.waits_on_files() == Some(end)
    }

    /// A leader's: the end of its own server counts for all, when no other server is there that could end otherwise.
    pub(super) fn ended_for_all(&self) -> Option<Common> {
        let own = self.end_of(self.own).filter(|_| self.lead.is_some())?;
        let end = Some(own).filter(|end| self.is_of_upgrade(*end) && self.is_meant(*end))?;
        let lives = |id: &ReplicaId| {
            let fit = self.health.neighbours.is_fit(*id) && self.pulse.is_in_step(*id);
            *id != self.own && fit && self.end_of(*id) != Some(end)
        };
        let others = self.members.actives().iter().any(lives);
        (!others).then_some(Common { end, count: 1 })
    }

    /// What follows when the servers have ended in this way; false: nothing, it is an end like any other.
    pub(super) fn upgrade_follows(&mut self, end: End) -> bool {
        if !self.is_of_upgrade(end) {
            return false;
        }
        let editions = &self.upgrades.editions;
        let since = editions.at(end.0).since;
        if editions.begun_behind(since).is_some() {
            // Its edition is over: another one has begun.
            return true;
        }
        if let Some(asked) = editions.asked_before(since, end.0) {
            let (at, number, plan) = (asked.at, asked.number, asked.plan.clone());
            self.propose_begin(at, number, &plan, end);
        } else if let Some(UnderWay::Proving(begun)) = editions.under_way() {
            let why = format!("its server ended: {}", super::lifecycle::how(end.1));
            let begun = begun.clone();
            self.undo(&begun, why);
        }
        true
    }

    fn propose_begin(&mut self, step: LogIndex, number: u64, plan: &Plan, end: End) {
        let tuning = &self.config.tuning;
        let (quantum, nclock) = (tuning.quantum, tuning.nclock);
        let start = Start { seed: self.env.seed(), quantum, nclock };
        let begun = Upgrade::Begun { after: end.0, status: end.1 };
        self.propose_step(step, number, begun, &plan.encode(), Some(start));
    }

    /// A leader's: proposes a step, once.
    fn propose_step(
        &mut self,
        behind: LogIndex,
        edition: u64,
        step: Upgrade,
        plan: &[u8],
        start: Option<Start>,
    ) {
        let leads = self.consensus.role() == Role::Leader
            && self.lead.as_ref().is_some_and(Lead::has_announced);
        if !leads || self.unsent.is_some() || self.upgrades.proposed.is_some() {
            return;
        }
        let mut entry = EntryBuilder::new(Vec::new());
        entry.push(Record::Upgrade { edition, step, plan });
        if let Some(start) = start {
            entry.push(Record::Start(start));
        }
        match self.propose(entry) {
            Some(index) => {
                self.upgrades.proposed = Some((behind, index));
                self.hurry();
            }
            // It is proposed again when consensus accepts something.
            None => self.unsent = None,
        }
    }

    /// The former edition is to begin again, on the files that it left.
    fn undo(&mut self, begun: &Begun, why: String) {
        if self.lead.is_none() || self.upgrades.proposed.is_some() {
            return;
        }
        tracing::warn!(event = "upgrade_undone", edition = begun.edition.number, why);
        let former = self.upgrades.editions.at(begun.ended.0);
        let (about, number) = (former.about.clone(), self.upgrades.editions.next_number());
        let plan = Plan { about, undoes: why, ..begun.plan.clone() };
        if self.slot.can_be_fed() {
            // It executes nothing of what follows.
            self.kill_server();
        }
        self.propose_begin(begun.at, number, &plan, begun.ended);
    }

    /// Keeps the files of a server that has ended, replaces servers of editions that are over, and proposes the next step.
    pub(super) fn tend_upgrade(&mut self) {
        self.adopt_files();
        self.keep_files();
        self.leave_edition();
        self.propose_next();
    }

    /// Its server is over, or has ended as was agreed, or differs.
    fn leave_edition(&mut self) {
        let Some(since) = self.server().map(|server| server.edition.since) else { return };
        let Some(begun) = self.upgrades.editions.begun_behind(since).cloned() else { return };
        let (index, status) = begun.ended;
        if index.0 < since {
            // It was not kept: the former one begins again.
            self.slot.forgive();
            if self.slot.can_be_fed() {
                tracing::info!(event = "edition_over", since, edition = begun.edition.number);
                self.kill_server();
            }
            return self.slot.hasten(self.now);
        }
        if let Some(ended) = &self.upgrades.ended {
            if ended.end != (index, status) {
                return self.end_was_another();
            }
            if self.images.has_ended_at(index) {
                self.slot.forgive();
                self.slot.hasten(self.now);
            }
            return;
        }
        if self.slot.has_process() && self.survived() >= index {
            self.note(format!(
                "the server lives on after entry {index}, where the others' ended: it is rebuilt from the log"
            ));
            self.slot.note_divergence();
            self.kill_server();
        }
    }

    /// Since when this leader sees the step at this entry.
    fn seen_since(&mut self, step: LogIndex) -> Duration {
        match self.upgrades.seen {
            Some((at, since)) if at == step => since,
            _ => {
                self.upgrades.seen = Some((step, self.now));
                self.now
            }
        }
    }

    fn propose_next(&mut self) {
        if self.lead.is_none() {
            self.upgrades.seen = None;
            self.upgrades.proposed = None;
            return;
        }
        match self.upgrades.editions.under_way() {
            None => {}
            Some(UnderWay::Ending(asked)) => {
                let (at, number, wait) = (asked.at, asked.number, asked.plan.wait());
                let since = self.seen_since(at);
                let late = self.now >= since + wait;
                // One that still executes the log may come to its end.
                if late && self.slot.is_in_step() && self.upgrades.ended.is_none() {
                    self.propose_step(at, number, Upgrade::GivenUp, &[], None);
                }
            }
            Some(UnderWay::Proving(begun)) => {
                let begun = begun.clone();
                let server = self.server().filter(|server| server.edition.since == begun.at.0);
                // A new leader's may have to execute the log of the former one before.
                if server.is_none() && self.upgrades.seen.is_none_or(|(at, _)| at != begun.at) {
                    return;
                }
                let since = self.seen_since(begun.at);
                let late = self.now >= since + begun.plan.wait();
                let server = self.server().filter(|server| server.edition.since == begun.at.0);
                let up = server.filter(|_| self.slot.is_in_step()).is_some_and(|server| {
                    let rests = server.admitted >= begun.at && server.waits().is_some();
                    rests && begun.plan.is_met(&server.listening)
                });
                if up {
                    let number = begun.edition.number;
                    self.propose_step(begun.at, number, Upgrade::Kept, &[], None);
                } else if late {
                    let listening = server.map(|server| server.listening.clone());
                    let is_open = |port: &u16| {
                        listening.iter().flatten().any(|address| address.port == *port)
                    };
                    let closed = begun.plan.ports.iter().find(|port| !is_open(port));
                    let why = match closed {
                        Some(port) => format!("its server did not listen on port {port} in time"),
                        None => "its server did not come to rest in time".to_owned(),
                    };
                    self.undo(&begun, why);
                }
            }
        }
    }

    /// When an upgrade needs attention by time alone, if ever.
    pub(super) fn upgrade_wake(&self) -> Option<Duration> {
        let ended = self.upgrades.ended.as_ref().map(|ended| ended.until);
        let step = self.upgrades.editions.under_way().map(|step| match step {
            UnderWay::Ending(asked) => (asked.at, asked.plan.wait()),
            UnderWay::Proving(begun) => (begun.at, begun.plan.wait()),
        });
        let late = step.filter(|_| self.lead.is_some()).and_then(|(step, wait)| {
            let (_, since) = self.upgrades.seen.filter(|(at, _)| *at == step)?;
            Some(since + wait)
        });
        ended.into_iter().chain(late).filter(|when| *when > self.now).min()
    }

    /// The ports that are kept open for clients, who are not served yet: until the edition stays, as what is undone must not have answered anybody, and
    /// until its server listens.
    pub(super) fn ports_to_come(&mut self) -> Option<Plan> {
        let server = self.slot.link()?;
        let since = server.edition.since;
        let begun = self.upgrades.editions.begun_at(since)?;
        if self.upgrades.open == Some(since) {
            return None;
        }
        if begun.kept && begun.plan.is_met(&server.listening) {
            self.upgrades.open = Some(since);
            return None;
        }
        Some(begun.plan.clone())
    }

    pub(super) fn edition_status(&self) -> EditionStatus {
        let editions = &self.upgrades.editions;
        let Edition { number, since, about } = (**editions.current()).clone();
        EditionStatus { number, since, about, upgrades: editions.outcomes() }
    }
}
