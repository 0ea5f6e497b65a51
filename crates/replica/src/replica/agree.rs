//! Proposes entries, and does the duties of consensus.

use super::Replica;
use super::health::{ANSWER as STATE_ANSWER, STATE};
use super::images::HELD;
use super::pulse::PULSE;
use super::rhythm::Awaited;
use super::unhurried::SYNC;
use crate::agreement::deferred_sync::LONGEST;
use crate::agreement::lead::Lead;
use crate::environment::{Environment, PeerEvent};
use crate::error::ReplicaError;
use crate::gateway::Gateway;
use crate::modes::{Due, Proposal, Waiting};
use crate::server::Link;
use crate::server::feed::Step;
use bytes::Bytes;
use skein_arena::layout::state;
use skein_log::{
    Batch, LogEntry, Persist, ProposeError, Role, RoleChange, StepError, Ticket, frame, majority,
    wire,
};
use skein_model::entry::Start;
use skein_model::{EntryBuilder, EntryRef, LogIndex, Record, ReplicaId};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A leader listens to its peers for so long after anything but routine: what they say next may be waited for.
const CALM: Duration = Duration::from_millis(50);
/// What peers say then is heard so late at most: longer than most timers of servers take, and a sixth of what clocks may differ.
pub(super) const LATE: Duration = Duration::from_millis(150);
/// The bytes per read of the log for a server that is behind.
const REFILL_BYTES: usize = 1 << 20;
/// A thread with other work does not wait for a disk that takes longer than this, twice within [`SLOW_FOR`],
const SLOW_DISK: Duration = Duration::from_millis(2);
/// nor for so long after it did.
const SLOW_FOR: Duration = Duration::from_millis(100);

impl<E: Environment> Replica<E> {
    /// Gives the peers' messages to consensus.
    pub(super) fn hear_peers(&mut self) -> Result<(), ReplicaError> {
        let mut events = std::mem::take(self.env.heard());
        let mut moved = false;
        // Nobody waits for acknowledgements.
        let calm = self.is_slow() && self.lead.as_ref().is_some_and(Lead::is_settled);
        for event in events.drain(..) {
            if !matches!(event, PeerEvent::Frame(..)) {
                moved = true;
                self.is_waited_for();
            }
            let routine = is_routine(&event) || calm && is_acknowledgement(&event);
            if !routine {
                self.stirred = self.now;
            }
            match event {
                PeerEvent::Joined(hello) => {
                    if let Some(levels) = hello.levels {
                        self.hear_levels(hello.replica, levels)?;
                    }
                    self.health.neighbours.connected(hello.replica, true, self.now);
                    self.consensus.request_rejoin(hello.replica, hello.incarnation);
                    self.compare.lives.insert(hello.replica, hello.incarnation);
                    self.ends.forget(hello.replica);
                    self.repeat_exit();
                    self.compare.dispute.tell_again(hello.replica);
                    self.pulse_for(hello.replica);
                    self.tell_places();
                    self.compare.untold.insert(hello.replica);
                    self.tell_image();
                }
                PeerEvent::Lost(peer) => {
                    self.health.neighbours.connected(peer, false, self.now);
                    self.images.lost(peer);
                    self.consensus.peer_lost(peer);
                    self.pulse.lost(peer);
                }
                PeerEvent::Frame(peer, frame::KIND_RAFT, bytes) => {
                    if let Some(heard) = &mut self.hearing {
                        if self.members.voters.contains(&peer) {
                            heard.insert(peer);
                        }
                        if heard.len() + 1 >= majority(self.replicas) {
                            self.hearing = None;
                        }
                    }
                    match self.consensus.step(peer, &bytes) {
                        Ok(()) => {}
                        Err(error @ StepError::LogLost { .. }) => {
                            return Err(ReplicaError::LogLost(error));
                        }
                        Err(StepError::TooNew(error)) => return Err(error.into()),
                        Err(
                            error @ (StepError::Wire(_)
                            | StepError::Sender(..)
                            | StepError::Entry { .. }),
                        ) => self.distrust(peer, &error.to_string()),
                        Err(StepError::BelowBase { first, .. }) => {
                            self.leader_begins_behind(LogIndex(first.0 - 1));
                        }
                        Err(error) => {
                            self.note_rarely(
                                "peer_message_refused",
                                &format!("replica {peer}: {error}"),
                            );
                        }
                    }
                }
                PeerEvent::Frame(peer, kind, bytes) => {
                    if kind == SYNC {
                        // Entries that came with it are held by then, and are written with those before.
                        self.drive()?;
                    }
                    self.peer_says(peer, kind, &bytes);
                }
            }
        }
        if moved {
            self.count_connected();
        }
        // Keeps the memory.
        if self.env.heard().is_empty() {
            *self.env.heard() = events;
        }
        Ok(())
    }

