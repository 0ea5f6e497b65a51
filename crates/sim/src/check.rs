//! Invariants at every moment, seen from above all replicas.

use crate::server::{BROKEN, Cause, REFUSED, SILENT};
use skein_model::entry::Upgrade;
use skein_model::{ConnId, EntryRef, LogIndex, Record, ReplicaId, Term, WallNs};
use skein_replica::editions::Plan;
use std::collections::{BTreeMap, BTreeSet};

/// The most that virtual time may be ahead of the true one: 10 s, four times the usual error of clocks.
const AHEAD_NS: u64 = 10_000_000_000;

/// What servers are started as.
#[derive(Debug)]
struct Edition {
    number: u64,
    about: String,
    kept: bool,
}

impl Default for Edition {
    fn default() -> Self {
        Self { number: 1, about: String::new(), kept: true }
    }
}

/// The observations so far. Each method reports a violation.
#[derive(Debug, Default)]
pub struct Checker {
    leaders: BTreeMap<Term, ReplicaId>,
    /// Term and payload of each committed entry with a payload.
    committed: BTreeMap<LogIndex, (Term, Vec<u8>)>,
    stamps: BTreeMap<LogIndex, WallNs>,
    digests: BTreeMap<LogIndex, u64>,
    roots: BTreeMap<LogIndex, u64>,
    /// The vote of each member in each term.
    votes: BTreeMap<(Term, u64), u64>,
    /// Connections to hosts outside that were begun.
    called: BTreeSet<ConnId>,
    /// Datagrams that left: their entry, and their number in it.
    sent: BTreeSet<(LogIndex, u8)>,
    /// What servers are, and what they were before the last upgrade.
    edition: Edition,
    before: String,
    /// Editions that the loader refused, and that were undone because of that.
    undone: usize,
}

impl Checker {
    /// A replica says that it leads.
    ///
    /// # Errors
    /// Another one leads in the same term.
    pub fn leads(&mut self, replica: ReplicaId, term: Term) -> Result<(), String> {
        let leader = *self.leaders.entry(term).or_insert(replica);
        if leader == replica {
            return Ok(());
        }
        Err(format!("replicas {leader} and {replica} both lead in term {term}"))
    }

    /// A replica was handed a committed entry.
    ///
    /// # Errors
    /// Another one was handed a different entry there.
    pub fn committed(
        &mut self,
        replica: ReplicaId,
        index: LogIndex,
        term: Term,
        payload: &[u8],
    ) -> Result<(), String> {
        let is_new = self.committed.keys().next_back().is_none_or(|last| *last < index);
        let known = self.committed.entry(index).or_insert_with(|| (term, payload.to_vec()));
        if known.0 != term || known.1 != payload {
            let known = known.0;
            return Err(format!(
                "entry {index} is of term {known} elsewhere, replica {replica} has one of term {term}"
            ));
        }
        if is_new { self.upgraded(index, payload) } else { Ok(()) }
    }

    /// An edition begins, or stays: one that does not come up is undone, and the one before it begins again.
    fn upgraded(&mut self, index: LogIndex, payload: &[u8]) -> Result<(), String> {
        let Ok(entry) = EntryRef::parse(payload) else { return Ok(()) };
        for record in entry.records() {
            let Record::Upgrade { edition, step, plan } = record else { continue };
            match step {
                Upgrade::Begun { .. } if edition > self.edition.number => {
                    let plan = Plan::decode(plan).ok_or("a plan that nobody can read")?;
                    self.begun(index, edition, plan)?;
                }
                Upgrade::Kept if edition == self.edition.number => self.edition.kept = true,
                _ => {}
            }
        }
        let Edition { about, kept, .. } = &self.edition;
        match *kept && [BROKEN, SILENT, REFUSED].contains(&about.as_str()) {
            true => Err(format!("entry {index} says that the edition '{about}' stays")),
            false => Ok(()),
        }
    }

    fn begun(&mut self, index: LogIndex, number: u64, plan: Plan) -> Result<(), String> {
        let undoes = !plan.undoes.is_empty();
        if undoes && self.edition.kept {
            // By a leader that did not know yet.
            return Ok(());
        }
        let ended = plan.undoes.contains("its server ended");
        let next = Edition { number, about: plan.about, kept: undoes };
        let last = std::mem::replace(&mut self.edition, next);
        if !undoes {
            self.before = last.about;
            return Ok(());
        }
        self.undone += usize::from(last.about == REFUSED && ended);
        let (about, before) = (&self.edition.about, &self.before);
        match about == before {
            true => Ok(()),
            false => Err(format!("entry {index} begins '{about}' again, and it was '{before}'")),
        }
    }

    /// The number of upgrades to a program that the loader refused, and that were undone because of that: not when their time was over.
    #[must_use]
    pub const fn undone(&self) -> usize {
        self.undone
    }

