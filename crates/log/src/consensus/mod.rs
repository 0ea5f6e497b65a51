//! Consensus: TiKV's `raft`, without sockets, files, threads or clocks.
//!
//! [`Consensus`] owns the library's state, the newest entries, and everything that waits for the disk. The same inputs always give
//! the same outputs: election timeouts come from a seed, not from the library's random numbers.
//!
//! # What a caller owes
//!
//! One thread calls it. Inputs, in any order: [`Consensus::tick`] at the rate that [`Consensus::pace`] says, [`Consensus::step`] for a message from a
//! peer, [`Consensus::propose`], [`Consensus::persisted`] when the disk is done, [`Consensus::peer_lost`] when a peer's
//! connection closed. After any of them, call [`Consensus::take_ready`] until it returns `None`, and for each [`Batch`],
//! in this order:
//!
//! 1. If [`Batch::role`] is set, note it: only a leader may accept clients.
//! 2. If [`Batch::reset`] is set, replace the state machine by the image at that index: see "Where the log begins".
//! 3. Send [`Batch::messages`]. They may be lost, late, twice or out of order; they need not wait for the disk:
//!    messages that promise something durable are held back in here until it is.
//! 4. If [`Batch::persist`] is set, hand it to the write-ahead log. Tickets are persisted in order. When a ticket and all earlier ones
//!    are durable, call [`Consensus::persisted`]; a later ticket stands for the earlier ones. The leader's followers
//!    write at the same time as its own disk. A write may be delayed until somebody waits for it: [`Batch::awaited`] ends the delay.
//! 5. Give [`Batch::committed`] to the state machine. Entries come once, in order, without gaps except for entries without a
//!    payload. [`Batch::applied`] counts those too. They are durable on a majority, and on this replica unless it leads: a
//!    leader's own disk may be behind the others.
//!
//! After a restart [`Consensus::new`] takes the log that was recovered. Entries up to the recovered commit index
//! do not come again in batches: read them with [`Consensus::entries`], from index 1 if the state machine is new, or behind its image. The
//! same call refills a state machine at any later time.
//!
//! # Where the log begins
//!
//! The log need not reach back to index 1: [`Consensus::first_index`] says where it begins ([`Base`]). A state machine that needs
//! older entries cannot be filled from it, and is refused by name: it begins with an *image* of the server, which contains the effects of all entries
//! up to its index. The caller takes images, keeps them and brings them to other replicas. In here an image is no more than its index:
//!
//! - When an image is durable, [`Consensus::compact`] forgets entries up to it. How many of them are kept, for followers that are a little behind, is the
//!   caller's choice. A replica that starts again begins with [`Consensus::newest_image`]. [`Consensus::base_at`] has what a log that continues from an image must know, to be stored with the image.
//! - [`Consensus::hold_images`] says which images this replica holds. It is to be called on every replica, at the start and at each change.
//! - A member whose log ends before the leader's begins is named by [`Consensus::take_below_base`] on the leader, and learns it itself by
//!   [`StepError::BelowBase`]. Either may bring the image over. Once the member holds it, the leader sends a snapshot: index, term, members.
//! - The member's next [`Batch::reset`] is the new base: its log is empty behind that, and its state machine is the image. [`Batch::persist`] has the same base for
//!   the log on disk, which is replaced at once by it. A crash before that leaves the old log, and the story begins again.
//!
//! # A leader that died
//!
//! A closed connection shows that the peer's process is gone, long before its silence does. A follower that
//! is told by [`Consensus::peer_lost`] *forgets* the leader: it no longer waits for the end of the leader's lease and grants
//! pre-votes (this is etcd's `ForgetLeader`). That is safe, as Raft's safety never rests on the lease: votes are still once
//! per term and durable. The first of the remaining voters campaigns at once, the next ones some ticks later each, so that votes do
//! not split. It asks for pre-votes like any other candidate: if only one link broke, the followers that still hear the
//! leader refuse, and the leader stays.
//!
//! Actives come first, then passives, then witnesses ([`Kind`]): by their turn after a closed connection, and by longer timeouts after a silence. Nobody refuses
//! a vote for that: one that waits in vain campaigns a little later, so whoever is left, and has the newest entries, is elected.
//!
//! # A replica that forgot
//!
//! A replica that lost its log has forgotten entries that it acknowledged and votes that it gave, so it must not be
//! taken for its former self. It returns with a larger incarnation, which makes it another member without a
//! vote. The leader, told by [`Consensus::request_rejoin`], makes it a learner, fills its log, and then gives it the vote
//! of its former self in one joint change. Until then the cluster counts the former self as down; [`Status::is_whole`]
//! says when another loss is harmless.
//!
//! With [`Durability::Memory`] every start is such a loss ([`crate::identity`] counts them), but for a founder that never met another replica; a log in memory is bounded by
//! [`Consensus::compact`] alone. A replica that returns knows no members, whatever its configuration says: it does not
//! campaign until the log that it is filled with names it, and nobody counts its vote before. So only the log says whose votes count, also when all founders were
//! replaced meanwhile. With a log on disk it is one when the data directory was damaged and removed
//! ([`crate::wal::WalOptions::incarnation`]).

