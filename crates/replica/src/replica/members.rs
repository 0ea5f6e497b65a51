//! The members of the cluster, as this replica knows them from its log, and an operator's requests about them.
//!
//! Whatever counts replicas counts those with a vote. A replica that does not know the members yet, as it has joined or lost its log,
//! takes those for them that it noted in a former life, or its configuration's peers. It neither leads nor votes by them.

use super::{Environment, Replica};
use crate::agreement::gather::Cost;
use crate::config::DurabilityMode;
use crate::environment::Since;
use crate::error::ExitReason;
use crate::health::Fault;
use crate::members::{Answer, MemberReport, Request, Step, Wanted, answer};
use skein_log::frame::KIND_APP;
use skein_log::{ChangeError, Kind, MemberStatus, majority};
use skein_model::ReplicaId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// "Do this to the members, as you lead": number u64, a [`Request`] in JSON.
pub(super) const ASK: u8 = KIND_APP + 17;
/// The answer: number u64, an [`Answer`] in JSON.
pub(super) const ANSWER: u8 = KIND_APP + 18;
/// "You are no member since this change of the members, and so many have a vote": index u64, count u64. A node says it to one whose connection it does not take.
pub const GONE: u8 = KIND_APP + 19;
/// "Another node that is this replica, too, is connected here." A node says it to one whose connection it does not take.
pub const TWIN: u8 = KIND_APP + 23;

/// A replica that is no member any more ends after this, if a majority has not said so before.
const GONE_FOR: Duration = Duration::from_secs(10);
/// And when a majority has, it answers the operator who asked here for so long.
const ANSWERS_FOR: Duration = Duration::from_secs(1);
/// Another node with the same id is reported for so long after it was last heard of.
const TWIN_FOR: Duration = Duration::from_secs(10);
/// Requests that wait for the leader's answer.
const MAX_WAITING: usize = 64;

/// What is known of the members.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Those with a vote.
    pub voters: BTreeSet<ReplicaId>,
    /// What this replica does.
    pub kind: Kind,
    /// What those do that are not active.
    kinds: BTreeMap<ReplicaId, Kind>,
    /// Those that others are to take the place of: whoever leads then leads on until that is done, as one of these only hands leadership on again.
    replaced: BTreeSet<ReplicaId>,
    /// How many of the others with a vote are connected.
    pub connected: usize,
    /// Nobody else takes part.
    pub alone: bool,
    /// What of consensus this is.
    version: Option<u64>,
    /// Requests that were passed on to the leader.
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
    asked: u64,
    /// Those that say that this replica is no member,
    gone_by: BTreeSet<ReplicaId>,
    /// the newest change after which they say so,
    gone_at: u64,
    /// whether that is a majority,
    gone_surely: bool,
    /// and since when that is known.
    gone_since: Option<Duration>,
    /// Who is connected to another node that is this replica, too, and when it last said so.
    twin: Option<(ReplicaId, Duration)>,
}

impl Members {
    /// Those of a replica of this kind, which knows nobody yet.
    pub fn of_kind(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// What a member does.
    pub fn kind_of(&self, id: ReplicaId) -> Kind {
        self.kinds.get(&id).copied().unwrap_or_default()
    }

    /// Whether another replica is being taken in to replace it.
    pub fn is_replaced(&self, id: ReplicaId) -> bool {
        self.replaced.contains(&id)
    }

    /// Those with a vote that can have a server,
    pub fn that_can_serve(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.voters.iter().copied().filter(|id| self.kind_of(*id).can_serve())
    }

    /// and their number.
    pub fn can_serve(&self) -> usize {
        self.that_can_serve().count()
    }

    /// Those with a vote that always have one.
    pub fn actives(&self) -> BTreeSet<ReplicaId> {
        let is_active = |id: &ReplicaId| self.kind_of(*id) == Kind::Active;
        self.voters.iter().copied().filter(is_active).collect()
    }
}

impl<E: Environment> Replica<E> {
    /// Whether there is nobody else: no peers, no elections.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.members.alone
    }

    /// Whether the members are to be looked at again.
    pub(super) fn members_changed(&self) -> bool {
        self.members.version != Some(self.consensus.members_version())
    }