    /// A replica's server has executed this as a committed entry.
    ///
    /// # Errors
    /// A different entry was committed there, or none.
    pub fn executed(
        &self,
        replica: ReplicaId,
        index: LogIndex,
        payload: &[u8],
    ) -> Result<(), String> {
        match self.committed.get(&index) {
            Some((_, known)) if known == payload => Ok(()),
            _ => Err(format!(
                "the server of replica {replica} executed as entry {index} what was not committed there"
            )),
        }
    }

    /// A committed entry has this stamp.
    ///
    /// # Errors
    /// It is not later than that of the entry before, or ahead of the true time by more than all but one of the clocks can explain.
    pub fn stamped(
        &mut self,
        index: LogIndex,
        stamp: WallNs,
        true_time: WallNs,
    ) -> Result<(), String> {
        self.stamps.insert(index, stamp);
        let before = self.stamps.range(..index).next_back();
        if let Some((earlier, before)) = before.filter(|(_, before)| **before >= stamp) {
            return Err(format!(
                "virtual time goes back: {before} at entry {earlier}, {stamp} at entry {index}"
            ));
        }
        if stamp.0.saturating_sub(true_time.0) < AHEAD_NS {
            return Ok(());
        }
        Err(format!("virtual time is {stamp}, the true time {true_time}"))
    }

    /// A replica's server has this output digest at an entry.
    ///
    /// # Errors
    /// Another one's server has a different digest.
    pub fn digest(
        &mut self,
        replica: ReplicaId,
        index: LogIndex,
        digest: u64,
    ) -> Result<(), String> {
        let known = *self.digests.entry(index).or_insert(digest);
        if known == digest {
            return Ok(());
        }
        Err(format!(
            "replica {replica} diverges at entry {index}: digest {digest:x}, not {known:x}"
        ))
    }

    /// A replica's server holds what has this hash, after an entry.
    ///
    /// # Errors
    /// Another one's server holds something else.
    pub fn root(&mut self, replica: ReplicaId, index: LogIndex, root: u64) -> Result<(), String> {
        match *self.roots.entry(index).or_insert(root) == root {
            true => Ok(()),
            false => Err(format!(
                "the server of replica {replica} holds something else after entry {index}"
            )),
        }
    }

    /// A member of the cluster has voted for one.
    ///
    /// # Errors
    /// It has voted for another one in the same term.
    pub fn voted(&mut self, term: Term, from: u64, to: u64) -> Result<(), String> {
        let known = *self.votes.entry((term, from)).or_insert(to);
        if known == to {
            return Ok(());
        }
        Err(format!("member {from:#x} votes for {known:#x} and for {to:#x} in term {term}"))
    }

    /// An effect of a server becomes visible from outside.
    ///
    /// # Errors
    /// Its cause is not committed.
    pub fn seen(&self, what: &str, cause: Option<Cause>) -> Result<(), String> {
        let Some(cause) = cause else { return Err(format!("{what} names no cause")) };
        match self.committed.get(&cause.index) {
            Some((_, payload)) if Cause::of(cause.index, payload) == cause => Ok(()),
            _ => Err(format!("{what} is seen, but its entry {} is not committed", cause.index)),
        }
    }

    /// A connection to a host outside was begun.
    ///
    /// # Errors
    /// It was begun before.
    pub fn called(&mut self, conn: ConnId) -> Result<(), String> {
        if self.called.insert(conn) {
            return Ok(());
        }
        Err(format!("connection {:#x} is begun twice", conn.0))
    }

    /// A datagram left.
    ///
    /// # Errors
    /// It left before.
    pub fn sent(&mut self, index: LogIndex, number: u8) -> Result<(), String> {
        if self.sent.insert((index, number)) {
            return Ok(());
        }
        Err(format!("datagram {number} of entry {index} leaves twice"))
    }

    /// An operator was told that a signal is in this entry.
    ///
    /// # Errors
    /// It is not, or that is not committed.
    pub fn signalled(&self, index: LogIndex) -> Result<(), String> {
        let entry = self.committed.get(&index).and_then(|(_, p)| EntryRef::parse(p).ok());
        let has_it = |entry: &EntryRef<'_>| {
            entry.records().any(|record| matches!(record, Record::Signal { .. }))
        };
        if entry.is_some_and(|entry| has_it(&entry)) {
            return Ok(());
        }
        Err(format!("a signal is said to be in entry {index}, which is not committed with one"))
    }

    /// The number of committed entries, and the last of them.
    #[must_use]
    pub fn extent(&self) -> (usize, LogIndex) {
        let last = self.committed.keys().next_back().copied().unwrap_or_default();
        (self.committed.len(), last)
    }

    /// The number of terms with a leader.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.leaders.len()
    }
}