mod api;
mod change;
mod history;
mod images;
mod kinds;
mod levels;
mod members;
mod messages;
mod process;
mod rhythm;
mod rounds;
mod store;
mod uncommitted;

pub use api::{
    Batch, Chunk, Config, ConsensusError, Outgoing, PeerStatus, ProposeError, RoleChange, Status,
    StepError,
};
use change::Candidate;
pub use change::{Change, ChangeError, MemberStatus, Progress};
pub use kinds::{UnfitKinds, unfit_kinds};

use crate::{
    base::Base,
    level::{Level, TooNew},
    places::{Kind, Places},
    recovered::Recovered,
    rng::Rng,
    types::{Durability, HardState, LogEntry, Role, Ticket, incarnation_of, member_id, replica_of},
    wal::WalError,
    wire,
};
use bytes::Bytes;
use raft::{
    GetEntriesContext, INVALID_ID, RawNode, StateRole,
    eraftpb::{ConfState, Entry, EntryType, Message, MessageType},
};
use skein_model::{LogIndex, ReplicaId, Term};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::LogStore;
pub use store::{EntryReader, OldEntries};
use uncommitted::Uncommitted;

/// Messages that promise something that is not durable yet.
struct Held {
    after: Ticket,
    number: u64,
    messages: Vec<Outgoing>,
}

/// One replica's part in the agreement; the module's head lists the caller's duties.
pub struct Consensus {
    config: Config,
    member: u64,
    node: RawNode<LogStore>,
    members: ConfState,
    /// Replicas that reported a lost log, with their incarnation.
    wanted: BTreeMap<ReplicaId, u64>,
    /// Peers' hellos while this replica does not take part: it may not know yet whether these are members.
    unknown: BTreeMap<ReplicaId, u64>,
    rng: Rng,
    election_timeout: usize,
    /// The role and term that the timeout was drawn for.
    drawn_for: (u64, StateRole),
    /// Ticks until the next campaign after the leader was lost, and how many are left.
    campaign: Option<(u32, u32)>,
    /// The leader's request to lead, while a change of members that is committed is not applied here.
    asked_to_lead: Option<Message>,
    held: VecDeque<Held>,
    released: Vec<Outgoing>,
    issued: Ticket,
    durable: Ticket,
    hard_state: HardState,
    reported: RoleChange,
    applied: LogIndex,
    uncommitted: Uncommitted,
    /// The images of the server that this replica holds.
    images: BTreeSet<LogIndex>,
    /// Members who need an image, until the caller takes them.
    below_base: BTreeSet<u64>,
    /// The ticks since a snapshot was sent to a member.
    snapshots: BTreeMap<u64, u32>,
    /// A base that the log on disk does not have yet.
    forgot: Option<Base>,
    /// The newest membership change that is applied.
    membership: LogIndex,
    /// Up to this entry a follower's silence is no reason to ask it again.
    unhurried: LogIndex,
    /// Where the members are reached, and the agreed level.
    places: Places,
    /// The log has agreed on a level, and on nobody's place: founders still have theirs from their configurations.
    places_unsaid: bool,
    /// Levels that entries say which are not applied yet.
    levels_ahead: Vec<(LogIndex, Level)>,
    /// The newest levels that connected peers know.
    levels: BTreeMap<ReplicaId, Level>,
    /// On a leader: a replica that is to be taken in, and is not a member yet.
    candidate: Option<Candidate>,
    /// On a leader: who is to lead when it goes, if the caller has said so.
    heir: Option<ReplicaId>,
    /// Grows with each change of members, places, the needed level and the candidate.
    version: u64,
    /// This replica's kind, as a leader says while the log here does not.
    told_kind: Option<Kind>,
    /// The members changed, and the log on disk does not know yet that this is committed.
    changed: bool,
    /// This replica was a member, and is none any more.
    is_removed: bool,
    /// The first change in the log does not say who founded the cluster.
    names_no_founders: bool,
    /// What was recovered of marked entries.
    marked: Vec<LogEntry>,
    rhythm: rhythm::Rhythm,
    /// What learners must have.
    round: rounds::Round,
}