    /// Follows the log's members, if they changed.
    pub(super) fn follow_members(&mut self) {
        if !self.members_changed() {
            return;
        }
        self.members.version = Some(self.consensus.members_version());
        let known = self.consensus.members();
        let mut voters = self.consensus.voters();
        if voters.is_empty() {
            let noted = self.config.noted.others.iter().map(|(id, _)| *id);
            voters = match self.config.noted.others.is_empty() {
                true => self.config.members.iter().map(|member| member.id).collect(),
                false => noted.chain([self.own]).collect(),
            };
        }
        self.replicas = voters.len();
        self.members.voters = voters;
        self.members.kind = self.consensus.kind_of(self.own);
        let all = self.members.voters.iter().copied().chain(known.iter().map(|member| member.id));
        let kinds = all.map(|id| (id, self.consensus.kind_of(id)));
        self.members.kinds = kinds.filter(|(_, kind)| *kind != Kind::Active).collect();
        let learners = known.iter().filter(|member| member.learns);
        self.members.replaced = learners.filter_map(|member| member.place.replaces).collect();
        self.choose_successor();
        self.pulse.count(self.replicas, self.servers_if_it_led());
        let was_alone = std::mem::replace(&mut self.members.alone, self.consensus.is_alone());
        let durability = self.config.durability;
        self.agrees_alone = self.members.alone && durability == DurabilityMode::Memory;
        self.gather.costs(Cost::of(durability, self.members.alone));
        self.follow_peers(&known);
        self.count_connected();
        if self.consensus.is_removed() {
            self.members.gone_since.get_or_insert(self.now);
        } else if self.consensus.takes_part()
            && self.consensus.membership().0 >= self.members.gone_at
        {
            // Taken in again.
            self.members.gone_since = None;
            self.members.gone_by.clear();
            self.members.gone_surely = false;
        }
        if was_alone && !self.members.alone {
            // Time went by without ticks.
            self.next_tick = self.now + self.tick_length();
        } else if !was_alone && self.members.alone {
            self.hearing = None;
            self.consensus.campaign_now();
        }
        if self.lead.is_some() {
            self.compare.untold = self.env.connected().collect();
        }
    }

    /// Tells the environment whom to connect.
    fn follow_peers(&mut self, known: &[MemberStatus]) {
        let mut peers: BTreeMap<ReplicaId, String> =
            known.iter().map(|member| (member.id, member.place.address.clone())).collect();
        // One that is not a member yet goes on to knock where its configuration says, and where members were.
        let joins = !self.consensus.takes_part();
        for (id, address) in self.config.noted.others.iter().filter(|_| joins) {
            peers.entry(*id).or_insert_with(|| address.clone());
        }
        for member in &self.config.members {
            match peers.get_mut(&member.id) {
                // A program from before did not write down where it is.
                Some(address) if address.is_empty() => address.clone_from(&member.address),
                None if joins => drop(peers.insert(member.id, member.address.clone())),
                _ => {}
            }
        }
        if let Some((candidate, address)) = self.consensus.candidate() {
            peers.insert(candidate, address.to_owned());
        }
        peers.remove(&self.own);
        let since = Since { index: self.consensus.membership(), voters: self.members.voters.len() };
        let strangers: Vec<_> = self.env.connected().filter(|id| !peers.contains_key(id)).collect();
        for gone in strangers.iter().filter(|_| !joins) {
            self.env.send(*gone, GONE, &since.gone());
        }
        self.env.flush(self.now);
        self.health.neighbours.set(peers.keys().copied(), self.now);
        // One that connected before this replica knew it as a member.
        let connected: Vec<_> = self.env.connected().collect();
        for peer in connected {
            self.health.neighbours.connected(peer, true, self.now);
        }
        let peers = peers.into_iter().collect();
        self.env.set_peers(peers, (!joins).then_some(since), self.now);
    }

    /// Connections came or went.
    pub(super) fn count_connected(&mut self) {
        let voters = &self.members.voters;
        self.members.connected = self.env.connected().filter(|id| voters.contains(id)).count();
    }