    /// Ends the connection of a peer that has sent invalid bytes.
    pub(super) fn distrust(&mut self, peer: ReplicaId, why: &str) {
        self.env.distrust(peer, why, self.now);
    }

    /// Whether clients may be read from now.
    pub(super) fn may_propose_inputs(&self) -> bool {
        self.serves()
            && self.unsent.is_none()
            && self.env.answering_wake(self.now).is_none()
            && !self.pulse.holds()
            && self.lead.as_ref().is_some_and(|l| {
                l.in_flight_bytes() < self.config.tuning.max_in_flight_bytes
                    && l.in_flight_entries() < self.config.tuning.max_in_flight_entries
            })
    }

    /// Whether this replica serves clients: it leads, its server has executed its `TermStart`, and its leadership is confirmed.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.lead.as_ref().is_some_and(Lead::serves) && self.hearing.is_none()
    }

    /// Whether nothing of what peers say now is waited for: this replica leads, no entry in flight is waited for, and for a while they said only what they say all
    /// the time. What comes is heard at the end of the rest, which is soon: a clock that is heard late looks slow, and a request of an operator waits.
    pub(super) fn peers_may_wait(&self) -> bool {
        self.rested_until <= self.now + LATE
            && self.serves()
            && self.lead.as_ref().is_some_and(Lead::is_settled)
            && self.standstill.is_none()
            && self.now.saturating_sub(self.stirred) >= CALM
    }

    pub(super) fn has_inputs(&self) -> bool {
        self.gateway.has_input() || self.env.may_accept() || self.env.has_datagrams()
    }

    /// Makes one entry of everything that clients did.
    pub(super) fn propose_inputs(&mut self) {
        if let Err(error) = self.env.look_at_answering(self.now) {
            self.note_rarely("client_refused", &format!("the data directory: {error}"));
        }
        if !self.may_propose_inputs() || !self.has_inputs() {
            return;
        }
        let (ready, awaited) = (self.gateway.ready(), self.gateway.awaited());
        self.wait = self.gather.next_wait(ready, awaited, self.now);
        if self.wait.is_some() {
            return;
        }
        let mut entry = EntryBuilder::new(std::mem::take(&mut self.spare));
        self.accept(&mut entry);
        self.env.collect_datagrams(&mut entry);
        self.gateway.collect(&mut entry);
        if entry.is_empty() {
            self.spare = entry.finish(self.pulse.time.last(), self.consensus.term());
            return;
        }
        self.mode.proposed(Proposal::Input, self.now);
        if let Some(index) = self.propose(entry) {
            self.gather.proposed(index, ready, self.now);
        }
    }

    fn accept(&mut self, entry: &mut EntryBuilder<Vec<u8>>) {
        // Until the output is recorded, the first client waits where another leader may take it.
        let noted = self.env.is_answer_noted()
            || self.env.client_waits() && self.env.begin_answering(self.now);
        if !noted {
            return;
        }
        while Gateway::<E::Socket>::has_room(entry) {
            let Some((socket, peer, local)) = self.env.accept() else { return };
            match self.gateway.open(socket, peer, local, entry) {
                Ok(id) => {
                    self.metrics.connections_total.inc();
                    if let Some(socket) = self.gateway.socket(id)
                        && let Err(error) = self.env.watch(id, socket)
                    {
                        tracing::warn!(event = "client_lost", %error);
                        self.gateway.drop_client(id);
                    }
                }
                Err(refusal) => {
                    self.metrics.refused_clients.inc();
                    self.note_rarely("client_refused", &format!("{refusal}; the client was reset"));
                }
            }
        }
    }

    /// Proposes an entry with a signal for the server; answers its index.
    pub(super) fn propose_signal(&mut self, number: u8) -> Result<LogIndex, String> {
        if !self.serves() {
            return Err("this replica does not lead".into());
        }
        if self.unsent.is_some() {
            return Err("this replica is busy".into());
        }
        let mut entry = EntryBuilder::new(std::mem::take(&mut self.spare));
        entry.push(Record::Signal { number });
        self.mode.proposed(Proposal::Input, self.now);
        match self.propose(entry) {
            Some(index) => Ok(index),
            None => {
                // It was refused, and must not be tried again without the caller's knowledge.
                self.unsent = None;
                Err("this replica is busy".into())
            }
        }
    }

    /// Stamps and proposes an entry.
    pub(super) fn propose(&mut self, entry: EntryBuilder<Vec<u8>>) -> Option<LogIndex> {
        let stamp = self.pulse.stamp(&self.env);
        let whole = entry.finish(stamp, self.consensus.term());
        // The log keeps the entry at exactly its length. The buffer, which has grown for the largest reads,
        // is used again.
        let bytes = Bytes::copy_from_slice(&whole);
        self.spare = whole;
        self.offer(bytes)
    }

    pub(super) fn offer(&mut self, bytes: Bytes) -> Option<LogIndex> {
        let len = bytes.len();
        let before = self.lead.as_ref().map(Lead::last_proposed);
        match self.consensus.propose(bytes.clone()) {
            Ok(index) => {
                self.unsent = None;
                let past = self.go_ahead(index, before, &bytes);
                let unhurried = self.defers(index, &bytes, past);
                if let Some(lead) = &mut self.lead {
                    lead.proposed(index, len, unhurried, self.now);
                }
                if !unhurried {
                    self.is_waited_for();
                    self.regular.disturbed();
                }
                self.metrics.entries_proposed.inc();
                Some(index)
            }
            Err(ProposeError::Busy) => {
                self.unsent = Some(bytes);
                // It waits for the commit of others.
                self.hurry();
                None
            }
            // No longer a leader: the clients are reset when the role change is seen, which is next.
            Err(_) => None,
        }
    }

    /// Does duties of consensus until there are none.
    pub(super) fn drive(&mut self) -> Result<(), ReplicaError> {
        loop {
            while let Some(batch) = self.consensus.take_ready() {
                self.process(batch)?;
            }
            self.follow_level();
            self.follow_members();
            for wanted in self.consensus.take_wanted() {
                self.env.read_old(wanted)?;
            }
            if let Some(error) = self.consensus.take_read_error() {
                return Err(ReplicaError::Log(error));
            }
            if let Some(bytes) = self.unsent.take() {
                if self.offer(bytes).is_none() {
                    return Ok(());
                }
                continue;
            }
            if !self.announce() {
                return Ok(());
            }
        }
    }

    fn process(&mut self, batch: Batch) -> Result<(), ReplicaError> {
        if let Some(role) = batch.role {
            self.change_role(role)?;
        }
        if let Some(base) = &batch.reset {
            // A passive replica gets its files, too: when it needs them nobody else may be left who has them.
            if let Some(image) = self.images.kept.iter().find(|kept| kept.index() == base.index) {
                self.env.begins_behind(image);
            }
            self.log_was_reset(base.index);
        }
        for message in &batch.messages {
            let (to, kind) = (message.to, frame::KIND_RAFT);
            let queued = if message.may_wait {
                self.env.send_later(to, kind, &message.bytes)
            } else {
                self.env.send(to, kind, &message.bytes)
            };
            if !queued {
                self.consensus.report_unreachable(message.to);
            }
        }
        if let Some(persist) = batch.persist
            && self.env.has_log()
        {
            let bytes: usize = persist.entries.iter().map(|e| e.payload.len()).sum();
            self.metrics.log_bytes.inc_by(bytes as u64);
            if let Some(first) = persist.entries.first() {
                self.pulse.replaced(first.index);
            }
            match self.deferred_until(&persist).filter(|_| !batch.awaited) {
                Some(until) => self.defer(persist, bytes, until),
                None => {
                    self.write_held();
                    self.write(persist);
                }
            }
        }
        if batch.awaited {
            self.write_held();
        }
        if let Some(lead) = &mut self.lead
            && let Some(since) = lead.committed(batch.applied)
        {
            let took = self.now.saturating_sub(since);
            self.deferred_sync.committed(took);
            self.metrics.commit_seconds.observe(took.as_secs_f64());
        }
        let in_step = self.server().is_some_and(|server| server.feed.next() > self.handed);
        let mut room = true;
        for entry in &batch.committed {
            self.env.committed(entry);
            let parsed = self.parsed(entry)?;
            self.pulse.committed(entry.index, parsed.wall(), &self.env);
            self.started = true;
            self.images.committed(entry.payload.len() as u64);
            self.note_upgrade(entry, &parsed)?;
            if self.has_gone_past(entry, &parsed) {
                continue;
            }
            if in_step && room {
                room = self.give(entry, &parsed);
            }
        }
        if in_step && room {
            self.skip_to(batch.applied.next());
        }
        self.handed = batch.applied;
        let reached = |asked: &mut (LogIndex, _)| asked.0 <= batch.applied;
        let signals: Vec<_> = self.signals.extract_if(.., reached).collect();
        for (index, asker) in signals {
            self.answer_signal(asker, Ok(index.0));
        }
        let reached = |asked: &mut (LogIndex, _, _)| asked.0 <= batch.applied;
        let upgrades: Vec<_> = self.upgrade_asked.extract_if(.., reached).collect();
        for (index, number, asker) in upgrades {
            self.answer_upgrade(asker, Ok((index.0, number)));
        }
        self.has_reached(batch.applied);
        Ok(())
    }

    /// The log is on disk up to here.
    pub fn persisted(&mut self, ticket: Ticket) {
        // This thread may have written it itself, after the loop's last look at the clock.
        self.health.disk.done(ticket, self.env.elapsed());
        self.consensus.persisted(ticket);
    }

    fn write(&mut self, persist: Persist) {
        self.health.disk.began(persist.ticket, self.now);
        self.metrics.log_writes.inc();
        self.own_writes.push(persist);
        // A leader has clients to look after meanwhile.
        if self.lead.is_some() || self.replicas == 1 || self.now < self.slow_until {
            self.hand_over_own_writes();
        }
    }

    /// Makes the log's thread do this thread's pending write.
    pub fn hand_over_own_writes(&mut self) {
        for persist in self.own_writes.drain(..) {
            self.env.append(persist);
        }
    }

    /// The write that the caller must do before it continues.
    pub fn take_own_writes(&mut self) -> Vec<Persist> {
        std::mem::take(&mut self.own_writes)
    }

    /// Whether there is such a write.
    #[must_use]
    pub const fn has_own_writes(&self) -> bool {
        !self.own_writes.is_empty()
    }

    /// The caller has written, which took `took`.
    pub fn wrote(&mut self, took: Duration) {
        if took > SLOW_DISK {
            let before = self.slow_at.replace(self.now);
            // A single slow write does not count.
            if before.is_some_and(|before| self.now.saturating_sub(before) < SLOW_FOR) {
                self.disk_was_slow();
            }
        }
    }

    /// Leaves the disk to the log's thread for a while.
    pub fn disk_was_slow(&mut self) {
        self.slow_until = self.now + SLOW_FOR;
    }

    pub(super) fn oldest_awaited(&self) -> Option<Duration> {
        self.lead.as_ref().and_then(Lead::oldest_awaited)
    }

    /// Until when this write may be deferred, if at all.
    fn deferred_until(&mut self, persist: &Persist) -> Option<Duration> {
        let others = self.members.connected;
        self.may_wait_until(persist).or_else(|| {
            let deferred =
                self.lead.is_some() && self.deferred_sync.defer_next(others, self.replicas);
            deferred.then_some(self.now + LONGEST)
        })
    }

    fn defer(&mut self, persist: Persist, bytes: usize, until: Duration) {
        if self.lead.is_none() {
            let steady = self.env.steady();
            persist.entries.iter().for_each(|entry| self.pulse.arrived(entry.index, steady));
        }
        self.deferred_sync.hold(persist, bytes, until);
    }

    /// Makes the writes that this replica's disk had been spared.
    pub(super) fn write_held(&mut self) {
        let held = self.deferred_sync.take(self.oldest_awaited(), self.now);
        let mut all: Option<Persist> = None;
        for next in held {
            match &mut all {
                Some(all) if all.is_continued_by(&next) => all.join(next),
                _ => all.replace(next).into_iter().for_each(|whole| self.write(whole)),
            }
        }
        if let Some(all) = all {
            self.write(all);
        }
    }

    /// Makes them when they are due, or when somebody waits and too few others are left.
    pub(super) fn tend_log(&mut self) {
        let oldest = self.oldest_awaited();
        let Some(due) = self.deferred_sync.due(oldest) else { return };
        let alone = || self.members.connected < majority(self.replicas);
        if due <= self.now || oldest.is_some() && alone() {
            self.write_held();
        }
    }

    /// A committed entry. Those from peers were parsed when they came ([`Config::is_payload`](skein_log::Config)), those of this leader it has built;
    /// only those that were there when it started are parsed here.
    fn parsed<'a>(&self, entry: &'a LogEntry) -> Result<EntryRef<'a>, ReplicaError> {
        if entry.index <= self.recovered {
            parse(entry)
        } else {
            Ok(EntryRef::parsed(&entry.payload))
        }
    }

    /// Gives the server the next entry, if it is for it; false when there is no room, or it must not have more.
    fn give(&mut self, entry: &LogEntry, parsed: &EntryRef<'_>) -> bool {
        let held = self.is_held_before(entry.index);
        let Some(server) = self.slot.link_mut() else { return false };
        server.feed.skip_to(entry.index);
        if held {
            return false;
        }
        if self.upgrades.editions.is_void(entry.index) {
            server.feed.skip_to(entry.index.next());
            return true;
        }
        match server.feed.step(entry.index, Some(parsed)) {
            Step::Give => self.hand_in(entry.index, &entry.payload),
            Step::Skip => {
                self.pass_digests(entry.index, parsed);
                self.digests_committed(entry.index, parsed);
                true
            }
            Step::NotNow => true,
        }
    }

    /// Puts an entry into the server's ring; false when there is no room.
    pub(super) fn hand_in(&mut self, index: LogIndex, payload: &[u8]) -> bool {
        let Some(server) = self.slot.link_mut() else { return false };
        match server.push(index, payload) {
            Ok(done) => {
                if done {
                    self.handed_in(index);
                }
                done
            }
            Err(broken) => {
                self.server_broke(&broken);
                false
            }
        }
    }

    /// The server has this entry.
    pub(super) fn handed_in(&mut self, index: LogIndex) {
        if self.lead.is_some() {
            self.compare.held.push_back((index, self.now));
        }
    }

    /// Whether the server is behind and has room.
    pub(super) fn backlog_has_room(&self) -> bool {
        self.server().is_some_and(|server| {
            server.feed.next() <= self.handed
                && !self.is_held_before(server.feed.next())
                && self.slot.can_be_fed()
                && server.has_room(skein_model::entry::MAX_ENTRY_BYTES).unwrap_or(false)
        })
    }

    /// The server gets no entry before `index` any more.
    fn skip_to(&mut self, index: LogIndex) {
        if let Some(server) = self.slot.link_mut() {
            server.feed.skip_to(index);
        }
    }

    /// Reads the server's missing entries from the log, as far as it has room.
    pub(super) fn feed_backlog(&mut self) -> Result<(), ReplicaError> {
        while self.backlog_has_room() {
            let Some(from) = self.server().map(|server| server.feed.next()) else { break };
            let chunk = self.consensus.entries(from, REFILL_BYTES).map_err(ReplicaError::Log)?;
            for entry in &chunk.entries {
                let parsed = parse(entry)?;
                if !self.give(entry, &parsed) {
                    return Ok(());
                }
            }
            if chunk.next == from {
                return Ok(());
            }
            self.skip_to(chunk.next);
            self.slot.link_mut().map(Link::wake_server);
        }
        Ok(())
    }

    fn change_role(&mut self, change: RoleChange) -> Result<(), ReplicaError> {
        let RoleChange { role, leader, term } = change;
        tracing::info!(event = "role", role = %role, term = term.0, leader = leader.map(|l| l.0));
        if self.lead.as_ref().is_some_and(|l| role != Role::Leader || l.term() != term) {
            self.step_down();
        }
        if matches!(role, Role::Candidate) {
            self.metrics.elections.inc();
        }
        if role == Role::Leader && self.lead.is_none() {
            self.env.leads(term);
            // Entries of earlier leaders come before this one's.
            if let Some(entry) = self.consensus.newest_unapplied().map_err(ReplicaError::Log)? {
                self.pulse.inherited(entry.index, parse(&entry)?.wall(), &self.env);
            }
            let last = self.consensus.last_index();
            self.begin_lead(Lead::new(term, last, self.started));
            self.leave_to_the_furthest();
            self.hand_on_at_once();
            if self.compare.saw_leader {
                self.metrics.failovers.inc();
            }
        }
        self.compare.saw_leader |= leader.is_some();
        Ok(())
    }

    /// Leads from now on, in the term of `lead`.
    pub(super) fn begin_lead(&mut self, lead: Lead) {
        self.consensus.unhurried_up_to(LogIndex(0));
        self.gateway.begin_term(lead.term());
        self.pulse.begin_term(self.now);
        self.rounds = crate::verdicts::rounds::Rounds::default();
        self.compare.untold = self.env.connected().collect();
        self.lead = Some(lead);
        self.health.led_since = Some(self.now);
    }

    fn step_down(&mut self) {
        let clients = self.gateway.connections();
        tracing::info!(event = "stepped_down", clients_reset = clients);
        self.gateway.reset_all();
        self.unsent = None;
        for (_, asker) in std::mem::take(&mut self.signals) {
            let why = "another replica leads now: whether the signal arrives is not known";
            self.answer_signal(asker, Err(why.into()));
        }
        for (.., asker) in std::mem::take(&mut self.upgrade_asked) {
            let why = "another replica leads now: 'skein status' shows whether the upgrade goes on";
            self.answer_upgrade(asker, Err(why.into()));
        }
        self.lead = None;
        self.health.led_since = None;
        self.leave_core();
        self.write_held();
        self.gather.forget();
        self.hearing = None;
        self.follow_ports_or_note();
    }

    /// A new leader's first entry; true when it was proposed.
    fn announce(&mut self) -> bool {
        let Some(lead) = &self.lead else { return false };
        // A witness says nothing: it waits for another to lead.
        if !lead.must_announce() || !self.members.kind.can_serve() {
            return false;
        }
        let mut entry = EntryBuilder::new(Vec::new());
        if !self.started {
            let seed = self.env.seed();
            let tuning = &self.config.tuning;
            entry.push(Record::Start(Start {
                seed,
                quantum: tuning.quantum,
                nclock: tuning.nclock,
            }));
        }
        entry.push(Record::TermStart);
        match self.propose(entry) {
            Some(index) => {
                if let Some(lead) = &mut self.lead {
                    lead.announced(index, self.now);
                }
                true
            }
            None => {
                // Made anew when consensus accepts proposals again.
                self.unsent = None;
                false
            }
        }
    }

    /// What the leader's server waits for.
    pub(super) fn waiting(&self) -> Waiting {
        let Some(lead) = self.lead.as_ref().filter(|_| self.hearing.is_none()) else {
            return Waiting::Nothing;
        };
        let Some(server) = self.server().filter(|_| self.unsent.is_none()) else {
            return Waiting::Nothing;
        };
        if self.has_findings(lead, server) {
            return Waiting::Findings;
        }
        let settled = lead.serves() && lead.is_settled();
        if !settled || self.pulse.holds() || server.feed.next() <= self.handed {
            return Waiting::Nothing;
        }
        let waits = match self.beyond() {
            Some(beyond) => beyond.waits,
            None => server.waits(),
        };
        match waits {
            Some(state::SLOT) => Waiting::Slot,
            Some(_) => Waiting::Quiescent(server.header().deadline_ns.load(Ordering::Acquire)),
            None => Waiting::Nothing,
        }
    }

    /// What is to be proposed for the leader's server, which waits for this.
    fn due(&mut self, waiting: Waiting) -> Due {
        // Virtual time begins with the first leader's first entry, after its node has heard others' clocks.
        let wall = match waiting {
            Waiting::Nothing | Waiting::Findings => self.pulse.time.last(),
            Waiting::Slot | Waiting::Quiescent(_) => self.pulse.now(&self.env),
        };
        self.mode.due(waiting, self.now, wall)
    }

    /// Proposes what the leader's server waits for, where its mode has it: a time bubble, a clock entry, its findings.
    pub(super) fn propose_for_server(&mut self) {
        let waiting = self.waiting();
        let due = self.due(waiting);
        let mut entry = match due {
            Due::Nothing | Due::After(_) => return,
            Due::Findings => return self.propose_findings(),
            Due::Bubble(_) | Due::Clock => EntryBuilder::new(std::mem::take(&mut self.spare)),
        };
        if let Due::Bubble(turns) = due {
            entry.push(Record::Bubble { turns });
            self.metrics.bubbles.inc();
        } else {
            self.metrics.clock_entries.inc();
        }
        self.mode.proposed(Proposal::Due(due), self.now);
        self.propose(entry);
        if let (Due::Clock, Waiting::Quiescent(due_ns)) = (due, waiting) {
            self.regular.fired(due_ns, self.pulse.time.last().0);
        }
    }

    /// When to look again for what is due, if ever, but for a timer that is awaited. Reads the server's state after the gate was closed.
    pub(super) fn server_wake(&mut self, awaited: Option<Awaited>) -> Option<Duration> {
        let waiting = self.waiting();
        let is_awaited = awaited.is_some() && matches!(waiting, Waiting::Quiescent(_));
        if waiting == Waiting::Nothing || is_awaited {
            return None;
        }
        match self.due(waiting) {
            Due::Nothing => None,
            Due::After(left) => Some(self.now + left),
            Due::Bubble(_) | Due::Clock | Due::Findings => Some(self.now),
        }
    }
}

/// Whether peers say this all the time, and nobody waits until it is heard.
fn is_routine(event: &PeerEvent) -> bool {
    match event {
        PeerEvent::Frame(_, frame::KIND_RAFT, bytes) => wire::is_heartbeat_answer(bytes),
        PeerEvent::Frame(_, kind, _) => [STATE, STATE_ANSWER, PULSE, HELD].contains(kind),
        PeerEvent::Joined(_) | PeerEvent::Lost(_) => false,
    }
}

/// Whether a follower says that its log has entries, or lacks some.
fn is_acknowledgement(event: &PeerEvent) -> bool {
    matches!(event, PeerEvent::Frame(_, frame::KIND_RAFT, bytes) if wire::is_acknowledgement(bytes))
}

pub(super) fn parse(entry: &LogEntry) -> Result<EntryRef<'_>, ReplicaError> {
    EntryRef::parse(&entry.payload).map_err(|why| ReplicaError::Entry { index: entry.index, why })
}