impl Consensus {
    /// Starts a replica from its recovered log. `reader` reads persisted entries back.
    pub fn new(
        config: Config,
        recovered: Recovered,
        reader: Option<Box<dyn EntryReader + Send>>,
    ) -> Result<Self, ConsensusError> {
        config.check()?;
        let member = member_id(config.id, config.incarnation);
        let applied = recovered.hard_state.commit;
        if applied > recovered.last_index() {
            return Err(ConsensusError::Recovered(
                "the commit index is behind the last entry".into(),
            ));
        }
        let hard_state = recovered.hard_state;
        let membership = recovered.membership.clone();
        let marked = recovered.marked.iter().filter(|entry| entry.index <= applied);
        let marked = marked.cloned().collect();
        let base = recovered.base().clone();
        let begins = base.index;
        // They are known as of the base at least.
        let known_since = if base.members.is_founders() { LogIndex(0) } else { begins };
        let founders = change::first_members(&config, &base.members, &membership);
        // One that joins an existing cluster learns from the log who founded it.
        if !founders.is_possible() && (!founders.is_founders() || config.incarnation == 0) {
            return Err(ConsensusError::Recovered("its members are impossible".into()));
        }
        let store = LogStore::new(recovered, &founders, reader);
        let library = raft::Config { applied: applied.0, ..library_config(&config, member) };
        let node = RawNode::new(&library, store, &slog::Logger::root(slog::Discard, slog::o!()))
            .map_err(|error| ConsensusError::Config(error.to_string()))?;
        let mut consensus = Self {
            member,
            node,
            members: founders.to_state(),
            wanted: BTreeMap::new(),
            unknown: BTreeMap::new(),
            rng: Rng::new(config.seed),
            election_timeout: 0,
            drawn_for: (u64::MAX, StateRole::Follower),
            campaign: None,
            asked_to_lead: None,
            held: VecDeque::new(),
            released: Vec::new(),
            issued: Ticket::default(),
            durable: Ticket::default(),
            hard_state,
            reported: RoleChange::default(),
            applied: begins,
            uncommitted: Uncommitted::new(
                config.max_uncommitted_bytes.max(config.max_message_bytes),
            ),
            images: BTreeSet::new(),
            below_base: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            forgot: None,
            membership: known_since,
            unhurried: LogIndex(0),
            places: founders.places,
            places_unsaid: base.members.says_level_only(),
            levels_ahead: Vec::new(),
            levels: BTreeMap::new(),
            candidate: None,
            heir: None,
            version: 0,
            told_kind: None,
            changed: false,
            is_removed: false,
            names_no_founders: false,
            marked,
            rhythm: rhythm::Rhythm::default(),
            round: rounds::Round::default(),
            config,
        };
        for entry in membership.iter().take_while(|entry| entry.index <= applied) {
            consensus.apply_membership(entry);
        }
        consensus.applied = applied;
        for entry in membership.iter().skip_while(|entry| entry.index <= applied) {
            let level = wire::level_of_change(&entry.payload);
            consensus.levels_ahead.push((entry.index, level));
        }
        let (needed, known) = (consensus.needed_level(), consensus.config.level);
        if needed > known {
            return Err(ConsensusError::TooNew(TooNew { needed, known }));
        }
        // What was recovered is on disk.
        consensus.changed = false;
        consensus.reported.term = consensus.hard_state.term;
        Ok(consensus)
    }