    /// Another replica says that this one is no member, of so many with a vote. One that was a member up to now and whose log has no later change believes it; so does
    /// one whose log is lost, and that was a member before.
    ///
    /// It ends when a majority says so, or after [`GONE_FOR`]: others may not have heard yet that its removal is committed, and need its vote to elect
    /// the leader who knows.
    pub(super) fn hear_of_removal(&mut self, peer: ReplicaId, index: u64, voters: u64) {
        let known = self.consensus.membership().0;
        let news = index > known && self.consensus.takes_part();
        let confirms = index >= known && self.consensus.is_removed();
        let knows_nobody = known == 0 && !self.consensus.takes_part();
        let was_member = self.config.noted.member_at.is_some_and(|at| at.0 < index);
        if !(news || confirms || knows_nobody && was_member) {
            return;
        }
        self.members.gone_since.get_or_insert(self.now);
        self.members.gone_at = self.members.gone_at.max(index);
        self.members.gone_by.insert(peer);
        let enough = majority(usize::try_from(voters).unwrap_or(usize::MAX));
        self.members.gone_surely |= self.members.gone_by.len() >= enough;
    }

    /// A peer is connected to another node that is this replica, too. This one does not end: it may be the other that should, and that has lost its log soon.
    pub(super) fn hear_of_twin(&mut self, peer: ReplicaId) {
        self.members.twin = Some((peer, self.now));
        let why = format!("it is connected to another node that is replica {}, too", self.own);
        self.distrust(peer, &why);
    }

    /// What is said of another node with the same id.
    pub(super) fn twin_fault(&self) -> Option<Fault> {
        let heard = self.members.twin;
        let (peer, _) = heard.filter(|(_, at)| self.now.saturating_sub(*at) < TWIN_FOR)?;
        let own = self.own;
        Some(Fault::new(
            "same_id",
            format!(
                "another node is replica {own}, too, and replica {peer} is connected to it: stop one of the two; each node has its own id and data directory"
            ),
        ))
    }

    /// Ends a replica that is no member.
    pub(super) fn tend_removal(&mut self) {
        if self.removal_wake().is_some_and(|end| end <= self.now) {
            self.removed();
        }
    }

    /// When to look at that again.
    pub(super) fn removal_wake(&self) -> Option<Duration> {
        let after = if self.members.gone_surely { ANSWERS_FOR } else { GONE_FOR };
        self.members.gone_since.map(|since| since + after)
    }

    fn removed(&mut self) {
        if self.ending.is_none() {
            tracing::warn!(event = "removed", replica = self.own.0, why = "an operator removed it");
            self.ending = Some(ExitReason::Removed);
        }
    }

    /// The members, for reports.
    pub(super) fn report_members(&self) -> Vec<MemberReport> {
        let report = |member: MemberStatus| MemberReport {
            id: member.id.0,
            address: member.place.address,
            kind: member.place.kind,
            votes: member.votes,
            learns: member.learns,
            replaces: member.place.replaces.map(|id| id.0),
        };
        self.consensus.members().into_iter().map(report).collect()
    }

    /// An operator's request: done here, or by the leader.
    pub(super) fn requested(&mut self, request: &Request, reply: oneshot::Sender<Answer>) {
        let goes = match request.wanted {
            Wanted::Remove { id } | Wanted::Replace { old: id, .. } => id == self.own.0,
            _ => false,
        };
        if goes && !request.first && self.members.gone_surely {
            // It is done, and this replica about to end.
            let _ = reply.send(Answer::new(Step::Done, "done"));
            return;
        }
        let leader = self.consensus.leader().filter(|leader| *leader != self.own);
        let Some(leader) = leader else {
            // The requester may be gone.
            let _ = reply.send(self.carry_out(request));
            return;
        };
        self.members.asked += 1;
        let number = self.members.asked;
        let json = serde_json::to_vec(request).unwrap_or_default();
        let bytes = [&number.to_le_bytes()[..], &json].concat();
        if self.env.send(leader, ASK, &bytes) {
            if self.members.waiting.len() == MAX_WAITING {
                self.members.waiting.pop_first();
            }
            self.members.waiting.insert(number, reply);
        } else {
            let line = format!("replica {leader} leads, and is not connected");
            let _ = reply.send(Answer::new(Step::Later, line));
        }
    }

    /// Another replica passes a request on.
    pub(super) fn peer_requests(&mut self, peer: ReplicaId, bytes: &[u8]) {
        let Some((number, json)) = bytes.split_first_chunk::<8>() else {
            return self.distrust(peer, &format!("a malformed message ({ASK})"));
        };
        let Ok(request) = serde_json::from_slice::<Request>(json) else {
            return self.distrust(peer, &format!("a malformed message ({ASK})"));
        };
        let answer = self.carry_out(&request);
        let json = serde_json::to_vec(&answer).unwrap_or_default();
        self.env.send(peer, ANSWER, &[&number[..], &json].concat());
    }