    /// One unit of time passed.
    pub fn tick(&mut self) {
        self.draw_election_timeout();
        if self.node.raft.state != StateRole::Leader {
            let timeout = self.election_timeout + self.deference();
            self.node.raft.set_randomized_election_timeout(timeout);
        }
        let fired = self.node.tick();
        if fired && self.node.raft.state == StateRole::PreCandidate {
            // The election failed: a new timeout instead of the one that collided.
            self.drawn_for.0 = u64::MAX;
        }
        // One that can campaign does so by now. A learner would take a silent leader for the leader for ever.
        let raft = &mut self.node.raft;
        if !raft.promotable() && raft.election_elapsed >= self.election_timeout {
            raft.leader_id = INVALID_ID;
        }
        self.tick_campaign();
        self.tick_snapshots();
        self.tick_candidate();
        self.tick_round();
    }

    /// The number of ticks until one may have an effect, at least 1: those before it only count.
    #[must_use]
    pub fn ticks_left(&self) -> u32 {
        let raft = &self.node.raft;
        if self.campaign.is_some() || self.drawn_for != (raft.term, raft.state) {
            return 1;
        }
        let election = match raft.state {
            StateRole::Leader => self.config.election_ticks as usize,
            _ => self.election_timeout + self.deference(),
        };
        let mut left = election.saturating_sub(raft.election_elapsed);
        if raft.state == StateRole::Leader {
            let heartbeat = self.config.heartbeat_ticks as usize;
            left = left.min(heartbeat.saturating_sub(raft.heartbeat_elapsed()));
        }
        // Lossless: configured in 32 bits.
        left.max(1) as u32
    }

    /// Appends an entry to the log of this leader, and returns its index. It may still be lost until it is committed.
    pub fn propose(&mut self, payload: impl Into<Bytes>) -> Result<LogIndex, ProposeError> {
        let payload = payload.into();
        if self.node.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader { leader: self.leader() });
        }
        if payload.is_empty() {
            return Err(ProposeError::Empty);
        }
        let max = self.config.max_entry_bytes;
        if payload.len() > max {
            return Err(ProposeError::TooLong { bytes: payload.len(), max });
        }
        self.propose_entry(EntryType::EntryNormal, payload)?;
        Ok(self.last_index())
    }

    /// The [`Persist`] with this ticket, and all before it, are durable.
    pub fn persisted(&mut self, ticket: Ticket) {
        assert!(ticket <= self.issued, "a ticket that was never issued");
        self.durable = self.durable.max(ticket);
        let mut number = None;
        while let Some(held) = self.held.pop_front_if(|held| held.after <= self.durable) {
            number = Some(held.number);
            self.released.extend(held.messages);
        }
        if let Some(number) = number {
            self.node.on_persist_ready(number);
        }
    }

    /// On a leader: followers may take their time to acknowledge the entries up to `index`, and are not asked again meanwhile.
    pub const fn unhurried_up_to(&mut self, index: LogIndex) {
        self.unhurried = index;
    }

    /// A peer's connection closed: its process is gone, or the link. See "A leader that died".
    pub fn peer_lost(&mut self, peer: ReplicaId) {
        // Another program may come back.
        self.levels.remove(&peer);
        self.unknown.remove(&peer);
        self.report_unreachable(peer);
        self.forget_rhythm_with(peer);
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader {
            return;
        }
        if raft.leader_id == INVALID_ID || replica_of(raft.leader_id) != peer {
            return;
        }
        let lost = raft.leader_id;
        raft.leader_id = INVALID_ID;
        if !raft.promotable() {
            return;
        }
        let mut others: Vec<u64> = self.members.voters.clone();
        others.retain(|voter| *voter != lost);
        others.sort_unstable_by_key(|voter| (self.kind_of(replica_of(*voter)), *voter));
        let rank = others.iter().position(|voter| *voter == self.member).unwrap_or_default();
        // Lossless: there are few voters.
        let delay = rank as u32 * self.config.stagger_ticks;
        // As often as fits into a silent leader's election timeout.
        let attempts = self.config.election_ticks / self.config.stagger_ticks.max(1);
        self.campaign = Some((delay, attempts.max(1)));
        if delay == 0 {
            self.campaign_now();
        }
    }

    /// Asks for an election at once, unless this replica leads already or has no vote.
    pub fn campaign_now(&mut self) {
        if self.node.raft.promotable() {
            // Fails only if this replica leads.
            let _ = self.node.campaign();
        }
    }

    /// Hands leadership to a voter, once its log is complete. Proposals are refused meanwhile; a transfer that fails
    /// ends after an election timeout. False if this replica does not lead or `to` has no vote.
    pub fn transfer_leadership(&mut self, to: ReplicaId) -> bool {
        let member = self.members.voters.iter().filter(|voter| replica_of(**voter) == to).max();
        let Some(&member) = member.filter(|_| self.node.raft.state == StateRole::Leader) else {
            return false;
        };
        self.node.transfer_leader(member);
        true
    }

    /// A message could not be sent: the leader probes this follower before it sends more.
    pub fn report_unreachable(&mut self, peer: ReplicaId) {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return;
        }
        let lost: Vec<u64> =
            raft.prs().iter().map(|(id, _)| *id).filter(|id| replica_of(*id) == peer).collect();
        for member in lost {
            self.node.report_unreachable(member);
            // What it said of its images is of the past, and what it was sent may be lost.
            self.node.mut_store().holds_image(member, None);
            self.give_up_snapshot(member);
        }
    }

    /// A peer's incarnation of its log: if not 0, it lost one. To be called for every peer's hello, on every
    /// replica: the leader acts on it.
    pub fn request_rejoin(&mut self, peer: ReplicaId, incarnation: u64) {
        if !self.takes_part() {
            self.unknown.insert(peer, incarnation);
        }
        self.want(peer, incarnation);
    }

    pub(super) fn want(&mut self, peer: ReplicaId, incarnation: u64) {
        let candidate = self.candidate.as_ref().is_some_and(|c| c.replica == peer);
        let known = candidate || members::has_replica(&self.members, peer);
        // Also in a later life: then the hello came from an older copy of its data.
        let has_it =
            |member: u64| replica_of(member) == peer && incarnation_of(member) >= incarnation;
        let is_member = members::all(&self.members).any(has_it);
        if incarnation > 0 && known && !is_member && peer != self.config.id {
            let wanted = self.wanted.entry(peer).or_default();
            *wanted = incarnation.max(*wanted);
        }
    }

    /// The next duties, if any. To be called again until there are none.
    pub fn take_ready(&mut self) -> Option<Batch> {
        self.change_members();
        self.lead_as_asked();
        let is_ready = self.node.has_ready();
        let role = self.role_change();
        if !is_ready && role.is_none() && self.is_settled() {
            return None;
        }
        let mut batch = Batch::default();
        std::mem::swap(&mut batch.messages, &mut self.released);
        if is_ready {
            match self.config.durability {
                Durability::Fsync => self.process_async(&mut batch),
                Durability::Memory => self.process_in_memory(&mut batch),
            }
            let up_to = self.applied.0.min(self.node.raft.raft_log.persisted);
            self.node.mut_store().trim(up_to, self.config.recent_bytes);
        }
        self.persist_base(&mut batch);
        self.tell_of_base(&mut batch.messages);
        self.drop_messages_to_older(&mut batch.messages);
        batch.role = self.role_change().or(role);
        batch.applied = self.applied;
        Some(batch)
    }

    /// Whether there is nothing to be done but what the library has.
    fn is_settled(&self) -> bool {
        self.released.is_empty() && self.forgot.is_none() && !self.node.store().has_below_base()
    }

    /// The entries that [`marks`](crate::wal::WalOptions::marks) is true of and that were committed before the start, once.
    pub fn take_marked(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.marked)
    }

    /// Committed entries from `from` on: about `max_bytes` of them or one, up to the last one that batches handed out.
    pub fn entries(&self, from: LogIndex, max_bytes: usize) -> Result<Chunk, WalError> {
        let from = LogIndex(from.0.max(1));
        let first = self.first_index();
        if from < first {
            return Err(WalError::BelowBase { index: from.0, first: first.0 });
        }
        if from > self.applied {
            return Ok(Chunk { entries: Vec::new(), next: from });
        }
        let read = self.node.store().read(from.0, self.applied.0 + 1, max_bytes as u64)?;
        let next = read.last().map_or(from, |entry| LogIndex(entry.index + 1));
        let entries = read.iter().map(store::to_log_entry).filter(LogEntry::is_payload).collect();
        Ok(Chunk { entries, next })
    }

    /// The newest entry with a payload that is not applied yet, if there is one: a new leader may find proposals of earlier leaders, which are
    /// committed together with its own.
    pub fn newest_unapplied(&self) -> Result<Option<LogEntry>, WalError> {
        let log = &self.node.raft.raft_log;
        for index in (self.applied.0 + 1..=log.last_index()).rev() {
            let context = GetEntriesContext::empty(false);
            let Ok(found) = log.slice(index, index + 1, None, context) else {
                return Err(self
                    .node
                    .store()
                    .take_read_error()
                    .unwrap_or(WalError::Missing { index }));
            };
            let entry = found.first().map(store::to_log_entry);
            if let Some(entry) = entry.filter(LogEntry::is_payload) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// From now on old entries that a follower needs are not read in here, but requested by [`take_wanted`](Self::take_wanted). For callers that must
    /// not wait for a disk.
    pub fn read_aside(&mut self) {
        self.node.mut_store().read_aside();
    }

    /// Ranges to be read for followers; each must be answered by [`give_old`](Self::give_old).
    pub fn take_wanted(&mut self) -> Vec<OldEntries> {
        self.node.mut_store().take_wanted()
    }

    /// Old entries have been read, from this index on, as [`EntryReader::read`] gives them.
    pub fn give_old(&mut self, from: LogIndex, entries: Result<Vec<LogEntry>, WalError>) {
        for context in self.node.mut_store().give_old(from, entries) {
            self.node.on_entries_fetched(context);
        }
        self.node.mut_store().forget_old();
    }

    /// The reason why a follower did not get old entries recently: the log cannot be read.
    pub fn take_read_error(&mut self) -> Option<WalError> {
        self.node.store().take_read_error()
    }

    /// This replica's role.
    #[must_use]
    pub fn role(&self) -> Role {
        let raft = &self.node.raft;
        match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate => Role::Candidate,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Follower if raft.promotable() => Role::Follower,
            StateRole::Follower => Role::Learner,
        }
    }

    /// The leader, as far as it is known.
    #[must_use]
    pub fn leader(&self) -> Option<ReplicaId> {
        let leader = self.node.raft.leader_id;
        (leader != INVALID_ID).then(|| replica_of(leader))
    }

    /// The current term.
    #[must_use]
    pub fn term(&self) -> Term {
        Term(self.node.raft.term)
    }

    /// The newest entry handed out, counting those without a payload.
    #[must_use]
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The first entry that this replica's log can hold: 1 unless it has a base.
    #[must_use]
    pub fn first_index(&self) -> LogIndex {
        self.node.store().first()
    }

    /// The base of a log that begins after what is applied here.
    #[must_use]
    pub fn base(&self) -> Base {
        self.base_at(self.applied).expect("what is applied is in the log, or its base")
    }

    /// The newest entry of this replica's log, committed or not.
    #[must_use]
    pub fn last_index(&self) -> LogIndex {
        LogIndex(self.node.raft.raft_log.last_index())
    }

    /// The full state, for people.
    #[must_use]
    pub fn status(&self) -> Status {
        let raft = &self.node.raft;
        let mut peers: Vec<PeerStatus> = Vec::new();
        if raft.state == StateRole::Leader {
            peers.extend(raft.prs().iter().map(|(member, progress)| PeerStatus {
                id: replica_of(*member),
                incarnation: incarnation_of(*member),
                matched: LogIndex(progress.matched),
                commit: LogIndex(progress.committed_index),
                active: progress.recent_active || *member == self.member,
                voter: self.members.voters.contains(member),
            }));
            peers.sort_unstable_by_key(|peer| (peer.id, peer.incarnation));
        }
        Status {
            id: self.config.id,
            role: self.role(),
            leader: self.leader(),
            term: self.term(),
            commit: LogIndex(raft.raft_log.committed),
            applied: self.applied,
            first_index: self.first_index(),
            last_index: self.last_index(),
            persisted: LogIndex(raft.raft_log.persisted),
            recent_bytes: self.node.store().recent_bytes(),
            membership: self.membership,
            peers,
        }
    }

    fn propose_entry(&mut self, kind: EntryType, payload: Bytes) -> Result<(), ProposeError> {
        let bytes = payload.len();
        if !self.uncommitted.has_room(self.node.raft.term, bytes) {
            return Err(ProposeError::Busy);
        }
        let mut entry = Entry::default();
        entry.set_entry_type(kind);
        entry.data = payload;
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.member;
        message.set_entries(vec![entry].into());
        self.node.raft.step(message).map_err(|_| ProposeError::Busy)?;
        let index = self.last_index();
        self.uncommitted.proposed(index, bytes);
        Ok(())
    }

    fn draw_election_timeout(&mut self) {
        let now = (self.node.raft.term, self.node.raft.state);
        if self.drawn_for != now {
            self.drawn_for = now;
            let ticks = u64::from(self.config.election_ticks);
            self.election_timeout = (ticks + self.rng.below(ticks)) as usize;
        }
    }

    /// Ticks for which this replica lets those campaign that would lead better, if there are any beside the leader that is silent. All of a cluster may begin at once, and
    /// an election timeout is drawn from between one and two of these: so passive replicas wait longer than any active one, and witnesses than any of both.
    fn deference(&self) -> usize {
        let own = self.kind_of(self.config.id);
        let leader = self.node.raft.leader_id;
        let better = |voter: &u64| *voter != leader && self.kind_of(replica_of(*voter)) < own;
        let ticks = self.config.election_ticks as usize;
        match own {
            Kind::Active => 0,
            _ if !self.members.voters.iter().any(better) => 0,
            Kind::Passive => ticks,
            Kind::Witness => 2 * ticks,
        }
    }

    /// Campaigns repeatedly after the leader was lost: a peer that has not noticed yet refuses.
    fn tick_campaign(&mut self) {
        let Some((delay, attempts)) = self.campaign.take() else { return };
        let raft = &self.node.raft;
        let undecided = matches!(raft.state, StateRole::Follower | StateRole::PreCandidate);
        if raft.leader_id != INVALID_ID || !undecided || attempts == 0 {
            return;
        }
        if delay > 1 {
            self.campaign = Some((delay - 1, attempts));
            return;
        }
        self.campaign = Some((self.config.stagger_ticks, attempts - 1));
        self.campaign_now();
    }

    fn change_members(&mut self) {
        let members = &self.members;
        let idle = self.wanted.is_empty()
            && members.learners.is_empty()
            && members.voters_outgoing.is_empty();
        let raft = &self.node.raft;
        if idle || raft.state != StateRole::Leader || raft.has_pending_conf() {
            return;
        }
        // One that does not say that it knows the needed level waits until it does.
        let wanted = self.wanted.iter().filter(|(replica, _)| self.is_new_enough(**replica));
        let wanted = wanted.map(|(replica, incarnation)| (*replica, *incarnation)).collect();
        let next = members::Next {
            members,
            wanted: &wanted,
            candidate: self.candidate.as_ref(),
            places: &self.places,
        };
        let Some(change) = next.change(|learner| self.has_caught_up(learner)) else { return };
        // Refused while busy: tried again at the next turn.
        let _ = self.propose_change(change);
    }

    fn role_change(&mut self) -> Option<RoleChange> {
        let now = RoleChange { role: self.role(), leader: self.leader(), term: self.term() };
        (now != self.reported).then(|| {
            self.reported = now;
            now
        })
    }
}

fn library_config(config: &Config, member: u64) -> raft::Config {
    raft::Config {
        id: member,
        election_tick: config.election_ticks as usize,
        // Twice that, and what a witness waits longer.
        max_election_tick: 4 * config.election_ticks as usize,
        heartbeat_tick: config.heartbeat_ticks as usize,
        max_size_per_msg: config.max_message_bytes as u64,
        max_inflight_msgs: config.max_inflight_messages,
        check_quorum: true,
        pre_vote: true,
        skip_bcast_commit: !config.eager_commit,
        // Counted in here: see `uncommitted`.
        max_uncommitted_size: raft::NO_LIMIT,
        max_committed_size_per_ready: config.max_committed_bytes as u64,
        ..raft::Config::default()
    }
}