    /// The leader answers.
    pub(super) fn request_answered(&mut self, peer: ReplicaId, bytes: &[u8]) {
        let parsed = bytes.split_first_chunk::<8>().and_then(|(number, json)| {
            Some((u64::from_le_bytes(*number), serde_json::from_slice::<Answer>(json).ok()?))
        });
        let Some((number, answer)) = parsed else {
            return self.distrust(peer, &format!("a malformed message ({ANSWER})"));
        };
        if let Some(reply) = self.members.waiting.remove(&number) {
            // The requester may be gone.
            let _ = reply.send(answer);
        }
    }

    fn carry_out(&mut self, request: &Request) -> Answer {
        let Some(change) = request.wanted.change() else {
            let Wanted::Transfer { to } = request.wanted else {
                return Answer::new(Step::Refused, "an unknown request");
            };
            return self.transfer(ReplicaId(to));
        };
        if self.config.fixed_members {
            let why = "'skein run' keeps the number of its replicas: run each replica by 'skein node', then it can change";
            return Answer::new(Step::Refused, why);
        }
        let Self { consensus, env, .. } = self;
        let there: BTreeSet<ReplicaId> = env.connected().collect();
        let result = consensus.change(&change, request.first, |id| there.contains(&id));
        if let Err(ChangeError::Leads) = result {
            return match self.heir() {
                Some(heir) if self.hand_leadership_to(heir) => {
                    let line =
                        format!("this replica leads: leadership goes to replica {heir} first");
                    Answer::new(Step::Goes, line)
                }
                _ => Answer::new(
                    Step::Refused,
                    "it leads, and no other replica is connected and well to lead instead",
                ),
            };
        }
        self.follow_members();
        answer(&change, result, |id| self.images.kib_of(id))
    }

    fn is_passive(&self, id: ReplicaId) -> bool {
        self.members.kind_of(id) == Kind::Passive
    }

    /// On a leader: the active replica that a passive one would leave leadership to.
    fn gets_it_back(&self) -> Option<ReplicaId> {
        let is_active = self.members.kind == Kind::Active;
        let own = is_active && self.slot.is_in_step() && self.unfit().is_none();
        let own = own && !self.members.is_replaced(self.own);
        let is_fit = |id: &ReplicaId| {
            self.health.neighbours.is_fit(*id)
                && self.has_its_vote(*id)
                && !self.members.is_replaced(*id)
        };
        own.then_some(self.own).or_else(|| self.others_with_servers().find(is_fit))
    }

    fn transfer(&mut self, to: ReplicaId) -> Answer {
        let leads = self.consensus.leader() == Some(self.own);
        if !leads {
            Answer::new(Step::Later, ChangeError::NotLeader(self.consensus.leader()).to_string())
        } else if to == self.own {
            Answer::new(Step::Done, "done")
        } else if !self.consensus.voters().contains(&to) {
            Answer::new(Step::Refused, format!("replica {to} is not a member with a vote"))
        } else if !self.members.kind_of(to).can_serve() {
            Answer::new(Step::Refused, is_witness(to))
        } else if !self.has_its_vote(to) {
            // The vote is that of the log that it has lost: leadership would go to nobody, and clients wait.
            Answer::new(Step::Later, format!("replica {to} has no vote until its log is filled"))
        } else if !self.health.neighbours.is_fit(to) {
            Answer::new(Step::Refused, format!("replica {to} is not connected, or not fit to lead"))
        } else if self.serves()
            && self.members.kind_of(to) == Kind::Active
            && !self.pulse.is_in_step(to)
        {
            // It would leave leadership to another again.
            Answer::new(Step::Later, format!("replica {to}'s server still executes the log"))
        } else if let Some(active) = self.gets_it_back().filter(|_| self.is_passive(to)) {
            let why = format!(
                "replica {to} is passive, and would leave leadership to replica {active} at once, which is active and in step"
            );
            Answer::new(Step::Refused, why)
        } else if self.hand_leadership_to(to) {
            Answer::new(Step::Goes, format!("leadership goes to replica {to}"))
        } else {
            Answer::new(Step::Refused, format!("replica {to} is not a member with a vote"))
        }
    }
}

/// Why a replica cannot be made to lead.
pub(super) fn is_witness(id: ReplicaId) -> String {
    format!(
        "replica {id} is a witness: it votes and keeps the log, and cannot lead; name another one"
    )
}
